"""The column of ``metadataColumn``: the file of each row, with the fields of Spark's hidden column `_metadata`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from bowstring.errors import InvalidArgumentError, translate_os_error
from bowstring.io.store_path import FolderPath, StorePath

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ESCAPED = re.compile(r"[^\w/=:@,$&+;~!*'().-]")


def add_metadata_column(schema: StructType, name: str) -> StructType:
    """Return a schema with the column at its end. Raise `InvalidArgumentError` if it has a column of this name."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    if name in schema.names:
        raise InvalidArgumentError(f"option metadataColumn: the files have a column {name!r}")
    types = {
        "file_path": StringType(),
        "file_name": StringType(),
        "file_size": LongType(),
        "file_modification_time": TimestampType(),
        "batch_index": LongType(),
        "row_index": LongType(),
    }
    metadata_type = StructType([StructField(field, type_) for field, type_ in types.items()])
    return StructType([*schema.fields, StructField(name, metadata_type)])


def create_metadata_column(path: FolderPath, batch_index: int, first_row: int | None, num_rows: int) -> Any:
    """Return the pyarrow array for the rows of a batch, whose first one has the index `first_row` in the file."""
    import pyarrow as pa

    try:
        status = path.stat()
    except OSError as problem:
        raise translate_os_error(problem, f"{path}: cannot be read: {problem.strerror}") from problem
    modified_us = status.st_mtime_ns // 1_000_000 * 1000  # milliseconds, as Spark's
    columns = {
        "file_path": pa.repeat(_to_uri(path), num_rows),
        "file_name": pa.repeat(path.name, num_rows),
        "file_size": pa.repeat(status.st_size, num_rows),
        "file_modification_time": pa.repeat(pa.scalar(modified_us, pa.timestamp("us", "UTC")), num_rows),
        "batch_index": pa.repeat(batch_index, num_rows),
        "row_index": pa.nulls(num_rows, pa.int64()) if first_row is None else pa.array(first_row + np.arange(num_rows)),
    }
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _to_uri(path: FolderPath) -> str:
    """Return the URI of a file as Spark writes it: letters of all languages are not escaped."""
    if isinstance(path, StorePath):
        return str(path)
    return "file:" + _ESCAPED.sub(lambda match: quote(match[0], safe="", errors="surrogateescape"), str(path))
