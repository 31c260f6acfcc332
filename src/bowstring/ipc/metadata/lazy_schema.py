"""Schemas that are read field by field, when a field is asked for («Schema message»).

Of a file with a thousand columns mostly one is wanted, and reading all of its fields takes longer than all the rest. So
one vectorised pass over the `Field` tables finds out how many nodes and buffers each column has, which is all that the
others need to know of it, and another one finds names. What a pass is not sure of is left to the reading of the field
itself, which checks everything. Who asks for one field after the other has all of them read at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

from bowstring.datatypes.field import Field, LazyFields, Metadata, Schema
from bowstring.flatbuf.reader import Table
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.field_tables import Counts, FieldTables, Nodes
from bowstring.ipc.metadata.schema import DictionaryId, WireSchema, read_endianness, read_field, read_pairs

_ONE_BY_ONE = 16
"""So many fields are read by themselves before all are."""


class LazySchema:
    """What `WireSchema` tells, read when it is asked for; each reading may raise what reading the whole raises."""

    def __init__(self, table: Table, limits: ReadLimits) -> None:
        self.is_big_endian = read_endianness(table)
        _ = table["features"]  # nobody needs them to read, but what hands a schema on copies them
        self.limits = limits
        self._table = table
        self._places = FieldTables.of(table, limits.max_nesting)
        self._entries: dict[int, tuple[Field, tuple[DictionaryId, ...]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def entry(self, index: int) -> tuple[Field, tuple[DictionaryId, ...]]:
        """One field, and the dictionaries that a walk over its array meets."""
        entry = self._entries.get(index)
        if entry is None and len(self._entries) >= _ONE_BY_ONE:
            known, nodes = self._at_once
            field = known[index]
            entry = None if field is None else (field, nodes.get(index, ()))
        if entry is None:
            table = self._table.child_at("fields", index)
            entry = self._entries.setdefault(index, read_field(table, self.limits.max_nesting))
        return entry

    @cached_property
    def _at_once(self) -> tuple[list[Field | None], Nodes]:
        return self._places.read()

    @cached_property
    def pairs(self) -> Metadata:
        """The custom metadata of the schema."""
        return read_pairs(self._table)

    @cached_property
    def whole(self) -> WireSchema:
        """All of it."""
        known, found = self._at_once
        fields = cast("list[Field]", list(known))
        nodes: list[tuple[DictionaryId, ...]] = [()] * len(self)
        for index, held in found.items():
            nodes[index] = held
        left = [index for index, field in enumerate(known) if field is None]
        for index in sorted({*left, *self._entries}):  # those that were read before stay the same objects
            fields[index], nodes[index] = self.entry(index)
        return WireSchema(Schema(tuple(fields), self.pairs), tuple(nodes), self.is_big_endian, self.limits)

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

    @cached_property
    def names(self) -> list[str]:
        """The names of all fields."""
        found = self._places.texts()
        return self.schema.names if found is None else found

    def named(self, name: str) -> list[int]:
        """The positions of the fields of this name."""
        found = self._places.named(name.encode(errors="surrogatepass"))
        return [at for at, other in enumerate(self.names) if other == name] if found is None else found.tolist()

    def select(self, positions: tuple[int, ...]) -> Schema:
        """The fields at these positions."""
        return Schema(tuple(self.entry(index)[0] for index in positions), self.pairs)

    def late(self) -> Schema:
        """All fields, each of which is read when it is asked for."""
        return Schema(_Fields(self), self.pairs)


class _Fields(LazyFields):
    """The fields of a deferred schema."""

    __slots__ = ("_wire",)

    def __init__(self, wire: LazySchema) -> None:
        self._wire = wire

    def __len__(self) -> int:
        return len(self._wire)

    @property
    def names(self) -> list[str]:
        return self._wire.names

    def named(self, name: str) -> list[int]:
        return self._wire.named(name)

    def one(self, index: int) -> Field:
        return self._wire.entry(index)[0]

    def all(self) -> tuple[Field, ...]:
        return self._wire.schema.fields
