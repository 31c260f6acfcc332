"""«Dictionary-encoded Layout»: validity and indices, and a dictionary beside them.

>>> import bowstring as bs
>>> array = bs.array(["foo", "bar", "foo", "bar", None, "baz"], bs.dictionary(bs.int32(), bs.string()))
>>> array.values(1)[[0, 1, 2, 3, 5]].tolist()
[0, 1, 0, 1, 2]
>>> array.dictionary.to_pylist()
['foo', 'bar', 'baz']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import DataTypeError, InvalidDataError, WouldCopyError
from bowstring.layouts.array import Array
from bowstring.layouts.array_batcher import batch_arrays
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    decode_with_nulls,
    first_true,
    is_null_at,
    short_repr,
    to_buffer,
)
from bowstring.layouts.concatenation import array_lengths, concat_validity, concat_values, distinct_dictionaries
from bowstring.layouts.equality import arrays_equal, has_prefix
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import Dictionary
    from bowstring.layouts.interleave import SlotSelection


def hashable_key(value: Any) -> Any:
    """A hashable stand-in that is equal for values that are stored alike, and only for them."""
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, dict):
        return tuple((key, hashable_key(item)) for key, item in value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(hashable_key(item) for item in value)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else (type(value), value)


class DictionaryLayout(Layout):
    """Indices, which lie as integers do, into a dictionary of any layout."""

    __slots__ = ("_dictionary", "index_layout")

    def __init__(self, type: Dictionary, indices: PrimitiveLayout, values: Layout) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(Role.DATA, indices.dtype)))
        self.index_layout = indices
        self._dictionary = values

    @property
    def dictionary(self) -> Layout:
        return self._dictionary

    def of(self, indices: Array, dictionary: Array) -> Array:
        """An array of the type's indices, with a dictionary."""
        return Array(self, indices.length, indices.buffers, (), dictionary, indices._null_count, indices.offset)

    def indices(self, array: Array) -> Indices:
        """The indices as 64-bit integers, 0 for null slots, each checked to lie within the dictionary."""
        if array.dictionary is None:
            raise InvalidDataError(f"the array of {self.type} has no dictionary")
        raw, mask = array.values(1), array.mask()
        if mask is not None:
            raw = np.where(mask, raw, raw.dtype.type(0))
        count = array.dictionary.length
        bad = (raw < 0) | (raw >= count) if mask is None else mask & ((raw < 0) | (raw >= count))
        if bad.any():
            at = first_true(bad)
            raise InvalidDataError(f"indices[{at}] = {raw[at]} is not within the dictionary of {count} values")
        return raw.astype(np.int64)

    def concat_indices(self, arrays: Sequence[Array]) -> tuple[Indices, Buffer | None]:
        """The `keys` of arrays end to end, and their validity bitmap."""
        arrays = batch_arrays(arrays)
        raw, validity = concat_values(arrays, 1), concat_validity(arrays)
        words, numbers = distinct_dictionaries(arrays)
        counts = array_lengths(words)[numbers]
        bad = (raw < 0) | (raw >= np.repeat(counts, array_lengths(arrays)))
        if validity is not None:
            mask = bitmap.unpack(validity, 0, len(raw))
            raw[~mask] = 0
            bad &= mask
        if bad.any():
            for array in arrays:
                self.indices(array)  # raises
        return raw.astype(np.int64), validity

    def compact_dictionary(self, array: Array) -> Array:
        """The array with just those words in its dictionary that its slots stand for, in their order; the array itself
        where these are all.
        """
        keys, mask, words = self.indices(array), array.mask(), array.dictionary
        assert words is not None
        used, places = _distinct(keys if mask is None else keys[mask], words.length)
        if len(used) == words.length:
            return array
        if mask is not None:
            keys[mask] = places
        indices = (places if mask is None else np.where(mask, keys, 0)).astype(self.index_layout.dtype)
        return self.of(self.index_layout.of(indices, mask), words.take(used))

    def valid_mask(self, array: Array) -> Mask | None:
        return self._mask(array, self._dictionary.valid_mask)

    def identity_mask(self, array: Array) -> Mask | None:
        return self._mask(array, self._dictionary.identity_mask)

    def _mask(self, array: Array, mask_of: Callable[[Array], Mask | None]) -> Mask | None:
        """What `mask_of` says of the values that the slots stand for; False for null slots."""
        mask, dictionary = array.mask(), array.dictionary
        words = None if dictionary is None or array.length == array.null_count else mask_of(dictionary)
        if words is None:
            return mask
        held = words[self.indices(array)]
        return held if mask is None else held & mask

    def build(self, values: Sequence[Any]) -> Array:
        numbers: dict[Any, int] = {}
        distinct: list[Any] = []
        keys: list[int | None] = []
        for value in values:
            if value is None:
                keys.append(None)
                continue
            key = value if type(value) is str else hashable_key(value)
            try:
                number = numbers.setdefault(key, len(distinct))
            except TypeError:
                raise DataTypeError(f"{short_repr(value)} cannot be hashed: no value of {self.type}") from None
            if number == len(distinct):
                distinct.append(value)
            keys.append(number)
        if distinct and len(distinct) - 1 > np.iinfo(self.index_layout.dtype).max:
            raise DataTypeError(f"{len(distinct)} distinct values are too many for the indices of {self.type}")
        return self.of(self.index_layout.build(keys), self._dictionary.build(distinct))

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        indices, dictionary = array.buffers[1], array.dictionary
        if indices is not None and dictionary is not None:
            key = indices.element(self.index_layout.dtype, array.offset + index)
            if 0 <= key < dictionary.length:
                return dictionary.layout.value_at(dictionary, key)
        return super().value_at(array, index)  # raises

    def to_pylist(self, array: Array) -> list[Any]:
        return decode_with_nulls(array, self._values)

    def _values(self, array: Array) -> list[Any]:
        keys = self.indices(array)
        assert array.dictionary is not None
        if array.null_count == array.length:
            return [None] * array.length
        dictionary = array.dictionary
        if array.length < dictionary.length:
            used, keys = np.unique(keys, return_inverse=True)
            dictionary = dictionary.take(used)
        words = dictionary.to_pylist()
        return [words[key] for key in keys.tolist()]

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        if not allow_copy:
            raise WouldCopyError(f"{self.type} has to be decoded for NumPy: allow the copy with zero_copy_only=False")
        dictionary = array.dictionary
        if array.null_count == 0 and dictionary is not None and dictionary.null_count == 0:
            return dictionary.to_numpy(zero_copy_only=False)[self.indices(array)]
        decoded = decode_dictionary(array)
        return decoded.layout.to_numpy(decoded, True)

    def compact(self, array: Array) -> Array:
        own = self.index_layout.compact(array.with_layout(self.index_layout))
        return Array(self, own.length, own.buffers, (), array.dictionary, own._null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        own = self.index_layout.take(array.with_layout(self.index_layout), indices)
        return Array(self, own.length, own.buffers, (), array.dictionary, own._null_count)

    def interleave(self, slots: SlotSelection) -> Array | None:
        distinct = {id(array.dictionary): array.dictionary for array in slots.arrays}
        dictionary = max(distinct.values(), key=lambda values: -1 if values is None else values.length)
        if dictionary is None or not all(values and has_prefix(dictionary, values) for values in distinct.values()):
            return None
        return Array(self, len(slots), (slots.validity(), to_buffer(slots.gather_elements(1))), (), dictionary)

    def concat(self, arrays: Sequence[Array]) -> Array:
        """Of dictionaries of which one begins as the other does, one after the other, the longer one is taken; others
        are put end to end.

        Raises `DataTypeError` where the joined dictionary is too large for the type's indices.
        """
        dictionaries: list[Array] = []
        moved: list[Indices] = []
        base = length = 0
        for array in arrays:
            keys, own = self.indices(array), array.dictionary
            assert own is not None
            last = dictionaries[-1] if dictionaries else None
            if last is not None and last.length < own.length and has_prefix(own, last):
                dictionaries[-1], length = own, base + own.length
            elif last is None or not has_prefix(last, own):
                dictionaries.append(own)
                base, length = length, length + own.length
            moved.append(keys + base)
        joined_keys = np.concatenate(moved)
        if joined_keys.size and joined_keys.max() > np.iinfo(self.index_layout.dtype).max:
            raise DataTypeError(f"a dictionary of {length} values is too large for the indices of {self.type}")
        data = joined_keys.astype(self.index_layout.dtype)
        joined = dictionaries[0] if len(dictionaries) == 1 else self._dictionary.concat(dictionaries)
        made = self.index_layout.of(data)
        return Array(self, len(data), (concat_validity(arrays), made.buffers[1]), (), joined)

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        my_keys, their_keys = self.indices(left), self.indices(right)
        assert left.dictionary is not None
        assert right.dictionary is not None
        mine, my_keys = _distinct(my_keys, left.dictionary.length)
        theirs, their_keys = _distinct(their_keys, right.dictionary.length)
        pairs, _ = _distinct(my_keys * len(theirs) + their_keys, len(mine) * len(theirs))
        my_words = left.dictionary.take(mine[pairs // len(theirs)])
        return arrays_equal(my_words, right.dictionary.take(theirs[pairs % len(theirs)]), nans_equal)

    def sort_keys(self, array: Array) -> tuple[Values, ...] | None:
        keys, dictionary = self._words(array)
        found = dictionary.layout.sort_keys(dictionary)
        return found and tuple(part[keys] for part in found)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        keys, dictionary = self._words(array)
        return tuple(part[keys] for part in dictionary.layout.identity_keys(dictionary))

    def _words(self, array: Array) -> tuple[Indices, Array]:
        """The keys into those words of the dictionary that are used, and these."""
        assert array.dictionary is not None
        used, keys = _distinct(self.indices(array), array.dictionary.length)
        return keys, array.dictionary.take(used)

    def check(self, array: Array) -> None:
        if array.dictionary is None:
            raise InvalidDataError(f"the array of {self.type} has no dictionary")

    def check_full(self, array: Array) -> None:
        self.indices(array)


def _distinct(numbers: Indices, bound: int) -> tuple[Indices, Indices]:
    """The distinct numbers, rising, all of them from 0 to below `bound`, and where among these each number is."""
    if bound > 4 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    present = np.zeros(bound, np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def decode_dictionary(array: Array) -> Array:
    """A dictionary-encoded array as plain values, copied; an array of another layout as it is."""
    layout = array.layout.storage
    if not isinstance(layout, DictionaryLayout):
        return array
    keys, dictionary, mask = layout.indices(array), array.dictionary, array.mask()
    assert dictionary is not None
    if mask is None:
        return dictionary.take(keys)
    with_null = layout.dictionary.concat([dictionary, nulls(layout.dictionary, 1)])
    return with_null.take(np.where(mask, keys, dictionary.length))


def nulls(layout: Layout, length: int) -> Array:
    """An array of `length` nulls."""
    return layout.build([None] * length)
