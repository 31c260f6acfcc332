"""«Struct Layout»: validity, and a child array of the same length for each field.

>>> import bowstring as bs
>>> people = bs.struct({"name": bs.string(), "age": bs.int32()})
>>> array = bs.array([{"name": "joe", "age": 1}, {"age": 2}, None, {"name": "mark", "age": 4}], people)
>>> array.null_count, array.children[0].null_count
(1, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any

from bowstring.datatypes.types import Struct
from bowstring.errors import InvalidDataError, TypeMismatchError, prefix_errors
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    Indices,
    Layout,
    Values,
    check_expanded_containers,
    join_reprs,
    pack_validity,
    replace_none,
    set_nulls_to_none,
    short_repr,
)
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import identity_keys_with_nulls
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.memory.bitmap import Mask


def columns_to_rows(names: Sequence[str], columns: Sequence[list[Any]], length: int) -> list[dict[str, Any]]:
    """Convert columns with distinct names to `length` dictionaries.

    Raises `InvalidDataError` if a column has another length.
    """
    for name, column in zip(names, columns, strict=True):
        if len(column) != length:
            raise InvalidDataError(f"column {name!r} has {len(column)} values, not {length}")
    if not names:
        return [{} for _ in range(length)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_list_of_pairs(value: Any) -> bool:
    """Whether a value is a list of names and values, which stands for a dictionary."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value)


class StructLayout(InterleavableLayout):
    """Children of the same length, with a validity bitmap."""

    __slots__ = ("names",)

    def __init__(self, type: Struct, children: Sequence[Layout]) -> None:
        super().__init__(type, (VALIDITY,), children)
        self.names = [f.name for f in type.fields]

    def columns(self, array: ArrayData) -> tuple[ArrayData, ...]:
        """Return the children, limited to the slots of the array. Raises `InvalidDataError` if one is too short."""
        self.check(array)
        return tuple(child.slice(array.offset, array.length) for child in array.children)

    def create_array(self, columns: Sequence[ArrayData], length: int, mask: Mask | None = None) -> ArrayData:
        """Create an array of `length` structs from the arrays of the fields."""
        return ArrayData(self, length, (pack_validity(mask),), tuple(columns))

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        rows, mask = replace_none(values, dict.fromkeys(self.names))
        arrays = []
        for name, child, column in zip(self.names, self.children, self._split_into_columns(rows), strict=True):
            with prefix_errors(f"field {name!r}"):
                arrays.append(child.from_pylist(column))
        return self.create_array(arrays, len(values), mask)

    def _split_into_columns(self, values: Sequence[Any]) -> list[list[Any]]:
        """Return the fields' values, None if absent. Raises `TypeMismatchError` naming the first value that does not
        fit.
        """
        names, name_set = self.names, set(self.names)
        # Rows are usually dictionaries that all have the same keys, which `itemgetter` reads without Python code. If
        # the number of keys is right but a name is missing, another one is too many.
        if {dict}.issuperset(map(type, values)):
            if len(name_set) == len(names) and sum(map(len, values)) == len(names) * len(values):
                with suppress(KeyError):
                    return [list(map(itemgetter(name), values)) for name in names]
            if name_set.issuperset(chain.from_iterable(values)):
                return [[value.get(name) for value in values] for name in names]
        values = [dict(value) if _is_list_of_pairs(value) else value for value in values]
        for index, value in enumerate(values):
            if isinstance(value, Mapping):
                if not name_set.issuperset(value):
                    raise TypeMismatchError(
                        f"value {index} has {join_reprs(set(value) - name_set)}, which {self.type} does not have"
                    )
            elif not isinstance(value, tuple) or len(value) != len(names):
                raise TypeMismatchError(f"value {index}: {short_repr(value)} cannot be converted to {self.type}")
        return [[v.get(name) if isinstance(v, Mapping) else v[at] for v in values] for at, name in enumerate(names)]

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        if array.is_null_at(index):
            return None
        self.check(array)
        slot = array.offset + index
        values = [child.layout.value_at(child, slot, max_elements) for child in array.children]
        # Arrow allows fields of the same name; a dictionary would have only the last of them.
        is_distinct = len(set(self.names)) == len(self.names)
        return dict(zip(self.names, values, strict=True)) if is_distinct else tuple(values)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        check_expanded_containers([array], array.length)
        columns = [column.to_pylist() for column in self.columns(array)]
        if len(set(self.names)) < len(self.names):
            return set_nulls_to_none(list(zip(*columns, strict=True)), array.validity_mask())
        return set_nulls_to_none(columns_to_rows(self.names, columns, array.length), array.validity_mask())

    def compact(self, array: ArrayData) -> ArrayData:
        columns = tuple(column.compact() for column in self.columns(array))
        return ArrayData(self, array.length, (array.compact_validity(),), columns, null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        columns = tuple(column.layout.take(column, indices) for column in self.columns(array))
        return ArrayData(self, len(indices), (array.take_validity(indices),), columns)

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        for array in slots.arrays:
            self.check(array)
        columns = []
        for children in zip(*(array.children for array in slots.arrays), strict=True):
            column = SlotSelection(children, slots.array_indices, slots.physical_indices).interleave()
            if column is None:
                return None
            columns.append(column)
        return ArrayData(self, len(slots), (slots.gather_validity(),), tuple(columns))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        columns = zip(*(self.columns(array) for array in arrays), strict=True)
        children = tuple(child.concat(parts) for child, parts in zip(self.children, columns, strict=True))
        return ArrayData(self, sum(array.length for array in arrays), (concat_validity(arrays),), children)

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return all(arrays_equal(a, b, nans_equal) for a, b in zip(self.columns(left), self.columns(right), strict=True))

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return tuple(chain.from_iterable(map(identity_keys_with_nulls, self.columns(array))))

    def check(self, array: ArrayData) -> None:
        needed = array.offset + array.length
        for name, child in zip(self.names, array.children, strict=True):
            if child.length < needed:
                raise InvalidDataError(f"child {name!r} has {child.length} values, the struct has {needed}")
