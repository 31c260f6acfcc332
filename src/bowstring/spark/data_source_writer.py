"""``df.write.format("arrow")``: each partition becomes one Arrow file, and a manifest lists the committed attempts.

The files are uncompressed and 64-byte aligned, so that they can be mapped. Partitions without rows have no file.
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

from bowstring.datasets.manifest import (
    MANIFEST_FOLDER,
    Manifest,
    ManifestEntry,
    list_files_without_manifest,
    part_file_name,
    read_manifest,
    remove_old_manifests,
    sync_folder,
    try_create_manifest,
)
from bowstring.errors import (
    InvalidArgumentError,
    MissingFileError,
    ResourceError,
    UnmetRequirementError,
    translate_os_error,
)
from bowstring.spark import staging
from bowstring.spark.arrow_files import describe_file, write_file
from bowstring.spark.types import as_nullable, parse_struct_type, to_arrow_schema
from bowstring.spark.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MAX_COMMIT_ATTEMPTS = 1000


@dataclass
class PartCommitMessage(WriterCommitMessage):
    """The file that one attempt of a task wrote; None if the partition has no rows."""

    entry: ManifestEntry | None


class ArrowWriter(DataSourceArrowWriter):
    """Writes a DataFrame to a folder. Created on the driver; pickled for the tasks and for the commit."""

    def __init__(self, folder: Path, schema: StructType, *, overwrite: bool, fsync: bool) -> None:
        _check_folder_and_schema(folder, schema)
        self._folder = folder
        self._schema = as_nullable(schema)
        self._overwrite = overwrite
        self._fsync = fsync
        self._job = uuid.uuid4().hex
        if not overwrite:
            self._entries_to_keep()
        elif folder.is_dir():
            self._existing_file_names(read_manifest(folder))  # an error in the folder comes before the tasks
        staging.discard_orphaned_jobs(folder)
        self._created_folders = staging.find_missing_folders(folder)
        self._staging = staging.create_staging_folder(folder, self._job)

    @hide_traceback()
    def write(self, iterator: Iterator[Any]) -> PartCommitMessage:
        """Write one partition, on an executor."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise InvalidArgumentError("ArrowWriter.write: expected to run in a Spark task")
        name = part_file_name(self._job, task.partitionId(), task.taskAttemptId())
        if not self._staging.is_dir():
            raise UnmetRequirementError(
                f"{self._staging} does not exist for partition {task.partitionId()} on {os.uname().nodename}: the "
                f"job has ended, or {self._folder} is not on a file system that every executor mounts"
            )
        return PartCommitMessage(write_file(self._staging / name, iterator, fsync=self._fsync))

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of these attempts atomically; on the driver."""
        entries = tuple(m.entry for m in messages if isinstance(m, PartCommitMessage) and m.entry is not None)
        self._move_staged_files(entries)
        superseded_names = self._commit_manifest(entries)
        staging.remove_staging_folder(self._folder, self._job)
        try:
            for name in superseded_names:
                (self._folder / name).unlink(missing_ok=True)
            remove_old_manifests(self._folder)
        except OSError:
            pass  # the data is committed; files that remain are not read

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's own
        """Remove the files of the job, and the folders that it created if they are empty; on the driver."""
        staging.discard_job(self._folder, self._job)
        staging.remove_empty_folders((self._folder / MANIFEST_FOLDER, *self._created_folders))

    def _move_staged_files(self, entries: tuple[ManifestEntry, ...]) -> None:
        """Move the staged files to the folder; no manifest lists them yet."""
        try:
            os.utime(self._staging)
            for entry in entries:
                source = self._staging / entry.name
                size_bytes = source.stat().st_size
                if size_bytes != entry.length_bytes:
                    raise ResourceError(f"{source}: expected {entry.length_bytes} bytes, found {size_bytes}")
                source.rename(self._folder / entry.name)
            if self._fsync:
                sync_folder(self._folder)
        except FileNotFoundError as problem:
            raise MissingFileError(
                f"{problem.filename}: was written by a task, but does not exist at the commit", problem
            ) from problem
        except OSError as problem:
            raise translate_os_error(problem, f"{self._folder}: cannot be committed: {problem.strerror}") from problem

    def _commit_manifest(self, entries: tuple[ManifestEntry, ...]) -> list[str]:
        """Create the next manifest; return the names of the files that it no longer lists."""
        for _ in range(MAX_COMMIT_ATTEMPTS):
            newest = read_manifest(self._folder)
            existing_names = self._existing_file_names(newest)
            previous_entries = () if self._overwrite else self._entries_to_keep(newest)
            sequence_number = 1 if newest is None else newest.sequence_number + 1
            manifest = Manifest(sequence_number, self._schema.jsonValue(), (*previous_entries, *entries))
            if try_create_manifest(self._folder, manifest):
                return existing_names if self._overwrite else []
        raise ResourceError(f"{self._folder}: {MAX_COMMIT_ATTEMPTS} other jobs committed before this one could")

    def _existing_file_names(self, manifest: Manifest | None) -> list[str]:
        """Return the names of the files that are the folder's data before the commit."""
        if manifest is not None:
            return [entry.name for entry in manifest.entries]
        return [path.name for path in list_files_without_manifest(self._folder)]

    def _entries_to_keep(self, manifest: Manifest | None = None) -> tuple[ManifestEntry, ...]:
        """Return the files that an append keeps.

        Raises:
            InvalidArgumentError: their schema differs from that of the DataFrame.
        """
        manifest = manifest or read_manifest(self._folder)
        if manifest is not None:
            _check_columns_for_append(self._folder, parse_struct_type(self._folder, manifest.schema), self._schema)
            return manifest.entries
        if not self._folder.is_dir():
            return ()
        entries = []
        for path in list_files_without_manifest(self._folder):
            description = describe_file(path)
            _check_columns_for_append(path, description.schema, self._schema)
            batches = None if description.batch_lengths_bytes is None else len(description.batch_lengths_bytes)
            entries.append(ManifestEntry(path.name, path.stat().st_size, None, batches))
        return tuple(entries)


def _check_folder_and_schema(folder: Path, schema: StructType) -> None:
    """Raise errors before a task runs: for unsupported types, ambiguous names, or a file in place of the folder."""
    to_arrow_schema(schema)
    names = schema.names
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InvalidArgumentError(f"{folder}: several columns are called {', '.join(map(repr, repeated))}")
    if not names:
        raise InvalidArgumentError(f"{folder}: a DataFrame without columns has nothing to write")
    if folder.exists() and not folder.is_dir():
        raise InvalidArgumentError(f"{folder}: is a file; a DataFrame is written to a folder")


def _check_columns_for_append(path: Path, old: StructType, new: StructType) -> None:
    old_columns = [(field.name, field.dataType.simpleString()) for field in as_nullable(old).fields]
    new_columns = [(field.name, field.dataType.simpleString()) for field in new.fields]
    if old_columns == new_columns:
        return
    for index in range(max(len(old_columns), len(new_columns))):
        before, after = (" ".join(c[index]) if index < len(c) else "nothing" for c in (old_columns, new_columns))
        if before != after:
            raise InvalidArgumentError(
                f"{path}: cannot be appended to: column {index} is {before} there, but {after} in the DataFrame"
            )
