"""``spark.readStream.format("arrow")``: follow a folder, and read each file once.

An offset is the set of files that a query has read, as indices of a list that only grows: of the folder's manifest, or
for a folder without one, of a log. The log is a manifest, too, in ``_streams/<id>`` of the folder, to which a file is
added when it is complete. Its ID is in the offsets, which Spark keeps in the query's checkpoint. So a query that starts
again, after any failure, reads the files that its offsets lack, and those only.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bowstring.datasets.manifest import (
    Manifest,
    ManifestEntry,
    log_errors_after_commit,
    read_manifest,
    remove_old_manifests,
    try_create_manifest,
)
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError, NotFoundError, translate_os_error
from bowstring.io.local_path import read_clock
from bowstring.io.store_path import FolderPath, check_regular_file, find_relative_name
from bowstring.ipc.message import END_OF_STREAM
from bowstring.spark.arrow_files import describe_file
from bowstring.spark.options import ReadOptions, check_options, parse_path, parse_storage_options
from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.source.file_discovery import (
    FolderFiles,
    find_unlisted_files,
    read_listed_file,
)
from bowstring.spark.source.planning import ReadPlanner

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """PySpark 4.0 and 4.1 have neither limits nor this class: they take one offset for all that is available."""


LOG_FOLDER = "_streams"
INCOMPLETE_FILE_AGE_S = 600.0
"""How long a file that is not complete may be unchanged, before it is an error: its writer may have died."""

_MANIFEST = "manifest"
_LOG_SCHEMA = {"type": "struct", "fields": []}
"""A log has no schema: each file has its own."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The files that a query has read."""

    source: str = ""
    """"manifest", or the ID of the log; empty before the first file."""
    generation: int = 0
    """The generation of the manifest."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The indices of the files, as sorted, separate ranges with the index after the last one."""
    first_file: str = ""
    """The name of the first file of the manifest: another folder at the same path may have the same generation."""

    def __contains__(self, index: int) -> bool:
        return any(start <= index < stop for start, stop in self.ranges)

    def missing(self, num_files: int) -> Iterator[int]:
        """Yield the indices of the files that it lacks; thousands that were read take no time."""
        begin = 0
        for start, stop in (*self.ranges, (num_files, num_files)):
            yield from range(begin, min(start, num_files))
            begin = stop

    def add(self, indices: Iterable[int]) -> StreamOffset:
        """Return the offset after more files."""
        ranges: list[tuple[int, int]] = []
        for start, stop in sorted((*self.ranges, *((index, index + 1) for index in indices))):
            if ranges and start <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
            else:
                ranges.append((start, stop))
        return replace(self, ranges=tuple(ranges))

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark stores it."""
        files = ",".join(f"{start}-{stop}" for start, stop in self.ranges)
        offset = {"source": self.source, "generation": self.generation, "files": files}
        return {**offset, "first_file": self.first_file} if self.first_file else offset

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the offset of `to_json`. Raises `InvalidDataError`."""
        try:
            texts = [text.split("-") for text in value["files"].split(",") if text]
            ranges = tuple((int(start), int(stop)) for start, stop in texts)
            return cls(str(value["source"]), int(value["generation"]), ranges, str(value.get("first_file", "")))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidDataError(f'format("arrow"): {value!s:.200} is not an offset of a stream') from None


@dataclass(slots=True)
class _FileList:
    """The list of a folder's files that a query follows."""

    folder: FolderPath
    options: ReadOptions
    log_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """For the log of a query that has none yet."""

    def update(self, offset: StreamOffset) -> tuple[StreamOffset, Manifest | None]:
        """Return the offset with its source, and the list; None if there are no files yet.

        Raises `InvalidDataError` if the files of the offset are no longer in the list.
        """
        manifest = read_manifest(self.folder) if self.folder.is_dir() else None
        if manifest is not None and offset.source in ("", _MANIFEST):
            first_file = manifest.entries[0].name if manifest.entries else ""
            is_other_folder = bool(offset.first_file) and offset.first_file != first_file
            if offset.source and (is_other_folder or offset.generation != manifest.generation):
                raise InvalidDataError(
                    f"{self.folder}: was overwritten after the query began to follow it: start it with a new checkpoint"
                )
            return replace(offset, source=_MANIFEST, generation=manifest.generation, first_file=first_file), manifest
        if manifest is not None or offset.source == _MANIFEST:
            state = "no longer has a manifest" if manifest is None else "has a manifest"
            raise InvalidDataError(
                f"{self.folder}: {state} since the query began to follow it: start it with a new checkpoint"
            )
        log = self._update_log(offset)
        return (offset, None) if log is None else (replace(offset, source=offset.source or self.log_id), log)

    def _update_log(self, offset: StreamOffset) -> Manifest | None:
        """Add new files to the log of a folder without a manifest, and return it; None without any file."""
        log_folder = self.folder / LOG_FOLDER / (offset.source or self.log_id)
        log = read_manifest(log_folder)
        if log is None and offset.source:
            raise MissingFileError(
                f"{log_folder}: the log of the files that the query has read is missing", filename=str(log_folder)
            )
        known = frozenset() if log is None else frozenset(entry.name for entry in log.entries)
        entries = list(_find_complete_files(self.folder, self.options, known))
        if not entries:
            return log
        try:
            log_folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise translate_os_error(problem, f"{log_folder}: cannot be created: {problem.strerror}") from problem
        # Written before Spark stores an offset with these files: if the driver ends in between, they stay pending.
        next_log = Manifest(0, {}, ()).replace_all(_LOG_SCHEMA, entries) if log is None else log.append(entries)
        # Only this query adds to its log, and only one driver runs it.
        if not try_create_manifest(log_folder, next_log):
            raise InvalidDataError(f"{log_folder}: another driver runs the same query")
        if next_log.base is None:
            with log_errors_after_commit(log_folder):
                remove_old_manifests(log_folder)
        return next_log


def _find_complete_files(folder: FolderPath, options: ReadOptions, known: frozenset[str]) -> Iterator[ManifestEntry]:
    """Yield the complete files of a folder that are not known, the oldest first."""
    for modified_ns, name in sorted(_list_files(folder, options)):
        if name in known:
            continue
        path = folder / name
        old_at_s = modified_ns / 1e9 + INCOMPLETE_FILE_AGE_S
        # Computed once: between two readings of the clock, a malformed file could become old, and count as complete.
        is_old = time.time() > old_at_s
        problem: InvalidDataError | None = None
        try:
            size_bytes = path.stat().st_size
            lengths_bytes = describe_file(path).batch_lengths_bytes
            is_complete = lengths_bytes is not None or _has_end_of_stream(path)
        except (FileNotFoundError, NotFoundError):  # removed since it was listed
            continue
        except InvalidDataError as error:
            is_complete, lengths_bytes, problem = False, None, error
        # A stream may also end without a marker; then its age shows that it is complete, by both clocks: rows that are
        # written later would be lost.
        if not is_complete and not (is_old and read_clock(folder) > old_at_s):
            continue
        if problem is not None and not options.tolerates_malformed:
            raise problem
        yield ManifestEntry(name, size_bytes, None, None if lengths_bytes is None else len(lengths_bytes))


def _list_files(folder: FolderPath, options: ReadOptions) -> Iterator[tuple[int, str]]:
    """Yield when the files of a folder, complete or not, were modified, and their names."""
    for file in find_unlisted_files(folder, options) if folder.is_dir() else ():
        yield file.modified_ns, find_relative_name(file.path, folder) or file.path.name


def _has_end_of_stream(path: FolderPath) -> bool:
    check_regular_file(path)
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - len(END_OF_STREAM), 0))
        return file.read() == END_OF_STREAM


def _to_read_limit(options: ReadOptions) -> ReadLimit:
    """Return what a batch of a query may have, as Spark passes it to `latestOffset`: by default all new files."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

    if options.max_files_per_trigger is not None:
        return ReadMaxFiles(options.max_files_per_trigger)
    return ReadAllAvailable() if options.max_bytes_per_trigger is None else ReadMaxBytes(options.max_bytes_per_trigger)


class ArrowStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a folder: each batch has the new files, up to the limits."""

    def __init__(self, planner: ReadPlanner, schema: StructType) -> None:
        """Create a reader with the options of a planner. Raises `InvalidArgumentError`."""
        check_options(planner.options, "reading a stream")
        self._folder = parse_path(planner.options.get("path", ""), parse_storage_options(planner.options))
        if self._folder.exists() and not self._folder.is_dir():
            raise InvalidArgumentError(f"{self._folder}: is a file; a stream follows a folder")
        self._reader = planner.files_reader([], schema)
        self._options = self._reader.options
        self._list = _FileList(self._folder, self._options)
        self._names_available_now: frozenset[str] | None = None
        self._last_offset = StreamOffset()

    @hide_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's own
        """The offset before the first file."""
        return StreamOffset().to_json()

    @hide_traceback()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's own
        """The limit of the options."""
        return _to_read_limit(self._options)

    @hide_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's own
        """Read only the files that exist now."""
        manifest = read_manifest(self._folder) if self._folder.is_dir() else None
        if manifest is not None:
            self._names_available_now = frozenset(entry.name for entry in manifest.entries)
        else:  # by name only: most files have been read, and the others are opened when they are added to the log
            self._names_available_now = frozenset(name for _, name in _list_files(self._folder, self._options))

    @hide_traceback()
    def latestOffset(  # noqa: N802 -- Spark's own
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The offset after the next batch; PySpark 4.0 and 4.1 do not pass the one before it."""
        offset, files = self._list.update(self._last_offset if start is None else StreamOffset.from_json(start))
        if files is None:
            return offset.to_json()
        names = self._names_available_now
        entries = files.entries
        pending = [index for index in offset.missing(len(entries)) if names is None or entries[index].name in names]
        if self._options.latest_first:
            pending.reverse()
        self._last_offset = offset.add(_take(pending, files, limit))
        return self._last_offset.to_json()

    @hide_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files between two offsets, in partitions as of a batch reader."""
        before, after = StreamOffset.from_json(start), StreamOffset.from_json(end)
        self._last_offset = after  # a query that starts again plans its last batch first, even if it is committed
        _, files = self._list.update(after) if after.ranges else (after, None)
        if files is None:
            return []
        indices = [index for index in before.missing(after.ranges[-1][1]) if index in after]
        if indices and indices[-1] >= len(files.entries):
            raise InvalidDataError(f"{self._folder}: has fewer files than the query has read")
        base = self._options.base_path or self._folder
        is_log = files.schema == _LOG_SCHEMA
        list_name = f"{LOG_FOLDER}/{after.source}" if is_log else f"manifest {files.sequence_number}"
        data_files = [
            read_listed_file(self._folder, list_name, files.entries[index], base, self._options) for index in indices
        ]
        listed = tuple(file for file in data_files if file is not None)
        if is_log:
            folder = FolderFiles(self._folder, tuple(replace(file, entry=None) for file in listed))
        else:
            folder = FolderFiles(self._folder, listed, files)
        return [InputPartition(task.ranges) for task in replace(self._reader, folders=[folder]).plan()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a partition with Spark's types."""
        return self._reader.read(partition.value)


def _take(pending: list[int], files: Manifest, limit: ReadLimit | None) -> list[int]:
    """Return the files of a batch: at least one, if there is any."""
    if limit is None:
        return pending
    from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles

    if isinstance(limit, ReadMaxFiles):
        return pending[: limit.max_files]
    if isinstance(limit, ReadMaxBytes):
        sizes_bytes = accumulate(files.entries[index].length_bytes for index in pending)
        return pending[: max(bisect_right(list(sizes_bytes), limit.max_bytes), 1)]
    return pending
