"""«Dictionary-encoded Layout»: validity, indices and a dictionary.

>>> import bowstring as bs
>>> array = bs.array(["foo", "bar", "foo", "bar", None, "baz"], bs.dictionary(bs.int32(), bs.string()))
>>> array.buffer_values(1)[[0, 1, 2, 3, 5]].tolist()
[0, 1, 0, 1, 2]
>>> array.dictionary.to_pylist()
['foo', 'bar', 'baz']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import Dictionary
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    BufferRole,
    BufferSpec,
    Indices,
    Layout,
    Values,
    find_first_true,
    set_nulls_to_none,
    to_buffer,
)
from bowstring.layouts.concatenation import array_lengths, concat_buffer_values, concat_validity
from bowstring.layouts.equality import arrays_equal, has_prefix
from bowstring.layouts.expansion_limits import check_expanded_slots
from bowstring.layouts.factorize import encode_values, factorize_keys, identity_keys_with_nulls
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer


class DictionaryLayout(InterleavableLayout):
    """Integer indices into a dictionary of any layout."""

    __slots__ = ("_dictionary", "index_layout")

    def __init__(self, type: Dictionary, indices: PrimitiveLayout, values: Layout) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(BufferRole.DATA, indices.dtype)))
        self.index_layout = indices
        self._dictionary = values

    @property
    def dictionary(self) -> Layout:
        return self._dictionary

    def create_array(self, indices: ArrayData, dictionary: ArrayData | None) -> ArrayData:
        """Create an array of the indices of an array, and its nulls, and a dictionary."""
        return ArrayData(
            self, indices.length, indices.own_buffers, (), dictionary, indices.known_null_count, indices.offset
        )

    def create_from_int64_indices(self, indices: Indices, mask: Mask | None, dictionary: ArrayData) -> ArrayData:
        """Create an array of 64-bit indices, which are valid where `mask` is true. Raises as `cast_to_index_type`."""
        cast_indices = self.cast_to_index_type(indices, dictionary.length)
        return self.create_array(self.index_layout.create_array(cast_indices, mask), dictionary)

    def cast_to_index_type(self, indices: Indices, num_values: int) -> Values:
        """Convert 64-bit indices into a dictionary of `num_values` values to the index type.

        Raises `TypeMismatchError` if one is too large for it.
        """
        if indices.size and indices.max() > np.iinfo(self.index_layout.dtype).max:
            raise TypeMismatchError(f"a dictionary of {num_values} values is too large for the indices of {self.type}")
        return indices.astype(self.index_layout.dtype)

    def indices(self, array: ArrayData) -> Indices:
        """Return the indices as 64-bit integers, 0 for null slots, checked against the length of the dictionary."""
        count = array.require_dictionary().length
        raw, mask = array.buffer_values(1), array.validity_mask()
        if mask is not None:
            # The format permits any index in a null slot.
            raw = np.where(mask, raw, raw.dtype.type(0))
        invalid = (raw < 0) | (raw >= count) if mask is None else mask & ((raw < 0) | (raw >= count))
        if invalid.any():
            index = find_first_true(invalid)
            raise InvalidDataError(f"indices[{index}] = {raw[index]} is not within the dictionary of {count} values")
        return raw.astype(np.int64)

    def concat_indices(self, arrays: Sequence[ArrayData]) -> tuple[list[ArrayData], Indices, Buffer | None]:
        """Concatenate the `indices` and the validity bitmaps of arrays. Return them after the distinct dictionaries,
        into which, end to end, the indices are; only one if it begins with all others.
        """
        raw, validity, lengths = concat_buffer_values(arrays, 1), concat_validity(arrays), array_lengths(arrays)
        distinct = {id(array.dictionary): array.require_dictionary() for array in arrays}
        dictionaries, number_by_id = list(distinct.values()), dict(zip(distinct, range(len(distinct)), strict=True))
        numbers = np.array([number_by_id[id(array.dictionary)] for array in arrays], np.int64)
        counts = array_lengths(dictionaries)
        invalid = (raw < 0) | (raw >= np.repeat(counts[numbers], lengths))
        if validity is not None:
            mask = bitmap.unpack(validity, 0, len(raw))
            raw[~mask] = 0
            invalid &= mask
        if invalid.any():
            for array in arrays:
                self.indices(array)  # raises
        indices = raw.astype(np.int64)
        longest = find_dictionary_extending_all(dictionaries)
        if longest is not None:
            return [longest], indices, validity
        indices += np.repeat((np.cumsum(counts) - counts)[numbers], lengths)
        return dictionaries, indices, validity

    def compact_dictionary(self, array: ArrayData) -> ArrayData:
        """Drop the unused dictionary values, keeping the order; return the array itself if all are used."""
        indices, mask, dictionary = self.indices(array), array.validity_mask(), array.require_dictionary()
        used_indices, new_indices = _find_unique_integers(indices if mask is None else indices[mask], dictionary.length)
        if len(used_indices) == dictionary.length:
            return array
        if mask is not None:
            indices[mask] = new_indices
            new_indices = np.where(mask, indices, 0)
        return self.create_from_int64_indices(new_indices, mask, dictionary.take(used_indices))

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        mask, dictionary = array.validity_mask(), array.dictionary
        if dictionary is None or array.length == array.null_count:
            return mask
        dictionary_mask = dictionary.layout.logical_validity_mask(dictionary, in_unions)
        if dictionary_mask is None:
            return mask
        value_mask = dictionary_mask[self.indices(array)]
        return value_mask if mask is None else value_mask & mask

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        return encode_values(values, self._dictionary, self.encode)

    def encode(self, array: ArrayData) -> ArrayData:
        """Encode an array of the dictionary's type as indices into its distinct values, in order of first appearance.

        Raises as `cast_to_index_type`.
        """
        keys = identity_keys_with_nulls(array)
        valid = array.layout.logical_validity_mask(array, in_unions=False)
        slots = np.arange(array.length) if valid is None else np.flatnonzero(valid)
        codes, firsts = factorize_keys([key[slots] for key in keys], len(slots))
        indices = np.zeros(array.length, np.int64)
        indices[slots] = codes
        return self.create_from_int64_indices(indices, valid, array.layout.take(array, slots[firsts]))

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        if array.is_null_at(index):
            return None
        indices, dictionary = array.own_buffers[1], array.dictionary
        if indices is not None and dictionary is not None:
            value_index = indices.element(self.index_layout.dtype, array.offset + index)
            if 0 <= value_index < dictionary.length:
                return dictionary.layout.value_at(dictionary, value_index, max_elements)
        return super().value_at(array, index)  # raises

    def to_pylist(self, array: ArrayData) -> list[Any]:
        indices, dictionary = self.indices(array), array.require_dictionary()
        if array.null_count == array.length:
            return [None] * array.length
        # Python objects are created of used values only; NumPy's cost for finding them is small beside that.
        if array.length < dictionary.length:
            used_indices, indices = np.unique(indices, return_inverse=True)
            dictionary = dictionary.take(used_indices)
        values = dictionary.to_pylist()
        return set_nulls_to_none([values[index] for index in indices.tolist()], array.validity_mask())

    def copy_to_numpy(self, array: ArrayData) -> Values:
        dictionary = array.dictionary
        if array.null_count == 0 and dictionary is not None and dictionary.null_count == 0:
            values = dictionary.to_numpy(zero_copy_only=False)
            check_expanded_slots(array.length, values[:1].nbytes, values.nbytes)
            return values[self.indices(array)]
        return decode_dictionary(array).to_numpy(zero_copy_only=False)

    def compact(self, array: ArrayData) -> ArrayData:
        indices = self.index_layout.compact(array.with_layout(self.index_layout))
        return self.create_array(indices, array.dictionary)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        index_array = self.index_layout.take(array.with_layout(self.index_layout), indices)
        return self.create_array(index_array, array.dictionary)

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        dictionaries = {id(array.dictionary): array.dictionary for array in slots.arrays}.values()
        dictionary = find_dictionary_extending_all([each for each in dictionaries if each is not None])
        if dictionary is None or None in dictionaries:
            return None
        index_buffer = to_buffer(slots.gather_buffer_values(1))
        return ArrayData(self, len(slots), (slots.gather_validity(), index_buffer), (), dictionary)

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        """Concatenate the arrays and their distinct dictionaries, unless one of these begins with all others.

        Raises `TypeMismatchError` if the dictionary is too large for the index type.
        """
        dictionaries, indices, validity = self.concat_indices(arrays)
        values = dictionaries[0] if len(dictionaries) == 1 else self._dictionary.concat(dictionaries)
        index_buffer = to_buffer(self.cast_to_index_type(indices, values.length))
        return ArrayData(self, len(indices), (validity, index_buffer), (), values)

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_indices, left_values = self._used_indices_and_values(left)
        right_indices, right_values = self._used_indices_and_values(right)
        count = right_values.length
        # Both factors count used values, so they are at most the arrays' length, and their product fits into 64 bits.
        # Each pair of values is compared once, however often it occurs.
        pairs, _ = _find_unique_integers(left_indices * count + right_indices, left_values.length * count)
        return arrays_equal(left_values.take(pairs // count), right_values.take(pairs % count), nans_equal)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        indices, dictionary = self._used_indices_and_values(array)
        sort_keys = dictionary.layout.sort_keys(dictionary)
        return sort_keys and tuple(key[indices] for key in sort_keys)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        indices, dictionary = self._used_indices_and_values(array)
        return tuple(part[indices] for part in dictionary.layout.identity_keys(dictionary))

    def _used_indices_and_values(self, array: ArrayData) -> tuple[Indices, ArrayData]:
        """Return indices into the used dictionary values, and these values."""
        dictionary = array.require_dictionary()
        used_indices, indices = _find_unique_integers(self.indices(array), dictionary.length)
        return indices, dictionary.take(used_indices)

    def check(self, array: ArrayData) -> None:
        array.require_dictionary()

    def check_full(self, array: ArrayData) -> None:
        self.indices(array)


def find_dictionary_extending_all(dictionaries: Sequence[ArrayData]) -> ArrayData | None:
    """Return the dictionary that begins with all others, so that indices into them are indices into it, or None."""
    longest = max(dictionaries, key=len, default=None)
    return longest if longest is not None and all(has_prefix(longest, other) for other in dictionaries) else None


def _find_unique_integers(numbers: Indices, bound: int) -> tuple[Indices, Indices]:
    """Return the sorted distinct numbers, all from 0 to below `bound`, and each number's index among them."""
    # A table of the bound takes time in proportion to a dictionary of which few values may be used.
    if bound > 4 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    is_used = np.zeros(bound, np.bool_)
    is_used[numbers] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]


def decode_dictionary(array: ArrayData) -> ArrayData:
    """Decode a dictionary-encoded array, copied; return an array of another layout unchanged."""
    layout = array.layout.storage
    if not isinstance(layout, DictionaryLayout):
        return array
    indices, dictionary, mask = layout.indices(array), array.require_dictionary(), array.validity_mask()
    if mask is None:
        return dictionary.take(indices)
    # A null slot refers to one more value, a null, so that one `take` copies values and nulls.
    with_null = layout.dictionary.concat([dictionary, layout.dictionary.nulls(1)])
    return with_null.take(np.where(mask, indices, dictionary.length))
