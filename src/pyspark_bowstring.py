"""The data source ``format("arrow")``: passes options, schemas and tasks between Spark and the readers and writers.

Spark imports the modules that are named ``pyspark_…`` when it looks for data sources. It does so in any session of a
driver whose Python finds this module, also in the server of Spark Connect. If one of these modules fails, so do all
data sources.

Looking sources up, creating one, planning a read or write, and committing are a Python process each. So a method
imports what it needs: all imports take half of the time of such a process.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bowstring.spark.runtime.worker_errors import hide_traceback
from bowstring.spark.versions import READ_LIMITS, ROWS_WITHOUT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.spark.source.planning import ReadPlanner
    from bowstring.spark.source.read_tasks import TaskReader
    from bowstring.spark.source.stream_reader import ArrowStreamReader
    from bowstring.spark.source.writer import ArrowStreamWriter, ArrowWriter


class DefaultSource(DataSource):
    """Arrow files and data sets, as ``spark.read.format("arrow")`` and ``df.write.format("arrow")``.

    `bowstring.spark.options` lists the options, which docs/reference/spark-files.md describes. All others are an
    `InvalidArgumentError`.
    """

    @hide_traceback()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in options.items()})
        if {"maxfilespertrigger", "maxbytespertrigger"} & self.options.keys():
            READ_LIMITS.check()  # here, because PySpark 4.0 replaces errors of `streamReader` by its own
        self._planner: ReadPlanner | None = None

    @classmethod
    def name(cls) -> str:
        """The word in ``format("arrow")``."""
        return "arrow"

    @hide_traceback()
    def schema(self) -> StructType:
        """The schema of the files: the first one's, or with ``mergeSchema`` the columns of all; or some ``columns``."""
        return self._get_planner().schema()

    @hide_traceback()
    def reader(self, schema: StructType) -> ArrowSourceReader:
        """Return a reader of the columns of `schema`, which may have other types than the files."""
        if not schema.fields:
            ROWS_WITHOUT_COLUMNS.check()
        return ArrowSourceReader(self._get_planner().reader(schema))

    @hide_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        """Return a writer to the folder of the option ``path``."""
        from bowstring.spark.source.writer import ArrowWriter, parse_target

        return ArrowWriter(*parse_target(self.options, "writing", overwrite=overwrite), schema)

    @hide_traceback()
    def streamReader(self, schema: StructType) -> ArrowStreamReader:  # noqa: N802 -- Spark's own
        """Return a reader of the files that are added to the folder of the option ``path``."""
        from bowstring.spark.source.stream_reader import ArrowStreamReader

        return ArrowStreamReader(self._get_planner(), schema)

    @hide_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowStreamWriter:  # noqa: N802 -- Spark's own
        """Return a writer of the batches of a streaming query to the folder of the option ``path``."""
        from bowstring.spark.source.writer import ArrowStreamWriter, parse_target

        return ArrowStreamWriter(*parse_target(self.options, "writing a stream", overwrite=overwrite), schema)

    def _get_planner(self) -> ReadPlanner:
        from bowstring.spark.source.planning import ReadPlanner

        # One for all calls: Spark pickles this object with the schema that the planner has inferred, for `reader`.
        self._planner = self._planner or ReadPlanner(self.options)
        return self._planner


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
