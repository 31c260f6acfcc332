"""Random shared tables, written batch by batch, filled in place, and in memory of an arena that is used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.memory import Arena
from bowstring.sharing import new_shared_table
from bowstring_testing import strategies

DTYPES: dict[str, Any] = {
    "i1": pa.int8(),
    "u2": pa.uint16(),
    "i4": pa.int32(),
    "u8": pa.uint64(),
    "f2": pa.float16(),
    "f8": pa.float64(),
    "M8[us]": pa.timestamp("us"),
    "m8[s]": pa.duration("s"),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Field, int]:
    """A field whose values NumPy can use in place, and the number of its values in a row."""
    type_, size = DTYPES[draw(st.sampled_from(sorted(DTYPES)))], draw(st.sampled_from([0, 0, 1, 3]))
    nullable = draw(st.booleans())
    return pa.field("", pa.list_(pa.field("item", type_), size) if size else type_, nullable), size or 1


@st.composite
def column_values(draw: st.DrawFn, type_: pa.DataType, count: int) -> Any:
    """Values of a column as a NumPy array without list dimension."""
    flat = type_.value_type if pa.types.is_fixed_size_list(type_) else type_
    seed = draw(st.integers(0, 50))
    return ((np.arange(count) + seed) % 120).astype(flat.to_pandas_dtype())


@settings(max_examples=40)
@given(data=st.data())
def test_allocated_and_written_batches_are_the_table_of_pyarrow(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(columns(), min_size=1, max_size=3))
    schema = pa.schema([field.with_name(f"c{i}") for i, (field, _) in enumerate(drawn)])
    expected: list[pa.RecordBatch] = []
    with new_shared_table(schema) as writer:
        for num_rows in data.draw(st.lists(st.sampled_from([0, 1, 2, 63, 64, 65]), max_size=4)):
            arrays = []
            is_allocated = data.draw(st.booleans())
            target = writer.allocate(num_rows) if is_allocated else {}
            for field, (_, size) in zip(schema, drawn, strict=True):
                values = data.draw(column_values(field.type, num_rows * size))
                flat = pa.array(values)
                is_list = pa.types.is_fixed_size_list(field.type)
                array = pa.FixedSizeListArray.from_arrays(flat, type=field.type) if is_list else flat.cast(field.type)
                if is_allocated:
                    target[field.name][...] = values.reshape(target[field.name].shape)
                arrays.append(array)
            expected.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
            if not is_allocated:
                writer.write(bs.record_batch(expected[-1]))
    with writer.handle as handle:
        table = bs.attach(handle)
        table.validate(full=True)
        assert handle.num_rows == sum(batch.num_rows for batch in expected)
        actual = pa.table(table)
        actual.validate(full=True)
        assert actual.schema == schema
        assert actual.equals(pa.Table.from_batches(expected, schema))


@settings(max_examples=30)
@given(data=st.data())
def test_an_arena_never_changes_a_table_that_is_read(data: st.DataObject) -> None:
    readers: list[tuple[bs.Table, bs.Table]] = []
    with Arena(max_unused_bytes=data.draw(st.sampled_from([0, 1 << 16, 1 << 30]))) as arena:
        for _ in range(data.draw(st.integers(1, 6))):
            source = bs.Table.from_batches([data.draw(strategies.batches())])
            with bs.share(source, arena=arena) as handle:
                readers.append((bs.attach(handle), source))
            if data.draw(st.booleans()):
                readers.pop(data.draw(st.integers(0, len(readers) - 1)))
            for shared, expected in readers:
                shared.validate(full=True)
                assert shared.equals(expected, check_metadata=True, nans_equal=True)
