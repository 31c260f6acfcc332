"""Between the pyarrow batches that PySpark hands us and takes from us, and Arrow files: nothing is copied on the way.

Batches cross by the C data interface; the files are written and read by Bowstring's own IPC.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bowstring.errors import BowstringError, MissingFileError, translate_os_error
from bowstring.exchange.cdata import import_batch
from bowstring.ipc import framing
from bowstring.ipc.api import new_file, open_file, open_stream
from bowstring.ipc.file import FileReader
from bowstring.ipc.writers import FileWriter
from bowstring.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.tabular.batch import RecordBatch


@dataclass(frozen=True, slots=True)
class Written:
    """What a file holds."""

    rows: int
    batches: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Description:
    """What a file's schema and footer say."""

    schema: StructType
    lengths_bytes: tuple[int, ...] | None
    """The length of each record batch; None for a stream, which can only be read as a whole."""


def write_batches(path: Path, batches: Iterator[Any], *, fsync: bool) -> Written | None:
    """Write pyarrow batches as `write_rows` does to a path, and see what is there; None, and no file, if there is not
    a single row.

    Raises:
        BowstringError, also an OSError: the file can't be written. Whatever is raised, no file is left.
    """
    rows, count = write_rows(path, batches)
    if not rows:
        return None
    try:
        if fsync:
            _sync(path)
        return Written(rows, count, path.stat().st_size)
    except OSError as problem:
        path.unlink(missing_ok=True)
        raise translate_os_error(problem, f"{path}: cannot be written: {problem.strerror}") from problem


def write_rows(sink: Path | int, batches: Iterator[Any]) -> tuple[int, int]:
    """Write the pyarrow batches that have rows as an uncompressed, 64-byte aligned Arrow file: how many rows, and
    batches. Nothing is written where there is not a single row.
    """
    rows = count = 0
    writer: FileWriter | None = None
    try:
        for theirs in batches:
            if theirs.num_rows == 0:
                continue
            batch = import_batch(theirs)
            if writer is None:
                writer = new_file(sink, batch.schema, alignment=64)
            writer.write_batch(batch)
            rows += batch.num_rows
            count += 1
        if writer is not None:
            writer.close()
    finally:
        if writer is not None:
            writer.abandon()  # which does nothing once it is closed
    return rows, count


def describe(path: Path) -> Description:
    """The Spark schema of a file or stream, and how long a file's batches are; reads its footer or first message.

    Raises:
        NotFoundError: it is not there.
        InvalidDataError: it is no Arrow file or stream, or malformed.
        UnsupportedTypeError: a column has a type that Spark has no counterpart for.
    """
    with _named(path):
        if _is_stream(path):
            with open_stream(path) as stream:
                return Description(spark_schema(stream.schema), None)
        with open_file(path) as reader:
            lengths_bytes = tuple(int(length) for length in reader.blocks["bodyLength"])
            return Description(spark_schema(reader.schema), lengths_bytes)


def read_batches(path: Path, batches: range | None, names: list[str]) -> Iterator[tuple[int, Any]]:
    """The pyarrow batches, with their index, of some columns of a file or (where `batches` is None) of a stream.

    Every value is validated before it is handed on: Spark would crash on, or believe, what is malformed.

    Raises:
        NotFoundError: the file, a batch or a column is not there.
        InvalidDataError: the file is malformed.
    """
    import pyarrow as pa

    for index, batch in _batches(path, batches, names):
        with _named(path, index):
            batch.validate(full=True)
            theirs = pa.record_batch(batch)
        yield index, theirs


def _batches(path: Path, batches: range | None, names: list[str]) -> Iterator[tuple[int, RecordBatch]]:
    with _named(path):
        reader = open_stream(path, names) if _is_stream(path) else open_file(path, names)
    with reader:
        remaining = map(reader.get_batch, batches or ()) if isinstance(reader, FileReader) else reader
        index = 0 if batches is None else batches.start
        while True:
            with _named(path, index):
                batch = next(remaining, None)
            if batch is None:
                return
            yield index, batch
            index += 1


def _is_stream(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except FileNotFoundError as problem:
        raise MissingFileError(f"{path}: there is no such file", problem) from None
    except OSError as problem:
        raise translate_os_error(problem, f"{path}: cannot be read: {problem.strerror}") from problem
    return not framing.is_file(start) and framing.looks_like_stream(start)


@contextmanager
def _named(path: Path, index: int | None = None) -> Iterator[None]:
    """Put the path, and which record batch it is, before the message of an error that does not name the path."""
    try:
        yield
    except BowstringError as problem:
        if str(path) in str(problem):
            raise
        where = "" if index is None else f", record batch {index}"
        raise type(problem)(f"{path}{where}: {problem}") from problem


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
