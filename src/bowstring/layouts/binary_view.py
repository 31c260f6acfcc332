r"""«Variable-size Binary View Layout»: validity, 16-byte views, and any number of data buffers.

>>> import bowstring as bs
>>> array = bs.array(["short", "a string of more than twelve bytes"], bs.string_view())
>>> array.buffers[1].to_bytes()[:16]
b'\x05\x00\x00\x00short\x00\x00\x00\x00\x00\x00\x00'
>>> array.buffers[2].to_bytes()
b'a string of more than twelve bytes'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import InvalidDataError, UsageError
from bowstring.layouts import string_pickling, text
from bowstring.layouts.array import Array
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    compact_validity,
    decode_in_blocks,
    first_true,
    is_null_at,
    pack_validity,
    take_validity,
    to_buffer,
)
from bowstring.layouts.binary import conversion_error, encode_values
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.gather import check_bytes, copy_ranges, gather, prefixes, scatter
from bowstring.layouts.hashing import factorize_bytes
from bowstring.layouts.sort_keys import rank_bytes
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.memory.bitmap import Mask

VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
INLINE_BYTES = 12
_SHORT = np.dtype([("length", "<i4"), ("value", np.void, INLINE_BYTES)])
_DATA_BUFFER_BYTES = (1 << 31) - 1
_ONE_DATA_BUFFER = 3
_DENSE = 0.75
_LITTLE_BYTES = 1 << 12
"""Values are left where they are, and short ones between them, if they are so much of the data, and not little."""
_BLOCK_HEADS = 1 << 12
_MOST_BYTES_AT_ONCE = 256
_WORD = np.dtype("<u8")
_PLACES = np.arange(VIEW.itemsize) - 4
_PADDING = np.where(np.arange(INLINE_BYTES + 2)[:, None] <= _PLACES, 0xFF, 0).astype(UINT8).view(_WORD).T.copy()
"""The bits of both words of a view that are zeros by its length; none from `INLINE_BYTES` on."""
_KEPT = np.ascontiguousarray(~_PADDING.T)


def _make_views(views: Values, data: Bytes, lengths: Values, number: int) -> Bytes:
    """Fill in views of the values that lie end to end in the data, some there at least, and give the data buffer that
    the long ones point to by its number.
    """
    long_bytes = int(lengths[lengths > INLINE_BYTES].sum(dtype=np.int64))
    is_dense = long_bytes >= max(_DENSE * data.size, _LITTLE_BYTES)
    held = data if is_dense else np.empty(long_bytes, UINT8)
    start = place = 0
    for first in range(0, len(views), _BLOCK_HEADS):
        own, sizes = views[first : first + _BLOCK_HEADS], lengths[first : first + _BLOCK_HEADS].astype(np.int64)
        is_long = sizes > INLINE_BYTES
        starts = places = start + sizes.cumsum() - sizes
        start += int(sizes.sum())
        if not is_dense:
            kept = sizes * is_long
            places = place + kept.cumsum() - kept
            gathered = gather(data, starts[is_long], sizes[is_long])
            held[place : place + gathered.size] = gathered
            place += gathered.size
        own.view(_SHORT)["value"] = prefixes(data, starts, INLINE_BYTES)
        own["length"] = sizes
        words = own.view(_WORD).reshape(-1, 2)
        words &= _KEPT.take(sizes, axis=0, mode="clip")
        np.copyto(words[:, 1], (places << 32 | number).view(_WORD), where=is_long)
    return held


class BinaryViewLayout(Layout):
    """Byte strings or UTF-8 strings, up to 12 bytes within their view, longer ones in a data buffer."""

    __slots__ = ("is_text",)

    VARIADIC: ClassVar[bool] = True

    def __init__(self, type: DataType, is_text: bool) -> None:
        self.is_text = is_text
        super().__init__(type, (VALIDITY, BufferSpec(Role.VIEWS, VIEW)))

    def views(self, array: Array) -> Values:
        """The views, those of null slots made empty, every one checked to lie within its data buffer."""
        return self._checked(array, array.mask(), 0, array.length, self._sizes(array))

    def _sizes(self, array: Array) -> Indices:
        return np.array([0 if b is None else b.size for b in array.buffers[2:]], np.int64)

    def _checked(self, array: Array, mask: Mask | None, first: int, stop: int, sizes: Indices) -> Values:
        views = array.values(1)[first:stop]
        if mask is not None:
            words, nulls = views.view(_WORD).reshape(-1, 2).copy(), np.flatnonzero(~mask[first:stop])
            for column in words.T:
                column[nulls] = 0
            views = words.view(VIEW).reshape(-1)
        if views.size and views["length"].min() < 0:
            at = first_true(views["length"] < 0)
            raise InvalidDataError(f"views[{first + at}] has the negative length {views['length'][at]}")
        is_long = views["length"] > INLINE_BYTES
        if is_long.any():
            self._check_long(views, is_long, first, sizes)
        return views

    def _check_long(self, views: Values, is_long: Mask, first: int, sizes: Indices) -> None:
        buffers, starts, count = views["buffer"], views["offset"], len(sizes)
        bad = ((buffers < 0) | (buffers >= count)) & is_long
        if bad.any():
            at = first_true(bad)
            raise InvalidDataError(f"views[{first + at}] points to data buffer {buffers[at]} of {count}")
        stops = starts + views["length"].astype(np.int64)
        bad = ((starts < 0) | (stops > (sizes if count == 1 else sizes[buffers * is_long]))) & is_long
        if bad.any():
            at = first_true(bad)
            raise InvalidDataError(
                f"views[{first + at}] points to bytes {starts[at]} to {stops[at]} of a data buffer of "
                f"{sizes[buffers[at]]} bytes"
            )

    def flatten(self, array: Array) -> tuple[Values, Values]:
        """Offsets from 0 (64 bits), and the bytes of all values end to end; null slots are empty. Copies."""
        views = self.views(array)
        lengths = self.checked_lengths(array, views)
        data, starts = self._spaced(array, views, lengths, 0)
        return np.append(starts, len(data)), data

    def checked_lengths(self, array: Array, views: Values) -> Indices:
        """The lengths of all values; raises `LimitError` where they are many more bytes than the array has."""
        lengths = views["length"].astype(np.int64)
        check_bytes(int(lengths.sum()), self._held_bytes(array))
        return lengths

    def _held_bytes(self, array: Array) -> int:
        return sum(buffer.size for buffer in array.buffers[1:] if buffer is not None)

    def _spaced(self, array: Array, views: Values, lengths: Indices, gap: int) -> tuple[Bytes, Indices]:
        """The bytes of values end to end with `gap` bytes of anything behind each, and where each begins."""
        stops = (lengths + gap).cumsum()
        starts = stops - lengths - gap
        total, longest = int(stops[-1]) if len(stops) else 0, int(lengths.max(initial=0))
        width = max(min(longest, 2 * total // max(len(views), 1), _MOST_BYTES_AT_ONCE), INLINE_BYTES)
        data = np.empty(total + width, UINT8)
        for first in range(0, len(views), _BLOCK_HEADS):
            own = views[first : first + _BLOCK_HEADS]
            scatter(data, starts[first : first + len(own)], self._heads(array, own, width))
        if longest > width:
            for held, slots in self._by_buffer(array, views, width):
                copy_ranges(data, starts[slots], held, views["offset"][slots].astype(np.int64), lengths[slots])
        return data[:total], starts

    def _heads(self, array: Array, views: Values, width: int, lead: int = 0) -> Values:
        """The first bytes of all values, as elements of NumPy's void type, behind `lead` zeros."""
        rows = np.zeros((len(views), lead + width), UINT8)
        inline, stride = np.dtype((np.void, INLINE_BYTES)), (lead + width,)
        own = np.ascontiguousarray(views)
        np.ndarray(len(own), inline, rows, lead, stride)[:] = np.ndarray(len(own), inline, own, 4, own.strides)
        elements = np.ndarray(len(own), np.dtype((np.void, width)), rows, lead, stride)
        for held, slots in self._by_buffer(array, views):
            elements[slots] = prefixes(held, views["offset"][slots].astype(np.int64), width)
        return rows.view(np.dtype((np.void, lead + width))).reshape(-1)

    def _by_buffer(
        self, array: Array, views: Values, size_bytes: int = INLINE_BYTES
    ) -> Iterator[tuple[Bytes, Indices]]:
        """Each data buffer that views of values beyond a size point to, and the slots of these views."""
        long = np.flatnonzero(views["length"] > size_bytes)
        if not long.size:
            return
        groups = [long]
        if len(array.buffers) > _ONE_DATA_BUFFER and ((numbers := views["buffer"][long]) != numbers[0]).any():
            order = np.argsort(numbers, kind="stable")
            groups = np.split(long[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        for own in groups:
            held = array.buffers[2 + int(views["buffer"][own[0]])]
            yield (held or EMPTY).bytes, own

    def build(self, values: Sequence[Any]) -> Array:
        try:
            data, lengths, mask = encode_values(values, self.is_text)
        except (TypeError, UnicodeEncodeError):
            raise conversion_error(values, self.is_text, self.type) from None
        return self.of(data, lengths, mask)

    def of(self, data: Bytes, lengths: Values, mask: Values | None = None) -> Array:
        """An array of the values that lie end to end in `data`, which is shared where hardly anything of it is short
        enough to lie within views.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        views = np.zeros(len(lengths), VIEW)
        buffers: list[Buffer] = []
        first = base = 0
        while base < len(data):
            last = int(np.searchsorted(ends, base + _DATA_BUFFER_BYTES, "right"))
            if last == first:
                raise UsageError(f"{lengths[first]} bytes are too long for a view of {self.type}")
            own, stop = slice(first, last), int(ends[last - 1])
            held = _make_views(views[own], data[base:stop], lengths[own], len(buffers))
            if held.size:
                buffers.append(to_buffer(held))
            first, base = last, stop
        return Array(self, len(lengths), (pack_validity(mask), Buffer.of(views), *buffers))

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        value = self._bytes_at(array, index)
        if value is not None:
            try:
                return value.decode() if self.is_text else value
            except UnicodeDecodeError:
                pass
        return super().value_at(array, index)  # raises

    def _bytes_at(self, array: Array, index: int) -> bytes | None:
        """The bytes of one slot; None where its view is malformed."""
        view = (array.buffers[1] or EMPTY).view(VIEW, array.offset + index, 1)
        length, number, start = int(view["length"][0]), int(view["buffer"][0]), int(view["offset"][0])
        if 0 <= length <= INLINE_BYTES:
            return view.view(_SHORT)["value"].tobytes()[:length]
        data = array.buffers[2 + number] if 0 <= number < len(array.buffers) - 2 else None
        if data is None or length < 0 or start < 0 or start + length > data.size:
            return None
        return data.view(UINT8, start, length).tobytes()

    def to_pylist(self, array: Array) -> list[Any]:
        mask, lengths = array.mask(), array.values(1)["length"]
        wanted = int(lengths.sum(dtype=np.int64, where=True if mask is None else mask))
        held = self._held_bytes(array)
        if wanted > held or lengths.min(initial=0) < 0:
            self.views(array)
            check_bytes(wanted, held)
        try:
            found = self._short_values(array, mask, wanted)
            return self._any_values(array, mask) if found is None else found
        except UnicodeDecodeError:
            offsets, data = self.flatten(array)
            text.check_utf8(data, offsets, mask)
            raise

    def _short_values(self, array: Array, mask: Mask | None, size_bytes: int) -> list[Any] | None:
        """The values where they are many and short, and strings ASCII; those that are long are made otherwise."""
        if not string_pickling.is_worthwhile(array.length, size_bytes, mask):
            return None
        make = partial(self._strings if self.is_text else self._byte_strings, array, array.values(1))
        return string_pickling.decode_strings(
            self._led(array, mask, size_bytes), make, (array.length, size_bytes), self.is_text
        )

    def _led(self, array: Array, mask: Mask | None, size_bytes: int) -> Iterator[tuple[Values, Indices, Mask | None]]:
        """The values as `unpickled` wants them."""
        sizes = self._sizes(array)
        for own in string_pickling.iter_blocks(array.length, size_bytes):
            views = self._checked(array, mask, own.start, own.stop, sizes)
            lengths = views["length"].astype(np.int64)
            width = max(string_pickling.width_for(lengths), INLINE_BYTES)
            elements = self._heads(array, views, width, string_pickling.HEADER_BYTES)
            yield elements, lengths, None if mask is None else mask[own]

    def _any_values(self, array: Array, mask: Mask | None) -> list[Any]:
        found, sizes = [], self._sizes(array)
        for first in range(0, array.length, text.BLOCK_STRINGS):
            stop = min(first + text.BLOCK_STRINGS, array.length)
            views = self._checked(array, mask, first, stop, sizes)
            make = partial(self._strings if self.is_text else self._byte_strings, array, views)
            found += decode_in_blocks(len(views), None if mask is None else mask[first:stop], make, len(views))
        return found

    def _strings(self, array: Array, views: Values, where: slice | Indices) -> list[str]:
        own = views[where]
        lengths = own["length"].astype(np.int64)
        return text.split_strings(*self._spaced(array, own, lengths, 1), lengths)

    def _byte_strings(self, array: Array, views: Values, where: slice | Indices) -> list[bytes]:
        own = views[where]
        lengths = own["length"].astype(np.int64)
        return text.slice_byte_strings(*self._spaced(array, own, lengths, 0), lengths)

    def compact(self, array: Array) -> Array:
        views = array.buffers[1] or EMPTY
        own = views.slice(array.offset * VIEW.itemsize, array.length * VIEW.itemsize)
        buffers = (compact_validity(array), own, *array.buffers[2:])
        return Array(self, array.length, buffers, null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        views = to_buffer(array.values(1)[indices])
        return Array(self, len(indices), (take_validity(array, indices), views, *array.buffers[2:]))

    def concat(self, arrays: Sequence[Array]) -> Array:
        parts: list[Values] = []
        buffers: list[Buffer | None] = []
        for array in arrays:
            views = array.values(1).copy()
            views["buffer"][views["length"] > INLINE_BYTES] += len(buffers)
            parts.append(views)
            buffers.extend(array.buffers[2:])
        joined = np.concatenate(parts)
        return Array(self, len(joined), (concat_validity(arrays), to_buffer(joined), *buffers))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(self.flatten(left), self.flatten(right), strict=True))

    def sort_keys(self, array: Array) -> tuple[Values, ...]:
        offsets, data = self.flatten(array)
        return (rank_bytes(data, offsets),)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        offsets, data = self.flatten(array)
        return (factorize_bytes(data, offsets),)

    def check_full(self, array: Array) -> None:
        from bowstring.layouts.view_validation import check_views  # which knows views by this module

        check_views(array, self.is_text)
