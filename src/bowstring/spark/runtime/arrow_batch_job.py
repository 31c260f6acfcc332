"""Spark jobs whose tasks receive the rows of a data frame as Arrow batches of limited bytes.

``mapInArrow`` limits the bytes of a batch by the sizes of all its vectors, which the JVM computes after each row.
Spark Connect's server limits those that it sends by the sizes of the rows, which it has already. `ArrowBatchJob` uses
the server's converter in a classic session, too: it is part of every Spark 4, but not public. Without it, and in
Connect sessions, the job is one of ``mapInArrow``.

Spark 3.5 only limits the rows of a batch. `_create_joined_batch_rdd` makes batches of few rows of it, and joins them.

Seconds for 1 million rows that are only counted in Python, best of 3, in turn, on two cores:

| frame | mapInArrow | mapInArrow without its check | the converter |
|---|---|---|---|
| 7 longs, 1 string | 1.18 | 1.07 | 0.52 |
| 4 longs, 4 strings | 1.56 | 1.40 | 1.08 |
| 8 longs | 0.85 | 0.64 | 0.49 |
| 1 long, 1 array of 3 longs | 0.76 | 0.64 | 0.27 |

Spark 4.3's serializer of the Arrow cache (`convertInternalRowToCachedBatch`), a developer API, converts rows, too. For
1 million rows of six columns it took 1.19 s of CPU, and the converter 0.77: it also gathers statistics of each value.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError
from bowstring.spark.intervals import check_no_interval_columns
from bowstring.spark.options import parse_byte_size
from bowstring.spark.runtime.arrow_cache import find_cached_messages
from bowstring.spark.runtime.worker_daemon import adopt_worker
from bowstring.spark.types import prefers_large_types, to_arrow_schema, to_stored_type
from bowstring.spark.versions import BATCH_BYTE_LIMIT

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, Row, SparkSession

MAX_BATCH_BYTES = 64 << 20
"""The bytes of a batch, as Spark limits them by default; one row may exceed it."""

_MAX_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_MAX_RECORDS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
_CONVERTER_CLASS = "org.apache.spark.sql.connect.execution.SparkConnectPlanExecution"
_MAX_ROW_BYTES = 1 << 20
"""How wide rows with strings, binaries, arrays or maps may be, where Spark does not limit the bytes of a batch.

So a batch has 64 rows: publishing 500,000 rows of 7 longs and a string takes 3.1 s of CPU, with 1024 rows 1.5 to 2.4 s.
"""
_INDETERMINATE = "INDETERMINATE"
PANDAS_WARNING = "PySpark does not yet fully support pandas"
"""The beginning of PySpark's warning about pandas 3."""


def as_spark_frame(df: Any, function: str, alternative: str) -> DataFrame:
    """Return a data frame of Spark, also for one of `pyspark.pandas`, without its index.

    Raises `InvalidArgumentError` for other objects, with the function that was called, and Bowstring's for them.
    """
    kind = type(df)
    if kind.__module__.startswith("pyspark.pandas.") and hasattr(df, "to_spark"):
        df = df.to_spark()
    if not hasattr(df, "mapInArrow"):
        raise InvalidArgumentError(
            f"{function}: expected a Spark data frame, found {kind.__module__}.{kind.__qualname__}: "
            f"use bowstring.{alternative} for data of this process, or spark.createDataFrame first"
        )
    frame: DataFrame = df
    return frame


class ArrowBatchJob:
    """Applies `function` to the pyarrow batches of each partition of `df`, and collects the rows that it yields.

    A batch has at most ``maxRecordsPerBatch`` rows of the session, and `MAX_BATCH_BYTES` (or the session's
    ``maxBytesPerBatch``) and one row. Its columns are in the order of the frame's; their names may differ, because
    `mapInArrow` fails for duplicate names and those with a dot. `schema` has the types of the rows.
    """

    def __init__(self, df: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> None:
        # Another frame, because Spark keeps the plan of `df` itself from before it was cached. An alias is fast.
        self._frame = df.alias("frame")
        self._function = function
        self._schema = schema
        self._rdd: RDD[Row] | None = None
        self._is_planned = False

    @property
    def spark(self) -> SparkSession:
        """The session of the frame."""
        return self._frame.sparkSession

    @property
    def has_same_rows_again(self) -> bool:
        """Whether a job for some of the partitions gives them the same rows as the first job."""
        frame: Any = self._frame
        if not hasattr(frame, "_jdf"):
            return False  # Spark Connect has no jobs for some of the partitions
        level: str = frame._jdf.queryExecution().toRdd().outputDeterministicLevel().toString()
        return level != _INDETERMINATE

    def collect(self, partitions: Sequence[int] | None = None) -> list[Row]:
        """Run the job, and return its rows; with `partitions`, run it for some of the partitions."""
        if not self._is_planned:
            # Here and not earlier: to plan an adaptive query runs its first stages.
            self._rdd, self._is_planned = self._create_rdd(), True
        if self._rdd is None:
            return self._map_in_arrow().collect()
        if partitions is None:
            return self._rdd.collect()
        return self.spark.sparkContext.runJob(self._rdd, list, partitions)

    def _map_in_arrow(self) -> DataFrame:
        """As ``DataFrame.mapInArrow``, without PySpark's warning about pandas, which is imported but not used here."""
        check_no_interval_columns(self._frame.schema, "use a classic session, or array(column)")
        names = self._frame.columns
        # mapInArrow loses the rows of a frame without columns.
        frame = self._frame.toDF(*map(str, range(len(names)))) if names else self._frame.selectExpr("null")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
            return frame.mapInArrow(self._function, self._schema)

    def _create_rdd(self) -> RDD[Row] | None:
        frame: Any = self._frame
        if not hasattr(frame, "_jdf"):
            return None
        batches = _create_cached_batch_rdd(frame)
        if batches is None:
            batches = _create_batch_rdd(frame) if BATCH_BYTE_LIMIT.is_available else _create_joined_batch_rdd(frame)
        if batches is None:
            return self._map_in_arrow().rdd
        return batches.mapPartitions(partial(_yield_rows, self._function))


def _yield_rows(function: Callable[[Iterator[Any]], Iterator[Any]], batches: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows that a function makes of the batches of a partition; runs in a task."""
    from pyspark.sql import Row

    adopt_worker()
    for batch in function(iter(batches)):
        for row in batch.to_pylist():
            yield Row(**row)


def _read_batches(streams: Iterable[bytes]) -> Iterator[Any]:
    import pyarrow as pa

    for stream in streams:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            yield from reader


def _create_cached_batch_rdd(frame: Any) -> RDD[Any] | None:
    """The batches of the Arrow cache of a frame, which may be small; None if it has no such cache."""
    messages = find_cached_messages(frame)
    if messages is None:
        return None
    max_records = int(frame.sparkSession.conf.get(_MAX_RECORDS_SETTING))
    return messages.mapPartitions(partial(_join_small_batches, to_arrow_schema(frame.schema), max_records))


def _create_joined_batch_rdd(frame: Any) -> RDD[Any]:
    """The batches of a frame, joined from batches of so few rows that some `MAX_BATCH_BYTES` are not exceeded."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    spark = frame.sparkSession
    max_records = int(spark.conf.get(_MAX_RECORDS_SETTING))
    has_wide_rows = _has_variable_width(to_stored_type(frame.schema))
    row_bytes = _MAX_ROW_BYTES if has_wide_rows else max(frame._jdf.schema().defaultSize(), 1)
    # Another session, because the setting affects all threads of this one.
    session = spark._jsparkSession.cloneSession()
    num_rows = max(MAX_BATCH_BYTES // row_bytes, 1)
    session.conf().set(_MAX_RECORDS_SETTING, str(min(num_rows, max_records) if max_records > 0 else num_rows))
    plan = frame._jdf.queryExecution().analyzed()
    messages = _find_dataset_class(spark._jvm).ofRows(session, plan).toArrowBatchRdd().toJavaRDD()
    join_batches = partial(_join_small_batches, to_arrow_schema(frame.schema), max_records)
    batches = RDD(messages, spark.sparkContext, NoOpSerializer()).mapPartitions(join_batches)
    if not prefers_large_types(spark):
        return batches
    # `toArrowBatchRdd` does not regard the setting.
    return batches.mapPartitions(partial(_cast_batches, to_arrow_schema(frame.schema, prefers_large_types=True)))


@lru_cache(maxsize=1)
def _find_dataset_class(jvm: Any) -> Any:
    return jvm.org.apache.spark.sql.Dataset


def _cast_batches(schema: Schema, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    target = pa.schema(schema)
    return (batch.cast(target) for batch in batches)


def _has_variable_width(data_type: Any) -> bool:
    """Whether values of a Spark type have no fixed size, as strings, binaries, arrays and maps."""
    if isinstance(data_type, StructType):
        return any(_has_variable_width(field.dataType) for field in data_type.fields)
    return isinstance(data_type, StringType | BinaryType | ArrayType | MapType)


def _join_small_batches(schema: Schema, max_records: int, messages: Iterable[bytes]) -> Iterator[Any]:
    """Yield batches of up to `max_records` rows, any number if it is not positive, and `MAX_BATCH_BYTES`, or one larger
    batch that Spark sends; runs in a task.
    """
    import pyarrow as pa

    if max_records <= 0:
        max_records = sys.maxsize
    group: list[Any] = []
    group_bytes = num_rows = 0
    arrow_schema = pa.schema(schema)
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), arrow_schema)
        if group and (group_bytes + len(message) > MAX_BATCH_BYTES or num_rows + batch.num_rows > max_records):
            yield group[0] if len(group) == 1 else pa.concat_batches(group)
            group, group_bytes, num_rows = [], 0, 0
        group.append(batch)
        group_bytes += len(message)
        num_rows += batch.num_rows
    if group:
        yield group[0] if len(group) == 1 else pa.concat_batches(group)


def _create_batch_rdd(frame: Any) -> RDD[Any] | None:
    """The batches of a frame, which Java sends as IPC streams of one each; None if this Spark lacks the converter."""
    from py4j.protocol import Py4JError
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    context = frame.sparkSession.sparkContext
    java = _find_java_objects(context._jvm, _CONVERTER_CLASS)
    if java is None:
        return None
    try:
        convert = java.execution.rowToArrowConverter(frame._jdf.schema(), *_read_converter_settings(frame))
    except Py4JError:
        return None
    rows = frame._jdf.queryExecution().toRdd()
    pairs = rows.mapPartitions(convert, False, java.tuple_tag)  # batches with their rows
    streams = java.pair_rdd_class(pairs, java.any_tag, java.any_tag).keys()
    return RDD(streams, context, NoOpSerializer()).mapPartitions(_read_batches)


def _read_converter_settings(frame: Any) -> tuple[int, int, str, bool, bool]:
    """Return the limits of rows and bytes, the time zone, and whether types are checked and strings are large."""
    settings = frame.sparkSession.conf
    own_max_bytes = settings.get(_MAX_BYTES_SETTING, None)
    max_bytes = MAX_BATCH_BYTES
    if own_max_bytes:
        max_bytes = min(parse_byte_size(_MAX_BYTES_SETTING, own_max_bytes), MAX_BATCH_BYTES)
    max_records = int(settings.get(_MAX_RECORDS_SETTING) or 0)
    return max_records, max_bytes, "UTC", True, prefers_large_types(frame.sparkSession)


@dataclass(frozen=True, slots=True)
class _JavaObjects:
    """Objects of a JVM that create an RDD of batches."""

    execution: Any
    """Has `rowToArrowConverter`, which makes pairs of an IPC stream and its number of rows of the rows of a partition.

    It is an object of Connect's class for the execution of a query. The method uses no state of it, so the object is
    created without its constructor, which needs a query.
    """
    pair_rdd_class: Any
    tuple_tag: Any
    any_tag: Any


@lru_cache(maxsize=1)
def _find_java_objects(jvm: Any, converter_class: str) -> _JavaObjects | None:
    """Find the objects once, because py4j has Spark search all its archives for each part of the name of a class.

    None if this Spark lacks the converter.
    """
    from py4j.protocol import Py4JError

    find_class = jvm.java.lang.Class.forName
    try:
        field = find_class("sun.misc.Unsafe").getDeclaredField("theUnsafe")
        field.setAccessible(True)
        execution = field.get(None).allocateInstance(find_class(converter_class))
    except Py4JError:
        return None
    create_tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").apply
    tuple_tag, any_tag = (create_tag(find_class(name)) for name in ("scala.Tuple2", "java.lang.Object"))
    return _JavaObjects(execution, jvm.org.apache.spark.api.java.JavaPairRDD, tuple_tag, any_tag)
