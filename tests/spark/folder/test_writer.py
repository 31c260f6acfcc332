"""`bowstring.spark.write`: the same folder as the data source's, with all of Spark's modes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import bowstring as bs
from bowstring.datasets.manifest import read_manifest
from bowstring.errors import ExistingFileError, InvalidArgumentError
from bowstring.spark import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_ids(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("arrow").load(str(folder)).collect())


def test_the_files_and_the_manifest_are_those_of_the_data_source(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        "id",
        "repeat('x', int(id % 50)) AS text",
        "array(id, id + 1) AS list",
        "timestamp_seconds(id) AS time",
        "if(id % 3 = 0, null, id / 7) AS number",
    )
    write(frame, tmp_path / "written")
    frame.write.format("arrow").mode("append").save(str(tmp_path / "saved"))
    written, saved = (read_manifest(tmp_path / name) for name in ("written", "saved"))
    assert written is not None
    assert saved is not None
    assert written.schema == saved.schema
    assert [entry.rows for entry in written.entries] == [entry.rows for entry in saved.entries]
    for left, right in zip(written.entries, saved.entries, strict=True):
        with bs.open_file(tmp_path / "written" / left.name) as a, bs.open_file(tmp_path / "saved" / right.name) as b:
            assert a.read_all().to_pylist() == b.read_all().to_pylist()
    assert not (tmp_path / "written" / "_staging").exists()


def test_modes_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write(spark.range(3), folder)
    for mode in ("error", "errorifexists"):
        with pytest.raises(ExistingFileError, match="has data already: set mode='append'"):
            write(spark.range(3), folder, mode=mode)
    write(spark.range(10, 12), folder, mode="ignore")
    assert read_ids(spark, folder) == [0, 1, 2]
    write(spark.range(10, 12), str(folder), mode="append", fsync=True)
    assert read_ids(spark, folder) == [0, 1, 2, 10, 11]
    write(spark.range(7, 8), folder, mode="overwrite")
    assert read_ids(spark, folder) == [7]
    assert len(list(folder.glob("*.arrow"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "replace"}, "mode: expected one of 'error'"), ({"path": "dbfs:/key"}, "only URLs such as")],
)
def test_wrong_arguments_are_an_error(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        write(spark.range(3), **{"path": tmp_path / "data", **options})
    wrong: Any = [1]
    with pytest.raises(
        InvalidArgumentError, match=r"expected a Spark data frame, found builtins\.list: use bowstring\.write_table"
    ):
        write(wrong, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("if(id = 99, raise_error('as planned'), id) AS id")
    with pytest.raises(Exception, match="as planned"):
        write(frame, tmp_path / "new" / "data")
    assert not (tmp_path / "new").exists()


def test_a_frame_without_rows_makes_an_empty_folder_that_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(0), tmp_path / "data")
    assert spark.read.format("arrow").load(str(tmp_path / "data")).count() == 0
