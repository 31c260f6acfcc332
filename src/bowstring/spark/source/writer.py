"""``df.write.format("arrow")`` and ``df.writeStream.format("arrow")``: each partition becomes one Arrow file, and a
manifest lists the committed attempts.

By default, the files are uncompressed and 64-byte aligned, so that they can be mapped. Partitions without rows have no
file.

Spark creates a writer for each batch of a streaming query, and another one for its commit, in another process. So the
tasks report the job and the query, whose last batch is in the manifest: a batch that Spark repeats after a failure,
because the driver ended between our commit and its own, is recognized and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bowstring.datasets.manifest import ManifestEntry, QueryBatch, log_errors_after_commit
from bowstring.errors import InvalidArgumentError
from bowstring.io.store_path import FolderPath
from bowstring.sharing.processes import find_java_ancestor
from bowstring.spark.folder import staging
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.intervals import check_no_interval_columns
from bowstring.spark.options import (
    Action,
    SaveMode,
    WriteOptions,
    check_options,
    parse_path,
    parse_save_mode,
    parse_storage_options,
)
from bowstring.spark.runtime.worker_errors import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    from pyspark.sql.datasource import DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """PySpark 4.0 has no such class, but passes batches to each `DataSourceArrowWriter`, also in streams."""


_QUERY_PROPERTY = "sql.streaming.queryId"
"""The local property that Spark sets for the tasks of a streaming query."""
_INTERVAL_ADVICE = "write the frame with bowstring.spark.write(df, path)"


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """The files that one attempt of a task wrote; none if the partition has no rows."""

    entries: tuple[ManifestEntry, ...]


@dataclass
class StreamCommitMessage(TaskCommitMessage):
    """As `TaskCommitMessage`, with the job and the query."""

    job: str
    query: str


class ArrowWriter(DataSourceArrowWriter):
    """Writes a DataFrame to a folder. Created on the driver; pickled for the tasks and for the commit."""

    def __init__(self, folder: FolderPath, mode: SaveMode, options: WriteOptions, schema: StructType) -> None:
        check_no_interval_columns(schema, _INTERVAL_ADVICE)
        self.job = FolderJob.begin(folder, schema, mode, options)
        if self.job is not None:
            self._created_folders = staging.create_staging_folder(folder, self.job.id)

    @hide_traceback()
    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Write one partition, on an executor."""
        return TaskCommitMessage(() if self.job is None else self.job.write_task(iterator))

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of these attempts atomically; on the driver."""
        if self.job is not None:
            self.job.commit(_find_entries(messages))

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's own
        """Remove the files of the job, and the folders that it created if they are empty; on the driver."""
        if self.job is not None:
            self.job.discard(self._created_folders)


class ArrowStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query to a folder, each of them once."""

    def __init__(self, folder: FolderPath, mode: SaveMode, options: WriteOptions, schema: StructType) -> None:
        check_no_interval_columns(schema, _INTERVAL_ADVICE)
        job = FolderJob.begin(folder, schema, mode, options)
        assert job is not None  # only the mode "ignore" has none
        self._job = job
        self._driver = find_java_ancestor()

    @hide_traceback()
    def write(self, iterator: Iterator[Any]) -> StreamCommitMessage:
        """Write one partition of a batch, on an executor."""
        from pyspark import TaskContext

        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(_QUERY_PROPERTY)
        if query is None:
            raise InvalidArgumentError("ArrowStreamWriter.write: expected to run in a task of a streaming query")
        entries = self._job.write_task(iterator, query=query, driver=self._driver)
        return StreamCommitMessage(entries, self._job.id, query)

    @hide_traceback()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's own
        """Commit a batch, unless it is committed already; on the driver."""
        job, query = self._find_job(messages)
        if job is None:
            return  # a batch without partitions
        job.commit(_find_entries(messages), QueryBatch(query, batchId))
        # Spark runs the batches of a query one after the other, so all other jobs of the query have ended.
        with log_errors_after_commit(job.folder):
            staging.discard_jobs_of_query(job.folder, query)

    @hide_traceback()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove the files of the finished tasks; files of others are removed when the query commits its next batch."""
        job, _ = self._find_job(messages)
        if job is not None:
            job.discard()

    def _find_job(self, messages: Sequence[WriterCommitMessage | None]) -> tuple[FolderJob | None, str]:
        """Return the job that the tasks belong to, and the ID of the query."""
        # Not `self._job`: the writer that commits is not the tasks' writer, and its job has a new ID.
        # Messages of failed tasks are None; if all are, the query's next commit removes what its tasks wrote.
        for message in messages:
            if isinstance(message, StreamCommitMessage):
                return replace(self._job, id=message.job), message.query
        return None, ""


def parse_target(
    options: Mapping[str, str], action: Action, *, overwrite: bool
) -> tuple[FolderPath, SaveMode, WriteOptions]:
    """Return the arguments of a writer before the schema. Raises `InvalidArgumentError` for other options."""
    check_options(options, action)
    folder = parse_path(options.get("path", ""), parse_storage_options(options))
    return folder, parse_save_mode(options, overwrite=overwrite), WriteOptions.parse(options)


def _find_entries(messages: Sequence[WriterCommitMessage | None]) -> list[ManifestEntry]:
    return [entry for message in messages if isinstance(message, TaskCommitMessage) for entry in message.entries]
