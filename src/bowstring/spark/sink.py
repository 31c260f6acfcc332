"""``df.write.format("arrow")``: every partition becomes one Arrow file, and a manifest says which attempts count.

The files are uncompressed and 64-byte aligned, so that they can be mapped. A partition without rows has no file.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bowstring.errors import (
    EnvironmentProblemError,
    MissingFileError,
    ResourceError,
    UsageError,
    translate_os_error,
)
from bowstring.spark import staging
from bowstring.spark.batches import describe, write_batches
from bowstring.spark.manifest import (
    MANIFESTS,
    Entry,
    Manifest,
    forget_old,
    latest,
    part_name,
    place,
    plain_files,
    sync_folder,
)
from bowstring.spark.types import all_nullable, arrow_schema, parse_schema
from bowstring.spark.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MOST_CONFLICTS = 1000


@dataclass
class PartMessage(WriterCommitMessage):
    """What one attempt of one task wrote; no entry where the partition has no rows."""

    partition: int
    entry: Entry | None


class ArrowWriter(DataSourceArrowWriter):
    """Writes a DataFrame to a folder: made on the driver, shared by the tasks and by the commit on the driver."""

    def __init__(self, folder: Path, schema: StructType, *, overwrite: bool, fsync: bool) -> None:
        _check(folder, schema)
        self._folder = folder
        self._schema = all_nullable(schema)
        self._overwrite = overwrite
        self._fsync = fsync
        self._job = uuid.uuid4().hex
        if not overwrite:
            self._base()
        elif folder.is_dir():
            self._before(latest(folder))  # an error in the folder comes before the tasks
        staging.sweep(folder)
        self._missing_folders = staging.missing_folders(folder)
        self._staging = staging.create(folder, self._job)

    @hide_traceback()
    def write(self, iterator: Iterator[Any]) -> PartMessage:
        """Write one partition, on an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise UsageError("a partition is written by a Spark task, and there is none here")
        name = part_name(self._job, context.partitionId(), context.taskAttemptId())
        if not self._staging.is_dir():
            raise EnvironmentProblemError(
                f"{self._staging} is not there for partition {context.partitionId()} on {os.uname().nodename}: the job "
                f"has ended already, or {self._folder} is not on a file system that every executor mounts"
            )
        written = write_batches(self._staging / name, iterator, fsync=self._fsync)
        if written is None:
            return PartMessage(context.partitionId(), None)
        return PartMessage(context.partitionId(), Entry(name, written.length_bytes, written.rows, written.batches))

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files of exactly these attempts the folder's data (or part of it), in one step; on the driver."""
        entries = tuple(m.entry for m in messages if isinstance(m, PartMessage) and m.entry is not None)
        self._move(entries)
        superseded = self._place(entries)
        staging.remove_folder(self._folder, self._job)
        try:
            for name in superseded:
                (self._folder / name).unlink(missing_ok=True)
            forget_old(self._folder)
        except OSError:
            pass  # the data is committed: what could not be removed is only not read any more

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's own
        """Remove what the job wrote, and the folders that it made, if they are empty; on the driver."""
        staging.discard(self._folder, self._job)
        staging.remove_empty((self._folder / MANIFESTS, *self._missing_folders))

    def _move(self, entries: tuple[Entry, ...]) -> None:
        """Move the staged files to the folder, where they do not count yet."""
        try:
            os.utime(self._staging)
            for entry in entries:
                source = self._staging / entry.name
                found_bytes = source.stat().st_size
                if found_bytes != entry.length_bytes:
                    raise ResourceError(f"{source}: {entry.length_bytes} bytes were written, {found_bytes} are there")
                source.rename(self._folder / entry.name)
            if self._fsync:
                sync_folder(self._folder)
        except FileNotFoundError as problem:
            raise MissingFileError(
                f"{problem.filename}: was written by a task, but is not there to be committed", problem
            ) from problem
        except OSError as problem:
            raise translate_os_error(problem, f"{self._folder}: cannot be committed: {problem.strerror}") from problem

    def _place(self, entries: tuple[Entry, ...]) -> list[str]:
        """Put the next manifest in place; gives the names of the files that it no longer lists."""
        for _ in range(MOST_CONFLICTS):
            current = latest(self._folder)
            before = self._before(current)
            previous_entries = () if self._overwrite else self._base(current)
            sequence = 1 if current is None else current.sequence + 1
            if place(self._folder, Manifest(sequence, self._schema.jsonValue(), (*previous_entries, *entries))):
                return before if self._overwrite else []
        raise ResourceError(f"{self._folder}: {MOST_CONFLICTS} other jobs committed before this one could")

    def _before(self, current: Manifest | None) -> list[str]:
        return [p.name for p in plain_files(self._folder)] if current is None else [e.name for e in current.entries]

    def _base(self, current: Manifest | None = None) -> tuple[Entry, ...]:
        """The files that an append adds to.

        Raises:
            UsageError: they have another schema than the DataFrame.
        """
        current = current or latest(self._folder)
        if current is not None:
            _compare(self._folder, parse_schema(self._folder, current.schema), self._schema)
            return current.entries
        if not self._folder.is_dir():
            return ()
        entries = []
        for path in plain_files(self._folder):
            description = describe(path)
            _compare(path, description.schema, self._schema)
            batches = None if description.lengths_bytes is None else len(description.lengths_bytes)
            entries.append(Entry(path.name, path.stat().st_size, None, batches))
        return tuple(entries)


def _check(folder: Path, schema: StructType) -> None:
    """Raise what can be known to go wrong before a task runs: unsupported types, ambiguous names, a file in the way."""
    arrow_schema(schema)
    names = schema.names
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise UsageError(f"{folder}: several columns are called {', '.join(map(repr, repeated))}")
    if not names:
        raise UsageError(f"{folder}: a DataFrame without columns has nothing to write")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; a DataFrame is written to a folder")


def _compare(place: Path, old: StructType, new: StructType) -> None:
    old_columns = [(field.name, field.dataType.simpleString()) for field in all_nullable(old).fields]
    new_columns = [(field.name, field.dataType.simpleString()) for field in new.fields]
    if old_columns == new_columns:
        return
    for index in range(max(len(old_columns), len(new_columns))):
        has, gets = (" ".join(c[index]) if index < len(c) else "nothing" for c in (old_columns, new_columns))
        if has != gets:
            raise UsageError(
                f"{place}: cannot be appended to: column {index} is {has} there, but {gets} in the DataFrame"
            )
