"""Schemas that are read field by field, when a field is asked for («Schema message»).

Of a file with a thousand columns mostly one is wanted, and reading all of its fields takes longer than all the rest. So
one vectorised pass over the `Field` tables finds out how many nodes and buffers each column has, which is all that the
others need to know of it. What the pass is not sure of (nested and dictionary-encoded fields, and whatever looks
malformed) is left to the reading of the field itself, which checks everything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.flatbuf.codec import Table
from bowstring.flatbuf.tables import SPECS, TYPES
from bowstring.ipc.limits import Limits
from bowstring.ipc.metadata import DictionaryId, WireSchema, read_endianness, read_field, read_pairs
from bowstring.ipc.type_tables import flat_examples
from bowstring.layouts.registry import layout_of

_VTABLE = struct.Struct("<HH")
_U16 = struct.Struct("<H")
_MAX_FORMS = 64
_FIELD = SPECS["Field"].slots
_NAME, _TYPE, _DICTIONARY, _CHILDREN = (_FIELD[name].number for name in ("name", "type_type", "dictionary", "children"))

Counts = npt.NDArray[np.int64]
_Positions = npt.NDArray[np.int64]


class DeferredSchema:
    """What `WireSchema` tells, read when it is asked for; each reading may raise what reading the whole raises."""

    def __init__(self, table: Table, limits: Limits) -> None:
        self.is_big_endian = read_endianness(table)
        self.limits = limits
        self._table = table
        self._places = _Places.of(table)
        self._entries: dict[int, tuple[Field, tuple[DictionaryId, ...]]] = {}

    def __len__(self) -> int:
        return len(self._places.tables)

    def entry(self, index: int) -> tuple[Field, tuple[DictionaryId, ...]]:
        """One field, and the dictionaries that a walk over its array meets."""
        entry = self._entries.get(index)
        if entry is None:
            table = self._table.child_at("fields", index)
            entry = self._entries[index] = read_field(table, self.limits.max_nesting)
        return entry

    @cached_property
    def pairs(self) -> Metadata:
        """The custom metadata of the schema."""
        return read_pairs(self._table)

    @cached_property
    def whole(self) -> WireSchema:
        """All of it."""
        entries = [self.entry(index) for index in range(len(self))]
        schema = Schema(tuple(field for field, _ in entries), self.pairs)
        return WireSchema(schema, tuple(nodes for _, nodes in entries), self.is_big_endian, self.limits)

    @property
    def schema(self) -> Schema:
        """All fields."""
        return self.whole.schema

    @property
    def by_id(self) -> dict[int, DictionaryId]:
        """All dictionaries by their ids, checked to agree."""
        return self.whole.by_id

    def counts(self) -> Counts:
        """Nodes, buffers and variadic counts of each field, shape (fields, 3); -1 for what only its reading tells."""
        return self._places.counts

    def index(self, key: str | int) -> int:
        """The position of a field, by name or position; raises `NotFoundError`."""
        if isinstance(key, str):
            found = self._places.named(key.encode(errors="surrogatepass"))
            if found is not None and len(found) == 1:
                return int(found[0])
        elif 0 <= key < len(self):
            return key
        return self.schema.index(key)

    def select(self, positions: tuple[int, ...]) -> Schema:
        """The fields at these positions."""
        return Schema(tuple(self.entry(index)[0] for index in positions), self.pairs)


@lru_cache(1)
def _flat_counts() -> Counts:
    """Nodes, buffers and variadic counts by the number of a type, -1 for types with children."""
    counts = np.full((256, 3), -1, np.int64)
    for name, example in flat_examples():
        layout = layout_of(example)
        counts[TYPES.index(name)] = (1, len(layout.buffers), int(layout.VARIADIC))
    return counts


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the `Field` tables of a schema are and what the vectorised pass says of them."""

    data: npt.NDArray[np.uint8]
    tables: _Positions
    names: _Positions
    """Where each name's offset is; 0 where that is not sure."""
    counts: Counts

    @classmethod
    def of(cls, schema: Table) -> _Places:
        data = np.frombuffer(schema.message.data, np.uint8)
        start, count = schema.children_span("fields")
        schema.message.expect_tables(2 * count)  # a field and its type
        slots = start + 4 * np.arange(count, dtype=np.int64)
        tables = slots + _u32(data, slots)
        counts, names = np.full((count, 3), -1, np.int64), np.zeros(count, np.int64)
        reachable = np.flatnonzero((tables > slots) & (tables + 4 <= data.size))
        vtables = tables[reachable] - _u32(data, tables[reachable]).astype(np.int32)
        forms, of_form = np.unique(vtables, return_inverse=True)
        if len(forms) <= _MAX_FORMS:
            for number, vtable in enumerate(forms.tolist()):
                own = reachable[of_form == number]
                _read_form(schema.message.data, vtable, (own, tables[own]), counts, names)
        return cls(data, tables, names, counts)

    def named(self, name: bytes) -> _Positions | None:
        """The positions of the fields of this name; None where the pass is not sure of every name."""
        data, size = self.data, self.data.size
        if not self.names.all():
            return None
        at = self.names + _u32(data, self.names)
        if (at + 4 > size).any():
            return None
        lengths = _u32(data, at)
        found = np.flatnonzero(lengths == len(name))
        if (at[found] + 4 + len(name) > size).any():
            return None
        held = data[at[found, None] + 4 + np.arange(len(name))]
        equal: _Positions = found[(held == np.frombuffer(name, np.uint8)).all(axis=1)]
        return equal


def _read_form(raw: bytes, vtable: int, own: tuple[_Positions, _Positions], counts: Counts, names: _Positions) -> None:
    """Fill in counts and names of the fields that share a vtable, where all is well; `own`: which, and where."""
    data, size = np.frombuffer(raw, np.uint8), len(raw)
    if not 0 <= vtable <= size - 4:
        return
    vtable_size, table_size = _VTABLE.unpack_from(raw, vtable)
    if vtable_size < 4 or vtable + vtable_size > size:
        return
    whole = own[1] + table_size <= size
    indices, tables = own[0][whole], own[1][whole]

    def offset(slot: int, width: int) -> int:
        entry = 4 + 2 * slot
        at = _U16.unpack_from(raw, vtable + entry)[0] if entry + 2 <= vtable_size else 0
        return at if 4 <= at <= table_size - width else 0

    name_at, type_at, children_at = offset(_NAME, 4), offset(_TYPE, 1), offset(_CHILDREN, 4)
    if name_at:
        names[indices] = tables + name_at
    if not type_at or offset(_DICTIONARY, 4):
        return
    if children_at:
        at = tables + children_at
        vectors = at + _u32(data, at)
        inside = vectors + 4 <= size
        indices, tables, vectors = indices[inside], tables[inside], vectors[inside]
        childless = _u32(data, vectors) == 0
        indices, tables = indices[childless], tables[childless]
    counts[indices] = _flat_counts()[data[tables + type_at]]


def _u32(data: npt.NDArray[np.uint8], at: _Positions) -> _Positions:
    """The unsigned little-endian 32-bit integers at these positions, which must lie within the data."""
    return np.ascontiguousarray(data[at[:, None] + np.arange(4)]).view("<u4")[:, 0].astype(np.int64)
