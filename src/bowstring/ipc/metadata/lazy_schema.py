"""Schemas read field by field, on access («Schema message»).

Users of a file with a thousand columns often need one of them, and reading all fields would take longer than everything
else. One vectorised pass over the `Field` tables therefore counts the nodes and buffers of each column, which is all
that the other columns require, and another one finds names. Fields that a pass can't handle are read individually, with
all checks. After several individual fields, all are read at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import LazyFields, Schema
from bowstring.flatbuf.reader import Table
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.bulk_field_reader import DictionariesByField, FieldTables, HeaderEntryCounts
from bowstring.ipc.metadata.schema import (
    DictionaryDeclaration,
    IpcSchema,
    is_big_endian_schema,
    read_custom_metadata,
    read_field,
)

_MAX_INDIVIDUAL_READS = 16
"""After this many individual fields, all are read at once."""


class LazyIpcSchema:
    """A `IpcSchema` that is read on access; each access may raise the errors of reading the whole."""

    def __init__(self, table: Table, limits: ReadLimits) -> None:
        self.is_big_endian = is_big_endian_schema(table)
        _ = table["features"]  # not needed for reading, but copied with the schema
        self.limits = limits
        self._table = table
        self._tables = FieldTables.from_schema_table(table, limits.max_nesting)
        self._entries: dict[int, tuple[Field, tuple[DictionaryDeclaration, ...]]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def get_field_and_dictionaries(self, index: int) -> tuple[Field, tuple[DictionaryDeclaration, ...]]:
        """Return one field and its dictionaries, in the order of a walk over its array."""
        entry = self._entries.get(index)
        if entry is None and len(self._entries) >= _MAX_INDIVIDUAL_READS:
            fields, declarations = self._fields_and_dictionaries
            field = fields[index]
            entry = None if field is None else (field, declarations.get(index, ()))
        if entry is None:
            table = self._table.get_element_table("fields", index)
            entry = self._entries.setdefault(index, read_field(table, self.limits.max_nesting))
        return entry

    @cached_property
    def _fields_and_dictionaries(self) -> tuple[list[Field | None], DictionariesByField]:
        return self._tables.read_fields()

    @cached_property
    def custom_metadata(self) -> Metadata:
        """The custom metadata of the schema."""
        return read_custom_metadata(self._table)

    @cached_property
    def eager(self) -> IpcSchema:
        """The schema with all fields, read at once, and their dictionaries."""
        fields_or_none, declarations_by_index = self._fields_and_dictionaries
        fields = cast("list[Field]", list(fields_or_none))
        declarations: list[tuple[DictionaryDeclaration, ...]] = [()] * len(self)
        for index, field_declarations in declarations_by_index.items():
            declarations[index] = field_declarations
        unread = [index for index, field in enumerate(fields_or_none) if field is None]
        for index in sorted({*unread, *self._entries}):  # fields read before stay the same objects
            fields[index], declarations[index] = self.get_field_and_dictionaries(index)
        return IpcSchema(
            Schema(tuple(fields), self.custom_metadata), tuple(declarations), self.is_big_endian, self.limits
        )

    @property
    def schema(self) -> Schema:
        """The schema with all fields."""
        return self.eager.schema

    @property
    def dictionaries_by_id(self) -> dict[int, DictionaryDeclaration]:
        """All dictionaries by id, checked for consistency."""
        return self.eager.dictionaries_by_id

    def header_entry_counts(self) -> HeaderEntryCounts:
        """Return nodes, buffers and variadic counts of each field, shape (fields, 3); -1 if unknown until the
        field is read.
        """
        return self._tables.header_entry_counts

    @cached_property
    def names(self) -> list[str]:
        """The names of all fields."""
        names = self._tables.names()
        return self.schema.names if names is None else names

    def indices_of(self, name: str) -> list[int]:
        """Return the indices of the fields of this name."""
        indices = self._tables.indices_of(name.encode(errors="surrogatepass"))
        return (
            [index for index, other in enumerate(self.names) if other == name] if indices is None else indices.tolist()
        )

    def select_fields(self, indices: tuple[int, ...]) -> Schema:
        """Return the schema of the fields at these indices."""
        return Schema(tuple(self.get_field_and_dictionaries(index)[0] for index in indices), self.custom_metadata)

    def to_lazy_schema(self) -> Schema:
        """Return the schema with fields that are read on access."""
        return Schema(_LazyIpcFields(self), self.custom_metadata)


class _LazyIpcFields(LazyFields):
    """The fields of a `LazyIpcSchema`."""

    __slots__ = ("_ipc_schema",)

    def __init__(self, ipc_schema: LazyIpcSchema) -> None:
        self._ipc_schema = ipc_schema

    def __len__(self) -> int:
        return len(self._ipc_schema)

    @property
    def names(self) -> list[str]:
        return self._ipc_schema.names

    def indices_of(self, name: str) -> list[int]:
        return self._ipc_schema.indices_of(name)

    def field_at(self, index: int) -> Field:
        return self._ipc_schema.get_field_and_dictionaries(index)[0]

    def all_fields(self) -> tuple[Field, ...]:
        return self._ipc_schema.schema.fields
