"""Invalid files, read by the driver's and the executors' code without a Spark session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructField, StructType  # noqa: E402

from bowstring.datasets.manifest import (  # noqa: E402
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    data_file_name,
    read_manifest,
    try_create_manifest,
)
from bowstring.errors import InvalidDataError, NotFoundError, ResourceError  # noqa: E402
from bowstring.spark.arrow_files import read_batches  # noqa: E402
from bowstring.spark.options import WriteOptions  # noqa: E402
from bowstring.spark.source.writer import ArrowWriter, TaskCommitMessage  # noqa: E402
from pyspark_bowstring import DefaultSource  # noqa: E402

SCHEMA = StructType([StructField("a", LongType())])


def test_malformed_values_are_a_problem_with_path_and_batch(tmp_path: Path) -> None:
    buffers = [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    malformed_batch = pa.record_batch([pa.Array.from_buffers(pa.string(), 1, buffers)], names=["s"])
    path = tmp_path / "broken.arrow"
    with pa.ipc.new_file(path, malformed_batch.schema) as writer:
        writer.write_batch(pa.record_batch({"s": ["sound"]}))
        writer.write_batch(malformed_batch)
    batches = read_batches(path, range(2), ["s"])
    assert next(batches).batch.column(0).to_pylist() == ["sound"]
    assert re.search(r"broken\.arrow, record batch 1: .*UTF-8", str(next(batches).problem))


def writer_and_file(folder: Path) -> tuple[ArrowWriter, Path, str]:
    """A writer, and the file that one of its tasks wrote."""
    writer = ArrowWriter(folder, "append", WriteOptions(), SCHEMA)
    assert writer.job is not None
    name = data_file_name(writer.job.id, 0, 1)
    path = folder / STAGING_FOLDER / writer.job.id / name
    path.write_bytes(b"12345678")
    return writer, path, name


def test_a_file_shorter_than_its_task_reported_is_not_committed(tmp_path: Path) -> None:
    writer, _, name = writer_and_file(tmp_path / "data")
    with pytest.raises(InvalidDataError, match="expected 9 bytes, as in the task's report, found 8"):
        writer.commit([TaskCommitMessage((ManifestEntry(name, 9, 1, 1),))])
    assert read_manifest(tmp_path / "data") is None
    writer.abort([])
    assert not (tmp_path / "data").exists()


def test_an_aborted_job_removes_only_the_folders_it_created(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    writer_and_file(tmp_path / "old" / "new" / "deep")[0].abort([])
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
    writer_and_file(tmp_path / "old")[0].abort([])
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


def test_an_aborted_job_keeps_the_folder_of_another(tmp_path: Path) -> None:
    (first, _, _), (_, path, _) = writer_and_file(tmp_path / "data"), writer_and_file(tmp_path / "data")
    first.abort([])
    assert path.exists()


def test_a_failed_mkdir_leaves_no_parent_folders(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot be written"):
        writer_and_file(tmp_path / "new" / ("long" * 100))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_committed(tmp_path: Path) -> None:
    writer, path, name = writer_and_file(tmp_path / "data")
    path.unlink()
    with pytest.raises(NotFoundError, match="does not exist at the commit"):
        writer.commit([TaskCommitMessage((ManifestEntry(name, 8, 1, 1),))])
    assert read_manifest(tmp_path / "data") is None


def test_a_file_with_another_length_than_in_the_manifest_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "part.arrow").write_bytes(b"12345678")
    try_create_manifest(tmp_path, Manifest(1, SCHEMA.jsonValue(), (ManifestEntry("part.arrow", 9, 1, 1),)))
    with pytest.raises(InvalidDataError, match="expected 9 bytes, as in manifest 1, found 8"):
        DefaultSource({"path": str(tmp_path)}).reader(SCHEMA)
