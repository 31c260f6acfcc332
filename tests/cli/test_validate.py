"""`bowstring validate`: all faults with their places, and an exit status."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.inspection import validation
from bowstring.layouts.registry import layout_of
from fuzz.editable_stream import parse_stream
from tests.cli.command_line import run_command, run_with_pipe, write
from tests.ipc.samples import as_file

TABLE = pa.concat_tables([pa.table({"text": ["ab", "cd", "ef"], "n": [1, 2, 3], "more": ["xx", "yy", "zz"]})] * 3)
OFFSETS = struct.pack("<4i", 0, 2, 4, 6)


def write_damaged(path: Path) -> Path:
    """Batch 0 has an invalid offset in `text`, batches 1 and 2 have bytes in `more` that are not valid UTF-8."""
    raw = bytearray(write(path, TABLE, 3).read_bytes())
    raw[raw.index(OFFSETS) + 4] = 200
    at = len(raw)
    for _ in range(2):
        at = raw.rindex(b"xxyyzz", 0, at)
        raw[at] = 0xFF
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
def test_a_valid_file_is_one_line_and_status_0(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / name, TABLE, 3)
    kind = "stream" if name.endswith("s") else "file"
    assert main(["validate", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid: an Arrow {kind}, 9 rows in 3 record batches, 3 columns\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            b"text",
            b"next",
            "schema message: expected column 0 as 'text: string', as in the footer, found 'next: string'",
        ),
        (b"the value", b"a value  ", "schema message: expected metadata ((b'key', b'the value'),), as in the footer"),
    ],
)
def test_the_schema_message_of_a_file_is_compared_with_the_footer(
    tmp_path: Path, old: bytes, new: bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "data.arrow", TABLE.replace_schema_metadata({"key": "the value"}), 3)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    assert bs.open_file(path).read_all() == bs.table(TABLE)
    assert main(["validate", str(path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert expected in line


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"text", b"te\xfft", "not valid UTF-8"),
        (b"\xff\xff\xff\xff", b"\0\0\0\0", "message at byte 8: expected a schema, found the end of the stream"),
    ],
)
def test_a_schema_message_of_a_file_that_cannot_be_read_is_a_warning(
    tmp_path: Path, old: bytes, new: bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 3)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    assert main(["validate", str(path)]) == 0
    warning, result = capsys.readouterr().out.splitlines()
    assert warning.startswith(f"{path}: warning: ")
    assert expected in warning
    assert result.startswith(f"{path}: valid: an Arrow file")
    assert main(["validate", "--json", str(path)]) == 0
    assert expected in json.loads(capsys.readouterr().out)["warnings"][0]


def test_bytes_after_the_end_of_a_stream_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.arrows", TABLE, 3)
    assert main(["validate", str(path)]) == 0
    assert "warning" not in capsys.readouterr().out
    content = bytearray(path.read_bytes())
    last = content.rindex(b"\xff\xff\xff\xff", 0, -8)
    content[last + 4 : last + 8] = bytes(4)  # its length: now it is an end marker
    path.write_bytes(content)
    assert main(["validate", str(path)]) == 0
    warning = f"{path}: warning: {len(content) - last - 8:,} bytes after the end of the stream"
    assert capsys.readouterr().out.startswith(warning)


def test_files_of_polars_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.arrow"
    pl.DataFrame({"a": [1, None], "b": ["x", "y"]}).write_ipc(path)
    assert main(["validate", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"{path}: valid: an Arrow file, 2 rows in 1 record batch, 2 columns\n")


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
def test_every_error_is_reported_with_its_batch_and_column(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_damaged(tmp_path / name)
    assert main(["validate", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    places = [line.removeprefix(f"{path}: ").split(": ")[0] for line in lines]
    assert places == [
        "record batch 0, column 0 ('text')",
        "record batch 1, column 2 ('more')",
        "record batch 2, column 2 ('more')",
    ]
    assert "UTF-8" in lines[1]


def unvalidated(type_: bs.DataType, length: int, *buffers: Any, children: Any = (), dictionary: Any = None) -> bs.Array:
    buffer_objects = tuple(None if part is None else bs.memory.Buffer.of(part) for part in buffers)
    return bs.Array(layout_of(type_), length, buffer_objects, tuple(children), dictionary)


def int32(*values: int) -> Any:
    return np.array(values, np.int32)


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
def test_errors_in_a_nested_column_are_reported_with_their_path(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = unvalidated(bs.string(), 2, None, int32(0, 1, 2), b"a\xff")
    word = unvalidated(bs.dictionary(bs.int32(), bs.string()), 2, None, int32(0, 1), dictionary=words)
    text = unvalidated(bs.string(), 2, None, int32(0, 1, 2), b"\xffb")
    when = unvalidated(bs.time32("s"), 2, None, int32(5, 90_000))
    pair = unvalidated(
        bs.struct({"t": text.type, "d": word.type, "w": when.type}), 2, None, children=[text, word, when]
    )
    column = unvalidated(bs.list_(pair.type), 2, None, int32(0, 3, 2), children=[pair])
    batch = bs.RecordBatch.from_arrays([column], ["a"])
    with (bs.new_stream if name.endswith("s") else bs.new_file)(tmp_path / name, batch.schema) as writer:
        writer.write(batch)
        writer.write(batch)
    assert main(["validate", str(tmp_path / name)]) == 1
    messages = [line.removeprefix(f"{tmp_path / name}: ") for line in capsys.readouterr().out.splitlines()]
    way = "record batch {}, column 0 ('a')"
    once = [
        f"{way} → item → field 't': values[0] is not valid UTF-8: byte 0 of 1",
        f"{way} → item → field 'w': values[1]: 90000 is not a time of day",
        f"{way}: offsets[2] = 2 is less than offsets[1] = 3",
    ]
    dictionary = "values[1] is not valid UTF-8"
    if name.endswith("s"):
        at = f"{way} → item → field 'd' → dictionary: {dictionary}".format(0)
    else:
        at = f"dictionary 0: {dictionary}"
    for line in [*(template.format(number) for number in (0, 1) for template in once), at]:
        assert any(message.startswith(line.partition(" is ")[0]) for message in messages), (line, messages)
    assert len(messages) == 7, "a dictionary is reported once"


def test_a_dictionary_that_no_batch_uses_is_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = unvalidated(bs.string(), 1, None, int32(0, 1), b"\xff")
    column = unvalidated(bs.dictionary(bs.int32(), bs.string()), 0, None, int32(), dictionary=words)
    batch = bs.RecordBatch.from_arrays([column], ["a"])
    with bs.new_file(tmp_path / "data.arrow", batch.schema) as writer:
        writer.write(batch)
    assert main(["validate", str(tmp_path / "data.arrow")]) == 1
    assert "dictionary 0: values[0] is not valid UTF-8" in capsys.readouterr().out


def test_replaced_dictionaries_of_a_stream_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_MAX_VALIDATED", 5)
    kind, sink = bs.dictionary(bs.int8(), bs.string()), io.BytesIO()
    with bs.new_stream(sink, bs.schema({"d": kind})) as writer:
        for number in range(30):
            writer.write_batch(bs.RecordBatch.from_arrays([bs.array([f"word {number}"], kind)], ["d"]))
    validator = validation.Validator(sink.getvalue())
    assert list(validator.faults()) == []
    assert validator.validation.record_batches == 30
    assert 0 < len(validator._validated) <= 6


def test_quick_does_not_validate_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = bytearray(write(tmp_path / "data.arrow", TABLE).read_bytes())
    raw[raw.index(b"xxyyzz")] = 0xFF
    (tmp_path / "data.arrow").write_bytes(raw)
    assert main(["validate", "--quick", str(tmp_path / "data.arrow")]) == 0
    assert main(["validate", str(tmp_path / "data.arrow")]) == 1


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
def test_the_json_output_has_every_error(tmp_path: Path, name: str, repository: Path) -> None:
    process = run_with_pipe(write_damaged(tmp_path / name), "validate", "--json")
    assert (process.returncode, process.stderr) == (1, b"")
    document = json.loads(process.stdout)
    assert (document["source"], document["valid"], document["fault_count"]) == ("standard input", False, 3)
    assert [(fault["record_batch"], fault["column_name"]) for fault in document["faults"]] == [
        (0, "text"),
        (1, "more"),
        (2, "more"),
    ]
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert not {key for key in {*document, *document["faults"][0]} if f"`{key}`" not in page}


def test_the_error_for_a_truncated_stream_names_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.arrows", TABLE, 3)
    path.write_bytes(path.read_bytes()[:-100])
    assert main(["validate", "--json", str(path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(fault["record_batch"], fault["error"]) for fault in document["faults"]] == [(2, "TruncatedError")]
    assert document["record_batches"] == 2


@pytest.mark.parametrize("raw", [b"", b"ARROW1\0\0", b"PAR1 and more than that", b"a,b\n1,2\n"])
def test_data_that_is_not_arrow_is_reported_as_an_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x").write_bytes(raw)
    process = run_command("validate", tmp_path / "x")
    assert (process.returncode, process.stderr, process.stdout.count(b"\n")) == (1, b"", 1)


def test_a_missing_file_is_one_line_on_standard_error(tmp_path: Path) -> None:
    process = run_command("validate", tmp_path / "nothing")
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)


def test_the_number_of_errors_is_limited_and_names_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {f"\x1b[2J{index}": ["xxyyzz"] for index in range(150)}
    path = write(tmp_path / "data.arrow", pa.table(columns))
    path.write_bytes(path.read_bytes().replace(b"xxyyzz", b"xx\xffyzz"))
    assert main(["validate", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 101
    assert "and 50 more errors (--all shows them)" in out
    assert main(["validate", "--all", str(path)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 150


def test_golden_files_are_valid(shared_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted((shared_folder / "corpus" / "golden" / "cpp-21.0.0").glob("*"))
    golden_files = [path for path in paths if path.suffix in (".arrow_file", ".stream")]
    if not golden_files:
        pytest.skip("requires golden files of this version in ../shared")
    assert {str(path): main(["validate", str(path)]) for path in golden_files} == dict.fromkeys(
        map(str, golden_files), 0
    )


def test_validation_continues_after_a_batch_that_does_not_match_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = pa.record_batch({"a": ["xxyyzz"]})
    parts = (good.schema, good, pa.record_batch({"a": [1], "b": [2]}), good)
    raw = b"".join(part.serialize().to_pybytes() for part in parts)
    (tmp_path / "x.arrows").write_bytes(raw[: -len(raw) // 3] + raw[-len(raw) // 3 :].replace(b"xxyyzz", b"xx\xffyyz"))
    assert main(["validate", "--json", str(tmp_path / "x.arrows")]) == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [(fault["record_batch"], fault["column_name"]) for fault in faults] == [(1, None), (2, "a")]


@pytest.mark.parametrize(
    ("kind", "listed", "unlisted"),
    [
        ("recordBatches", [], [1, 2, 3]),
        ("recordBatches", [1], [1, 3]),
        ("recordBatches", [0, 0, 2], [2]),
        ("recordBatches", [2, 0, 1], []),
        ("dictionaries", [], [0]),
    ],
)
def test_messages_that_the_footer_does_not_list_are_errors(kind: str, listed: list[int], unlisted: list[int]) -> None:
    words = bs.record_batch({"word": bs.array(["a", "b", "a"]).dictionary_encode()})
    data = as_file(*(words.slice(index, 1) for index in range(3)))
    reader = bs.open_file(data)
    offsets = [int(block["offset"]) for block in (*reader.dictionary_blocks, *reader.blocks)]
    stream = parse_stream(data)
    assert stream is not None
    stream.block_edits[kind] = lambda blocks: blocks[listed]
    messages = [fault.message for fault in validation.Validator(stream.encode()).faults()]
    names = ["dictionary batch", *["record batch"] * 3]
    expected = [f"footer: the {names[index]} at byte {offsets[index]} is not listed" for index in unlisted]
    assert [message for message in messages if "listed" in message] == expected
    assert bool(messages) == bool(unlisted)


def test_a_body_whose_length_in_the_footer_is_too_long_is_an_error() -> None:
    words = bs.record_batch({"word": bs.array(["a", "b", "a"]).dictionary_encode()})
    stream = parse_stream(as_file(words, words))
    assert stream is not None

    def edit(blocks: Any) -> Any:
        blocks = blocks.copy()
        blocks["bodyLength"][0] += 8
        return blocks

    stream.block_edits = {"dictionaries": edit, "recordBatches": edit}
    with pytest.raises(OSError, match="advertised body size"):
        pa.ipc.open_file(stream.encode()).read_all()
    validator = validation.Validator(stream.encode())
    faults = [(fault.record_batch, fault.message) for fault in validator.faults()]
    assert faults == [
        (None, "dictionary batch 0: expected a body of 136 bytes, as in the footer, found 128"),
        (0, "expected a body of 72 bytes, as in the footer, found 64"),
    ]
    assert validator.validation.rows == 6
