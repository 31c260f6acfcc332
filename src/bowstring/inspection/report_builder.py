"""`inspect`: the metadata, sizes and encoding of a file or stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from bowstring.datatypes.extension import NAME_KEY, ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.display.printable_text import fraction
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.tables import VERSIONS
from bowstring.inspection.report import (
    BatchesReport,
    BytesReport,
    ColumnReport,
    DictionaryEncoding,
    DictionaryReport,
    Inspection,
    IpcEncodingReport,
    SchemaFieldReport,
)
from bowstring.inspection.sizes import BatchTotals, DictionaryTotals
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import check_metadata_version
from bowstring.ipc.metadata.schema import IpcSchema, create_schema_record
from bowstring.ipc.tools.scan import FramingSizes, MessageScan, open_scan

_ENDIANNESS: tuple[Literal["little", "big"], ...] = ("little", "big")
_FEATURES = ("UNUSED", "DICTIONARY_REPLACEMENT", "COMPRESSED_BODY")


def inspect(source: Any, limits: ReadLimits = DEFAULT_LIMITS, max_piped_bytes: int = MAX_PIPED_BYTES) -> Inspection:
    """Inspect an Arrow file or stream without reading its data («Serialization and Interprocess Communication (IPC)»).

    Only headers are read, so compressed and big-endian data can be inspected, too. The format is detected by the first
    bytes. A stream that can't seek is read to its end in small pieces; a file that can't seek is read into memory. A
    file at a URL takes about four round trips; the headers of a stream at a URL are fetched one by one, each with the
    next 256 KiB.

    Args:
        source: a path (mapped), an object with the buffer protocol, a binary file object or descriptor (mapped if it is
            a regular file), a socket, a URL or the return value of `fsspec.open` (footer and headers are read by
            ranges).
        limits: limits for reading headers.
        max_piped_bytes: the maximum size of a file that is read into memory.

    Raises:
        FormatMismatchError: the source is not Arrow data.
        TruncatedError: the source ends too early.
        InvalidDataError: headers are inconsistent.
        LimitError: a file that can't seek is larger than `max_piped_bytes`.
        NotFoundError: the path does not exist.

    >>> with bs.new_file("cities.arrow", {"city": "string", "people": "int64"}, compression="zstd") as writer:
    ...     writer.write(bs.record_batch({"city": ["Riga", None], "people": [605_273, 7]}))
    >>> report = bs.inspection.inspect("cities.arrow")
    >>> report.rows, report.encoding.codecs, [(column.name, column.null_count) for column in report.columns]
    (2, ('zstd',), [('city', 1), ('people', 0)])
    """
    with open_scan(source, limits, max_piped_bytes) as scan:
        return inspect_scan(scan)


def inspect_scan(scan: MessageScan, totals: BatchTotals | None = None) -> Inspection:
    """Inspect a source. `totals` are those of its batches, if computed already.

    Raises `InvalidDataError` for inconsistent headers.
    """
    name = scan.name
    check_metadata_version(scan.version, name)
    endianness = scan.schema["endianness"]
    if not 0 <= endianness < len(_ENDIANNESS):
        raise InvalidDataError(f"{name}: endianness {endianness} is not valid: expected 0 (little) or 1 (big)")
    if totals is None:
        totals = BatchTotals(scan.ipc_schema)
        for span in scan.batch_messages():
            totals.add(span)
    ipc_schema = totals.ipc_schema
    sizes = scan.get_framing_sizes()
    rows = np.array(totals.rows, np.int64)
    has_rows = len(rows) > 0
    return Inspection(
        source=name,
        format=scan.format,
        rows=totals.total_rows,
        batches=BatchesReport(
            count=len(rows),
            rows_min=int(rows.min()) if has_rows else None,
            rows_median=float(np.median(rows)) if has_rows else None,
            rows_max=int(rows.max()) if has_rows else None,
            with_metadata=totals.num_with_metadata,
        ),
        dictionaries=_dictionary_reports(ipc_schema, totals),
        columns=_column_reports(ipc_schema, totals),
        bytes=_bytes_report(totals, sizes),
        encoding=IpcEncodingReport(
            metadata_version=VERSIONS[min(totals.versions, default=scan.version)],
            endianness=_ENDIANNESS[endianness],
            alignment_bytes=totals.alignment_bytes,
            codecs=tuple(sorted(totals.codecs)),
            compressed_batches=totals.num_compressed,
            legacy_framing=totals.has_legacy_framing or sizes.is_legacy_framing,
            end_marker=sizes.has_end_marker,
            features=tuple(
                _FEATURES[n] if 0 <= n < len(_FEATURES) else str(n) for n in scan.schema["features"].tolist()
            ),
        ),
        schema_metadata=ipc_schema.schema.pairs,
        footer_metadata=scan.footer_metadata,
    )


def report_fields(schema: Schema) -> list[SchemaFieldReport]:
    """Describe the fields of a schema, with the ids that dictionaries get in a file."""
    _, ipc_schema = create_schema_record(schema)
    declarations = zip(schema, ipc_schema.dictionaries, strict=True)
    return [_field_report(field, iter(nodes)) for field, nodes in declarations]


def _bytes_report(totals: BatchTotals, sizes: FramingSizes) -> BytesReport:
    buffers = min(totals.buffer_bytes, totals.body_bytes)  # buffers can share bytes
    padding = totals.body_bytes - buffers
    accounted_bytes = (
        totals.body_bytes + totals.metadata_bytes + sizes.schema_bytes + sizes.footer_bytes + sizes.framing_bytes
    )
    return BytesReport(
        sizes.total_bytes,
        buffers,
        padding,
        sizes.schema_bytes,
        totals.metadata_bytes,
        sizes.footer_bytes,
        sizes.framing_bytes,
        max(0, sizes.total_bytes - accounted_bytes),
    )


def _column_reports(ipc_schema: IpcSchema, totals: BatchTotals) -> tuple[ColumnReport, ...]:
    columns = zip(
        ipc_schema.schema.fields,
        ipc_schema.dictionaries,
        totals.column_bytes.tolist(),
        totals.null_counts.tolist(),
        strict=True,
    )
    reports = []
    for index, (field, nodes, buffer_bytes, nulls) in enumerate(columns):
        dictionary_ids = {node.id for node in _walk_dictionaries(nodes)}
        dictionary_bytes = sum(
            totals.dictionaries[key].total_bytes for key in dictionary_ids if key in totals.dictionaries
        )
        share = fraction(buffer_bytes + dictionary_bytes, totals.buffer_bytes)
        report = _field_report(field, iter(nodes))
        reports.append(ColumnReport(index, report, buffer_bytes, dictionary_bytes, share, nulls))
    return tuple(reports)


def _dictionary_reports(ipc_schema: IpcSchema, totals: BatchTotals) -> tuple[DictionaryReport, ...]:
    users: dict[int, list[int]] = {key: [] for key in ipc_schema.dictionaries_by_id}
    for column, nodes in enumerate(ipc_schema.dictionaries):
        for key in {node.id for node in _walk_dictionaries(nodes)}:
            users[key].append(column)
    reports = []
    for key, node in sorted(ipc_schema.dictionaries_by_id.items()):
        dictionary_totals = totals.dictionaries.get(key, DictionaryTotals())
        reports.append(
            DictionaryReport(
                key,
                str(node.value_type),
                dictionary_totals.batches,
                dictionary_totals.deltas,
                dictionary_totals.values,
                dictionary_totals.total_bytes,
                tuple(users[key]),
            )
        )
    return tuple(reports)


def _walk_dictionaries(nodes: Iterable[DictionaryDeclaration]) -> Iterator[DictionaryDeclaration]:
    for node in nodes:
        yield node
        yield from _walk_dictionaries(node.nested)


def _field_report(field: Field, nodes: Iterator[DictionaryDeclaration]) -> SchemaFieldReport:
    """Describe a field; `nodes` are the dictionaries of the field and its children, depth first."""
    storage, encoding = field.type, None
    if isinstance(storage, ExtensionType):
        extension: str | None = storage.extension_name
        storage = storage.storage_type
    else:
        raw_name = dict(field.pairs).get(NAME_KEY)
        extension = None if raw_name is None else raw_name.decode("utf-8", "replace")
    text = type_text_without_children(storage)
    if isinstance(storage, Dictionary):
        node = next(nodes)
        encoding = DictionaryEncoding(node.id, str(storage.index_type), storage.ordered)
        # The children are those of the values, whose dictionaries are nested in this one.
        storage, nodes = storage.value_type, iter(node.nested)
        order = ", ordered" if encoding.ordered else ""
        text = f"dictionary<{encoding.index_type} to {type_text_without_children(storage)}{order}>"
    children = tuple(_field_report(child, nodes) for child in storage.fields)
    return SchemaFieldReport(
        field.name, str(field.type), text, field.nullable, encoding, extension, field.pairs, children
    )


def type_text_without_children(type: DataType) -> str:
    """Return the text of a type without its children: the text outside the angle brackets."""
    if not type.fields:
        return str(type)
    text = str(type)
    return text.partition("<")[0] + text.rpartition(">")[2]
