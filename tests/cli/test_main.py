"""The command line's frame: every failure is one line and an exit status, and commands load when they run."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pyarrow as pa
import pytest

from bowstring.cli import commands
from bowstring.cli.main import format_error, main
from bowstring.errors import BowstringError, InvalidDataError, MissingExtraError, TruncatedError
from tests.cli.command_line import write


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Replace the commands by one, `fail`, that raises the given error."""

    def install(error: BaseException) -> None:
        @click.command()
        def fail() -> None:
            raise error

        monkeypatch.setattr(commands.LazyGroup, "get_command", lambda self, ctx, name: fail if name == "fail" else None)

    return install


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_bowstring_error_is_one_line_and_status_1(
    fail_with: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(InvalidDataError("flights.arrow: the footer\nis at byte 12"))
    assert main(["fail"]) == 1
    assert capsys.readouterr().err == "bowstring: flights.arrow: the footer is at byte 12\n"


def test_the_hint_for_truncated_data_names_recover() -> None:
    hint = "(bowstring recover saves the intact batches, if any)"
    assert format_error(TruncatedError("the file is cut off")) == f"bowstring: the file is cut off {hint}"


def test_the_hint_for_another_format_names_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert main(["recover", str(tmp_path / "x.csv"), str(tmp_path / "target")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("and bowstring.read_table read Parquet, and CSV and JSON by the extension of the name)")


def test_a_missing_file_is_one_error_line_and_status_1(
    fail_with: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(FileNotFoundError(2, "No such file or directory", "gone.arrow"))
    assert main(["fail"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_file_without_a_name_is_not_that_of_standard_output(
    fail_with: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(FileNotFoundError(errno.ENOENT, "No usable temporary directory found"))
    assert main(["fail"]) == 1
    assert capsys.readouterr().err == "bowstring: [Errno 2] No usable temporary directory found\n"


def test_debug_prints_the_traceback(fail_with: Callable[[BaseException], None]) -> None:
    fail_with(TruncatedError("short"))
    with pytest.raises(TruncatedError):
        main(["--debug", "fail"])


@pytest.mark.parametrize("call", ["info --debug gone", "--debug info gone"])
def test_debug_is_accepted_before_and_after_the_command(call: str) -> None:
    with pytest.raises(BowstringError):
        main(call.split())


def test_a_missing_file_has_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "gone.arrow"]) == 1
    assert capsys.readouterr().err == "bowstring: gone.arrow: there is no such file\n"


def test_the_error_for_an_empty_file_does_not_suggest_recover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.arrow").touch()
    for command in (["info"], ["head"], ["recover", str(tmp_path / "target")], ["convert", "-", "--to", "stream"]):
        assert main([command[0], str(tmp_path / "empty.arrow"), *command[1:]]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("empty.arrow: expected an Arrow file or stream, but it is empty")


def test_an_unknown_format_has_no_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "noise").write_bytes(b"\xed\x84J\xfe" * 100)
    assert main(["head", str(tmp_path / "noise")]) == 1
    assert capsys.readouterr().err.endswith(r"found other bytes (it begins with b'\xed\x84J\xfe\xed\x84J\xfe')" + "\n")


@pytest.mark.parametrize("call", ["--help", "info DATA", "head DATA", "convert DATA TARGET"])
def test_arrow_data_is_read_without_importing_pyarrow_or_pandas(call: str, tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"n": [1]}))
    paths = {"DATA": str(path), "TARGET": str(tmp_path / "target.arrows")}
    arguments = [paths.get(word, word) for word in call.split()]
    code = f"import sys; from bowstring.cli.main import main; main({arguments}); print(*sys.modules)"
    process = run_python("-c", code)
    assert not {"pyarrow", "pandas", "fsspec"} & set(process.stdout.split()), process.stderr


def test_an_internal_error_has_a_traceback(fail_with: Callable[[BaseException], None]) -> None:
    fail_with(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["fail"])


def test_a_memory_error_is_one_line_and_status_1(
    fail_with: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(MemoryError())
    assert main(["fail"]) == 1
    assert capsys.readouterr().err == "bowstring: out of memory\n"


def test_an_interrupt_has_its_own_status(fail_with: Callable[[BaseException], None]) -> None:
    fail_with(KeyboardInterrupt())
    assert main(["fail"]) == 130


@pytest.mark.parametrize("error", [RuntimeError("the call was cancelled"), OSError("the connection is closed")])
def test_an_error_caused_by_an_interrupt_has_the_status_of_an_interrupt(
    fail_with: Callable[[BaseException], None], error: Exception
) -> None:
    error.__context__ = KeyboardInterrupt()
    fail_with(error)
    assert main(["fail"]) == 130


USAGE_ERRORS = {
    "no-such-command": "no such command 'no-such-command' (bowstring --help shows how)",
    "convrt a b": "no such command 'convrt'; did you mean convert? (bowstring --help shows how)",
    "--xyz": "no such option '--xyz' (bowstring --help shows how)",
    "convert --batch-rows 0": (
        "invalid value for '--batch-rows': expected an integer of at least 1, found 0 "
        "(bowstring convert --help shows how)"
    ),
    "convert --batch-rows": "option '--batch-rows' requires an argument (bowstring convert --help shows how)",
    "head a b": "got unexpected extra argument (b) (bowstring head --help shows how)",
    'head -c "a a': (
        "invalid value for '-c' / '--columns' / '--column': expected names separated by commas: unexpected end of data "
        "(bowstring head --help shows how)"
    ),
    "validate --all=1": "option '--all' does not take a value (bowstring validate --help shows how)",
    "head -n -5 a": (
        "invalid value for '-n' / '--rows': expected an integer of at least 0, found -5 "
        "(bowstring head --help shows how)"
    ),
    "head -n ten a": (
        "invalid value for '-n' / '--rows': expected an integer of at least 0, found ten "
        "(bowstring head --help shows how)"
    ),
    "fetch a --timeout 0": (
        "invalid value for '--timeout': expected a number above 0, found 0 (bowstring fetch --help shows how)"
    ),
    "vacuum a --older-than nan": (
        "invalid value for '--older-than': expected a number of at least 0, found nan "
        "(bowstring vacuum --help shows how)"
    ),
    "convert a b.arrow --block-size 1": (
        "invalid value for '--block-size': expected an integer from 1024 to 2147483647, found 1 "
        "(bowstring convert --help shows how)"
    ),
    "cat --format xml a": (
        "invalid value for '--format': 'xml' is not one of 'table', 'jsonl', 'csv' (bowstring cat --help shows how)"
    ),
    "count a b c": "got unexpected extra arguments (b c) (bowstring count --help shows how)",
    "anatomy a -o": "option '-o' requires an argument (bowstring anatomy --help shows how)",
    "diff a": "missing argument 'RIGHT' (bowstring diff --help shows how)",
    "diff - -": "only one of the two can be standard input (bowstring diff --help shows how)",
    "convert": "missing argument 'SOURCE' (bowstring convert --help shows how)",
    "convert a b": (
        "'b': unknown format: expected the extension .arrow, .feather, .ipc, .arrows, .parquet, .csv, .tsv, .json, "
        ".jsonl, .ndjson, or --to file|stream|parquet|csv|json|jsonl (bowstring convert --help shows how)"
    ),
    "convert a b.csv --byte-order big": (
        "--byte-order does not apply to csv, only to file, stream (bowstring convert --help shows how)"
    ),
    "convert a b.arrow --delimiter ;": (
        "--delimiter does not apply to arrow to file, only to csv (bowstring convert --help shows how)"
    ),
    "convert a.csv b.arrow --delimiter ab": (
        "invalid value for '--delimiter': expected one ASCII character, found 'ab' (bowstring convert --help shows how)"
    ),
    "convert a.csv b.arrow --column-type n": (
        "invalid value for '--column-type': expected NAME=TYPE, such as price=float64, found 'n' "
        "(bowstring convert --help shows how)"
    ),
    "convert a.csv b.arrow --column-type n=number": (
        "invalid value for '--column-type': expected a type such as int32, string, timestamp[us], "
        "decimal128(10, 2) …, found 'number' (bowstring convert --help shows how)"
    ),
    "convert a.csv b.csv --compression zstd": (
        "--compression does not apply to csv, only to file, stream, parquet (bowstring convert --help shows how)"
    ),
    "convert a.csv b.parquet --compression level": (
        "invalid value for '--compression': 'level' is not one of 'brotli', 'gzip', 'lz4', 'none', 'snappy', 'zstd' "
        "(bowstring convert --help shows how)"
    ),
    "convert a.csv b.arrow --compression snappy": (
        "--compression snappy does not apply to file: use none, lz4, zstd (bowstring convert --help shows how)"
    ),
    **{
        f"convert a.csv b.arrow {option} \udcff": (
            f"invalid value for '{option}': '\\udcff' is not valid UTF-8 (bowstring convert --help shows how)"
        )
        for option in ("--column-names", "--column-type", "--null-value", "--timestamp-format", "--encoding")
    },
    "cat --follow": "--follow expects the path of an Arrow stream (bowstring cat --help shows how)",
    "concat a": "missing option '-o' / '--output' (bowstring concat --help shows how)",
    "recover a": "missing argument 'TARGET' (bowstring recover --help shows how)",
    **{
        f"{command} --xyz": f"no such option '--xyz' (bowstring {command} --help shows how)"
        for command in commands.COMMANDS
    },
}


@pytest.mark.parametrize(("call", "expected"), USAGE_ERRORS.items(), ids=USAGE_ERRORS)
def test_a_usage_error_is_one_line_with_a_hint_and_status_2(
    call: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(call.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"bowstring: {expected}\n")


def test_control_characters_in_usage_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info\n\x1b[2J"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line


@pytest.mark.parametrize("arguments", [[], ["--debug"]])
def test_without_a_command_the_help_is_shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: bowstring [OPTIONS] COMMAND [ARGS]...\n")
    assert err == ""


@pytest.mark.parametrize("call", ["info", "cat", "convert target.csv", "concat -o target", "recover target"])
def test_an_empty_file_name_is_a_usage_error(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = call.split()
    assert main([name, "", *rest]) == 2
    assert "expected a path for FILE, found empty text" in capsys.readouterr().err


def test_control_characters_in_messages_are_escaped() -> None:
    assert "\x1b" not in format_error(BowstringError("column \x1b[2J\x9b1m"))
    assert r"\x1b[2J\x9b1m" in format_error(BowstringError("column \x1b[2J\x9b1m"))


def test_the_error_for_a_missing_package_has_the_command_to_install_it() -> None:
    assert format_error(MissingExtraError.for_package("click", "cli")) == (
        "bowstring: click is not installed: pip install 'bowstring[cli]', or in a clone '.[cli]'"
    )


def test_without_click_the_error_names_the_extra(tmp_path: Path) -> None:
    # An interpreter that refuses to find click, as one where it was never installed.
    program = "import sys; sys.modules['click'] = None; from bowstring.cli.main import main; sys.exit(main(['--help']))"
    process = run_python("-c", program)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "bowstring: click is not installed: pip install 'bowstring[cli]', or in a clone '.[cli]'\n"


@pytest.mark.parametrize("target", ["x.parquet", "x.csv"])
def test_without_pyarrow_the_error_for_another_format_names_the_extra(tmp_path: Path, target: str) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"n": [1]}))
    arguments = ["convert", str(path), str(tmp_path / target)]
    program = (
        "import sys; sys.modules['pyarrow'] = None; from bowstring.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    process = run_python("-c", program, *arguments)
    assert (process.returncode, process.stdout) == (1, "")
    assert (
        process.stderr
        == "bowstring: pyarrow is not installed: pip install 'bowstring[convert]', or in a clone '.[convert]'\n"
    )
    assert not (tmp_path / target).exists()


def test_python_m_bowstring_runs_the_command() -> None:
    process = run_python("-m", "bowstring", "--version")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith("bowstring, version ")


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_listed_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: bowstring {name}" in capsys.readouterr().out


def test_listing_the_commands_does_not_import_them() -> None:
    code = "import sys; from bowstring.cli.main import main; main(['--help']); print(*sys.modules)"
    loaded = set(run_python("-c", code).stdout.split())
    assert "bowstring.cli.commands" in loaded
    assert not loaded & {f"bowstring.cli.{name}" for name in commands.COMMANDS}
