"""Formatting of rows and values as JSON, CSV and cells of tables («Data Types»).

The formats depend on the Python value from `to_pylist`, not on the type. docs/reference/command-line.md has the list.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.canonical.timestamp_with_offset import TimestampWithOffset
from bowstring.display.printable_text import complete_year
from bowstring.errors import InvalidArgumentError, prefix_errors
from bowstring.layouts.base import ArrayData, Layout, check_expanded_arrays, sum_buffer_sizes
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.value_codecs.numbers import NARROW_FLOATS

# Rows become Python objects in chunks, so that memory is bounded, however large a batch is.
_MAX_CHUNK_ROWS, _MAX_CHUNK_CELLS, _MAX_CHUNK_BYTES = 1024, 1 << 16, 4 << 20
# One system call for about a thousand lines; more would delay the first ones.
_MAX_JOINED_LINES, _MAX_JOINED_CHARACTERS = 1000, 1 << 20
_DECIMALS_BY_UNIT = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_QUOTED_CHARACTERS = frozenset('",\r\n')
_JSON_TYPES = frozenset((NoneType, bool, int, str))
_JSON_ENCODERS = {
    ascii_only: json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, separators=(", ", ": ")).encode
    for ascii_only in (False, True)
}


def iterate_rows(batch: RecordBatch, error_prefix: str = "") -> Iterator[tuple[Any, ...]]:
    """Yield the rows as tuples of Python values, converted in chunks; column names need not be unique.

    Raises `InvalidDataError` or `TypeMismatchError` with the prefix, the first row of the chunk and the column, and the
    errors of `check_row_count`.
    """
    check_row_count(batch, error_prefix)
    chunk_rows = _rows_per_chunk(batch)
    for start in range(0, batch.num_rows, chunk_rows):
        part = batch.slice(start, chunk_rows)
        if part.num_columns == 0:
            yield from (() for _ in range(part.num_rows))
        else:
            from_row = f"from row {start} on, " if start else ""
            columns = []
            for field, column in zip(part.schema, part.columns, strict=True):
                with prefix_errors(f"{error_prefix}{from_row}column {field.name!r}"):
                    columns.append(to_python_values(column))
            yield from zip(*columns, strict=True)


def to_python_values(column: ArrayData) -> list[Any]:
    """Return the values as `to_pylist` does, but floats of 16 and 32 bits so that their text has the fewest digits that
    identify them: a column of them as floats, within other values as NumPy's.
    """
    layout = column.layout
    if not _has_narrow_floats(layout):
        return column.to_pylist()
    if not isinstance(layout, PrimitiveLayout):
        return [layout.value_at(column, index, sys.maxsize) for index in range(column.length)]
    values = column.buffer_values(1).astype(np.str_).astype(np.float64).tolist()
    valid = column.validity_mask()
    return values if valid is None else [v if is_valid else None for v, is_valid in zip(values, valid, strict=True)]


@lru_cache(maxsize=1024)
def _has_narrow_floats(layout: Layout) -> bool:
    inner = layout.children if layout.dictionary is None else (layout.dictionary,)
    is_narrow = isinstance(layout, PrimitiveLayout) and layout.dtype in NARROW_FLOATS
    return is_narrow or any(map(_has_narrow_floats, inner))


def _rows_per_chunk(batch: RecordBatch) -> int:
    total_bytes = max(1, sum(sum_buffer_sizes(column, with_dictionaries=False) for column in batch.columns))
    rows = min(_MAX_CHUNK_CELLS // max(1, batch.num_columns), _MAX_CHUNK_BYTES * batch.num_rows // total_bytes)
    return max(1, min(rows, _MAX_CHUNK_ROWS))


def encode_lines(
    lines: Iterable[str], max_lines: int = _MAX_JOINED_LINES, max_characters: int = _MAX_JOINED_CHARACTERS
) -> Iterator[bytes]:
    """Yield lines with line ends in UTF-8, several in one chunk, which ends with the line that reaches a limit."""
    pending: list[str] = []
    characters = 0
    for line in lines:
        pending.append(line)
        characters += len(line)
        if len(pending) == max_lines or characters >= max_characters:
            yield "\n".join((*pending, "")).encode()
            pending, characters = [], 0
    if pending:
        yield "\n".join((*pending, "")).encode()


def check_row_count(batch: RecordBatch, error_prefix: str = "") -> None:
    """Raise `LimitError` with the prefix if there are many more rows than bytes in the columns, as in hostile data."""
    with prefix_errors(f"{error_prefix}{batch.num_rows} rows"):
        check_expanded_arrays(batch.lazy_columns, batch.num_rows)


def check_unique_names(names: Sequence[str], hint: str) -> None:
    """Raise `InvalidArgumentError` with `hint` for duplicate column names, which JSON objects cannot have."""
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(
            f"two columns have the name {duplicate!r}, but the keys of a JSON object are unique: {hint}"
        )


def to_json_value(value: Any) -> Any:
    r"""Convert a Python value of an array to a value that the module `json` can encode.

    >>> from decimal import Decimal
    >>> to_json_value([float("nan"), Decimal("1.50"), b"\x00\xff", {"a": None}])
    ['NaN', '1.50', '00ff', {'a': None}]
    """
    if type(value) in _JSON_TYPES or isinstance(value, int | str):
        return value
    if isinstance(value, np.floating):
        value = float(str(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else _format_non_finite(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, TimestampWithOffset):
        return _format_timestamp_with_offset(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _format_duration(value // timedelta(microseconds=1), 6)
    if isinstance(value, np.timedelta64):
        return _format_duration(int(value.astype(np.int64)), _DECIMALS_BY_UNIT.get(np.datetime_data(value.dtype)[0], 0))
    if isinstance(value, np.datetime64):
        return complete_year(str(value))
    if isinstance(value, np.generic | np.ndarray):
        return to_json_value(value.tolist())
    if isinstance(value, dict):
        return {str(key): to_json_value(element) for key, element in value.items()}
    names = getattr(value, "_fields", None)  # a named tuple, such as an interval
    if names is not None:
        return {name: to_json_value(element) for name, element in zip(names, value, strict=True)}
    if isinstance(value, Sequence):
        return [to_json_value(element) for element in value]
    return str(value)  # a UUID, or a value of a user's extension type


def _format_non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _format_duration(ticks: int, decimals: int) -> str:
    """Format a duration exactly, in seconds, according to ISO 8601."""
    whole, rest = divmod(abs(ticks), 10**decimals)
    text = f"{whole}.{rest:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
    return f"{'-' if ticks < 0 else ''}PT{text}S"


def _format_timestamp_with_offset(value: TimestampWithOffset) -> str:
    """Format a local time and its offset."""
    minutes = int(value.offset_minutes)
    hours, rest = divmod(abs(minutes), 60)
    local = value.timestamp + np.timedelta64(minutes, "m")
    return f"{complete_year(str(local))}{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def format_json_line(names: Sequence[str], row: Sequence[Any], ascii_only: bool = False) -> str:
    """Format a row as a JSON object on one line."""
    return format_json(dict(zip(names, map(to_json_value, row), strict=True)), ascii_only)


def format_json(value: Any, ascii_only: bool = False) -> str:
    """Format a value from `to_json_value` on one line."""
    return _JSON_ENCODERS[ascii_only](value)


def format_text(value: Any) -> str | None:
    """Format a value as plain text: strings unchanged, nested values as JSON, None for null."""
    converted = to_json_value(value)
    if converted is None or isinstance(converted, str):
        return converted
    return repr(converted) if type(converted) in (int, float) else format_json(converted)


def format_csv_line(cells: Sequence[str | None]) -> str:
    """Format cells as a line of CSV (RFC 4180) without line end. Null is empty, empty text is `""`.

    >>> format_csv_line(["a", None, "", "b, c"])
    'a,,"","b, c"'
    """
    return ",".join(map(_quote_cell, cells))


def _quote_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    if not cell or not _QUOTED_CHARACTERS.isdisjoint(cell) or cell != cell.strip():
        return '"' + cell.replace('"', '""') + '"'
    return cell
