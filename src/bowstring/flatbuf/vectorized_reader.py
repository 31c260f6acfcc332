"""Read many tables of a flatbuffer at once with NumPy: their positions, their slots, and the targets of offsets.

Each step makes the checks that `bowstring.flatbuf.reader` makes for one offset, and returns for each table whether they
passed. Reading a failed table with `bowstring.flatbuf.reader` raises the error.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

_U16 = struct.Struct("<H")
_VTABLE = struct.Struct("<HH")

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class ByteReader:
    """The bytes of a flatbuffer as little-endian integers at many offsets, which must be in bounds.

    Offset 0 stands for an absent value.
    """

    __slots__ = ("_u16_view", "_u32_view", "bytes", "raw", "size")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.size = len(raw)
        self.bytes = np.frombuffer(raw, np.uint8)
        self._u16_view = self.bytes[: self.size // 2 * 2].view("<u2")
        self._u32_view = self.bytes[: self.size // 4 * 4].view("<u4")

    def u16(self, at: IntArray) -> IntArray:
        """Read unsigned 16-bit integers."""
        if not _any_bits(at) & 1:
            numbers: IntArray = self._u16_view.take(at >> 1).astype(np.int64)
            return numbers
        return self._gather(at, "<u2")

    def u32(self, at: IntArray) -> IntArray:
        """Read unsigned 32-bit integers."""
        if not _any_bits(at) & 3:
            numbers: IntArray = self._u32_view.take(at >> 2).astype(np.int64)
            return numbers
        return self._gather(at, "<u4")

    def i64(self, at: IntArray) -> IntArray:
        """Read signed 64-bit integers."""
        return self._gather(at, "<i8")

    def number(self, at: IntArray, size_bytes: int) -> IntArray:
        """Read integers of 1, 2 or 4 bytes as unsigned."""
        if size_bytes == 1:
            numbers: IntArray = self.bytes.take(at).astype(np.int64)
            return numbers
        return self.u16(at) if size_bytes == 2 else self.u32(at)

    def _gather(self, at: IntArray, dtype: str) -> IntArray:
        rows = np.ascontiguousarray(self.bytes[at[:, None] + np.arange(np.dtype(dtype).itemsize)])
        out: IntArray = rows.view(dtype)[:, 0].astype(np.int64)
        return out

    def follow_offsets(self, at: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the targets of offsets, 0 if absent or invalid, and whether each is absent or valid."""
        distances = self.u32(at)
        targets = at + distances
        if len(at) and at.min() > 0 and distances.min() > 0 and targets.max() + 4 <= self.size:
            return targets, np.ones(len(at), bool)
        is_valid = (distances > 0) & (targets + 4 <= self.size)
        is_present = at > 0
        return np.where(is_present & is_valid, targets, 0), is_valid | ~is_present

    def texts(self, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the starts and lengths of strings, and whether each is in bounds; absent ones are empty."""
        targets, sound = self.follow_offsets(at)
        lengths = np.where(targets > 0, self.u32(targets), 0)
        return targets + 4, lengths, sound & (targets + 4 + lengths <= self.size)

    def counts(self, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the starts and lengths of vectors of offsets, and whether each is in bounds; absent ones are empty."""
        targets, sound = self.follow_offsets(at)
        counts = np.where(targets > 0, self.u32(targets), 0)
        sound &= targets + 4 + 4 * counts <= self.size
        return targets + 4, np.where(sound, counts, 0), sound

    def equal(self, starts: IntArray, lengths: IntArray, text: bytes) -> BoolArray:
        """Whether each string equals `text`; strings of its length must not exceed the message in total."""
        same: BoolArray = (lengths == len(text)) & (starts + len(text) <= self.size)
        if text:
            rows = np.flatnonzero(same)
            candidates = self.bytes[starts[rows, None] + np.arange(len(text))]
            same[rows] = (candidates == np.frombuffer(text, np.uint8)).all(axis=1)
        return same


def _any_bits(at: IntArray) -> int:
    """Return the bitwise OR of all offsets."""
    return int(np.bitwise_or.reduce(at))


def vector_items(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each item of all vectors the index of its vector and its byte offset; items are 4 bytes long."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.repeat(starts - 4 * firsts, counts) + 4 * np.arange(len(owners))


class Tables:
    """Many tables and the positions of their slots."""

    __slots__ = ("_shared", "_u32_view", "_vtables", "_widths", "at", "sizes", "sound")

    def __init__(self, reader: ByteReader, at: IntArray, sound: BoolArray) -> None:
        self._u32_view, size = reader, reader.size
        at = at if sound.all() else np.where(sound, at, 0)
        vtables = at - reader.u32(at).astype(np.int32)  # signed
        self._shared = _shared_vtable(reader, vtables, at) if sound.all() else None
        if self._shared is not None:
            self.at, self.sound = at, sound
            return
        sound = sound & (vtables >= 0) & (vtables <= size - 4)
        vtables = np.where(sound, vtables, 0)
        widths, sizes = reader.u16(vtables), reader.u16(vtables + 2)
        sound &= (widths >= 4) & (widths & 1 == 0) & (vtables + widths <= size)
        sound &= (sizes >= 4) & (at + sizes <= size)
        self._vtables = vtables
        self._widths = widths
        self.at = at
        self.sizes = sizes
        self.sound = sound
        """Whether each table can be read."""

    def slot(self, number: int, size_bytes: int) -> tuple[IntArray, BoolArray]:
        """Return the byte offset of a slot of `size_bytes` bytes in each table, 0 if absent, and whether it is inside
        its table.
        """
        entry = 4 + 2 * number
        if self._shared is not None:
            width, size, vtable = self._shared
            offset = _U16.unpack_from(self._u32_view.raw, vtable + entry)[0] if entry + 2 <= width else 0
            is_inside = offset >= 4 and offset + size_bytes <= size
            return self.at + offset if is_inside else np.zeros_like(self.at), self.sound & (is_inside or offset == 0)
        is_present = self.sound & (self._widths >= entry + 2)
        offsets = np.where(is_present, self._u32_view.u16(np.where(is_present, self._vtables + entry, 0)), 0)
        inside = (offsets >= 4) & (offsets + size_bytes <= self.sizes)
        return np.where(inside, self.at + offsets, 0), self.sound & (inside | (offsets == 0))


def _shared_vtable(reader: ByteReader, vtables: IntArray, at: IntArray) -> tuple[int, int, int] | None:
    """Return vtable size, table size and vtable offset if all tables share a valid vtable, else None."""
    if not len(at) or (vtables != vtables[0]).any():
        return None
    vtable = int(vtables[0])
    if not 0 <= vtable <= reader.size - 4:
        return None
    width, size = _VTABLE.unpack_from(reader.raw, vtable)
    is_sound = width >= 4 and width % 2 == 0 and vtable + width <= reader.size and size >= 4
    return (width, size, vtable) if is_sound and int(at.max()) + size <= reader.size else None
