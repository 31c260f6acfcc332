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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import text
from bowstring.layouts.array import Array
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    buffer_of,
    first_bad,
    rebased_validity,
    taken_validity,
    validity_of,
)
from bowstring.layouts.binary import encoded, misfit
from bowstring.layouts.gather import check_bytes, copy_stretches, gather
from bowstring.layouts.joining import joined_validity
from bowstring.layouts.ranking import byte_ranks
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType

VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
INLINE_BYTES = 12
_DATA_BUFFER_BYTES = (1 << 31) - 1


class BinaryViewLayout(Layout):
    """Byte strings or UTF-8 strings, up to 12 bytes within their view, longer ones in a data buffer."""

    __slots__ = ("is_text",)

    VARIADIC: ClassVar[bool] = True

    def __init__(self, type: DataType, is_text: bool) -> None:
        self.is_text = is_text
        super().__init__(type, (VALIDITY, BufferSpec(Role.VIEWS, VIEW)))

    def views(self, array: Array) -> Values:
        """The views, those of null slots made empty, every one checked to lie within its data buffer."""
        views = array.values(1)
        mask = array.mask()
        if mask is not None:
            views = views.copy()
            views[~mask] = np.zeros((), VIEW)
        if views.size and views["length"].min() < 0:
            at = first_bad(views["length"] < 0)
            raise InvalidDataError(f"views[{at}] has the negative length {views['length'][at]}")
        long = np.flatnonzero(views["length"] > INLINE_BYTES)
        if long.size:
            self._check_long(array, views, long)
        return views

    def _check_long(self, array: Array, views: Values, long: Indices) -> None:
        buffers = views["buffer"][long]
        count = len(array.buffers) - 2
        bad = (buffers < 0) | (buffers >= count)
        if bad.any():
            at = first_bad(bad)
            raise InvalidDataError(f"views[{long[at]}] points to data buffer {buffers[at]} of {count}")
        sizes = np.array([0 if b is None else b.size for b in array.buffers[2:]], np.int64)[buffers]
        starts = views["offset"][long].astype(np.int64)
        bad = (starts < 0) | (starts + views["length"][long] > sizes)
        if bad.any():
            at = first_bad(bad)
            end = starts[at] + int(views["length"][long[at]])
            raise InvalidDataError(
                f"views[{long[at]}] points to bytes {starts[at]} to {end} of a data buffer of {sizes[at]} bytes"
            )

    def flatten(self, array: Array) -> tuple[Values, Values]:
        """Offsets from 0 (64 bits), and the bytes of all values end to end; null slots are empty. Copies."""
        views = self.views(array)
        lengths = views["length"].astype(np.int64)
        offsets = np.zeros(len(views) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        check_bytes(int(offsets[-1]), sum(buffer.size for buffer in array.buffers[1:] if buffer is not None))
        data = np.empty(int(offsets[-1]), UINT8)
        short = np.flatnonzero(lengths <= INLINE_BYTES)
        inline = np.ascontiguousarray(views).view(UINT8)
        copy_stretches(data, offsets[short], inline, short * VIEW.itemsize + 4, lengths[short])
        for held, own in self._by_buffer(array, views):
            copy_stretches(data, offsets[own], held, views["offset"][own].astype(np.int64), lengths[own])
        return offsets, data

    def _by_buffer(self, array: Array, views: Values) -> Iterator[tuple[Bytes, Indices]]:
        """Each data buffer that long views point to, and the slots of these views."""
        long = np.flatnonzero(views["length"] > INLINE_BYTES)
        numbers = views["buffer"][long]
        order = np.argsort(numbers, kind="stable")
        for own in np.split(long[order], np.flatnonzero(np.diff(numbers[order])) + 1):
            if own.size:
                held = array.buffers[2 + int(views["buffer"][own[0]])]
                yield (held or EMPTY).bytes, own

    def build(self, values: Sequence[Any]) -> Array:
        try:
            data, lengths, mask = encoded(values, self.is_text)
        except (TypeError, UnicodeEncodeError):
            raise misfit(values, self.is_text, self.type) from None
        return self.of(data, lengths, mask)

    def of(self, data: Bytes, lengths: Indices, mask: Values | None = None) -> Array:
        """An array of the values that lie end to end in `data`; copies."""
        starts = np.cumsum(lengths) - lengths
        views = np.zeros(len(lengths), VIEW)
        views["length"] = lengths
        heads = np.where(lengths > INLINE_BYTES, 4, lengths)
        copy_stretches(views.view(UINT8), np.arange(len(lengths)) * VIEW.itemsize + 4, data, starts, heads)
        long = np.flatnonzero(lengths > INLINE_BYTES)
        ends = np.cumsum(lengths[long])
        buffers: list[Buffer] = []
        first = 0
        while first < len(long):
            base = int(ends[first] - lengths[long[first]])
            last = max(int(np.searchsorted(ends, base + _DATA_BUFFER_BYTES, "right")), first + 1)
            own = long[first:last]
            views["buffer"][own] = len(buffers)
            views["offset"][own] = ends[first:last] - lengths[own] - base
            buffers.append(buffer_of(gather(data, starts[own], lengths[own])))
            first = last
        return Array(self, len(lengths), (validity_of(mask), Buffer.of(views), *buffers))

    def to_pylist(self, array: Array) -> list[Any]:
        offsets, data = self.flatten(array)
        cut_up = text.slices if self.is_text else text.byte_slices
        return cut_up(data, offsets, array.mask())

    def rebase(self, array: Array) -> Array:
        views = array.buffers[1] or EMPTY
        own = views.slice(array.offset * VIEW.itemsize, array.length * VIEW.itemsize)
        buffers = (rebased_validity(array), own, *array.buffers[2:])
        return Array(self, array.length, buffers, null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        views = buffer_of(array.values(1)[indices])
        return Array(self, len(indices), (taken_validity(array, indices), views, *array.buffers[2:]))

    def concat(self, arrays: Sequence[Array]) -> Array:
        parts: list[Values] = []
        buffers: list[Buffer | None] = []
        for array in arrays:
            views = array.values(1).copy()
            views["buffer"][views["length"] > INLINE_BYTES] += len(buffers)
            parts.append(views)
            buffers.extend(array.buffers[2:])
        joined = np.concatenate(parts)
        return Array(self, len(joined), (joined_validity(arrays), buffer_of(joined), *buffers))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(self.flatten(left), self.flatten(right), strict=True))

    def order(self, array: Array) -> tuple[Values, ...]:
        offsets, data = self.flatten(array)
        return (byte_ranks(data, offsets),)

    def check_full(self, array: Array) -> None:
        views = self.views(array)
        lengths = views["length"].astype(np.int64)
        self._check_inline(views, lengths)
        for held, own in self._by_buffer(array, views):
            starts = views["offset"][own].astype(np.int64)
            self._check_prefixes(views, own, held[starts[:, None] + np.arange(4)])
            if self.is_text:
                text.check_ranges(held, starts, starts + lengths[own], own)

    def _check_prefixes(self, views: Values, own: Indices, heads: Values) -> None:
        prefixes = np.ascontiguousarray(views["prefix"][own]).view(UINT8).reshape(-1, 4)
        bad = (heads != prefixes).any(axis=1)
        if bad.any():
            at = first_bad(bad)
            prefix, head = prefixes[at].tobytes(), heads[at].tobytes()
            raise InvalidDataError(f"views[{own[at]}] has the prefix {prefix!r}, its data begins with {head!r}")

    def _check_inline(self, views: Values, lengths: Values) -> None:
        raw = np.ascontiguousarray(views).view(UINT8)
        short = np.flatnonzero(lengths <= INLINE_BYTES)
        inside = raw.reshape(-1, 16)[short, 4:]
        stray = ((np.arange(INLINE_BYTES) >= lengths[short, None]) & (inside != 0)).any(axis=1)
        if stray.any():
            raise InvalidDataError(f"views[{short[first_bad(stray)]}] is inline, but not padded with zeros")
        if self.is_text and short.size:
            starts = np.arange(len(short)) * INLINE_BYTES
            text.check_ranges(inside.reshape(-1), starts, starts + INLINE_BYTES, short)
