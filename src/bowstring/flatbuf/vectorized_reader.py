"""Many tables of a flatbuffer at once, by NumPy: where they are, where their slots are, what offsets lead to.

Each step checks what `bowstring.flatbuf.reader` checks when it follows one offset, and says for each table whether all
was well; what is wrong with one that was not, its reading by the codec tells.
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
    """The bytes of a flatbuffer as little-endian integers at many positions, which must lie within it.

    Position 0 stands for what is absent.
    """

    __slots__ = ("_halves", "_words", "bytes", "raw", "size")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.size = len(raw)
        self.bytes = np.frombuffer(raw, np.uint8)
        self._halves = self.bytes[: self.size // 2 * 2].view("<u2")
        self._words = self.bytes[: self.size // 4 * 4].view("<u4")

    def u16(self, at: IntArray) -> IntArray:
        """Unsigned integers of 16 bits."""
        if not _any_bits(at) & 1:
            halves: IntArray = self._halves.take(at >> 1).astype(np.int64)
            return halves
        return self._gathered(at, "<u2")

    def u32(self, at: IntArray) -> IntArray:
        """Unsigned integers of 32 bits."""
        if not _any_bits(at) & 3:
            words: IntArray = self._words.take(at >> 2).astype(np.int64)
            return words
        return self._gathered(at, "<u4")

    def i64(self, at: IntArray) -> IntArray:
        """Signed integers of 64 bits."""
        return self._gathered(at, "<i8")

    def number(self, at: IntArray, size_bytes: int) -> IntArray:
        """Integers of 1, 2 or 4 bytes, as unsigned ones."""
        if size_bytes == 1:
            held: IntArray = self.bytes.take(at).astype(np.int64)
            return held
        return self.u16(at) if size_bytes == 2 else self.u32(at)

    def _gathered(self, at: IntArray, form: str) -> IntArray:
        held = np.ascontiguousarray(self.bytes[at[:, None] + np.arange(np.dtype(form).itemsize)])
        out: IntArray = held.view(form)[:, 0].astype(np.int64)
        return out

    def follow_offsets(self, at: IntArray) -> tuple[IntArray, BoolArray]:
        """Where offsets lead, 0 for nowhere; and whether those that are there lead somewhere."""
        distances = self.u32(at)
        targets = at + distances
        if len(at) and at.min() > 0 and distances.min() > 0 and targets.max() + 4 <= self.size:
            return targets, np.ones(len(at), bool)
        sound = (distances > 0) & (targets + 4 <= self.size)
        there = at > 0
        return np.where(there & sound, targets, 0), sound | ~there

    def texts(self, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Where strings begin, their lengths, and whether all of each is there; absent ones are empty."""
        targets, sound = self.follow_offsets(at)
        lengths = np.where(targets > 0, self.u32(targets), 0)
        return targets + 4, lengths, sound & (targets + 4 + lengths <= self.size)

    def counts(self, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Where the items of vectors of offsets begin, how many there are, and whether they are there; absent ones have
        none.
        """
        targets, sound = self.follow_offsets(at)
        counts = np.where(targets > 0, self.u32(targets), 0)
        sound &= targets + 4 + 4 * counts <= self.size
        return targets + 4, np.where(sound, counts, 0), sound

    def equal(self, starts: IntArray, lengths: IntArray, text: bytes) -> BoolArray:
        """Whether strings are this one; those of its length have no more bytes than the message, taken together."""
        same: BoolArray = (lengths == len(text)) & (starts + len(text) <= self.size)
        if text:
            rows = np.flatnonzero(same)
            held = self.bytes[starts[rows, None] + np.arange(len(text))]
            same[rows] = (held == np.frombuffer(text, np.uint8)).all(axis=1)
        return same


def _any_bits(at: IntArray) -> int:
    """The bits that are set in any position."""
    return int(np.bitwise_or.reduce(at))


def vector_items(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Which vector each item of all of them is of, and where it is; items are 4 bytes long."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.repeat(starts - 4 * firsts, counts) + 4 * np.arange(len(owners))


class Tables:
    """Many tables: where their slots are."""

    __slots__ = ("_shared", "_vtables", "_widths", "_words", "at", "sizes", "sound")

    def __init__(self, words: ByteReader, at: IntArray, sound: BoolArray) -> None:
        self._words, size = words, words.size
        at = at if sound.all() else np.where(sound, at, 0)
        vtables = at - words.u32(at).astype(np.int32)  # signed
        self._shared = _shared_vtable(words, vtables, at) if sound.all() else None
        if self._shared is not None:
            self.at, self.sound = at, sound
            return
        sound = sound & (vtables >= 0) & (vtables <= size - 4)
        vtables = np.where(sound, vtables, 0)
        widths, sizes = words.u16(vtables), words.u16(vtables + 2)
        sound &= (widths >= 4) & (widths & 1 == 0) & (vtables + widths <= size)
        sound &= (sizes >= 4) & (at + sizes <= size)
        self._vtables = vtables
        self._widths = widths
        self.at = at
        self.sizes = sizes
        self.sound = sound
        """Whether a table can be read at all."""

    def slot(self, number: int, size_bytes: int) -> tuple[IntArray, BoolArray]:
        """Where a slot of so many bytes is, 0 where it is absent; and whether it is within its table."""
        entry = 4 + 2 * number
        if self._shared is not None:
            width, size, vtable = self._shared
            offset = _U16.unpack_from(self._words.raw, vtable + entry)[0] if entry + 2 <= width else 0
            is_inside = offset >= 4 and offset + size_bytes <= size
            return self.at + offset if is_inside else np.zeros_like(self.at), self.sound & (is_inside or offset == 0)
        there = self.sound & (self._widths >= entry + 2)
        offsets = np.where(there, self._words.u16(np.where(there, self._vtables + entry, 0)), 0)
        inside = (offsets >= 4) & (offsets + size_bytes <= self.sizes)
        return np.where(inside, self.at + offsets, 0), self.sound & (inside | (offsets == 0))


def _shared_vtable(words: ByteReader, vtables: IntArray, at: IntArray) -> tuple[int, int, int] | None:
    """Width of the vtable, size of a table, place of the vtable: where all have the same one, and are sound."""
    if not len(at) or (vtables != vtables[0]).any():
        return None
    vtable = int(vtables[0])
    if not 0 <= vtable <= words.size - 4:
        return None
    width, size = _VTABLE.unpack_from(words.raw, vtable)
    is_sound = width >= 4 and width % 2 == 0 and vtable + width <= words.size and size >= 4
    return (width, size, vtable) if is_sound and int(at.max()) + size <= words.size else None
