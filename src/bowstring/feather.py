"""Whole Arrow files with the names of ``pyarrow.feather``. Version 2 of Feather is the «IPC File Format»."""

# ruff: noqa: PLC0414 -- `read_table` is public here, too
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from bowstring.arrays.table import as_table
from bowstring.datasets.files import read_table as read_table
from bowstring.errors import InvalidArgumentError
from bowstring.ipc.api import new_file
from bowstring.ipc.write_options import IpcWriteOptions


def write_feather(
    df: Any,
    dest: Any,
    compression: Literal["lz4", "zstd", "uncompressed"] | None = None,
    compression_level: int | None = None,
    chunksize: int | None = None,
    version: Literal[2] = 2,
) -> None:
    """Write a pandas DataFrame, or a table of any Arrow library, to an Arrow file.

    Unlike in pyarrow, the file is not compressed by default, so that readers can map it. `dest` and errors are as in
    `bowstring.new_file`. Batches have at most `chunksize` rows. Raises `InvalidArgumentError` for another version.

    >>> bs.feather.write_feather(bs.table({"a": [1, 2]}), "a.feather")
    >>> bs.feather.read_table("a.feather").num_rows
    2
    """
    if version != 2:
        raise InvalidArgumentError(f"write_feather: version 2 is the Arrow file; found version {version!r:.100}")
    codec = None if compression == "uncompressed" else compression
    options = IpcWriteOptions(compression=codec, compression_level=compression_level)
    table = as_table(df)
    with new_file(dest, table.schema, options=options) as writer:
        for batch in table.to_batches(chunksize):
            writer.write_batch(batch)


def read_feather(source: Any, columns: Sequence[str | int] | None = None, **options: Any) -> Any:
    """Read an Arrow file into a pandas DataFrame, as `read_table`. `options` are as in `Table.to_pandas`.

    >>> bs.feather.write_feather(bs.table({"a": [1, 2]}), "a.feather")
    >>> bs.feather.read_feather("a.feather")["a"].sum().item()
    3
    """
    return read_table(source, columns).to_pandas(**options)
