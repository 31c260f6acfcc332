"""Readers of record batches: read once, checked, closed, and exchanged with other libraries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bowstring as bs
from bowstring.errors import ClosedError, InvalidArgumentError, TypeMismatchError

pa = pytest.importorskip("pyarrow")

TABLE = bs.concat_tables([bs.table({"a": [1, 2, 3]}), bs.table({"a": [4]})])


def test_batches_are_read_once_and_on_demand() -> None:
    read = []

    def generate() -> Iterator[bs.RecordBatch]:
        for index, batch in enumerate(TABLE.to_batches()):
            read.append(index)
            yield batch

    reader = bs.RecordBatchReader.from_batches(TABLE.schema, generate())
    assert read == []
    assert reader.read_next_batch().num_rows == 3
    assert read == [0]
    assert reader.read_all()["a"].to_pylist() == [4]
    with pytest.raises(StopIteration):
        reader.read_next_batch()


def test_a_closed_reader_ends_its_generator() -> None:
    ended = []

    def generate() -> Iterator[bs.RecordBatch]:
        try:
            yield from TABLE.to_batches()
        finally:
            ended.append(True)

    with bs.RecordBatchReader(TABLE.schema, generate()) as reader:
        next(reader)
    assert ended
    assert repr(reader) == "<bowstring.RecordBatchReader: closed>"
    with pytest.raises(ClosedError):
        next(reader)


def test_a_batch_of_another_schema_is_an_error_when_it_is_read() -> None:
    reader = bs.RecordBatchReader.from_batches(TABLE.schema, [TABLE.to_batches()[0], bs.record_batch({"b": [1]})])
    next(reader)
    with pytest.raises(InvalidArgumentError, match="another schema"):
        next(reader)


def test_readers_are_exchanged_with_pyarrow() -> None:
    foreign = pa.RecordBatchReader.from_stream(TABLE.to_reader(max_chunksize=2))
    assert [batch.num_rows for batch in foreign] == [2, 1, 1]
    reader = bs.RecordBatchReader.from_stream(pa.table(TABLE).to_reader())
    assert reader.schema == TABLE.schema
    assert reader.read_all() == TABLE


def test_other_objects_schemas_and_sizes_are_rejected() -> None:
    with pytest.raises(TypeMismatchError, match="__arrow_c_stream__"):
        bs.RecordBatchReader.from_stream([1])
    with pytest.raises(InvalidArgumentError, match=r"the columns are \['a'\], the schema has \['b'\]"):
        bs.RecordBatchReader.from_stream(TABLE, bs.schema({"b": "int8"}))
    with pytest.raises(InvalidArgumentError, match="max_chunksize: expected an integer of 1 or more, found 0"):
        TABLE.to_batches(max_chunksize=0)
    assert [batch.num_rows for batch in TABLE.to_batches(max_chunksize=1)] == [1, 1, 1, 1]
    assert [batch.num_rows for batch in bs.Table.from_batches([], TABLE.schema).to_batches(max_chunksize=1)] == []


def test_only_columns_by_known_names_are_cast() -> None:
    table = bs.table({"a": [1], "b": ["2"]})
    assert table.cast({"b": "int8"}).schema.types == ["int64", "int8"]
    with pytest.raises(InvalidArgumentError, match="no column is called 'c'"):
        table.cast({"c": "int8"})


def test_a_reader_of_a_stream_casts_to_the_schema_batch_by_batch() -> None:
    table = bs.concat_tables([bs.table({"a": [1]}), bs.table({"a": [300]})])
    reader = bs.RecordBatchReader.from_stream(table, {"a": "int8"})
    assert reader.schema == bs.schema({"a": "int8"})
    assert reader.read_next_batch().column("a").equals(bs.array([1], "int8"))
    with pytest.raises(TypeMismatchError, match="300"):
        reader.read_next_batch()
