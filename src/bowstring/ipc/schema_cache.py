"""Schemas that were met lately: files of one data set share one, and comparing bytes is cheaper than reading it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import UsageError
from bowstring.flatbuf.reader import Table
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.metadata.lazy_schema import LazySchema
from bowstring.ipc.metadata.schema import V4
from bowstring.ipc.record_batch.plan import ColumnPlan, SchemaPlan
from bowstring.layouts.equality import bytes_equal
from bowstring.memory.buffer import UINT8, Bytes

_MAX_KNOWN = 64
_MAX_KEY_BYTES = 4 << 20
_MAX_KEPT_BYTES = 16 << 20
_EDGE = 48


class CachedSchema:
    """A schema with its compiled plans, one for each metadata version that asks for its own.

    `said` are the bytes that said it, `size_bytes` the length of those that it holds.
    """

    __slots__ = ("_all", "_plans", "said", "size_bytes", "wire")

    def __init__(self, wire: LazySchema, size_bytes: int, said: Sequence[Bytes] = ()) -> None:
        self.wire = wire
        self.size_bytes = size_bytes
        self.said = said
        self._all: Schema | None = None
        self._plans: dict[bool, SchemaPlan] = {}

    def plan(self, version: int) -> SchemaPlan:
        """The plan for batches of this metadata version."""
        legacy = version == V4
        plan = self._plans.get(legacy)
        if plan is None:
            plan = self._plans[legacy] = SchemaPlan(self.wire, legacy)
        return plan

    def positions(self, columns: Sequence[str | int] | None) -> tuple[int, ...] | None:
        """Where the wanted columns are in the schema; None for all. Raises `NotFoundError` for an unknown one."""
        if columns is None:
            return None
        if isinstance(columns, str | int):
            raise UsageError(f"columns is a list of names or positions, not {columns!r}: write [{columns!r}]")
        return tuple(self.schema().indices(columns))

    def schema(self, positions: tuple[int, ...] | None = None) -> Schema:
        """The schema of the columns at these positions; by default of all, each read when it is asked for."""
        if positions is not None:
            return self.wire.select(positions)
        if self._all is None:
            self._all = self.wire.late()
        return self._all

    def selected(self, positions: tuple[int, ...] | None, version: int) -> Sequence[ColumnPlan]:
        """The plans of the columns at these positions."""
        plan = self.plan(version)
        return plan if positions is None else tuple(plan[index] for index in positions)


_known: dict[tuple[object, ...], CachedSchema] = {}
_lock = Lock()


def load_schema(table: Table, limits: ReadLimits, said: Sequence[Bytes] = ()) -> CachedSchema:
    """The schema of a `Schema` table; `said` are the stretches of bytes that say all about it, by default all of its
    message.

    One that names an extension is read anew each time, as its types depend on what is registered now.
    """
    data = table.message.data
    said = said or (np.frombuffer(data, UINT8),)
    if len(data) > _MAX_KEPT_BYTES or sum(map(len, said)) > _MAX_KEY_BYTES or NAME_KEY in data:
        return CachedSchema(LazySchema(table, limits), 0)
    key = (*((len(bytes_), bytes_[:_EDGE].tobytes(), bytes_[-_EDGE:].tobytes()) for bytes_ in said), limits)
    known = _known.get(key)
    if known is None or not all(map(bytes_equal, known.said, said)):
        known = CachedSchema(LazySchema(table, limits), len(data), said)
        with _lock:
            kept_bytes = sum(other.size_bytes for other in _known.values())  # as objects, some ten times as much
            if len(_known) >= _MAX_KNOWN or kept_bytes + len(data) > _MAX_KEPT_BYTES:
                _known.clear()
            _known[key] = known
    return known


def _inside(field: Field) -> list[str]:
    """The fields inside a field, at all depths."""
    return [told for child in field.type.fields for told in (str(child), *_inside(child))]


def schema_difference(ours: Schema, theirs: Schema, check_metadata: bool = False) -> tuple[str, str] | None:
    """The first difference between the fields of two schemas: what ours has, and theirs; None where there is none."""
    if len(ours) != len(theirs):
        return f"{len(ours)} columns", str(len(theirs))
    for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left != right:
            told = [str(left), str(right)]
            if told[0] == told[1]:  # it is in what a type does not show, as the names of a map's fields
                told = [f"{one} (with {', '.join(_inside(one))})" for one in (left, right)]
            return f"column {index} as {told[0]!r}", repr(told[1])
        if check_metadata and not left.equals(right, check_metadata=True):
            return f"column {index} ({left.name!r}) with metadata {left.pairs}", str(right.pairs)
    return None
