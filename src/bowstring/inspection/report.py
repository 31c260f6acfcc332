"""Dataclasses for the metadata, sizes and encoding of an Arrow file or stream."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bowstring.datatypes.field import Metadata
from bowstring.display.tables import to_html_table
from bowstring.errors import format_count
from bowstring.ipc.message import MEDIA_TYPES


@dataclass(frozen=True, slots=True)
class DictionaryEncoding:
    """The dictionary encoding of a field: id of the dictionary, type of the indices, and whether it is ordered."""

    id: int
    index_type: str
    ordered: bool


@dataclass(frozen=True, slots=True)
class SchemaFieldReport:
    """A field and its children («Schema message»).

    `type` is the text of the whole type, `type_without_children` that without the children. `extension` is the name of
    the extension type, registered or not. The children of a dictionary-encoded field are the children of its values.
    """

    name: str
    type: str
    type_without_children: str
    nullable: bool
    dictionary: DictionaryEncoding | None
    extension: str | None
    metadata: Metadata
    children: tuple[SchemaFieldReport, ...]


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """The stored size of a top-level column in bytes, including nested children.

    `buffer_bytes` counts the buffers in record batches, `dictionary_bytes` those in the batches of its dictionaries; a
    dictionary used by several columns counts for each. `share` is the fraction of the bytes of all buffers.
    `null_count` is the sum of the null counts in the headers; None if it is unknown, as in some other formats.
    """

    index: int
    field: SchemaFieldReport
    buffer_bytes: int
    dictionary_bytes: int
    share: float
    null_count: int | None

    @property
    def name(self) -> str:
        """The name of the field, not escaped."""
        return self.field.name

    @property
    def total_bytes(self) -> int:
        """The bytes of its buffers and dictionaries."""
        return self.buffer_bytes + self.dictionary_bytes


@dataclass(frozen=True, slots=True)
class DictionaryReport:
    """A dictionary («Dictionary Messages»): the numbers of its batches, of deltas among them, of values and of bytes.

    `columns` are the indices of the columns that use it.
    """

    id: int
    value_type: str
    batches: int
    deltas: int
    values: int
    total_bytes: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchesReport:
    """The record batches («RecordBatch message»): their number and rows per batch (None if there are no batches)."""

    count: int
    rows_min: int | None
    rows_median: float | None
    rows_max: int | None
    with_metadata: int


@dataclass(frozen=True, slots=True)
class BytesReport:
    """The sizes of all parts of the source in bytes; they add up to `total`.

    `buffers` and `padding` are the bodies; `schema` and `headers` the framed metadata of messages; `footer` its
    flatbuffer; `framing` magic, trailer and end marker; `other` bytes outside all messages.
    """

    total: int
    buffers: int
    padding: int
    schema: int
    headers: int
    footer: int
    framing: int
    other: int

    @property
    def metadata_bytes(self) -> int:
        """The sum of `schema`, `headers`, `footer` and `framing`."""
        return self.schema + self.headers + self.footer + self.framing


@dataclass(frozen=True, slots=True)
class IpcEncodingReport:
    """The encoding of a file or stream.

    - `metadata_version`: "V4" or "V5", the oldest version of a batch (some writers use another one in the footer)
    - `endianness`: byte order of the bodies, "little" or "big"
    - `alignment_bytes`: the largest power of two, at most 64, that divides the offsets of all non-empty buffers in the
      file or stream; None if there are no such buffers
    - `codecs`: codecs of the bodies, "lz4" or "zstd"; `compressed_batches`: the number of compressed batches
    - `legacy_framing`: whether messages lack the continuation marker of Arrow 0.15
    - `end_marker`: whether a stream ends with an end marker; None for a file
    """

    metadata_version: str
    endianness: Literal["little", "big"]
    alignment_bytes: int | None
    codecs: tuple[str, ...]
    compressed_batches: int
    legacy_framing: bool
    end_marker: bool | None
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The return value of `inspect`. `columns` are in schema order. Names and metadata are not escaped."""

    source: str
    format: Literal["file", "stream"]
    rows: int
    batches: BatchesReport
    dictionaries: tuple[DictionaryReport, ...]
    columns: tuple[ColumnReport, ...]
    bytes: BytesReport
    encoding: IpcEncodingReport
    schema_metadata: Metadata
    footer_metadata: Metadata

    @property
    def media_type(self) -> str:
        """The media type of the format."""
        return MEDIA_TYPES[self.format]

    @property
    def format_name(self) -> str:
        """The name of the format for display."""
        return f"Arrow {self.format}"

    @property
    def size_bytes(self) -> int:
        """The size of the source."""
        return self.bytes.total

    @property
    def num_batches(self) -> int:
        """The number of record batches."""
        return self.batches.count

    @property
    def codecs(self) -> tuple[str, ...]:
        """The codecs of the bodies."""
        return self.encoding.codecs

    def columns_by_size(self) -> list[ColumnReport]:
        """Return the columns by size, largest first; columns of equal size in schema order."""
        return sorted(self.columns, key=lambda column: -column.total_bytes)

    @property
    def num_dictionary_batches(self) -> int:
        """The number of dictionary batches."""
        return sum(dictionary.batches for dictionary in self.dictionaries)

    @property
    def num_delta_batches(self) -> int:
        """The number of dictionary batches that are deltas."""
        return sum(dictionary.deltas for dictionary in self.dictionaries)

    def properties(self) -> Iterator[tuple[str, str]]:
        """Yield names and values of rows, batches and encoding, as human-readable text; absent ones are omitted."""
        batches, encoding = self.batches, self.encoding
        yield "rows", f"{self.rows:,} in {format_count(batches.count, 'record batch')}"
        if batches.count > 1:
            yield "rows per batch", f"{batches.rows_min:,} to {batches.rows_max:,}, median {batches.rows_median:,.10g}"
        if batches.with_metadata:
            yield "batch metadata", f"on {format_count(batches.with_metadata, 'record batch')}"
        if self.dictionaries:
            deltas = f", {format_count(self.num_delta_batches, 'delta')} among them" if self.num_delta_batches else ""
            count = format_count(self.num_dictionary_batches, "dictionary batch")
            yield "dictionaries", f"{len(self.dictionaries):,}, in {count}{deltas}"
        batch_count = batches.count + self.num_dictionary_batches
        codecs = ", ".join(encoding.codecs)
        compressed = f"{codecs} ({encoding.compressed_batches:,} of {batch_count:,} batches)"
        yield "compression", compressed if codecs else "none"
        yield "alignment", "–" if encoding.alignment_bytes is None else format_count(encoding.alignment_bytes, "byte")
        yield "endianness", encoding.endianness
        framing = ", legacy framing (before 0.15)" if encoding.legacy_framing else ""
        yield "metadata version", encoding.metadata_version + framing
        if encoding.end_marker is False:
            yield "end of stream", "no end marker"
        if encoding.features:
            yield "features", ", ".join(encoding.features)

    def _repr_html_(self) -> str:
        titles = ("column", "type", "bytes", "nulls")
        rows = (
            (column.name, column.field.type, f"{column.total_bytes:,}", f"{column.null_count:,}")
            for column in self.columns
        )
        return to_html_table(f"{self.source} ({self.format})", ("", ""), self.properties()) + to_html_table(
            f"{self.bytes.total:,} bytes", titles, rows
        )


# Reports as JSON-compatible values. The keys are stable; new ones may be added (docs/reference/command-line.md).


def to_document(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as dictionaries, lists, strings and numbers; sizes are in bytes."""
    encoding = inspection.encoding
    return {
        "source": inspection.source,
        "format": inspection.format,
        "media_type": inspection.media_type,
        "rows": inspection.rows,
        "record_batches": asdict(inspection.batches),
        "dictionary_batches": {"count": inspection.num_dictionary_batches, "deltas": inspection.num_delta_batches},
        "bytes": {**asdict(inspection.bytes), "metadata": inspection.bytes.metadata_bytes},
        "compression": {"codecs": list(encoding.codecs), "batches": encoding.compressed_batches},
        "alignment": encoding.alignment_bytes,
        "endianness": encoding.endianness,
        "metadata_version": encoding.metadata_version,
        "legacy_framing": encoding.legacy_framing,
        "end_marker": encoding.end_marker,
        "features": list(encoding.features),
        "columns": [_column_document(column) for column in inspection.columns_by_size()],
        "dictionaries": [_dictionary_document(dictionary) for dictionary in inspection.dictionaries],
        "schema": schema_document([column.field for column in inspection.columns], inspection.schema_metadata),
        "footer_metadata": _metadata_document(inspection.footer_metadata),
    }


def schema_document(fields: Iterable[SchemaFieldReport], metadata: Metadata) -> dict[str, Any]:
    """Return a schema as dictionaries, lists, strings and numbers."""
    return {"fields": [_field_document(field) for field in fields], "metadata": _metadata_document(metadata)}


def _column_document(column: ColumnReport) -> dict[str, Any]:
    return {
        "index": column.index,
        "name": column.name,
        "type": column.field.type,
        "bytes": column.total_bytes,
        "buffer_bytes": column.buffer_bytes,
        "dictionary_bytes": column.dictionary_bytes,
        "share": round(column.share, 6),
        "null_count": column.null_count,
    }


def _dictionary_document(dictionary: DictionaryReport) -> dict[str, Any]:
    report = asdict(dictionary)
    report["bytes"] = report.pop("total_bytes")
    return report


def _field_document(field: SchemaFieldReport) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "nullable": field.nullable,
        "dictionary": None if field.dictionary is None else asdict(field.dictionary),
        "extension": field.extension,
        "metadata": _metadata_document(field.metadata),
        "children": [_field_document(child) for child in field.children],
    }


def _metadata_document(pairs: Metadata) -> list[dict[str, str]]:
    return [{**_text_or_base64("key", key), **_text_or_base64("value", value)} for key, value in pairs]


def _text_or_base64(name: str, raw: bytes) -> dict[str, str]:
    """Return the bytes as text, or in base64 under a key with the suffix `_base64` if they are not valid UTF-8."""
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode("ascii")}
