"""The `Field` tables of a schema, all at once («Schema message»): vectorised reading of what most fields are.

Each step checks what `bowstring.flatbuf` checks when it follows an offset. What a step is not sure of (nested and
dictionary-encoded fields, custom metadata, and whatever looks malformed) is left to the reading of the field itself,
which says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.base import DataType
from bowstring.datatypes.field import Field, many_fields
from bowstring.errors import BowstringError
from bowstring.flatbuf.codec import Scalar, Slot, Table, TableSpec, Text
from bowstring.flatbuf.tables import SPECS, TYPES
from bowstring.ipc.type_tables import flat_examples, read_type
from bowstring.layouts.registry import layout_of

_FIELD = SPECS["Field"]
_U16, _U32, _VTABLE = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<HH")
_MAX_PLACES = 8
_WORTH_FIELDS = 20
_MAX_TYPES = 256
"""So many different types are told apart; the fields of further ones are read by themselves."""

Counts = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]
_Truths = npt.NDArray[np.bool_]


@lru_cache(1)
def _flat_counts() -> Counts:
    """Nodes, buffers and variadic counts by the number of a type, -1 for types with children."""
    counts = np.full((256, 3), -1, np.int64)
    for name, example in flat_examples():
        layout = layout_of(example)
        counts[TYPES.index(name)] = (1, len(layout.buffers), int(layout.VARIADIC))
    return counts


class _Words:
    """The bytes of a flatbuffer as little-endian integers at many positions, which must lie within it."""

    __slots__ = ("_halves", "_words", "bytes", "raw", "size")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.size = len(raw)
        self.bytes = np.frombuffer(raw, np.uint8)
        self._halves = self.bytes[: self.size // 2 * 2].view("<u2")
        self._words = self.bytes[: self.size // 4 * 4].view("<u4")

    def u16(self, at: Positions) -> Positions:
        if not (at & 1).any():
            halves: Positions = self._halves[at >> 1].astype(np.int64)
            return halves
        return self._gathered(at, "<u2")

    def u32(self, at: Positions) -> Positions:
        if not (at & 3).any():
            words: Positions = self._words[at >> 2].astype(np.int64)
            return words
        return self._gathered(at, "<u4")

    def number(self, at: Positions, size_bytes: int) -> Positions:
        """Integers of 1, 2 or 4 bytes, as unsigned ones."""
        if size_bytes == 1:
            held: Positions = self.bytes[at].astype(np.int64)
            return held
        return self.u16(at) if size_bytes == 2 else self.u32(at)

    def _gathered(self, at: Positions, form: str) -> Positions:
        held = np.ascontiguousarray(self.bytes[at[:, None] + np.arange(np.dtype(form).itemsize)])
        out: Positions = held.view(form)[:, 0].astype(np.int64)
        return out

    def followed(self, at: Positions) -> tuple[Positions, _Truths]:
        """Where offsets lead, 0 for nowhere; and whether they do lead somewhere. Nothing is followed at 0."""
        distances = self.u32(at)
        targets = at + distances
        sound = (distances > 0) & (targets + 4 <= self.size)
        there = at > 0
        return np.where(there & sound, targets, 0), sound | ~there

    def texts(self, at: Positions) -> tuple[Positions, Positions, _Truths]:
        """Where strings begin, their lengths, and whether all of them is there; `at` as `followed`."""
        targets, sound = self.followed(at)
        lengths = np.where(targets > 0, self.u32(targets), 0)
        return targets + 4, lengths, sound & (targets + 4 + lengths <= self.size)

    def equal(self, starts: Positions, lengths: Positions, text: bytes) -> _Truths:
        """Whether strings are this one."""
        same: _Truths = lengths == len(text)
        if text:
            rows = np.flatnonzero(same)
            held = self.bytes[starts[rows, None] + np.arange(len(text))]
            same[rows] = (held == np.frombuffer(text, np.uint8)).all(axis=1)
        return same


class _Tables:
    """Many tables: where their slots are."""

    __slots__ = ("_shared", "_vtables", "_widths", "_words", "at", "sizes", "sound")

    def __init__(self, words: _Words, at: Positions, sound: _Truths) -> None:
        self._words, size = words, words.size
        at = at if sound.all() else np.where(sound, at, 0)
        back = words.u32(at)
        vtables = at - np.where(back >= 1 << 31, back - (1 << 32), back)
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

    def slot(self, number: int, size_bytes: int) -> tuple[Positions, _Truths]:
        """Where a slot of so many bytes is, 0 where it is absent; and whether it is within its table."""
        entry = 4 + 2 * number
        if self._shared is not None:
            width, size, offsets_at = self._shared
            offset = _U16.unpack_from(self._words.raw, offsets_at + entry)[0] if entry + 2 <= width else 0
            is_inside = offset >= 4 and offset + size_bytes <= size
            return self.at + offset if is_inside else np.zeros_like(self.at), self.sound & (is_inside or offset == 0)
        there = self.sound & (self._widths >= entry + 2)
        offsets = np.where(there, self._words.u16(np.where(there, self._vtables + entry, 0)), 0)
        inside = (offsets >= 4) & (offsets + size_bytes <= self.sizes)
        return np.where(inside, self.at + offsets, 0), self.sound & (inside | (offsets == 0))


def _shared_vtable(words: _Words, vtables: Positions, at: Positions) -> tuple[int, int, int] | None:
    """Width of the vtable, size of a table, place of the vtable: where all have the same one, and are sound."""
    if not len(at) or (vtables != vtables[0]).any():
        return None
    vtable = int(vtables[0])
    if not 0 <= vtable <= words.size - 4:
        return None
    width, size = _VTABLE.unpack_from(words.raw, vtable)
    is_sound = width >= 4 and width % 2 == 0 and vtable + width <= words.size and size >= 4
    return (width, size, vtable) if is_sound and int(at.max()) + size <= words.size else None


@dataclass(frozen=True, slots=True)
class FieldTables:
    """The `Field` tables of a schema, and what is sure of them."""

    schema: Table
    words: _Words
    tables: _Tables
    names: Positions
    """Where each name's offset is; 0 where that is not sure."""
    counts: Counts
    """Nodes, buffers and variadic counts of each field; -1 for what only its reading tells."""

    @classmethod
    def of(cls, schema: Table) -> FieldTables:
        """The fields of a `Schema` table. Raises `LimitError` where they are too many."""
        words = _Words(schema.message.data)
        start, count = schema.children_span("fields")
        schema.message.expect_tables(2 * count)  # a field and its type
        slots = start + 4 * np.arange(count, dtype=np.int64)
        at, sound = words.followed(slots)
        tables = _Tables(words, at, sound)
        names, _ = tables.slot(_number("name"), 4)
        kinds, _ = tables.slot(_number("type_type"), 1)
        dictionaries, plain = tables.slot(_number("dictionary"), 4)
        flat = (kinds > 0) & plain & (dictionaries == 0) & _is_empty(words, tables, "children")
        counts = _flat_counts()[np.where(flat, words.bytes[kinds], 0)]
        return cls(schema, words, tables, names, counts)

    def __len__(self) -> int:
        return len(self.names)

    def named(self, name: bytes) -> Positions | None:
        """The positions of the fields of this name; None where it is not sure of every name."""
        if not self.names.all():
            return None
        targets, sound = self.words.followed(self.names)
        text = _U32.pack(len(name)) + name
        found: list[Positions] = []
        at = self.words.raw.find(text)
        while at >= 0 and len(found) < _MAX_PLACES:
            found.append(np.flatnonzero(targets == at))
            at = self.words.raw.find(text, at + 1)
        if at < 0 and sound.all():
            return np.concatenate(found) if found else np.empty(0, np.int64)
        starts, lengths, sound = self.words.texts(self.names)
        return np.flatnonzero(self.words.equal(starts, lengths, name)) if sound.all() else None

    def read(self) -> list[Field | None]:
        """The fields that have no children, no dictionary and no custom metadata; None for those that are left to be
        read by themselves.
        """
        out: list[Field | None] = [None] * len(self)
        if len(out) < _WORTH_FIELDS:
            return out
        words, message = self.words, self.schema.message
        starts, lengths, sound = words.texts(self.names)
        flags, whole = self.tables.slot(_number("nullable"), 1)
        sound &= (self.counts[:, 0] >= 0) & (self.names > 0) & whole & _is_empty(words, self.tables, "custom_metadata")
        rows, numbers, types = self._types(np.flatnonzero(sound))
        if 2 * len(rows) > message.tables_left or int(lengths[rows].sum()) > message.text_left:
            return out
        nullable = ((flags > 0) & (words.bytes[flags] != 0))[rows].tolist()
        ends = (starts + lengths)[rows].tolist()
        raw = words.raw
        try:
            names = [raw[start:end].decode() for start, end in zip(starts[rows].tolist(), ends, strict=True)]
        except UnicodeDecodeError:
            return out
        message.tables_left -= 2 * len(rows)
        message.text_left -= int(lengths[rows].sum())
        made = many_fields(names, [types[number] for number in numbers.tolist()], nullable)
        if len(made) == len(out):
            return list(made)
        for row, field in zip(rows.tolist(), made, strict=True):
            out[row] = field
        return out

    def _types(self, rows: Positions) -> tuple[Positions, Positions, Sequence[DataType]]:
        """Those of the fields at `rows` whose types are known, the number of the type of each, and the types."""
        words = self.words
        kinds, _ = self.tables.slot(_number("type_type"), 1)
        offsets, whole = self.tables.slot(_number("type"), 4)
        at, sound = words.followed(offsets)
        tables = _Tables(words, at, sound & whole & (offsets > 0))
        kind_of = np.where(tables.sound, words.bytes[kinds], 0)
        numbers = np.full(len(self), -1, np.int64)
        types: list[DataType] = []
        for kind in np.flatnonzero(np.bincount(kind_of[rows])).tolist():
            left = rows[kind_of[rows] == kind]
            if kind == 0:
                continue
            slots = [(slot, *tables.slot(slot.number, _size_bytes(slot))) for slot in _spec(kind).slots.values()]
            left = left[np.logical_and.reduce([whole[left] for _, _, whole in slots])] if slots else left
            keys = [_Key(words, slot, place) for slot, place, _ in slots]
            while len(left) and len(types) < _MAX_TYPES:
                first = int(left[0])
                try:
                    types.append(read_type(self.schema.child_at("fields", first), []))
                except BowstringError:
                    types.append(_UNREAD)
                alike = np.ones(len(left), bool)
                for key in keys:
                    alike &= key.equal(left, first)
                if types[-1] is not _UNREAD:
                    numbers[left[alike]] = len(types) - 1
                left = left[~alike]
        known = rows[numbers[rows] >= 0]
        return known, numbers[known], types


class _Key:
    """What one slot of many type tables says: a number or a string."""

    __slots__ = ("_starts", "_values", "_words")

    def __init__(self, words: _Words, slot: Slot, places: Positions) -> None:
        self._words = words
        self._starts: Positions | None = None
        if isinstance(slot.kind, Text):
            self._starts, lengths, sound = words.texts(places)
            self._values = np.where(places > 0, np.where(sound, lengths, -2), -1)
        else:
            values = words.number(np.where(places > 0, places, 0), _size_bytes(slot))
            self._values = np.where(places > 0, values, -1)

    def equal(self, rows: Positions, first: int) -> _Truths:
        """Whether the slot says at `rows` what it says at `first`; an absent one is like none that is there."""
        same: _Truths = self._values[rows] == self._values[first]
        length = int(self._values[first])
        if self._starts is None or length < 0:
            return same
        start = int(self._starts[first])
        return self._words.equal(self._starts[rows], self._values[rows], self._words.raw[start : start + length])


_UNREAD = DataType()


def _number(name: str) -> int:
    return _FIELD.slots[name].number


def _spec(kind: int) -> TableSpec:
    return SPECS[TYPES[kind]]


def _size_bytes(slot: Slot) -> int:
    return slot.kind.packer.size if isinstance(slot.kind, Scalar) else 4


def _is_empty(words: _Words, tables: _Tables, name: str) -> _Truths:
    """Whether a vector of tables is absent or has no items."""
    places, whole = tables.slot(_number(name), 4)
    starts, sound = words.followed(places)
    empty: _Truths = whole & sound & ((starts == 0) | (words.u32(starts) == 0))
    return empty
