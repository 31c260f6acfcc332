"""Dictionaries are defined before use, replaced and extended in streams, and the same for all batches of a file."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from tests.ipc.samples import as_file, as_stream

WORDS = bs.dictionary(bs.int8(), bs.string())


def word_batch(*values: str | None) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays([bs.array(list(values), WORDS)], ["w"])


def column_values(batch: bs.RecordBatch) -> list[Any]:
    return batch.column(0).to_pylist()


def test_a_changed_dictionary_replaces_the_previous_one_in_a_stream() -> None:
    data = as_stream(word_batch("a", "b"), word_batch("c", None, "a"), word_batch("c", None, "a"))
    assert [column_values(batch) for batch in bs.open_stream(data)] == [["a", "b"], ["c", None, "a"], ["c", None, "a"]]
    reader = pa.ipc.open_stream(data)
    assert [batch.column(0).to_pylist() for batch in reader] == [["a", "b"], ["c", None, "a"], ["c", None, "a"]]
    assert reader.stats.num_dictionary_batches == 2, "an equal dictionary was written again"


def test_batches_keep_their_dictionary_after_a_replacement() -> None:
    first, second = list(bs.open_stream(as_stream(word_batch("a", "b"), word_batch("c", "d"))))
    assert column_values(second) == ["c", "d"]
    assert column_values(first) == ["a", "b"]


def test_a_file_rejects_a_changed_dictionary_and_names_the_column() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"column 'w'.*stream"):
        as_file(word_batch("a"), word_batch("b"))


def test_a_file_writes_equal_dictionaries_once() -> None:
    reader = bs.open_file(as_file(word_batch("a", "b"), word_batch("a", "b")))
    assert reader.num_dictionary_batches == 1
    assert [column_values(batch) for batch in reader] == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("format_", ["file", "stream"])
def test_deltas_of_another_writer_are_appended(format_: str) -> None:
    parts = [pa.array(["a", "b"]), pa.array(["a", "b", "c"]), pa.array(["a", "b", "c", "d"])]
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays([0, len(part) - 1, None], part)], ["w"]) for part in parts
    ]
    sink = io.BytesIO()
    make = pa.ipc.new_file if format_ == "file" else pa.ipc.new_stream
    with make(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert writer.stats.num_dictionary_deltas == 2
    open_ = bs.open_file if format_ == "file" else bs.open_stream
    read = [column_values(batch) for batch in open_(sink.getvalue())]
    assert read == [["a", "b", None], ["a", "c", None], ["a", "d", None]]


def test_replacements_of_another_writer_are_read() -> None:
    sink = io.BytesIO()
    batches = [pa.record_batch([pa.array(v).dictionary_encode()], ["w"]) for v in (["a"], ["b", "a"])]
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert writer.stats.num_replaced_dictionaries == 1
    assert [column_values(batch) for batch in bs.open_stream(sink.getvalue())] == [["a"], ["b", "a"]]


def nested_batch(*values: list[str | None] | None) -> bs.RecordBatch:
    type_ = bs.dictionary(bs.int16(), bs.list_(WORDS))
    return bs.RecordBatch.from_arrays([bs.array(list(values), type_)], ["n"])


def test_inner_dictionaries_are_written_first_and_change_with_the_outer_one() -> None:
    batches = [nested_batch(["a", "b"], None, ["b"]), nested_batch(["c"], ["a", "b"])]
    data = as_stream(*batches)
    assert all(a.equals(b) for a, b in zip(bs.open_stream(data), batches, strict=True))
    peer = pa.ipc.open_stream(data).read_all()
    peer.validate(full=True)
    assert peer.column(0).to_pylist() == [["a", "b"], None, ["b"], ["c"], ["a", "b"]]


def test_a_column_of_nulls_may_come_before_its_dictionary() -> None:
    data = as_stream(word_batch(None, None))
    reader = bs.open_file(as_file(word_batch(None, None)))
    blocks = reader.dictionary_blocks
    assert len(blocks) == 1
    # The same stream without its dictionary batch: the schema, then the batch.
    start = data.index(b"\xff\xff\xff\xff", 8)
    size = int(blocks["metaDataLength"][0] + blocks["bodyLength"][0])
    (batch,) = bs.open_stream(data[:start] + data[start + size :])
    assert column_values(batch) == [None, None]
    batch.validate(full=True)


def test_a_missing_dictionary_that_is_used_is_an_error_with_the_column() -> None:
    data = as_stream(word_batch("a"))
    blocks = bs.open_file(as_file(word_batch("a"))).dictionary_blocks
    start = data.index(b"\xff\xff\xff\xff", 8)
    size = int(blocks["metaDataLength"][0] + blocks["bodyLength"][0])
    (batch,) = bs.open_stream(data[:start] + data[start + size :])
    with pytest.raises(errors.InvalidDataError, match=r"column 'w'.*dictionary 0"):
        batch.column(0)
