"""``format("arrow")`` of Spark: the data source, and how it reads Arrow files, folders and globs.

A folder with a manifest is read as the manifest says, any other as the Arrow files in it. Record batches are grouped to
partitions of some 64 MB: small files together, the batches of big files apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bowstring.errors import InvalidDataError, MissingFileError, NotFoundError, UsageError
from bowstring.spark.batches import describe, read_batches
from bowstring.spark.casting import cast_batch
from bowstring.spark.compatibility import (
    check_conversions,
    check_field_names,
    check_inferred,
    check_names,
    merge_schemas,
    missing_columns,
)
from bowstring.spark.manifest import Entry, expand_glob, latest, local_path, plain_files
from bowstring.spark.options import check_read_options, check_write_options, parse_count, parse_flag
from bowstring.spark.streaming import UnsupportedStreamReader, streaming_write_error
from bowstring.spark.types import parse_schema
from bowstring.spark.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from bowstring.spark.sink import ArrowWriter

SPLIT_BYTES = 64 << 20
"""The size of a partition. A task takes some 30 ms of CPU time, so much smaller partitions are not worth it."""
MAX_SENT_BYTES = 128 << 20
"""The maximum size of a batch sent to the JVM; larger ones are sliced."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some record batches of one file."""

    path: str
    first: int
    last: int
    """The batch behind the last one; -1 for all there are."""
    missing: tuple[str, ...] = ()
    """The columns to read that the file lacks."""


class ArrowPartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    entry: Entry | None = None
    lengths_bytes: tuple[int, ...] | None = None
    """The length of each record batch; None for a stream, and for a file with an entry."""


@dataclass(frozen=True, slots=True)
class _FileGroup:
    """Files of one schema: those that a manifest lists, or a single one."""

    path: Path
    schema: StructType
    files: tuple[_File, ...]


class ArrowDataSource(DataSource):
    """Arrow files, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    Options for reading: ``splitBytes`` (of a partition), ``mergeSchema`` (read the columns of all files, with nulls
    where a file lacks one, instead of failing), ``truncate`` (drop what is finer than Spark's microseconds, towards
    zero, instead of failing). Option for writing: ``fsync`` (on disk before the commit). All others are a `UsageError`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._is_inferred = False

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

    @hide_traceback()
    def schema(self) -> StructType:
        """The schema of the files: the first one's, or with ``mergeSchema`` the columns of all."""
        check_read_options(self.options)
        self._is_inferred = True  # Spark pickles this object with the schema for `reader`
        groups = _file_groups(self._paths())
        if parse_flag(self.options, "mergeSchema"):
            return merge_schemas((group.path, group.schema) for group in groups)
        first = next(groups)
        check_names(first.path, first.schema, first.schema.names)
        check_field_names(first.path, first.schema)
        return first.schema

    @hide_traceback()
    def reader(self, schema: StructType) -> ArrowReader:
        """Reads the columns that `schema` names: the files' own schema, or some of it, as other types where that is
        asked for.
        """
        check_read_options(self.options)
        return ArrowReader(
            self._paths(),
            schema,
            parse_count(self.options, "splitBytes", SPLIT_BYTES),
            is_inferred=self._is_inferred,
            merge_schema=parse_flag(self.options, "mergeSchema"),
            truncate=parse_flag(self.options, "truncate"),
        )

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Writes to the folder at the option ``path``."""
        from bowstring.spark.sink import ArrowWriter

        check_write_options(self.options)
        folder = local_path(self.options.get("path", ""))
        return ArrowWriter(folder, schema, overwrite=overwrite, fsync=parse_flag(self.options, "fsync"))

    def streamReader(self, schema: StructType) -> UnsupportedStreamReader:  # noqa: ARG002, N802 -- Spark's own
        """A reader whose first use is a `UsageError`: streams are not supported."""
        return UnsupportedStreamReader()

    @hide_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Raise `UsageError`: streams are not supported."""
        raise streaming_write_error()

    def _paths(self) -> list[Path]:
        """The absolute paths that the options name, globs resolved.

        Raises:
            NotFoundError: one does not exist.
            UsageError: they differ in the names of ``key=value`` folders, which would be lost as columns.
        """
        path = self.options.get("path")
        named_paths = [path] if path else json.loads(self.options.get("paths", "[]")) or [""]
        paths: list[Path] = []
        for path in named_paths:
            absolute = local_path(path)
            matches = [absolute] if absolute.exists() else expand_glob(absolute)
            if not matches:
                raise MissingFileError(f"{path}: there is no such file or folder", filename=str(path))
            paths += matches
        _check_partition_folders(paths, local_path(named_paths[0]))
        return paths


class ArrowReader(DataSourceReader):
    """Plans the partitions on the driver and reads them on the executors."""

    def __init__(
        self,
        paths: list[Path],
        schema: StructType,
        split_bytes: int,
        *,
        is_inferred: bool = False,
        merge_schema: bool = False,
        truncate: bool = False,
    ) -> None:
        self._paths = paths
        self._schema = schema
        self._split_bytes = split_bytes
        self._is_inferred = is_inferred
        self._merge_schema = merge_schema
        self._truncate = truncate

    @hide_traceback()
    def partitions(self) -> list[InputPartition]:
        """Pieces of the files, grouped to partitions of `split_bytes`, in the order of the files.

        Raises:
            UsageError: the columns of a file are not those to read, or can't be read as their types.
        """
        partitions: list[InputPartition] = []
        pieces: list[Piece] = []
        room_bytes = self._split_bytes
        for piece, length_bytes in self._pieces():
            if pieces and length_bytes > room_bytes:
                partitions.append(ArrowPartition(tuple(pieces)))
                pieces, room_bytes = [], self._split_bytes
            pieces.append(piece)
            room_bytes -= length_bytes
        return [*partitions, ArrowPartition(tuple(pieces))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a partition with Spark's types."""
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(self._schema, timezone="UTC")
        with hide_traceback():
            for piece in partition.value:
                batches = None if piece.last < 0 else range(piece.first, piece.last)
                names = [name for name in target.names if name not in piece.missing]
                for index, batch in read_batches(Path(piece.path), batches, names):
                    place = f"{piece.path}, record batch {index}"
                    yield from _slices(cast_batch(batch, target, place, truncate=self._truncate))

    def _pieces(self) -> Iterator[tuple[Piece, int]]:
        for group in _file_groups(self._paths):
            missing = self._check(group)
            for file in group.files:
                for first, last, length_bytes in _batch_ranges(file, self._split_bytes):
                    yield Piece(str(file.path), first, last, missing), length_bytes

    def _check(self, group: _FileGroup) -> tuple[str, ...]:
        """The columns to read that the files of `group` lack."""
        check_names(group.path, group.schema, self._schema.names)
        missing = missing_columns(group.path, group.schema, self._schema, allow=self._merge_schema)
        if self._is_inferred:
            check_inferred(group.path, group.schema, self._schema)
        else:
            check_conversions(group.path, group.schema, self._schema)
        return missing


def _check_partition_folders(paths: list[Path], first: Path) -> None:
    """Raise `UsageError` if one of `paths` is in other ``key=value`` folders than the path or glob `first` names."""
    for path in paths:
        others = _partition_folders(path) - _partition_folders(first)
        if others:
            folder = min(others)
            raise UsageError(
                f"{path}: the column {folder.partition('=')[0]!r} of the partition folder {folder!r} would be lost: "
                f"load one such folder at a time, and add the column with .withColumn()"
            )


def _partition_folders(path: Path) -> set[str]:
    return {part for part in (path if path.is_dir() else path.parent).parts if "=" in part[1:]}


def _file_groups(paths: list[Path]) -> Iterator[_FileGroup]:
    """The files that hold the data, by schema; reads the manifest, or the footer of each file.

    Raises:
        NotFoundError: no path has data, or a file that a manifest lists is missing.
    """
    is_empty = True
    for path in paths:
        manifest = latest(path) if path.is_dir() else None
        if manifest is not None:
            is_empty = False
            files = tuple(_listed(path, entry, manifest.sequence) for entry in manifest.entries)
            yield _FileGroup(path, parse_schema(path, manifest.schema), files)
            continue
        for file in plain_files(path) if path.is_dir() else [path]:
            is_empty = False
            description = describe(file)
            yield _FileGroup(file, description.schema, (_File(file, None, description.lengths_bytes),))
    if is_empty:
        raise NotFoundError(f"{', '.join(map(str, paths))}: no Arrow files are there, and none were committed to it")


def _listed(folder: Path, entry: Entry, sequence: int) -> _File:
    path = folder / entry.name
    try:
        found_bytes = path.stat().st_size
    except FileNotFoundError as error:
        message = f"{path}: is missing, though manifest {sequence} of its folder lists it"
        raise MissingFileError(message, error) from None
    if found_bytes != entry.length_bytes:
        raise InvalidDataError(f"{path}: has {found_bytes} bytes, and manifest {sequence} says {entry.length_bytes}")
    return _File(path, entry)


def _batch_ranges(file: _File, split_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of record batches, none above `split_bytes` unless a single batch is, each with its length in bytes.

    The end of a range is the index behind its last batch; -1 for a stream, which can only be read as a whole.
    """
    lengths_bytes = file.lengths_bytes
    if file.entry is not None:
        if file.entry.batches is not None and file.entry.length_bytes <= split_bytes:
            yield 0, file.entry.batches, file.entry.length_bytes
            return
        lengths_bytes = describe(file.path).lengths_bytes
    if lengths_bytes is None:
        yield 0, -1, file.path.stat().st_size
        return
    first = taken_bytes = 0
    for index, length_bytes in enumerate(lengths_bytes):
        if index > first and taken_bytes + length_bytes > split_bytes:
            yield first, index, taken_bytes
            first, taken_bytes = index, 0
        taken_bytes += length_bytes
    if first < len(lengths_bytes):
        yield first, len(lengths_bytes), taken_bytes


def _slices(batch: Any) -> Iterator[Any]:
    """`batch`, in slices of some MAX_SENT_BYTES."""
    rows = batch.num_rows
    step = max(1, rows * MAX_SENT_BYTES // max(batch.nbytes, MAX_SENT_BYTES))
    for start in range(0, rows, step):
        yield batch.slice(start, step)
