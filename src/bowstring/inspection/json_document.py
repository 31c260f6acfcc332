"""Inspections as JSON-compatible values. The keys are stable; new ones may be added (docs/reference/info.md)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from bowstring.datatypes.field import Metadata
from bowstring.inspection.report import ColumnReport, DictionaryReport, Inspection, SchemaFieldReport


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
        "bytes": {**asdict(inspection.bytes), "metadata": inspection.bytes.metadata},
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
