"""What commands do where a standard stream is closed, full or given up, a path may not be read, or they are ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring
from tests.cli.command_line import write
from tests.polling import wait_until
from tests.unfinished_files import find_unfinished

TABLE = pa.table({"n": range(100_000)})
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Run the command with a buffered standard output, which the interpreter flushes at exit."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bowstring", *map(str, arguments)]


def run_without(descriptors: tuple[int, ...], *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run `bowstring` with these descriptors closed."""
    closing = " ".join(f"{descriptor}>&-" for descriptor in descriptors)
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command(*arguments)],
        env=BUFFERED, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("streams") / "data.arrow", TABLE)


@pytest.fixture(scope="module")
def recording(path: Path) -> Path:
    with (
        bowstring.serve({"t": pa.table({"n": [1]})}) as server,
        bowstring.connect(server.uri("t"), record=path.with_name("recording")) as dataset,
    ):
        dataset.read_all()
    return path.with_name("recording")


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "info FILE",
        "info --json FILE",
        "validate FILE",
        "head FILE",
        "head --format csv FILE",
        "cat FILE",
        "head PARQUET",
        "info FILE PARQUET",
        "ls",
        "doctor",
        "info --sizes FILE",
        "info --sizes --json FILE",
        "anatomy --quick SMALL -o -",
        "anatomy --quick SMALL -o TARGET",
        "diff FILE FILE --json",
        "diff FILE SMALL",
        "convert FILE - --to csv",
        "convert FILE - --to parquet",
        "convert FILE - --to stream",
        "concat FILE -o -",
        "concat FILE -o TARGET",
        "recover FILE -",
        "recover FILE TARGET",
        "serve FILE",
        "trace RECORDING",
        "trace --json RECORDING",
    ],
)
def test_a_full_standard_output_is_one_error_line_that_names_it_and_status_1(
    arguments: str, path: Path, recording: Path, tmp_path: Path
) -> None:
    paths = {
        "FILE": path,
        "SMALL": write(tmp_path / "small.arrow", pa.table({"n": [1]})),
        "RECORDING": recording,
        "TARGET": tmp_path / "target",
        "PARQUET": tmp_path / "small.parquet",
    }
    pq.write_table(TABLE, paths["PARQUET"])
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            command(*(paths.get(word, word) for word in arguments.split())),
            stdout=full, stderr=subprocess.PIPE, env=BUFFERED, timeout=60, check=False,
        )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr == b"bowstring: standard output: cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [["info"], ["cat"], ["convert", "--to", "stream"]])
def test_closed_output_is_one_error_line_and_status_1(arguments: list[str], path: Path) -> None:
    target = ["-"] if len(arguments) > 1 else []
    process = run_without((1,), *arguments, path, *target)
    assert process.returncode == 1
    assert b"Bad file descriptor" in process.stderr
    assert b"Writer" not in process.stderr
    assert process.stderr.count(b"\n") == 1


def test_commands_without_standard_streams_work_if_all_are_closed(path: Path, tmp_path: Path) -> None:
    assert run_without((0, 1, 2), "convert", path, tmp_path / "copy.arrow").returncode == 0
    assert pa.ipc.open_file(tmp_path / "copy.arrow").read_all() == TABLE


def test_closed_input_is_one_error_line_and_status_1() -> None:
    process = run_without((0,), "info", "-")
    assert process.returncode == 1
    assert process.stderr.startswith(b"bowstring: standard input: cannot be read: Bad file descriptor")


@pytest.mark.parametrize("arguments", [["cat"], ["convert", "--to", "stream"], ["concat", "-o", "-"], ["recover"]])
def test_a_closed_output_pipe_gives_status_1_and_no_error_line(arguments: list[str], path: Path) -> None:
    target = ["-"] if arguments[0] in ("convert", "recover") else []
    with subprocess.Popen(
        command(*arguments, path, *target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BUFFERED
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def _drop_root_privileges() -> None:
    """Give up what lets root read any file (PR_CAPBSET_DROP of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH)."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability)


@pytest.mark.parametrize("name", ["info", "head", "count", "validate", "recover", "concat"])
def test_a_file_without_read_permission_is_one_error_line_and_status_1(name: str, tmp_path: Path) -> None:
    closed = write(tmp_path / "closed.arrow", TABLE)
    closed.chmod(0)
    rest: dict[str, list[object]] = {"recover": [tmp_path / "out"], "concat": ["-o", tmp_path / "out"]}
    process = subprocess.run(
        command(name, closed, *rest.get(name, [])),
        capture_output=True, timeout=60, check=False, preexec_fn=_drop_root_privileges,
    )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr.endswith(b"closed.arrow: cannot be opened: Permission denied\n")
    assert not (tmp_path / "out").exists()


def test_characters_that_the_output_can_not_encode_are_escaped(path: Path, tmp_path: Path) -> None:
    process = subprocess.run(
        command("concat", path, "-o", tmp_path / "é\u0171.arrow"),
        env={**BUFFERED, "PYTHONIOENCODING": "latin-1"}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"/\xe9\\u0171.arrow: 100,000 rows" in process.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_terminated_process_leaves_no_partial_file(number: int, tmp_path: Path) -> None:
    source = write(tmp_path / "data.arrow", pa.table({"n": range(1_000_000)}))
    folder = tmp_path / "out"
    folder.mkdir()
    convert = command("convert", source, folder / "data.jsonl")
    as_usual = partial(signal.signal, number, signal.SIG_DFL)  # also where we were started to ignore it
    with subprocess.Popen(
        convert, stderr=subprocess.PIPE, preexec_fn=as_usual  # noqa: PLW1509 -- it takes no lock
    ) as process:  # fmt: skip
        assert wait_until(lambda: any(path.stat().st_size for path in find_unfinished(folder, process.pid)))
        process.send_signal(number)
        assert process.communicate(timeout=30)[1].strip() == b""
    assert process.returncode == 128 + number
    assert list(folder.iterdir()) == []
