"""Fields that are not nullable: what consumes or produces nullability agrees with pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings, strategies as st

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring_testing import strategies


def raises(function: Callable[[], Any], *errors: type[Exception]) -> bool:
    """Return whether a function raises one of these errors."""
    try:
        function()
    except errors:
        return True
    return False


@settings(max_examples=40)
@given(batch=strategies.batches())
def test_nullability_at_any_depth_survives_streams_and_c_structures(batch: bs.RecordBatch) -> None:
    assume("\\x00" not in str(batch.schema))  # in names, which are C strings
    schema = pa.schema(batch.schema)
    assert bs.schema(schema) == batch.schema
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    peer = pa.ipc.open_stream(sink.getvalue())
    assert peer.schema == schema
    copy = pa.BufferOutputStream()
    with pa.ipc.new_stream(copy, peer.schema) as peer_writer:
        peer_writer.write_table(peer.read_all())
    with bs.open_stream(copy.getvalue()) as reader:
        assert reader.schema == batch.schema
    assert bs.record_batch(pa.record_batch(batch)).schema == batch.schema
    assert bs.Table.from_batches([batch]).slice(1).select(range(len(schema))).schema == batch.schema


def _wrap(kind: str, type_: Any, nullable: bool, module: Any) -> Any:
    """Return a type with `type_` as a child that is nullable or not."""
    child = module.field("item", type_, nullable=nullable)
    makers: dict[str, Callable[[], Any]] = {
        "flat": lambda: type_,
        "list": lambda: module.list_(child),
        "large_list": lambda: module.large_list(child),
        "fixed_size_list": lambda: module.list_(child, 1),
        "struct": lambda: module.struct([child]),
    }
    return makers[kind]()


@settings(max_examples=200)
@given(
    kind=st.sampled_from(["flat", "list", "large_list", "fixed_size_list", "struct"]),
    leaves=st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=4),
    rows_are_null=st.booleans(),
    source=st.sampled_from(["int8", "int64"]),
    is_nullable=st.tuples(st.booleans(), st.booleans()),
)
def test_a_cast_to_a_field_that_is_not_nullable_fails_for_nulls_only(
    kind: str, leaves: list[int | None], rows_are_null: bool, source: str, is_nullable: tuple[bool, bool]
) -> None:
    rows: list[Any] = [leaf if kind == "flat" else {"item": leaf} if kind == "struct" else [leaf] for leaf in leaves]
    rows += [None] if rows_are_null else []
    column = pa.array(rows, _wrap(kind, getattr(pa, source)(), True, pa))
    target = pa.schema([pa.field("a", _wrap(kind, pa.int32(), is_nullable[1], pa), is_nullable[0])])
    table = bs.table(pa.table({"a": column}))
    has_forbidden_null = (not is_nullable[0] and (rows_are_null or (kind == "flat" and None in leaves))) or (
        kind != "flat" and not is_nullable[1] and None in leaves
    )
    assert raises(lambda: table.cast(target), BowstringError) == has_forbidden_null
    if not has_forbidden_null:
        cast = table.cast(target)
        assert pa.schema(cast.schema) == target
        assert cast.to_pylist() == [{"a": row} for row in rows]
    if kind == "flat":
        assert raises(lambda: pa.table(table).cast(target), ValueError) == has_forbidden_null


@pytest.mark.parametrize("values", [[1, 2], [1, None], [None, None], []])
@pytest.mark.parametrize("dtype", ["Int64", "float64", "object", "category"])
def test_a_schema_for_pandas_rejects_missing_values_as_pyarrow_does(values: list[Any], dtype: str) -> None:
    type_ = pa.dictionary(pa.int8(), pa.int64()) if dtype == "category" else pa.int64()
    schema = pa.schema([pa.field("a", type_, nullable=False)])
    frame = pd.DataFrame({"a": pd.Series(values, dtype=dtype)})
    expected = raises(lambda: pa.Table.from_pandas(frame, schema), ValueError)
    assert raises(lambda: bs.Table.from_pandas(frame, schema), BowstringError) == expected == (None in values)


def test_tables_that_differ_in_nullability_are_not_concatenated() -> None:
    strict = pa.table({"a": [1]}, pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    loose = pa.table({"a": [1]})
    assert raises(lambda: pa.concat_tables([strict, loose]), pa.ArrowInvalid)
    assert raises(lambda: bs.concat_tables([bs.table(strict), bs.table(loose)]), BowstringError)
    assert pa.schema(bs.concat_tables([bs.table(strict)] * 2).schema) == strict.schema
