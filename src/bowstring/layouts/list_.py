"""«List Layout»: validity, offsets, and a child array that the offsets cut up. Maps are lists of key-value structs.

>>> import bowstring as bs
>>> array = bs.array([[12, -7, 25], None, [0, -127, 127, 50], []], bs.list_(bs.int8()))
>>> array.values(1).tolist()
[0, 3, 3, 7, 7]
>>> array.children[0].to_pylist()
[12, -7, 25, 0, -127, 127, 50]
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.datatypes.types import Map
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.array_batcher import batch_arrays
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    compact_validity,
    decode_with_nulls,
    fill_nulls,
    is_null_at,
    pack_validity,
    scatter_to_list,
    short_repr,
    take_validity,
)
from bowstring.layouts.binary import (
    check_offset_bounds,
    check_offsets,
    interleave_ranges,
    offsets_at,
    offsets_equal,
    offsets_from_lengths,
    pack_offsets,
)
from bowstring.layouts.concatenation import array_lengths, child_arrays, concat_lengths, concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import list_identity
from bowstring.layouts.gather import take_ranges, take_windows
from bowstring.layouts.interleave import SlotSelection
from bowstring.layouts.python_conversion import (
    FEW_VALUES,
    drop_nulls,
    fill_few_nulls,
    iter_blocks,
    put_valid,
    value_lengths,
)
from bowstring.memory.buffer import Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.memory.bitmap import Mask


def flatten_lists(values: Sequence[Any], type: DataType) -> tuple[list[Any], Indices, Mask | None]:
    """Concatenate Python lists; return the elements, the lengths, and the mask of valid lists (None if all are valid).

    None has no elements. Raises `DataTypeError` naming the first value that is not a list.
    """
    mask = None
    if list(map(builtins.type, values)).count(list) < len(values):
        values, mask = fill_nulls(values, ())
        if not {list, tuple}.issuperset(map(builtins.type, values)):
            for index, value in enumerate(values):
                if isinstance(value, (str, bytes, bytearray, Mapping)) or not hasattr(value, "__len__"):
                    raise DataTypeError(f"value {index}: {short_repr(value)} cannot be converted to {type}")
    return list(chain.from_iterable(values)), np.fromiter(map(len, values), np.int64, len(values)), mask


def numbers_to_lists(
    elements: Array, starts: Indices, lengths: Values, mask: Mask | None = None
) -> list[list[Any] | None] | None:
    """Convert ranges of number or boolean elements to Python lists, with None where the mask is False.

    Returns None if the elements are of another type or contain nulls.
    """
    numbers = None if elements.null_count else elements.layout.numbers(elements)
    if numbers is None:
        return None
    values: list[list[Any] | None] = []
    for first in range(0, len(starts), _BLOCK_NUMBER_LISTS):
        block = slice(first, first + _BLOCK_NUMBER_LISTS)
        block_starts, block_lengths = starts[block], lengths[block]
        if mask is None:
            lists, order = _number_lists(numbers, block_starts, block_lengths)
        else:
            valid = mask[block].nonzero()[0]
            lists, order = _number_lists(numbers, block_starts[valid], block_lengths[valid])
            order = valid[order]
        values += scatter_to_list(lists, order, len(block_starts))
    return values


def _number_lists(numbers: Values, starts: Indices, lengths: Values) -> tuple[list[list[Any]], Indices]:
    """Return the lists, shorter ones first, and the index of each.

    One NumPy call converts all lists of the same length, as the rows of an array. Long lists, and lengths with few
    lists, are converted one by one.
    """
    capped_lengths = np.minimum(lengths, _LONG_LIST).astype(np.uint8)
    order, counts = capped_lengths.argsort(kind="stable"), np.bincount(capped_lengths)
    lists: list[list[Any]] = []
    for length in counts.nonzero()[0].tolist():
        group = order[len(lists) : len(lists) + counts[length]]
        if length == _LONG_LIST or len(group) < _FEW_LISTS:
            ranges = zip(starts[group].tolist(), (starts[group] + lengths[group]).tolist(), strict=True)
            lists += [numbers[start:stop].tolist() for start, stop in ranges]
        else:
            lists += take_windows(numbers, starts[group], length).tolist()
    return lists, order


_BLOCK_LISTS = 1 << 11
_BLOCK_NUMBER_LISTS = 1 << 13
_LONG_LIST = 128
_FEW_LISTS = 8


_BLOCK_PYTHON_LISTS = 1 << 12


class ListLayout(Layout):
    """Lists of elements of one child, with 32- or 64-bit offsets."""

    __slots__ = ("offset_type",)

    HAS_CHEAP_SLICES: ClassVar[bool] = True
    CHILD_NAMES = ("item",)

    def __init__(self, type: DataType, offset_bits: int, values: Layout) -> None:
        self.offset_type = np.dtype(f"i{offset_bits // 8}")
        super().__init__(type, (VALIDITY, BufferSpec(Role.OFFSETS, self.offset_type, extra=1)), (values,))

    def offsets(self, array: Array) -> Values:
        """Return the offsets, checked against the length of the child."""
        return check_offsets(array, array.children[0].length, "the child's length of")

    def list_ranges(self, array: Array) -> tuple[Indices, Indices]:
        """Return the starts of the lists in the child, and their lengths."""
        offsets = self.offsets(array).astype(np.int64)
        return offsets[:-1], np.diff(offsets)

    def elements(self, array: Array, offsets: Values) -> Array:
        """Return the child's elements from the first to the last offset."""
        return array.children[0].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))

    def of(self, lengths: Values, child: Array, validity: Buffer | None) -> Array:
        """Create an array of consecutive lists of these lengths in the child."""
        offsets = offsets_from_lengths(lengths, self.offset_type, self.type)
        return Array(self, len(lengths), (validity, Buffer.of(offsets)), (child,))

    def _elements_of(self, lists: list[Any]) -> Array | None:
        """Concatenate the elements of Python lists with `build_fast`; None if that is not possible."""
        if list(map(builtins.type, lists)).count(list) < len(lists):
            return None
        return self.children[0].build_fast(list(chain.from_iterable(lists)))

    def _of_few(self, values: Sequence[Any]) -> Array | None:
        """Create an array of a few lists; None if there are other values."""
        values, validity = fill_few_nulls(values, [])
        child = self._elements_of(list(values))
        if child is None or child.length > np.iinfo(self.offset_type).max:
            return None
        return Array(self, len(values), (validity, Buffer.of(pack_offsets(values, self.offset_type))), (child,))

    def build_fast(self, values: Sequence[Any]) -> Array | None:
        if len(values) <= FEW_VALUES and (few := self._of_few(values)) is not None:
            return few
        parts: list[Array] = []
        lengths, mask = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
        for selection, block in iter_blocks(values, _BLOCK_PYTHON_LISTS):
            lists, valid = drop_nulls(block)
            part = self._elements_of(lists)
            if part is None:
                return None
            parts.append(part)
            put_valid(value_lengths(lists), valid, lengths[selection])
            if valid is not None:
                mask[selection] = valid
        if not parts:
            return None
        child = parts[0] if len(parts) == 1 else self.children[0].concat(parts)
        return self.of(lengths, child, pack_validity(mask))

    def build(self, values: Sequence[Any]) -> Array:
        plain = self.build_fast(values)
        if plain is not None:
            return plain
        elements, lengths, mask = flatten_lists(values, self.type)
        return self.of(lengths, self.children[0].build(elements), pack_validity(mask))

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        start, stop = offsets_at(array, index)
        if not 0 <= start <= stop <= array.children[0].length:
            return super().value_at(array, index)  # raises
        elements = array.children[0].slice(start, stop - start)
        try:
            return self._python_values(elements)
        except InvalidDataError:
            elements.validate(full=True)  # raises with the index in the list
            raise

    def to_pylist(self, array: Array) -> list[Any]:
        offsets = self.offsets(array)
        starts = offsets[:-1].astype(np.int64) - int(offsets[0])
        lists = numbers_to_lists(self.elements(array, offsets), starts, offsets[1:] - offsets[:-1], array.mask())
        return decode_with_nulls(array, self._lists) if lists is None else lists

    def _lists(self, array: Array) -> list[Any]:
        offsets = self.offsets(array)
        elements = self.elements(array, offsets)
        lists: list[Any] = []
        step = _BLOCK_LISTS if self.children[0].has_cheap_slices else max(array.length, 1)
        for first in range(0, array.length, step):
            block_offsets = offsets[first : first + step + 1]
            try:
                values = self._python_values(self.elements(array, block_offsets))
            except InvalidDataError:
                elements.validate(full=True)  # raises with the index in the whole array
                raise
            start = 0
            stops = (block_offsets[1:] - block_offsets[0]).tolist()
            lists += [values[start : (start := stop)] for stop in stops]
        return lists

    def _python_values(self, elements: Array) -> list[Any]:
        return elements.to_pylist()

    def compact(self, array: Array) -> Array:
        offsets = array.values(1) if array.length else self.offsets(array)
        first, count = int(offsets[0]), array.children[0].length
        if not 0 <= first <= int(offsets[-1]) <= count:
            self.offsets(array)
        offset_buffer = array.buffers[1]
        size = (array.length + 1) * self.offset_type.itemsize
        if first or offset_buffer is None or offset_buffer.size < size or not array.length:
            offset_buffer = Buffer.of(offsets - offsets[0])
        elif array.offset or offset_buffer.size > size:
            offset_buffer = offset_buffer.slice(array.offset * self.offset_type.itemsize, size)
        child = self.elements(array, offsets).compact()
        buffers = (compact_validity(array), offset_buffer)
        return Array(self, array.length, buffers, (child,), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        if len(indices) and (lists := self.interleave(SlotSelection.of(array, indices))) is not None:
            return lists
        offsets = self.offsets(array)
        starts = offsets[indices].astype(np.int64)
        lengths = offsets[indices + 1] - starts
        child = array.children[0]
        return self.of(lengths, take_ranges(child, starts, lengths), take_validity(array, indices))

    def interleave(self, slots: SlotSelection) -> Array | None:
        counts = [array.children[0].length for array in slots.arrays]
        starts, lengths = interleave_ranges(slots, counts, self.offsets)
        child = slots.take_child(0, starts, lengths)
        return None if child is None else self.of(lengths, child, slots.validity())

    def concat(self, arrays: Sequence[Array]) -> Array:
        arrays = batch_arrays(arrays)
        lengths, first, last = concat_lengths(arrays)
        children = child_arrays(arrays, 0)
        counts = array_lengths(children)
        if (first < 0).any() or (lengths < 0).any() or (last > counts).any():
            for array in arrays:
                self.offsets(array)  # raises
        if first.any() or (last < counts).any():
            spans = zip(children, first.tolist(), (last - first).tolist(), strict=True)
            children = [child.slice(start, count) for child, start, count in spans]
        return self.of(lengths, self.children[0].concat(children), concat_validity(arrays))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        left_offsets, right_offsets = self.offsets(left), self.offsets(right)
        if not offsets_equal(left_offsets, right_offsets):
            return False
        return arrays_equal(self.elements(left, left_offsets), self.elements(right, right_offsets), nans_equal)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        offsets = self.offsets(array)
        return (list_identity(self.elements(array, offsets), offsets.astype(np.int64) - offsets[0]),)

    def check(self, array: Array) -> None:
        check_offset_bounds(array, array.children[0].length, "the child's length of")

    def check_full(self, array: Array) -> None:
        self.offsets(array)


class MapLayout(ListLayout):
    """Lists of key-value pairs; in Python lists of pairs, built from such lists or from dictionaries."""

    __slots__ = ("_names",)

    CHILD_NAMES = ("entries",)
    CHECKS_CHILD_VALUES = True

    def __init__(self, type: Map, entries: Layout) -> None:
        super().__init__(type, 32, entries)
        self._names = (type.key_field.name, type.item_field.name)

    def _elements_of(self, lists: list[Any]) -> Array | None:
        types = {*map(builtins.type, lists)}
        if types == {dict}:
            keys, items = list(chain.from_iterable(lists)), list(chain.from_iterable(map(dict.values, lists)))
        elif types <= {list}:
            pairs = list(chain.from_iterable(lists))
            if list(map(builtins.type, pairs)).count(tuple) < len(pairs):
                return None
            try:
                keys, items = [key for key, _ in pairs], [item for _, item in pairs]
            except ValueError:  # not a pair
                return None
        else:
            return None
        entries = self.children[0]
        key, item = (child.build_fast(column) for child, column in zip(entries.children, (keys, items), strict=True))
        if key is None or item is None or key.null_count:
            return None
        return Array(entries, len(keys), (None,), (key, item))

    def build(self, values: Sequence[Any]) -> Array:
        plain = self.build_fast(values)
        if plain is not None:
            return plain
        filled, mask = fill_nulls(values, ())
        pairs, lengths, _ = flatten_lists([v.items() if isinstance(v, Mapping) else v for v in filled], self.type)
        for index, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or pair[0] is None:
                raise DataTypeError(
                    f"entry {index}: {short_repr(pair)} is not a pair of a key and a value of {self.type}"
                )
        entries = self.children[0]
        key, item = (child.build([pair[side] for pair in pairs]) for side, child in enumerate(entries.children))
        return self.of(lengths, Array(entries, len(pairs), (None,), (key, item)), pack_validity(mask))

    def _python_values(self, elements: Array) -> list[Any]:
        elements.layout.check(elements)
        keys, items = (child.slice(elements.offset, elements.length).to_pylist() for child in elements.children)
        return list(zip(keys, items, strict=True))

    def check_full(self, array: Array) -> None:
        mask = array.mask()
        array = array if mask is None else self.take(array, np.flatnonzero(mask))
        entries = self.elements(array, self.offsets(array))
        if entries.null_count:
            raise InvalidDataError(f"the map has {entries.null_count} null entries; entries must not be null")
        keys = entries.compact().children[0]
        if keys.null_count:
            raise InvalidDataError(f"the map has {keys.null_count} null keys; keys must not be null")
