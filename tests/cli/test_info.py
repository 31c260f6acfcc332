"""`bowstring info`: tables, JSON, and one error line for other data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring
from bowstring.cli.main import main
from tests.cli.command_line import run_in_terminal, terminal_lines

HOSTILE = "evil\x1b[2J\x9b1m\u202e\r\n[bold]name[/bold]"
BOX = "─━│┃┏┓┗┛├┤┬┴┼╭╮╰╯"


def write(path: Path, table: pa.Table, batch_rows: int | None = None, **options: Any) -> Path:
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, batch_rows)
    return path


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "delay": pa.array(range(1000), pa.int16()),
            "origin": pa.array(["ABE", "ORD"] * 500).dictionary_encode(),
            "tags": pa.array([{"x": [1, 2], "note": "text that weighs something"}, None] * 500),
        }
    )
    return write(tmp_path / "flights.arrow", table.replace_schema_metadata({"made by": "a test"}), batch_rows=300)


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["info", *arguments]) == 0
    return capsys.readouterr().out


def run_command(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bowstring", "info", *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        encoding="utf-8",
        **options,
    )


def test_info_shows_rows_columns_by_size_schema_and_metadata(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, str(flights))
    size = flights.stat().st_size
    assert f"flights.arrow: Arrow file, {size / 1024:.1f} KiB ({size:,} bytes)" in text
    assert re.search(r"rows +1,000 in 4 record batches", text)
    assert re.search(r"rows per batch +100 to 300, median 300", text)
    assert re.search(r"dictionaries +1, in 1 dictionary batch", text)
    assert re.search(r"metadata version +V5\n", text)
    by_size = text.partition("Columns by size")[2].partition("Dictionaries")[0]
    assert re.findall(r"^  (tags|origin|delay)\b", by_size, re.MULTILINE) == ["tags", "origin", "delay"]
    assert re.search(r"delay +int16 +0 +1\.95 KiB", by_size)
    assert re.search(r"origin +dictionary<int32 to string>", by_size)
    schema = text.partition("\nSchema\n")[2]
    assert re.search(r"^  tags +struct$", schema, re.MULTILINE)
    assert re.search(r"^    x +list$", schema, re.MULTILINE)
    assert re.search(r"^      item +int64$", schema, re.MULTILINE)
    assert re.search(r"^  made by +a test$", schema, re.MULTILINE)


def test_a_size_below_a_kibibyte_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.arrow"
    batch = bowstring.record_batch({"a": [1]})
    with bowstring.new_file(path, batch.schema) as writer:
        writer.write(batch)
    assert f"Arrow file, {path.stat().st_size} bytes\n" in output_of(capsys, str(path))


def test_output_to_a_pipe_has_complete_lines_without_escapes_boxes_or_trailing_spaces(flights: Path) -> None:
    process = run_command([str(flights)])
    assert (process.returncode, process.stderr) == (0, "")
    assert "\x1b" not in process.stdout
    assert not set(process.stdout) & set(BOX)
    assert all(line == line.rstrip() for line in process.stdout.splitlines())


def test_json_has_everything_in_exact_bytes(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output_of(capsys, "--json", str(flights)))
    inspection = bowstring.inspection.inspect(flights)
    assert document["format_version"] == 1
    assert (document["format"], document["rows"]) == ("file", 1000)
    assert document["bytes"]["total"] == flights.stat().st_size
    assert document["record_batches"] == {
        "count": 4,
        "rows_min": 100,
        "rows_median": 300.0,
        "rows_max": 300,
        "with_metadata": 0,
    }
    assert [c["name"] for c in document["columns"]] == ["tags", "origin", "delay"]
    assert {c["name"]: c["bytes"] for c in document["columns"]} == {c.name: c.total_bytes for c in inspection.columns}
    assert [f["name"] for f in document["schema"]["fields"]] == ["delay", "origin", "tags"]
    assert document["schema"]["fields"][1]["dictionary"] == {"id": 0, "index_type": "int32", "ordered": False}
    assert document["schema"]["metadata"] == [{"key": "made by", "value": "a test"}]


def test_the_page_documents_every_key_of_the_json(
    flights: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    documented = keys(json.loads(output_of(capsys, "--json", str(flights))))
    assert len(documented) > 40
    assert not {key for key in documented if f"`{key}`" not in page}


def test_metadata_that_is_not_text_is_base64_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({b"raw": b"\xff\x00"})
    document = json.loads(output_of(capsys, "--json", str(write(tmp_path / "x.arrow", table))))
    assert document["schema"]["metadata"] == [{"key": "raw", "value_base64": "/wA="}]


# Standard input


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_the_format_of_a_pipe_is_detected_from_its_content(tmp_path: Path, name: str, arguments: list[str]) -> None:
    path = write(tmp_path / name, pa.table({"a": range(100_000)}), batch_rows=10_000)
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        process = run_command([*arguments, "--json"], stdin=cat.stdout)
    assert (process.returncode, process.stderr) == (0, "")
    document = json.loads(process.stdout)
    assert document["source"] == "standard input"
    assert document["format"] == ("file" if name.endswith(".arrow") else "stream")
    assert document["media_type"] == f"application/vnd.apache.arrow.{document['format']}"
    assert (document["rows"], document["bytes"]["total"]) == (100_000, path.stat().st_size)


def test_a_redirected_file_is_read_like_a_path(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"a": range(1000)}))
    with path.open("rb") as opened:
        # Beyond a limit of 0 bytes a pipe would be refused; a file is mapped.
        process = run_command(["--json", "--max-piped-bytes", "0"], stdin=opened)
    assert process.returncode == 0
    assert json.loads(process.stdout)["rows"] == 1000


def test_a_large_file_on_a_pipe_is_rejected_and_the_error_names_the_option(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"a": range(1000)}))
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        process = run_command(["--max-piped-bytes", "1000"], stdin=cat.stdout)
    assert process.returncode == 1
    assert "--max-piped-bytes" in process.stderr


# On a terminal


def run_info_in_terminal(arguments: Sequence[str], columns: int, stdin_is_terminal: bool = False) -> tuple[int, str]:
    """The exit status and the output on a terminal with this number of columns."""
    return run_in_terminal(columns, "info", *arguments, stdin_is_terminal=stdin_is_terminal)


def test_a_narrow_terminal_shows_narrow_tables_with_complete_numbers(tmp_path: Path) -> None:
    table = pa.table({"a column whose name is rather long for a terminal": range(123_456), "b": range(123_456)})
    status, text = run_info_in_terminal([str(write(tmp_path / "x.arrow", table))], columns=60)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    assert status == 0
    tables = plain.partition("\n\n")[2]  # the first line contains the path and may be long
    assert all(len(line) <= 60 for line in tables.splitlines())
    assert len(re.findall(r"\s964 KiB +50\.0 %", tables)) == 2
    assert f"{2 * 8 * 123_456:,}" in tables


WIDE = pa.table(
    {
        "departure_delay_minutes": pa.array([1, None], pa.int16()),
        "carrier_name": pa.array(["A", "B"]).dictionary_encode(),
        "nested": [{"elements": [1], "comment": "x"}] * 2,
    }
).replace_schema_metadata({"created by": "a few words that have to be wrapped"})


def test_no_word_is_broken_on_a_narrow_terminal(tmp_path: Path) -> None:
    path, width = write(tmp_path / "x.arrow", WIDE), 40
    narrow, wide = ("\n".join(terminal_lines(each, "info", path)[1:]) for each in (width, 200))
    assert all(len(line) <= width for line in narrow.splitlines())
    words = set(narrow.replace("…", "").split()) - set(wide.split())
    assert all(f"{word}…" in narrow for word in words)  # truncated, not broken
    assert re.search(r"^  carrier_name .*0 +2\d bytes", narrow, re.MULTILINE)


# Several files


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    names = ["a.arrow", "b.arrows", "c.parquet", "d.csv"]
    source = write(tmp_path / "source.arrows", pa.table({"n": [1, 2, 3], "s": ["x", "y", None]}))
    assert all(main(["convert", str(source), str(tmp_path / name)]) == 0 for name in names)
    return [str(tmp_path / name) for name in names]


def test_several_files_are_a_line_each_and_the_total(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    header, *lines, total = output_of(capsys, *files).splitlines()
    assert header.split() == ["file", "format", "rows", "batches", "columns", "size", "compression"]
    assert [re.sub(r"[\d.]+ (bytes|KiB)", "SIZE", line).split()[1:] for line in lines] == [
        ["Arrow", "file", "3", "1", "2", "SIZE", "none"],
        ["Arrow", "stream", "3", "1", "2", "SIZE", "none"],
        ["Parquet", "3", "1", "2", "SIZE", "snappy"],
        ["CSV", "3", "–", "2", "SIZE", "none"],
    ]
    assert re.fullmatch(r"4 files: 12 rows, [\d.]+ KiB, one schema", total)
    document = json.loads(output_of(capsys, "--json", *files))
    assert [each["source"] for each in document["files"]] == files
    assert document["files"][0] == {
        key: value
        for key, value in json.loads(output_of(capsys, "--json", files[0])).items()
        if key != "format_version"
    }


def test_a_file_that_can_not_be_read_does_not_hide_the_others(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["info", "gone.arrow", *files[:2]]) == 1
    out, err = capsys.readouterr()
    assert err == "bowstring: gone.arrow: there is no such file\n"
    assert out.splitlines()[-1].startswith("2 files: 6 rows")
    assert main(["info", "--json", "gone.arrow", files[0]]) == 1
    assert json.loads(capsys.readouterr().out)["files"][0] == {
        "source": "gone.arrow",
        "error": "gone.arrow: there is no such file",
    }


def test_different_schemas_are_counted(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write(tmp_path / "other.arrow", pa.table({"n": [1.5]}))
    capsys.readouterr()
    assert output_of(capsys, files[0], str(other), files[1]).splitlines()[-1].endswith("2 different schemas")


def test_without_a_file_in_a_terminal_info_shows_its_usage() -> None:
    status, text = run_info_in_terminal([], columns=200, stdin_is_terminal=True)
    assert status == 2
    assert "standard input is a terminal" in text


# Much, and hostile


def test_output_is_limited_without_the_option_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({f"column {i}": [i] for i in range(500)})
    table = table.replace_schema_metadata({f"key {i}": "v" * 10_000 for i in range(50)})
    path = str(write(tmp_path / "wide.arrow", table))
    text = output_of(capsys, path)
    assert len(text.splitlines()) < 100
    assert len(text) < 10_000
    assert "… and 480 more columns (--all shows them)" in text
    assert "… and 40 more entries (--all shows them)" in text
    assert "(10,000 bytes)" in text
    everything = output_of(capsys, "--all", path)
    assert all(f"column {i} " in everything for i in range(500))
    assert everything.count("v" * 10_000) == 50


def test_the_fields_of_a_struct_are_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"all": [{f"f{i}": i for i in range(2000)}]})
    assert len(output_of(capsys, str(write(tmp_path / "deep.arrow", table))).splitlines()) < 100


@pytest.mark.parametrize("options", [[], ["--all"], ["--json"]])
def test_control_characters_in_names_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    metadata = {HOSTILE: HOSTILE * 3, b"\xff\x1b": b"\xff\x1b[0m"}
    inner = pa.struct([pa.field(HOSTILE, pa.dictionary(pa.int8(), pa.string()), metadata=metadata)])
    schema = pa.schema([pa.field(HOSTILE, inner, metadata={"ARROW:extension:name": HOSTILE})], metadata=metadata)
    sink = tmp_path / "evil.arrow"
    with pa.ipc.new_file(sink, schema, metadata={HOSTILE: "x"}) as writer:
        writer.write_table(pa.table([pa.array([{HOSTILE: "v"}], inner)], schema=schema))
    text = output_of(capsys, *options, str(sink))
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    if options == ["--json"]:
        assert json.loads(text)["columns"][0]["name"] == HOSTILE
    else:
        assert r"evil\x1b[2J\x9b1m\u202e\r\n[bold]name[/bold]" in text


# Other data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"PAR1" + bytes(40) + b"PAR1", "No more data to read"),
        (b"Airport Name,Aircraft\nBARKSDALE,T-38A\n", "perhaps CSV"),
        (None, "the file is cut off"),
    ],
    ids=["empty", "Parquet", "CSV", "truncated"],
)
def test_a_file_that_is_not_arrow_is_one_error_line_and_status_1(
    tmp_path: Path, flights: Path, content: bytes | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given"
    path.write_bytes(flights.read_bytes()[:-100] if content is None else content)
    assert main(["info", str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(path) in err
    assert words in err


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "found no Arrow, Parquet, CSV or JSON files"), ("gone.arrow", "there is no such file")],
)
def test_a_directory_and_a_missing_file_are_one_error_line_and_status_1(
    tmp_path: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(tmp_path / name)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err


def test_info_describes_the_flights_file(shared_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shared_folder / "data" / "flights-200k.arrow"
    if not path.exists():
        pytest.skip("requires flights-200k.arrow in ../shared")
    text = output_of(capsys, str(path))
    with pa.ipc.open_file(path) as reader:
        table = reader.read_all()
    assert f"{table.num_rows:,} in" in text
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in table.schema.names)
