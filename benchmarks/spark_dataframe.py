"""The Spark DataFrame of the publish benchmarks: rows of mixed types, computed from a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUM_COLUMN = "amount"


def create_dataframe(spark: SparkSession, rows: int) -> DataFrame:
    """Long, int, double, timestamp and string columns, two of them with nulls."""
    return spark.range(rows).selectExpr(
        "id",
        f"id * 7919 % 1000003 AS {SUM_COLUMN}",
        "CAST(id % 1000 AS int) AS shop",
        "id * 0.25D AS price",
        "concat('customer-', lpad(CAST(id % 99991 AS string), 11, '0')) AS customer",
        "timestamp_micros(1700000000000000 + id * 1000) AS at",
        "CASE WHEN id % 10 != 0 THEN CAST(id % 7 AS int) END AS rating",
        "CASE WHEN id % 5 != 0 THEN concat('remark number ', CAST(id % 1000 AS string)) END AS remark",
    )


def expected_sum(rows: int) -> int:
    """The sum of `SUM_COLUMN`."""
    import numpy as np

    return int((np.arange(rows, dtype=np.int64) * 7919 % 1000003).sum())
