"""Between the pyarrow batches that PySpark hands us and takes from us, and Arrow files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.errors import InvalidDataError, ResourceError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
    """Write pyarrow batches as an uncompressed, 64-byte aligned Arrow file; None, and no file, if there is not a single row."""
    rows = count = 0
    writer = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                file = path.open("xb")
                writer = pa.ipc.new_file(file, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
            count += 1
        if writer is None:
            return None
        writer.close()
        if fsync:
            file.flush()
            os.fsync(file.fileno())
        file.close()
        return Written(rows, count, path.stat().st_size)
    except BaseException as problem:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if isinstance(problem, OSError):
            raise ResourceError(f"{path}: cannot be written: {problem.strerror}") from problem
        raise


def describe(path: Path) -> Description:
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        with pa.OSFile(str(path)) as f:
            reader = pa.ipc.open_file(f)
            n = reader.num_record_batches
            return Description(from_arrow_schema(reader.schema), (path.stat().st_size // max(n, 1),) * n)
    except pa.ArrowInvalid as problem:
        raise InvalidDataError(f"{path}: {problem}") from problem


def read_batches(path: Path, batches: range | None, names: list[str]) -> Iterator[tuple[int, Any]]:
    with pa.memory_map(str(path)) as f:
        reader = pa.ipc.open_file(f)
        for i in batches or range(reader.num_record_batches):
            yield i, reader.get_batch(i).select(names)
