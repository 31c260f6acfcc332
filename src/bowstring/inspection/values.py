"""Values as others write them: JSON lines, CSV and the cells of a table («Data Types»).

docs/command-line.md documents the forms. They follow the Python value that `to_pylist` gives, not the type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.canonical.timestamp_with_offset import OffsetMoment
from bowstring.layouts import gather
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context

_ROWS_AT_ONCE, _CELLS_AT_ONCE, _BYTES_AT_ONCE = 1024, 1 << 16, 4 << 20
_LINES_TOGETHER, _CHARACTERS_TOGETHER = 1000, 1 << 20
_TICKS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_MUST_BE_QUOTED = frozenset('",\r\n')
_AS_THEY_ARE = frozenset((NoneType, bool, int, str))
_ENCODE = {
    ascii_only: json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, separators=(", ", ": ")).encode
    for ascii_only in (False, True)
}


def rows_of(batch: RecordBatch, where: str = "") -> Iterator[tuple[Any, ...]]:
    """The rows as tuples of Python values, as many spelled out at a time as take little memory; duplicate names do no
    harm.

    Raises `InvalidDataError` or `DataTypeError` naming `where`, the row from which it counts and the column, and what
    `check_rows` raises.
    """
    check_rows(batch, where)
    at_once = _rows_at_once(batch)
    for start in range(0, batch.num_rows, at_once):
        part = batch.slice(start, at_once)
        if part.num_columns == 0:
            yield from (() for _ in range(part.num_rows))
        else:
            from_row = f"from row {start} on, " if start else ""
            columns = []
            for field, column in zip(part.schema, part.columns, strict=True):
                with error_context(f"{where}{from_row}column {field.name!r}"):
                    columns.append(column.to_pylist())
            yield from zip(*columns, strict=True)


def _rows_at_once(batch: RecordBatch) -> int:
    held_bytes = max(1, sum(map(_own_bytes, batch.columns)))
    few = min(_CELLS_AT_ONCE // max(1, batch.num_columns), _BYTES_AT_ONCE * batch.num_rows // held_bytes)
    return max(1, min(few, _ROWS_AT_ONCE))


def _own_bytes(array: Array) -> int:
    """The bytes of all buffers of an array and its children; dictionaries are spelled out by the value."""
    return sum(b.size for b in array.buffers if b is not None) + sum(map(_own_bytes, array.children))


def together(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines with their ends in UTF-8, some in one piece: no more than are soon there."""
    held: list[str] = []
    characters = 0
    for line in lines:
        held.append(line)
        characters += len(line)
        if len(held) == _LINES_TOGETHER or characters >= _CHARACTERS_TOGETHER:
            yield "\n".join((*held, "")).encode()
            held, characters = [], 0
    if held:
        yield "\n".join((*held, "")).encode()


def check_rows(batch: RecordBatch, where: str = "") -> None:
    """Raise `LimitError` naming `where` for many more rows than columns hold bytes: nobody waits for all of them."""
    if batch.num_rows > gather.MAX_VALUES:
        with error_context(f"{where}{batch.num_rows} rows"):
            gather.check_values(batch.num_rows, 8 * sum(map(gather.total_buffer_size, batch.columns)))


def json_value(value: Any) -> Any:
    r"""A Python value of an array as what the module `json` takes.

    >>> from decimal import Decimal
    >>> json_value([float("nan"), Decimal("1.50"), b"\x00\xff", {"a": None}])
    ['NaN', '1.50', '00ff', {'a': None}]
    """
    if type(value) in _AS_THEY_ARE or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, OffsetMoment):
        return _moment(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value // timedelta(microseconds=1), 6)
    if isinstance(value, np.timedelta64):
        return _duration(int(value.astype(np.int64)), _TICKS.get(np.datetime_data(value.dtype)[0], 0))
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, dict):
        return {str(key): json_value(held) for key, held in value.items()}
    names = getattr(value, "_fields", None)  # a named tuple, such as an interval
    if names is not None:
        return {name: json_value(held) for name, held in zip(names, value, strict=True)}
    if isinstance(value, Sequence):
        return [json_value(held) for held in value]
    return str(value)  # a UUID, and what extension types of others decode to


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _duration(ticks: int, decimals: int) -> str:
    """A duration as ISO 8601 writes it, in seconds: exact."""
    whole, rest = divmod(abs(ticks), 10**decimals)
    text = f"{whole}.{rest:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
    return f"{'-' if ticks < 0 else ''}PT{text}S"


def _moment(value: OffsetMoment) -> str:
    """The local time, and its offset."""
    minutes = int(value.offset_minutes)
    hours, rest = divmod(abs(minutes), 60)
    local = value.timestamp + np.timedelta64(minutes, "m")
    return f"{local}{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def json_line(names: Sequence[str], row: Sequence[Any], ascii_only: bool = False) -> str:
    """A row as a JSON object without line ends."""
    return as_json(dict(zip(names, map(json_value, row), strict=True)), ascii_only)


def as_json(value: Any, ascii_only: bool = False) -> str:
    """What `json_value` gave, on one line."""
    return _ENCODE[ascii_only](value)


def text_of(value: Any) -> str | None:
    """A value as plain text: strings as they are, nested values as JSON, None for null."""
    plain = json_value(value)
    if plain is None or isinstance(plain, str):
        return plain
    return repr(plain) if type(plain) in (int, float) else as_json(plain)


def csv_line(cells: Sequence[str | None]) -> str:
    """Cells as a line of CSV (RFC 4180) without its end: nothing for null, two quotation marks for no letters.

    >>> csv_line(["a", None, "", "b, c"])
    'a,,"","b, c"'
    """
    return ",".join(map(_quoted, cells))


def _quoted(cell: str | None) -> str:
    if cell is None:
        return ""
    if not cell or not _MUST_BE_QUOTED.isdisjoint(cell) or cell != cell.strip():
        return '"' + cell.replace('"', '""') + '"'
    return cell
