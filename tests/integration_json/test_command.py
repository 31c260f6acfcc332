"""The tester for Arrow's integration harness, with the harness's arguments and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import bowstring as bs
from tests import integration_json
from tests.integration_json.__main__ import main

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


@pytest.mark.parametrize(
    ("json_option", "arrow_option", "mode_option"),
    [("--json", "--arrow", "--mode"), ("-j", "-a", "-c"), ("-json", "-arrow", "-mode")],
    ids=["the harness", "Java", "Go"],
)
def test_a_file_is_written_from_json_validated_and_written_back(
    tmp_path: Path, json_path: Path, json_option: str, arrow_option: str, mode_option: str
) -> None:
    target, again = tmp_path / "made.arrow", tmp_path / "again.json"
    call = ["--integration", arrow_option, str(target), json_option]
    assert main([*call, str(json_path), mode_option, "JSON_TO_ARROW"]) == 0
    assert main([*call, str(json_path), mode_option, "VALIDATE", "--validate_decimals=false"]) == 0
    assert main([*call, str(again), mode_option, "ARROW_TO_JSON"]) == 0
    assert json.loads(again.read_bytes()) == json.loads(json_path.read_bytes())
    assert bs.open_file(target).schema.equals(SCHEMA, check_metadata=True)


def test_a_stream_whose_dictionary_changes_becomes_a_file_with_one_and_a_stream_again(tmp_path: Path) -> None:
    kind = bs.list_(bs.dictionary(bs.int8(), bs.string()))
    batches = [
        bs.record_batch({"x": bs.array(v, kind), "n": bs.array([1, 2])}) for v in ([["a"], None], [["b", "c"], ["a"]])
    ]
    stream, file, again = tmp_path / "changing.arrows", tmp_path / "one.arrow", tmp_path / "again.arrows"
    with bs.new_stream(stream, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    for mode, source, target in (("STREAM_TO_FILE", stream, file), ("FILE_TO_STREAM", file, again)):
        command = [sys.executable, "-m", "tests.integration_json", "--mode", mode, "--arrow", str(target)]
        subprocess.run(command, input=source.read_bytes(), check=True, timeout=60)
    with bs.open_file(file) as reader:
        assert reader.num_dictionary_batches == 1
        assert [batch.to_pydict() for batch in reader] == [batch.to_pydict() for batch in batches]
    with bs.open_stream(again) as stream_reader:
        assert [batch.to_pydict() for batch in stream_reader] == [batch.to_pydict() for batch in batches]


def test_a_difference_is_reported_with_status_1(
    tmp_path: Path, json_path: Path, batch: bs.RecordBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.arrow"
    changed = bs.RecordBatch(SCHEMA, 3, [bs.array([1, 2, 3], bs.int64()), batch.column("name")])
    with bs.new_file(other, SCHEMA) as writer:
        writer.write(changed)
    assert main(["--json", str(json_path), "--arrow", str(other)]) == 1
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
    paths = ["--json", str(json_path), "--arrow", str(target)]
    assert main([*paths, "--mode=JSON_TO_ARROW"]) == 0
    assert main(paths) == 0
    assert main([*paths, "--validate_decimals=true"]) == 1


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
    assert main(["--json", str(json_path), "--arrow", str(path), "--validate_date64=false"]) == 1
    assert "UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--arrow", "1"], ["--mode=DANCE", "-j1", "-a2"]])
def test_a_missing_argument_has_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2


def test_a_missing_file_has_status_1(json_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", str(json_path), "--arrow", "gone.arrow"]) == 1
    assert main(["--json", "gone.json", "--arrow", str(json_path)]) == 1
    assert capsys.readouterr().err.count("gone.") == 2
