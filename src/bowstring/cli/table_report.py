"""Reports on files in other formats than Arrow, for `info`: columns, their sizes and the schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.cli.progress import open_with_progress, progress_bar
from bowstring.datatypes.extension import get_storage_type
from bowstring.datatypes.field import Metadata
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.datatypes.types import DataType
from bowstring.display.printable_text import fraction
from bowstring.errors import format_count
from bowstring.file_formats import SourceOptions, TableSource
from bowstring.inspection.header_inspection import describe_fields
from bowstring.inspection.report import ColumnReport, schema_document

_FORMAT_NAMES = {"parquet": "Parquet", "csv": "CSV", "json": "JSON", "jsonl": "JSON"}


@dataclass(frozen=True, slots=True)
class TableReport:
    """A report on a Parquet, CSV or JSON file.

    `columns` have the sizes of Parquet as stored, the sizes of CSV and JSON as Arrow in memory. `encodings` are texts
    for the columns. `num_batches` is the number of row groups of Parquet, None for other formats. `size_bytes` is None
    for a pipe.
    """

    source: str
    format: str
    size_bytes: int | None
    rows: int
    num_batches: int | None
    columns: tuple[ColumnReport, ...]
    encodings: tuple[str, ...]
    codecs: tuple[str, ...]
    created_by: str | None
    schema_metadata: Metadata
    footer_metadata: Metadata = ()

    @property
    def format_name(self) -> str:
        """The name of the format, for people."""
        return _FORMAT_NAMES[self.format]

    def columns_by_size(self) -> list[ColumnReport]:
        """Return the columns by size, largest first; columns of equal size in schema order."""
        return sorted(self.columns, key=lambda column: -column.total_bytes)

    def properties(self) -> Iterator[tuple[str, str]]:
        """Yield names and values of rows and encoding, as text for people."""
        parts = "" if self.num_batches is None else f" in {format_count(self.num_batches, 'row group')}"
        yield "rows", f"{self.rows:,}{parts}"
        if self.format == "parquet":
            yield "compression", ", ".join(self.codecs) or "none"
        else:
            yield "sizes", "as Arrow in memory"
        if self.created_by is not None:
            yield "created by", self.created_by

    def to_document(self) -> dict[str, Any]:
        """Return the report as dictionaries, lists, strings and numbers; sizes are in bytes."""
        return {
            "source": self.source,
            "format": self.format,
            "rows": self.rows,
            "row_groups": self.num_batches,
            "bytes": {"total": self.size_bytes},
            "compression": {"codecs": list(self.codecs)},
            "created_by": self.created_by,
            "columns": [column_document(each, self.encodings[each.index]) for each in self.columns_by_size()],
            "schema": schema_document([column.field for column in self.columns], self.schema_metadata),
        }


def column_document(column: ColumnReport, encoding: str) -> dict[str, Any]:
    """Return a column as a dictionary."""
    return {
        "index": column.index,
        "name": column.name,
        "type": column.field.type,
        "encoding": encoding,
        "bytes": column.total_bytes,
        "share": round(column.share, 6),
        "null_count": column.null_count,
    }


def inspect_table(source: TableSource, options: SourceOptions) -> TableReport:
    """Return the report on a file. Of Parquet only the footer is read; CSV and JSON are read completely."""
    if source.format == "parquet":
        return _inspect_parquet(source, options)
    with (
        progress_bar("reading", "bytes") as report_progress,
        open_with_progress(source, options, report_progress) as table,
    ):
        rows, sizes, nulls = 0, np.zeros(len(table.schema), np.int64), np.zeros(len(table.schema), np.int64)
        for batch in table.batches:
            rows += batch.num_rows
            sizes += [column.nbytes for column in batch.columns]
            nulls += [column.null_count for column in batch.columns]
    columns = _describe_columns(table.schema, sizes.tolist(), nulls.tolist())
    texts = ("text",) * len(columns)
    return TableReport(
        source.name, source.format, source.size_bytes, rows, None, columns, texts, (), None, table.schema.pairs
    )


def _describe_columns(
    schema: Schema, sizes: Sequence[int], null_counts: Sequence[int | None]
) -> tuple[ColumnReport, ...]:
    total = sum(sizes)
    return tuple(
        ColumnReport(index, field, size, 0, fraction(size, total), nulls)
        for index, (field, size, nulls) in enumerate(zip(describe_fields(schema), sizes, null_counts, strict=True))
    )


def _inspect_parquet(source: TableSource, options: SourceOptions) -> TableReport:
    with source.open_parquet(options.max_piped_bytes) as parquet_file:
        metadata, schema = parquet_file.metadata, import_schema(parquet_file.schema_arrow)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    sizes: list[int] = []
    null_counts: list[int | None] = []
    encodings: list[str] = []
    codecs: set[str] = set()
    leaf = 0  # a nested column of Arrow is several columns of Parquet, one for each leaf
    for field in schema:
        count = _count_leaves(field.type)
        chunks = [group.column(index) for group in groups for index in range(leaf, leaf + count)]
        leaf += count
        column_codecs = {chunk.compression.lower() for chunk in chunks} - {"uncompressed"}
        codecs |= column_codecs
        sizes.append(sum(chunk.total_compressed_size for chunk in chunks))
        null_counts.append(_sum_null_counts(chunks) if count == 1 and not field.type.fields else None)
        encodings.append(" + ".join([_describe_encoding(chunks), *sorted(column_codecs)]))
    return TableReport(
        source.name,
        "parquet",
        source.size_bytes,
        metadata.num_rows,
        len(groups),
        _describe_columns(schema, sizes, null_counts),
        tuple(encodings),
        tuple(sorted(codecs)),
        metadata.created_by,
        schema.pairs,
    )


def _count_leaves(type: DataType) -> int:
    """Return the number of columns of Parquet for a type."""
    stored = get_storage_type(type)
    return sum(_count_leaves(child.type) for child in stored.fields) if stored.fields else 1


def _sum_null_counts(chunks: list[Any]) -> int | None:
    """Return the number of nulls; None if the statistics of a chunk do not have it."""
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return None
    return sum(int(chunk.statistics.null_count) for chunk in chunks)


def _describe_encoding(chunks: list[Any]) -> str:
    names = {name for chunk in chunks for name in chunk.encodings}
    if any("DICTIONARY" in name for name in names):
        return "dictionary"
    others = sorted(name.lower().replace("_", "-") for name in names - {"PLAIN", "RLE", "BIT_PACKED"})
    return ", ".join(others) or "plain"
