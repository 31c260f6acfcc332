"""Positions of columns in record batches («RecordBatch message»), computed once per schema from its layouts."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.ipc.metadata.lazy_schema import LazyIpcSchema
from bowstring.ipc.metadata.schema import DictionaryDeclaration, IpcSchema
from bowstring.ipc.write_options import has_legacy_validity
from bowstring.layouts.base import Layout
from bowstring.layouts.registry import layout_of

AnyIpcSchema: TypeAlias = LazyIpcSchema | IpcSchema
"""The schema of a reader."""


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

    __slots__ = ("_columns", "_starts", "buffer_count", "ipc_schema", "is_version_4", "node_count", "variadic_count")

    def __init__(self, ipc_schema: AnyIpcSchema, is_version_4: bool = False) -> None:
        self.ipc_schema = ipc_schema
        self.is_version_4 = is_version_4
        self._columns: list[ColumnPositions | None] = [None] * len(ipc_schema)
        counts = (
            ipc_schema.header_entry_counts()
            if isinstance(ipc_schema, LazyIpcSchema)
            else np.full((len(ipc_schema), 3), -1, np.int64)
        )
        unknown = np.flatnonzero(counts[:, 0] < 0).tolist()
        if unknown:
            counts = counts.copy()
        for index in unknown:
            counts[index] = self._count_header_entries(layout_of(ipc_schema.get_field_and_dictionaries(index)[0].type))
        self._starts = np.zeros((len(ipc_schema) + 1, 3), np.int64)
        np.cumsum(counts, axis=0, out=self._starts[1:])
        self.node_count, self.buffer_count, self.variadic_count = self._starts[-1].tolist()

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, index: int) -> ColumnPositions: ...
    @overload
    def __getitem__(self, index: slice) -> list[ColumnPositions]: ...
    def __getitem__(self, index: int | slice) -> ColumnPositions | list[ColumnPositions]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self._columns)))]
        column = self._columns[index]
        if column is None:
            column = self._columns[index] = self._create_positions_of_column(index)
        return column

    def _create_positions_of_column(self, index: int) -> ColumnPositions:
        field, dictionaries = self.ipc_schema.get_field_and_dictionaries(index)
        layout = layout_of(field.type)
        start, stop = self._starts[index].tolist(), self._starts[index + 1].tolist()
        nodes, buffers, variadic = (end - begin for begin, end in zip(start, stop, strict=True))
        if (nodes, buffers, variadic) != self._count_header_entries(layout):
            raise InvalidDataError(
                f"field {field.name!r}: the layout of {field.type} does not match the storage type in the schema"
            )
        return ColumnPositions(
            field.name,
            layout,
            dictionaries,
            start[0],
            nodes,
            start[1],
            buffers,
            start[2],
            variadic,
            nodes == 1 and buffers in (2, 3) and not variadic and not dictionaries and layout.has_validity,
            struct.Struct(f"<{2 * nodes}q"),
            struct.Struct(f"<{2 * buffers}q"),
        )

    def _count_header_entries(self, layout: Layout) -> tuple[int, int, int]:
        child_counts = [self._count_header_entries(child) for child in layout.children]
        return (
            1 + sum(nodes for nodes, _, _ in child_counts),
            self.count_buffers_without_children(layout) + sum(buffers for _, buffers, _ in child_counts),
            int(layout.VARIADIC) + sum(variadic for _, _, variadic in child_counts),
        )

    def count_buffers_without_children(self, layout: Layout) -> int:
        """Return the number of a layout's declared buffers in a body, without its children's."""
        return len(layout.buffers) + self.has_extra_validity(layout)

    def has_extra_validity(self, layout: Layout) -> bool:
        """Whether the body has the validity buffer that metadata version 4 required for all layouts but null."""
        return self.is_version_4 and has_legacy_validity(layout)
