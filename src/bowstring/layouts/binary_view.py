r"""«Variable-size Binary View Layout»: validity, 16-byte views, and any number of data buffers.

>>> import bowstring as bs
>>> array = bs.array(["short", "a string of more than twelve bytes"], bs.string_view())
>>> array.buffers()[1].to_bytes()[:16]
b'\x05\x00\x00\x00short\x00\x00\x00\x00\x00\x00\x00'
>>> array.buffers()[2].to_bytes()
b'a string of more than twelve bytes'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    BufferRole,
    BufferSpec,
    Indices,
    Values,
    set_nulls_to_none,
    to_buffer,
)
from bowstring.layouts.binary_view_validation import INLINE_BYTES, check_views, read_checked_views
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.expansion_limits import check_expanded_bytes
from bowstring.layouts.factorize import factorize_keys
from bowstring.layouts.gather import copy_ranges, gather_bytes, gather_prefixes
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes

VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_VIEW = np.dtype([("length", "<i4"), ("value", np.void, INLINE_BYTES)])
# Offsets and buffer indices of views are signed 32-bit numbers.
_DATA_BUFFER_BYTES = (1 << 31) - 1
# Below, sharing would keep more than a quarter of bytes that no view refers to.
_MIN_LONG_FRACTION = 0.75
_MIN_LONG_BYTES = 1 << 12
"""Data is shared, including the bytes of short values, if at least this much of it belongs to long values."""
# 64 KiB of views, and the arrays computed for them, stay in the cache.
_BLOCK_VIEWS = 1 << 12
_WORD = np.dtype("<u8")
# Row n is true for the bytes of a view that belong to a value of n bytes; the first four, the length, always do.
_VALUE_BYTES = np.arange(INLINE_BYTES + 2)[:, None] > np.arange(VIEW.itemsize) - 4
_WORD_MASKS = np.where(_VALUE_BYTES, 0xFF, 0).astype(UINT8).view(_WORD)
"""For each length, masks of a view's two words without the padding. A length above 12 has no padding."""


def _fill_views(views: Values, data: Bytes, lengths: Values, buffer_index: int) -> Bytes:
    """Fill `views` with at least one value; the values are consecutive in `data`.

    Returns the data buffer of the values that are too long for a view, whose index is `buffer_index`.
    """
    long_bytes = int(lengths[lengths > INLINE_BYTES].sum(dtype=np.int64))
    shares_data = long_bytes >= max(_MIN_LONG_FRACTION * data.size, _MIN_LONG_BYTES)
    long_values = data if shares_data else np.empty(long_bytes, UINT8)
    start = offset = 0
    for first in range(0, len(views), _BLOCK_VIEWS):
        block, sizes = views[first : first + _BLOCK_VIEWS], lengths[first : first + _BLOCK_VIEWS].astype(np.int64)
        is_long = sizes > INLINE_BYTES
        starts = offsets = start + sizes.cumsum() - sizes
        start += int(sizes.sum())
        if not shares_data:
            long_sizes = sizes * is_long
            offsets = offset + long_sizes.cumsum() - long_sizes
            gathered = gather_bytes(data, starts[is_long], sizes[is_long])
            long_values[offset : offset + gathered.size] = gathered
            offset += gathered.size
        # All views as if they were inline; the second word of the long ones is overwritten below, and their prefix
        # stays.
        block.view(_INLINE_VIEW)["value"] = gather_prefixes(data, starts, INLINE_BYTES)
        block["length"] = sizes
        words = block.view(_WORD).reshape(-1, 2)
        words &= _WORD_MASKS.take(sizes, axis=0, mode="clip")
        # Buffer index in the lower half, offset in the upper one: both are below 2**31, so the word is not negative.
        np.copyto(words[:, 1], (offsets << 32 | buffer_index).view(_WORD), where=is_long)
    return long_values


def _get_source_bytes(array: ArrayData) -> int:
    """Return the size in bytes of the views and the data buffers."""
    return sum(buffer.size for buffer in array.own_buffers[1:] if buffer is not None)


class BinaryViewLayout(ByteStringLayout):
    """Byte strings or UTF-8 strings: in the view up to 12 bytes, else in a data buffer."""

    __slots__ = ("is_text",)

    VARIADIC: ClassVar[bool] = True

    def __init__(self, type: DataType, is_text: bool) -> None:
        self.is_text = is_text
        super().__init__(type, (VALIDITY, BufferSpec(BufferRole.VIEWS, VIEW)))

    def views(self, array: ArrayData) -> Values:
        """Return the views, empty for null slots, all checked to be within their data buffers."""
        return read_checked_views(array).view(VIEW).reshape(-1)

    def bytes_and_offsets(self, array: ArrayData) -> tuple[Bytes, Indices]:
        """Return the bytes of all values end to end, copied, and int64 offsets from 0. Null slots are empty."""
        views = self.views(array)
        lengths = self.checked_lengths(array, views)
        offsets = np.concatenate(([0], lengths.cumsum()))
        data = np.empty(int(offsets[-1]), UINT8)
        is_long = lengths > INLINE_BYTES
        inline = np.flatnonzero(~is_long)
        copy_ranges(data, offsets[inline], views.view(UINT8), VIEW.itemsize * inline + 4, lengths[inline])
        long = np.flatnonzero(is_long)
        long = long[np.argsort(views["buffer"][long], kind="stable")]
        for slots in np.split(long, np.flatnonzero(np.diff(views["buffer"][long])) + 1) if long.size else ():
            source = (array.own_buffers[2 + int(views["buffer"][slots[0]])] or EMPTY).bytes
            copy_ranges(data, offsets[slots], source, views["offset"][slots].astype(np.int64), lengths[slots])
        return data, offsets

    def _has_shared_bytes(self, array: ArrayData) -> bool:
        """Whether values share bytes: they have more bytes than the array. Nulls may count as values."""
        # Lengths are below 2**31, so that the sum fits int64 for fewer than 2**32 views, 64 GiB. Negative lengths are
        # found by `views`.
        return int(array.buffer_values(1)["length"].sum(dtype=np.int64)) > _get_source_bytes(array)

    def find_values_and_indices(self, array: ArrayData) -> tuple[ArrayData, Indices] | None:
        if not self._has_shared_bytes(array):
            return None
        # Distinct views: equal values in different places stay separate, which callers must allow for.
        views = self.views(array)
        codes, firsts = factorize_keys(list(views.view(_WORD).reshape(-1, 2).T), array.length)
        return self._select_views(array, views, firsts), codes

    def _select_views(self, array: ArrayData, views: Values, indices: Indices) -> ArrayData:
        return ArrayData(self, len(indices), (None, to_buffer(views[indices]), *array.own_buffers[2:]))

    def to_pylist(self, array: ArrayData) -> list[Any]:
        shared = self.find_values_and_indices(array)
        if shared is None:
            return super().to_pylist(array)
        distinct, codes = shared
        values = super().to_pylist(distinct)
        return set_nulls_to_none([values[code] for code in codes.tolist()], array.validity_mask())

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...]:
        shared = self.find_values_and_indices(array)
        if shared is None:
            return super().sort_keys(array)
        distinct, codes = shared
        return tuple(key[codes] for key in super().sort_keys(distinct))

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        shared = self.find_values_and_indices(array)
        if shared is None:
            return super().identity_keys(array)
        distinct, codes = shared
        return tuple(key[codes] for key in super().identity_keys(distinct))

    def with_empty_nulls(self, array: ArrayData) -> ArrayData:
        """Return the array with empty views in null slots, for readers that add up all lengths."""
        views = to_buffer(self.views(array))
        buffers = (array.compact_validity(), views, *array.own_buffers[2:])
        return ArrayData(self, array.length, buffers, null_count=array.null_count)

    def checked_lengths(self, array: ArrayData, views: Values) -> Indices:
        """Return the lengths of all values; raises `LimitError` if they have many more bytes than the array."""
        lengths = views["length"].astype(np.int64)
        check_expanded_bytes(int(lengths.sum()), _get_source_bytes(array))
        return lengths

    def create_array(self, lengths: Indices, data: Bytes, validity: Buffer | None) -> ArrayData:
        """Create an array of consecutive values of these lengths in bytes.

        Shares `data` if nearly all of it belongs to values that are too long for their views.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        views = np.zeros(len(lengths), VIEW)
        buffers: list[Buffer] = []
        first = base = 0
        while base < len(data):
            # As many values as fit into one data buffer; its offsets count from `base`.
            last = int(np.searchsorted(ends, base + _DATA_BUFFER_BYTES, "right"))
            if last == first:
                raise InvalidArgumentError(f"{lengths[first]} bytes are too long for a view of {self.type}")
            stop = int(ends[last - 1])
            long_values = _fill_views(views[first:last], data[base:stop], lengths[first:last], len(buffers))
            if long_values.size:
                buffers.append(to_buffer(long_values))
            first, base = last, stop
        return ArrayData(self, len(lengths), (validity, Buffer.of(views), *buffers))

    def bytes_at(self, array: ArrayData, index: int) -> bytes | None:
        view = (array.own_buffers[1] or EMPTY).view(VIEW, array.offset + index, 1)
        length, _, buffer_index, start = view[0].item()
        if 0 <= length <= INLINE_BYTES:
            return view.view(_INLINE_VIEW)["value"].tobytes()[:length]
        data: Buffer | None = (
            array.own_buffers[2 + buffer_index] if 0 <= buffer_index < len(array.own_buffers) - 2 else None
        )
        if data is None or length < 0 or start < 0 or start + length > data.size:
            return None
        return data.view(UINT8, start, length).tobytes()

    def compact(self, array: ArrayData) -> ArrayData:
        buffers = (array.compact_validity(), array.slice_buffer(1), *array.own_buffers[2:])
        return ArrayData(self, array.length, buffers, null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        views = to_buffer(array.buffer_values(1)[indices])
        return ArrayData(self, len(indices), (array.take_validity(indices), views, *array.own_buffers[2:]))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        parts: list[Values] = []
        buffers: list[Buffer | None] = []
        for array in arrays:
            views = array.buffer_values(1).copy()
            views["buffer"][views["length"] > INLINE_BYTES] += len(buffers)
            parts.append(views)
            buffers.extend(array.own_buffers[2:])
        all_views = np.concatenate(parts)
        return ArrayData(self, len(all_views), (concat_validity(arrays), to_buffer(all_views), *buffers))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_views, right_views = self.views(left), self.views(right)
        left_words, right_words = left_views.view(_WORD), right_views.view(_WORD)
        if not np.array_equal(left_words[::2], right_words[::2]):  # lengths and prefixes
            return False
        if self._has_shared_bytes(left) or self._has_shared_bytes(right):  # compare each pair of views once
            firsts = factorize_keys([left_words[::2], left_words[1::2], right_words[1::2]], left.length)[1]
            left = self._select_views(left, left_views, firsts)
            right = self._select_views(right, right_views, firsts)
        left_data, left_offsets = self.bytes_and_offsets(left)
        right_data, right_offsets = self.bytes_and_offsets(right)
        return np.array_equal(left_offsets, right_offsets) and np.array_equal(left_data, right_data)

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return False  # `have_equal_values` ignores nulls

    def check_full(self, array: ArrayData) -> None:
        check_views(array, self.is_text)
