"""Read all `Field` tables of a schema at once («Schema message»): level by level, with NumPy.

Fields that a step can't handle (extensions, unions and similar, and anything that looks malformed) are left to be read
individually, which raises the errors.
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
_MAX_MATCHES = 8
_MIN_FIELDS = 20
_MAX_TYPES = 256
"""The maximum number of distinct types; fields of further types are read individually."""

Counts = npt.NDArray[np.int64]


@lru_cache(1)
def _counts_by_type() -> tuple[Counts, Counts, IntArray]:
    """Return by type number: nodes, buffers and variadic counts of a type without children, -1 for others; the same of
    a type with children, without theirs; and its number of children, -1 for any.
    """
    flat, nested = np.full((256, 3), -1, np.int64), np.full((256, 3), -1, np.int64)
    children = np.zeros(256, np.int64)
    for name, example in flat_examples():
        layout = layout_of(example)
        flat[TYPES.index(name)] = (1, len(layout.buffers), int(layout.VARIADIC))
    item, entry = Field("item", types.Int(8)), Field("key", types.Int(8), nullable=False)
    for name, nesting in (
        *((name, list_class(item)) for name, list_class in _LISTS.items()),
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
"""Counts of a dictionary-encoded field of any value type: validity and indices."""


class FieldTables:
    """The `Field` tables of one level of a schema; each step is computed on access.

    `slots` are the positions of the offsets of the tables. `depth` limits the levels, `tables_left` the tables below.
    """

    def __init__(self, message: Message, reader: ByteReader, slots: IntArray, depth: int, tables_left: int) -> None:
        self.message = message
        self.reader = reader
        self._slots = slots
        self._depth = depth
        self._tables_left = tables_left

    @classmethod
    def of(cls, schema: Table, max_depth: int = 64) -> FieldTables:
        """Return the fields of a `Schema` table. Raises `LimitError` if there are too many."""
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
        return Tables(self.reader, *self.reader.follow_offsets(self._slots))

    @cached_property
    def names(self) -> IntArray:
        """The position of each name's offset; 0 if unknown."""
        return self.tables.slot(_slot_number("name"), 4)[0]

    @cached_property
    def _children(self) -> tuple[IntArray, FieldTables | None]:
        vectors, is_intact = self.tables.slot(_slot_number("children"), 4)
        starts, counts, is_valid = self.reader.counts(vectors)
        child_counts = np.where(is_intact & is_valid, counts, -1)
        counts = np.maximum(child_counts, 0)
        total = int(counts.sum())
        if not total or self._depth <= 1 or 2 * total > self._tables_left:
            return child_counts, None
        _, slots = vector_items(starts, counts)
        tables_left = self._tables_left - 2 * total
        return child_counts, FieldTables(self.message, self.reader, slots, self._depth - 1, tables_left)

    @property
    def child_counts(self) -> IntArray:
        """The number of children of each field, -1 if unknown."""
        return self._children[0]

    @property
    def below(self) -> FieldTables | None:
        """The children of all fields, concatenated."""
        return self._children[1]

    @cached_property
    def counts(self) -> Counts:
        """Nodes, buffers and variadic counts of each field; -1 if only reading the field can tell."""
        kinds, _ = self.tables.slot(_slot_number("type_type"), 1)
        dictionaries, is_intact = self.tables.slot(_slot_number("dictionary"), 4)
        child_counts, below = self.child_counts, self.below
        flat, nested, expected_children = _counts_by_type()
        numbers = np.where(is_intact & (kinds > 0), self.reader.bytes.take(kinds), 0)
        counts: Counts = flat.take(np.where(child_counts == 0, numbers, 0), axis=0)
        if below is not None:
            parents = np.repeat(np.arange(len(self)), np.maximum(child_counts, 0))
            sums = np.zeros_like(counts)
            np.add.at(sums, parents, below.counts)
            has_unknown_child = np.bincount(parents[below.counts[:, 0] < 0], minlength=len(self)) > 0
            fits = (child_counts > 0) & ~has_unknown_child & (nested[numbers, 0] > 0)
            fits &= (expected_children[numbers] < 0) | (expected_children[numbers] == child_counts)
            counts = np.where(fits[:, None], nested[numbers] + sums, counts)
        encoded = is_intact & (dictionaries > 0) & (kinds > 0)
        if encoded.any():
            counts = np.where(encoded[:, None], np.array(_ENCODED_COUNTS), counts)
        return counts

    def texts(self) -> list[str] | None:
        """Return the names; None if any is unknown."""
        name_spans = self._name_spans()
        try:
            return None if name_spans is None else _read_names(self.reader, *name_spans)
        except InvalidDataError:
            return None

    def named(self, name: bytes) -> IntArray | None:
        """Return the indices of the fields of this name; None if any name is unknown."""
        if not self.names.all():
            return None
        targets, is_valid = self.reader.follow_offsets(self.names)
        encoded = _U32.pack(len(name)) + name
        matches: list[IntArray] = []
        offset = self.reader.raw.find(encoded)
        while offset >= 0 and len(matches) < _MAX_MATCHES:
            matches.append(np.flatnonzero(targets == offset))
            offset = self.reader.raw.find(encoded, offset + 1)
        if offset < 0 and is_valid.all():
            return np.concatenate(matches) if matches else np.empty(0, np.int64)
        name_spans = self._name_spans()
        return None if name_spans is None else np.flatnonzero(self.reader.equal(*name_spans, name))

    def _name_spans(self) -> tuple[IntArray, IntArray] | None:
        """Return the starts and lengths of names; None if any is unknown, or if names share bytes."""
        starts, lengths, is_valid = self.reader.texts(self.names)
        is_sure = self.names.all() and is_valid.all() and int(lengths.sum()) <= self.reader.size
        return (starts, lengths) if is_sure else None

    def read(self) -> tuple[list[Field | None], Nodes]:
        """Return the fields with their children, None for those to be read individually, and the dictionaries of each
        field by its index, if any, in the order of a walk over its array.
        """
        return self._read() if len(self) >= _MIN_FIELDS else ([None] * len(self), {})

    def _read(self) -> tuple[list[Field | None], Nodes]:
        all_fields: list[Field | None] = [None] * len(self)
        reader, message = self.reader, self.message
        starts, lengths, is_valid = reader.texts(self.names)
        flags, is_intact = self.tables.slot(_slot_number("nullable"), 1)
        is_valid &= (self.names > 0) & is_intact
        pairs = self._read_metadata(is_valid)
        resolved = _ResolvedTypes(len(self))
        self._resolve_types(np.flatnonzero(is_valid), resolved)
        encoded = self._resolve_dictionaries(resolved)
        rows, nodes = np.flatnonzero(resolved.is_resolved), resolved.nodes
        text_bytes = int(lengths[rows].sum()) + sum(
            len(k) + len(v) for field_pairs in pairs.values() for k, v in field_pairs
        )
        table_count = 2 * len(rows) + 2 * encoded + sum(map(len, pairs.values()))
        if table_count > message.tables_left or text_bytes > message.text_left:
            return all_fields, {}
        nullable = ((flags > 0) & (reader.bytes.take(flags) != 0))[rows].tolist()
        try:
            names = _read_names(reader, starts[rows], lengths[rows])
        except InvalidDataError:
            return all_fields, {}
        message.tables_left -= table_count
        message.text_left -= text_bytes
        indices = rows.tolist()
        metadata = [pairs.get(row, ()) for row in indices] if pairs else [()] * len(indices)
        fields = make_fields(names, resolved.types[rows].tolist(), nullable, metadata)
        if len(fields) == len(all_fields):
            return list(fields), nodes
        for row, field in zip(indices, fields, strict=True):
            all_fields[row] = field
        return all_fields, nodes

    def _read_metadata(self, is_valid: BoolArray) -> dict[int, Metadata]:
        """Return the custom metadata of fields with any; clears `is_valid` for fields to be read individually."""
        reader = self.reader
        vectors, is_intact = self.tables.slot(_slot_number("custom_metadata"), 4)
        starts, counts, in_bounds = reader.counts(vectors)
        is_valid &= is_intact & in_bounds
        counts = np.where(is_valid, counts, 0)
        total = int(counts.sum())
        if total > self.message.tables_left:
            is_valid &= counts == 0
            return {}
        if not total:
            return {}
        owners, slots = vector_items(starts, counts)
        tables = Tables(reader, *reader.follow_offsets(slots))
        (keys, key_intact), (values, value_intact) = tables.slot(_KEY, 4), tables.slot(_VALUE, 4)
        key_starts, key_lengths, key_sound = reader.texts(keys)
        value_starts, value_lengths, value_sound = reader.texts(values)
        key_intact &= value_intact & key_sound & value_sound & ~reader.equal(key_starts, key_lengths, NAME_KEY)
        is_valid &= np.bincount(owners[~key_intact], minlength=len(self)) == 0
        is_kept = is_valid[owners]
        if int((key_lengths + value_lengths)[is_kept].sum()) > self.message.text_left:
            is_valid &= counts == 0
            return {}
        raw = reader.raw
        spans = np.stack((key_starts, key_starts + key_lengths, value_starts, value_starts + value_lengths), 1)
        pairs = [(raw[a:b], raw[c:d]) for a, b, c, d in spans[is_kept].tolist()]
        pairs_of_field: dict[int, list[tuple[bytes, bytes]]] = {}
        for owner, pair in zip(owners[is_kept].tolist(), pairs, strict=True):
            pairs_of_field.setdefault(owner, []).append(pair)
        return {owner: tuple(field_pairs) for owner, field_pairs in pairs_of_field.items()}

    def _resolve_dictionaries(self, resolved: _ResolvedTypes) -> int:
        """Replace value types by dictionary types; return the number of dictionary-encoded fields. Fields to be read
        individually become unresolved.
        """
        reader = self.reader
        offsets, is_intact = self.tables.slot(_slot_number("dictionary"), 4)
        encoded_rows = np.flatnonzero(resolved.is_resolved & ((offsets > 0) | ~is_intact))
        if not len(encoded_rows):
            return 0
        positions, is_valid = reader.follow_offsets(offsets[encoded_rows])
        encodings = Tables(reader, positions, is_valid & is_intact[encoded_rows] & (positions > 0))
        (ids, id_intact), (orders, order_intact) = (
            encodings.slot(_ENCODING["id"], 8),
            encodings.slot(_ENCODING["isOrdered"], 1),
        )
        (indices, index_intact), (kinds, kind_intact) = (
            encodings.slot(_ENCODING["indexType"], 4),
            encodings.slot(_ENCODING["kind"], 2),
        )
        index_at, index_in_bounds = reader.follow_offsets(indices)
        integers = Tables(reader, index_at, index_in_bounds)
        (widths, width_intact), (signs, sign_intact) = integers.slot(_BIT_WIDTH, 4), integers.slot(_IS_SIGNED, 1)
        id_intact &= (
            order_intact
            & index_intact
            & kind_intact
            & index_in_bounds
            & ((indices == 0) | (integers.sound & width_intact & sign_intact))
        )
        id_intact &= (kinds == 0) | (reader.u16(kinds) == 0)
        numbers = np.where(ids > 0, reader.i64(ids), 0).tolist()
        bits = np.where(indices == 0, 32, np.where(widths > 0, reader.u32(widths), 0)).tolist()
        is_signed = (indices == 0) | ((signs > 0) & (reader.bytes[signs] != 0))
        ordered = ((orders > 0) & (reader.bytes[orders] != 0)).tolist()
        dictionary_types: dict[tuple[int, bool, bool, DataType], DataType | None] = {}
        for row, is_intact_row, id_, *parts in zip(
            encoded_rows.tolist(), id_intact.tolist(), numbers, bits, is_signed.tolist(), ordered, strict=True
        ):
            values, inside = resolved.types[row], resolved.nodes.pop(row, ())
            key = (*parts, values)
            if is_intact_row and key not in dictionary_types:
                dictionary_types[key] = _dictionary_type_or_none(*key)
            dictionary_type = dictionary_types[key] if is_intact_row else None
            resolved.is_resolved[row] = dictionary_type is not None
            if dictionary_type is not None:
                resolved.types[row] = dictionary_type
                resolved.nodes[row] = (DictionaryId(id_, values, inside),)
        return len(encoded_rows)

    def _resolve_types(self, rows: IntArray, resolved: _ResolvedTypes) -> None:
        """Resolve the types of the fields at `rows`, or of their values if dictionary-encoded, and the dictionaries
        inside them.
        """
        reader = self.reader
        kinds, _ = self.tables.slot(_slot_number("type_type"), 1)
        offsets, is_intact = self.tables.slot(_slot_number("type"), 4)
        at, is_valid = reader.follow_offsets(offsets)
        tables = Tables(reader, at, is_valid & is_intact & (offsets > 0))
        kind_of = np.where(tables.sound & (kinds > 0), reader.bytes.take(kinds), 0)
        kind_of[kind_of >= len(TYPES)] = 0
        flat = rows[(self.counts[rows, 0] > 0) & (self.child_counts[rows] == 0)]
        for kind in np.flatnonzero(np.bincount(kind_of[flat])).tolist():
            if kind:
                self._resolve_flat_types(tables, kind, flat[kind_of[flat] == kind], resolved)
        nested = rows[(self.counts[rows, 0] > 0) & (self.child_counts[rows] > 0)]
        if self.below is not None and len(nested):
            children, inside = self.below._read()
            ends = np.cumsum(np.maximum(self.child_counts, 0)).tolist()
            for row, kind in zip(nested.tolist(), kind_of[nested].tolist(), strict=True):
                child_indices = range(ends[row] - int(self.child_counts[row]), ends[row])
                nested_type = self._nested_type(row, kind, [children[index] for index in child_indices])
                if nested_type is not None:
                    resolved.types[row], resolved.is_resolved[row] = nested_type, True
                    child_nodes = (
                        tuple(node for index in child_indices for node in inside.get(index, ())) if inside else ()
                    )
                    if child_nodes:
                        resolved.nodes[row] = child_nodes

    def _resolve_flat_types(self, tables: Tables, kind: int, rows: IntArray, resolved: _ResolvedTypes) -> None:
        slots = [(slot, *tables.slot(slot.number, _size_bytes(slot))) for slot in _spec(kind).slots.values()]
        rows = rows[np.logical_and.reduce([is_intact[rows] for _, _, is_intact in slots])] if slots else rows
        keys = [_SlotValues(self.reader, slot, positions) for slot, positions, _ in slots]
        if any(key.text_bytes(rows) > self.reader.size for key in keys):
            return  # shared text, whose size is checked when the fields are read individually
        type_count = 0
        while len(rows) and type_count < _MAX_TYPES:
            type_count += 1
            first = int(rows[0])
            is_equal = np.ones(len(rows), bool)
            for key in keys:
                is_equal &= key.equal(rows, first)
            try:
                type_array = np.empty(1, object)
                type_array[0] = read_type(Table(self.message, _FIELD, int(self.tables.at[first])), [])
                resolved.types[rows[is_equal]] = type_array
                resolved.is_resolved[rows[is_equal]] = True
            except BowstringError:
                pass
            rows = rows[~is_equal]

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


class _ResolvedTypes:
    """The resolved types of fields by index, and their dictionaries."""

    __slots__ = ("is_resolved", "nodes", "types")

    def __init__(self, count: int) -> None:
        self.types: npt.NDArray[np.object_] = np.empty(count, object)
        self.is_resolved = np.zeros(count, bool)
        self.nodes: Nodes = {}


class _SlotValues:
    """The values of one slot of many type tables: numbers or strings."""

    __slots__ = ("_reader", "_starts", "_values")

    def __init__(self, reader: ByteReader, slot: Slot, positions: IntArray) -> None:
        self._reader = reader
        self._starts: IntArray | None = None
        if isinstance(slot.kind, Text):
            self._starts, lengths, is_valid = reader.texts(positions)
            self._values = np.where(positions > 0, np.where(is_valid, lengths, -2), -1)
        else:
            self._values = np.where(positions > 0, reader.number(positions, _size_bytes(slot)), -1)

    def text_bytes(self, rows: IntArray) -> int:
        """Return the total size of the strings at `rows`, shared or not."""
        return 0 if self._starts is None else int(np.maximum(self._values[rows], 0).sum())

    def equal(self, rows: IntArray, first: int) -> BoolArray:
        """Whether the slots at `rows` equal the slot at `first`; an absent slot equals only absent ones."""
        same: BoolArray = self._values[rows] == self._values[first]
        length = int(self._values[first])
        if self._starts is None or length < 0:
            return same
        start = int(self._starts[first])
        return self._reader.equal(self._starts[rows], self._values[rows], self._reader.raw[start : start + length])


def _read_names(reader: ByteReader, starts: IntArray, lengths: IntArray) -> list[str]:
    """Return the strings at these positions of a message; raises `InvalidDataError` if one is not valid UTF-8."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return cast("list[str]", text.decode_strings(gather(reader.bytes, starts, lengths), offsets, None))


def _dictionary_type_or_none(bit_width: int, is_signed: bool, is_ordered: bool, values: DataType) -> DataType | None:
    try:
        return types.Dictionary(types.Int(bit_width, is_signed), values, is_ordered)
    except BowstringError:
        return None


def _slot_number(name: str) -> int:
    return _FIELD.slots[name].number


def _spec(kind: int) -> TableSpec:
    return SPECS[TYPES[kind]]


def _size_bytes(slot: Slot) -> int:
    return slot.kind.packer.size if isinstance(slot.kind, Scalar) else 4
