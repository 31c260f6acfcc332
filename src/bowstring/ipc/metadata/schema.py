"""Schemas in metadata («Schema message»), and the positions of their columns in record batches.

The fields of a wide schema are read on access; `field_tables` counts the nodes and buffers of the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np

from bowstring.datatypes.field import DataType, Field
from bowstring.datatypes.schema import LazyFields, Schema
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError
from bowstring.flatbuf.reader import FlatTable
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.field import (
    DictionaryDeclaration,
    create_field_record,
    create_metadata_records,
    read_custom_metadata,
    read_field,
)
from bowstring.ipc.metadata.field_tables import FieldTables, counts_of_childless_types
from bowstring.layouts.base import Layout
from bowstring.layouts.registry import layout_of
from bowstring.memory.forks import cached_property

# Numbers in Schema.fbs.
LITTLE_ENDIAN, BIG_ENDIAN = 0, 1
V4, V5 = 3, 4
FieldWithDictionaries: TypeAlias = tuple[Field, tuple[DictionaryDeclaration, ...]]
"""A field and its dictionaries, in the order of a walk over its array."""
_MAX_EAGER_FIELDS = 16
"""Reading so many fields one by one takes as long as the vectorised pass that counts nodes and buffers."""


class IpcFields(LazyFields):
    """The fields of a schema with their dictionaries, given or read on access from a `Schema` table.

    Each access to a field of a table may raise the errors of reading all. Several threads may use it: they may read a
    field twice, but all get the same object.
    """

    def __init__(
        self, fields: Iterable[FieldWithDictionaries], table: FlatTable | None = None, max_nesting: int = 0
    ) -> None:
        self._fields: dict[int, FieldWithDictionaries] = dict(enumerate(fields))
        self._table = table
        self._max_nesting = max_nesting
        self.tables = None if table is None else FieldTables.from_schema_table(table, max_nesting)
        """The tables of fields that are read on access; None if all are in `_fields`."""
        self._errors: dict[int, BowstringError] = {}
        """The errors of malformed fields: to read those again would use up the budgets of the others."""
        self._all: tuple[FieldWithDictionaries, ...] | None = None if self.tables else tuple(self._fields.values())

    @classmethod
    def from_table(cls, table: FlatTable, max_nesting: int) -> IpcFields:
        """Return the fields of a `Schema` table. Raises `InvalidDataError` if they are absent or can't be located."""
        start, count = table.locate_elements("fields")
        if not start:  # else damaged data would look like data without columns
            raise InvalidDataError(f"{table.flatbuffer.location}: the schema has no list of fields")
        if count > _MAX_EAGER_FIELDS:
            return cls((), table, max_nesting)
        try:
            return cls([read_field(field_table, max_nesting) for field_table in table["fields"]])
        except BowstringError:  # a malformed field affects only its own column, so each is read on access
            return cls((), table, max_nesting)

    def __len__(self) -> int:
        return len(self._fields) if self.tables is None else len(self.tables)

    def with_table(self, table: FlatTable) -> IpcFields:
        """Return the same fields for a file with an equal table, with errors of its own."""
        if self._all is not None:
            return self  # all are valid
        fields = copy(self)  # with the same `_fields` and `tables`
        fields._table, fields._errors = table, {}
        return fields

    def with_dictionaries_at(self, index: int) -> FieldWithDictionaries:
        """Return one field and its dictionaries."""
        field = self._fields.get(index)
        if field is None:
            field = self._fields.setdefault(index, self._read_field(index))
        return field

    def _read_field(self, index: int) -> FieldWithDictionaries:
        error = self._errors.get(index)
        if error is None:
            assert self._table is not None
            try:
                return read_field(self._table.get_element_table("fields", index), self._max_nesting)
            except BowstringError as problem:
                error = self._errors[index] = copy(problem)  # without its traceback
        raise copy(error)

    def all_with_dictionaries(self) -> tuple[FieldWithDictionaries, ...]:
        """Return all fields and their dictionaries."""
        if self._all is None:
            self._all = tuple(map(self.with_dictionaries_at, range(len(self))))
        return self._all

    @cached_property
    def names(self) -> list[str]:
        names = None if self.tables is None else self.tables.names()
        return [field.name for field in self.all_fields()] if names is None else names

    def indices_of(self, name: str) -> list[int]:
        indices = None if self.tables is None else self.tables.indices_of(name.encode(errors="surrogatepass"))
        return [index for index, other in enumerate(self.names) if other == name] if indices is None else indices

    def field_at(self, index: int) -> Field:
        return self.with_dictionaries_at(index)[0]

    def all_fields(self) -> tuple[Field, ...]:
        return self._all_fields

    @cached_property
    def _all_fields(self) -> tuple[Field, ...]:
        return tuple(field for field, _ in self.all_with_dictionaries())


class IpcSchema:
    """A schema with the details of its encoding: the dictionaries of each field, whether bodies are big-endian, the
    limits for reading them, and the positions of columns in them.

    Objects refer only downwards, to the fields: a cycle would keep the bytes of a schema until garbage is collected.
    """

    def __init__(
        self, schema: Schema, fields: IpcFields, is_big_endian: bool = False, limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self.schema = schema
        """The schema; fields of a table are read on access."""
        self.fields = fields
        self.is_big_endian = is_big_endian
        self.limits = limits
        self._column_positions: dict[bool, BatchColumnPositions] = {}

    @classmethod
    def from_table(cls, table: FlatTable, limits: ReadLimits) -> IpcSchema:
        """Return the schema of a `Schema` table.

        Raises `InvalidDataError` for an unknown byte order, malformed custom metadata and fields that are absent or
        can't be located.
        """
        endianness: int = table["endianness"]
        if endianness not in (LITTLE_ENDIAN, BIG_ENDIAN):
            raise InvalidDataError(
                f"{table.flatbuffer.location}: endianness {endianness} is neither little (0) nor big (1)"
            )
        pairs = read_custom_metadata(table)
        _ = table["features"]  # not needed for reading, but copied with the schema
        fields = IpcFields.from_table(table, limits.max_nesting)
        return cls(Schema(fields, pairs), fields, endianness == BIG_ENDIAN, limits)

    @classmethod
    def of_dictionary_values(
        cls, declaration: DictionaryDeclaration, is_big_endian: bool = False, limits: ReadLimits = DEFAULT_LIMITS
    ) -> IpcSchema:
        """Return the schema of a dictionary batch: one column, the values."""
        field = Field("values", declaration.value_type)
        return cls(Schema((field,)), IpcFields([(field, declaration.nested)]), is_big_endian, limits)

    def with_table(self, table: FlatTable) -> IpcSchema:
        """Return the schema for a file with an equal table, whose errors name that file."""
        fields = self.fields.with_table(table)
        if fields is self.fields:
            return self
        return IpcSchema(Schema(fields, self.schema.pairs), fields, self.is_big_endian, self.limits)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def dictionaries(self) -> tuple[tuple[DictionaryDeclaration, ...], ...]:
        """The dictionaries of each field, in the order of a walk over its array."""
        return tuple(declarations for _, declarations in self.fields.all_with_dictionaries())

    @cached_property
    def dictionaries_by_id(self) -> dict[int, DictionaryDeclaration]:
        """All dictionaries by id. Raises `InvalidDataError` if two of one id differ."""
        dictionaries_by_id: dict[int, DictionaryDeclaration] = {}
        for declaration in walk_declarations(chain.from_iterable(self.dictionaries)):
            if dictionaries_by_id.setdefault(declaration.id, declaration) != declaration:
                raise InvalidDataError(
                    f"schema: dictionary {declaration.id} is of type {dictionaries_by_id[declaration.id].value_type} "
                    f"and of type {declaration.value_type}"
                )
        return dictionaries_by_id

    def column_positions(self, version: int) -> BatchColumnPositions:
        """The positions of columns in batches of this metadata version."""
        is_version_4 = version == V4
        positions = self._column_positions.get(is_version_4)
        if positions is None:
            positions = self._column_positions[is_version_4] = BatchColumnPositions(
                self.fields, self.is_big_endian, self.limits, is_version_4
            )
        return positions


def walk_declarations(declarations: Iterable[DictionaryDeclaration]) -> Iterator[DictionaryDeclaration]:
    """Yield declarations, each before those inside it."""
    for declaration in declarations:
        yield declaration
        yield from walk_declarations(declaration.nested)


def create_schema_record(schema: Schema, ids: Iterable[int] | None = None) -> tuple[dict[str, Any], IpcSchema]:
    """Return the record of a `Schema` table, and the schema with the assigned dictionary ids.

    `ids` are assigned in the order of the fields, an outer dictionary before those inside it; by default they are
    counted. Raises `UnsupportedTypeError` with the column path for a type that the format can't represent,
    `InvalidDataError` if two dictionaries of one id differ.
    """
    next_ids = count() if ids is None else iter(ids)
    written = [create_field_record(field, next_ids, field.name) for field in schema.fields]
    record = {"fields": [r for r, _ in written], "custom_metadata": create_metadata_records(schema.pairs)}
    fields = IpcFields(zip(schema.fields, [declarations for _, declarations in written], strict=True))
    ipc_schema = IpcSchema(schema, fields)
    _ = ipc_schema.dictionaries_by_id  # raises an error if ids are inconsistent
    return record, ipc_schema


@dataclass(frozen=True, slots=True)
class ColumnPositions:
    """Positions of a column in a batch header: the first node, buffer and variadic count, and the number of each."""

    name: str
    layout: Layout
    dictionaries: tuple[DictionaryDeclaration, ...]
    first_node: int
    node_count: int
    first_buffer: int
    buffer_count: int
    first_variadic: int
    variadic_count: int
    is_flat: bool
    nodes: struct.Struct
    buffers: struct.Struct


class BatchColumnPositions(Sequence[ColumnPositions]):
    """The positions of all columns of a schema in batch headers; each is computed on access.

    `is_version_4`: for metadata version 4, in which unions had a validity buffer.
    """

    __slots__ = (
        "_columns",
        "_fields",
        "_starts",
        "buffer_count",
        "is_big_endian",
        "is_version_4",
        "limits",
        "node_count",
        "variadic_count",
    )

    def __init__(self, fields: IpcFields, is_big_endian: bool, limits: ReadLimits, is_version_4: bool) -> None:
        self.is_big_endian = is_big_endian
        self.limits = limits
        self.is_version_4 = is_version_4
        self._fields = fields
        self._columns: list[ColumnPositions | None] = [None] * len(fields)
        counts = np.full((len(fields), 3), -1, np.int64) if fields.tables is None else fields.tables.header_entry_counts
        self._starts = np.zeros((len(counts) + 1, 3), np.int64)
        self._starts[1:] = counts
        for index in np.flatnonzero(counts[:, 0] < 0).tolist():
            self._starts[index + 1] = self._count_header_entries(fields.with_dictionaries_at(index)[0].type)
        np.cumsum(self._starts, axis=0, out=self._starts)
        self.node_count, self.buffer_count, self.variadic_count = self._starts[-1].tolist()

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self._columns))[index]]
        column = self._columns[index]
        if column is None:
            column = self._columns[index] = self._create_positions_of_column(index)
        return column

    def _create_positions_of_column(self, index: int) -> ColumnPositions:
        field, dictionaries = self._fields.with_dictionaries_at(index)
        layout = layout_of(field.type)
        (first_node, first_buffer, first_variadic), stops = self._starts[index : index + 2].tolist()
        nodes, buffers, variadic = stops[0] - first_node, stops[1] - first_buffer, stops[2] - first_variadic
        if (nodes, buffers, variadic) != self._count_header_entries(field.type):
            raise InvalidDataError(
                f"field {field.name!r}: the layout of {field.type} does not match the storage type in the schema"
            )
        return ColumnPositions(
            field.name,
            layout,
            dictionaries,
            first_node,
            nodes,
            first_buffer,
            buffers,
            first_variadic,
            variadic,
            nodes == 1 and buffers in (2, 3) and not variadic and not dictionaries and layout.has_validity,
            struct.Struct(f"<{2 * nodes}q"),
            struct.Struct(f"<{2 * buffers}q"),
        )

    def _count_header_entries(self, data_type: DataType) -> tuple[int, int, int]:
        """Return the number of nodes, buffers and variadic counts of a field of a type, children included."""
        counts = counts_of_childless_types().get(type(data_type))
        if counts is not None:
            return counts
        layout = layout_of(data_type)
        nodes, buffers, variadic = 1, len(layout.buffers), int(layout.VARIADIC)
        if self.is_version_4:
            buffers += has_legacy_validity(layout)
        for child in layout.children:
            child_nodes, child_buffers, child_variadic = self._count_header_entries(child.type)
            nodes, buffers, variadic = nodes + child_nodes, buffers + child_buffers, variadic + child_variadic
        return nodes, buffers, variadic

    def has_extra_validity(self, layout: Layout) -> bool:
        """Whether the body has the validity buffer that metadata version 4 required for all layouts but null."""
        return self.is_version_4 and has_legacy_validity(layout)


def has_legacy_validity(layout: Layout) -> bool:
    """Whether a layout without validity has a validity buffer in metadata version 4, as all layouts but null had."""
    return not layout.has_validity and bool(layout.buffers or layout.children)


class ColumnSelection:
    """The columns that a reader reads: `columns` are names or indices of columns of `ipc_schema`, None for all.

    `indices` are their indices in the whole schema, None for all. Raises `NotFoundError` for an unknown column.
    """

    def __init__(self, ipc_schema: IpcSchema, columns: Sequence[str | int] | None) -> None:
        self.ipc_schema = ipc_schema
        if isinstance(columns, str | int):
            raise InvalidArgumentError(f"columns is a list of names or indices, not {columns!r}: write [{columns!r}]")
        self.indices = None if columns is None else tuple(ipc_schema.schema.resolve_indices(columns))
        self._column_positions: dict[int, tuple[BatchColumnPositions, Sequence[ColumnPositions]]] = {}

    @cached_property
    def schema(self) -> Schema:
        """The schema of the selected columns; fields are decoded on access."""
        return self.ipc_schema.schema if self.indices is None else self.ipc_schema.schema.select(self.indices)

    def get_selected_column_positions(self, version: int) -> tuple[BatchColumnPositions, Sequence[ColumnPositions]]:
        """The positions of all columns in batches of a metadata version, and of the selected columns."""
        all_and_selected = self._column_positions.get(version)
        if all_and_selected is None:
            positions = self.ipc_schema.column_positions(version)
            columns = positions if self.indices is None else tuple(positions[index] for index in self.indices)
            all_and_selected = self._column_positions[version] = positions, columns
        return all_and_selected
