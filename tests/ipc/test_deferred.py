"""A schema is read field by field: what the vectorised pass says is what the reading of each field says."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import BowstringError, InvalidDataError, NotFoundError
from bowstring.flatbuf.reader import Message
from bowstring.flatbuf.tables import SPECS
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.lazy_schema import LazySchema
from bowstring.ipc.record_batch.plan import SchemaPlan
from bowstring.testing import strategies


def footer_at(raw: bytes) -> int:
    return len(raw) - 10 - int.from_bytes(raw[-10:-6], "little")


def deferred(raw: bytes) -> LazySchema:
    table = Message(raw[footer_at(raw) : -10], SPECS, "footer").root("Footer")["schema"]
    if table is None:
        raise InvalidDataError("the footer has no schema")
    return LazySchema(table, DEFAULT_LIMITS)


def written(schema: bs.Schema) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, schema):
        pass
    return sink.getvalue()


@settings(max_examples=150)
@given(st.lists(st.tuples(st.text(max_size=4), strategies.types()), max_size=8))
def test_counts_names_and_fields_are_those_of_the_whole_schema(columns: list[tuple[str, bs.DataType]]) -> None:
    schema = bs.schema(columns)
    read = deferred(written(schema))
    plan = SchemaPlan(read)
    eager = SchemaPlan(read.whole)
    assert [(c.first_node, c.first_buffer, c.first_variadic) for c in plan] == [
        (c.first_node, c.first_buffer, c.first_variadic) for c in eager
    ]
    assert (plan.node_count, plan.buffer_count) == (eager.node_count, eager.buffer_count)
    assert read.schema == schema
    late = read.late()
    for index, (name, _) in enumerate(columns):
        assert read.entry(index)[0] == schema.fields[index]
        if schema.names.count(name) == 1:
            assert late.index(name) == index
        else:
            with pytest.raises(NotFoundError, match="columns are called"):
                late.index(name)
    with pytest.raises(NotFoundError, match="no column is called"):
        late.index("a name that is not there")


def test_flat_fields_of_both_writers_are_known_without_being_read() -> None:
    sink = io.BytesIO()
    theirs = pa.schema({f"c{i}": t for i, t in enumerate([pa.int8(), pa.string(), pa.string_view(), pa.null()] * 50)})
    with pa.ipc.new_file(sink, theirs):
        pass
    ours = written(
        bs.schema({f"c{i}": t for i, t in enumerate([bs.int8(), bs.string(), bs.string_view(), bs.null()] * 50)})
    )
    for raw in (sink.getvalue(), ours):
        counts = deferred(raw).counts()
        assert counts.tolist() == [[1, 2, 0], [1, 3, 0], [1, 2, 1], [1, 0, 0]] * 50


def test_a_broken_field_breaks_only_its_own_column_and_the_schema() -> None:
    schema = bs.schema({"good": bs.int32(), "broken": bs.timestamp("us"), "fine": bs.string()})
    sink = io.BytesIO()
    with bs.new_file(sink, schema) as writer:
        writer.write(_batch(schema))
    raw = bytearray(sink.getvalue())
    start = footer_at(bytes(raw))
    table = Message(bytes(raw[start:-10]), SPECS, "footer").root("Footer")["schema"].child_at("fields", 1)
    unit = table.union("type", "Timestamp").span("unit")[0]
    raw[start + unit] = 77
    with bs.open_file(bytes(raw)) as reader:
        batch = reader.get_batch(0)
        assert batch.column(0).to_pylist() == [1]
        assert batch.column(2).to_pylist() == ["x"]
        with pytest.raises(InvalidDataError, match=r"field 'broken': time unit 77"):
            batch.column(1)
        with pytest.raises(InvalidDataError, match=r"field 'broken'"):
            _ = reader.schema


def _batch(schema: bs.Schema) -> bs.RecordBatch:
    arrays = [bs.array(v, t) for v, t in zip(([1], [2], ["x"]), schema.types, strict=True)]
    return bs.RecordBatch.from_arrays(arrays, schema=schema)


def test_flipped_bytes_of_a_schema_give_the_same_or_a_clean_error() -> None:
    raw = written(bs.schema({"a": bs.int32(), "bc": bs.string_view(), "d": bs.list_(bs.int8()), "e": bs.null()}))
    random = np.random.default_rng(7)
    start, stop = footer_at(raw), len(raw) - 10
    outcomes = set()
    for _ in range(3000):
        broken = bytearray(raw)
        for at in random.integers(start, stop, 2).tolist():
            broken[at] ^= 1 << int(random.integers(8))
        try:
            read = deferred(bytes(broken))
            plan = SchemaPlan(read)
            for index in range(len(read)):
                plan[index]
            read.late().index("bc")
            eager = SchemaPlan(read.whole)
        except BowstringError:
            outcomes.add("error")
            continue
        outcomes.add("read")
        assert (plan.node_count, plan.buffer_count, plan.variadic_count) == (
            eager.node_count,
            eager.buffer_count,
            eager.variadic_count,
        )
    assert outcomes == {"error", "read"}
