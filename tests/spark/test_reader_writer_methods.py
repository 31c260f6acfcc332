"""The methods of PySpark's readers and writers that Bowstring extends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from bowstring.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def test_partition_columns_are_rejected_with_what_works_instead(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("arrow").mode("append")
    with pytest.raises(InvalidArgumentError, match="Spark does not pass partitionBy to Python data sources"):
        writer.partitionBy("id").save(str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()
    frame = spark.range(3).selectExpr("id", "id % 2 AS parity")
    frame.write.mode("append").save(str(tmp_path / "other"), format="parquet", partitionBy="parity")
    assert (tmp_path / "other" / "parity=1").is_dir()


def test_other_formats_still_stream_and_foreach_batch_writes_arrow_files(spark: SparkSession, tmp_path: Path) -> None:
    def append(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("arrow").mode("append").save(str(tmp_path / "data"))

    query = stream(spark).writeStream.foreachBatch(append).trigger(once=True).start()
    assert query.awaitTermination(60)
    assert spark.read.format("arrow").load(str(tmp_path / "data")).count() == 10
