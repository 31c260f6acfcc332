"""Round trips with pyarrow in both directions: types, nulls, empty, sliced and nested arrays, in files and streams."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.datatypes import types as t
from bowstring_testing import strategies
from tests.ipc.formats import EVERY_FORMAT, OPENERS, PYARROW_OPENERS, PYARROW_WRITERS, WRITERS


def to_bytes(format_: str, schema: bs.Schema, batches: list[bs.RecordBatch], alignment: int = 64) -> bytes:
    sink = io.BytesIO()
    with WRITERS[format_](sink, schema, alignment=alignment) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def write_with_pyarrow(format_: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with PYARROW_WRITERS[format_](sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def is_equal(left: bs.RecordBatch, right: bs.RecordBatch) -> bool:
    return left.equals(right, check_metadata=True, nans_equal=True)


@EVERY_FORMAT
@settings(max_examples=60)
@given(batch=strategies.batches(), alignment=st.sampled_from([8, 64]))
def test_written_batches_are_read_unchanged(format_: str, batch: bs.RecordBatch, alignment: int) -> None:
    (read,) = OPENERS[format_](to_bytes(format_, batch.schema, [batch], alignment))
    read.validate(full=True)
    assert is_equal(read, batch)


@EVERY_FORMAT
@settings(max_examples=80)
@given(batch=strategies.batches(max_columns=3), start=st.integers(0, 3))
def test_batches_are_exchanged_with_pyarrow_in_both_directions(format_: str, batch: bs.RecordBatch, start: int) -> None:
    peer = PYARROW_OPENERS[format_](to_bytes(format_, batch.schema, [batch])).read_all()
    peer.validate(full=True)
    assert peer.num_rows == batch.num_rows
    read = list(OPENERS[format_](write_with_pyarrow(format_, peer.slice(start))))
    for batch_read in read:
        batch_read.validate(full=True)
    if batch.num_columns:
        expected = batch.slice(start)
        assert sum(b.num_rows for b in read) == expected.num_rows
        assert bs.Table.from_batches(read, expected.schema).equals(bs.Table.from_batches([expected]), nans_equal=True)


@settings(max_examples=60)
@given(data=st.data())
def test_pyarrow_sees_the_same_python_values(data: st.DataObject) -> None:
    plain = st.one_of(
        strategies.int_types(),
        strategies.decimal_types(),
        st.sampled_from(
            [bs.bool_(), bs.string(), bs.large_binary(), bs.string_view(), bs.date32(), bs.timestamp("us")]
        ),
    )
    type_ = data.draw(
        st.one_of(
            plain,
            plain.map(bs.list_),
            plain.map(bs.large_list_view),
            plain.map(lambda it: bs.struct({"a": it, "b": it})),
            plain.map(lambda it: bs.dictionary(bs.int16(), it)),
            plain.map(lambda it: bs.map_(bs.string(), it)),
            plain.map(lambda it: bs.run_end_encoded(bs.int32(), it)),
        )
    )
    array = data.draw(strategies.arrays(type_))
    batch = bs.RecordBatch.from_arrays([array], ["x"])
    peer = pa.ipc.open_file(to_bytes("file", batch.schema, [batch])).read_all()
    assert peer.column("x").to_pylist() == array.to_pylist()


@EVERY_FORMAT
@settings(max_examples=25)
@given(data=st.data())
def test_many_batches_are_read_in_order(format_: str, data: st.DataObject) -> None:
    schema = data.draw(strategies.batches()).schema
    batches = [data.draw(strategies.batches(schema)) for _ in range(3)]
    if format_ == "file":  # a file has one dictionary for all batches
        batches = [batches[0], batches[0].slice(1), batches[0]]
    read = list(OPENERS[format_](to_bytes(format_, schema, batches)))
    assert len(read) == 3
    assert all(is_equal(a, b) for a, b in zip(read, batches, strict=True))


@EVERY_FORMAT
def test_files_with_nullable_keys_of_maps_are_read_and_written_for_other_readers(format_: str) -> None:
    declared = bs.map_(bs.field("k", "string"), "int8")
    assert isinstance(declared, t.Map)
    forged = bs.map_(bs.field("k", "string"), "int8")
    pair = bs.struct([bs.field("k", "string"), bs.field("value", "int8")])
    object.__setattr__(forged, "entries_field", bs.field("entries", pair))  # as other writers declare it
    batches = [bs.record_batch({"m": bs.array([{"a": 1}, None, {}], type_)}) for type_ in (forged, declared)]
    nullable, not_nullable = (to_bytes(format_, batch.schema, [batch]) for batch in batches)
    (read,) = OPENERS[format_](nullable)
    read.validate(full=True)
    assert is_equal(read, batches[1])
    rewritten = to_bytes(format_, read.schema, [read])
    assert rewritten == not_nullable != nullable
    assert PYARROW_OPENERS[format_](rewritten).read_all().to_pydict() == {"m": [[("a", 1)], None, []]}
