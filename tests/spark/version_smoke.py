"""Run by test_versions.py with an installed Bowstring and PySpark: publish, write and read by all ways that work.

Usage: version_smoke.py FOLDER. Prints the versions, and "done" at the end.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark

import bowstring as bs
import bowstring.spark
from bowstring.spark.versions import DATA_SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ATTACH = """
import bowstring as bs, sys
with bs.open_published(sys.argv[1]) as dataset:
    print(sum(dataset.read_all()["id"].to_pylist()))
"""
ROWS = 1000
COLUMNS = ("id", "string(id) AS text", "id / 2 AS half", "array(id, -id) AS pair", "timestamp_seconds(id) AS time")


def check_rows(frame: DataFrame) -> None:
    """Compare all values with those of the frame that was written."""
    assert sorted(row.id for row in frame.collect()) == list(range(ROWS))
    matching = "text = string(id) AND half = id / 2 AND pair[1] = -id AND time = timestamp_seconds(id)"
    assert frame.where(matching).count() == ROWS


def main(folder: str) -> None:
    """Check the session."""
    print("PySpark", pyspark.__version__, "Python", sys.version.split()[0])  # noqa: T201
    spark = bowstring.spark.session("local[2]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2})
    frame = spark.range(0, ROWS, 1, 3).selectExpr(*COLUMNS)
    with bowstring.spark.publish(frame, name="smoke"):
        output = subprocess.check_output([sys.executable, "-c", ATTACH, "smoke"], text=True)
        assert int(output) == sum(range(ROWS))
    bowstring.spark.write(frame, f"{folder}/written")
    assert bowstring.spark.count_rows(f"{folder}/written") == ROWS
    assert bs.dataset(f"{folder}/written").num_rows == ROWS
    check_rows(bowstring.spark.read(spark, f"{folder}/written"))
    if DATA_SOURCE.is_available:
        check_rows(spark.read.format("arrow").load(f"{folder}/written"))
        for run in (1, 2):
            frame.write.format("arrow").mode("append").save(f"{folder}/sink")
            stream = spark.readStream.format("arrow").load(f"{folder}/sink").writeStream.format("arrow")
            stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
            stream.start(f"{folder}/copy").awaitTermination()
            assert spark.read.format("arrow").load(f"{folder}/copy").count() == run * ROWS
    spark.stop()
    print("done")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
