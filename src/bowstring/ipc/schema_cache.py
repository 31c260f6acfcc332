"""A cache of decoded schemas: the files of a data set share one, and comparing bytes is cheaper than decoding."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.flatbuf.reader import Table
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.lazy_schema import LazyIpcSchema
from bowstring.ipc.metadata.schema import V4
from bowstring.ipc.record_batch.column_positions import BatchColumnPositions, ColumnPositions
from bowstring.layouts.equality import bytes_equal
from bowstring.memory.buffer import UINT8, Bytes

_MAX_CACHED = 64
_MAX_KEY_BYTES = 4 << 20
_MAX_CACHED_BYTES = 16 << 20
_KEY_EDGE_BYTES = 48


class DecodedSchema:
    """A decoded schema with its column positions, one for each metadata version that needs its own.

    `key_parts` are the encoded bytes that define it, `size_bytes` the size of the message that it references.
    """

    __slots__ = ("_column_positions", "_schema", "ipc_schema", "key_parts", "size_bytes")

    def __init__(self, ipc_schema: LazyIpcSchema, size_bytes: int, key_parts: Sequence[Bytes] = ()) -> None:
        self.ipc_schema = ipc_schema
        self.size_bytes = size_bytes
        self.key_parts = key_parts
        self._schema: Schema | None = None
        self._column_positions: dict[bool, BatchColumnPositions] = {}

    def get_batch_column_positions(self, version: int) -> BatchColumnPositions:
        """The positions of columns in batches of this metadata version."""
        is_version_4 = version == V4
        positions = self._column_positions.get(is_version_4)
        if positions is None:
            positions = self._column_positions[is_version_4] = BatchColumnPositions(self.ipc_schema, is_version_4)
        return positions

    @property
    def schema(self) -> Schema:
        """The schema; its fields are decoded on access."""
        if self._schema is None:
            self._schema = self.ipc_schema.to_lazy_schema()
        return self._schema


class ColumnSelection:
    """The columns that a reader reads: `columns` are names or indices of the columns of `cached`, None for all.

    `indices` are their indices in the whole schema, None for all. Raises `NotFoundError` for an unknown column.
    """

    __slots__ = ("_column_positions", "_schema", "cached", "indices")

    def __init__(self, cached: DecodedSchema, columns: Sequence[str | int] | None) -> None:
        self.cached = cached
        if isinstance(columns, str | int):
            raise InvalidArgumentError(f"columns is a list of names or indices, not {columns!r}: write [{columns!r}]")
        self.indices = None if columns is None else tuple(cached.schema.resolve_indices(columns))
        self._schema: Schema | None = None
        self._column_positions: dict[int, tuple[BatchColumnPositions, Sequence[ColumnPositions]]] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns; fields are decoded on access."""
        if self._schema is None:
            self._schema = (
                self.cached.schema if self.indices is None else self.cached.ipc_schema.select_fields(self.indices)
            )
        return self._schema

    def get_selected_column_positions(self, version: int) -> tuple[BatchColumnPositions, Sequence[ColumnPositions]]:
        """The positions of all columns in batches of a metadata version, and those of the selected columns."""
        all_and_selected = self._column_positions.get(version)
        if all_and_selected is None:
            positions = self.cached.get_batch_column_positions(version)
            columns = positions if self.indices is None else tuple(positions[index] for index in self.indices)
            all_and_selected = self._column_positions[version] = positions, columns
        return all_and_selected


_cache: dict[tuple[object, ...], DecodedSchema] = {}
_lock = Lock()


def get_decoded_schema(table: Table, limits: ReadLimits, key_parts: Sequence[Bytes] = ()) -> DecodedSchema:
    """Return the schema of a `Schema` table, from the cache or decoded.

    `key_parts` are the byte ranges that define it, by default its whole message.

    A schema with extension types is always decoded, as its types depend on the current registry.
    """
    data = table.flatbuffer.raw
    key_parts = key_parts or (np.frombuffer(data, UINT8),)
    if len(data) > _MAX_CACHED_BYTES or sum(map(len, key_parts)) > _MAX_KEY_BYTES or NAME_KEY in data:
        return DecodedSchema(LazyIpcSchema(table, limits), 0)
    key = (
        *(
            (len(bytes_), bytes_[:_KEY_EDGE_BYTES].tobytes(), bytes_[-_KEY_EDGE_BYTES:].tobytes())
            for bytes_ in key_parts
        ),
        limits,
    )
    cached = _cache.get(key)
    if cached is None or not all(map(bytes_equal, cached.key_parts, key_parts)):
        cached = DecodedSchema(LazyIpcSchema(table, limits), len(data), key_parts)
        with _lock:
            total_bytes = sum(entry.size_bytes for entry in _cache.values())  # the objects take about ten times as much
            if len(_cache) >= _MAX_CACHED or total_bytes + len(data) > _MAX_CACHED_BYTES:
                _cache.clear()
            _cache[key] = cached
    return cached
