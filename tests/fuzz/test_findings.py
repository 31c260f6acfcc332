"""Bugs that the fuzzer found and that involve several packages, each with its smallest input."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.inspection.validation import Validator
from bowstring.ipc import codecs
from bowstring.ipc.api import open_any
from fuzz.editable_stream import EditableStream, parse_stream
from fuzz.flatbuffers import TableNode
from fuzz.inputs import FuzzInput
from fuzz.oracles import check
from tests.ipc.samples import as_stream

DICTIONARY = bs.dictionary(bs.int8(), bs.string())
NUMBERS = bs.record_batch({"n": bs.array([1, 2, 3], bs.int8())})
FEATURE = 0x1122_3344_5566_7788


def encode(*batches: bs.RecordBatch, kind: str = "file", statistics: bool = False) -> bytes:
    sink = io.BytesIO()
    with (bs.new_file if kind == "file" else bs.new_stream)(sink, batches[0].schema) as writer:
        if statistics:
            assert isinstance(writer, bs.ipc.FileWriter)
            writer.enable_statistics()
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def edit_encoded(data: bytes, function: Callable[[EditableStream], None]) -> bytes:
    stream = parse_stream(data)
    assert stream is not None
    function(stream)
    return stream.encode()


def validation_errors(data: bytes) -> list[str]:
    return [error.message for error in Validator(data).faults()]


def test_a_zstandard_frame_truncated_in_its_checksum_is_rejected() -> None:
    data = bytes(range(200)) * 50
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    out = bytearray(len(data))
    codecs.decompress_zstd_into(memoryview(frame), memoryview(out))
    assert out == data
    wrong = frame[:-1] + bytes([frame[-1] ^ 1])
    for damaged in (frame[:-4], frame[:-1], wrong):
        with pytest.raises(InvalidDataError, match="Zstandard frame"):
            codecs.decompress_zstd_into(memoryview(damaged), memoryview(bytearray(len(data))))


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("as_stream", [False, True])
def test_concat_keeps_all_batches_after_bodies_of_odd_length(kind: str, as_stream: bool) -> None:
    def cut(stream: EditableStream) -> None:
        for message in stream.messages[1:]:
            del message.body[3:]

    odd = edit_encoded(encode(NUMBERS, NUMBERS, kind=kind), cut)
    assert validation_errors(odd) == []
    sink = io.BytesIO()
    bs.ipc.concat_files([odd, odd], sink, as_stream)
    with open_any(sink.getvalue()) as reader:
        assert [batch.to_pydict() for batch in reader] == [{"n": [1, 2, 3]}] * 4
    assert validation_errors(sink.getvalue()) == []


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_feature_vector_longer_than_its_message_is_rejected(kind: str) -> None:
    def edit_structure(stream: EditableStream) -> None:
        schema = stream.messages[0].header
        assert schema is not None
        schema.slots["features"] = np.array([FEATURE], np.int64)

    data = bytearray(edit_encoded(encode(NUMBERS, kind=kind), edit_structure))
    offset = -1
    while (offset := data.find(FEATURE.to_bytes(8, "little"), offset + 1)) >= 0:
        data[offset - 4 : offset] = (1 << 20).to_bytes(4, "little")
    with (
        pytest.raises(InvalidDataError, match=r"Schema\.features has 1048576 elements"),
        open_any(bytes(data)) as reader,
    ):
        list(reader)
    assert "Schema.features has" in validation_errors(bytes(data))[0]


@pytest.mark.parametrize(("version", "name"), [(0, "V1"), (-2, "-2")])
def test_validation_reports_a_footer_with_an_unsupported_version(version: int, name: str) -> None:
    def edit_structure(stream: EditableStream) -> None:
        assert stream.footer is not None
        stream.footer.slots["version"] = version

    (error,) = validation_errors(edit_encoded(encode(NUMBERS), edit_structure))
    assert error == f"footer: metadata version {name} is not supported: expected V4 or V5"


def test_validation_reports_a_dictionary_that_is_not_in_the_schema() -> None:
    def remove_dictionary(stream: EditableStream) -> None:
        schema = stream.messages[0].header
        assert schema is not None
        del schema.slots["fields"][0].slots["dictionary"]
        del stream.messages[2]

    words = bs.record_batch({"w": bs.array(["a", "b"], DICTIONARY)})
    (error,) = validation_errors(edit_encoded(encode(words), remove_dictionary))
    assert "dictionary 0 is not in the schema, which has []" in error


def test_validation_reports_an_invalid_dictionary_that_no_batch_uses() -> None:
    def break_last(stream: EditableStream) -> None:
        batch = stream.messages[-1].batch
        assert batch is not None
        batch.slots["buffers"]["length"][-1] = 1 << 40

    words = [bs.record_batch({"w": bs.array(values, DICTIONARY)}) for values in (["a"], ["a", "b"])]
    data = edit_encoded(encode(*words, kind="stream"), lambda stream: stream.messages.__delitem__(-1))
    assert validation_errors(data) == []
    (error,) = validation_errors(edit_encoded(data, break_last))
    assert "dictionary batch 1, column 'values': buffers (offset, size, …) (0, 0, 0, 8, 64, 1099511627776)" in error


def test_validation_names_a_dictionary_whose_deltas_cannot_be_joined() -> None:
    def keep_only_outer_dictionary(stream: EditableStream) -> None:
        nodes = [message.header for message in stream.messages]
        ids = [None if node is None else node.slots.get("id") for node in nodes]
        stream.messages[1:] = [message for message, id_ in zip(stream.messages, ids, strict=True) if id_ == 0]
        second = stream.messages[2].header
        assert second is not None
        second.slots["isDelta"] = True

    nested = bs.dictionary(bs.int16(), bs.list_(DICTIONARY))
    words = [bs.record_batch({"w": bs.array(values, nested)}) for values in ([["a"]], [["a"], ["a", "b"]])]
    data = edit_encoded(encode(*words, kind="stream"), keep_only_outer_dictionary)
    sink = io.BytesIO()
    bs.ipc.recover(data, sink)
    (fault,) = Validator(sink.getvalue()).faults()
    assert (fault.path, fault.message) == (("dictionary 0",), "indices[0] = 0 is not within the dictionary of 0 values")


def test_an_invalid_dictionary_that_no_batch_uses_may_be_rejected_only_when_served() -> None:
    def break_dictionary(stream: EditableStream) -> None:
        batch = stream.messages[1].batch
        assert batch is not None
        batch.slots["buffers"]["length"] = 1 << 34
        del stream.messages[2]

    data = edit_encoded(encode(bs.record_batch({"w": bs.array(["a"], DICTIONARY)}), kind="stream"), break_dictionary)
    with bs.open_stream(data) as reader:
        assert list(reader) == []
    assert {check(FuzzInput("served", data + bytes(odd))) for odd in range(0, 80, 8)} == {True, False}


def test_an_empty_array_with_any_run_ends_is_read() -> None:
    ends, words = bs.array([0, 3, 3], bs.int32()), bs.array(["a", "b", "c"])
    runs = bs.Array.from_buffers(bs.run_end_encoded(bs.int32(), bs.string()), 0, [], [ends, words])
    assert runs.to_pylist() == runs.run_end_decode().to_pylist() == runs.take([]).to_pylist() == []
    assert bs.concat_arrays([runs, bs.array(["x", "x"], runs.type)]).to_pylist() == ["x", "x"]
    batch = bs.RecordBatch.from_arrays([runs], ["r"])
    with bs.open_stream(as_stream(batch)) as reader:  # pyarrow checks these run ends
        assert reader.read_all().to_pydict() == {"r": []}


def test_a_body_without_buffers_is_served() -> None:
    nulls = bs.record_batch({"n": bs.array([None, None], bs.null())})
    for more in range(8, 104, 8):  # the checksum selects addresses or packed bodies
        stream = parse_stream(encode(nulls, kind="stream"))
        assert stream is not None
        stream.messages[1].body += bytes(more)
        data = stream.encode()
        assert validation_errors(data) == []
        assert check(FuzzInput("served", data))


def test_an_append_rejected_for_its_statistics_closes_the_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    def damage_statistics(stream: EditableStream) -> None:
        assert stream.footer is not None
        stream.footer.slots["custom_metadata"][0].slots["value"] = b"abcd"

    path = tmp_path / "n.arrow"
    path.write_bytes(edit_encoded(encode(NUMBERS, statistics=True), damage_statistics))
    for _ in range(2):
        with pytest.raises(InvalidDataError, match="bowstring:statistics"):
            bs.ipc.append_to_file(path)
    assert list(tmp_path.iterdir()) == [path]


def test_validation_reports_a_version_outside_of_its_table() -> None:
    data = bytearray(encode(NUMBERS))
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    table = footer + int.from_bytes(data[footer : footer + 4], "little")
    slots = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    data[slots + 4 : slots + 6] = (144).to_bytes(2, "little")
    (error,) = validation_errors(bytes(data))
    assert "Footer.version is at byte 144" in error


@pytest.mark.parametrize("length", [1 << 30, -1])
def test_a_file_with_a_valid_footer_is_readable_despite_a_wrong_schema_message_length(
    tmp_path: Path, length: int
) -> None:
    data = bytearray(encode(NUMBERS))
    data[12:16] = length.to_bytes(4, "little", signed=True)
    path = tmp_path / "n.arrow"
    path.write_bytes(data)
    assert bs.inspection.inspect(path).rows == 3
    with bs.ipc.append_to_file(path) as writer:
        writer.write(NUMBERS)
    with bs.open_file(path) as reader:
        assert reader.read_all().to_pydict() == {"n": [1, 2, 3, 1, 2, 3]}


def test_a_batch_that_a_footer_lists_repeatedly_is_recovered_once_and_reported() -> None:
    def repeat_blocks(stream: EditableStream) -> None:
        stream.block_edits["recordBatches"] = lambda blocks: np.repeat(blocks, 3)

    data = edit_encoded(encode(NUMBERS), repeat_blocks)
    sink = io.BytesIO()
    report = bs.ipc.recover(data, sink)
    assert (report.is_intact, report.rows) == (False, 3)
    (range_,) = report.dropped
    assert range_.reason == "the footer lists a RecordBatch more than once: duplicates are ignored"
    with bs.open_file(sink.getvalue()) as reader:
        assert reader.read_all().to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize("damage", [b"!", b"abcd"])
def test_validation_reports_invalid_and_wrong_statistics(damage: bytes) -> None:
    data = encode(NUMBERS, statistics=True)
    assert validation_errors(data) == []

    def damage_statistics(stream: EditableStream) -> None:
        assert stream.footer is not None
        pair: TableNode = stream.footer.slots["custom_metadata"][0]
        pair.slots["value"] = damage

    (error,) = validation_errors(edit_encoded(data, damage_statistics))
    assert "bowstring:statistics" in error

    def change_value(stream: EditableStream) -> None:
        stream.messages[1].body[0] = 77

    (error,) = validation_errors(edit_encoded(data, change_value))
    assert "77" in error or "maximum" in error
