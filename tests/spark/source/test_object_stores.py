"""Folders in an S3 server: what holds for local folders holds there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bowstring as bs
from bowstring.datasets.manifest import Manifest, read_manifest, try_create_manifest
from bowstring.errors import UnmetRequirementError
from bowstring.io.store_path import StorePath
from tests.spark.s3_server import S3Server, list_objects

pytest.importorskip("pyspark")
pytest.importorskip("s3fs")
pytest.importorskip("moto")

from pyspark.errors import AnalysisException

from bowstring.spark import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def options_of(folder: StorePath) -> dict[str, str]:
    return {"storageOptions": json.dumps(folder.options)}


def load(spark: SparkSession, folder: StorePath, path: str = "", **options: str) -> DataFrame:
    return spark.read.format("arrow").options(**options_of(folder), **options).load(folder.url + path)


def test_a_folder_is_written_appended_to_and_overwritten(spark: SparkSession, store_folder: StorePath) -> None:
    frame = spark.range(0, 300, 1, 2).selectExpr("id", "string(id) AS text")
    frame.write.format("arrow").mode("append").options(**options_of(store_folder)).save(store_folder.url)
    write(
        spark.range(300, 400).selectExpr("id", "string(id) AS text"),
        store_folder.url,
        mode="append",
        storage_options=store_folder.options,
    )
    assert sorted(row.id for row in load(spark, store_folder).collect()) == list(range(400))
    names = list_objects(store_folder)
    assert len([name for name in names if name.endswith(".arrow")]) == 4
    assert not [name for name in names if name.startswith("_staging") or ".probe" in name], "nothing is left"
    file_system, path = store_folder.resolve_location()
    assert all(b"test-secret" not in file_system.cat_file(f"{path}/{name}") for name in names)
    write(frame.limit(5), store_folder.url, mode="overwrite", storage_options=store_folder.options)
    assert len([name for name in list_objects(store_folder) if name.endswith(".arrow")]) == 1


def test_data_sets_and_globs_read_a_folder_of_a_store(
    spark: SparkSession, s3_server: S3Server, store_folder: StorePath
) -> None:
    for name in ("day=1/a.arrow", "day=2/b.arrow", "day=2/_hidden.arrow"):
        file_system, path = (store_folder / name).resolve_location()
        with file_system.open(path, "wb") as sink, bs.new_file(sink, bs.schema({"id": "int64"})) as writer:
            writer.write(bs.table({"id": list(range(100_000))}))
    before = s3_server.count_sent_bytes()
    rows = load(spark, store_folder).groupBy("day").count().orderBy("day").collect()
    assert [tuple(row) for row in rows] == [(1, 100_000), (2, 100_000)]
    assert s3_server.count_sent_bytes() - before > 1_600_000
    before = s3_server.count_sent_bytes()
    assert load(spark, store_folder, "/day={2,3}/*.arrow", basePath=store_folder.url).schema.names == ["id", "day"]
    assert s3_server.count_sent_bytes() - before < 500_000, "a schema takes a footer"
    with pytest.raises(AnalysisException, match=r"day=7: there is no such file"):
        load(spark, store_folder, "/day=7").schema  # noqa: B018


@pytest.mark.thorough
def test_concurrent_commits_of_a_store_are_both_kept(spark: SparkSession, store_folder: StorePath) -> None:
    frame = spark.range(0, 10, 1, 1)
    with ThreadPoolExecutor(2) as threads:
        list(
            threads.map(
                lambda _: write(frame, store_folder.url, mode="append", storage_options=store_folder.options), range(4)
            )
        )
    assert load(spark, store_folder).count() == 40
    manifest = read_manifest(store_folder)
    assert manifest is not None
    assert manifest.sequence_number == 4
    assert not try_create_manifest(store_folder, Manifest(4, manifest.schema, ())), "the number is taken"


KILLED = """
import json, os, signal, sys
from pyspark.sql.types import LongType, StructType
from bowstring.datasets.manifest import data_file_name
from bowstring.io.store_path import StorePath
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.folder import job as folder_job, staging
from bowstring.spark.options import WriteOptions
from bowstring.spark.folder.data_files import DataFileWriter
import bowstring as bs
import pyarrow as pa

folder = StorePath(sys.argv[1], json.loads(sys.argv[2]))
options = WriteOptions()
job = folder_job.FolderJob.begin(folder, StructType().add("id", LongType()), "append", options)
staging.create_staging_folder(folder, job.id, owner=ProcessIdentity.current())
batch = pa.record_batch({"id": pa.array(range(10))})
name = data_file_name(job.id, 0, 1)
schema = bs.schema({"id": "int64"})
files = DataFileWriter(lambda name: folder / name, lambda index: name, ["id"], options, schema)
entries = files.write(iter([batch]))
if sys.argv[3] == "after":
    create = folder_job.try_create_manifest
    def create_and_die(*arguments):
        assert create(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    folder_job.try_create_manifest = create_and_die
    job.commit(entries)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("moment", "rows"), [("before", 0), ("after", 10)])
def test_a_writer_that_is_killed_leaves_all_rows_or_none(
    spark: SparkSession, store_folder: StorePath, moment: str, rows: int
) -> None:
    write(spark.range(0, 5, 1, 1), store_folder.url, storage_options=store_folder.options)
    process = subprocess.run(
        [sys.executable, "-c", KILLED, store_folder.url, json.dumps(store_folder.options), moment], check=False
    )
    assert process.returncode == -signal.SIGKILL
    assert load(spark, store_folder).count() == 5 + rows
    write(spark.range(5, 7, 1, 1), store_folder.url, mode="append", storage_options=store_folder.options)
    assert load(spark, store_folder).count() == 7 + rows
    names = [name for name in list_objects(store_folder) if not name.startswith("_manifest")]
    assert len(names) == 2 + bool(rows), "the next writer removes what the killed one left"


@pytest.mark.thorough
def test_a_stream_between_folders_of_a_store_writes_each_row_once(
    spark: SparkSession, store_folder: StorePath, tmp_path: Path
) -> None:
    source, sink = store_folder / "source", store_folder / "sink"
    for start in (0, 10):
        write(spark.range(start, start + 10, 1, 1), source.url, mode="append", storage_options=store_folder.options)
        query = (
            spark.readStream.format("arrow")
            .options(**options_of(store_folder))
            .load(source.url)
            .writeStream.format("arrow")
            .options(**options_of(store_folder), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(sink.url)
        )
        query.awaitTermination()
    assert sorted(row.id for row in load(spark, sink).collect()) == list(range(20))


def test_a_store_without_conditional_put_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnmetRequirementError, match=r"no conditional put"):
        write(spark.range(3), f"local://{tmp_path}/folder")
    assert list(tmp_path.iterdir()) == []
