"""Reading and writing Parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bowstring.arrays.construction import record_batch
from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.input_output import Advance, SinkFile
from bowstring.cli.pyarrow_files import import_pyarrow, random_access_file, read_batches
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Schema
from bowstring.datatypes.types import (
    DataType,
    Decimal,
    Dictionary,
    FixedSizeBinary,
    FixedSizeList,
    Interval,
    RunEndEncoded,
    Struct,
    Union,
)
from bowstring.errors import BowstringError, InvalidDataError, UnsupportedTypeError
from bowstring.inspection.values import check_rows
from bowstring.interop import c_data
from bowstring.io.sinks import Sink

_ROWS = 1 << 16


@contextmanager
def open_batches(
    source: Any, name: str, options: Mapping[str, Any], advance: Advance
) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """Open a Parquet file; yield its schema and an iterator of its batches. Raises `InvalidDataError` if malformed."""
    pq, columns = import_pyarrow("pyarrow.parquet"), list(options["columns"])
    with random_access_file(source, options["max_piped_bytes"]) as file:
        with _translate_errors(name):
            parquet_file = pq.ParquetFile(file)
            schema = c_data.import_schema(parquet_file.schema_arrow)
        schema = schema.select(columns) if columns else schema

        def batches() -> Iterator[RecordBatch]:
            rows, total = 0, parquet_file.metadata.num_rows
            advance(rows, total)
            read = parquet_file.iter_batches(options["batch_rows"] or _ROWS, columns=columns or None)
            for batch in read_batches(read, lambda: _translate_errors(name)):
                yield record_batch(batch).select(columns) if columns else record_batch(batch)
                rows += batch.num_rows
                advance(rows, total)

        yield schema, batches()


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate errors of pyarrow to `InvalidDataError`; for damaged pages it raises an OSError."""
    pa = import_pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, BowstringError):
            raise
        raise InvalidDataError(f"{name}: pyarrow can't read it as Parquet: {error}") from error


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], options: Mapping[str, Any]) -> None:
    """Write batches as row groups.

    The values must be valid: pyarrow does not check them, and crashes on invalid ones. Raises
    `UnsupportedTypeError` for a type that Parquet does not have, and what `check_rows` raises.
    """
    pa, pq = import_pyarrow(), import_pyarrow("pyarrow.parquet")
    for field in schema:
        _check_type(field.type, f"column {field.name!r}")
    compression = {"compression": options["compression"], "compression_level": options["compression_level"]}
    try:
        with pq.ParquetWriter(SinkFile(sink), pa.schema(schema), **compression) as writer:
            for number, batch in enumerate(batches):
                check_rows(batch, f"record batch {number}, ")
                writer.write_batch(pa.record_batch(batch))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedTypeError(f"pyarrow can't write this as Parquet: {error}") from error


def _check_type(type: DataType, path: str) -> None:
    """Raise `UnsupportedTypeError`, with the path, for a type that pyarrow can't write or read back.

    pyarrow aborts the process for some lists of size 0, and can't read back the others if they are nullable.
    """
    stored = type.storage_type if isinstance(type, ExtensionType) else type
    reason = _obstacle(stored)
    if reason is not None:
        raise UnsupportedTypeError(f"{path}: {type} can't be written as Parquet: {reason}")
    if isinstance(stored, Dictionary):
        _check_type(stored.value_type, f"{path} → dictionary values")
    for child in stored.fields:
        _check_type(child.type, f"{path} → {_step(stored, child)}")


def _obstacle(type: DataType) -> str | None:
    if isinstance(type, FixedSizeList) and type.list_size == 0:
        return "the lists have size 0"
    if isinstance(type, FixedSizeBinary) and type.byte_width == 0:
        return "the values have no bytes"
    if isinstance(type, Struct) and not type.fields:
        return "the struct has no fields"
    if isinstance(type, Decimal) and type.scale < 0:
        return "the scale is negative"
    if isinstance(type, Dictionary) and type.value_type.fields:
        return "the dictionary values are nested (--decode-dictionaries writes plain values)"
    if isinstance(type, Interval | Union | RunEndEncoded):
        return "Parquet has no such type"
    return None


def _step(parent: DataType, child: Field) -> str:
    return f"field {child.name!r}" if isinstance(parent, Struct) else child.name
