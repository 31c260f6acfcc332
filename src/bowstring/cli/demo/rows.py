"""The rows of the demo: generated orders, or a Parquet, CSV, JSON or Arrow path, read by Spark."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bowstring.errors import InvalidArgumentError, MissingFileError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK_FORMATS = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    ".parquet": "parquet",
    ".csv": "csv",
}
_ORDERS_QUERY = """
SELECT id, concat('customer ', customer) AS customer, timestamp_seconds(1700000000 + id) AS time, amount,
       named_struct('orders', orders, 'total', total) AS history
FROM orders JOIN (SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer)
     USING (customer)
"""


def create_orders(spark: SparkSession, rows: int) -> DataFrame:
    """Return orders, each joined with the number and the sum of its customer's."""
    orders = spark.range(rows).selectExpr(
        "id", "id * 7919 % 10007 AS customer", "CAST(id % 9973 / 100 AS DECIMAL(9, 2)) AS amount"
    )
    orders.createOrReplaceTempView("orders")
    return spark.sql(_ORDERS_QUERY)


def infer_input_format(path: str) -> str:
    """Return Spark's format for a local or remote file or folder, by extension.

    Raises `MissingFileError` if a local path does not exist, `InvalidArgumentError` for an unknown extension.
    """
    if "://" not in path and not os.path.exists(path):
        raise MissingFileError(f"{path}: there is no such file or folder", filename=path)
    names = [path, *(sorted(os.listdir(path)) if os.path.isdir(path) else ())]
    for name in names:
        for extension in reversed(Path(name.lower()).suffixes[-2:]):  # .csv.gz, too
            if extension in _SPARK_FORMATS and not os.path.basename(name).startswith(("_", ".")):
                return _SPARK_FORMATS[extension]
    raise InvalidArgumentError(
        f"{path}: expected a name that ends in {', '.join(_SPARK_FORMATS)}, or a folder of such files"
    )


def read_dataframe(spark: SparkSession, path: str) -> DataFrame:
    """Read a local or remote path with Spark. Raises the errors of `infer_input_format`."""
    format_ = infer_input_format(path)
    options: dict[str, bool | str] = {}
    if format_ == "csv":
        options = {"header": True, "inferSchema": True, "quote": '"', "escape": '"', "multiLine": True}
    if format_ == "json":
        options = {"multiLine": not _is_json_lines(path)}
    return spark.read.format(format_).options(**options).load(path)


def _is_json_lines(path: str) -> bool:
    """Return whether a JSON file contains one document per line, judged by its name or its first two lines."""
    if not os.path.isfile(path) or ".json" not in Path(path.lower()).suffixes:
        return True
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        first, second = (file.readline(1 << 20).strip() for _ in range(2))
    return first.startswith(b"{") and first.endswith(b"}") and (not second or second.startswith(b"{"))
