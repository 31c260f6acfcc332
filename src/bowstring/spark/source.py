"""``format("arrow")`` of Spark: the data source, and how it reads Arrow files, folders and globs.

A folder with a manifest is read as the manifest says, any other as the Arrow files in it. Record batches are grouped to
partitions of some 64 MB: small files together, the batches of big files apart.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bowstring.errors import InvalidDataError, MissingFileError, NotFoundError, UsageError
from bowstring.spark.batches import describe, read_batches
from bowstring.spark.casting import cast_batch
from bowstring.spark.manifest import Entry, latest, local_path, plain_files
from bowstring.spark.types import all_nullable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.spark.sink import ArrowWriter

SPLIT_BYTES = 64 << 20
"""What a partition holds; a task costs some 30 ms of CPU, so much smaller ones are not worth it."""
MAX_SENT_BYTES = 128 << 20
"""What one batch on its way to the JVM holds at the most, so that a file of one huge batch is not one huge message."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some record batches of one file."""

    path: str
    first: int
    last: int
    """The batch behind the last one; -1 for all there are."""


class ArrowPartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    entry: Entry | None


class ArrowDataSource(DataSource):
    """Arrow files, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    Options: ``splitBytes`` (of a partition when reading), ``truncate`` (when reading: round units finer than Spark's
    microseconds down, instead of failing where that loses something), ``fsync`` (when writing: on disk before the
    commit).
    """

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

    def schema(self) -> StructType:
        """The schema of the files: the manifest's, or the first file's."""
        from pyspark.sql.types import StructType

        paths = self._paths()
        for folder in paths:
            manifest = latest(folder) if folder.is_dir() else None
            if manifest is not None:
                try:
                    return StructType.fromJson(manifest.schema)
                except Exception as problem:  # from outside, and Spark raises what it likes
                    raise InvalidDataError(f"{folder}: the manifest's schema is not Spark's: {problem}") from problem
        return all_nullable(describe(_files(paths)[0].path).schema)

    def reader(self, schema: StructType) -> ArrowReader:
        """Reads the columns that `schema` names: the files' own schema, or some of it, as other types where that is
        asked for.

        Raises:
            NotFoundError: `schema` names a column that the files do not have.
        """
        names = self.schema().names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise NotFoundError(
                f"{', '.join(map(str, self._paths()))}: no column is called {', '.join(map(repr, missing))}; "
                f"there are {', '.join(map(repr, names))}"
            )
        return ArrowReader(
            self._paths(), schema, self._number("splitBytes", SPLIT_BYTES), truncate=self._flag("truncate")
        )

    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Writes to the folder at the option ``path``."""
        from bowstring.spark.sink import ArrowWriter

        folder = local_path(self.options.get("path", ""))
        return ArrowWriter(folder, schema, overwrite=overwrite, fsync=self._flag("fsync"))

    def _paths(self) -> list[Path]:
        """The absolute paths that the options name, globs resolved."""
        given = [self.options["path"]] if self.options.get("path") else json.loads(self.options.get("paths", "[]"))
        found: list[Path] = []
        for path in given or [""]:
            absolute = local_path(path)
            matches = [absolute] if absolute.exists() else [Path(p) for p in sorted(glob.glob(str(absolute)))]
            if not matches:
                raise MissingFileError(f"{path}: there is no such file or folder", filename=str(path))
            found += matches
        return found

    def _flag(self, name: str) -> bool:
        value = self.options.get(name, "false").lower()
        if value not in ("true", "false"):
            raise UsageError(f"the option {name} is true or false, not {value!r}")
        return value == "true"

    def _number(self, name: str, default: int) -> int:
        value = self.options.get(name, str(default))
        if not value.isdecimal() or int(value) == 0:
            raise UsageError(f"the option {name} is a positive whole number, not {value!r}")
        return int(value)


class ArrowReader(DataSourceReader):
    """Plans the partitions on the driver and reads them on the executors."""

    def __init__(self, paths: list[Path], schema: StructType, split_bytes: int, *, truncate: bool) -> None:
        self._paths = paths
        self._schema = schema
        self._split_bytes = split_bytes
        self._truncate = truncate

    def partitions(self) -> list[InputPartition]:
        """Pieces of the files, grouped to partitions of `split_bytes`, in the order of the files."""
        made: list[InputPartition] = []
        pieces: list[Piece] = []
        room_bytes = self._split_bytes
        for file in _files(self._paths, allow_none=True):
            for piece, length_bytes in _pieces(file, self._split_bytes):
                if pieces and length_bytes > room_bytes:
                    made.append(ArrowPartition(tuple(pieces)))
                    pieces, room_bytes = [], self._split_bytes
                pieces.append(piece)
                room_bytes -= length_bytes
        return [*made, ArrowPartition(tuple(pieces))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a partition, as Spark wants them."""
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(self._schema, timezone="UTC")
        for piece in partition.value:
            batches = None if piece.last < 0 else range(piece.first, piece.last)
            for index, batch in read_batches(Path(piece.path), batches, target.names):
                place = f"{piece.path}, record batch {index}"
                yield from _slices(cast_batch(batch, target, place, truncate=self._truncate))


def _files(paths: list[Path], *, allow_none: bool = False) -> list[_File]:
    """The files that hold the data.

    Raises:
        NotFoundError: a path has no data, or a file that a manifest lists is missing.
    """
    found: list[_File] = []
    for path in paths:
        manifest = latest(path) if path.is_dir() else None
        if manifest is not None:
            found += (_listed(path, entry, manifest.sequence) for entry in manifest.entries)
            allow_none = True
        elif path.is_dir():
            found += (_File(file, None) for file in plain_files(path))
        else:
            found.append(_File(path, None))
    if not found and not allow_none:
        raise NotFoundError(f"{', '.join(map(str, paths))}: no Arrow files are there, and none were committed to it")
    return found


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


def _pieces(file: _File, split_bytes: int) -> Iterator[tuple[Piece, int]]:
    """Ranges of record batches, none above `split_bytes` unless a single batch is, each with its length in bytes."""
    if file.entry is not None and file.entry.batches is not None and file.entry.length_bytes <= split_bytes:
        yield Piece(str(file.path), 0, file.entry.batches), file.entry.length_bytes
        return
    lengths_bytes = describe(file.path).lengths_bytes
    if lengths_bytes is None:
        yield Piece(str(file.path), 0, -1), file.path.stat().st_size
        return
    first = taken_bytes = 0
    for index, length_bytes in enumerate(lengths_bytes):
        if index > first and taken_bytes + length_bytes > split_bytes:
            yield Piece(str(file.path), first, index), taken_bytes
            first, taken_bytes = index, 0
        taken_bytes += length_bytes
    if first < len(lengths_bytes):
        yield Piece(str(file.path), first, len(lengths_bytes)), taken_bytes


def _slices(batch: Any) -> Iterator[Any]:
    """`batch`, in slices of some MAX_SENT_BYTES."""
    rows = batch.num_rows
    step = max(1, rows * MAX_SENT_BYTES // max(batch.nbytes, MAX_SENT_BYTES))
    for start in range(0, rows, step):
        yield batch.slice(start, step)
