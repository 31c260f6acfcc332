"""Read many tables of one specification at once with NumPy.

`TableArray` corresponds to `bowstring.flatbuf.reader.FlatTable`: it reads the same specifications and applies the same
rules (`bowstring.flatbuf.bounds`). Instead of raising an error it returns for each table whether the rules hold;
reading an invalid table with `FlatTable` raises the error.

Positions from untrusted offsets are replaced by 0 unless they are in bounds. A flatbuffer has at least 8 bytes, so
position 0 can always be read, and its value is ignored.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.flatbuf.bounds import is_valid_offset, is_valid_slot, is_valid_table, is_valid_vector, is_valid_vtable
from bowstring.flatbuf.reader import Flatbuffer
from bowstring.flatbuf.specs import ScalarSlot, String, TableSpec, TableVector, Vector

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_U16_OFFSET = struct.Struct("<H")
_VTABLE = struct.Struct("<HH")
# Explicitly little-endian: on a big-endian machine, the views of `read_integers` still read the flatbuffer's order.
_U8, _U16, _U32, _I32 = np.dtype("u1"), np.dtype("<u2"), np.dtype("<u4"), np.dtype("<i4")


class VectorSpans(NamedTuple):
    """The elements of strings or vectors: the position of the first and the length of each, 0 if absent or not
    valid.
    """

    starts: IntArray
    lengths: IntArray
    is_valid: BoolArray


class VectorizedReader:
    """Reads values of a flatbuffer at many positions at once, which must be in bounds; integers are little-endian.

    Position 0 means an absent value.
    """

    __slots__ = ("_views", "bytes", "raw", "size", "specs")

    def __init__(self, flatbuffer: Flatbuffer) -> None:
        self.specs = flatbuffer.specs
        self.raw = flatbuffer.raw
        self.size = flatbuffer.size
        self.bytes = np.frombuffer(self.raw, _U8)
        self._views = {1: self.bytes}

    def read_integers(self, positions: IntArray, dtype: np.dtype[Any]) -> IntArray:
        """Read an integer of `dtype` at each position."""
        item_bytes = dtype.itemsize
        # Writers align integers, but a hostile one need not: if one is unaligned, all are read byte by byte.
        # The widths are powers of two, so one OR over all positions shows whether any is unaligned.
        if int(np.bitwise_or.reduce(positions)) & (item_bytes - 1):
            # Shape (positions, item_bytes), contiguous, so that a row is viewed as one integer.
            rows = np.ascontiguousarray(self.bytes[positions[:, None] + np.arange(item_bytes)])
            unaligned: IntArray = rows.view(dtype)[:, 0].astype(np.int64)
            return unaligned
        view = self._views.get(item_bytes)
        if view is None:
            # The tail shorter than an item is cut off: no position in bounds is aligned and reaches into it.
            view = self._views[item_bytes] = self.bytes[: self.size // item_bytes * item_bytes].view(f"u{item_bytes}")
        # Read as unsigned and then viewed, so that one view serves all types of a width. In int64, sums of positions,
        # 32-bit distances and lengths can't overflow.
        aligned: IntArray = view.take(positions >> (item_bytes.bit_length() - 1)).view(dtype).astype(np.int64)
        return aligned

    def follow_offsets(self, positions: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the targets of offsets, 0 if absent or not valid, and whether each is absent or valid."""
        distances = self.read_integers(positions, _U32)
        # Up to 2**32 beyond the end until the next line checks it; nothing is read there before.
        targets = positions + distances
        is_valid: BoolArray = is_valid_offset(distances, targets, self.size)
        # Usually all are present and valid, so that no mask is needed.
        if positions.all() and is_valid.all():
            return targets, is_valid
        return np.where((positions > 0) & is_valid, targets, 0), is_valid | (positions == 0)

    def locate_elements(self, targets: IntArray, is_valid: BoolArray, item_bytes: int) -> VectorSpans:
        """Return the elements of the strings or vectors at `targets`, where `is_valid`, both from `follow_offsets`."""
        # At target 0 this reads bytes that are not a length: they are replaced by 0 below.
        lengths = self.read_integers(targets, _U32)
        if not targets.all():
            lengths = np.where(targets > 0, lengths, 0)
        starts = targets + 4
        is_valid = is_valid & is_valid_vector(starts, lengths, item_bytes, self.size)
        return VectorSpans(starts, lengths if is_valid.all() else np.where(is_valid, lengths, 0), is_valid)


def flatten_table_vectors(vectors: VectorSpans) -> tuple[IntArray, IntArray]:
    """Return for each offset in vectors of tables the index of its vector and its position."""
    # The caller bounds the sum of the lengths: vectors may overlap, so it can exceed the flatbuffer's size.
    owners = np.repeat(np.arange(len(vectors.lengths)), vectors.lengths)
    # An offset's number, less the number of its vector's first, is its index there: start + 4 * (number - first).
    firsts = np.cumsum(vectors.lengths) - vectors.lengths
    return owners, np.repeat(vectors.starts - 4 * firsts, vectors.lengths) + 4 * np.arange(len(owners))


class _SharedVtable(NamedTuple):
    """A vtable that all tables share: its size, the size of the tables, and its position.

    Writers store equal vtables once, so this is the usual case, in which slots need no look-up for each table.
    """

    vtable_size: int
    table_size: int
    position: int


class TableArray:
    """The tables at `positions`, where `is_valid`; absent and invalid slots have their default value.

    `is_valid` is the mask of readable tables.
    """

    __slots__ = ("_reader", "_shared", "_sizes", "_spec", "_vtable_sizes", "_vtables", "is_valid", "positions")

    _vtables: IntArray
    _vtable_sizes: IntArray
    _sizes: IntArray

    def __init__(self, reader: VectorizedReader, spec: TableSpec, positions: IntArray, is_valid: BoolArray) -> None:
        self._reader = reader
        self._spec = spec
        is_every_valid = bool(is_valid.all())
        self.positions = positions if is_every_valid else np.where(is_valid, positions, 0)
        self.is_valid = is_valid
        vtables = self.positions - reader.read_integers(self.positions, _I32)
        # Only if all tables are valid: an invalid one has position 0 and so another "vtable", which would never equal
        # the others.
        self._shared = _find_shared_vtable(reader, vtables, self.positions) if is_every_valid else None
        if self._shared is not None:
            return
        is_valid = is_valid & is_valid_vtable(vtables, reader.size)
        # Vtables of 0 are read below, as any position in bounds may be; the result is masked by `is_valid`.
        self._vtables = np.where(is_valid, vtables, 0)
        self._vtable_sizes = reader.read_integers(self._vtables, _U16)
        self._sizes = reader.read_integers(self._vtables + 2, _U16)
        self.is_valid = is_valid & is_valid_table(
            self.positions, self._sizes, self._vtables, self._vtable_sizes, reader.size
        )

    def __len__(self) -> int:
        return len(self.positions)

    def locate_slot(self, name: str) -> tuple[IntArray, BoolArray]:
        """Return the position of a slot in each table, 0 if absent or not valid, and whether it is absent or valid."""
        slot = self._spec.slots[name]
        vtable_offset, inline_bytes = slot.vtable_offset, slot.type.inline_bytes
        if self._shared is not None:
            vtable_size, table_size, vtable = self._shared
            offset = (
                _U16_OFFSET.unpack_from(self._reader.raw, vtable + vtable_offset)[0]
                if vtable_offset < vtable_size
                else 0
            )
            is_inside = is_valid_slot(offset, inline_bytes, table_size)
            positions = self.positions + offset if is_inside else np.zeros_like(self.positions)
            return positions, self.is_valid & (is_inside or offset == 0)
        has_entry = self.is_valid & (vtable_offset < self._vtable_sizes)
        # An entry before the end of its vtable is in the flatbuffer, because `is_valid_table` required whole entries.
        offsets = self._reader.read_integers(np.where(has_entry, self._vtables + vtable_offset, 0), _U16)
        is_inside = has_entry & is_valid_slot(offsets, inline_bytes, self._sizes)
        is_absent = ~has_entry | (offsets == 0)
        return np.where(is_inside, self.positions + offsets, 0), self.is_valid & (is_inside | is_absent)

    def read_numbers(self, name: str) -> tuple[IntArray, BoolArray]:
        """Return the numbers of a slot, 0 or 1 for booleans, and whether each is absent or valid."""
        type_ = self._spec.slots[name].type
        assert isinstance(type_, ScalarSlot)
        positions, is_valid = self.locate_slot(name)
        is_bool = type_.dtype.kind == "b"
        # Numbers of 64 bits are signed in all specifications of Arrow, so that int64 has room for each.
        numbers = self._reader.read_integers(positions, _U8 if is_bool else type_.dtype)
        if is_bool:
            numbers = (numbers != 0).astype(np.int64)
        return (numbers if positions.all() else np.where(positions > 0, numbers, type_.default)), is_valid

    def locate_elements(self, name: str) -> VectorSpans:
        """Return the elements of the strings or vectors of a slot."""
        type_ = self._spec.slots[name].type
        assert isinstance(type_, String | Vector | TableVector)
        return self._reader.locate_elements(*self.follow_offsets(name), type_.item_bytes)

    def follow_offsets(self, name: str) -> tuple[IntArray, BoolArray]:
        """Return the targets of a slot's offsets, 0 if absent or not valid, and whether each is absent or valid."""
        positions, is_valid = self.locate_slot(name)
        targets, is_in_bounds = self._reader.follow_offsets(positions)
        return targets, is_valid & is_in_bounds


def _find_shared_vtable(reader: VectorizedReader, vtables: IntArray, positions: IntArray) -> _SharedVtable | None:
    """Return the vtable if all tables share a valid one, else None."""
    if not len(positions) or (vtables != vtables[0]).any():
        return None
    vtable = int(vtables[0])
    if not is_valid_vtable(vtable, reader.size):
        return None
    vtable_size, table_size = _VTABLE.unpack_from(reader.raw, vtable)
    # All tables have the same size: if the last one ends in the flatbuffer, all do.
    is_valid = is_valid_table(int(positions.max()), table_size, vtable, vtable_size, reader.size)
    return _SharedVtable(vtable_size, table_size, vtable) if is_valid else None
