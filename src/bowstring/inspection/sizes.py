"""What the headers say of sizes, added up column by column with NumPy («RecordBatch message»); no body is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.field import Field, Schema
from bowstring.errors import InvalidDataError
from bowstring.ipc.metadata.header import RECORD_BATCH, BatchHeader
from bowstring.ipc.metadata.schema import V4, DictionaryId, WireSchema
from bowstring.ipc.record_batch.plan import SchemaPlan
from bowstring.ipc.tools.scan import BatchSpan

_Counts = npt.NDArray[np.int64]
_MOST = 1 << 62
_WIDEST_ALIGNMENT = 64


@dataclass(slots=True)
class DictionaryTally:
    """What has been seen of one dictionary."""

    batches: int = 0
    deltas: int = 0
    values: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the columns of a plan begin among nodes, buffers and variadic counts; the last entry is the end."""

    plan: SchemaPlan
    nodes: _Counts
    buffers: _Counts
    variadic: _Counts

    @classmethod
    def of(cls, wire: WireSchema, version: int) -> _Columns:
        plan = SchemaPlan(wire, version == V4)
        starts = [(c.first_node, c.first_buffer, c.first_variadic) for c in plan]
        table = np.array([*starts, (plan.node_count, plan.buffer_count, plan.variadic_count)], np.int64)
        return cls(plan, table[:-1, 0], table[:, 1], table[:, 2])


@dataclass(slots=True)
class Tally:
    """Sums over batches; `add` takes one after the other and checks the numbers of its header.

    Raises `InvalidDataError` where nodes or buffers do not fit the schema or the body.
    """

    wire: WireSchema
    rows: list[int] = field(default_factory=list)
    column_bytes: _Counts = field(init=False)
    null_counts: _Counts = field(init=False)
    dictionaries: dict[int, DictionaryTally] = field(default_factory=dict)
    buffer_bytes: int = 0
    body_bytes: int = 0
    metadata_bytes: int = 0
    with_metadata: int = 0
    compressed: int = 0
    codecs: set[str] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    has_legacy: bool = False
    _total_rows: int = 0
    _places: int = 0
    _known: dict[tuple[int | None, bool], _Columns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.column_bytes = np.zeros(len(self.wire.schema), np.int64)
        self.null_counts = np.zeros(len(self.wire.schema), np.int64)

    @property
    def total_rows(self) -> int:
        """The rows of all record batches."""
        return self._total_rows

    @property
    def alignment_bytes(self) -> int | None:
        """The largest power of two up to 64 that the places of all buffers keep; None where there are no buffers."""
        if not self.buffer_bytes:
            return None
        places = self._places | _WIDEST_ALIGNMENT
        return places & -places

    def add(self, span: BatchSpan) -> None:
        """Take one batch."""
        template = span.header.template
        self.body_bytes += span.body_bytes
        self.metadata_bytes += span.metadata_bytes
        self.has_legacy |= span.is_legacy
        self.versions.add(template.version)
        if template.compression is not None:
            self.compressed += 1
            self.codecs.add(template.compression)
        if template.kind == RECORD_BATCH:
            self._add_record_batch(span)
        else:
            self._add_dictionary(span)

    def _add_record_batch(self, span: BatchSpan) -> None:
        columns = self._columns(None, self.wire, span.header)
        sizes = self._column_sizes(columns, span)
        rows = span.header.length
        self._total_rows += rows
        if self._total_rows > _MOST:
            raise InvalidDataError(f"{span.where}: more than {_MOST} rows")
        nodes = span.header.nodes()[columns.nodes]
        nulls, lengths = nodes["null_count"], nodes["length"]
        bad = (lengths != rows) | (nulls < 0) | (nulls > rows)
        if bad.any():
            at = int(np.argmax(bad))
            name = self.wire.schema.fields[at].name
            raise InvalidDataError(
                f"{span.where}, column {name!r}: {lengths[at]} slots, {nulls[at]} of them null, in {rows} rows"
            )
        self.column_bytes += sizes
        self.null_counts += nulls
        self.rows.append(rows)
        self.with_metadata += bool(span.header.template.pairs)

    def _add_dictionary(self, span: BatchSpan) -> None:
        template = span.header.template
        node = self.wire.by_id.get(template.dictionary_id)
        if node is None:
            raise InvalidDataError(
                f"{span.where}: dictionary {template.dictionary_id} is none of the schema's "
                f"{sorted(self.wire.by_id)[:8]}"
            )
        sizes = self._column_sizes(self._columns(node.id, _values(node), span.header), span)
        held = self.dictionaries.setdefault(node.id, DictionaryTally())
        held.batches += 1
        held.deltas += template.is_delta
        held.values += span.header.length
        held.total_bytes += int(sizes[0])

    def _columns(self, id: int | None, wire: WireSchema, header: BatchHeader) -> _Columns:
        key = (id, header.template.version == V4)
        held = self._known.get(key)
        if held is None:
            held = self._known[key] = _Columns.of(wire, header.template.version)
        return held

    def _column_sizes(self, columns: _Columns, span: BatchSpan) -> _Counts:
        """The bytes of each column's buffers; takes note of where they lie."""
        header, template, plan = span.header, span.header.template, columns.plan
        bounds = columns.buffers
        if plan.variadic_count or template.variadic_count:
            counts = np.array(header.variadic_counts(), np.int64)
            if len(counts) != plan.variadic_count or ((counts < 0) | (counts > template.buffer_count)).any():
                raise InvalidDataError(
                    f"{span.where}: expected {plan.variadic_count} variadic counts, none above "
                    f"{template.buffer_count}, found {counts.tolist()[:8]}"
                )
            bounds = bounds + _running(counts)[columns.variadic]
        if template.node_count != plan.node_count or template.buffer_count != bounds[-1]:
            raise InvalidDataError(
                f"{span.where}: expected {plan.node_count} nodes and {bounds[-1]} buffers for its schema, found "
                f"{template.node_count} and {template.buffer_count}"
            )
        buffers = header.buffers()
        offsets, sizes = buffers["offset"].astype(np.int64), buffers["length"].astype(np.int64)
        self._check(span, offsets, sizes)
        used = offsets[sizes > 0]
        if len(used):
            self._places |= int(np.bitwise_or.reduce(used + span.body_at))
        return np.diff(_running(sizes)[bounds])

    def _check(self, span: BatchSpan, offsets: _Counts, sizes: _Counts) -> None:
        limit = span.body_bytes
        if span.header.body_bytes > limit:
            raise InvalidDataError(f"{span.where}: expected a body of {span.header.body_bytes} bytes, found {limit}")
        bad = (offsets < 0) | (sizes < 0) | (offsets > limit - sizes)
        if bad.any():
            at = int(np.argmax(bad))
            raise InvalidDataError(
                f"{span.where}: buffer {at} of {sizes[at]} bytes at byte {offsets[at]} of a body of {limit}"
            )
        if self.buffer_bytes + sizes.sum(dtype=np.float64) > _MOST:
            raise InvalidDataError(f"{span.where}: its buffers claim more than {_MOST} bytes")
        self.buffer_bytes += int(sizes.sum())


def _running(counts: npt.NDArray[Any]) -> _Counts:
    """0 and the running sums."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def _values(node: DictionaryId) -> WireSchema:
    return WireSchema(Schema((Field("values", node.value_type),)), (node.inside,))
