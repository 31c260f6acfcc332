"""Functions and methods with pyarrow's names: the same expression gives the same with both libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError

pa = pytest.importorskip("pyarrow")

ROWS = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}]
POINTS = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "c"}, {"x": 4, "y": None}])
NESTED = pa.Table.from_batches(
    [
        pa.record_batch(
            {"n": POINTS[start:stop], "i": pa.array(range(start, stop), pa.int64()), "m": POINTS[start:stop]}
        )
        for start, stop in ((0, 2), (2, 2), (2, 4))
    ]
)
SCHEMAS = [{"a": "int64", "b": "string"}, {"b": "string", "c": "bool"}, {"a": "int64"}]


def convert(library: Any, value: Any) -> Any:
    """A table, batch, array or schema of pyarrow as one of a library."""
    if library is pa:
        return value
    if isinstance(value, pa.Table):
        return bs.Table.from_batches([bs.record_batch(batch) for batch in value.to_batches()])
    if isinstance(value, pa.RecordBatch):
        return bs.record_batch(value)
    return bs.schema(value) if isinstance(value, pa.Schema) else bs.array(value)


def schema_of(library: Any, fields: dict[str, str]) -> Any:
    return library.schema(
        [(name, getattr(library, type_ + "_" * (type_ == "bool"))()) for name, type_ in fields.items()]
    )


def as_pyarrow(value: Any) -> Any:
    if isinstance(value, bs.Table | bs.ChunkedArray):
        return pa.table(value) if isinstance(value, bs.Table) else pa.chunked_array(value)
    if isinstance(value, bs.RecordBatch | bs.Array | bs.Schema | bs.Field):
        constructor = {bs.RecordBatch: pa.record_batch, bs.Schema: pa.schema, bs.Field: pa.field}
        return constructor.get(type(value), pa.array)(value)
    return pa.field(bs.field("", value)).type if isinstance(value, bs.DataType) else value


EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "Table.from_pylist": lambda m: m.Table.from_pylist(ROWS),
    "Table.from_pylist, schema": lambda m: m.Table.from_pylist(ROWS, m.schema([("b", m.string()), ("a", m.int8())])),
    "Table.from_pylist, metadata": lambda m: m.Table.from_pylist(ROWS, metadata={"k": "v"}).schema.metadata,
    "Table.from_pylist, no rows": lambda m: m.Table.from_pylist([]).shape,
    "RecordBatch.from_pylist": lambda m: m.RecordBatch.from_pylist(ROWS),
    "Table.from_pydict": lambda m: m.Table.from_pydict({"a": [1, 2], "b": ["x", None]}),
    "RecordBatch.from_pydict": lambda m: m.RecordBatch.from_pydict({"a": [1, 2]}, m.schema([("a", m.float32())])),
    "RecordBatch.from_struct_array": lambda m: m.RecordBatch.from_struct_array(convert(m, POINTS)),
    "RecordBatch.from_struct_array, slice": lambda m: m.RecordBatch.from_struct_array(convert(m, POINTS[1:3])),
    "Table.from_struct_array": lambda m: m.Table.from_struct_array(convert(m, POINTS)),
    "RecordBatch.to_struct_array": lambda m: convert(m, NESTED.to_batches()[0]).to_struct_array(),
    "Table.to_struct_array": lambda m: convert(m, NESTED).to_struct_array(),
    "chunked_array": lambda m: m.chunked_array([[1, None], [], [2]]),
    "chunked_array, type": lambda m: m.chunked_array([[1], [2.5]], m.float32()),
    "chunked_array, no chunks": lambda m: m.chunked_array([], m.string()),
    "nulls": lambda m: m.nulls(3),
    "nulls, type": lambda m: m.nulls(3, m.list_(m.int8())),
    "repeat": lambda m: m.repeat("x", 1000),
    "repeat, never": lambda m: m.repeat(2.5, 0),
    "infer_type": lambda m: m.infer_type([1, None, 2.5]),
    "concat_batches": lambda m: m.concat_batches([convert(m, batch) for batch in NESTED.to_batches()]),
    "unify_schemas": lambda m: m.unify_schemas([schema_of(m, each) for each in SCHEMAS]),
    "unify_schemas, null": lambda m: m.unify_schemas([m.schema([("a", m.null())]), m.schema([("a", m.int8())])]),
    "append": lambda m: schema_of(m, SCHEMAS[0]).append(m.field("z", m.bool_())),
    "insert": lambda m: schema_of(m, SCHEMAS[0]).insert(1, m.field("z", m.bool_())),
    "insert at the end": lambda m: schema_of(m, SCHEMAS[0]).insert(2, m.field("z", m.bool_())),
    "set": lambda m: schema_of(m, SCHEMAS[0]).set(0, m.field("z", m.bool_())),
    "remove": lambda m: schema_of(m, SCHEMAS[0]).remove(1),
    "get_field_index": lambda m: [schema_of(m, SCHEMAS[0]).get_field_index(name) for name in ("a", "b", "c")],
    "get_field_index, repeated": lambda m: m.schema([("a", m.int8())] * 2).get_field_index("a"),
    "get_all_field_indices": lambda m: m.schema(
        [("a", m.int8()), ("b", m.int8()), ("a", m.int8())]
    ).get_all_field_indices("a"),
    "drop_null": lambda m: m.table({"a": [1, None, 3], "b": ["x", "y", None]}).drop_null(),
    "drop_null, batch": lambda m: m.RecordBatch.from_pylist(ROWS).drop_null(),
    "drop_null, batches": lambda m: convert(m, NESTED).drop_null(),
    "itercolumns": lambda m: [column.to_pylist() for column in convert(m, NESTED).itercolumns()],
    "flatten": lambda m: convert(m, NESTED).flatten(),
    "flatten, none": lambda m: m.table({"a": [1]}).flatten(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_gives_the_same_as_with_pyarrow(name: str) -> None:
    expected, found = (EXPRESSIONS[name](library) for library in (pa, bs))
    found = as_pyarrow(found)
    assert type(found) is type(expected)
    assert found == expected
    if hasattr(found, "validate"):
        found.validate(full=True)


@pytest.mark.parametrize("create", [bs.Table.from_pydict, bs.RecordBatch.from_pydict])
def test_rows_and_columns_are_selected_by_subscripts(create: Any) -> None:
    data = create({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    assert data[["b"]].to_pydict() == {"b": ["x", "y", "z"]}
    assert data[["b", "a"]].column_names == ["b", "a"]
    assert data[[]].num_columns == 0
    for mask in (
        [True, False, True],
        np.array([True, False, True]),
        bs.array([True, None, True]),
        pa.array([1, 0, 1]).cast("bool"),
    ):
        assert data[mask]["a"].to_pylist() == [1, 3]
    assert data[data["a"].to_numpy() > 1].num_rows == 2
    assert data[np.int64(1)].to_pylist() == ["x", "y", "z"]
    assert (data.head(2)["a"].to_pylist(), data.tail(2)["a"].to_pylist()) == ([1, 2], [2, 3])
    assert [data.head().num_rows, data.tail(9).num_rows, data.head(0).num_rows, data.tail(-1).num_rows] == [3, 3, 0, 0]
    with pytest.raises(NotFoundError, match="no column is called 'c'"):
        _ = data[["a", "c"]]
    for wrong in ([0, 1], np.array([0, 1, 2]), [True]):
        with pytest.raises(InvalidArgumentError, match="mask"):
            _ = data[wrong]


ERRORS: dict[str, tuple[type[Exception], Callable[[], object]]] = {
    "expected columns by name": (TypeMismatchError, lambda: bs.Table.from_pydict([1])),  # type: ignore[arg-type]
    "expected a sequence of mappings": (TypeMismatchError, lambda: bs.Table.from_pylist([1])),  # type: ignore[list-item]
    "expected an array of structs, found int64": (
        TypeMismatchError,
        lambda: bs.RecordBatch.from_struct_array(bs.array([1])),
    ),
    "without chunks, a type is needed": (InvalidArgumentError, lambda: bs.chunked_array([])),
    "the size: expected an integer of 0 or more, found -1": (InvalidArgumentError, lambda: bs.nulls(-1)),
    "the size: expected an integer of 0 or more, found 1.5": (InvalidArgumentError, lambda: bs.repeat(1, 1.5)),  # type: ignore[arg-type]
    "field 'a' has type int64, and string in schema 1": (
        TypeMismatchError,
        lambda: bs.unify_schemas([{"a": "int64"}, {"a": "string"}]),
    ),
    "schema 0 has two fields of the same name": (
        InvalidArgumentError,
        lambda: bs.unify_schemas([bs.schema([("a", "int64")] * 2)]),
    ),
    "column index 3 is out of range for a schema of length 1": (
        NotFoundError,
        lambda: bs.schema({"a": "int64"}).insert(3, bs.field("b", "int64")),
    ),
    "batch 1 has another schema": (
        InvalidArgumentError,
        lambda: bs.concat_batches([bs.record_batch({"a": [1]}), bs.record_batch({"b": [1]})]),
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_an_argument_that_does_not_fit_is_an_error(message: str) -> None:
    kind, function = ERRORS[message]
    with pytest.raises(kind, match=message):
        function()


def test_a_repeated_value_is_not_created_one_by_one() -> None:
    assert bs.repeat("abc", 5_000_000).length == bs.nulls(5_000_000, "string").null_count == 5_000_000
