"""The reader of Arrow files, folders and globs.

A folder is read by its manifest, or without one as the Arrow files in it. Record batches are grouped into tasks that
take as long as 64 MB of all columns: small files are joined, large ones split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, MissingFileError
from bowstring.io.store_path import FolderPath
from bowstring.spark.arrow_files import FileBatch, FileDescription, describe_file, prefix_errors, read_batches
from bowstring.spark.folder.partition_values import parse_partition_value
from bowstring.spark.options import ReadOptions
from bowstring.spark.row_filters import RowFilters
from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.source.casting import cast_batch
from bowstring.spark.source.file_discovery import MISSING_FILE_ADVICE, DataFile, FolderFiles
from bowstring.spark.source.file_metadata import create_metadata_column
from bowstring.spark.source.read_tasks import ReadTask, group_ranges
from bowstring.spark.source.schema_compatibility import (
    check_read_conversions,
    check_same_types,
    check_unique_column_names,
    find_missing_columns,
)
from bowstring.spark.types import parse_struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPEN_COST_BYTES = 256 << 10
"""The bytes that are read in the time that opening a file takes, so that thousands of small files are several tasks."""
MAX_PLANNED_FOOTERS = 1000
"""How many footers are read on the driver for the statistics in them; of more files, the tasks read them."""
MAX_SENT_BATCH_BYTES = 128 << 20
"""The maximum size of a batch sent to the JVM; larger ones are sliced."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Some record batches of one file."""

    path: FolderPath
    start: int
    stop: int
    """The index after the last batch; -1 for all batches."""
    missing_columns: tuple[str, ...] = ()
    """The columns to read that the file lacks."""
    partition_values: tuple[tuple[str, Any], ...] = ()
    """The missing columns that have one value for all rows, and their values."""
    problem: InvalidDataError | None = None
    """Why the file is malformed, if that is known; then it is not read."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one schema: those that a manifest lists, or a single one."""

    path: FolderPath
    schema: StructType
    files: tuple[DataFile, ...]
    description: FileDescription | None = None
    """For a single file that is not malformed."""

    @property
    def problem(self) -> InvalidDataError | None:
        """Why a single file without a manifest is malformed, if it is: then its schema is not known."""
        return self.files[0].problem if self.files and self.files[0].entry is None else None


@dataclass
class ArrowReader:
    """Plans the tasks on the driver, and reads their files on the executors."""

    folders: list[FolderFiles]
    schema: StructType
    options: ReadOptions
    filters: RowFilters
    """Of `schema`, and further columns for the conditions."""
    is_inferred: bool = False
    """Whether the schema is that of the first file."""

    def __getstate__(self) -> dict[str, Any]:
        # The reader is sent with each task, which gets its files with its partition.
        return {**self.__dict__, "folders": []}

    def plan(self) -> list[ReadTask]:
        """Group the batches of the files, in order, into tasks of `split_bytes`.

        Raises:
            InvalidArgumentError: a file lacks a requested column, or it can't be read as the requested type.
        """
        folders = (replace(each, files=tuple(filter(self._may_match, each.files))) for each in self.folders)
        ranges = self._iter_batch_ranges(folders)
        costs = ((batch_range, length_bytes + OPEN_COST_BYTES) for batch_range, length_bytes in ranges)
        return group_ranges(costs, self.options.split_bytes)

    def read(self, ranges: Sequence[BatchRange]) -> Iterator[Any]:
        """Yield the batches of a task with Spark's types."""
        with hide_traceback():
            for batch_range in ranges:
                for batch in self._read_range(batch_range):
                    yield from split_batch(self.filters.select_rows(batch, self.schema.names))

    def _read_range(self, batch_range: BatchRange) -> Iterator[Any]:
        """Yield the batches of a file, with Spark's types and the columns to read.

        Raises:
            MissingFileError: the file existed when the query was planned, but no longer.
        """
        path = batch_range.path
        batches = iter([FileBatch(0, problem=batch_range.problem)])
        if batch_range.problem is None:
            batches = read_batches(
                path,
                None if batch_range.stop < 0 else range(batch_range.start, batch_range.stop),
                [name for name in self.filters.schema.names if name not in batch_range.missing_columns],
                self.filters,
                counts_rows=self.options.metadata_column in self.filters.schema.names,
            )
        try:
            for file_batch in batches:
                try:
                    yield self._cast_batch(batch_range, file_batch)
                except InvalidDataError as problem:
                    if not self.options.tolerates_malformed:
                        raise
                    if self.options.ignore_corrupt_files:
                        return
                    if self.options.has_message_rows:
                        yield self._cast_batch(batch_range, replace(file_batch, problem=None), str(problem))
        except MissingFileError as error:
            if self.options.ignore_missing_files:
                return
            raise MissingFileError(
                f"{path}: was removed after the query was planned, perhaps by an overwrite: load the data again, or "
                "run CREATE OR REPLACE TEMPORARY VIEW (REFRESH TABLE has no effect on a Python data source); or "
                f"{MISSING_FILE_ADVICE}",
                filename=str(path),
            ) from error

    def _cast_batch(self, batch_range: BatchRange, file_batch: FileBatch, message: str | None = None) -> Any:
        """Return a batch with Spark's types; with a message, the row for a malformed one.

        Raises `InvalidDataError` if it is malformed.
        """
        import pyarrow as pa

        if file_batch.problem is not None:
            raise file_batch.problem
        batch: Any = file_batch.batch
        first_row = file_batch.first_row
        constants = dict(batch_range.partition_values)
        if message is not None:  # one row without columns, to which the cast adds all
            batch, first_row = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))), None
            constants[self.options.column_name_of_corrupt_record] = message
        if self.options.metadata_column in self.filters.schema.names:
            column = create_metadata_column(batch_range.path, file_batch.index, first_row, batch.num_rows)
            batch = batch.append_column(self.options.metadata_column, column)
        location = f"{batch_range.path}, record batch {file_batch.index}"
        truncate_times = self.filters.truncate_times
        return cast_batch(batch, self.filters.schema, location, constants=constants, truncate_times=truncate_times)

    def _iter_batch_ranges(self, folders: Iterable[FolderFiles]) -> Iterator[tuple[BatchRange, int]]:
        """Yield the batches to read, with the bytes that are read in the time that they take.

        A file is opened at most once. Most of a manifest are not: it has what a partition of a whole file needs.
        """
        cost_shares: dict[Schema, float] = {}
        num_described = 0

        def describe(file: DataFile) -> FileDescription:
            nonlocal num_described
            num_described += 1
            has_conditions = num_described <= MAX_PLANNED_FOOTERS
            filters = self.filters if has_conditions else replace(self.filters, conjunctions=())
            added = self._find_added_columns(file)
            column_names = [name for name in filters.schema.names if name not in added]
            return describe_file(file.path, filters, column_names, cost_shares)

        for group in iter_file_groups(folders, self.options, describe):
            share = 0.0  # not known
            for file, values, missing_columns in self._iter_files(group):
                if len(self.filters.schema) - len(missing_columns) == len(group.schema):
                    share = 1.0
                description = file.problem or group.description
                has_conditions = bool(self.filters.conjunctions) and num_described < MAX_PLANNED_FOOTERS
                if description is None and (not share or has_conditions or self._is_split(file, share)):
                    description = _try_describe(file, self.options, describe)
                    if description is None:
                        continue
                if isinstance(description, InvalidDataError):
                    if self.options.has_message_rows:
                        yield BatchRange(file.path, 0, -1, missing_columns, values, description), 0
                    continue
                share = share if description is None else description.cost_share
                for start, stop, length_bytes in _split_file(file, description, int(self.options.split_bytes / share)):
                    yield BatchRange(file.path, start, stop, missing_columns, values), int(length_bytes * share)

    def _iter_files(self, group: FileGroup) -> Iterator[tuple[DataFile, tuple[tuple[str, Any], ...], tuple[str, ...]]]:
        """Yield files, with the values of their partition columns, and the columns to read that they lack."""
        values: tuple[tuple[str, Any], ...] = ()
        for index, file in enumerate(group.files):
            if index == 0 or file.partition != group.files[index - 1].partition:
                values = self._parse_partition_values(file)
            if index == 0:
                missing_columns = self._check_schema(group, self._find_added_columns(file))
            yield file, values, missing_columns

    def _is_split(self, file: DataFile, share: float) -> bool:
        """Whether a file of a manifest has to be opened to divide it."""
        entry = file.entry
        return entry is None or entry.batches is None or entry.length_bytes * share > self.options.split_bytes

    def _may_match(self, file: DataFile) -> bool:
        """Whether the file may have matching rows, by the values of its partition columns."""
        if not file.partition or not self.filters.conjunctions:
            return True
        return self.filters.may_match_values(dict(self._parse_partition_values(file)))

    def _parse_partition_values(self, file: DataFile) -> tuple[tuple[str, Any], ...]:
        """Return the values of the columns to read that are partition columns of a file."""
        texts = {name.lower(): text for name, text in file.partition}
        values = []
        for field in self.filters.schema.fields if texts else ():
            text = texts.get(field.name.lower())
            if text is not None:
                with prefix_errors(f"{file.path}, column {field.name}"):
                    values.append((field.name, parse_partition_value(text, field.dataType, self.options.time_zone)))
        return tuple(values)

    def _find_added_columns(self, file: DataFile) -> tuple[str, ...]:
        """Return the columns to read that are not read from a file, even if it has columns of these names."""
        partition_columns = {name.lower() for name, _ in file.partition}
        added = {self.options.metadata_column}
        if self.options.has_message_rows:
            added.add(self.options.column_name_of_corrupt_record)
        return tuple(name for name in self.filters.schema.names if name in added or name.lower() in partition_columns)

    def _check_schema(self, group: FileGroup, added: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read that are not read from files. Raise an error if the others can't be read as the
        requested types.
        """
        from pyspark.sql.types import StructType

        requested = StructType([field for field in self.filters.schema.fields if field.name not in added])
        check_unique_column_names(group.path, group.schema, requested.names)
        missing = find_missing_columns(group.path, group.schema, requested)
        check_types = check_same_types if self.is_inferred else check_read_conversions
        check_types(group.path, group.schema, requested)
        return (*missing, *added)


def iter_file_groups(
    folders: Iterable[FolderFiles],
    options: ReadOptions,
    describe: Callable[[DataFile], FileDescription] = lambda file: describe_file(file.path),
) -> Iterator[FileGroup]:
    """Yield files by the schema of their manifest, or by their own schema without one: then the footer is read.

    A malformed file has no columns, if the options tolerate it.
    """
    from pyspark.sql.types import StructType

    for folder in folders:
        if folder.manifest is not None:
            yield FileGroup(folder.folder, parse_struct_type(folder.folder, folder.manifest.schema), folder.files)
            continue
        for file in folder.files:
            description = file.problem or _try_describe(file, options, describe)
            if isinstance(description, InvalidDataError):
                yield FileGroup(file.path, StructType(), (replace(file, problem=description),))
            elif description is not None:
                yield FileGroup(file.path, description.schema, (file,), description)


def _try_describe(
    file: DataFile, options: ReadOptions, describe: Callable[[DataFile], FileDescription]
) -> FileDescription | InvalidDataError | None:
    """Describe a file, or return why it is malformed, or None if it does not exist, if the options tolerate that."""
    try:
        return describe(file)
    except InvalidDataError as problem:
        if not options.tolerates_malformed:
            raise
        return problem
    except MissingFileError as error:
        if not options.ignore_missing_files:
            raise MissingFileError(
                f"{file.path}: was removed after it was listed: load the data again, or {MISSING_FILE_ADVICE}", error
            ) from None
        return None


def _split_file(
    file: DataFile, description: FileDescription | None, split_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of record batches of up to `split_bytes` (or one batch): start, stop, and length in bytes.

    The stop is the index after the last batch; -1 for a stream, which can only be read as a whole. Without a
    description, the range is the whole file; otherwise it has only batches that may match.
    """
    if description is None:
        assert file.entry is not None
        yield 0, file.entry.batches or 0, file.entry.length_bytes
        return
    batch_lengths_bytes, may_match = description.batch_lengths_bytes, description.may_match
    if batch_lengths_bytes is None:
        yield 0, -1, file.length_bytes
        return
    start = range_bytes = 0
    for index, length_bytes in enumerate(batch_lengths_bytes):
        is_skipped = may_match is not None and not may_match[index]
        if index > start and (is_skipped or range_bytes + length_bytes > split_bytes):
            yield start, index, range_bytes
            start, range_bytes = index, 0
        if is_skipped:
            start = index + 1
        else:
            range_bytes += length_bytes
    if start < len(batch_lengths_bytes):
        yield start, len(batch_lengths_bytes), range_bytes


def split_batch(batch: Any) -> Iterator[Any]:
    """Yield slices of `batch` of some MAX_SENT_BATCH_BYTES."""
    rows = batch.num_rows
    step = max(1, rows * MAX_SENT_BATCH_BYTES // max(batch.nbytes, MAX_SENT_BATCH_BYTES))
    for start in range(0, rows, step):
        yield batch.slice(start, step)
