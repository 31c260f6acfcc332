"""Parquet, through pyarrow: the only module of the command line that needs it for files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bowstring.cli.streams import SinkFile
from bowstring.datatypes.field import Schema
from bowstring.errors import InvalidDataError, MissingExtraError, UnsupportedTypeError
from bowstring.exchange import cdata
from bowstring.inspection.values import check_rows
from bowstring.ipc.places.sinks import Sink
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.build import record_batch

_ROWS = 1 << 16


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError.of("pyarrow", "interop") from error
    return pa, pq


@contextmanager
def reading(source: Any, name: str, rows: int | None) -> Iterator[tuple[Schema, Iterator[RecordBatch]]]:
    """The schema and the batches of a Parquet file: a file object that can seek, or bytes.

    Raises `InvalidDataError` for a broken one.
    """
    pa, pq = _pyarrow()
    with _readable(name):
        opened = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    with opened as file:
        with _readable(name):
            schema = cdata.import_stream(file.schema_arrow.empty_table())[0]
        yield schema, _batches(file.iter_batches(rows or _ROWS), name)


def _batches(theirs: Iterator[Any], name: str) -> Iterator[RecordBatch]:
    while True:
        with _readable(name):
            batch = next(theirs, None)
        if batch is None:
            return
        yield record_batch(batch)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn what pyarrow says of a broken file into an error of ours: of damaged pages it raises an OSError."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidDataError(f"{name}: pyarrow can't read it as Parquet: {error}") from error


def write(sink: Sink, schema: Schema, batches: Iterable[RecordBatch], compression: str | None) -> None:
    """Write batches as row groups. Their values have to be sound: pyarrow takes our word for it, and crashes where it
    is wrong. Raises `UnsupportedTypeError` for what Parquet has no type for, and what `check_rows` raises.
    """
    pa, pq = _pyarrow()
    try:
        theirs = pa.schema(schema)
        with pq.ParquetWriter(SinkFile(sink), theirs, compression=compression or "none") as writer:
            for number, batch in enumerate(batches):
                check_rows(batch, f"record batch {number}, ")
                writer.write_batch(pa.record_batch(batch))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedTypeError(f"pyarrow can't write this as Parquet: {error}") from error
