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
from bowstring.ipc.record_batch.read_plan import BatchReadPlan, ColumnReadPlan
from bowstring.layouts.equality import bytes_equal
from bowstring.memory.buffer import UINT8, Bytes

_MAX_CACHED = 64
_MAX_KEY_BYTES = 4 << 20
_MAX_CACHED_BYTES = 16 << 20
_KEY_EDGE_BYTES = 48


class DecodedSchema:
    """A decoded schema with its batch plans, one for each metadata version that needs its own.

    `key_parts` are the encoded bytes that define it, `size_bytes` the size of the message that it references.
    """

    __slots__ = ("_plans", "_schema", "ipc_schema", "key_parts", "size_bytes")

    def __init__(self, ipc_schema: LazyIpcSchema, size_bytes: int, key_parts: Sequence[Bytes] = ()) -> None:
        self.ipc_schema = ipc_schema
        self.size_bytes = size_bytes
        self.key_parts = key_parts
        self._schema: Schema | None = None
        self._plans: dict[bool, BatchReadPlan] = {}

    def read_plan(self, version: int) -> BatchReadPlan:
        """The plan for batches of this metadata version."""
        is_version_4 = version == V4
        plan = self._plans.get(is_version_4)
        if plan is None:
            plan = self._plans[is_version_4] = BatchReadPlan(self.ipc_schema, is_version_4)
        return plan

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

    __slots__ = ("_plans", "_schema", "cached", "indices")

    def __init__(self, cached: DecodedSchema, columns: Sequence[str | int] | None) -> None:
        self.cached = cached
        if isinstance(columns, str | int):
            raise InvalidArgumentError(f"columns is a list of names or indices, not {columns!r}: write [{columns!r}]")
        self.indices = None if columns is None else tuple(cached.schema.indices(columns))
        self._schema: Schema | None = None
        self._plans: dict[int, tuple[BatchReadPlan, Sequence[ColumnReadPlan]]] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns; fields are decoded on access."""
        if self._schema is None:
            self._schema = self.cached.schema if self.indices is None else self.cached.ipc_schema.select(self.indices)
        return self._schema

    def read_plans(self, version: int) -> tuple[BatchReadPlan, Sequence[ColumnReadPlan]]:
        """The plan for batches of a metadata version, and the plans of the selected columns."""
        plans = self._plans.get(version)
        if plans is None:
            plan = self.cached.read_plan(version)
            columns = plan if self.indices is None else tuple(plan[index] for index in self.indices)
            plans = self._plans[version] = plan, columns
        return plans


_cache: dict[tuple[object, ...], DecodedSchema] = {}
_lock = Lock()


def load_schema(table: Table, limits: ReadLimits, key_parts: Sequence[Bytes] = ()) -> DecodedSchema:
    """The schema of a `Schema` table, from the cache or decoded. `key_parts` are the byte ranges that define it, by
    default its whole message.

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
