"""Run by test_arrow_batch_job.py in a process of its own: publishes and writes wide rows with a small driver.

Usage: wide_rows_job.py FOLDER. Prints a line of JSON per frame.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bowstring as bs
from bowstring.spark import publish, session, write
from bowstring.spark.versions import DATA_SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IMAGE = "cast(repeat(char(65 + id % 26), 100000) as binary)"


def lengths(batches: Iterator[Any]) -> Iterator[Any]:
    """The length of each image."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        yield pa.record_batch({"id": pc.binary_length(batch.column("image")).cast(pa.int64())})


def frames(spark: SparkSession) -> dict[str, tuple[DataFrame, int]]:
    """Frames of some 100 MB in one partition, each with the bytes of its widest row."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql.functions import expr

    images = spark.range(0, 1600, 1, 1).selectExpr("id", f"{IMAGE} as image")
    skewed = spark.range(0, 150, 1, 1).union(spark.range(0, 4, 1, 2))
    return {
        "images": (images, 100_000),
        "lengths of images": (images.mapInArrow(lengths, "id long"), 8),
        "skewed images of 1 MB": (skewed.selectExpr("id", "cast(repeat('x', 1000000) as binary) as image"), 1_000_000),
        "documents": (spark.range(0, 5000, 1, 1).selectExpr("id", "repeat('x', 20000) as text"), 20_000),
        "embeddings": (spark.range(0, 15_000, 1, 1).selectExpr("id", "array_repeat(float(id), 1536) as v"), 6_144),
        "vectors": (
            spark.range(0, 5000, 1, 1).select("id", array_to_vector(expr("array_repeat(double(id), 3000)")).alias("v")),
            24_000,
        ),
        "lists of strings": (
            spark.range(0, 1500, 1, 1).selectExpr("id", "array_repeat(repeat('x', 1000), 50) as v"),
            60_000,
        ),
        "one of 50 MB": (
            spark.range(0, 100_000, 1, 1).selectExpr("id", "if(id = 70000, repeat('y', 50000000), 'z') as s"),
            50_000_000,
        ),
    }


def report(name: str, batches: list[bs.RecordBatch], row_bytes: int) -> None:
    """Print the size of the batches."""
    sizes = {"rows": sum(b.num_rows for b in batches), "max_bytes": max(b.nbytes for b in batches)}
    print(json.dumps({"name": name, "row_bytes": row_bytes, **sizes}), flush=True)  # noqa: T201


def main(folder: str) -> None:
    spark = session("local[2]", {"spark.driver.memory": "768m"})
    for name, (frame, row_bytes) in frames(spark).items():
        with publish(frame, vectors="struct") as published, bs.connect(published) as dataset:
            report(name, list(dataset), row_bytes)
    images, row_bytes = frames(spark)["images"]
    if DATA_SOURCE.is_available:
        images.write.format("arrow").mode("append").save(folder)
    else:
        write(images, folder, mode="append")
    for path in Path(folder).glob("*.arrow"):
        with bs.open_file(path) as reader:
            report("images in files", list(reader), row_bytes)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
