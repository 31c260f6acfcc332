"""A job that writes Arrow files to a folder: its tasks write to a staging folder, and the driver commits their files.

The data source, streaming queries and `write` share it. It is pickled for the tasks, and for Spark's commit in another
process.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

from pyspark.sql.types import AtomicType, BinaryType, DataType, StringType, StructType

from bowstring.datasets.manifest import (
    MANIFEST_FOLDER,
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    QueryBatch,
    data_file_name,
    list_files_without_manifest,
    log_errors_after_commit,
    read_manifest,
    remove_old_manifests,
    try_create_manifest,
)
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import (
    ConflictError,
    ExistingFileError,
    InvalidArgumentError,
    MissingFileError,
    ResourceError,
    UnmetRequirementError,
    prefix_errors,
    translate_os_error,
)
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import FolderPath, find_relative_name
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.arrow_files import describe_file
from bowstring.spark.folder import staging
from bowstring.spark.folder.data_files import DataFileWriter
from bowstring.spark.folder.partition_folders import is_partition_type
from bowstring.spark.options import SaveMode, WriteOptions
from bowstring.spark.types import (
    as_nullable,
    check_supported,
    has_large_types,
    parse_struct_type,
    to_arrow_schema,
    to_json_value,
    to_stored_type,
)
from bowstring.spark.vectors import VectorConversion, find_ml_type

# Each failed attempt is a commit of another job, so that some job always succeeds: no lock is needed that a killed
# driver could leave behind. The limit ends the loop if a file system reports conflicts that are none.
MAX_COMMIT_ATTEMPTS = 1000
_UNORDERED_TYPES = frozenset(("VariantType", "GeometryType", "GeographyType"))
"""Atomic types of Spark's without an order, by name, because older versions lack them."""


@dataclass(frozen=True, slots=True)
class FolderJob:
    """One job that writes a data frame's rows to a folder, as files for each task that has rows."""

    folder: FolderPath
    schema: StructType
    """The columns of the rows as they are written."""
    mode: SaveMode
    options: WriteOptions
    base: int
    """The number of the folder's manifest when the job began; 0 without one."""
    vectors: VectorConversion = field(default_factory=VectorConversion)
    time_zone: str | None = None
    """For partitions of timestamps; by default the zone of the batches' types."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def begin(
        cls,
        folder: FolderPath,
        schema: StructType,
        mode: SaveMode,
        options: WriteOptions,
        time_zone: str | None = None,
    ) -> FolderJob | None:
        """Return a job for the driver, after removing orphaned files; None if the mode is "ignore" and there is data.

        Raises an error before a task runs, if this folder does not take these columns: `InvalidArgumentError`,
        `UnsupportedTypeError`; and `ExistingFileError` if the mode is "error" and there is data.
        """
        vectors, converted = VectorConversion.plan(schema, options.vectors)
        schema = as_nullable(converted)
        _check_folder_and_schema(folder, schema)
        _check_option_columns(schema, options)
        # The base is read before the tasks run: what is committed from now on is new to this job.
        newest = read_manifest(folder)
        base = 0 if newest is None else newest.sequence_number
        job = cls(folder, schema, mode, options, base, vectors, time_zone)
        if mode in ("error", "ignore") and job._has_data(newest):
            if mode == "ignore":
                return None
            raise _existing_data_error(folder)
        # Both only for their errors, before a task runs: the commit reads the files again, which may have changed.
        if not job._replaces_all:
            job._find_entries_to_keep(newest)
        elif folder.is_dir():
            job._existing_file_names(newest)
        staging.discard_orphaned_jobs(folder)
        return job

    @property
    def _replaces_all(self) -> bool:
        return self.mode == "overwrite" and not self._replaces_partitions

    @property
    def _replaces_partitions(self) -> bool:
        is_dynamic = self.options.partition_overwrite_mode == "dynamic"
        return self.mode == "overwrite" and is_dynamic and bool(self.options.partition_by)

    @property
    def _file_schema(self) -> StructType:
        return StructType([each for each in self.schema.fields if each.name not in self.options.partition_by])

    @property
    def _partition_schema(self) -> StructType | None:
        names = self.options.partition_by
        return StructType([self.schema[name] for name in names]) if names else None

    def write_task(
        self,
        batches: Iterator[Any],
        *,
        schema: Schema | None = None,
        query: str | None = None,
        driver: ProcessIdentity | None = None,
    ) -> tuple[ManifestEntry, ...]:
        """Write the rows of a task, on an executor; return the files.

        `schema` has the columns of the rows; by default it is made of the batches and the Spark schema.

        The task of a streaming query creates the staging folder, for the query's driver: when the driver plans a batch,
        the query's ID is not available.
        """
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise InvalidArgumentError('format("arrow"): expected to write in a Spark task')
        partition_id, attempt = task.partitionId(), task.taskAttemptId()
        if query is not None:
            staging.create_staging_folder(self.folder, self.id, query, driver)
        if not self.staging_folder.is_dir():
            raise UnmetRequirementError(
                f"{self.staging_folder} does not exist for partition {partition_id} on {os.uname().nodename}: "
                f"the job has ended, or {self.folder} is not in a store or file system that every executor reaches"
            )
        if schema is None:
            # By the batches, since a data source does not get the session's useLargeVarTypes.
            first_batches = list(islice(batches, 1))
            prefers_large_types = any(has_large_types(import_schema(batch.schema)) for batch in first_batches)
            schema = to_arrow_schema(self.schema, prefers_large_types=prefers_large_types)
            batches = chain(first_batches, batches)
        batches = self.vectors.convert(batches, schema)
        names = self.schema.names
        schema = schema.select([name for name in names if name not in self.options.partition_by])
        name_file = partial(data_file_name, self.id, partition_id, attempt)
        stage = partial(as_folder(self.folder).stage, self._staging_name)
        return DataFileWriter(stage, name_file, names, self.options, schema, self.time_zone).write(batches)

    def commit(self, entries: Sequence[ManifestEntry], batch: QueryBatch | None = None) -> None:
        """Commit the files of these attempts atomically, on the driver; a batch of a query that is committed already
        has no effect.

        Raises `ConflictError` if the job overwrites files that were committed after it began, `ExistingFileError` if
        its mode is "error" and there is data now.
        """
        # Spark repeats a batch if its driver ended between this commit and Spark's own record of it.
        newest = read_manifest(self.folder)
        if newest is not None and newest.has_batch(batch):
            with log_errors_after_commit(self.folder):
                self.discard()
            return
        # In this order: a manifest lists only files that are there; the staging folder, of which this process is the
        # owner, keeps others from removing them until they are listed; and files that no manifest lists go last.
        unused_names = self._place_files(entries)
        manifest, superseded_names = self._commit_manifest(entries, batch)
        with log_errors_after_commit(self.folder):
            staging.remove_staging_folder(self.folder, self.id)
            for name in (*superseded_names, *unused_names):
                (self.folder / name).unlink(missing_ok=True)
            staging.remove_empty_partition_folders(self.folder, superseded_names)
            if manifest is not None and manifest.base is None:  # a complete one replaces others
                remove_old_manifests(self.folder)

    def discard(self, created_folders: Sequence[FolderPath] | None = None) -> None:
        """Remove the files of the job, unless it is committed; on the driver.

        With the folders that `create_staging_folder` has returned, also remove these if they are empty.
        """
        staging.discard_job(self.folder, self.id)
        if created_folders is not None:
            staging.remove_empty_folders((self.folder / MANIFEST_FOLDER, *created_folders))

    @property
    def staging_folder(self) -> FolderPath:
        """The folder of the job's files until the commit."""
        return self.folder / self._staging_name

    @property
    def _staging_name(self) -> str:
        return f"{STAGING_FOLDER}/{self.id}"

    def _place_files(self, entries: Sequence[ManifestEntry]) -> list[str]:
        """Move the staged files to the folder, where no manifest lists them yet.

        Return the names of the job's other files, from attempts that were killed, or slower than a copy.
        """
        folder = as_folder(self.folder)
        # If the commit fails from here on, `discard` finds moved files by the job's ID in their names.
        try:
            staging.take_over(folder, self.id)
            written: dict[FolderPath, FolderPath] = {path: path for path in staging.list_staged_files(folder, self.id)}
            for entry in entries:
                # A path that was just listed has its size, which another request to a store would return.
                path = folder.stage(self._staging_name, entry.name)
                with prefix_errors(str(path)):
                    entry.check_size(written.pop(path, path).stat().st_size, "the task's report")
                folder.place(self._staging_name, entry.name)
            if self.options.fsync:
                for changed in {folder, *((folder / entry.name).parent for entry in entries)}:
                    changed.sync()
            return [find_relative_name(path, folder) or "" for path in written]
        except FileNotFoundError as problem:
            raise MissingFileError(
                f"{problem.filename}: was written by a task, but does not exist at the commit", problem
            ) from problem
        except OSError as problem:
            raise translate_os_error(problem, f"{self.folder}: cannot be committed: {problem.strerror}") from problem

    def _commit_manifest(
        self, entries: Sequence[ManifestEntry], batch: QueryBatch | None
    ) -> tuple[Manifest | None, list[str]]:
        """Create the next manifest, and return it with the names of the files to remove.

        If the data of another job counts, return the manifest that is there, if any, and the files of this one.
        """
        for _ in range(MAX_COMMIT_ATTEMPTS):
            # Read again in each attempt, and the conflicts decided anew: the manifest that took the number may replace
            # files that this job keeps.
            newest = read_manifest(self.folder)
            if newest is not None and newest.has_batch(batch):  # by another driver of the same query
                return newest, [entry.name for entry in entries]
            if self.mode in ("error", "ignore") and self._has_data(newest):
                if self.mode == "error":
                    raise _existing_data_error(self.folder)
                return newest, [entry.name for entry in entries]
            # The manifest is created under the next number, exclusively: of two jobs one creates it, and readers see
            # all of its files or none. Renaming a folder would not be atomic for an append, and Spark's own committers
            # list files by their presence.
            manifest, superseded_names = self._create_next_manifest(newest, entries, batch)
            if try_create_manifest(self.folder, manifest):
                return manifest, superseded_names
            # Another job has taken the number: whether this one conflicts with it is decided by its manifest.
        raise ResourceError(f"{self.folder}: {MAX_COMMIT_ATTEMPTS} other jobs committed before this one could")

    def _create_next_manifest(
        self, newest: Manifest | None, entries: Sequence[ManifestEntry], batch: QueryBatch | None
    ) -> tuple[Manifest, list[str]]:
        """Return the manifest of the commit, and the names of the files that it no longer lists."""
        schema, partitions = to_json_value(self._file_schema), self._partition_schema
        partition_schema = None if partitions is None else to_json_value(partitions)
        if self._replaces_all:
            self._check_no_new_files(newest.entries if newest is not None else ())
            names = self._existing_file_names(newest)
            return (newest or Manifest(0, {}, ())).replace_all(schema, entries, batch, partition_schema), names
        previous = self._find_entries_to_keep(newest)
        if newest is None:
            # The first commit lists the files that were there before it; otherwise they would no longer be data.
            return Manifest(0, {}, ()).replace_all(schema, (*previous, *entries), batch, partition_schema), []
        if not self._replaces_partitions:
            return newest.append(entries, batch), []
        written = {entry.partition for entry in entries}
        replaced = [entry for entry in previous if entry.partition in written]
        self._check_no_new_files(replaced)
        return newest.replace_partitions(entries, batch), [entry.name for entry in replaced]

    def _check_no_new_files(self, replaced: Iterable[ManifestEntry]) -> None:
        """Raise `ConflictError` if a file to replace was committed after the job began: its rows would be lost."""
        for entry in replaced:
            if entry.commit > self.base:
                raise ConflictError(
                    f"{self.folder}: commit {entry.commit} added {entry.name} after this job had begun to overwrite "
                    f"commit {self.base}: run it again"
                )

    def _has_data(self, manifest: Manifest | None) -> bool:
        return manifest is not None or (self.folder.is_dir() and bool(list_files_without_manifest(self.folder)))

    def _existing_file_names(self, manifest: Manifest | None) -> list[str]:
        """Return the names of the files that are the folder's data before the commit."""
        if manifest is not None:
            return [entry.name for entry in manifest.entries]
        return [path.name for path in list_files_without_manifest(self.folder)]

    def _find_entries_to_keep(self, manifest: Manifest | None) -> tuple[ManifestEntry, ...]:
        """Return the files that an append keeps.

        Raises:
            InvalidArgumentError: their schema differs from the DataFrame's.
        """
        if manifest is not None:
            partition_schema = manifest.partition_schema or {"type": "struct", "fields": []}
            for old, new, kind in (
                (partition_schema, self._partition_schema or StructType(), "partition column"),
                (manifest.schema, self._file_schema, "column"),
            ):
                _check_columns_for_append(self.folder, parse_struct_type(self.folder, old), new, kind)
            return manifest.entries
        if not self.folder.is_dir():
            return ()
        entries = []
        for path in list_files_without_manifest(self.folder):
            description = describe_file(path)
            if self.options.partition_by:
                raise InvalidArgumentError(f"{path}: is in no partition folder: partitionBy needs an empty folder")
            check_supported(description.schema, str(path))
            _check_columns_for_append(path, description.schema, self.schema)
            batches = None if description.batch_lengths_bytes is None else len(description.batch_lengths_bytes)
            entries.append(ManifestEntry(path.name, path.stat().st_size, None, batches))
        return tuple(entries)


def _check_folder_and_schema(folder: FolderPath, schema: StructType) -> None:
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
    as_folder(folder).check_conditional_put()


def _check_option_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise `InvalidArgumentError` unless the files can be partitioned and sorted, and have dictionaries, by these
    columns.
    """
    types = {each.name: each.dataType for each in schema.fields}
    for option, names, is_supported, expected in (
        ("partitionBy", options.partition_by, is_partition_type, "a type whose values are in paths: cast it"),
        ("sortBy", options.sort_by, _is_ordered, "a type with an order, not nested"),
        ("dictionaryColumns", options.dictionary_columns, _is_string, "a string"),
    ):
        for name in names:
            if name not in types:
                raise InvalidArgumentError(f"{option}: no column of the files is called {name!r}; there are {[*types]}")
            if not is_supported(types[name]):
                raise InvalidArgumentError(
                    f"{option}: column {name}: found {types[name].simpleString()}, expected {expected}"
                )
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"{option}: a column is repeated in {list(names)}")
        if option == "partitionBy":
            types = {name: data_type for name, data_type in types.items() if name not in names}
    if not types:
        raise InvalidArgumentError("partitionBy: all columns are columns of partitions, and none is left for the files")


def _is_ordered(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and type(data_type).__name__ not in _UNORDERED_TYPES


def _is_string(data_type: DataType) -> bool:
    return isinstance(data_type, StringType | BinaryType)


def _existing_data_error(folder: FolderPath) -> ExistingFileError:
    return ExistingFileError(
        f"{folder}: has data already: set mode='append', 'overwrite' or 'ignore'", filename=str(folder)
    )


def _check_columns_for_append(path: FolderPath, old: StructType, new: StructType, kind: str = "column") -> None:
    old_columns, new_columns = (
        [(field.name, to_stored_type(field.dataType).simpleString()) for field in schema.fields]
        for schema in (old, new)
    )
    if old_columns == new_columns:
        return
    for index in range(max(len(old_columns), len(new_columns))):
        before, after = (" ".join(c[index]) if index < len(c) else "nothing" for c in (old_columns, new_columns))
        if before != after:
            has_vectors = any(map(find_ml_type, (field.dataType for field in (*old.fields, *new.fields))))
            advice = ": the option vectors is the form of ML vectors" if has_vectors else ""
            raise InvalidArgumentError(
                f"{path}: cannot be appended to: {kind} {index} is {before} there, but {after} in the DataFrame{advice}"
            )
