"""Limit the bytes of the Arrow batches that Spark sends to Python, without its check of each row.

Spark ends a batch at a number of rows (``maxRecordsPerBatch``) or of bytes (``maxBytesPerBatch``). For the second limit
the JVM computes the size of each column's vector after each row, unless the value is exactly 2147483647. That is cheap
for wide rows, but not for narrow ones. `publish` therefore skips the check where the row limit also limits the bytes:
of frames with columns of fixed width, and of those with strings after `pad_wide_rows`. The sink skips it for frames
with columns of fixed width (`skip_check_of_writes`).

In a padded frame, a row of k times the average size of a full batch's rows is followed by k - 1 padding rows, which
Python drops. The reason for padding is the CPU time of a publish, in the JVM and Python:

| frame | with Spark's check | padded | neither |
|---|---|---|---|
| 3.75 million rows, 7 longs and a string | 2.1 s | 1.5 s | 1.4 s |
| 3.75 million rows, 4 longs and 4 strings | 3.3 s | 2.7 s | 2.4 s |
| 0.94 million rows, 16 longs and 16 strings | 3.2 s | 3.0 s | 2.7 s |
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType as SparkType

MAX_BATCH_BYTES = 64 << 20
"""The bytes of a batch, as Spark limits them by default; one row may exceed it."""

_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNCHECKED = "2147483647"
_IS_ROW = "is_row"
_MIN_ROW_BYTES = 1024
"""With less than this per row of a full batch, so many rows would need padding that Spark's check is cheaper."""

_FIXED_BYTES = {
    **dict.fromkeys(("NullType", "BooleanType", "ByteType"), 1),
    "ShortType": 2,
    **dict.fromkeys(("IntegerType", "FloatType", "DateType"), 4),
    **dict.fromkeys(("LongType", "DoubleType", "TimestampType", "TimestampNTZType"), 8),
    **dict.fromkeys(("TimeType", "DayTimeIntervalType"), 8),
    "DecimalType": 16,
}
_MAX_COLUMNS = 50
"""Above 100 fields (``spark.sql.codegen.maxFields``) Spark compiles no code, and padding is slower than its check."""
_PYTHON_NODE = re.compile(r"(?m)^\W*\d*\W*(?:\w*(?:Python|Pandas|InArrow|InBatch)|Scan ExistingRDD)")
"""Nodes of a physical plan that send Arrow batches to Python, or an RDD, which may have such nodes behind it."""


def pad_wide_rows(frame: DataFrame) -> DataFrame | None:
    """`frame` with padding rows, so that no more than `MAX_BATCH_BYTES` and a row are in a batch of the session's
    ``maxRecordsPerBatch`` rows; None where only Spark's own check limits the bytes.

    If the frame has strings, a column is added at its end that is true for its own rows and false for padding rows,
    whose strings are null. The names of the frame's columns are "0", "1" and so on.
    """
    max_records = _unchecked_rows(frame)
    if not 0 < max_records <= MAX_BATCH_BYTES // _MIN_ROW_BYTES:
        return None
    strings = _string_columns(frame)
    widths = [_fixed_bytes(field.dataType) for field in frame.schema.fields if field.name not in strings]
    row_bytes = MAX_BATCH_BYTES // max_records - sum(width or 0 for width in widths)
    if None in widths or row_bytes < _MIN_ROW_BYTES // 2 or (strings and len(widths) + len(strings) > _MAX_COLUMNS):
        return None
    return _padded(frame, strings, row_bytes, max_records) if strings else frame


def drop_padding(batch: Any) -> Any:
    """A pyarrow batch of a frame from `pad_wide_rows`, without what that has added; no copy if there is no padding."""
    if batch.schema.names[-1:] != [_IS_ROW]:
        return batch
    is_row = batch.column(batch.num_columns - 1)
    if is_row.false_count:
        batch = batch.filter(is_row)
    return batch.select(range(batch.num_columns - 1))


def skip_check_of_writes() -> None:
    """Make ``df.write.format("arrow").save(path)`` skip Spark's check of each row if all columns have a fixed width.

    Spark calls a Python sink in a process that cannot set a property of the job, so `DataFrameWriter.save` sets it.
    """
    from pyspark.sql.readwriter import DataFrameWriter

    set_format, save = DataFrameWriter.format, DataFrameWriter.save
    if hasattr(save, "__wrapped__"):
        return

    @functools.wraps(set_format)
    def format_and_remember(self: Any, source: str) -> Any:
        self._is_arrow = str(source).lower() == "arrow"
        return set_format(self, source)

    @functools.wraps(save)
    def save_without_check(
        self: Any, path: str | None = None, format: str | None = None, *args: Any, **options: Any
    ) -> None:
        if format is not None:
            self.format(format)
        is_unchecked = getattr(self, "_is_arrow", False) and _has_fixed_width(self._df)
        with without_size_check(self._df, python_nodes=0) if is_unchecked else nullcontext():
            save(self, path, None, *args, **options)

    DataFrameWriter.format, DataFrameWriter.save = format_and_remember, save_without_check  # type: ignore[method-assign]


@contextmanager
def without_size_check(frame: DataFrame, *, python_nodes: int = 1) -> Iterator[None]:
    """Skip Spark's check of each row in jobs that the current thread starts for `frame`, if its plan has no more than
    `python_nodes` Python nodes: by default the one at its top that a publish adds.

    With other Python nodes nothing changes: their batches need the check.
    """
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if len(_PYTHON_NODE.findall(plan)) > python_nodes:
        yield
        return
    context: Any = frame.sparkSession.sparkContext
    before = context.getLocalProperty(_MAX_BYTES)
    context.setLocalProperty(_MAX_BYTES, _UNCHECKED)
    try:
        yield
    finally:
        context.setLocalProperty(_MAX_BYTES, before)


def _has_fixed_width(frame: DataFrame) -> bool:
    """Whether the row limit also limits the bytes of a batch of `frame` as it is."""
    return not _string_columns(frame) and pad_wide_rows(frame) is not None


def _string_columns(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema.fields if type(field.dataType).__name__ == "StringType"]


def _unchecked_rows(frame: DataFrame) -> int:
    """The row limit of batches whose size is not checked; 0 if it has to be: Spark Connect and PySpark without pinned
    threads have no local properties, and a setting of the session counts more than they do.
    """
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    settings: Any = frame.sparkSession.conf
    if not hasattr(frame, "_jdf") or not isinstance(SparkContext._gateway, ClientServer):
        return 0
    if (settings._jconf.getAllAsJava().get(_MAX_BYTES) or _UNCHECKED) != _UNCHECKED:
        return 0
    return int(settings.get(_MAX_RECORDS) or 0)


def _padded(frame: DataFrame, strings: list[str], row_bytes: int, max_records: int) -> DataFrame:
    size = " + ".join(f"bigint(coalesce(octet_length(`{name}`), 0))" for name in strings)
    count = f"int(least({max_records}, ceil(({size}) / {row_bytes})))"
    # The literal array costs a narrow row nothing. Spark would filter the input of explode, but not of explode_outer.
    ordinals = f"CASE WHEN {size} <= {row_bytes} THEN array(1) ELSE sequence(1, {count}) END"
    columns = [f"if(ordinal = 1, `{c}`, null) AS `{c}`" if c in strings else f"`{c}`" for c in frame.columns]
    repeated = frame.selectExpr("*", f"explode_outer({ordinals}) AS ordinal")
    return repeated.selectExpr(*columns, f"ordinal = 1 AS {_IS_ROW}")


def _fixed_bytes(data_type: SparkType) -> int | None:
    """The bytes of each value of a type; None if they differ."""
    if type(data_type).__name__ != "StructType":
        return _FIXED_BYTES.get(type(data_type).__name__)
    total_bytes = 1
    for field in data_type.fields:  # type: ignore[attr-defined]  # a StructType, which is not imported
        width_bytes = _fixed_bytes(field.dataType)
        if width_bytes is None:
            return None
        total_bytes += width_bytes
    return total_bytes
