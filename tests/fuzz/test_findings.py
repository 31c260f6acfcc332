"""What the fuzzer found across rooms: each with the smallest input that shows it."""

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
from bowstring.ipc.format_detection import open_any
from fuzz.anatomy import Anatomy, dissect
from fuzz.inputs import Input
from fuzz.oracles import check
from fuzz.records import Node
from tests.ipc.samples import as_stream

WORDS = bs.dictionary(bs.int8(), bs.string())
NUMBERS = bs.record_batch({"n": bs.array([1, 2, 3], bs.int8())})
FEATURE = 0x1122_3344_5566_7788


def written(*batches: bs.RecordBatch, kind: str = "file", statistics: bool = False) -> bytes:
    sink = io.BytesIO()
    with (bs.new_file if kind == "file" else bs.new_stream)(sink, batches[0].schema) as writer:
        if statistics:
            assert isinstance(writer, bs.FileWriter)
            writer.collect_statistics()
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def changed(data: bytes, change: Callable[[Anatomy], None]) -> bytes:
    anatomy = dissect(data)
    assert anatomy is not None
    change(anatomy)
    return anatomy.render()


def faults(data: bytes) -> list[str]:
    return [fault.message for fault in Validator(data).faults()]


def test_a_checksum_is_compared_also_where_the_frame_is_cut_off_inside_it() -> None:
    data = bytes(range(200)) * 50
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    out = bytearray(len(data))
    codecs.decompress_zstd(memoryview(frame), memoryview(out))
    assert out == data
    wrong = frame[:-1] + bytes([frame[-1] ^ 1])
    for damaged in (frame[:-4], frame[:-1], wrong):
        with pytest.raises(InvalidDataError, match="Zstandard frame"):
            codecs.decompress_zstd(memoryview(damaged), memoryview(bytearray(len(data))))


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("as_stream", [False, True])
def test_bodies_of_an_odd_length_lose_no_batch_behind_them(kind: str, as_stream: bool) -> None:
    def cut(anatomy: Anatomy) -> None:
        for piece in anatomy.pieces[1:]:
            del piece.body[3:]

    odd = changed(written(NUMBERS, NUMBERS, kind=kind), cut)
    assert faults(odd) == []
    sink = io.BytesIO()
    bs.concat_files([odd, odd], sink, as_stream)
    with open_any(sink.getvalue()) as reader:
        assert [batch.to_pydict() for batch in reader] == [{"n": [1, 2, 3]}] * 4
    assert faults(sink.getvalue()) == []


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_features_that_are_not_there_are_refused_at_once(kind: str) -> None:
    def say(anatomy: Anatomy) -> None:
        schema = anatomy.pieces[0].header
        assert schema is not None
        schema.slots["features"] = np.array([FEATURE], np.int64)

    data = bytearray(changed(written(NUMBERS, kind=kind), say))
    at = -1
    while (at := data.find(FEATURE.to_bytes(8, "little"), at + 1)) >= 0:
        data[at - 4 : at] = (1 << 20).to_bytes(4, "little")
    with (
        pytest.raises(InvalidDataError, match=r"Schema\.features has 1048576 items"),
        open_any(bytes(data)) as reader,
    ):
        list(reader)
    assert "Schema.features has" in faults(bytes(data))[0]


@pytest.mark.parametrize(("version", "said"), [(0, "V1"), (-2, "-2")])
def test_a_footer_of_another_version_is_a_fault(version: int, said: str) -> None:
    def say(anatomy: Anatomy) -> None:
        assert anatomy.footer is not None
        anatomy.footer.slots["version"] = version

    (fault,) = faults(changed(written(NUMBERS), say))
    assert fault == f"footer: metadata version {said} is not supported: expected V4 or V5"


def test_a_dictionary_that_a_schema_does_not_know_is_a_fault() -> None:
    def forget(anatomy: Anatomy) -> None:
        schema = anatomy.pieces[0].header
        assert schema is not None
        del schema.slots["fields"][0].slots["dictionary"]
        del anatomy.pieces[2]

    words = bs.record_batch({"w": bs.array(["a", "b"], WORDS)})
    (fault,) = faults(changed(written(words), forget))
    assert "dictionary 0 is none of the schema's []" in fault


def test_a_dictionary_that_no_batch_of_a_stream_uses_is_looked_at_all_the_same() -> None:
    def break_last(anatomy: Anatomy) -> None:
        batch = anatomy.pieces[-1].batch
        assert batch is not None
        batch.slots["buffers"]["length"][-1] = 1 << 40

    words = [bs.record_batch({"w": bs.array(values, WORDS)}) for values in (["a"], ["a", "b"])]
    data = changed(written(*words, kind="stream"), lambda anatomy: anatomy.pieces.__delitem__(-1))
    assert faults(data) == []
    (fault,) = faults(changed(data, break_last))
    assert "bytes 1088 to 1099511628864" in fault


def test_a_malformed_dictionary_that_no_batch_uses_may_be_refused_only_where_it_is_served() -> None:
    def break_dictionary(anatomy: Anatomy) -> None:
        batch = anatomy.pieces[1].batch
        assert batch is not None
        batch.slots["buffers"]["length"] = 1 << 34
        del anatomy.pieces[2]

    data = changed(written(bs.record_batch({"w": bs.array(["a"], WORDS)}), kind="stream"), break_dictionary)
    with bs.open_stream(data) as reader:
        assert list(reader) == []
    assert {check(Input("served", data + bytes(odd))) for odd in range(0, 80, 8)} == {True, False}


def test_runs_of_an_array_without_slots_may_end_anywhere() -> None:
    ends, words = bs.array([0, 3, 3], bs.int32()), bs.array(["a", "b", "c"])
    runs = bs.Array.from_buffers(bs.run_end_encoded(bs.int32(), bs.string()), 0, [], [ends, words])
    runs.validate(full=True)
    assert runs.to_pylist() == runs.run_end_decode().to_pylist() == runs.take([]).to_pylist() == []
    assert bs.concat_arrays([runs, bs.array(["x", "x"], runs.type)]).to_pylist() == ["x", "x"]
    batch = bs.RecordBatch.from_arrays([runs], ["r"])
    with bs.open_stream(as_stream(batch)) as reader:  # pyarrow looks at what these run ends say
        assert reader.read_all().to_pydict() == {"r": []}


def test_a_body_in_which_no_buffer_lies_is_served() -> None:
    nulls = bs.record_batch({"n": bs.array([None, None], bs.null())})
    for more in range(8, 104, 8):  # by addresses or packed, as the checksum has it
        anatomy = dissect(written(nulls, kind="stream"))
        assert anatomy is not None
        anatomy.pieces[1].body += bytes(more)
        data = anatomy.render()
        assert faults(data) == []
        assert check(Input("served", data))


def test_an_append_that_is_refused_for_statistics_lets_the_file_go_and_leaves_nothing(tmp_path: Path) -> None:
    def break_them(anatomy: Anatomy) -> None:
        assert anatomy.footer is not None
        anatomy.footer.slots["custom_metadata"][0].slots["value"] = b"abcd"

    path = tmp_path / "n.arrow"
    path.write_bytes(changed(written(NUMBERS, statistics=True), break_them))
    for _ in range(2):
        with pytest.raises(InvalidDataError, match="bowstring:statistics"):
            bs.append_file(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_version_that_lies_outside_of_its_table_is_a_fault() -> None:
    data = bytearray(written(NUMBERS))
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    table = footer + int.from_bytes(data[footer : footer + 4], "little")
    slots = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    data[slots + 4 : slots + 6] = (144).to_bytes(2, "little")
    (fault,) = faults(bytes(data))
    assert "slot 0 of Footer is at 144" in fault


@pytest.mark.parametrize("length", [1 << 30, -1])
def test_a_schema_message_without_a_true_length_keeps_no_one_from_a_file_whose_footer_is_whole(
    tmp_path: Path, length: int
) -> None:
    data = bytearray(written(NUMBERS))
    data[12:16] = length.to_bytes(4, "little", signed=True)
    path = tmp_path / "n.arrow"
    path.write_bytes(data)
    assert bs.inspect(path).rows == 3
    with bs.append_file(path) as writer:
        writer.write(NUMBERS)
    with bs.open_file(path) as reader:
        assert reader.read_all().to_pydict() == {"n": [1, 2, 3, 1, 2, 3]}


def test_a_batch_that_a_footer_lists_more_than_once_is_recovered_once_and_that_is_told() -> None:
    def double(anatomy: Anatomy) -> None:
        anatomy.edits["recordBatches"] = lambda blocks: np.repeat(blocks, 3)

    data = changed(written(NUMBERS), double)
    sink = io.BytesIO()
    report = bs.recover(data, sink)
    assert (report.is_intact, report.rows) == (False, 3)
    (told,) = report.dropped
    assert told.reason == "the footer lists a RecordBatch more than once: duplicates are ignored"
    with bs.open_file(sink.getvalue()) as reader:
        assert reader.read_all().to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize("damage", [b"!", b"abcd"])
def test_statistics_that_are_malformed_or_wrong_are_faults(damage: bytes) -> None:
    data = written(NUMBERS, statistics=True)
    assert faults(data) == []

    def break_them(anatomy: Anatomy) -> None:
        assert anatomy.footer is not None
        pair: Node = anatomy.footer.slots["custom_metadata"][0]
        pair.slots["value"] = damage

    (fault,) = faults(changed(data, break_them))
    assert "bowstring:statistics" in fault

    def change_value(anatomy: Anatomy) -> None:
        anatomy.pieces[1].body[0] = 77

    (fault,) = faults(changed(data, change_value))
    assert "77" in fault or "maximum" in fault
