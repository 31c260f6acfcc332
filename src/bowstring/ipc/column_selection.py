"""The columns that a reader reads, of all columns of a schema."""

from __future__ import annotations

from collections.abc import Sequence

from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.ipc.metadata.schema import BatchColumnPositions, ColumnPositions, IpcSchema


class ColumnSelection:
    """The columns that a reader reads: `columns` are names or indices of those of `ipc_schema`, None for all.

    `indices` are their indices in the whole schema, None for all. Raises `NotFoundError` for an unknown column.
    """

    __slots__ = ("_column_positions", "_schema", "indices", "ipc_schema")

    def __init__(self, ipc_schema: IpcSchema, columns: Sequence[str | int] | None) -> None:
        self.ipc_schema = ipc_schema
        if isinstance(columns, str | int):
            raise InvalidArgumentError(f"columns is a list of names or indices, not {columns!r}: write [{columns!r}]")
        self.indices = None if columns is None else tuple(ipc_schema.schema.resolve_indices(columns))
        self._schema: Schema | None = None
        self._column_positions: dict[int, tuple[BatchColumnPositions, Sequence[ColumnPositions]]] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns; fields are decoded on access."""
        if self._schema is None:
            self._schema = (
                self.ipc_schema.schema if self.indices is None else self.ipc_schema.schema.select(self.indices)
            )
        return self._schema

    def get_selected_column_positions(self, version: int) -> tuple[BatchColumnPositions, Sequence[ColumnPositions]]:
        """The positions of all columns in batches of a metadata version, and those of the selected columns."""
        all_and_selected = self._column_positions.get(version)
        if all_and_selected is None:
            positions = self.ipc_schema.column_positions(version)
            columns = positions if self.indices is None else tuple(positions[index] for index in self.indices)
            all_and_selected = self._column_positions[version] = positions, columns
        return all_and_selected
