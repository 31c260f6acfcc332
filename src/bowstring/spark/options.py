"""The options of ``format("arrow")``: check their names, and parse their values.

Spark passes names in lower case, and adds `path` or `paths` for ``load`` and ``save``.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import unquote, urlsplit

from bowstring.errors import InvalidArgumentError
from bowstring.io.fsspec_store import is_url
from bowstring.io.store_path import FolderPath, StorePath
from bowstring.ipc.write_options import IpcWriteOptions

Choice = TypeVar("Choice", bound=str)
Action = Literal["reading", "writing", "reading a stream", "writing a stream"]

_READ_OPTIONS = (
    *("columns", "filters", "splitBytes", "truncate", "mergeSchema", "timeZone", "partitionColumnTypeInference"),
    "storageOptions",
    *("basePath", "recursiveFileLookup", "pathGlobFilter", "modifiedAfter", "modifiedBefore"),
    *("mode", "columnNameOfCorruptRecord", "ignoreCorruptFiles", "ignoreMissingFiles", "metadataColumn"),
)
_FILE_OPTIONS = (
    *("fsync", "compression", "compressionLevel", "partitionBy", "sortBy", "dictionaryColumns", "statistics"),
    "storageOptions",
    *("maxRecordsPerBatch", "maxBytesPerBatch", "maxRecordsPerFile", "maxBytesPerFile"),
)
_SUPPORTED_OPTIONS: dict[Action, tuple[str, ...]] = {
    "reading": _READ_OPTIONS,
    "reading a stream": (*_READ_OPTIONS, "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst"),
    "writing": (*_FILE_OPTIONS, "partitionOverwriteMode", "ifExists"),
    "writing a stream": _FILE_OPTIONS,
}
SaveMode = Literal["append", "overwrite", "error", "ignore"]
_UNIT_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
SESSION_TIME_ZONE = "session.timezone"
SESSION_PARTITION_TYPES = "session.partitioncolumntypeinference"
"""Options with settings of the session, which `bowstring.spark.reader_writer_methods` adds."""
_ADDED_OPTIONS = frozenset(
    ("path", "paths", "checkpointlocation", "queryname", SESSION_TIME_ZONE, SESSION_PARTITION_TYPES)
)
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


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a job writes its files. Raises `InvalidArgumentError` for other values, `MissingExtraError` if the codec is
    not installed.
    """

    fsync: bool = False
    compression: str | None = None
    """"lz4" or "zstd"; "none" becomes None."""
    compression_level: int | None = None
    partition_by: tuple[str, ...] = ()
    partition_overwrite_mode: str = "static"
    """Whether an overwrite replaces all files ("static"), or those of the partitions that have rows ("dynamic")."""
    sort_by: tuple[str, ...] = ()
    dictionary_columns: tuple[str, ...] = ()
    max_records_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    max_records_per_file: int | None = None
    max_bytes_per_file: int | None = None
    statistics: bool = True
    """Whether the footers have the statistics of columns whose values have an order."""

    def __post_init__(self) -> None:
        if self.compression in ("none", "uncompressed"):
            object.__setattr__(self, "compression", None)
        if self.partition_overwrite_mode not in ("static", "dynamic"):
            raise InvalidArgumentError(
                f"partitionOverwriteMode: expected static or dynamic, found {self.partition_overwrite_mode!r}"
            )
        for name in ("max_records_per_batch", "max_bytes_per_batch", "max_records_per_file", "max_bytes_per_file"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value > 0):
                raise InvalidArgumentError(f"{name}: expected a positive integer, found {value!r}")
        codec: Any = self.compression  # checked by IpcWriteOptions
        IpcWriteOptions(compression=codec, compression_level=self.compression_level)


def check_options(options: Mapping[str, str], action: Action, *others: Action) -> None:
    """Raise `InvalidArgumentError` for an option that neither action supports."""
    if "provider" in options:  # set for every table
        raise InvalidArgumentError(
            "a table of Spark's catalog can't be read later, because Spark does not pass its path to Python sources: "
            "CREATE TEMPORARY VIEW … USING arrow OPTIONS (path '…') instead"
        )
    names = {name.lower(): name for each in (action, *others) for name in _SUPPORTED_OPTIONS[each]}
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


def parse_flag(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Parse an option that is true or false."""
    value = options.get(name, default).lower()
    if value not in ("true", "false"):
        raise InvalidArgumentError(f"option {name}: expected true or false, found {value!r}")
    return value == "true"


def parse_choice(options: Mapping[str, str], name: str, choices: Sequence[Choice]) -> Choice:
    """Parse an option that is one of `choices`, which are in upper case; the first is the default."""
    value = options.get(name, choices[0]).upper()
    for choice in choices:
        if value == choice:
            return choice
    raise InvalidArgumentError(f"option {name}: expected one of {', '.join(choices)}, found {value!r}")


def parse_storage_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Parse the option for fsspec's file system: a JSON object, which may have secrets and is in no error."""
    try:
        parsed = json.loads(options.get("storageoptions", "{}"))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidArgumentError('option storageOptions: expected a JSON object, such as {"anon": true}')
    return parsed


def parse_positive_integer(options: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is a positive integer; None if it is not given."""
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise InvalidArgumentError(f"option {name}: expected a positive integer, found {value!r}")
    return int(value)


def parse_size(options: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is a number of bytes, such as 1000 or "64m"; None if it is not given."""
    value = options.get(name)
    size_bytes = None if value is None else parse_byte_size(f"option {name}", value)
    if size_bytes == 0:
        raise InvalidArgumentError(f"option {name}: expected at least one byte")
    return size_bytes


def parse_names(options: Mapping[str, str], name: str) -> list[str] | None:
    """Parse an option of names, separated by commas or as a Python list of strings; None if it is not given."""
    value = options.get(name)
    if value is None:
        return None
    if not value.lstrip().startswith("["):
        return [each.strip() for each in value.split(",") if each.strip()]
    try:
        names = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise InvalidArgumentError(f"option {name}: expected names such as 'id, price', or a list, found {value:.200}")
    return names


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a sink. Raises `InvalidArgumentError`."""
    level = options.get("compressionLevel")
    if level is not None and not re.fullmatch(r"[+-]?[0-9]{1,9}", level):
        raise InvalidArgumentError(f"option compressionLevel: expected an integer, found {level!r}")

    return WriteOptions(
        fsync=parse_flag(options, "fsync"),
        statistics=parse_flag(options, "statistics", "true"),
        compression=options.get("compression", "none").lower(),
        compression_level=None if level is None else int(level),
        partition_by=tuple(parse_names(options, "partitionBy") or ()),
        partition_overwrite_mode=options.get("partitionOverwriteMode", "static").lower(),
        sort_by=tuple(parse_names(options, "sortBy") or ()),
        dictionary_columns=tuple(parse_names(options, "dictionaryColumns") or ()),
        max_records_per_batch=parse_positive_integer(options, "maxRecordsPerBatch"),
        max_bytes_per_batch=parse_size(options, "maxBytesPerBatch"),
        max_records_per_file=parse_positive_integer(options, "maxRecordsPerFile"),
        max_bytes_per_file=parse_size(options, "maxBytesPerFile"),
    )


def parse_save_mode(options: Mapping[str, str], *, overwrite: bool) -> SaveMode:
    """Return the save mode of a sink; ``ifExists`` has those that Spark does not pass to Python sources."""
    mode = options.get("ifExists", "overwrite" if overwrite else "append").lower()
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
    """The absolute path for a path or ``file:`` URI, or that of a store for another URL.

    Raises:
        InvalidArgumentError: it is empty, or not a URI, or one without "//", or has parts that a path does not have.
    """
    try:
        parts = urlsplit(path)
    except ValueError as problem:
        raise InvalidArgumentError(f"{path}: neither a path nor a URI: {problem}") from None
    if not path:
        raise InvalidArgumentError(
            'missing path: .load("/data/flights") or .save("/data/flights"); Spark does not pass that of a catalog '
            "table to Python sources: instead of CREATE TABLE or saveAsTable, save to a folder, and read it with "
            "CREATE TEMPORARY VIEW … USING arrow OPTIONS (path '…')"
        )
    if is_url(path) and parts.scheme != "file":
        if "::" in path:
            raise InvalidArgumentError(f"{path}: chained URLs are not supported for folders")
        return StorePath(path, storage_options or {})
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise InvalidArgumentError(
            f"{path}: only URLs such as s3://bucket/folder, and paths of a file system that every executor mounts, "
            f"not {parts.scheme}:"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise InvalidArgumentError(
                f"{path}: expected file:///PATH of a file system that every executor mounts, without a host; quote "
                "'?' and '#'"
            )
        path = unquote(parts.path)
    if "\0" in path:
        raise InvalidArgumentError(f"{path!r}: a path can't have the character U+0000")
    return Path(path).absolute()
