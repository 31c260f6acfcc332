"""Commits of a job on the driver, without a session."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType

import bowstring as bs
from bowstring.datasets.manifest import (
    MANIFEST_FOLDER,
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    data_file_name,
    read_manifest,
    try_create_manifest,
)
from bowstring.errors import InvalidArgumentError, InvalidDataError, ResourceError
from bowstring.spark.folder import job as folder_job, staging
from bowstring.spark.folder.data_files import DataFileWriter
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.folder.vacuum import vacuum
from bowstring.spark.options import SaveMode, WriteOptions
from tests.spark.needs_spark import needs_spark


def begin_job(folder: Path, mode: SaveMode = "append") -> tuple[FolderJob, ManifestEntry]:
    """A job that writes one file of four bytes, which is staged."""
    job = FolderJob.begin(folder, StructType().add("x", LongType()), mode, WriteOptions())
    assert job is not None
    staging.create_staging_folder(folder, job.id)
    entry = ManifestEntry(data_file_name(job.id, 0, 1), 4, 1, 1)
    (folder / STAGING_FOLDER / job.id / entry.name).write_bytes(b"data")
    return job, entry


def test_batches_of_other_types_leave_no_file_and_no_descriptor(tmp_path: Path) -> None:
    writer = DataFileWriter(
        lambda name: tmp_path / name, lambda index: f"{index}.arrow", ["x"], WriteOptions(), bs.schema({"x": "string"})
    )
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidDataError, match="expected batches of") as caught:
        writer.write(iter([pa.record_batch({"x": [1]})]))
    assert caught.tb is not None  # has the local variables, which are not collected yet
    assert os.listdir("/proc/self/fd") == before
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_ignores_data_keeps_files_that_another_program_wrote_meanwhile(tmp_path: Path) -> None:
    job, entry = begin_job(tmp_path, "ignore")
    (tmp_path / "other.arrow").write_bytes(b"other")
    job.commit([entry])
    assert [path.name for path in tmp_path.iterdir()] == ["other.arrow"]


@needs_spark(4, 1)
def test_rows_are_not_sorted_by_types_without_an_order(tmp_path: Path) -> None:
    from pyspark.sql.types import GeographyType, GeometryType, VariantType

    for column_type in (VariantType(), GeometryType(4326), GeographyType(4326)):
        schema = StructType().add("x", column_type).add("k", LongType())
        with pytest.raises(InvalidArgumentError, match=r"sortBy: column x: found .*, expected a type with an order"):
            FolderJob.begin(tmp_path, schema, "append", WriteOptions(sort_by=("k", "x")))


def let_others_commit_first(times: int) -> Callable[[Path, Manifest], bool]:
    """As `try_create_manifest`, but another job commits first this many times."""
    others = list(range(times))

    def commit_of_another_job(folder: Path, manifest: Manifest) -> bool:
        if others:
            number = others.pop()
            entry = ManifestEntry(data_file_name(f"other{number}", 0, 1), 4, 1, 1)
            assert try_create_manifest(
                folder, (read_manifest(folder) or Manifest(0, {}, ())).replace_all(manifest.schema, [entry])
            )
        return try_create_manifest(folder, manifest)

    return commit_of_another_job


def test_a_commit_is_tried_again_after_others_until_the_last_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_job, "MAX_COMMIT_ATTEMPTS", 3)
    job, entry = begin_job(tmp_path)
    monkeypatch.setattr(folder_job, "try_create_manifest", let_others_commit_first(2))
    job.commit([entry])
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.sequence_number == 3
    assert [each.name for each in manifest.entries][-1] == entry.name


def test_a_commit_that_others_precede_in_each_attempt_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_job, "MAX_COMMIT_ATTEMPTS", 3)
    job, entry = begin_job(tmp_path)
    monkeypatch.setattr(folder_job, "try_create_manifest", let_others_commit_first(3))
    with pytest.raises(ResourceError, match="3 other jobs committed before this one could"):
        job.commit([entry])
    job.discard()
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.sequence_number == 3
    assert entry.name not in [each.name for each in manifest.entries]
    assert [path.name for path in tmp_path.iterdir()] == ["_manifest"]


def test_a_commit_succeeds_though_an_old_manifest_is_corrupt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        job, entry = begin_job(tmp_path, "overwrite")
        job.commit([entry])
    (corrupt,) = (tmp_path / MANIFEST_FOLDER).glob("*1.json")
    corrupt.write_text("{")
    job, entry = begin_job(tmp_path, "overwrite")
    job.commit([entry])
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert [each.name for each in manifest.entries] == [entry.name]
    assert f"{corrupt}: not a manifest" in caplog.text
    with pytest.raises(InvalidDataError, match="not a manifest"):
        vacuum(tmp_path)  # which has nothing to commit


def test_a_commit_succeeds_though_a_store_does_not_remove_the_staging_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(folder: Path, job: str) -> None:
        raise RuntimeError(f"{folder} of job {job}: no reply")

    job, entry = begin_job(tmp_path)
    monkeypatch.setattr(staging, "remove_staging_folder", fail)
    job.commit([entry])
    assert f"{tmp_path}: is committed; files that it no longer needs remain: {tmp_path} of job {job.id}" in caplog.text


def test_the_job_of_another_host_is_not_discarded_by_a_host_whose_clock_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, entry = begin_job(tmp_path)
    file = tmp_path / STAGING_FOLDER / job.id / entry.name
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2 * staging.ORPHAN_AGE_S)
    FolderJob.begin(tmp_path, StructType().add("x", LongType()), "append", WriteOptions())
    assert vacuum(tmp_path) == []
    assert [path.name for path in (tmp_path / STAGING_FOLDER).iterdir()] == [job.id]
    monkeypatch.undo()
    for path in (file, file.parent / staging.OWNER_FILE_NAME, file.parent):
        os.utime(path, (now() - staging.ORPHAN_AGE_S - 1,) * 2)
    FolderJob.begin(tmp_path, StructType().add("x", LongType()), "append", WriteOptions())
    assert not (tmp_path / STAGING_FOLDER).exists()


def test_vacuum_and_commits_do_not_fail_beside_the_commits_of_others(tmp_path: Path) -> None:
    def commit_jobs() -> None:
        for _ in range(30):
            job, entry = begin_job(tmp_path)
            job.commit([entry])

    with ThreadPoolExecutor() as pool:
        committing = [pool.submit(commit_jobs) for _ in range(2)]
        while not all(future.done() for future in committing):
            assert vacuum(tmp_path, older_than_s=0) == []
        for future in committing:
            future.result()
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert len(manifest.entries) == 60
