"""Invalid arguments raise `InvalidArgumentError` with a clear message."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError
from tests.ipc import samples

BATCH: Any = samples.batch("int", "text")
TABLE = bs.Table.from_batches([BATCH])
INVALID_ARGUMENTS = (None, 3, "x", b"x", object())
HALF: Any = 0.5
TABLES: list[Any] = [bs.table]


def _write(call: Callable[[bs.ipc.StreamWriter], object]) -> None:
    with bs.new_stream(io.BytesIO(), BATCH.schema) as writer:
        call(writer)


SCHEMA: Any = bs.schema({"a": "int64"})
UNCHECKED: dict[str, Callable[[], Any]] = {
    "bowstring.schema takes names and types": lambda: bs.Schema([("a", "int64")]),  # type: ignore[arg-type]
    "bowstring.schema converts a dictionary": lambda: bs.Schema((), {"k": "v"}),  # type: ignore[arg-type]
    "bowstring.field and": lambda: bs.Field("a", "int64"),  # type: ignore[arg-type]
    "bowstring.field converts a dictionary": lambda: bs.Field("a", bs.int8(), True, {"k": "v"}),  # type: ignore[arg-type]
    "bowstring.table creates one": lambda: bs.Table({"a": [1]}),  # type: ignore[arg-type]
    "bowstring.record_batch creates one": lambda: bs.RecordBatch({"a": [1]}),  # type: ignore[arg-type]
    "batch 0: expected a RecordBatch, found int": lambda: bs.Table(SCHEMA, [5]),  # type: ignore[list-item]
    "expected an array, found list": lambda: bs.RecordBatch(SCHEMA, 1, [[1]]),  # type: ignore[list-item]
    "expected an array": lambda: bs.ChunkedArray([[1]], "int64"),  # type: ignore[list-item]
}
"""Calls of classes in place of the functions that convert their arguments, by the error that they raise at once."""
CALLS: dict[str, Callable[[Any], Any]] = {
    "table": bs.table,
    "record_batch": bs.record_batch,
    "columns of another schema": lambda it: TABLES[0]({}, schema=it or 3),
    "schema": bs.schema,
    "schema of": lambda it: bs.schema([it]),
    "struct": bs.struct,
    "struct of": lambda it: bs.struct([it]),
    "metadata": lambda it: BATCH.schema.with_metadata(it or 3),
    "metadata of": lambda it: BATCH.schema.with_metadata({"a": None if isinstance(it, str | bytes) else it}),
    "precision": lambda it: bs.decimal128(0 if it == 3 else it, 2),
    "scale": lambda it: bs.decimal128(5, 1 << 40 if it == 3 else it),
    "table slice": lambda it: TABLE.slice(HALF if it == 3 else it),
    "batch slice": lambda it: BATCH.slice(0, -1 if it in (None, 3) else it),
    "chunked slice": lambda it: TABLE.column(0).slice(-it if it == 3 else it),
    "array[]": lambda it: BATCH.column(0)[HALF if it == 3 else it],
    "chunked[]": lambda it: TABLE.column(0)[HALF if it == 3 else it],
    "child": lambda it: bs.array([{"a": 1}]).field(it),
    "take": lambda it: BATCH.column(0).take([[1], [2, 3]] if it is None else it),
    "select": TABLE.select,
    "drop_columns": TABLE.drop_columns,
    "sort_by": TABLE.sort_by,
    "cast": TABLE.cast,
    "chunks": lambda it: bs.ChunkedArray([it], bs.int8()),
    "table equals": TABLE.equals,
    "batch equals": BATCH.equals,
    "chunked equals": TABLE.column(0).equals,
    "from_batches": lambda it: bs.Table.from_batches([it]),
    "concat_tables": lambda it: bs.concat_tables([it]),
    "new_stream": lambda it: bs.new_stream(io.BytesIO(), it),
    "new_file": lambda it: bs.new_file(io.BytesIO(), it),
    "write": lambda it: _write(lambda writer: writer.write(it)),
    "write_table": lambda it: _write(lambda writer: writer.write_table(it)),
    "reader[]": lambda it: bs.open_file(samples.as_file(BATCH))[it],
}


@pytest.mark.parametrize("name", CALLS)
def test_an_invalid_argument_is_rejected(name: str) -> None:
    for nonsense in INVALID_ARGUMENTS:
        with pytest.raises(bs.errors.InvalidArgumentError):
            CALLS[name](nonsense)


@pytest.mark.parametrize("message", UNCHECKED)
def test_a_class_checks_what_the_function_would_convert(message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        UNCHECKED[message]()


def test_the_elements_of_a_table_are_its_columns() -> None:
    table = bs.table({"a": [1], "b": ["x"]})
    assert all(column in table for column in table)
    with pytest.raises(InvalidArgumentError, match="use 'a' in column_names"):
        _ = "a" in table


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bs.StructArray.from_arrays(5, ["x"]), "expected a sequence of columns, not int"),  # type: ignore[arg-type]
        (lambda: bs.StructArray.from_arrays([5], ["x"]), "expected a sequence of values, found 5"),
        (lambda: bs.StructArray.from_arrays([[1]], fields=[]), "a schema of 0 fields does not fit 1 columns"),
        (lambda: bs.StructArray.from_arrays([[300]], fields=[bs.field("x", "int8")]), "300 cannot be converted"),
        (lambda: bs.Table.from_arrays(5, ["x"]), "expected a sequence of columns, not int"),  # type: ignore[arg-type]
        (lambda: bs.RecordBatch.from_arrays("ab", ["x"]), "expected a sequence of columns, not str"),
        (lambda: bs.array(np.array(5, object)), "a NumPy array of at least one dimension"),
        (lambda: bs.array([np.array(1)], bs.list_("int64")), r"value 0: array\(1\) cannot be converted to list"),
        (lambda: bs.array([np.array(1)], bs.list_("int64", 1)), r"value 0: array\(1\) cannot be converted to fixed"),
        (
            lambda: bs.array([np.array(1)], bs.map_("string", "int64")),
            r"value 0: array\(1\) cannot be converted to map",
        ),
        (lambda: bs.Array.from_buffers("int8", 1, [None, b"a"], -1), "name the arguments after `buffers`"),  # type: ignore[arg-type]
        (
            lambda: bs.Array.from_buffers(bs.list_("int8"), 1, [None, bytes(8)], [[1]]),  # type: ignore[list-item]
            "expected an array, found list",
        ),
        (lambda: bs.schema({"a": "int8"}).insert("a", bs.field("b", "int8")), "expected the index of a column"),  # type: ignore[arg-type]
        (lambda: bs.from_numpy_dtype("O"), "object has no data type of its own"),
        (lambda: bs.from_numpy_dtype("nope"), "expected a dtype of NumPy, found 'nope'"),
        (lambda: bs.Table.from_struct_array(bs.chunked_array([], bs.list_("int8"))), "expected an array of structs"),
        (
            lambda: bs.ListViewArray.from_arrays([0, None], [1, 1], [1], mask=[True, False]),
            "either null offsets or a mask",
        ),
        (lambda: bs.feather.write_feather(TABLE, io.BytesIO(), version=1), "version 2 is the Arrow file"),  # type: ignore[arg-type]
        (lambda: TABLE.sort_by([("int", "ascending", "first")]), "null_placement"),  # type: ignore[list-item]
        (lambda: TABLE.sort_by([("a",)]), "pairs of names and orders"),  # type: ignore[list-item]
        (lambda: TABLE.sort_by([("int", "ascending", "at_end", "x")]), "pairs of names and orders"),  # type: ignore[list-item]
        (lambda: bs.field(5, "int8"), "a field's name is a string, not 5"),  # type: ignore[arg-type]
        (lambda: bs.int8().field(0), "expected the name or the index of one field"),
        (lambda: bs.schema({"a": "int8"}, {"pandas": "{"}).pandas_metadata, "is not JSON"),
        (lambda: bs.schema({"a": "int8"}, {"pandas": "[" * 100_000}).pandas_metadata, "is not JSON"),
    ],
)
def test_arguments_of_pyarrow_s_functions_raise_no_bare_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(bs.BowstringError, match=message):
        call()


def test_parts_convert_to_the_types_of_fields() -> None:
    fields = [bs.field("x", "int8", nullable=False), bs.field("y", "string")]
    for array in (
        bs.StructArray.from_arrays([[1, 2], ["a", None]], fields=fields),
        bs.StructArray.from_arrays([np.array([1, 2]), ("a", None)], type=bs.struct(fields)),
    ):
        assert array.type == bs.struct(fields)
        assert array.to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": None}]


def test_a_list_view_is_null_where_its_offset_is() -> None:
    array = bs.ListViewArray.from_arrays([1, None, 0], [2, 9, 1], [1, 2, 3])
    array.validate(full=True)
    assert array.to_pylist() == [[2, 3], None, [1]]


def test_a_step_of_a_chunked_array_is_one() -> None:
    for key in (slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2)):
        column = bs.chunked_array([[1, 2], [3, None]])[key]
        assert isinstance(column, bs.ChunkedArray)
        assert column.to_pylist() == [1, 2, 3, None][key]
