"""The `Field` tables of a schema, all at once («Schema message»): level by level, by NumPy.

What a step is not sure of (extensions, unions and the like, and whatever looks malformed) is
left to the reading of the field itself, which says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from bowstring.datatypes import types
from bowstring.datatypes.base import DataType
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Field, Metadata, make_fields
from bowstring.errors import BowstringError, InvalidDataError
from bowstring.flatbuf.reader import Message, Scalar, Slot, Table, TableSpec, Text
from bowstring.flatbuf.tables import SPECS, TYPES
from bowstring.flatbuf.vectorized_reader import BoolArray, ByteReader, IntArray, Tables, vector_items
from bowstring.ipc.metadata.schema import DictionaryId
from bowstring.ipc.metadata.types import flat_examples, read_type
from bowstring.layouts import text
from bowstring.layouts.gather import gather
from bowstring.layouts.registry import layout_of

_FIELD = SPECS["Field"]
_KEY, _VALUE = (SPECS["KeyValue"].slots[name].number for name in ("key", "value"))
_ENCODING = {
    name: SPECS["DictionaryEncoding"].slots[slot].number
    for name, slot in (("id", "id"), ("indexType", "indexType"), ("isOrdered", "isOrdered"), ("kind", "dictionaryKind"))
}
_BIT_WIDTH, _IS_SIGNED = (SPECS["Int"].slots[name].number for name in ("bitWidth", "is_signed"))
_U32 = struct.Struct("<I")
_MAX_PLACES = 8
_WORTH_FIELDS = 20
_MAX_TYPES = 256
"""So many different types are told apart; the fields of further ones are read by themselves."""

Counts = npt.NDArray[np.int64]


@lru_cache(1)
def _known_counts() -> tuple[Counts, Counts, IntArray]:
    """By the number of a type: nodes, buffers and variadic counts of one without children, -1 for others; the same of
    one with children, without theirs; and how many children it has, -1 for any number.
    """
    flat, nested = np.full((256, 3), -1, np.int64), np.full((256, 3), -1, np.int64)
    children = np.zeros(256, np.int64)
    for name, example in flat_examples():
        layout = layout_of(example)
        flat[TYPES.index(name)] = (1, len(layout.buffers), int(layout.VARIADIC))
    item, entry = Field("item", types.Int(8)), Field("key", types.Int(8), nullable=False)
    for name, nesting in (
        *((name, made(item)) for name, made in _LISTS.items()),
        ("FixedSizeList", types.FixedSizeList(item, 1)),
        ("Map", types.Map(Field("entries", types.Struct((entry, item)), nullable=False))),
        ("Struct_", types.Struct((item,))),
    ):
        nested[TYPES.index(name)] = (1, len(layout_of(nesting).buffers), 0)
        children[TYPES.index(name)] = -1 if name == "Struct_" else 1
    return flat, nested, children


_LISTS: dict[str, type[types.ListLike]] = {
    "List": types.List,
    "LargeList": types.LargeList,
    "ListView": types.ListView,
    "LargeListView": types.LargeListView,
}
Nodes: TypeAlias = dict[int, tuple[DictionaryId, ...]]
_ENCODED_COUNTS = (1, 2, 0)
"""Of a dictionary-encoded field, whatever its values: validity and indices."""


class FieldTables:
    """The `Field` tables of one level of a schema, and what is sure of them; each step is taken when it is asked for.

    `slots` is where the offsets of the tables are. So many levels of them may be there, and so many tables below.
    """

    def __init__(self, message: Message, words: ByteReader, slots: IntArray, depth: int, tables_left: int) -> None:
        self.message = message
        self.words = words
        self._slots = slots
        self._depth = depth
        self._tables_left = tables_left

    @classmethod
    def of(cls, schema: Table, max_depth: int = 64) -> FieldTables:
        """The fields of a `Schema` table. Raises `LimitError` where they are too many."""
        message = schema.message
        start, count = schema.children_span("fields")
        message.expect_tables(2 * count)  # a field and its type
        slots = start + 4 * np.arange(count, dtype=np.int64)
        return cls(message, ByteReader(message.data), slots, max_depth, message.tables_left - 2 * count)

    def __len__(self) -> int:
        return len(self._slots)

    @cached_property
    def tables(self) -> Tables:
        """The tables themselves."""
        return Tables(self.words, *self.words.follow_offsets(self._slots))

    @cached_property
    def names(self) -> IntArray:
        """Where each name's offset is; 0 where that is not sure."""
        return self.tables.slot(_number("name"), 4)[0]

    @cached_property
    def _children(self) -> tuple[IntArray, FieldTables | None]:
        vectors, whole = self.tables.slot(_number("children"), 4)
        starts, counts, sound = self.words.counts(vectors)
        child_counts = np.where(whole & sound, counts, -1)
        counts = np.maximum(child_counts, 0)
        total = int(counts.sum())
        if not total or self._depth <= 1 or 2 * total > self._tables_left:
            return child_counts, None
        _, slots = vector_items(starts, counts)
        tables_left = self._tables_left - 2 * total
        return child_counts, FieldTables(self.message, self.words, slots, self._depth - 1, tables_left)

    @property
    def child_counts(self) -> IntArray:
        """How many children each has, -1 where that is not sure."""
        return self._children[0]

    @property
    def below(self) -> FieldTables | None:
        """The children of all of them, one after the other."""
        return self._children[1]

    @cached_property
    def counts(self) -> Counts:
        """Nodes, buffers and variadic counts of each field; -1 for what only its reading tells."""
        kinds, _ = self.tables.slot(_number("type_type"), 1)
        dictionaries, plain = self.tables.slot(_number("dictionary"), 4)
        child_counts, below = self.child_counts, self.below
        flat, nested, wanted = _known_counts()
        numbers = np.where(plain & (kinds > 0), self.words.bytes.take(kinds), 0)
        counts: Counts = flat.take(np.where(child_counts == 0, numbers, 0), axis=0)
        if below is not None:
            owners = np.repeat(np.arange(len(self)), np.maximum(child_counts, 0))
            sums = np.zeros_like(counts)
            np.add.at(sums, owners, below.counts)
            broken = np.bincount(owners[below.counts[:, 0] < 0], minlength=len(self)) > 0
            fits = (child_counts > 0) & ~broken & (nested[numbers, 0] > 0)
            fits &= (wanted[numbers] < 0) | (wanted[numbers] == child_counts)
            counts = np.where(fits[:, None], nested[numbers] + sums, counts)
        encoded = plain & (dictionaries > 0) & (kinds > 0)
        if encoded.any():
            counts = np.where(encoded[:, None], np.array(_ENCODED_COUNTS), counts)
        return counts

    def texts(self) -> list[str] | None:
        """The names; None where it is not sure of every one."""
        found = self._sure_names()
        try:
            return None if found is None else _names(self.words, *found)
        except InvalidDataError:
            return None

    def named(self, name: bytes) -> IntArray | None:
        """The positions of the fields of this name; None where it is not sure of every name."""
        if not self.names.all():
            return None
        targets, sound = self.words.follow_offsets(self.names)
        text = _U32.pack(len(name)) + name
        found: list[IntArray] = []
        at = self.words.raw.find(text)
        while at >= 0 and len(found) < _MAX_PLACES:
            found.append(np.flatnonzero(targets == at))
            at = self.words.raw.find(text, at + 1)
        if at < 0 and sound.all():
            return np.concatenate(found) if found else np.empty(0, np.int64)
        places = self._sure_names()
        return None if places is None else np.flatnonzero(self.words.equal(*places, name))

    def _sure_names(self) -> tuple[IntArray, IntArray] | None:
        """Where names begin, and their lengths; None where that is not sure of all, or they have bytes in common."""
        starts, lengths, sound = self.words.texts(self.names)
        is_sure = self.names.all() and sound.all() and int(lengths.sum()) <= self.words.size
        return (starts, lengths) if is_sure else None

    def read(self) -> tuple[list[Field | None], Nodes]:
        """The fields, with their children; None for those that are left to be read by themselves. And by its position
        the dictionaries that a walk over a field's array meets, where there are any.
        """
        return self._read() if len(self) >= _WORTH_FIELDS else ([None] * len(self), {})

    def _read(self) -> tuple[list[Field | None], Nodes]:
        out: list[Field | None] = [None] * len(self)
        words, message = self.words, self.message
        starts, lengths, sound = words.texts(self.names)
        flags, whole = self.tables.slot(_number("nullable"), 1)
        sound &= (self.names > 0) & whole
        pairs = self._pairs(sound)
        known = _Known(len(self))
        self._types(np.flatnonzero(sound), known)
        encoded = self._encode(known)
        rows, nodes = np.flatnonzero(known.sure), known.nodes
        text_bytes = int(lengths[rows].sum()) + sum(len(k) + len(v) for held in pairs.values() for k, v in held)
        visited = 2 * len(rows) + 2 * encoded + sum(map(len, pairs.values()))
        if visited > message.tables_left or text_bytes > message.text_left:
            return out, {}
        nullable = ((flags > 0) & (words.bytes.take(flags) != 0))[rows].tolist()
        try:
            names = _names(words, starts[rows], lengths[rows])
        except InvalidDataError:
            return out, {}
        message.tables_left -= visited
        message.text_left -= text_bytes
        places = rows.tolist()
        metadata = [pairs.get(row, ()) for row in places] if pairs else [()] * len(places)
        made = make_fields(names, known.types[rows].tolist(), nullable, metadata)
        if len(made) == len(out):
            return list(made), nodes
        for row, field in zip(places, made, strict=True):
            out[row] = field
        return out, nodes

    def _pairs(self, sound: BoolArray) -> dict[int, Metadata]:
        """The custom metadata of the fields that have any; takes those out of `sound` that have to be read by
        themselves.
        """
        words = self.words
        vectors, whole = self.tables.slot(_number("custom_metadata"), 4)
        starts, counts, is_there = words.counts(vectors)
        sound &= whole & is_there
        counts = np.where(sound, counts, 0)
        total = int(counts.sum())
        if total > self.message.tables_left:
            sound &= counts == 0
            return {}
        if not total:
            return {}
        owners, slots = vector_items(starts, counts)
        tables = Tables(words, *words.follow_offsets(slots))
        (keys, fine), (values, well) = tables.slot(_KEY, 4), tables.slot(_VALUE, 4)
        key_starts, key_lengths, key_sound = words.texts(keys)
        value_starts, value_lengths, value_sound = words.texts(values)
        fine &= well & key_sound & value_sound & ~words.equal(key_starts, key_lengths, NAME_KEY)
        sound &= np.bincount(owners[~fine], minlength=len(self)) == 0
        kept = sound[owners]
        if int((key_lengths + value_lengths)[kept].sum()) > self.message.text_left:
            sound &= counts == 0
            return {}
        raw = words.raw
        spans = np.stack((key_starts, key_starts + key_lengths, value_starts, value_starts + value_lengths), 1)
        read = [(raw[a:b], raw[c:d]) for a, b, c, d in spans[kept].tolist()]
        out: dict[int, list[tuple[bytes, bytes]]] = {}
        for owner, pair in zip(owners[kept].tolist(), read, strict=True):
            out.setdefault(owner, []).append(pair)
        return {owner: tuple(held) for owner, held in out.items()}

    def _encode(self, known: _Known) -> int:
        """Make types of values the dictionaries that they are encoded with; how many there are. Takes out what has to
        be read by itself.
        """
        words = self.words
        places, whole = self.tables.slot(_number("dictionary"), 4)
        asked = np.flatnonzero(known.sure & ((places > 0) | ~whole))
        if not len(asked):
            return 0
        at, sound = words.follow_offsets(places[asked])
        encodings = Tables(words, at, sound & whole[asked] & (at > 0))
        (ids, fine), (orders, well) = encodings.slot(_ENCODING["id"], 8), encodings.slot(_ENCODING["isOrdered"], 1)
        (indices, good), (kinds, right) = (
            encodings.slot(_ENCODING["indexType"], 4),
            encodings.slot(_ENCODING["kind"], 2),
        )
        index_at, there = words.follow_offsets(indices)
        integers = Tables(words, index_at, there)
        (widths, wide), (signs, signed) = integers.slot(_BIT_WIDTH, 4), integers.slot(_IS_SIGNED, 1)
        fine &= well & good & right & there & ((indices == 0) | (integers.sound & wide & signed))
        fine &= (kinds == 0) | (words.u16(kinds) == 0)
        numbers = np.where(ids > 0, words.i64(ids), 0).tolist()
        bits = np.where(indices == 0, 32, np.where(widths > 0, words.u32(widths), 0)).tolist()
        is_signed = (indices == 0) | ((signs > 0) & (words.bytes[signs] != 0))
        ordered = ((orders > 0) & (words.bytes[orders] != 0)).tolist()
        made: dict[tuple[int, bool, bool, DataType], DataType | None] = {}
        for row, is_fine, id_, *parts in zip(
            asked.tolist(), fine.tolist(), numbers, bits, is_signed.tolist(), ordered, strict=True
        ):
            values, inside = known.types[row], known.nodes.pop(row, ())
            key = (*parts, values)
            if is_fine and key not in made:
                made[key] = _dictionary(*key)
            encoded = made[key] if is_fine else None
            known.sure[row] = encoded is not None
            if encoded is not None:
                known.types[row] = encoded
                known.nodes[row] = (DictionaryId(id_, values, inside),)
        return len(asked)

    def _types(self, rows: IntArray, known: _Known) -> None:
        """Find the types of those of the fields at `rows` that can be read at once, of the values where they are
        encoded; and the dictionaries inside them.
        """
        words = self.words
        kinds, _ = self.tables.slot(_number("type_type"), 1)
        offsets, whole = self.tables.slot(_number("type"), 4)
        at, sound = words.follow_offsets(offsets)
        tables = Tables(words, at, sound & whole & (offsets > 0))
        kind_of = np.where(tables.sound & (kinds > 0), words.bytes.take(kinds), 0)
        kind_of[kind_of >= len(TYPES)] = 0
        flat = rows[(self.counts[rows, 0] > 0) & (self.child_counts[rows] == 0)]
        for kind in np.flatnonzero(np.bincount(kind_of[flat])).tolist():
            if kind:
                self._flat_types(tables, kind, flat[kind_of[flat] == kind], known)
        nested = rows[(self.counts[rows, 0] > 0) & (self.child_counts[rows] > 0)]
        if self.below is not None and len(nested):
            children, inside = self.below._read()
            ends = np.cumsum(np.maximum(self.child_counts, 0)).tolist()
            for row, kind in zip(nested.tolist(), kind_of[nested].tolist(), strict=True):
                own = range(ends[row] - int(self.child_counts[row]), ends[row])
                made = self._nested_type(row, kind, [children[index] for index in own])
                if made is not None:
                    known.types[row], known.sure[row] = made, True
                    below = tuple(node for index in own for node in inside.get(index, ())) if inside else ()
                    if below:
                        known.nodes[row] = below

    def _flat_types(self, tables: Tables, kind: int, left: IntArray, known: _Known) -> None:
        slots = [(slot, *tables.slot(slot.number, _size_bytes(slot))) for slot in _spec(kind).slots.values()]
        left = left[np.logical_and.reduce([whole[left] for _, _, whole in slots])] if slots else left
        keys = [_Key(self.words, slot, place) for slot, place, _ in slots]
        if any(key.text_bytes(left) > self.words.size for key in keys):
            return  # they share a text, which is counted where each is read
        met = 0
        while len(left) and met < _MAX_TYPES:
            met += 1
            first = int(left[0])
            alike = np.ones(len(left), bool)
            for key in keys:
                alike &= key.equal(left, first)
            try:
                one = np.empty(1, object)
                one[0] = read_type(Table(self.message, _FIELD, int(self.tables.at[first])), [])
                known.types[left[alike]] = one
                known.sure[left[alike]] = True
            except BowstringError:
                pass
            left = left[~alike]

    def _nested_type(self, row: int, kind: int, children: Sequence[Field | None]) -> DataType | None:
        fields = [field for field in children if field is not None]
        if not kind or len(fields) < len(children):
            return None
        name = TYPES[kind]
        try:
            if name in _LISTS and len(fields) == 1:
                return _LISTS[name](fields[0])
            if name == "Struct_":
                return types.Struct(tuple(fields))
            return read_type(Table(self.message, _FIELD, int(self.tables.at[row])), fields)
        except BowstringError:
            return None


class _Known:
    """The types of fields that are known, by their positions, and the dictionaries in them."""

    __slots__ = ("nodes", "sure", "types")

    def __init__(self, count: int) -> None:
        self.types: npt.NDArray[np.object_] = np.empty(count, object)
        self.sure = np.zeros(count, bool)
        self.nodes: Nodes = {}


class _Key:
    """What one slot of many type tables says: a number or a string."""

    __slots__ = ("_starts", "_values", "_words")

    def __init__(self, words: ByteReader, slot: Slot, places: IntArray) -> None:
        self._words = words
        self._starts: IntArray | None = None
        if isinstance(slot.kind, Text):
            self._starts, lengths, sound = words.texts(places)
            self._values = np.where(places > 0, np.where(sound, lengths, -2), -1)
        else:
            self._values = np.where(places > 0, words.number(places, _size_bytes(slot)), -1)

    def text_bytes(self, rows: IntArray) -> int:
        """The bytes of the texts at `rows`, shared or not."""
        return 0 if self._starts is None else int(np.maximum(self._values[rows], 0).sum())

    def equal(self, rows: IntArray, first: int) -> BoolArray:
        """Whether the slot says at `rows` what it says at `first`; an absent one is like none that is there."""
        same: BoolArray = self._values[rows] == self._values[first]
        length = int(self._values[first])
        if self._starts is None or length < 0:
            return same
        start = int(self._starts[first])
        return self._words.equal(self._starts[rows], self._values[rows], self._words.raw[start : start + length])


def _names(words: ByteReader, starts: IntArray, lengths: IntArray) -> list[str]:
    """The strings at these places of a message; raises `InvalidDataError` where one is no UTF-8."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return cast("list[str]", text.decode_strings(gather(words.bytes, starts, lengths), offsets, None))


def _dictionary(bit_width: int, is_signed: bool, is_ordered: bool, values: DataType) -> DataType | None:
    try:
        return types.Dictionary(types.Int(bit_width, is_signed), values, is_ordered)
    except BowstringError:
        return None


def _number(name: str) -> int:
    return _FIELD.slots[name].number


def _spec(kind: int) -> TableSpec:
    return SPECS[TYPES[kind]]


def _size_bytes(slot: Slot) -> int:
    return slot.kind.packer.size if isinstance(slot.kind, Scalar) else 4
