"""Build the anatomy of a source («RecordBatch message», «Dictionary Messages»)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.inspection.anatomy.model import (
    Anatomy,
    BodyLayout,
    ByteRangeKind,
    FaultAtOffset,
    FileSection,
    FileSectionKind,
)
from bowstring.inspection.anatomy.walker import MAX_FAULTS, Walker
from bowstring.inspection.header_inspection import create_inspection
from bowstring.inspection.report import Inspection
from bowstring.inspection.validation import Fault, Validator
from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import RandomAccessSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, open_and_detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.schema import V4, V5
from bowstring.ipc.tools.scan import FramingSizes

# The page and the memory to build it grow with the messages, of which a file can have millions.
MAX_SECTIONS = 100_000
# Rare enough that reports cost nothing.
_PROGRESS_INTERVAL = 500
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
    """Build the anatomy of a source, which stays open. `report_progress(done, total)` gets numbers of bytes."""
    walker = Walker(source, is_file, limits, max_sections)
    sections: list[FileSection] = []
    for section in walker.sections():
        if report_progress is not None and len(sections) % _PROGRESS_INTERVAL == 0:
            report_progress(section.start, source.size)
        sections.append(section)
    if report_progress is not None:
        report_progress(source.size, source.size)
    inspection = _inspect_batches(walker, sections)
    layouts = [] if walker.bodies is None else walker.bodies.layouts
    return Anatomy(
        source.name,
        walker.format,
        source.size,
        tuple(sections),
        tuple(layouts),
        tuple(walker.faults.entries),
        walker.faults.count,
        inspection,
        {} if inspection is None else _sum_bytes_by_role(sections, layouts),
        walker.is_shortened,
    )


def _inspect_batches(walker: Walker, sections: Sequence[FileSection]) -> Inspection | None:
    """Return the report of `bowstring.inspection.inspect` on the valid batches."""
    schema = walker.schema
    if schema is None or walker.bodies is None or schema.version not in (V4, V5):
        return None
    sizes = _measure_source_sizes(walker, sections)
    try:
        return create_inspection(walker.source.name, walker.format, schema, walker.bodies.totals, sizes)
    except InvalidDataError as error:
        walker.faults.add(schema.offset, error)
        return None


def _measure_source_sizes(walker: Walker, sections: Sequence[FileSection]) -> FramingSizes:
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


def _sum_bytes_by_role(sections: Sequence[FileSection], layouts: list[BodyLayout]) -> dict[tuple[int, str], int]:
    """Add up the buffers of record batches by column and role; variadic buffers count as data."""
    # The sizes of variadic buffers are added at the indices ~index of `buffer_indices`, from the end.
    sums = [np.zeros(2 * len(layout.buffers), np.int64) for layout in layouts]
    for section in sections:
        if section.kind is FileSectionKind.RECORD_BATCH and section.layout_index >= 0 and section.is_listed:
            assert section.message is not None
            indices = layouts[section.layout_index].buffer_indices(section.message.header.variadic_counts())
            np.add.at(sums[section.layout_index], indices, section.buffers[1])
    totals: Counter[tuple[int, str]] = Counter()
    for layout, sizes in zip(layouts, sums, strict=True):
        if layout.dictionary_id is None:
            keys = [(layout.fields[buffer.field].column, buffer.role) for buffer in layout.buffers]
            keys += [(column, "data") for column, _ in reversed(keys)]
            for key, size in zip(keys, sizes.tolist(), strict=True):
                totals[key] += size
    return totals


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
        starts: dict[str, int] = {}
        for section in anatomy.sections:
            if section.kind is FileSectionKind.DICTIONARY_BATCH and section.message is not None:
                starts.setdefault(f"dictionary {section.message.header.template.dictionary_id}", section.start)
        return starts.get(next(iter(fault.path), ""))
    batch = batches.get(fault.record_batch)
    if batch is None or batch.message is None:
        return None
    if batch.layout_index < 0:
        return batch.start
    layout, (offsets, lengths) = anatomy.layouts[batch.layout_index], batch.buffers
    indices = layout.buffer_indices(batch.message.header.variadic_counts())
    buffer_name = _BUFFER_NAME.match(fault.message)
    column_offsets: list[int] = []
    for index, offset, length in zip(indices.tolist(), offsets.tolist(), lengths.tolist(), strict=True):
        buffer = layout.buffers[index if index >= 0 else ~index]
        if not length or layout.fields[buffer.field].column != fault.column:
            continue
        column_offsets.append(batch.message.body_offset + offset)
        if buffer_name is not None and buffer.role == {"values": "data"}.get(buffer_name[1], buffer_name[1]):
            return column_offsets[-1]
    return column_offsets[0] if column_offsets else batch.start


def _format_message(fault: Fault) -> str:
    parts = [] if fault.record_batch is None else [f"record batch {fault.record_batch}"]
    if fault.column_name is not None:
        parts.append(f"column {fault.column_name!r}")
    path = [", ".join(parts), *fault.path] if parts else fault.path
    return f"{' → '.join(path)}: {fault.message}" if path else fault.message
