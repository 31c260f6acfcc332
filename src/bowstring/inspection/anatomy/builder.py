"""Build the anatomy of a source («RecordBatch message», «Dictionary Messages»)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError
from bowstring.inspection.anatomy.message_byte_ranges import body_byte_ranges, clip_buffers
from bowstring.inspection.anatomy.model import (
    Anatomy,
    BodyBuffer,
    BodyField,
    BodyLayout,
    ByteRangeKind,
    FaultAtOffset,
    FileSection,
    FileSectionKind,
)
from bowstring.inspection.anatomy.walker import MAX_FAULTS, Walker
from bowstring.inspection.report import Inspection
from bowstring.inspection.report_builder import BatchTotals, create_inspection, type_text_without_children
from bowstring.inspection.validation import Fault, Validator
from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import RandomAccessSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, open_and_detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.schema import V4, V5, IpcSchema, has_legacy_validity
from bowstring.ipc.tools.scan import BatchMessage, FramingSizes
from bowstring.layouts.base import BufferRole, BufferSpec, Layout
from bowstring.layouts.registry import layout_of

# The page and the memory to build it grow with the messages, of which a file can have millions.
MAX_SECTIONS = 100_000
# Rare enough that reports cost nothing.
_PROGRESS_INTERVAL = 500
_LEGACY_VALIDITY = "validity of metadata version 4"
_BUFFER_NAME = re.compile(r"(\w+)\[")
_MESSAGE_OFFSET = re.compile(r"message(?: \d+)? at byte (\d+)")


def build_anatomy(
    source: Any,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    max_sections: int = MAX_SECTIONS,
) -> Anatomy:
    """Build the anatomy of an Arrow file or stream («Serialization and Interprocess Communication (IPC)»).

    `source` is anything that `inspect` accepts. Headers are read, bodies are not; of a URL only headers and readahead
    are fetched. A stream that cannot seek is kept in memory. Damaged data does not raise: the readable sections are
    returned, and `faults` has the errors. After `max_sections` messages the others are one section.

    Raises `LimitError` for a stream that cannot seek and exceeds `max_piped_bytes`, `FormatMismatchError` for other
    formats, `TruncatedError` for an empty source, `NotFoundError` for a missing path.

    >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> anatomy = bs.inspection.build_anatomy("numbers.arrow")
    >>> [section.kind.name for section in anatomy.sections]
    ['START', 'SCHEMA', 'RECORD_BATCH', 'END', 'FOOTER']
    """
    opened, is_file = open_seekable(source, max_piped_bytes)
    try:
        return build_anatomy_from_source(opened, is_file, limits, max_sections)
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
    max_sections: int,
    report_progress: Callable[[int, int | None], None] | None = None,
) -> Anatomy:
    """Build the anatomy of a source, which stays open. `report_progress(done, total)` gets numbers of sections."""
    walker = Walker(source, is_file, limits, max_sections)
    sections_without_bodies = list(walker.sections())
    bodies = _BodySplitter(walker, limits)
    split_sections: list[FileSection] = []
    for section in sections_without_bodies:
        if report_progress is not None and len(split_sections) % _PROGRESS_INTERVAL == 0:
            report_progress(len(split_sections), len(sections_without_bodies))
        split_sections.append(bodies.split(section))
    if report_progress is not None:
        report_progress(len(sections_without_bodies), len(sections_without_bodies))
    sections = tuple(split_sections)
    inspection = bodies.inspect_batches(sections)
    return Anatomy(
        source.name,
        walker.format,
        source.size,
        sections,
        tuple(bodies.layouts),
        tuple(walker.faults.entries),
        walker.faults.count,
        inspection,
        {} if inspection is None else _sum_bytes_by_role(sections, bodies.layouts),
        walker.is_shortened,
    )


class _BodySplitter:
    """Splits bodies into buffers, finds their layouts, and excludes batches that contradict the schema."""

    def __init__(self, walker: Walker, limits: ReadLimits) -> None:
        self.layouts: list[BodyLayout] = []
        self._walker = walker
        self._limits = limits
        self._layout_indices: dict[tuple[object, ...], int] = {}
        self._ipc_schema: IpcSchema | None = None
        if walker.schema is not None:
            try:
                self._ipc_schema = IpcSchema.from_table(walker.schema.table, limits)
                self._totals, self._unlisted_totals = BatchTotals(self._ipc_schema), BatchTotals(self._ipc_schema)
            except InvalidDataError as error:
                walker.faults.add(walker.schema.offset, error)

    def split(self, section: FileSection) -> FileSection:
        """Return the section with its body split into buffers and padding."""
        offsets, lengths, byte_ranges = section.offsets, section.lengths, section.byte_ranges
        if offsets is None or lengths is None:
            return section
        has_body = len(byte_ranges) > 0 and byte_ranges.kinds[-1] == ByteRangeKind.BODY
        body_bytes = int(byte_ranges.lengths_bytes[-1]) if has_body else 0
        layout_index = self._find_layout_index(section)
        if body_bytes:
            if layout_index < 0 or section.span is None or section.span.header.body_bytes > body_bytes:
                offsets, lengths = clip_buffers(offsets, lengths, body_bytes)
            body = body_byte_ranges(offsets, lengths, body_bytes)
            byte_ranges = byte_ranges.head(len(byte_ranges) - 1).concat(body)
        return replace(section, byte_ranges=byte_ranges, layout_index=layout_index)

    def _find_layout_index(self, section: FileSection) -> int:
        """Return the index of the layout of a section's body, or -1 for a batch that contradicts the schema."""
        span = section.span
        ipc_schema = self._ipc_schema
        if span is None or ipc_schema is None or not self._try_add_to_totals(section, span):
            return -1
        template = span.header.template
        if section.kind is FileSectionKind.RECORD_BATCH:
            return self._find_or_add_layout(
                (None, template.version), lambda: _record_batch_layout(ipc_schema, template.version)
            )
        node = ipc_schema.dictionaries_by_id[template.dictionary_id]
        return self._find_or_add_layout((node.id, template.version), lambda: _dictionary_layout(node, template.version))

    def _try_add_to_totals(self, section: FileSection, span: BatchMessage) -> bool:
        """Add a batch to the totals; return False if it contradicts the schema."""
        try:
            (self._totals if section.is_listed else self._unlisted_totals).add(span)
        except InvalidDataError as error:
            if span.body_bytes == span.header.body_bytes:  # otherwise the walker has recorded the truncation
                self._walker.faults.add(section.start, error)
            return False
        return True

    def _find_or_add_layout(self, key: tuple[object, ...], create: Callable[[], BodyLayout]) -> int:
        index = self._layout_indices.get(key)
        if index is None:
            index = self._layout_indices[key] = len(self.layouts)
            self.layouts.append(create())
        return index

    def inspect_batches(self, sections: tuple[FileSection, ...]) -> Inspection | None:
        """Return the report of `bowstring.inspection.inspect` on the valid batches."""
        walker = self._walker
        if walker.schema is None or self._ipc_schema is None or walker.schema.version not in (V4, V5):
            return None
        sizes = _measure_source_sizes(walker, sections)
        try:
            return create_inspection(walker.source.name, walker.format, walker.schema, self._totals, sizes)
        except InvalidDataError as error:
            walker.faults.add(walker.schema.offset, error)
            return None


def _measure_source_sizes(walker: Walker, sections: tuple[FileSection, ...]) -> FramingSizes:
    sizes = dict.fromkeys(FileSectionKind, 0)
    for section in sections:
        sizes[section.kind] += section.byte_ranges.total_bytes
    schema_section = next((section for section in sections if section.kind is FileSectionKind.SCHEMA), None)
    is_legacy_framing = schema_section is not None and schema_section.byte_ranges.kinds[0] == ByteRangeKind.LENGTH
    trailer_bytes = TRAILER.size if sizes[FileSectionKind.FOOTER] else 0
    return FramingSizes(
        walker.source.size,
        sizes[FileSectionKind.SCHEMA],
        sizes[FileSectionKind.FOOTER] - trailer_bytes,
        sizes[FileSectionKind.START] + sizes[FileSectionKind.END] + trailer_bytes,
        None if walker.is_file else walker.has_end_marker,
        is_legacy_framing,
    )


def _sum_bytes_by_role(sections: tuple[FileSection, ...], layouts: list[BodyLayout]) -> dict[tuple[int, str], int]:
    """Add up the buffers of record batches by column and role; variadic buffers count as data."""
    sums = [np.zeros(len(layout.buffers), np.int64) for layout in layouts]
    variadic_sums = [np.zeros(len(layout.buffers), np.int64) for layout in layouts]
    for section in sections:
        if (
            section.kind is not FileSectionKind.RECORD_BATCH
            or section.layout_index < 0
            or not section.is_listed
            or section.lengths is None
        ):
            continue
        layout = layouts[section.layout_index]
        if layout.is_variadic and section.span is not None:
            indices = layout.buffer_indices(section.span.header.variadic_counts())
            is_declared = indices >= 0
            sums[section.layout_index] += section.lengths[is_declared]
            np.add.at(variadic_sums[section.layout_index], ~indices[~is_declared], section.lengths[~is_declared])
        else:
            sums[section.layout_index] += section.lengths
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


# Layouts of bodies («Buffer Listing for Each Layout»)


def _record_batch_layout(ipc_schema: IpcSchema, version: int) -> BodyLayout:
    """Return the layout of the bodies of record batches."""
    return _build_layout(list(ipc_schema.schema.fields), None, version)


def _dictionary_layout(node: DictionaryDeclaration, version: int) -> BodyLayout:
    """Return the layout of the bodies of the batches of one dictionary."""
    return _build_layout([Field("values", node.value_type)], node.id, version)


def _build_layout(columns: list[Field], dictionary_id: int | None, version: int) -> BodyLayout:
    """Return the fields of the columns and their buffers, depth first."""
    fields: list[BodyField] = []
    buffers: list[BodyBuffer] = []

    def add_field(field: Field, layout: Layout, parent: int, column: int) -> None:
        index = len(fields)
        fields.append(BodyField(field.name, parent, type_text_without_children(field.type), column))
        if version == V4 and has_legacy_validity(layout):
            buffers.append(BodyBuffer(index, _LEGACY_VALIDITY, "bit"))
        for spec in layout.buffers:
            is_last = spec is layout.buffers[-1]
            role = "indices" if layout.dictionary is not None and spec.role is BufferRole.DATA else spec.role.value
            buffers.append(BodyBuffer(index, role, _element_type_code(spec), layout.VARIADIC and is_last))
        for child, child_layout in zip(layout.storage.type.fields, layout.children, strict=True):
            add_field(child, child_layout, index, column)

    for column_index, field in enumerate(columns):
        add_field(field, layout_of(field.type), -1, column_index)
    return BodyLayout(dictionary_id, version, tuple(fields), tuple(buffers))


def _element_type_code(spec: BufferSpec) -> str:
    if spec.dtype is None:
        return "bit"
    if not spec.per_slot:
        return ""
    return f"{'o' if spec.is_opaque else spec.dtype.kind}{spec.dtype.itemsize}"


# Errors


def list_all_faults(anatomy: Anatomy, source: MemorySource, limits: ReadLimits, full: bool) -> Anatomy:
    """Return the anatomy with the errors that `Validator` finds, which include its own, each at its offset.

    So a page has the same errors as `bowstring validate`.
    """
    batches = {
        section.number: section
        for section in anatomy.sections
        if section.kind is FileSectionKind.RECORD_BATCH and section.is_listed
    }
    faults, count = list[FaultAtOffset](), 0
    for fault in Validator(MemorySource(source.memory, source.name), full, limits).faults():
        count += 1
        if len(faults) < MAX_FAULTS:
            message = _format_message(fault).removeprefix(f"{source.name}: ")
            offset = _find_buffer_offset(fault, anatomy, batches)
            faults.append(FaultAtOffset(_find_message_offset(message, anatomy) if offset is None else offset, message))
    return replace(anatomy, faults=tuple(faults), fault_count=count)


def _find_message_offset(message: str, anatomy: Anatomy) -> int:
    """Return the offset of the same error in the anatomy, or else of the message that the text names, or else 0."""
    named = _MESSAGE_OFFSET.search(message)
    schemas = [section.start for section in anatomy.sections if section.kind is FileSectionKind.SCHEMA]
    candidates = [fault.offset for fault in anatomy.faults if fault.message == message]
    if named is not None:
        candidates.append(min(int(named[1]), anatomy.total_bytes))
    return next(iter([*candidates, *schemas]), 0)


def _find_buffer_offset(fault: Fault, anatomy: Anatomy, batches: dict[int, FileSection]) -> int | None:
    """Return the offset of the buffer with the error, or of its message if the buffer is unknown."""
    if fault.record_batch is None:
        name = next(iter(fault.path), None)
        sections = (
            section
            for section in anatomy.sections
            if section.kind is FileSectionKind.DICTIONARY_BATCH and section.span is not None
        )
        return next(
            (p.start for p in sections if p.span and name == f"dictionary {p.span.header.template.dictionary_id}"), None
        )
    section = batches.get(fault.record_batch)
    if section is None or section.span is None or section.offsets is None or section.lengths is None:
        return None
    if section.layout_index < 0:
        return section.start
    layout = anatomy.layouts[section.layout_index]
    indices = layout.buffer_indices(section.span.header.variadic_counts())
    buffer_name = _BUFFER_NAME.match(fault.message)
    first_offset: int | None = None
    for index, offset, length in zip(indices.tolist(), section.offsets.tolist(), section.lengths.tolist(), strict=True):
        buffer = layout.buffers[index if index >= 0 else ~index]
        if not length or layout.fields[buffer.field].column != fault.column:
            continue
        buffer_offset = section.span.body_offset + int(offset)
        if buffer_name is not None and buffer.role == {"values": "data"}.get(buffer_name[1], buffer_name[1]):
            return buffer_offset
        first_offset = buffer_offset if first_offset is None else first_offset
    return section.start if first_offset is None else first_offset


def _format_message(fault: Fault) -> str:
    parts = [] if fault.record_batch is None else [f"record batch {fault.record_batch}"]
    if fault.column_name is not None:
        parts.append(f"column {fault.column_name!r}")
    path = [", ".join(parts), *fault.path] if parts else fault.path
    return f"{' → '.join(path)}: {fault.message}" if path else fault.message
