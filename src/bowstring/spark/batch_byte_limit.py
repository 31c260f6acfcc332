"""Limit the bytes of the Arrow batches that Spark sends to Python, without its check of each row.

Spark ends a batch at a number of rows (``maxRecordsPerBatch``) or of bytes (``maxBytesPerBatch``). For the second limit
the JVM computes the size of each column's vector after each row, unless the value is exactly 2147483647. That is cheap
for wide rows, but not for narrow ones. `plan_map_in_arrow` therefore skips the check if the row limit also limits
the bytes: for frames with columns of fixed width, and for those with strings after `add_padding_rows`. A frame whose
own plan sends batches to Python keeps the check, because those batches need it.

A cached frame needs no padding if each of its partitions is smaller than a batch may be.

In a padded frame, a row of k times the average size of a full batch's rows is followed by k - 1 padding rows, which
Python drops. The reason for padding is the CPU time of a publish, in the JVM and Python:

| frame | with Spark's check | padded | neither |
|---|---|---|---|
| 3.75 million rows, 7 longs and a string | 2.1 s | 1.5 s | 1.4 s |
| 3.75 million rows, 4 longs and 4 strings | 3.3 s | 2.7 s | 2.4 s |
| 0.94 million rows, 16 longs and 16 strings | 3.2 s | 3.0 s | 2.7 s |
| 1.03 million cached rows, 5 strings, 5 numbers and a struct | 2.6 s | 2.2 s | 1.5 s |
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bowstring.spark.job_properties import has_local_properties, local_property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MAX_BATCH_BYTES = 64 << 20
"""The bytes of a batch, as Spark limits them by default; one row may exceed it."""

MAX_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_MAX_RECORDS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
UNLIMITED_BYTES = "2147483647"
_IS_ROW_COLUMN = "is_row"
_MIN_ROW_BYTES = 1024
"""With less than this per row of a full batch, so many rows would need padding that Spark's check is cheaper."""

_VALUE_BYTES = {
    **dict.fromkeys(("NullType", "BooleanType", "ByteType"), 1),
    "ShortType": 2,
    **dict.fromkeys(("IntegerType", "FloatType", "DateType"), 4),
    **dict.fromkeys(("LongType", "DoubleType", "TimestampType", "TimestampNTZType"), 8),
    **dict.fromkeys(("TimeType", "DayTimeIntervalType"), 8),
    "DecimalType": 16,
    "StructType": 1,  # besides its fields
}
"""The bytes of a value in a vector, by the name of Spark's type."""
_MAX_PADDED_COLUMNS = 50
"""Above 100 fields (``spark.sql.codegen.maxFields``) Spark compiles no code, and padding is slower than its check."""
_PYTHON_NODE_PATTERN = r"(?m)^[ :+*()\d-]*+(?:\w*(?:Python|Pandas|InArrow|InBatch)|Scan ExistingRDD)"
"""Nodes of a physical plan that send Arrow batches to Python, or an RDD, which may have such nodes behind it."""
_CACHE_NODE_NAME = "InMemoryTableScan"
_CACHE_SERIALIZER = "DefaultCachedBatchSerializer"
"""Others may count the bytes of a partition after compression."""


_PANDAS_WARNING = "PySpark does not yet fully support pandas"


@dataclass(frozen=True, slots=True)
class MapInArrowJob:
    """A frame of ``mapInArrow``, and whether its batches are limited without Spark's check."""

    frame: DataFrame
    skips_size_check: bool

    def collect(self) -> list[Row]:
        """Run the job, and return its rows."""
        if not self.skips_size_check:
            return self.frame.collect()
        with local_property(self.frame.sparkSession, MAX_BYTES_SETTING, UNLIMITED_BYTES):
            return self.frame.collect()


def plan_map_in_arrow(df: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> MapInArrowJob:
    """Return the job of ``df.mapInArrow(function, schema)``.

    No batch that `function` receives has more than `MAX_BATCH_BYTES` and one row. It may have padding rows, which
    `drop_padding_rows` removes. The names of its columns are "0", "1" and so on, because `mapInArrow` fails for
    duplicate names and those with a dot; a frame without columns, whose rows it would lose, gets a column.
    """
    frame = df.toDF(*map(str, range(len(df.columns)))) if df.columns else df.selectExpr("null")
    padded = add_padding_rows(frame, df)
    if padded is not None:
        job_frame = _map_in_arrow(padded, function, schema)
        if count_python_plan_nodes(job_frame) == 1:
            return MapInArrowJob(job_frame, skips_size_check=True)
    return MapInArrowJob(_map_in_arrow(frame, function, schema), skips_size_check=False)


def _map_in_arrow(frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> DataFrame:
    """As ``frame.mapInArrow``, without PySpark's warning about pandas, which it imports but does not use here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _PANDAS_WARNING, FutureWarning)
        return frame.mapInArrow(function, schema)


def add_padding_rows(frame: DataFrame, source: DataFrame | None = None) -> DataFrame | None:
    """`frame` with padding rows, so that no more than `MAX_BATCH_BYTES` and a row are in a batch of the session's
    ``maxRecordsPerBatch`` rows; None if only Spark's own check limits the bytes.

    If the frame has strings, a column is added at its end that is true for its own rows and false for padding rows,
    whose strings are null. The names of the frame's columns are "0", "1" and so on. `source` is the frame with its
    original names: if it is cached in partitions that are smaller than a batch may be, `frame` needs no padding.
    """
    if not has_local_properties(frame.sparkSession):
        return None  # the check can't be skipped
    settings: Any = frame.sparkSession.conf
    if (settings._jconf.getAllAsJava().get(MAX_BYTES_SETTING) or UNLIMITED_BYTES) != UNLIMITED_BYTES:
        return None  # a setting of the session takes precedence over a local property
    max_records = int(settings.get(_MAX_RECORDS_SETTING) or 0)
    if not 0 < max_records <= MAX_BATCH_BYTES // _MIN_ROW_BYTES:
        return None

    strings = [field.name for field in frame.schema.fields if type(field.dataType).__name__ == "StringType"]
    if strings and len(frame.columns) > _MAX_PADDED_COLUMNS:
        return None
    string_bytes = MAX_BATCH_BYTES // max_records  # per row, after the columns of fixed width
    types: list[Any] = [field.dataType for field in frame.schema.fields if field.name not in strings]
    while types:
        data_type = types.pop()
        width_bytes = _VALUE_BYTES.get(type(data_type).__name__)
        if width_bytes is None:
            return None
        string_bytes -= width_bytes
        types += [field.dataType for field in getattr(data_type, "fields", ())]
    if string_bytes < _MIN_ROW_BYTES // 2:
        return None
    if not strings:
        return frame
    largest_bytes = None if source is None else largest_cached_partition_bytes(source)
    if largest_bytes is not None and largest_bytes <= string_bytes * max_records:
        return frame
    size = " + ".join(["0L", *(f"coalesce(octet_length(`{name}`), 0)" for name in strings)])
    # The literal array costs a narrow row nothing. Spark would filter the input of explode, but not of explode_outer.
    count = f"int(least({max_records}, 1 + ({size}) div {string_bytes}))"
    ordinals = f"if({size} <= {string_bytes}, array(1), sequence(1, {count}))"
    columns = [f"if(ordinal = 1, `{c}`, null) AS `{c}`" if c in strings else f"`{c}`" for c in frame.columns]
    repeated = frame.selectExpr("*", f"explode_outer({ordinals}) AS ordinal")
    return repeated.selectExpr(*columns, f"ordinal = 1 AS {_IS_ROW_COLUMN}")


def largest_cached_partition_bytes(frame: DataFrame) -> int | None:
    """The size of the largest partition of a cached frame, not less than the bytes of its strings and their offsets.

    None if `frame` is not itself cached, if a partition is not in the cache yet, or if this Spark has no such sizes.
    """
    from py4j.protocol import Py4JError

    plan = frame._jdf.queryExecution().withCachedData()
    if plan.nodeName() != "InMemoryRelation":
        return None
    cache = plan.cacheBuilder()
    if cache.serializer().getClass().getSimpleName() != _CACHE_SERIALIZER or not cache.isCachedColumnBuffersLoaded():
        return None
    gateway: Any = frame.sparkSession.sparkContext._gateway
    java = gateway.jvm.java.lang
    try:  # Spark has public methods only for the sum of the sizes
        method = cache.getClass().getDeclaredMethod("partitionStats", gateway.new_array(java.Class, 0))
        method.setAccessible(True)
        sizes = method.invoke(cache, gateway.new_array(java.Object, 0)).value().toString()
    except Py4JError:
        return None
    return max((int(nbytes) for _, nbytes in re.findall(r"\((\d+),(\d+)\)", sizes)), default=None)


def drop_padding_rows(batch: Any) -> Any:
    """Remove the padding of `add_padding_rows` from a pyarrow batch; no copy if there is none."""
    if batch.schema.names[-1:] != [_IS_ROW_COLUMN]:
        return batch
    is_row = batch.column(batch.num_columns - 1)
    if is_row.false_count:
        batch = batch.filter(is_row)
    return batch.select(range(batch.num_columns - 1))


def count_python_plan_nodes(frame: DataFrame) -> int:
    """The number of nodes in the plan of `frame` that send batches to Python. Those behind a filled cache do not count,
    because they do not run again.
    """
    spark_context: Any = frame.sparkSession.sparkContext
    java = spark_context._jvm.java
    pattern = java.util.regex.Pattern.compile(_PYTHON_NODE_PATTERN)
    plan = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.inputPlan()
    leaves = plan.collectLeaves()
    caches = [
        leaf.relation() for leaf in map(leaves.apply, range(leaves.size())) if leaf.nodeName() == _CACHE_NODE_NAME
    ]
    plans = [plan, *(cache.cachedPlan() for cache in caches if cache.cacheBuilder().isCachedColumnBuffersLoaded())]
    # Counted in the JVM, because the text of a plan can take 40 ms to arrive here.
    nodes = [len(pattern.split(java.lang.StringBuilder().append(plan), -1)) - 1 for plan in plans]
    return nodes[0] - sum(nodes[1:])
