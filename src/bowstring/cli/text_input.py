"""CSV and JSON lines as columns, their types inferred from all values. What `convert` reads that is no Arrow data."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from math import isinf
from typing import Any, BinaryIO

from bowstring.datatypes.field import Field, Schema
from bowstring.datatypes.types import DataType, Timestamp
from bowstring.errors import InvalidDataError
from bowstring.layouts import gather
from bowstring.layouts.array import Array
from bowstring.layouts.base import place
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.build import array

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,19})", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?((0|[1-9]\d*)(\.\d*)?(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?)|nan|[+-]?inf(inity)?", re.IGNORECASE | re.ASCII
)
_LONG_INTEGER = re.compile(r"[+-]?\d{16,}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
_ZONED = re.compile(_MOMENT.pattern + r"(Z|[+-]\d\d:\d\d)", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TRUTH = {"true": True, "false": False}
_LARGEST_CELL = 1 << 28


def _float(text: str) -> float:
    """The nearest float64; raises OverflowError where a number is beyond all that are finite."""
    value = float(text)
    if isinf(value) and text[-1] in "0123456789.":
        raise OverflowError(f"{text[:40]} is beyond float64")
    return value


_Rule = tuple[Callable[[str], Any], Callable[[str], Any], DataType | None]
_RULES: tuple[_Rule, ...] = (
    (_INTEGER.fullmatch, int, None),
    (lambda cell: _FLOAT.fullmatch(cell) and not _LONG_INTEGER.fullmatch(cell), _float, None),  # else digits get lost
    (lambda cell: cell in _TRUTH, _TRUTH.__getitem__, None),
    (_DATE.fullmatch, date.fromisoformat, None),
    (_MOMENT.fullmatch, datetime.fromisoformat, Timestamp("us")),
    (_ZONED.fullmatch, lambda cell: datetime.fromisoformat(cell).astimezone(UTC), Timestamp("us", "UTC")),
)


def read_csv(source: BinaryIO, name: str) -> RecordBatch:
    """A line of names, then a line a row (RFC 4180, UTF-8). What is empty is null, but of several columns an empty line
    is no row.

    A column is int64, float64, boolean, date or timestamp where all of its values are written like that, else utf8: a
    number that is beyond all float64 is text, too.
    Raises `InvalidDataError`, which names the line.
    """
    csv.field_size_limit(_LARGEST_CELL)
    text = io.TextIOWrapper(source, "utf-8-sig", newline="")
    rows = csv.reader(text, strict=True)
    try:
        names = next(rows, None)
        if not names:
            raise InvalidDataError(f"{name}: expected a line of column names, found nothing")
        columns: list[list[str]] = [[] for _ in names]
        for row in rows:
            if not row and len(names) > 1:
                continue  # an empty line, as many files have at their end
            cells = row or [""]  # a null in the only column
            if len(cells) != len(names):
                raise InvalidDataError(
                    f"{name}: line {rows.line_num}: expected {len(names)} values, found {len(cells)}"
                )
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
    except csv.Error as error:
        raise InvalidDataError(f"{name}: line {rows.line_num}: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{name}: after line {rows.line_num}: it is no UTF-8: {error.reason}") from None
    finally:
        text.detach()  # the source is the caller's to close
    return RecordBatch.from_arrays(list(map(_typed, columns)), names)


def _typed(cells: Sequence[str]) -> Array:
    held = [cell for cell in cells if cell]
    for matches, convert, kind in _RULES if held else ():
        if all(map(matches, held)):
            try:
                return array([convert(cell) if cell else None for cell in cells], kind)
            except (ValueError, OverflowError):  # such as February 30
                continue
    return array([cell or None for cell in cells])


def read_json_lines(source: BinaryIO, name: str) -> RecordBatch:
    """An object a line; columns are the keys in the order in which they are first met, null where an object lacks one.

    Raises `InvalidDataError` for a line that is no object or has a number beyond float64, `DataTypeError` for a column
    without one type: both name the place. Raises `LimitError` where hardly an object has the keys of the others, so
    that nearly all would be null.
    """
    columns: dict[str, list[Any]] = {}
    count = held = 0
    decode = json.JSONDecoder(parse_float=_float).decode
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            row = decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        except (ValueError, OverflowError, RecursionError) as error:
            raise InvalidDataError(f"{name}: line {number}: expected a JSON object: {error}") from None
        if not isinstance(row, dict):
            raise InvalidDataError(f"{name}: line {number}: expected a JSON object, found {type(row).__name__}")
        held += len(row)
        for key, value in row.items():
            column = columns.get(key)
            if column is None:
                if _SURROGATE.search(key):
                    raise InvalidDataError(f"{name}: line {number}: the key {key!r} is no text, as it has surrogates")
                column = columns[key] = []
            column.extend([None] * (count - len(column)))
            column.append(value)
        count += 1
        if count * len(columns) > gather.MAX_VALUES:
            with place(f"{name}: line {number}"):
                gather.check_values(count * len(columns), held)
    arrays = []
    for key, values in columns.items():
        values.extend([None] * (count - len(values)))
        with place(f"{name}: column {key!r}"):
            arrays.append(array(values))
        values.clear()
    schema = Schema(tuple(Field(key, made.type) for key, made in zip(columns, arrays, strict=True)))
    return RecordBatch(schema, count, arrays)  # rows may be all that there is: objects without a key
