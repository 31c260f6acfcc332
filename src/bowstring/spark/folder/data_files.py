"""The files that a task writes: the sizes of batches and files, partitions and sorted rows.

Rows are gathered for each partition, up to `GATHER_BYTES` in all; beyond that, they continue in an unnamed temporary
file. Then the partitions' files are written one after the other. So a task has two open files and limited memory,
whatever the number of partitions is. A file of sorted rows ends at `GATHER_BYTES`, because it is sorted in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bowstring.arrays.record_batch import import_batch
from bowstring.datasets.manifest import ManifestEntry
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import translate_os_error
from bowstring.io.local_path import as_folder
from bowstring.io.sinks import ChecksumSink, open_sink
from bowstring.io.store_path import FolderPath
from bowstring.ipc.api import new_file, open_file
from bowstring.ipc.writers import FileWriter
from bowstring.memory.closable import call_on_error
from bowstring.memory.unnamed_file import open_unnamed_file
from bowstring.sharing.agent.memory_budget import find_spill_folders
from bowstring.spark.arrow_files import write_batches
from bowstring.spark.folder.partition_folders import split_by_partition
from bowstring.spark.options import WriteOptions

GATHER_BYTES = 128 << 20
"""The bytes of rows that a task keeps in memory, to group or sort them."""
# As many as Spark passes in a batch by `MAX_RECORDS_PER_BATCH`.
_DEFAULT_BATCH_ROWS = 1 << 16
# Wide rows: a reader of one batch needs its memory, and a batch is the smallest part of a file that a task reads.
_DEFAULT_BATCH_BYTES = 64 << 20
_MAX_BATCH_BYTES = 1 << 30
"""Limits the option: the strings of a batch can have at most 2 GiB, and sizes are estimates."""


@dataclass(slots=True)
class DataFileWriter:
    """Writes the rows of a task to new files of a folder."""

    stage: Callable[[str], FolderPath]
    """Returns the path of a file until the commit, for its path in the folder of the data."""
    name_file: Callable[[int], str]
    """Returns the name of the file with an index in the task."""
    column_names: Sequence[str]
    """The names of all columns of the batches, including those to sort and partition by."""
    options: WriteOptions
    schema: Schema
    """The schema of the files, without the columns of partitions."""
    time_zone: str | None = None
    """For partitions of timestamps; by default the zone of the batches' types."""
    entries: list[ManifestEntry] = field(default_factory=list)
    _paths: list[FolderPath] = field(default_factory=list)

    def write(self, batches: Iterator[Any]) -> tuple[ManifestEntry, ...]:
        """Write pyarrow batches; return the entries of the files, whose names have the folders of partitions.

        Raises:
            BowstringError, also an OSError: a file can't be written. Whatever is raised, no file is left.
        """
        try:
            if not self.options.partition_by:
                self._write_partition("", batches)
            else:
                columns = {name: self.column_names.index(name) for name in self.options.partition_by}
                with _GatheredRows(lambda batch: split_by_partition(batch, columns, self.time_zone)) as gathered:
                    for batch in batches:
                        gathered.add(batch)
                    for partition, rows in gathered:
                        self._write_partition(partition, rows)
        except BaseException:
            # A killed task does not get here: the job's commit or abort removes its files.
            for path in self._paths:
                path.unlink(missing_ok=True)
            raise
        return tuple(self.entries)

    def _write_partition(self, partition: str, batches: Iterator[Any]) -> None:
        rows = _Rows(batches)
        while rows.peek() is not None:
            self._write_file(partition, rows)

    def _write_file(self, partition: str, rows: _Rows) -> None:
        """Write one file, and add its entry."""
        file_name = self.name_file(len(self.entries))
        name = f"{partition}/{file_name}" if partition else file_name
        path = self.stage(name)
        self._paths.append(path)
        sink = ChecksumSink(open_sink(path))
        with call_on_error(sink.abandon):  # also if an error precedes the writer, which closes the sink otherwise
            num_rows, num_batches = write_batches(sink, self._take_file(rows, sink), self.schema, self.options)
        try:
            if self.options.fsync:
                as_folder(path).sync()
        except OSError as problem:
            raise translate_os_error(problem, f"{path}: cannot be written: {problem.strerror}") from problem
        self.entries.append(ManifestEntry(name, sink.position, num_rows, num_batches, f"crc32:{sink.crc32:08x}"))

    def _take_file(self, rows: _Rows, sink: ChecksumSink) -> Iterator[Any]:
        """Yield the batches of one file: those that fit its limits, sorted."""
        options, own_names = self.options, [n for n in self.column_names if n not in self.options.partition_by]
        if options.sort_by:
            # Here the size of the rows limits the file's: all are read before the first is written.
            max_bytes = min(GATHER_BYTES, options.max_bytes_per_file or GATHER_BYTES)
            file_rows = rows.take(options.max_records_per_file or sys.maxsize, max_bytes)
            sorted_rows = _sort(list(file_rows), own_names, options.sort_by)
            rows, max_rows = _Rows(iter([sorted_rows])), sys.maxsize
        else:
            max_rows = options.max_records_per_file or sys.maxsize
        has_limits = options.max_records_per_batch is not None or options.max_bytes_per_batch is not None
        while rows.peek() is not None and max_rows != 0:
            if has_limits or options.sort_by or options.partition_by:
                batch_rows = min(options.max_records_per_batch or _DEFAULT_BATCH_ROWS, max_rows)
                batch_bytes = min(options.max_bytes_per_batch or _DEFAULT_BATCH_BYTES, _MAX_BATCH_BYTES)
                batch = _concat(list(rows.take(batch_rows, batch_bytes)))
            else:
                # Without limits and groups, the batches of Spark are written as they are, without a copy.
                batch = next(rows.take(max_rows, sys.maxsize))
            yield batch
            max_rows -= batch.num_rows
            if not options.sort_by and sink.position >= (options.max_bytes_per_file or sys.maxsize):
                return


class _Rows:
    """The rows of some batches, taken in other numbers. Batches without rows are skipped."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._next: Any = None

    def peek(self) -> Any:
        """Return the next batch, or None."""
        while self._next is None or self._next.num_rows == 0:
            self._next = next(self._batches, None)
            if self._next is None:
                return None
        return self._next

    def take(self, max_rows: int, max_bytes: int) -> Iterator[Any]:
        """Yield batches of up to `max_rows` and `max_bytes` in all, but at least one row."""
        taken_rows = taken_bytes = 0
        while (batch := self.peek()) is not None:
            # By the mean size of the batch's rows: the size of each would take a pass over all offsets.
            row_bytes = max(batch.nbytes / batch.num_rows, 1)
            count = min(batch.num_rows, max_rows - taken_rows, int(max(max_bytes - taken_bytes, 0) / row_bytes))
            if not (count or taken_rows):
                count = 1  # a row that alone exceeds the limit, or the caller would wait for it forever
            taken_bytes += int(count * row_bytes)
            if count == 0:
                return
            self._next = batch.slice(count)
            taken_rows += count
            yield batch.slice(0, count)


class _GatheredRows:
    """Rows by partition, in memory up to a limit and otherwise in an unnamed file; a context manager."""

    def __init__(self, split: Callable[[Any], Iterable[tuple[str, Any]]]) -> None:
        self._split = split
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._spilled: dict[str, list[int]] = {}
        self._num_spilled = 0
        self._descriptor = -1
        self._writer: FileWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.abandon()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def add(self, batch: Any) -> None:
        """Add the rows of a batch."""
        if batch.num_rows:
            self._pending.append(batch)
            self._pending_bytes += batch.nbytes
        if self._pending_bytes > GATHER_BYTES:
            self._spill()

    def _split_pending(self) -> Iterator[tuple[str, Any]]:
        """Yield the rows in memory by partition; split all at once, because a batch may have few rows of each."""
        batches, self._pending, self._pending_bytes = self._pending, [], 0
        for batch in _combine(batches):
            yield from self._split(batch)

    def _spill(self) -> None:
        """Write the rows in memory to the file, as one batch for each partition."""
        for partition, batch in self._split_pending():
            if self._writer is None:
                self._descriptor, _ = open_unnamed_file(find_spill_folders())  # it ends with a killed task
                self._writer = new_file(self._descriptor, import_schema(batch.schema))
            _, array = batch.__arrow_c_array__()
            self._writer.write_batch(import_batch((self._writer.schema.__arrow_c_schema__(), array)))
            self._spilled.setdefault(partition, []).append(self._num_spilled)
            self._num_spilled += 1

    def __iter__(self) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yield each partition and its batches, in the order of their names."""
        if self._writer is None:
            for partition, batch in sorted(self._split_pending(), key=lambda each: each[0]):
                yield partition, iter([batch])
            return
        import pyarrow as pa

        # The rest, too: all rows of a partition have to be in one place, and only one partition is in memory at a time.
        self._spill()
        self._writer.close()
        with open_file(self._descriptor) as reader:
            for partition, indices in sorted(self._spilled.items()):
                yield partition, (pa.record_batch(reader.get_batch(index)) for index in indices)


def _combine(batches: Sequence[Any]) -> Sequence[Any]:
    """Return the same rows in one batch, or in several if strings take more bytes than their offsets can count."""
    import pyarrow as pa

    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _concat(batches: Sequence[Any]) -> Any:
    """Return one batch of rows that have about `_MAX_BATCH_BYTES` at most."""
    (batch,) = _combine(batches)
    return batch


def _sort(batches: Sequence[Any], names: Sequence[str], sort_by: Sequence[str]) -> Any:
    """Return a batch of all rows, sorted as Spark sorts: nulls first, NaN last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = _concat(batches)
    keys: dict[str, tuple[Any, str]] = {}
    for name in sort_by:
        column = batch.column(names.index(name))
        keys[f"is null {name}"] = (column.is_null(), "descending")
        keys[f"value {name}"] = (column, "ascending")
    table = pa.table({name: column for name, (column, _) in keys.items()})
    return batch.take(pc.sort_indices(table, sort_keys=[(name, order) for name, (_, order) in keys.items()]))
