"""Reading and writing Parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.format_options import SourceOptions, TargetOptions
from bowstring.cli.progress import ReportProgress
from bowstring.cli.pyarrow_adapters import (
    WritableFile,
    import_pyarrow,
    open_random_access_file,
    read_batches,
    translate_pyarrow_errors,
    write_batches,
)
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.datatypes.types import (
    Binary,
    BinaryView,
    DataType,
    Decimal,
    Dictionary,
    Duration,
    FixedSizeBinary,
    FixedSizeList,
    Interval,
    LargeBinary,
    LargeUtf8,
    Null,
    RunEndEncoded,
    Struct,
    Union,
    Utf8,
    Utf8View,
)
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.io.sinks import Sink

_BATCH_ROWS = 1 << 16


@contextmanager
def open_parquet_file(source: Any, name: str, options: SourceOptions) -> Iterator[tuple[Any, int]]:
    """Open a Parquet file; yield pyarrow's file and its size in bytes. Raises `InvalidDataError` if malformed."""
    pq = import_pyarrow("pyarrow.parquet")
    with open_random_access_file(source, options.max_piped_bytes) as file:
        with translate_pyarrow_errors(partial(_pyarrow_error, name)):
            parquet_file = pq.ParquetFile(file)
        yield parquet_file, file.size_bytes


@contextmanager
def open_batches(
    source: Any, name: str, options: SourceOptions, report_progress: ReportProgress
) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """Open a Parquet file; yield its schema and an iterator of its batches. Raises `InvalidDataError` if malformed."""
    columns, translated_error = options.columns, partial(_pyarrow_error, name)
    with open_parquet_file(source, name, options) as (parquet_file, _):
        with translate_pyarrow_errors(translated_error):
            schema = import_schema(parquet_file.schema_arrow)
        reader = parquet_file.iter_batches(options.batch_rows or _BATCH_ROWS, columns=list(columns) or None)
        total = parquet_file.metadata.num_rows
        batches = read_batches(reader, translated_error, lambda rows: report_progress(rows, total), columns)
        yield schema.select(columns) if columns else schema, batches


def _pyarrow_error(name: str, message: str, _rows: int) -> InvalidDataError:
    return InvalidDataError(f"{name}: pyarrow can't read it as Parquet: {message}")


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], options: TargetOptions) -> None:
    """Write batches as row groups; pyarrow crashes on invalid values.

    Raises `UnsupportedTypeError` for a type that Parquet does not have, and what `check_row_count` raises.
    """
    pa, pq = import_pyarrow(), import_pyarrow("pyarrow.parquet")
    for field in schema:
        _check_type(field.type, f"column {field.name!r}")
    compression = {"compression": options.compression, "compression_level": options.compression_level}
    write_batches(lambda: pq.ParquetWriter(WritableFile(sink), pa.schema(schema), **compression), batches, "Parquet")


def keeps_dictionary(type: Dictionary) -> bool:
    """Return whether pyarrow reads a column back as a dictionary. It loses time zones and units of other types."""
    return isinstance(type.value_type, Utf8 | LargeUtf8 | Binary | LargeBinary)


def _check_type(type: DataType, path: str) -> None:
    """Raise `UnsupportedTypeError`, with the path, for a type that pyarrow can't write or read back.

    pyarrow aborts the process for some lists of size 0, and can't read back the others if they are nullable.
    """
    stored = type.storage_type if isinstance(type, ExtensionType) else type
    reason = _unsupported_reason(stored)
    if reason is not None:
        raise UnsupportedTypeError(f"{path}: {type} can't be written as Parquet: {reason}")
    if isinstance(stored, Dictionary):
        _check_type(stored.value_type, f"{path} → dictionary values")
    for child in stored.fields:
        _check_type(child.type, f"{path} → {_path_element(stored, child)}")


def _unsupported_reason(type: DataType) -> str | None:
    if isinstance(type, FixedSizeList) and type.list_size == 0:
        return "the lists have size 0"
    if isinstance(type, FixedSizeBinary) and type.byte_width == 0:
        return "the values have no bytes"
    if isinstance(type, Struct) and not type.fields:
        return "the struct has no fields"
    if isinstance(type, Decimal) and type.scale < 0:
        return "the scale is negative"
    if isinstance(type, Dictionary) and (
        type.value_type.fields or isinstance(type.value_type, Duration | Utf8View | BinaryView | Null)
    ):
        return "pyarrow can't write such nested dictionaries or read them back"
    if isinstance(type, Interval | Union | RunEndEncoded):
        return "Parquet has no such type"
    return None


def _path_element(parent: DataType, child: Field) -> str:
    return f"field {child.name!r}" if isinstance(parent, Struct) else child.name
