"""`inspect`: the metadata, sizes and encoding of a file or stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

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
from bowstring.ipc.dictionaries.reader import get_dictionary_declaration
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, Format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import MAX_ALIGNMENT_BYTES
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import RECORD_BATCH, BatchHeader, check_metadata_version
from bowstring.ipc.metadata.schema import V4, BatchColumnPositions, IpcSchema, create_schema_record, walk_declarations
from bowstring.ipc.tools.scan import BatchMessage, FramingSizes, LocatedSchema, open_scan

_FEATURES = ("UNUSED", "DICTIONARY_REPLACEMENT", "COMPRESSED_BODY")
_MAX_TOTAL = 1 << 62
"""The largest sum of rows or bytes: two of them still fit in an int64."""
_Counts = npt.NDArray[np.int64]


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
        totals = BatchTotals(scan.ipc_schema)
        for message in scan.batch_messages():
            totals.add(message)
        return create_inspection(
            scan.name,
            scan.format,
            LocatedSchema(scan.schema, scan.version, scan.footer_metadata),
            totals,
            scan.get_framing_sizes(),
        )


def create_inspection(
    name: str, format_: Format, schema: LocatedSchema, totals: BatchTotals, sizes: FramingSizes
) -> Inspection:
    """Create the report of a source. Raises `UnsupportedError` for another metadata version."""
    check_metadata_version(schema.version, name)
    ipc_schema = totals.ipc_schema
    rows = np.array(totals.rows, np.int64)
    has_rows = len(rows) > 0
    return Inspection(
        source=name,
        format=format_,
        rows=totals.total_rows,
        batches=BatchesReport(
            count=len(rows),
            rows_min=int(rows.min()) if has_rows else None,
            rows_median=float(np.median(rows)) if has_rows else None,
            rows_max=int(rows.max()) if has_rows else None,
            with_metadata=totals.num_with_metadata,
        ),
        dictionaries=_describe_dictionaries(ipc_schema, totals),
        columns=_describe_columns(ipc_schema, totals),
        bytes=_sum_sizes(totals, sizes),
        encoding=IpcEncodingReport(
            metadata_version=VERSIONS[min(totals.versions, default=schema.version)],
            endianness="big" if ipc_schema.is_big_endian else "little",
            alignment_bytes=totals.alignment_bytes,
            codecs=tuple(sorted(totals.codecs)),
            compressed_batches=totals.num_compressed,
            legacy_framing=totals.has_legacy_framing or sizes.is_legacy_framing,
            end_marker=sizes.has_end_marker,
            features=tuple(
                _FEATURES[n] if 0 <= n < len(_FEATURES) else str(n) for n in schema.table["features"].tolist()
            ),
        ),
        schema_metadata=ipc_schema.schema.pairs,
        footer_metadata=schema.footer_metadata,
    )


def describe_fields(schema: Schema) -> list[SchemaFieldReport]:
    """Describe the fields of a schema, with the ids that dictionaries get in a file."""
    _, ipc_schema = create_schema_record(schema)
    declarations = zip(schema, ipc_schema.dictionaries, strict=True)
    return [_describe_field(field, iter(nodes)) for field, nodes in declarations]


def _sum_sizes(totals: BatchTotals, sizes: FramingSizes) -> BytesReport:
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


def _describe_columns(ipc_schema: IpcSchema, totals: BatchTotals) -> tuple[ColumnReport, ...]:
    columns = zip(
        ipc_schema.schema.fields,
        ipc_schema.dictionaries,
        totals.column_bytes.tolist(),
        totals.null_counts.tolist(),
        strict=True,
    )
    reports = []
    for index, (column, nodes, buffer_bytes, nulls) in enumerate(columns):
        dictionary_ids = {node.id for node in walk_declarations(nodes)}
        dictionary_bytes = sum(
            totals.dictionaries[key].total_bytes for key in dictionary_ids if key in totals.dictionaries
        )
        share = fraction(buffer_bytes + dictionary_bytes, totals.buffer_bytes)
        report = _describe_field(column, iter(nodes))
        reports.append(ColumnReport(index, report, buffer_bytes, dictionary_bytes, share, nulls))
    return tuple(reports)


def _describe_dictionaries(ipc_schema: IpcSchema, totals: BatchTotals) -> tuple[DictionaryReport, ...]:
    users: dict[int, list[int]] = {key: [] for key in ipc_schema.dictionaries_by_id}
    for column, nodes in enumerate(ipc_schema.dictionaries):
        for key in {node.id for node in walk_declarations(nodes)}:
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


def _describe_field(field: Field, nodes: Iterator[DictionaryDeclaration]) -> SchemaFieldReport:
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
        # The children belong to the values, whose dictionaries are nested in this one.
        storage, nodes = storage.value_type, iter(node.nested)
        order = ", ordered" if encoding.ordered else ""
        text = f"dictionary<{encoding.index_type} to {type_text_without_children(storage)}{order}>"
    children = tuple(_describe_field(child, nodes) for child in storage.fields)
    return SchemaFieldReport(
        field.name, str(field.type), text, field.nullable, encoding, extension, field.pairs, children
    )


def type_text_without_children(type: DataType) -> str:
    """Return the text of a type without its children: the text outside the angle brackets."""
    if not type.fields:
        return str(type)
    text = str(type)
    return text.partition("<")[0] + text.rpartition(">")[2]


# Sums of the sizes in headers, by column («RecordBatch message»)


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
    """Sums over the headers of record batches and dictionary batches; bodies are not read."""

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
        offset_bits = self._offset_bits | MAX_ALIGNMENT_BYTES
        return offset_bits & -offset_bits

    def add(self, message: BatchMessage) -> None:
        """Add one batch. Raises `InvalidDataError` if nodes or buffers do not match the schema or the body; then the
        batch is not counted.
        """
        template = message.header.template
        if template.kind == RECORD_BATCH:
            self._add_record_batch(message)
        else:
            self._add_dictionary(message)
        self.body_bytes += message.body_bytes
        self.metadata_bytes += message.metadata_bytes
        self.has_legacy_framing |= message.is_legacy_framing
        self.versions.add(template.version)
        if template.compression is not None:
            self.num_compressed += 1
            self.codecs.add(template.compression)

    def _add_record_batch(self, message: BatchMessage) -> None:
        starts = self._cached_column_starts(None, self.ipc_schema, message.header)
        bounds = self._check_header(starts, message)
        rows = message.header.length
        if self.total_rows + rows > _MAX_TOTAL:
            raise InvalidDataError(f"{message.location}: more than {_MAX_TOTAL} rows")
        nodes = message.header.nodes()[starts.nodes]
        is_invalid = nodes["length"] != rows
        if is_invalid.any():
            index = int(np.argmax(is_invalid))
            name = self.ipc_schema.schema.fields[index].name
            num_slots = nodes["length"][index]
            raise InvalidDataError(
                f"{message.location}, column {name!r}: expected {rows} slots, the rows of the batch, found {num_slots}"
            )
        self.column_bytes += self._add_buffers(bounds, message)
        self.null_counts += nodes["null_count"]
        self.rows.append(rows)
        self.total_rows += rows
        self.num_with_metadata += bool(message.header.template.pairs)

    def _add_dictionary(self, message: BatchMessage) -> None:
        template = message.header.template
        node = get_dictionary_declaration(self.ipc_schema, message.header, message.location_words)
        starts = self._cached_column_starts(node.id, IpcSchema.of_dictionary_values(node), message.header)
        (size,) = self._add_buffers(self._check_header(starts, message), message)
        totals = self.dictionaries.setdefault(node.id, DictionaryTotals())
        totals.batches += 1
        totals.deltas += template.is_delta
        totals.values += message.header.length
        totals.total_bytes += int(size)

    def _cached_column_starts(
        self, dictionary_id: int | None, ipc_schema: IpcSchema, header: BatchHeader
    ) -> _ColumnStarts:
        key = (dictionary_id, header.template.version == V4)
        starts = self._column_starts.get(key)
        if starts is None:
            starts = self._column_starts[key] = _ColumnStarts.from_schema(ipc_schema, header.template.version)
        return starts

    def _check_header(self, column_starts: _ColumnStarts, message: BatchMessage) -> _Counts:
        """Return the index of the first buffer of each column, and of the end."""
        header = message.header
        variadic_counts = header.check(column_starts.positions, message.body_bytes, message.location_words)
        problem = header.find_problem()
        if problem is not None:
            raise InvalidDataError(f"{message.location}: {problem}")
        if self.buffer_bytes + header.buffers()["length"].sum(dtype=np.float64) > _MAX_TOTAL:
            raise InvalidDataError(f"{message.location}: expected buffers of up to {_MAX_TOTAL} bytes, found more")
        return column_starts.buffers + _cumulative_sums(np.array(variadic_counts, np.int64))[column_starts.variadic]

    def _add_buffers(self, bounds: _Counts, message: BatchMessage) -> _Counts:
        """Add the buffers to the total size and the alignment, and return the size of each column."""
        buffers = message.header.buffers()
        offsets, sizes = buffers["offset"].astype(np.int64), buffers["length"].astype(np.int64)
        self.buffer_bytes += int(sizes.sum())
        non_empty_offsets = offsets[sizes > 0]
        if len(non_empty_offsets):
            self._offset_bits |= int(np.bitwise_or.reduce(non_empty_offsets + message.body_offset))
        return np.diff(_cumulative_sums(sizes)[bounds])


def _cumulative_sums(counts: npt.NDArray[Any]) -> _Counts:
    """Return the cumulative sums, starting with 0."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
