"""The data source ``format("arrow")``: passes options, schemas and tasks between Spark and the readers and writers."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bowstring.errors import InvalidArgumentError
from bowstring.io.store_path import FolderPath
from bowstring.spark.options import (
    ReadOptions,
    WriteOptions,
    check_options,
    parse_path,
    parse_save_mode,
    parse_storage_options,
)
from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.source.planning import ReadPlanner
from bowstring.spark.source.stream_reader import ArrowStreamReader
from bowstring.spark.source.writer import ArrowStreamWriter, ArrowWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.spark.source.read_tasks import TaskReader


class ArrowDataSource(DataSource):
    """Arrow files and data sets, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    `bowstring.spark.options` lists the options, which docs/reference describes in spark-read.md, spark-write.md and
    spark-stream.md. All others are an `InvalidArgumentError`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in options.items()})
        self._planner = ReadPlanner(self.options)

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

    @hide_traceback()
    def schema(self) -> StructType:
        """The schema of the files: the first one's, or with ``mergeSchema`` the columns of all; or some ``columns``."""
        return self._planner.schema()  # Spark pickles this object with the schema for `reader`

    @hide_traceback()
    def reader(self, schema: StructType) -> ArrowSourceReader:
        """Return a reader of the columns of `schema`, which may have other types than the files."""
        return ArrowSourceReader(self._planner.reader(schema))

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Return a writer to the folder of the option ``path``."""
        check_options(self.options, "writing")
        folder = self._folder()
        mode = parse_save_mode(self.options, overwrite=overwrite)
        return ArrowWriter(folder, schema, mode, WriteOptions.parse(self.options))

    @hide_traceback()
    def streamReader(self, schema: StructType) -> ArrowStreamReader:  # noqa: N802 -- Spark's own
        """Return a reader of the files that are added to the folder of the option ``path``."""
        check_options(self.options, "reading a stream")
        folder = self._folder()
        if folder.exists() and not folder.is_dir():
            raise InvalidArgumentError(f"{folder}: is a file; a stream follows a folder")
        return ArrowStreamReader(folder, self._planner.files_reader([], schema), ReadOptions.parse(self.options))

    @hide_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowStreamWriter:  # noqa: N802 -- Spark's own
        """Return a writer of the batches of a streaming query to the folder of the option ``path``."""
        check_options(self.options, "writing a stream")
        folder = self._folder()
        mode = parse_save_mode(self.options, overwrite=overwrite)
        return ArrowStreamWriter(folder, schema, mode, WriteOptions.parse(self.options))

    def _folder(self) -> FolderPath:
        return parse_path(self.options.get("path", ""), parse_storage_options(self.options))


class ArrowSourceReader(DataSourceReader):
    """Passes the tasks of a read to Spark."""

    def __init__(self, reader: TaskReader) -> None:
        self._reader = reader

    @hide_traceback()
    def partitions(self) -> list[InputPartition]:
        """Return the tasks; Spark would replace an empty list by a partition of None."""
        return [InputPartition(task.ranges) for task in self._reader.plan()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a partition with Spark's types."""
        return self._reader.read(partition.value)
