"""A job that writes Arrow files to a folder: its tasks write to a staging folder, and the driver commits their files.

The data source, streams and `write` share it. It is pickled for the tasks, and for Spark's commit in another process.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bowstring.datasets.manifest import (
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    StreamBatch,
    list_files_without_manifest,
    part_file_name,
    read_manifest,
    remove_old_manifests,
    sync_folder,
    try_create_manifest,
)
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import (
    InvalidArgumentError,
    MissingFileError,
    ResourceError,
    UnmetRequirementError,
    translate_os_error,
)
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark import staging
from bowstring.spark.arrow_files import describe_file, write_file
from bowstring.spark.types import (
    check_supported,
    has_large_types,
    parse_struct_type,
    to_arrow_schema,
    to_json_value,
    to_stored_type,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MAX_COMMIT_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class FolderJob:
    """One job that writes a data frame's rows to a folder, as one file for each task that has rows."""

    folder: Path
    schema: StructType
    overwrite: bool
    """Whether the commit replaces all files of the folder."""
    fsync: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def check(self) -> None:
        """Raise an error before a task runs, if this folder does not take these columns; remove orphaned files."""
        _check_folder_and_schema(self.folder, self.schema)
        if not self.overwrite:
            self._find_entries_to_keep(read_manifest(self.folder))
        elif self.folder.is_dir():
            self._existing_file_names(read_manifest(self.folder))
        staging.discard_orphaned_jobs(self.folder)

    def write_part(
        self,
        batches: Iterator[Any],
        *,
        schema: Schema | None = None,
        query: str | None = None,
        driver: ProcessIdentity | None = None,
    ) -> ManifestEntry | None:
        """Write the rows of a task, on an executor; None if there are none.

        `schema` is as for `write_batches`; by default it is made of the batches and the Spark schema.

        The task of a streaming query creates the staging folder, for the query's driver, since the driver does not know
        the query when it plans a batch.
        """
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise InvalidArgumentError('format("arrow"): expected to write in a Spark task')
        name = part_file_name(self.id, task.partitionId(), task.taskAttemptId())
        if query is not None:
            staging.create_staging_folder(self.folder, self.id, query, driver)
        if not self.staging_folder.is_dir():
            raise UnmetRequirementError(
                f"{self.staging_folder} does not exist for partition {task.partitionId()} on {os.uname().nodename}: "
                f"the job has ended, or {self.folder} is not on a file system that every executor mounts"
            )
        if schema is None:
            first_batches = list(islice(batches, 1))
            prefers_large_types = any(has_large_types(import_schema(batch.schema)) for batch in first_batches)
            schema = to_arrow_schema(self.schema, prefers_large_types=prefers_large_types)
            batches = chain(first_batches, batches)
        return write_file(self.staging_folder / name, batches, schema, fsync=self.fsync)

    def commit(self, entries: Sequence[ManifestEntry], batch: StreamBatch | None = None) -> None:
        """Commit the files of these attempts atomically, on the driver; a batch of a stream that is committed already
        has no effect.
        """
        newest = read_manifest(self.folder)
        if newest is not None and newest.has_batch(batch):
            self.discard()
            return
        self._move_staged_files(entries)
        manifest, superseded_names = self._commit_manifest(entries, batch)
        staging.remove_staging_folder(self.folder, self.id)
        try:
            for name in superseded_names:
                (self.folder / name).unlink(missing_ok=True)
            if manifest.base is None:  # a complete one replaces others
                remove_old_manifests(self.folder)
        except OSError:
            pass  # the data is committed; files that remain are not read

    def discard(self) -> None:
        """Remove the files of the job, unless it is committed; on the driver."""
        staging.discard_job(self.folder, self.id)

    @property
    def staging_folder(self) -> Path:
        """The folder of the job's files until the commit."""
        return self.folder / STAGING_FOLDER / self.id

    def _move_staged_files(self, entries: Sequence[ManifestEntry]) -> None:
        """Move the staged files to the folder; no manifest lists them yet."""
        try:
            staging.take_over(self.folder, self.id)
            for entry in entries:
                source = self.staging_folder / entry.name
                size_bytes = source.stat().st_size
                if size_bytes != entry.length_bytes:
                    raise ResourceError(f"{source}: expected {entry.length_bytes} bytes, found {size_bytes}")
                source.rename(self.folder / entry.name)
            if self.fsync:
                sync_folder(self.folder)
        except FileNotFoundError as problem:
            raise MissingFileError(
                f"{problem.filename}: was written by a task, but does not exist at the commit", problem
            ) from problem
        except OSError as problem:
            raise translate_os_error(problem, f"{self.folder}: cannot be committed: {problem.strerror}") from problem

    def _commit_manifest(
        self, entries: Sequence[ManifestEntry], batch: StreamBatch | None
    ) -> tuple[Manifest, list[str]]:
        """Create the next manifest, and return it with the names of the files that it no longer lists."""
        schema = to_json_value(self.schema)
        for _ in range(MAX_COMMIT_ATTEMPTS):
            newest = read_manifest(self.folder)
            if newest is not None and newest.has_batch(batch):  # by another driver of the same query
                return newest, [entry.name for entry in entries]
            existing_names = self._existing_file_names(newest) if self.overwrite else []
            if self.overwrite:
                manifest = (newest or Manifest(0, {}, ())).replace_all(schema, entries, batch)
            elif newest is None:
                previous = self._find_entries_to_keep(None)
                manifest = Manifest(0, {}, ()).replace_all(schema, (*previous, *entries), batch)
            else:
                self._find_entries_to_keep(newest)
                manifest = newest.append(entries, batch)
            if try_create_manifest(self.folder, manifest):
                return manifest, existing_names
        raise ResourceError(f"{self.folder}: {MAX_COMMIT_ATTEMPTS} other jobs committed before this one could")

    def _existing_file_names(self, manifest: Manifest | None) -> list[str]:
        """Return the names of the files that are the folder's data before the commit."""
        if manifest is not None:
            return [entry.name for entry in manifest.entries]
        return [path.name for path in list_files_without_manifest(self.folder)]

    def _find_entries_to_keep(self, manifest: Manifest | None) -> tuple[ManifestEntry, ...]:
        """Return the files that an append keeps.

        Raises:
            InvalidArgumentError: their schema differs from that of the DataFrame.
        """
        if manifest is not None:
            _check_columns_for_append(self.folder, parse_struct_type(self.folder, manifest.schema), self.schema)
            return manifest.entries
        if not self.folder.is_dir():
            return ()
        entries = []
        for path in list_files_without_manifest(self.folder):
            description = describe_file(path)
            check_supported(description.schema, str(path))
            _check_columns_for_append(path, description.schema, self.schema)
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
    old_columns, new_columns = (
        [(field.name, to_stored_type(field.dataType).simpleString()) for field in schema.fields]
        for schema in (old, new)
    )
    if old_columns == new_columns:
        return
    for index in range(max(len(old_columns), len(new_columns))):
        before, after = (" ".join(c[index]) if index < len(c) else "nothing" for c in (old_columns, new_columns))
        if before != after:
            raise InvalidArgumentError(
                f"{path}: cannot be appended to: column {index} is {before} there, but {after} in the DataFrame"
            )
