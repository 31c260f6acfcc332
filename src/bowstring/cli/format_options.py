"""Options for reading and writing tables in other formats than Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.write_options import IpcWriteOptions

DEFAULT_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a source; each format has its own among the options.

    `columns` selects columns; empty for all. `max_piped_bytes` limits a file that is read from a pipe into memory,
    `batch_rows` is the number of rows of batches of Parquet, `block_bytes` the size of blocks of CSV and JSON. All
    others are the dialect and the types of CSV; `column_types` is also for JSON. Without a `delimiter`, it is detected,
    and `default_delimiter` preferred. An empty `quote` disables quoting.
    """

    columns: tuple[str, ...] = ()
    max_piped_bytes: int = MAX_PIPED_BYTES
    batch_rows: int | None = None
    block_bytes: int = DEFAULT_BLOCK_BYTES
    column_types: Mapping[str, Any] = field(default_factory=dict)
    column_names: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ()
    timestamp_formats: tuple[str, ...] = ()
    skip_rows: int = 0
    encoding: str = "utf-8"
    quote: str = '"'
    delimiter: str | None = None
    default_delimiter: str = ","
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to write a target: Arrow with `ipc` and the alignment of buffers in bytes, Parquet with a codec and its level
    (None for a fast one), CSV with a delimiter and maybe a header.
    """

    ipc: IpcWriteOptions = field(default_factory=IpcWriteOptions)
    alignment_bytes: int = 64
    compression: str = "snappy"
    compression_level: int | None = None
    delimiter: str = ","
    has_header: bool = True


DEFAULT_SOURCE_OPTIONS, DEFAULT_TARGET_OPTIONS = SourceOptions(), TargetOptions()
