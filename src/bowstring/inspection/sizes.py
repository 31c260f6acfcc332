"""Sums of the sizes in headers, by column («RecordBatch message»); bodies are not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.ipc.metadata.header import RECORD_BATCH, BatchHeader
from bowstring.ipc.metadata.schema import V4, BatchColumnPositions, IpcSchema
from bowstring.ipc.tools.scan import BatchMessage

_Counts = npt.NDArray[np.int64]
_MAX_TOTAL = 1 << 62
_MAX_ALIGNMENT = 64


@dataclass(slots=True)
class DictionaryTotals:
    """The totals of one dictionary."""

    batches: int = 0
    deltas: int = 0
    values: int = 0
    total_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _ColumnStarts:
    """The first node, buffer and variadic count of each column; the last entry is the end."""

    positions: BatchColumnPositions
    nodes: _Counts
    buffers: _Counts
    variadic: _Counts

    @classmethod
    def from_schema(cls, ipc_schema: IpcSchema, version: int) -> _ColumnStarts:
        positions = ipc_schema.column_positions(version)
        starts = [(c.first_node, c.first_buffer, c.first_variadic) for c in positions]
        bounds = np.array(
            [*starts, (positions.node_count, positions.buffer_count, positions.variadic_count)],
            np.int64,
        )
        return cls(positions, bounds[:-1, 0], bounds[:, 1], bounds[:, 2])


@dataclass(slots=True)
class BatchTotals:
    """Sums over record batches and dictionary batches; `add` adds a batch and checks its header.

    Raises `InvalidDataError` if nodes or buffers do not match the schema or the body.
    """

    ipc_schema: IpcSchema
    rows: list[int] = field(default_factory=list)
    total_rows: int = 0
    column_bytes: _Counts = field(init=False)
    null_counts: _Counts = field(init=False)
    dictionaries: dict[int, DictionaryTotals] = field(default_factory=dict)
    buffer_bytes: int = 0
    body_bytes: int = 0
    metadata_bytes: int = 0
    num_with_metadata: int = 0
    num_compressed: int = 0
    codecs: set[str] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    has_legacy_framing: bool = False
    _offset_bits: int = 0
    _column_starts: dict[tuple[int | None, bool], _ColumnStarts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.column_bytes = np.zeros(len(self.ipc_schema.schema), np.int64)
        self.null_counts = np.zeros(len(self.ipc_schema.schema), np.int64)

    @property
    def alignment_bytes(self) -> int | None:
        """The largest power of two up to 64 that divides the offsets of all buffers; None if there are no buffers."""
        if not self.buffer_bytes:
            return None
        offset_bits = self._offset_bits | _MAX_ALIGNMENT
        return offset_bits & -offset_bits

    def add(self, span: BatchMessage) -> None:
        """Add one batch."""
        template = span.header.template
        self.body_bytes += span.body_bytes
        self.metadata_bytes += span.metadata_bytes
        self.has_legacy_framing |= span.is_legacy_framing
        self.versions.add(template.version)
        if template.compression is not None:
            self.num_compressed += 1
            self.codecs.add(template.compression)
        if template.kind == RECORD_BATCH:
            self._add_record_batch(span)
        else:
            self._add_dictionary(span)

    def _add_record_batch(self, span: BatchMessage) -> None:
        starts = self._cached_column_starts(None, self.ipc_schema, span.header)
        sizes = self._column_sizes(starts, span)
        rows = span.header.length
        self.total_rows += rows
        if self.total_rows > _MAX_TOTAL:
            raise InvalidDataError(f"{span.location}: more than {_MAX_TOTAL} rows")
        nodes = span.header.nodes()[starts.nodes]
        nulls, lengths = nodes["null_count"], nodes["length"]
        is_invalid = (lengths != rows) | (nulls < 0) | (nulls > rows)
        if is_invalid.any():
            index = int(np.argmax(is_invalid))
            name = self.ipc_schema.schema.fields[index].name
            raise InvalidDataError(
                f"{span.location}, column {name!r}: {lengths[index]} slots, {nulls[index]} of them null, in {rows} rows"
            )
        self.column_bytes += sizes
        self.null_counts += nulls
        self.rows.append(rows)
        self.num_with_metadata += bool(span.header.template.pairs)

    def _add_dictionary(self, span: BatchMessage) -> None:
        template = span.header.template
        node = self.ipc_schema.dictionaries_by_id.get(template.dictionary_id)
        if node is None:
            raise InvalidDataError(
                f"{span.location}: dictionary {template.dictionary_id} is not in the schema, which has "
                f"{sorted(self.ipc_schema.dictionaries_by_id)[:8]}"
            )
        starts = self._cached_column_starts(node.id, IpcSchema.of_dictionary_values(node), span.header)
        sizes = self._column_sizes(starts, span)
        totals = self.dictionaries.setdefault(node.id, DictionaryTotals())
        totals.batches += 1
        totals.deltas += template.is_delta
        totals.values += span.header.length
        totals.total_bytes += int(sizes[0])

    def _cached_column_starts(
        self, dictionary_id: int | None, ipc_schema: IpcSchema, header: BatchHeader
    ) -> _ColumnStarts:
        key = (dictionary_id, header.template.version == V4)
        starts = self._column_starts.get(key)
        if starts is None:
            starts = self._column_starts[key] = _ColumnStarts.from_schema(ipc_schema, header.template.version)
        return starts

    def _column_sizes(self, column_starts: _ColumnStarts, span: BatchMessage) -> _Counts:
        """Return the size of the buffers of each column; add them to the total size and the alignment."""
        header, template, positions = span.header, span.header.template, column_starts.positions
        bounds = column_starts.buffers
        if positions.variadic_count or template.variadic_count:
            counts = np.array(header.variadic_counts(), np.int64)
            if len(counts) != positions.variadic_count or ((counts < 0) | (counts > template.buffer_count)).any():
                raise InvalidDataError(
                    f"{span.location}: expected {positions.variadic_count} variadic counts, none above "
                    f"{template.buffer_count}, found {counts.tolist()[:8]}"
                )
            bounds = bounds + _cumulative_sums(counts)[column_starts.variadic]
        if template.node_count != positions.node_count or template.buffer_count != bounds[-1]:
            raise InvalidDataError(
                f"{span.location}: expected {positions.node_count} nodes and {bounds[-1]} buffers for its schema, "
                f"found {template.node_count} and {template.buffer_count}"
            )
        buffers = header.buffers()
        offsets, sizes = buffers["offset"].astype(np.int64), buffers["length"].astype(np.int64)
        self._check_buffers(span, sizes)
        self.buffer_bytes += int(sizes.sum())
        non_empty_offsets = offsets[sizes > 0]
        if len(non_empty_offsets):
            self._offset_bits |= int(np.bitwise_or.reduce(non_empty_offsets + span.body_offset))
        return np.diff(_cumulative_sums(sizes)[bounds])

    def _check_buffers(self, span: BatchMessage, sizes: _Counts) -> None:
        limit = span.body_bytes
        if span.header.body_bytes > limit:
            raise InvalidDataError(f"{span.location}: expected a body of {span.header.body_bytes} bytes, found {limit}")
        buffer_error = span.header.find_buffer_error()
        if buffer_error is not None:
            raise InvalidDataError(f"{span.location}: {buffer_error}")
        if self.buffer_bytes + sizes.sum(dtype=np.float64) > _MAX_TOTAL:
            raise InvalidDataError(f"{span.location}: expected buffers of up to {_MAX_TOTAL} bytes, found more")


def _cumulative_sums(counts: npt.NDArray[Any]) -> _Counts:
    """Return the cumulative sums, starting with 0."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
