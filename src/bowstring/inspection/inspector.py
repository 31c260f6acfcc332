"""`inspect`: from a source to what there is to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from bowstring.datatypes.extension import NAME_KEY, ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.flatbuf.tables import VERSIONS
from bowstring.inspection.report import (
    BatchesReport,
    BytesReport,
    ColumnReport,
    DictionaryReport,
    DictionaryUse,
    Encoding,
    FieldReport,
    Inspection,
)
from bowstring.inspection.sizes import DictionaryTally, Tally
from bowstring.inspection.text import share_of
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, detect_format, open_source
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.schema import V4, V5, DictionaryId, WireSchema, read_fields
from bowstring.ipc.tools.scan import FileScan, Overhead, Scan, StreamScan

_ENDIANNESS: tuple[Literal["little", "big"], ...] = ("little", "big")
_FEATURES = ("UNUSED", "DICTIONARY_REPLACEMENT", "COMPRESSED_BODY")


def inspect(source: Any, limits: ReadLimits = DEFAULT_LIMITS, max_piped_bytes: int = MAX_PIPED_BYTES) -> Inspection:
    """Tell what there is to know of an Arrow file or stream without reading its data
    («Serialization and Interprocess Communication (IPC)»); the two are told apart by their first bytes.

    `source` is a path (mapped), bytes or anything with the buffer protocol, a binary file object or a descriptor
    (mapped where it is a regular file), a socket, or a URL and what `fsspec.open` gives (read by ranges: of a file the
    footer and all headers, at once). Only headers are read, so compressed and big-endian data can be inspected, too. A
    stream that can't be rewound is read through in small pieces, which takes as long as it takes to
    come. A file that can't be rewound is kept in memory: `LimitError` where it is larger than `max_piped_bytes`.

    Raises `FormatMismatchError` for anything but Arrow, `TruncatedError` for what is cut off, other `InvalidDataError`s
    for headers that contradict themselves, `NotFoundError` for a path that is not there.
    """
    opened = open_source(source)
    try:
        scan, name = _scan(opened, limits, max_piped_bytes)
        return inspected(scan, name, limits)
    finally:
        opened.close()


def _scan(
    source: MemorySource | StreamSource | RangeSource, limits: ReadLimits, max_piped_bytes: int
) -> tuple[Scan, str]:
    is_file, ready = detect_format(source, max_piped_bytes)
    if is_file:
        assert isinstance(ready, MemorySource | RangeSource)
        return FileScan(ready, limits), source.name
    return StreamScan(ready, limits), source.name


def inspected(scan: Scan, name: str, limits: ReadLimits, counted: Tally | None = None) -> Inspection:
    """What a scan says of the source `name`; raises `InvalidDataError` where a header contradicts itself.

    With `counted` its batches have been added up already.
    """
    if scan.version not in (V4, V5):
        version = VERSIONS[scan.version] if 0 <= scan.version < len(VERSIONS) else str(scan.version)
        raise UnsupportedError(f"{name}: metadata version {version} is not supported: only V4 and V5 are")
    endianness = scan.schema["endianness"]
    if not 0 <= endianness < len(_ENDIANNESS):
        raise InvalidDataError(f"{name}: endianness {endianness} is neither little (0) nor big (1)")
    if counted is None:
        tally = Tally(read_fields(scan.schema, limits))
        for span in scan.batches():
            tally.add(span)
    else:
        tally = counted
    wire = tally.wire
    overhead = scan.overhead()
    rows = np.array(tally.rows, np.int64)
    has_rows = len(rows) > 0
    return Inspection(
        name,
        "file" if isinstance(scan, FileScan) else "stream",
        tally.total_rows,
        BatchesReport(
            len(rows),
            int(rows.min()) if has_rows else None,
            float(np.median(rows)) if has_rows else None,
            int(rows.max()) if has_rows else None,
            tally.with_metadata,
        ),
        _dictionaries(wire, tally),
        _columns(wire, tally),
        _bytes(tally, overhead),
        Encoding(
            VERSIONS[min(tally.versions, default=scan.version)],
            _ENDIANNESS[endianness],
            tally.alignment_bytes,
            tuple(sorted(tally.codecs)),
            tally.compressed,
            tally.has_legacy or overhead.is_legacy,
            overhead.end_marker,
            tuple(_FEATURES[n] if 0 <= n < len(_FEATURES) else str(n) for n in scan.schema["features"].tolist()),
        ),
        wire.schema.pairs,
        scan.footer_metadata,
    )


def _bytes(tally: Tally, overhead: Overhead) -> BytesReport:
    buffers = min(tally.buffer_bytes, tally.body_bytes)  # buffers may share bytes
    padding = tally.body_bytes - buffers
    known = (
        tally.body_bytes + tally.metadata_bytes + overhead.schema_bytes + overhead.footer_bytes + overhead.framing_bytes
    )
    return BytesReport(
        overhead.total_bytes,
        buffers,
        padding,
        overhead.schema_bytes,
        tally.metadata_bytes,
        overhead.footer_bytes,
        overhead.framing_bytes,
        max(0, overhead.total_bytes - known),
    )


def _columns(wire: WireSchema, tally: Tally) -> tuple[ColumnReport, ...]:
    parts = zip(
        wire.schema.fields, wire.dictionaries, tally.column_bytes.tolist(), tally.null_counts.tolist(), strict=True
    )
    out = []
    for index, (field, nodes, buffer_bytes, nulls) in enumerate(parts):
        used = {node.id for node in _every(nodes)}
        held = sum(tally.dictionaries[key].total_bytes for key in used if key in tally.dictionaries)
        share = share_of(buffer_bytes + held, tally.buffer_bytes)
        report = _field(field, iter(nodes))
        out.append(ColumnReport(index, report, buffer_bytes, held, share, nulls))
    return tuple(out)


def _dictionaries(wire: WireSchema, tally: Tally) -> tuple[DictionaryReport, ...]:
    users: dict[int, list[int]] = {key: [] for key in wire.by_id}
    for column, nodes in enumerate(wire.dictionaries):
        for key in {node.id for node in _every(nodes)}:
            users[key].append(column)
    out = []
    for key, node in sorted(wire.by_id.items()):
        held = tally.dictionaries.get(key, DictionaryTally())
        out.append(
            DictionaryReport(
                key, str(node.value_type), held.batches, held.deltas, held.values, held.total_bytes, tuple(users[key])
            )
        )
    return tuple(out)


def _every(nodes: Iterable[DictionaryId]) -> Iterator[DictionaryId]:
    for node in nodes:
        yield node
        yield from _every(node.inside)


def _field(field: Field, nodes: Iterator[DictionaryId]) -> FieldReport:
    """The field; `nodes` gives the dictionaries that a walk over it meets, in order."""
    stored, extension = field.type, None
    if isinstance(stored, ExtensionType):
        extension, stored = stored.extension_name, stored.storage_type
    else:
        named = dict(field.pairs).get(NAME_KEY)
        extension = None if named is None else named.decode("utf-8", "replace")
    use, head = None, type_head(stored)
    if isinstance(stored, Dictionary):
        node = next(nodes)
        use = DictionaryUse(node.id, str(stored.index_type), stored.ordered)
        stored, nodes = stored.value_type, iter(node.inside)
        head = f"dictionary<{use.index_type} to {type_head(stored)}{', ordered' if use.ordered else ''}>"
    children = tuple(_field(child, nodes) for child in stored.fields)
    return FieldReport(field.name, str(field.type), head, field.nullable, use, extension, field.pairs, children)


def type_head(type: DataType) -> str:
    """A type without its children: what stands before and after the angle brackets."""
    if not type.fields:
        return str(type)
    text = str(type)
    return text.partition("<")[0] + text.rpartition(">")[2]
