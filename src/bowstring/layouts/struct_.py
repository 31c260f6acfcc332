"""«Struct Layout»: validity, and a child array of the same length for each field.

>>> import bowstring as bs
>>> people = bs.struct({"name": bs.string(), "age": bs.int32()})
>>> array = bs.array([{"name": "joe", "age": 1}, {"age": 2}, None, {"name": "mark", "age": 4}], people)
>>> array.null_count, array.children[0].null_count
(1, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import (
    VALIDITY,
    Indices,
    Layout,
    Values,
    compact_validity,
    decode_with_nulls,
    error_context,
    fill_nulls,
    is_null_at,
    join_reprs,
    pack_validity,
    short_repr,
    take_validity,
)
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import identity_keys
from bowstring.layouts.interleave import SlotSelection

if TYPE_CHECKING:
    from bowstring.datatypes.types import Struct
    from bowstring.memory.bitmap import Mask


_BLOCK_ROWS = 1 << 10


def columns_to_rows(names: Sequence[str], columns: Sequence[list[Any]], length: int) -> list[dict[str, Any]]:
    """So many rows as dictionaries, out of columns; no two names are the same.

    Raises `InvalidDataError` where a column is of another length.
    """
    for name, column in zip(names, columns, strict=True):
        if len(column) != length:
            raise InvalidDataError(f"column {name!r} has {len(column)} values, not {length}")
    match list(names):
        case [a]:
            return [{a: u} for u in columns[0]]
        case [a, b]:
            return [{a: u, b: v} for u, v in zip(*columns, strict=True)]
        case [a, b, c]:
            return [{a: u, b: v, c: w} for u, v, w in zip(*columns, strict=True)]
        case [a, b, c, d]:
            return [{a: u, b: v, c: w, d: x} for u, v, w, x in zip(*columns, strict=True)]
    found: list[dict[str, Any]] = []
    blank = dict.fromkeys(names)
    for first in range(0, length, _BLOCK_ROWS):
        rows = list(map(dict.copy, repeat(blank, min(_BLOCK_ROWS, length - first))))
        _fill(rows, names, [column[first : first + _BLOCK_ROWS] for column in columns])
        found += rows
    return found


def _fill(rows: list[dict[str, Any]], names: Sequence[str], columns: Sequence[list[Any]]) -> None:
    """Put the columns into the rows, four at a time: every walk over the rows costs what two values do."""
    for at in range(0, len(names), 4):
        match list(names[at : at + 4]):
            case [a, b, c, d]:
                for row, u, v, w, x in zip(rows, *columns[at : at + 4], strict=True):
                    row[a] = u
                    row[b] = v
                    row[c] = w
                    row[d] = x
            case last:
                for name, column in zip(last, columns[at:], strict=True):
                    for row, value in zip(rows, column, strict=True):
                        row[name] = value


def rows_to_columns(names: Sequence[str], values: Sequence[Any]) -> list[list[Any]] | None:
    """The columns of dictionaries that have just these names, which are distinct; None where other values are among
    them.
    """
    if len(set(names)) < len(names):
        return None
    columns: list[list[Any]] = [[] for _ in names]
    pickers = list(zip(columns, map(itemgetter, names), strict=True))
    for first in range(0, len(values), _BLOCK_ROWS):
        rows = values[first : first + _BLOCK_ROWS]
        if list(map(type, rows)).count(dict) < len(rows) or sum(map(len, rows)) != len(names) * len(rows):
            return None
        try:
            for column, pick in pickers:
                column.extend(map(pick, rows))
        except KeyError:
            return None
    return columns


class StructLayout(Layout):
    """Children side by side, under a validity bitmap of their own."""

    __slots__ = ("names",)

    HAS_CHEAP_SLICES: ClassVar[bool] = True

    def __init__(self, type: Struct, children: Sequence[Layout]) -> None:
        super().__init__(type, (VALIDITY,), children)
        self.names = [f.name for f in type.fields]

    def columns(self, array: Array) -> tuple[Array, ...]:
        """The children, cut to the slots of the array; raises `InvalidDataError` where one is too short for that."""
        self.check(array)
        return tuple(child.slice(array.offset, array.length) for child in array.children)

    def of(self, columns: Sequence[Array], length: int, mask: Mask | None = None) -> Array:
        """An array of so many structs over their fields' arrays."""
        return Array(self, length, (pack_validity(mask),), tuple(columns))

    def build(self, values: Sequence[Any]) -> Array:
        mask, columns = None, rows_to_columns(self.names, values)
        if columns is None:
            values, mask = fill_nulls(values, dict.fromkeys(self.names))
            columns = rows_to_columns(self.names, values) or self._columns_of(values)
        arrays = []
        for name, child, column in zip(self.names, self.children, columns, strict=True):
            with error_context(f"field {name!r}"):
                arrays.append(child.build(column))
        return self.of(arrays, len(values), mask)

    def _columns_of(self, values: Sequence[Any]) -> list[list[Any]]:
        """The fields' values, None for one that is absent; raises `DataTypeError` naming the first value that does not
        fit.
        """
        names, known = self.names, set(self.names)
        if {dict}.issuperset(map(type, values)) and known.issuperset(chain.from_iterable(values)):
            return [[value.get(name) for value in values] for name in names]
        for index, value in enumerate(values):
            if isinstance(value, Mapping):
                if not known.issuperset(value):
                    raise DataTypeError(f"value {index} has {join_reprs(set(value) - known)}: no fields of {self.type}")
            elif not isinstance(value, tuple) or len(value) != len(names):
                raise DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to {self.type}")
        return [[v.get(name) if isinstance(v, Mapping) else v[at] for v in values] for at, name in enumerate(names)]

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        self.check(array)
        values = [child.layout.value_at(child, array.offset + index) for child in array.children]
        is_distinct = len(set(self.names)) == len(self.names)
        return dict(zip(self.names, values, strict=True)) if is_distinct else tuple(values)

    def to_pylist(self, array: Array) -> list[Any]:
        return decode_with_nulls(array, self._structs)

    def _structs(self, array: Array) -> list[Any]:
        columns = [column.to_pylist() for column in self.columns(array)]
        if len(set(self.names)) < len(self.names):
            return list(zip(*columns, strict=True))
        return columns_to_rows(self.names, columns, array.length)

    def compact(self, array: Array) -> Array:
        columns = tuple(column.compact() for column in self.columns(array))
        return Array(self, array.length, (compact_validity(array),), columns, null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        columns = tuple(column.layout.take(column, indices) for column in self.columns(array))
        return Array(self, len(indices), (take_validity(array, indices),), columns)

    def interleave(self, slots: SlotSelection) -> Array | None:
        for array in slots.arrays:
            self.check(array)
        columns = []
        for index, layout in enumerate(self.children):
            arrays = [array.children[index] for array in slots.arrays]
            column = layout.interleave(SlotSelection(arrays, slots.array_indices, slots.buffer_slots))
            if column is None:
                return None
            columns.append(column)
        return Array(self, len(slots), (slots.validity(),), tuple(columns))

    def concat(self, arrays: Sequence[Array]) -> Array:
        columns = zip(*(self.columns(array) for array in arrays), strict=True)
        joined = tuple(child.concat(parts) for child, parts in zip(self.children, columns, strict=True))
        return Array(self, sum(array.length for array in arrays), (concat_validity(arrays),), joined)

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return all(arrays_equal(a, b, nans_equal) for a, b in zip(self.columns(left), self.columns(right), strict=True))

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        return tuple(chain.from_iterable(map(identity_keys, self.columns(array))))

    def check(self, array: Array) -> None:
        needed = array.offset + array.length
        for name, child in zip(self.names, array.children, strict=True):
            if child.length < needed:
                raise InvalidDataError(f"child {name!r} has {child.length} values, the struct has {needed}")
