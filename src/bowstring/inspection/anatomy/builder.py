"""Build the anatomy of a source («RecordBatch message», «Dictionary Messages»)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import FlatTable
from bowstring.inspection.anatomy.body_layout import dictionary_layout, record_batch_layout, tensor_layout
from bowstring.inspection.anatomy.message_byte_ranges import body_byte_ranges, clip_buffers
from bowstring.inspection.anatomy.model import Anatomy, BodyLayout, ByteRangeKind, FilePart, FilePartKind
from bowstring.inspection.anatomy.walker import Walker
from bowstring.inspection.report import Inspection
from bowstring.inspection.report_builder import inspect_scan
from bowstring.inspection.sizes import BatchTotals
from bowstring.io.sources import RandomAccessSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, Format, open_and_detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.schema import V4, V5, IpcSchema
from bowstring.ipc.tools.scan import BatchMessage, FramingSizes

MAX_PARTS = 100_000
_PROGRESS_INTERVAL = 500


def build_anatomy(
    source: Any,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    max_parts: int = MAX_PARTS,
) -> Anatomy:
    """Build the anatomy of an Arrow file or stream («Serialization and Interprocess Communication (IPC)»).

    `source` is anything that `inspect` accepts. Headers are read, bodies are not; of a URL only headers and readahead
    are fetched. A stream that cannot seek is kept in memory. Damaged data does not raise: the readable parts are
    returned, and `faults` has the errors. After `max_parts` messages the others are one part.

    Raises `LimitError` for a stream that cannot seek and exceeds `max_piped_bytes`, `FormatMismatchError` for other
    formats, `TruncatedError` for an empty source, `NotFoundError` for a missing path.

    >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> anatomy = bs.inspection.build_anatomy("numbers.arrow")
    >>> [part.kind.name for part in anatomy.parts]
    ['START', 'SCHEMA', 'RECORD_BATCH', 'END', 'FOOTER']
    """
    opened, is_file = open_seekable(source, max_piped_bytes)
    try:
        return build_anatomy_from_source(opened, is_file, limits, max_parts)
    finally:
        opened.close()


def open_seekable(source: Any, max_piped_bytes: int = MAX_PIPED_BYTES) -> tuple[RandomAccessSource, bool]:
    """Open a source with random access from its position on; return it and whether it is a file."""
    opened, format_ = open_and_detect_format(source, max_piped_bytes, needs_random_access=True)
    assert not isinstance(opened, StreamSource)
    return opened, format_ == "file"


def build_anatomy_from_source(
    source: RandomAccessSource,
    is_file: bool,
    limits: ReadLimits,
    max_parts: int,
    report_progress: Callable[[int, int | None], None] | None = None,
) -> Anatomy:
    """Build the anatomy of a source, which stays open. `report_progress(done, total)` gets numbers of parts."""
    walker = Walker(source, is_file, limits, max_parts)
    parts_without_bodies = list(walker.parts())
    bodies = _BodySplitter(walker, limits)
    split_parts: list[FilePart] = []
    for part in parts_without_bodies:
        if report_progress is not None and len(split_parts) % _PROGRESS_INTERVAL == 0:
            report_progress(len(split_parts), len(parts_without_bodies))
        split_parts.append(bodies.split(part))
    if report_progress is not None:
        report_progress(len(parts_without_bodies), len(parts_without_bodies))
    parts = tuple(split_parts)
    inspection = bodies.inspect_batches(parts)
    return Anatomy(
        source.name,
        "file" if is_file else "stream",
        source.size,
        parts,
        tuple(bodies.layouts),
        tuple(walker.faults.entries),
        walker.faults.count,
        inspection,
        {} if inspection is None else _sum_bytes_by_role(parts, bodies.layouts),
        walker.is_shortened,
    )


class _BodySplitter:
    """Splits bodies into buffers, finds their layouts, and excludes batches that contradict the schema."""

    def __init__(self, walker: Walker, limits: ReadLimits) -> None:
        self.layouts: list[BodyLayout] = []
        self._walker = walker
        self._limits = limits
        self._valid_spans: list[BatchMessage] = []
        self._has_all_totals = True
        self._layout_indices: dict[tuple[object, ...], int] = {}
        self._ipc_schema: IpcSchema | None = None
        if walker.schema is not None:
            try:
                self._ipc_schema = IpcSchema.from_table(walker.schema.table, limits)
                self._totals = BatchTotals(self._ipc_schema)
            except InvalidDataError as error:
                walker.faults.add(walker.schema.offset, error)

    def split(self, part: FilePart) -> FilePart:
        """Return the part with its body split into buffers and padding."""
        offsets, lengths, byte_ranges = part.offsets, part.lengths, part.byte_ranges
        if offsets is None or lengths is None:
            return part
        has_body = len(byte_ranges) > 0 and byte_ranges.kinds[-1] == ByteRangeKind.BODY
        body_bytes = int(byte_ranges.lengths_bytes[-1]) if has_body else 0
        layout_index = self._find_layout_index(part)
        if body_bytes:
            if layout_index < 0 or part.span is None or part.span.header.body_bytes > body_bytes:
                offsets, lengths = clip_buffers(offsets, lengths, body_bytes)
            body = body_byte_ranges(offsets, lengths, body_bytes)
            byte_ranges = byte_ranges.head(len(byte_ranges) - 1).concat(body)
        return replace(part, byte_ranges=byte_ranges, layout_index=layout_index)

    def _find_layout_index(self, part: FilePart) -> int:
        """Return the index of the layout of a part's body, or -1 for a batch that contradicts the schema."""
        span = part.span
        if span is None:
            roles = _tensor_buffer_roles(0 if part.offsets is None else len(part.offsets))
            return self._find_or_add_layout((part.kind, roles), lambda: tensor_layout(roles, part.kind.value, V5))
        ipc_schema, template = self._ipc_schema, span.header.template
        if ipc_schema is None or not self._try_add_to_totals(part, span):
            return -1
        if part.kind is FilePartKind.RECORD_BATCH:
            return self._find_or_add_layout(
                (None, template.version), lambda: record_batch_layout(ipc_schema, template.version)
            )
        node = ipc_schema.dictionaries_by_id[template.dictionary_id]
        return self._find_or_add_layout((node.id, template.version), lambda: dictionary_layout(node, template.version))

    def _try_add_to_totals(self, part: FilePart, span: BatchMessage) -> bool:
        """Add a batch to the totals; return False if it contradicts the schema."""
        try:
            self._totals.add(span)
        except InvalidDataError as error:
            if span.body_bytes == span.header.body_bytes:  # otherwise the walker has recorded the truncation
                self._walker.faults.add(part.start, error)
            self._has_all_totals = False
            return False
        if part.is_listed:
            self._valid_spans.append(span)
        else:
            self._has_all_totals = False
        return True

    def _find_or_add_layout(self, key: tuple[object, ...], create: Callable[[], BodyLayout]) -> int:
        index = self._layout_indices.get(key)
        if index is None:
            index = self._layout_indices[key] = len(self.layouts)
            self.layouts.append(create())
        return index

    def inspect_batches(self, parts: tuple[FilePart, ...]) -> Inspection | None:
        """Return the report of `bowstring.inspection.inspect` on the valid batches."""
        walker = self._walker
        if walker.schema is None or self._ipc_schema is None or walker.schema.version not in (V4, V5):
            return None
        scan = _ValidBatchScan(
            walker.source.name,
            "file" if walker.is_file else "stream",
            walker.schema.table,
            walker.schema.version,
            walker.footer_metadata,
            self._ipc_schema,
            self._valid_spans,
            _measure_source_sizes(walker, parts),
        )
        try:
            totals = self._totals if self._has_all_totals else None
            return inspect_scan(scan, totals)
        except InvalidDataError as error:
            walker.faults.add(walker.schema.offset, error)
            return None


@dataclass(slots=True)
class _ValidBatchScan:
    """The valid batches with the interface of a scan."""

    name: str
    format: Format
    schema: FlatTable
    version: int
    footer_metadata: Metadata
    ipc_schema: IpcSchema
    spans: list[BatchMessage]
    source_sizes: FramingSizes

    def batch_messages(self) -> Iterator[BatchMessage]:
        return iter(self.spans)

    def get_framing_sizes(self) -> FramingSizes:
        return self.source_sizes


def _measure_source_sizes(walker: Walker, parts: tuple[FilePart, ...]) -> FramingSizes:
    sizes = dict.fromkeys(FilePartKind, 0)
    for part in parts:
        sizes[part.kind] += part.byte_ranges.total_bytes
    schema_part = next((part for part in parts if part.kind is FilePartKind.SCHEMA), None)
    is_legacy_framing = schema_part is not None and schema_part.byte_ranges.kinds[0] == ByteRangeKind.LENGTH
    trailer_bytes = TRAILER.size if sizes[FilePartKind.FOOTER] else 0
    return FramingSizes(
        walker.source.size,
        sizes[FilePartKind.SCHEMA],
        sizes[FilePartKind.FOOTER] - trailer_bytes,
        sizes[FilePartKind.START] + sizes[FilePartKind.END] + trailer_bytes,
        None if walker.is_file else walker.has_end_marker,
        is_legacy_framing,
    )


def _tensor_buffer_roles(count: int) -> tuple[str, ...]:
    """Return the roles of a tensor's buffers: the values, then those of its index."""
    # COO has one buffer, compressed matrices have two; the trees of CSF have pointers for all levels but the last one.
    index = {0: (), 1: ("indices",), 2: ("index pointers", "indices")}.get(count - 1)
    if index is None:
        pointers = (count - 2) // 2
        index = (*["index pointers"] * pointers, *["indices"] * (count - 1 - pointers))
    return ("values", *index)[:count]


def _sum_bytes_by_role(parts: tuple[FilePart, ...], layouts: list[BodyLayout]) -> dict[tuple[int, str], int]:
    """Add up the buffers of record batches by column and role; variadic buffers count as data."""
    sums = [np.zeros(len(layout.buffers), np.int64) for layout in layouts]
    variadic_sums = [np.zeros(len(layout.buffers), np.int64) for layout in layouts]
    for part in parts:
        if (
            part.kind is not FilePartKind.RECORD_BATCH
            or part.layout_index < 0
            or not part.is_listed
            or part.lengths is None
        ):
            continue
        layout = layouts[part.layout_index]
        if layout.is_variadic and part.span is not None:
            indices = layout.buffer_indices(part.span.header.variadic_counts())
            is_declared = indices >= 0
            sums[part.layout_index] += part.lengths[is_declared]
            np.add.at(variadic_sums[part.layout_index], ~indices[~is_declared], part.lengths[~is_declared])
        else:
            sums[part.layout_index] += part.lengths
    totals: dict[tuple[int, str], int] = {}
    for layout, sizes, variadic_sizes in zip(layouts, sums, variadic_sums, strict=True):
        if layout.dictionary_id is None:
            for buffer, size, variadic_size in zip(
                layout.buffers, sizes.tolist(), variadic_sizes.tolist(), strict=True
            ):
                column = layout.fields[buffer.field].column
                for role, size_bytes in ((buffer.role, size), ("data", variadic_size)):
                    totals[column, role] = totals.get((column, role), 0) + size_bytes
    return totals
