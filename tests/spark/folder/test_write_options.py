"""The options of the sink: partitions, sizes, compression, sorting, dictionaries, and what an overwrite may remove."""

from __future__ import annotations

import json
import multiprocessing
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own

import bowstring as bs
from bowstring.datasets.manifest import Manifest, ManifestEntry, read_manifest
from bowstring.errors import ConflictError, ExistingFileError, InvalidArgumentError
from bowstring.spark import write
from bowstring.spark.folder import data_files
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.options import WriteOptions
from tests.thorough import thorough

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def get_manifest(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    assert manifest is not None
    return manifest


def save(frame: DataFrame, folder: Path, mode: str = "append", **options: Any) -> None:
    frame.write.format("arrow").mode(mode).options(**options).save(str(folder))


def read_files(folder: Path) -> dict[str, list[bs.RecordBatch]]:
    """The batches of each file that the manifest lists, after checking what it has about them."""
    batches = {}
    for entry in get_manifest(folder).entries:
        content = (folder / entry.name).read_bytes()
        assert (entry.length_bytes, entry.checksum) == (len(content), f"crc32:{zlib.crc32(content):08x}")
        batches[entry.name] = list(bs.open_file(content))
        assert entry.rows == sum(batch.num_rows for batch in batches[entry.name])
        assert entry.batches == len(batches[entry.name])
    return batches


PARTITION_VALUES = [
    "CASE id % 4 WHEN 0 THEN 'a/b c=%1' WHEN 1 THEN '' WHEN 2 THEN 'Köln*' END AS text",
    "id % 3 = 0 AS flag",
    "IF(id % 5 = 0, null, DATE '2026-11-25' + INTERVAL 1 DAY) AS day",
    "CAST(id % 2 AS DECIMAL(9, 2)) - 1 AS price",
    "CAST(id % 3 AS DOUBLE) * 1234567890.5 / 3 AS number",
    "CAST((id % 2) / 1000000 AS FLOAT) AS small",
    "TIMESTAMP '2026-07-01 12:30:00' + INTERVAL 1 SECOND * (id % 2 * 1.5) AS time",
    "TIMESTAMP_NTZ '2026-07-01 12:30:00.000001' AS local",
]


@pytest.mark.parametrize("is_function", [True, *thorough(False)])
def test_the_folders_of_partitions_are_those_that_spark_writes(
    spark: SparkSession, tmp_path: Path, is_function: bool
) -> None:
    columns = ["text", "flag", "day", "price", "number", "small", "time", "local"]
    frame = spark.range(0, 30, 1, 2).selectExpr("id", *PARTITION_VALUES)
    if is_function:
        write(frame, tmp_path / "arrow", partition_by=columns)
    else:
        save(frame, tmp_path / "arrow", partitionBy=",".join(columns))
    frame.write.partitionBy(*columns).parquet(str(tmp_path / "parquet"))
    expected = {
        str(path.parent.relative_to(tmp_path / "parquet")) for path in (tmp_path / "parquet").rglob("*.parquet")
    }
    files = read_files(tmp_path / "arrow")
    assert {name.rpartition("/")[0] for name in files} == expected
    assert all([field.name for field in batch.schema] == ["id"] for batches in files.values() for batch in batches)
    ids = [value for batches in files.values() for batch in batches for value in batch.column("id").to_pylist()]
    assert sorted(ids) == list(range(30))
    manifest = get_manifest(tmp_path / "arrow")
    assert manifest.partition_schema is not None
    assert [each["name"] for each in manifest.partition_schema["fields"]] == columns
    assert [each["name"] for each in manifest.schema["fields"]] == ["id"]
    again = spark.read.format("arrow").load(str(tmp_path / "arrow"))
    assert again.schema.simpleString() == frame.schema.simpleString()
    expected_rows = frame.withColumn("text", F.nullif("text", F.lit("")))
    assert again.exceptAll(expected_rows).count() == expected_rows.exceptAll(again).count() == 0


def test_a_task_with_many_partitions_writes_a_file_for_each_in_limited_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(0, 3000, 1, 1).selectExpr("id", "id % 50 AS k", "repeat('x', 200) AS text")
    batches = frame.toArrow().to_batches(max_chunksize=100)
    monkeypatch.setattr(data_files, "GATHER_BYTES", 50_000)
    spilled_bytes = []
    original = data_files._GatheredRows._spill

    def spill(self: data_files._GatheredRows) -> None:
        spilled_bytes.append(self._pending_bytes)
        original(self)

    monkeypatch.setattr(data_files._GatheredRows, "_spill", spill)
    writer = data_files.DataFileWriter(
        lambda name: tmp_path / name.rpartition("/")[2],
        lambda index: f"f{index}",
        frame.columns,
        WriteOptions(partition_by=("k",)),
        bs.schema({"id": "int64", "text": "string"}),
    )
    entries = writer.write(iter(batches))
    assert len(spilled_bytes) > 10
    assert max(spilled_bytes) < 100_000
    assert len(entries) == 50
    for k, entry in zip(sorted(range(50), key=str), entries, strict=True):
        folder, _, name = entry.name.rpartition("/")
        assert folder == f"k={k}"
        assert bs.open_file(tmp_path / name).read_all()["id"].to_pylist() == list(range(k, 3000, 50))


def test_batches_and_files_have_limits_and_compression(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 1).selectExpr("id", "repeat('x', 100) AS text")
    save(
        frame,
        tmp_path / "a",
        maxRecordsPerBatch="70",
        maxRecordsPerFile="300",
        compression="zstd",
        compressionLevel="3",
    )
    files = read_files(tmp_path / "a")
    assert [[batch.num_rows for batch in batches] for batches in files.values()] == [
        *([70, 70, 70, 70, 20],) * 3,
        [70, 30],
    ]
    write(frame, tmp_path / "b", max_bytes_per_batch=20_000, max_bytes_per_file=50_000)
    assert [len(batches) for batches in read_files(tmp_path / "b").values()] == [3, 3]
    assert sum(e.length_bytes for e in get_manifest(tmp_path / "a").entries) < 0.25 * sum(
        e.length_bytes for e in get_manifest(tmp_path / "b").entries
    )
    write(frame, tmp_path / "c", max_records_per_batch=400, compression="lz4")
    assert [[b.num_rows for b in batches] for batches in read_files(tmp_path / "c").values()] == [[400, 400, 200]]


def test_a_batch_ends_before_its_strings_exceed_their_offsets_whatever_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(data_files, "_MAX_BATCH_BYTES", 2000)  # 1 GiB: pyarrow has several arrays for 2 GiB of strings
    rows = pa.record_batch({"text": ["x" * 996] * 7})
    options = WriteOptions(max_bytes_per_batch=3 << 30)
    schema = bs.schema({"text": "string"})
    files = data_files.DataFileWriter(tmp_path.joinpath, lambda index: f"{index}.arrow", ["text"], options, schema)
    (entry,) = files.write(iter([rows]))
    assert [batch.num_rows for batch in bs.open_file(tmp_path / entry.name)] == [2, 2, 2, 1]


def test_columns_of_which_pyarrow_has_no_arrays_are_written_with_each_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(data_files, "GATHER_BYTES", 100)
    schema = bs.schema([("id", bs.int64()), ("text", bs.string()), ("months", bs.month_interval())])
    rows = {"id": [1, 2, 3], "text": ["b", None, "b"], "months": bs.array([4, None, 5], bs.month_interval())}
    batch = pa.record_batch(bs.record_batch(rows, schema))
    for name, options in {
        "dictionaries": WriteOptions(dictionary_columns=["text"], max_records_per_file=4),
        "partitions": WriteOptions(partition_by=["text"]),
        "sorted": WriteOptions(sort_by=["text"]),
    }.items():
        folder = tmp_path / name

        def stage(path: str, folder: Path = folder) -> Path:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            return folder / path

        file_schema = schema.select([column for column in schema.names if column not in options.partition_by])
        writer = data_files.DataFileWriter(stage, "{}.arrow".format, schema.names, options, file_schema)
        entries = writer.write(iter([batch] * 5))
        tables = [bs.open_file(folder / entry.name).read_all() for entry in entries]
        pairs = [
            pair for each in tables for pair in zip(each["id"].to_pylist(), each["months"].to_pylist(), strict=True)
        ]
        assert sorted(map(str, pairs)) == sorted(map(str, [(1, 4), (2, None), (3, 5)] * 5)), name
        assert len(entries) > 1, name


def test_footers_have_statistics_unless_an_option_leaves_them_out(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 10, 1, 1)
    save(frame, tmp_path / "a")
    save(frame, tmp_path / "b", statistics="false")
    write(frame, tmp_path / "c", statistics=False)
    by_folder = [bs.open_file(next((tmp_path / name).glob("*.arrow"))).statistics for name in "abc"]
    assert [statistics is None for statistics in by_folder] == [False, True, True]


def test_rows_are_sorted_within_a_file_as_spark_sorts_them(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 300, 1, 1).selectExpr(
        "id", "CASE id % 7 WHEN 0 THEN null WHEN 1 THEN double('NaN') ELSE id * 37 % 100 / 7 END AS x", "id % 2 AS k"
    )
    write(frame, tmp_path / "data", sort_by=["x", "id"], partition_by=["k"], max_records_per_file=100)
    files = read_files(tmp_path / "data")
    assert len(files) == 4
    for name, batches in files.items():
        ids = [row for batch in batches for row in batch.column("id").to_pylist()]
        expected = frame.where(frame.id.isin(ids)).sort("x", "id").collect()
        assert ids == [row.id for row in expected], name


def test_columns_become_dictionaries_that_grow_within_a_file(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 1).selectExpr("id", "IF(id % 9 = 0, null, concat('v', id DIV 40)) AS text")
    save(frame, tmp_path / "data", dictionaryColumns="text", maxRecordsPerFile="600")
    files = read_files(tmp_path / "data")
    assert [len(batches) for batches in files.values()] == [6, 4]
    assert all("dictionary" in str(batch.schema.field("text").type) for each in files.values() for batch in each)
    again = spark.read.format("arrow").load(str(tmp_path / "data"))
    assert again.schema.simpleString() == frame.schema.simpleString()
    assert sorted(again.collect()) == sorted(frame.collect())


def test_a_dynamic_overwrite_replaces_only_the_partitions_that_have_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 12, 1, 2).selectExpr("id", "id % 3 AS k")
    newer = spark.range(100, 102, 1, 1).selectExpr("id", "id % 100 + 2 AS k")
    for folder, save_frame in (
        ("arrow", lambda frame, **options: save(frame, tmp_path / "arrow", "overwrite", partitionBy="k", **options)),
        (
            "parquet",
            lambda frame, **options: (
                frame.write.mode("overwrite").options(**options).partitionBy("k").parquet(str(tmp_path / "parquet"))
            ),
        ),
    ):
        save_frame(frame)
        save_frame(newer, partitionOverwriteMode="dynamic")
        names = [str(p.relative_to(tmp_path / folder)) for p in (tmp_path / folder).rglob("part-*")]
        assert sorted({name.partition("/")[0] for name in names}) == ["k=0", "k=1", "k=2", "k=3"]
        assert len(names) == 6
    files = read_files(tmp_path / "arrow")
    ids: dict[str, list[int]] = {name.partition("/")[0]: [] for name in files}
    for name, batches in files.items():
        ids[name.partition("/")[0]] += [row for batch in batches for row in batch.column("id").to_pylist()]
    expected = spark.read.parquet(str(tmp_path / "parquet")).collect()
    assert {k: sorted(each) for k, each in ids.items()} == {
        f"k={k}": sorted(row.id for row in expected if row.k == k) for k in range(4)
    }
    save(newer, tmp_path / "arrow", "overwrite", partitionBy="k")
    assert sorted(path.name for path in (tmp_path / "arrow").iterdir()) == ["_manifest", "k=2", "k=3"]


def test_if_exists_adds_the_save_modes_that_spark_rejects(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(3), tmp_path / "data", ifExists="error")
    with pytest.raises(Exception, match=r"ExistingFileError: .*has data already"):
        save(spark.range(3), tmp_path / "data", ifExists="error")
    save(spark.range(5), tmp_path / "data", ifExists="ignore")
    save(spark.range(3), tmp_path / "data", ifExists="append")
    assert [entry.rows for entry in get_manifest(tmp_path / "data").entries] == [1, 2, 1, 2]
    with pytest.raises(Exception, match="option ifExists: expected error, ignore or append"):
        save(spark.range(3), tmp_path / "data", "overwrite", ifExists="error")


def begin_and_commit(
    folder: Path, mode: Any, partition: str, *others: tuple[str, str], options: str = "dynamic"
) -> None:
    """Begin a job, let others commit files of partitions with modes, and commit a file of the job."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(SCHEMA))

    def begin(mode: Any) -> FolderJob:
        write_options = WriteOptions(partition_by=("k",), partition_overwrite_mode=options)
        job = FolderJob.begin(folder, schema, mode, write_options)
        assert job is not None
        job.staging_folder.mkdir(parents=True)
        return job

    def commit(job: FolderJob, partition: str) -> None:
        name = f"part-{job.id}-00000-1.arrow"
        Path(str(job.staging_folder), name).touch()
        job.commit([ManifestEntry(f"k={partition}/{name}", 0, 1, 1)])

    job = begin(mode)
    for other_mode, other_partition in others:
        commit(begin(other_mode), other_partition)
    try:
        commit(job, partition)
    except BaseException:
        job.discard()
        raise


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "k")],
    }
)


def test_an_overwrite_conflicts_with_files_that_were_committed_after_it_began(tmp_path: Path) -> None:
    def count_files(folder: Path) -> dict[str, int]:
        names = [entry.partition for entry in get_manifest(folder).entries]
        on_disk = [str(path.parent.relative_to(folder)) for path in folder.rglob("part-*") if path.is_file()]
        assert sorted(names) == sorted(on_disk)
        return {name: names.count(name) for name in names}

    begin_and_commit(tmp_path, "append", "1", ("append", "1"), ("append", "2"))
    assert count_files(tmp_path) == {"k=1": 2, "k=2": 1}
    with pytest.raises(
        ConflictError, match=r"commit 4 added k=1/part-.* after this job had begun to overwrite commit 3"
    ):
        begin_and_commit(tmp_path, "overwrite", "1", ("append", "1"))
    with pytest.raises(ConflictError):  # two dynamic overwrites of a partition
        begin_and_commit(tmp_path, "overwrite", "2", ("overwrite", "2"))
    assert count_files(tmp_path) == {"k=1": 3, "k=2": 1}
    begin_and_commit(tmp_path, "overwrite", "1", ("append", "2"), ("overwrite", "3"))
    assert count_files(tmp_path) == {"k=1": 1, "k=2": 2, "k=3": 1}
    with pytest.raises(ConflictError):  # a static one
        begin_and_commit(tmp_path, "overwrite", "1", ("append", "5"), options="static")
    begin_and_commit(tmp_path, "append", "1", ("overwrite", "1"), options="static")
    assert count_files(tmp_path) == {"k=1": 2}
    assert not (tmp_path / "_staging").exists()


def test_of_two_jobs_that_need_an_empty_folder_one_is_committed(tmp_path: Path) -> None:
    with pytest.raises(ExistingFileError, match="has data already"):
        begin_and_commit(tmp_path / "a", "error", "1", ("error", "2"))
    assert [entry.partition for entry in get_manifest(tmp_path / "a").entries] == ["k=2"]
    begin_and_commit(tmp_path / "b", "ignore", "1", ("error", "2"))
    assert [entry.partition for entry in get_manifest(tmp_path / "b").entries] == ["k=2"]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["_manifest", "k=2"]


WRONG_OPTIONS = {
    "an unknown partition column": ({"partitionBy": "x"}, "partitionBy: no column of the files is called 'x'"),
    "all columns": (
        {"partitionBy": "id,list"},
        "partitionBy: column list: found array<bigint>, expected a type whose values are in paths",
    ),
    "no column left": ({"partitionBy": "id, text, list"}, "list"),
    "repeated": ({"partitionBy": "id,id"}, "a column is repeated"),
    "no order": ({"sortBy": "list"}, "sortBy: column list: found array<bigint>, expected a type with an order"),
    "a partition column": ({"sortBy": "id", "partitionBy": "id"}, "sortBy: no column of the files is called 'id'"),
    "no strings": ({"dictionaryColumns": "id"}, "dictionaryColumns: column id: found bigint, expected a string"),
    "codec": ({"compression": "snappy"}, "'lz4' or 'zstd', not 'snappy'"),
    "level": ({"compressionLevel": "high", "compression": "zstd"}, "compressionLevel: expected an integer"),
    "level without codec": ({"compressionLevel": "3"}, "without compression"),
    "size": ({"maxBytesPerFile": "0"}, "option maxBytesPerFile: expected at least one byte"),
    "overwrite mode": ({"partitionOverwriteMode": "both"}, "expected static or dynamic"),
}


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS.keys())
def test_wrong_options_are_named_before_a_task_runs(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    frame = spark.range(3).selectExpr("id", "'a' AS text", "array(id) AS list")
    with pytest.raises(Exception, match=message) as error:
        save(frame, tmp_path / "data", **options)
    assert type(error.value).__name__ == "AnalysisException"
    assert not (tmp_path / "data").exists()


def test_an_append_needs_the_partitions_of_the_folder(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "id AS k", "id AS l")
    write(frame, tmp_path, mode="append", partition_by=["k"])
    for names in ([], ["l"], ["k", "l"]):
        with pytest.raises(InvalidArgumentError, match="cannot be appended to: partition column"):
            write(frame, tmp_path, mode="append", partition_by=names)
    write(frame, tmp_path, mode="append", partition_by=["k"])
    assert len(get_manifest(tmp_path).entries) == 6


def overwrite_repeatedly(folder: str, partition: str, commits: int) -> int:
    """Overwrite a partition until so many commits have succeeded; return the number of conflicts."""
    conflicts = done = 0
    while done < commits:
        try:
            begin_and_commit(Path(folder), "overwrite", partition)
            done += 1
        except ConflictError:
            conflicts += 1
    return conflicts


def test_processes_that_overwrite_at_the_same_time_commit_or_conflict(tmp_path: Path) -> None:
    begin_and_commit(tmp_path, "append", "0")
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(overwrite_repeatedly, str(tmp_path), k, 10) for k in ("same", "same", "other")]
        conflicts = [future.result(120) for future in futures]
    manifest = get_manifest(tmp_path)
    assert manifest.sequence_number == 31
    assert sorted(entry.partition for entry in manifest.entries) == ["k=0", "k=other", "k=same"]
    assert conflicts[2] == 0
    assert all((tmp_path / entry.name).exists() for entry in manifest.entries)
    assert len([path for path in tmp_path.rglob("part-*") if path.is_file()]) == 3
    assert not (tmp_path / "_staging").exists()
