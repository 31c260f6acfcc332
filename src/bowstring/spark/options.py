"""The options of ``format("arrow")``: `ReadOptions` and `WriteOptions` list them, each with its parser and default.

A field has the name of its option in snake case. Spark passes names in lower case, and adds `path` or `paths` for
``load`` and ``save``.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, cast

import numpy as np

from bowstring.errors import InvalidArgumentError, check_count
from bowstring.io.fsspec_store import is_url
from bowstring.io.local_path import absolute_path, is_file_uri, parse_file_uri
from bowstring.io.store_path import FolderPath, StoreFileStatus, StorePath
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.spark.path_globs import compile_glob
from bowstring.spark.time_texts import parse_time_zone, parse_timestamp, to_microseconds
from bowstring.spark.vectors import VectorForm, check_vector_form

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Action = Literal["reading", "writing", "reading a stream", "writing a stream"]
SaveMode = Literal["append", "overwrite", "error", "ignore"]

SPLIT_BYTES = 64 << 20
"""The size of a partition. A task takes some 30 ms of CPU time, so much smaller partitions are not worth it."""
_MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_UNIT_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
SESSION_TIME_ZONE = "session.timezone"
SESSION_PARTITION_TYPES = "session.partitioncolumntypeinference"
"""Options with settings of the session, which `bowstring.spark.reader_writer_methods` adds."""
_SESSION_OPTIONS = {"timeZone": SESSION_TIME_ZONE, "partitionColumnTypeInference": SESSION_PARTITION_TYPES}
_ADDED_OPTIONS = frozenset(("path", "paths", "checkpointlocation", "queryname", *_SESSION_OPTIONS.values()))
_ALTERNATIVES = {
    "reading": {
        "compression": "compressed files are recognized without it",
    },
    "writing": {
        "mergeschema": "an append needs the columns that the folder has",
        "mode": 'set .mode("append") or .mode("overwrite"); for other modes .option("ifExists", "error")',
    },
}
"""Alternatives to the options of Spark's own sources."""


# Parsers: each takes a text and the name of its option, which is in the `InvalidArgumentError` for another text.


def parse_flag(name: str, text: str) -> bool:
    """Parse an option that is true or false."""
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{name}: expected true or false, found {text.lower()!r}")
    return text.lower() == "true"


def parse_positive_integer(name: str, text: str) -> int:
    """Parse an option that is a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise InvalidArgumentError(f"{name}: expected a positive integer, found {text!r}")
    return int(text)


def parse_size(name: str, text: str) -> int:
    """Parse an option that is a number of bytes, such as 1000 or "64m"."""
    size_bytes = parse_byte_size(name, text)
    if size_bytes == 0:
        raise InvalidArgumentError(f"{name}: expected at least one byte")
    return size_bytes


def parse_names(name: str, text: str) -> tuple[str, ...]:
    """Parse an option of names, separated by commas or as a Python list of strings."""
    if not text.lstrip().startswith("["):
        return tuple(each.strip() for each in text.split(",") if each.strip())
    try:
        names = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise InvalidArgumentError(f"{name}: expected names such as 'id, price', or a list, found {text:.200}")
    return tuple(names)


def _parse_integer(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        raise InvalidArgumentError(f"{name}: expected an integer, found {text!r}")
    return int(text)


def _parse_mode(name: str, text: str) -> str:
    if text.upper() not in _MODES:
        raise InvalidArgumentError(f"{name}: expected one of {', '.join(_MODES)}, found {text.upper()!r}")
    return text.upper()


def _parse_text(_name: str, text: str) -> str:
    return text


def _parse_lower(_name: str, text: str) -> str:
    return text.lower()


def _option(parse: Callable[[str, str], Any], default: Any = None, *, only: Action | None = None) -> Any:
    """A field that is set by an option; `only` for one action, such as "reading a stream"."""
    return field(default=default, metadata={"parse": parse, "only": only})


def _iter_options(options_class: type) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the options of a class by their names, and their fields."""
    for each in fields(options_class):
        first, *others = each.name.split("_")
        yield first + "".join(map(str.capitalize, others)), each


def _parse_options(options_class: type, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the fields whose options are set, by themselves or by the session."""
    values = {}
    for name, each in _iter_options(options_class):
        text = options.get(name.lower(), options.get(_SESSION_OPTIONS.get(name, "")))
        if text is not None:
            values[each.name] = each.metadata["parse"](f"option {name}", text)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Which files, columns and rows are read, and how malformed data is treated.

    The unit of malformed data is a record batch, or a whole file or the rest of a stream if its batches can't be
    separated. That is coarser than a line of Spark's own text sources, but Arrow's batches are only valid as a whole.
    """

    columns: tuple[str, ...] | None = _option(parse_names)
    filters: str = _option(_parse_text, "")
    split_bytes: int = _option(parse_size, SPLIT_BYTES)
    truncate: bool = _option(parse_flag, default=False)
    """Whether times finer than microseconds are truncated."""
    merge_schema: bool = _option(parse_flag, default=False)
    time_zone: tzinfo = _option(lambda _, text: parse_time_zone(text), UTC)  # noqa: RUF009 -- a field
    """The zone of timestamps in the names of partition folders."""
    partition_column_type_inference: bool = _option(parse_flag, default=True)
    """Whether partition columns have the types of their values; otherwise they are strings."""
    base_path: FolderPath | None = _option(_parse_text)  # noqa: RUF009
    """The folder below which partition folders are columns; by default the path that is loaded."""
    recursive_file_lookup: bool = _option(parse_flag, default=False)
    """Whether all files in subfolders are read; then there are no partition columns."""
    path_glob_filter: re.Pattern[str] | None = _option(lambda _, text: compile_glob(text))  # noqa: RUF009
    modified_after: int | None = _option(_parse_text)
    """In microseconds since 1970, as `modified_before`."""
    modified_before: int | None = _option(_parse_text)
    mode: str = _option(_parse_mode, "FAILFAST")
    """"FAILFAST", "DROPMALFORMED" or "PERMISSIVE"."""
    column_name_of_corrupt_record: str = _option(_parse_text, "_corrupt_record")
    """The column of messages in the mode PERMISSIVE."""
    ignore_corrupt_files: bool = _option(parse_flag, default=False)
    """Whether the rest of a malformed file is not read, whatever the mode."""
    ignore_missing_files: bool = _option(parse_flag, default=False)
    metadata_column: str | None = _option(_parse_text)
    """The column with the file of each row, if one is added."""
    max_files_per_trigger: int | None = _option(parse_positive_integer, only="reading a stream")
    max_bytes_per_trigger: int | None = _option(parse_size, only="reading a stream")
    latest_first: bool = _option(parse_flag, default=False, only="reading a stream")

    def __post_init__(self) -> None:
        if self.max_files_per_trigger is not None and self.max_bytes_per_trigger is not None:
            raise InvalidArgumentError("maxFilesPerTrigger and maxBytesPerTrigger can't be combined: choose one")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of texts by name. Raises `InvalidArgumentError`."""
        values = {"time_zone": parse_time_zone(None), **_parse_options(cls, options)}  # the machine's
        for name, option in (("modified_after", "modifiedAfter"), ("modified_before", "modifiedBefore")):
            if name in values:
                values[name] = _parse_time(option, values[name], values["time_zone"])
        if "base_path" in values:
            values["base_path"] = base_path = parse_path(values["base_path"], parse_storage_options(options))
            if not base_path.is_dir():
                raise InvalidArgumentError(f"option basePath: {base_path} is not a folder")
        return cls(**values)

    def selects(self, path: FolderPath, status: os.stat_result | StoreFileStatus) -> bool:
        """Whether the options select a file."""
        if self.path_glob_filter is not None and not self.path_glob_filter.fullmatch(path.name):
            return False
        modified_us = status.st_mtime_ns // 1_000_000 * 1000  # Spark compares milliseconds
        return (self.modified_after is None or modified_us > self.modified_after) and (
            self.modified_before is None or modified_us < self.modified_before
        )

    @property
    def tolerates_malformed(self) -> bool:
        """Whether malformed data is tolerated."""
        return self.ignore_corrupt_files or self.mode != "FAILFAST"

    @property
    def has_message_rows(self) -> bool:
        """Whether malformed data becomes a row with the message."""
        return self.mode == "PERMISSIVE" and not self.ignore_corrupt_files

    def add_message_column(self, schema: StructType) -> StructType:
        """Return a schema with the column of messages, if any."""
        from pyspark.sql.types import StringType, StructField, StructType

        if self.mode != "PERMISSIVE" or self.column_name_of_corrupt_record in schema.names:
            return schema
        return StructType([*schema.fields, StructField(self.column_name_of_corrupt_record, StringType())])

    def check_message_column(self, schema: StructType) -> None:
        """Raise `InvalidArgumentError` if the column of messages can't have messages."""
        name = self.column_name_of_corrupt_record
        if self.mode == "PERMISSIVE" and name in schema.names:
            column = schema[name]
            if column.dataType.simpleString() != "string" or not column.nullable:
                raise InvalidArgumentError(
                    f"column {name} of columnNameOfCorruptRecord: expected a nullable string, found "
                    f"{column.dataType.simpleString()}"
                )


class ReadArguments(TypedDict, total=False):
    """The options of `ReadOptions` as Python's values, the arguments of `bowstring.spark.read`."""

    columns: Sequence[str]
    filters: Sequence[object]
    split_bytes: int | str
    truncate: bool
    merge_schema: bool
    time_zone: str
    partition_column_type_inference: bool
    base_path: str | Path
    recursive_file_lookup: bool
    path_glob_filter: str
    modified_after: str | datetime
    modified_before: str | datetime
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
    column_name_of_corrupt_record: str
    ignore_corrupt_files: bool
    ignore_missing_files: bool
    metadata_column: str
    storage_options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a job writes its files. Raises `InvalidArgumentError` for other values, `MissingExtraError` if the codec is
    not installed.
    """

    fsync: bool = _option(parse_flag, default=False)
    compression: str | None = _option(_parse_lower)
    """"lz4" or "zstd"; "none" becomes None."""
    compression_level: int | None = _option(_parse_integer)
    partition_by: Sequence[str] = _option(parse_names, ())
    sort_by: Sequence[str] = _option(parse_names, ())
    dictionary_columns: Sequence[str] = _option(parse_names, ())
    statistics: bool = _option(parse_flag, default=True)
    """Whether the footers have the statistics of columns whose values have an order, and of lists their lengths."""
    max_records_per_batch: int | None = _option(parse_positive_integer)
    max_bytes_per_batch: int | None = _option(parse_size)
    max_records_per_file: int | None = _option(parse_positive_integer)
    max_bytes_per_file: int | None = _option(parse_size)
    vectors: VectorForm = _option(_parse_lower, "struct")  # noqa: RUF009 -- a field
    """The form of ML vectors, see `VectorConversion.plan`."""
    partition_overwrite_mode: str = _option(_parse_lower, "static", only="writing")
    """Whether an overwrite replaces all files ("static"), or the files of the partitions that have rows ("dynamic")."""

    def __post_init__(self) -> None:
        if self.compression in ("none", "uncompressed"):
            object.__setattr__(self, "compression", None)
        if self.partition_overwrite_mode not in ("static", "dynamic"):
            raise InvalidArgumentError(
                f"partitionOverwriteMode: expected static or dynamic, found {self.partition_overwrite_mode!r}"
            )
        check_vector_form(self.vectors)
        for name in ("max_records_per_batch", "max_bytes_per_batch", "max_records_per_file", "max_bytes_per_file"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, 1)
        for name in ("partition_by", "sort_by", "dictionary_columns"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise InvalidArgumentError(f"{name}: expected a list of names, found {names!r}: write [{names!r}]")
            object.__setattr__(self, name, tuple(names))
        codec: Any = self.compression  # checked by IpcWriteOptions
        IpcWriteOptions(compression=codec, compression_level=self.compression_level)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of texts by name. Raises `InvalidArgumentError`."""
        return cls(**_parse_options(cls, options))


def encode_options(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark passes them: names in lower case, and values as text."""
    encode: dict[str, Callable[[Any], str]] = {
        "storage_options": json.dumps,
        "filters": lambda value: str(_to_literal(value)),
    }
    return {
        name.replace("_", ""): value if isinstance(value, str) else encode.get(name, _to_text)(value)
        for name, value in arguments.items()
        if value is not None
    }


def _to_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(map(str, value)) if isinstance(value, Sequence) else value)


def _to_literal(value: Any) -> Any:
    """Return the parts of a filter as Python's literals; others, such as times, as text."""
    if isinstance(value, list | tuple | set):
        return type(value)(map(_to_literal, value))
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)  # as Spark stores intervals, which are not parsed from text
    if isinstance(value, float | np.floating) and math.isfinite(value):
        return float(value)
    return value if type(value) in (str, bytes, bool, int, NoneType) else str(value)


def _list_options(action: Action) -> list[str]:
    options_class = ReadOptions if action.startswith("reading") else WriteOptions
    names = [name for name, each in _iter_options(options_class) if each.metadata["only"] in (None, action)]
    return [*names, "storageOptions", *(["ifExists"] if action == "writing" else [])]


def check_options(options: Mapping[str, str], action: Action, *others: Action) -> None:
    """Raise `InvalidArgumentError` for an option that neither action supports."""
    if "provider" in options:  # set for every table
        raise InvalidArgumentError(
            "a table of Spark's catalog can't be read later, because Spark does not pass its path to Python sources: "
            "CREATE TEMPORARY VIEW … USING arrow OPTIONS (path '…') instead"
        )
    names = {name.lower(): name for each in (action, *others) for name in _list_options(each)}
    for key in options:
        if key in names or key in _ADDED_OPTIONS:
            continue
        closest = difflib.get_close_matches(key, names, 1)
        alternative = _ALTERNATIVES[action.removesuffix(" a stream")].get(key)
        if closest:
            advice = f"did you mean {names[closest[0]]!r}?"
        else:
            advice = alternative or f"the options for {action} are {', '.join(map(repr, names.values()))}"
        raise InvalidArgumentError(f'format("arrow") does not support the option {key!r} for {action}: {advice}')


def parse_storage_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Parse the option for fsspec's file system: a JSON object, which may have secrets and is in no error."""
    try:
        parsed = json.loads(options.get("storageoptions", "{}"))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidArgumentError('option storageOptions: expected a JSON object, such as {"anon": true}')
    return parsed


def parse_save_mode(options: Mapping[str, str], *, overwrite: bool) -> SaveMode:
    """Return the save mode of a sink; ``ifExists`` has the modes that Spark does not pass to Python sources."""
    mode = options.get("ifexists", "overwrite" if overwrite else "append").lower()
    if mode not in ("append", "overwrite", "error", "ignore") or (mode != "overwrite") == overwrite:
        raise InvalidArgumentError(
            f'option ifExists: expected error, ignore or append, with .mode("append"), found {mode!r}'
        )
    return cast(SaveMode, mode)


def parse_byte_size(name: str, value: int | str) -> int:
    """Parse a number of bytes, or a text as in Spark's settings: "512m", "4g", "4GB".

    Raises `InvalidArgumentError`.
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", str(value).lower()) if not isinstance(value, bool) else None
    if match is None:
        raise InvalidArgumentError(f"{name}: expected a number of bytes, or such as '512m' or '4g', found {value!r}")
    return int(match[1]) << _UNIT_SHIFTS[match[2]]


def parse_path(path: str, storage_options: Mapping[str, Any] | None = None) -> FolderPath:
    """The absolute path for a path or ``file:`` URI, or the path in a store for another URL.

    Raises:
        InvalidArgumentError: it is empty, or a URI of another kind, or has parts that a path does not have.
        ConnectionLostError: it is the URI of a file on another host.
    """
    if not path:
        raise InvalidArgumentError(
            'missing path: .load("/data/flights") or .save("/data/flights"); Spark does not pass the path of a catalog '
            "table to Python sources: instead of CREATE TABLE or saveAsTable, save to a folder, and read it with "
            "CREATE TEMPORARY VIEW … USING arrow OPTIONS (path '…')"
        )
    if is_file_uri(path):
        path = parse_file_uri(path)
    elif is_url(path):
        if "::" in path:
            raise InvalidArgumentError(f"{path}: chained URLs are not supported for folders")
        return StorePath(path, storage_options or {})
    elif scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        raise InvalidArgumentError(
            f"{path}: only URLs such as s3://bucket/folder, and paths of a file system that every executor mounts, "
            f"not {scheme[0]}"
        )
    if "\0" in path:
        raise InvalidArgumentError(f"{path!r}: a path can't have the character U+0000")
    return Path(absolute_path(path))


def _parse_time(name: str, text: str, zone: tzinfo) -> int:
    """Parse a time as microseconds since 1970."""
    time = parse_timestamp(text, zone)
    if time is None:
        raise InvalidArgumentError(f"option {name}: expected a time such as 2024-01-02T03:04:05, found {text!r}")
    return to_microseconds(time)
