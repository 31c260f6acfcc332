"""Invalid arguments raise `InvalidArgumentError` with a clear message."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

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
