"""`bowstring integration`: what Arrow's integration harness calls, with its arguments and exit codes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import bowstring as bs
from bowstring import integration_json
from bowstring.cli.main import main

SCHEMA = bs.schema(
    [
        bs.field("id", bs.int64(), nullable=False, metadata={"unit": "none"}),
        bs.field("name", bs.dictionary(bs.int8(), bs.string())),
    ],
    metadata={"source": "test"},
)


@pytest.fixture
def batch() -> bs.RecordBatch:
    names = bs.array(["b", None, "a"], SCHEMA.field("name").type)
    return bs.RecordBatch.from_arrays([bs.array([1, 2, 1 << 60], bs.int64()), names], schema=SCHEMA)


@pytest.fixture
def json_path(tmp_path: Path, batch: bs.RecordBatch) -> Path:
    path = tmp_path / "truth.json"
    integration_json.write(path, integration_json.build_document(SCHEMA, [batch, batch.slice(1)]))
    return path


def test_the_harness_writes_a_file_from_json_and_validates_it(tmp_path: Path, json_path: Path) -> None:
    target = tmp_path / "made.arrow"
    call = ["integration", "--integration", f"--arrow={target}", f"--json={json_path}"]
    assert main([*call, "--mode=JSON_TO_ARROW"]) == 0
    assert main([*call, "--mode=VALIDATE", "--validate_decimals=false", "--validate_times=false"]) == 0
    assert bs.open_file(target).schema.equals(SCHEMA, check_metadata=True)


@pytest.mark.parametrize(
    ("json_option", "arrow_option", "mode_option"),
    [("-j", "-a", "-c"), ("-json", "-arrow", "-mode"), ("-j", "-a", "--mode")],
    ids=["Java", "Go", "JavaScript and C#"],
)
def test_the_options_of_other_implementations_are_accepted(
    tmp_path: Path, json_path: Path, json_option: str, arrow_option: str, mode_option: str
) -> None:
    target = tmp_path / "made.arrow"
    call = ["integration", arrow_option, str(target), json_option, str(json_path), mode_option]
    assert main([*call, "JSON_TO_ARROW"]) == 0
    assert main([*call, "VALIDATE"]) == 0
    assert main([*call, "json-to-arrow"]) == 0
    assert main([*call, "validate"]) == 0


def test_each_mode_is_a_command_with_positional_or_named_paths(tmp_path: Path, json_path: Path) -> None:
    target, again = tmp_path / "made.arrow", tmp_path / "again.json"
    assert main(["integration", "json-to-arrow", str(json_path), str(target)]) == 0
    assert main(["integration", "arrow-to-json", "--json", str(again), str(target)]) == 0
    assert main(["integration", "validate", "--arrow", str(target), str(again)]) == 0
    assert json.loads(again.read_bytes()) == json.loads(json_path.read_bytes())


def test_a_stream_becomes_a_file_and_a_file_a_stream_through_pipes(tmp_path: Path, json_path: Path) -> None:
    def run(*arguments: str, data: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "bowstring", "integration", *arguments]
        return subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout

    stream = run("json-to-arrow", "--format", "stream", "-", "-", data=gzip.compress(json_path.read_bytes()))
    file = run("stream-to-file", data=stream)
    assert file.startswith(b"ARROW1")
    back = tmp_path / "back.arrows"
    back.write_bytes(run("file-to-stream", data=file))
    assert main(["integration", "validate", str(json_path), str(back)]) == 0


def test_a_file_becomes_a_stream_and_a_stream_a_file_by_path(tmp_path: Path, json_path: Path) -> None:
    file, stream, again = (str(tmp_path / name) for name in ("one.arrow", "two.arrows", "three.arrow"))
    assert main(["integration", "json-to-arrow", str(json_path), file]) == 0
    assert main(["integration", "file-to-stream", file, stream]) == 0
    assert main(["integration", "stream-to-file", stream, again]) == 0
    assert main(["integration", "validate", str(json_path), again]) == 0


def test_a_stream_whose_dictionary_changes_becomes_a_file_with_one(tmp_path: Path) -> None:
    kind = bs.list_(bs.dictionary(bs.int8(), bs.string()))
    batches = [
        bs.record_batch({"x": bs.array(v, kind), "n": bs.array([1, 2])}) for v in ([["a"], None], [["b", "c"], ["a"]])
    ]
    stream, file = tmp_path / "changing.arrows", tmp_path / "one.arrow"
    with bs.new_stream(stream, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert main(["integration", "stream-to-file", str(stream), str(file)]) == 0
    with bs.open_file(file) as reader:
        assert reader.num_dictionary_batches == 1
        assert [batch.to_pydict() for batch in reader] == [batch.to_pydict() for batch in batches]


def test_a_difference_is_reported_with_status_1(
    tmp_path: Path, json_path: Path, batch: bs.RecordBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.arrow"
    changed = bs.RecordBatch(SCHEMA, 3, [bs.array([1, 2, 3], bs.int64()), batch.column("name")])
    with bs.new_file(other, SCHEMA) as writer:
        writer.write(batch)
        writer.write(changed)
    assert main(["integration", "validate", str(json_path), str(other)]) == 1
    assert capsys.readouterr().err == f"{other}: record batch 1: expected 2 rows, found 3\n"
    with bs.new_file(other, SCHEMA) as writer:
        writer.write(changed)
    assert main(["integration", "validate", str(json_path), str(other)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{other}: record batch 0: column 0 ('id') differs from row 2 on",
        f"{other}: record batch 1: expected 2 rows, found none",
    ]


def test_decimals_beyond_their_precision_are_validated_only_with_the_option(tmp_path: Path) -> None:
    column = bs.array([Decimal("1.5")], bs.decimal128(2, 1))
    wide = integration_json.build_document(bs.schema({"d": column.type}), [bs.record_batch({"d": column})])
    wide["batches"][0]["columns"][0]["DATA"] = ["12345"]
    json_path, target = tmp_path / "wide.json", tmp_path / "wide.arrow"
    json_path.write_text(json.dumps(wide))
    assert main(["integration", "json-to-arrow", str(json_path), str(target)]) == 0
    assert main(["integration", "validate", str(json_path), str(target)]) == 0
    assert main(["integration", "validate", str(json_path), str(target), "--validate_decimals=true"]) == 1


@pytest.mark.parametrize(
    "arguments", [[], ["validate", "one"], ["validate", "1", "2", "3"], ["--mode=DANCE", "-j1", "-a2"]]
)
def test_a_missing_argument_has_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["integration", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bowstring: ")
    assert " (bowstring integration" in line


def test_a_missing_file_is_one_error_line_and_status_1(
    tmp_path: Path, json_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["integration", "validate", str(json_path), str(tmp_path / "gone.arrow")]) == 1
    assert main(["integration", "validate", str(tmp_path / "gone.json"), str(json_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("gone." in line for line in lines)


def test_dates_in_days_are_validated_regardless_of_the_option_for_milliseconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = bs.struct({"day": bs.date32(), "word": bs.string()})
    batch = bs.RecordBatch.from_arrays([bs.array([{"day": None, "word": "xxyyzz"}], kind)], ["s"])
    json_path, path = tmp_path / "truth.json", tmp_path / "broken.arrow"
    integration_json.write(json_path, integration_json.build_document(batch.schema, [batch]))
    with bs.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    path.write_bytes(path.read_bytes().replace(b"xxyyzz", b"xx\xffyzz"))
    assert main(["integration", "validate", str(json_path), str(path), "--validate-date64=false"]) == 1
    assert "UTF-8" in capsys.readouterr().err


def test_each_command_that_writes_a_file_ends_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.arrow"
    with bs.new_file(source, [("a", "int64")]) as writer:
        writer.write_table(bs.table({"a": [1, 2]}))
    for name, sources, target in [
        ("arrow-to-json", [source], tmp_path / "x.json"),
        ("json-to-arrow", [tmp_path / "x.json"], tmp_path / "x.arrow"),
        ("file-to-stream", [source], tmp_path / "x.arrows"),
        ("stream-to-file", [tmp_path / "x.arrows"], tmp_path / "y.arrow"),
    ]:
        assert main(["integration", name, *map(str, [*sources, target])]) == 0
        assert capsys.readouterr() == ("", f"{target}: 2 rows, 1 column\n")
