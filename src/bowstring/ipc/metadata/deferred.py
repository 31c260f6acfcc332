"""Schemas that are read field by field, when a field is asked for («Schema message»).

Of a file with a thousand columns mostly one is wanted, and reading all of its fields takes longer than all the rest. So
one vectorised pass over the `Field` tables finds out how many nodes and buffers each column has, which is all that the
others need to know of it. What the pass is not sure of is left to the reading of the field itself, which checks
everything.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.flatbuf.codec import Table
from bowstring.ipc.limits import Limits
from bowstring.ipc.metadata.field_tables import Counts, FieldTables
from bowstring.ipc.metadata.schema_tables import DictionaryId, WireSchema, read_endianness, read_field, read_pairs


class DeferredSchema:
    """What `WireSchema` tells, read when it is asked for; each reading may raise what reading the whole raises."""

    def __init__(self, table: Table, limits: Limits) -> None:
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
        known, found = self._places.read()
        nodes: list[tuple[DictionaryId, ...]] = [()] * len(known)
        for index, held in found.items():
            nodes[index] = held
        if not all(known):
            for index in [index for index, field in enumerate(known) if field is None]:
                known[index], nodes[index] = self.entry(index)
        schema = Schema(tuple(cast("list[Field]", known)), self.pairs)
        return WireSchema(schema, tuple(nodes), self.is_big_endian, self.limits)

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
