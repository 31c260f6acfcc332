"""Commits in real S3 servers, without Spark: conflicts, refusals, and what is read."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import bowstring
import bowstring as bs
from bowstring.datasets.manifest import data_file_name, read_manifest
from bowstring.errors import UnmetRequirementError
from bowstring.io.store_path import StorePath
from bowstring.sharing.processes import ProcessIdentity
from tests.spark.s3_server import BUCKET, S3Server, list_objects

pytest.importorskip("pyspark")
pytest.importorskip("s3fs")
pytest.importorskip("moto")

import pyarrow as pa

from bowstring.spark.arrow_files import read_batches, write_batches
from bowstring.spark.folder import staging
from bowstring.spark.folder.data_files import DataFileWriter
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.options import WriteOptions


def commit_file(folder: StorePath, attempts: int = 1) -> str:
    """Write a file of two rows as so many attempts of a task do, and commit that of the last one; return its name."""
    from pyspark.sql.types import LongType, StructType

    job = FolderJob.begin(folder, StructType().add("id", LongType()), "append", WriteOptions())
    assert job is not None
    staging.create_staging_folder(folder, job.id, owner=ProcessIdentity.current())
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64())})
    for attempt in range(attempts):
        name_file = partial(data_file_name, job.id, 0, attempt)
        schema = bs.schema({"id": "int64"})
        files = DataFileWriter(lambda name: folder / name, name_file, ["id"], WriteOptions(), schema)
        entries = files.write(iter([batch]))
    job.commit(entries)
    return entries[0].name


def test_jobs_that_commit_at_once_try_again_after_a_conflict(
    store_folder: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflicts = []
    create = StorePath.create

    def observed_create(path: StorePath, content: bytes) -> bool:
        is_created = create(path, content)
        if not is_created and path.parent.name == "_manifest":
            conflicts.append(path.name)
        return is_created

    monkeypatch.setattr(StorePath, "create", observed_create)
    with ThreadPoolExecutor(3) as threads:
        names = list(threads.map(lambda _: [commit_file(store_folder) for _ in range(2)], range(3)))
    manifest = read_manifest(store_folder)
    assert manifest is not None
    assert manifest.sequence_number == 6
    assert {entry.name for entry in manifest.entries} == {name for each in names for name in each}
    assert conflicts, "otherwise the jobs ran one after the other"
    assert not [name for name in list_objects(store_folder) if name.startswith("_staging")]


def test_a_commit_leaves_no_file_of_attempts_that_it_does_not_list(store_folder: StorePath) -> None:
    other = commit_file(store_folder)
    name = commit_file(store_folder, attempts=3)
    assert sorted(each for each in list_objects(store_folder) if each.endswith(".arrow")) == sorted([other, name])


def test_a_server_that_ignores_the_condition_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    rclone = shutil.which("rclone", path=str(Path(sys.executable).parent))
    if rclone is None:
        pytest.skip("rclone, whose S3 server ignores If-None-Match, is not installed")
    (tmp_path / BUCKET).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    keys = ("--auth-key", "test-key,test-secret")
    command = [rclone, "serve", "s3", str(tmp_path), "--addr", f"127.0.0.1:{port}", *keys]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_listening(port)
            folder = StorePath(f"s3://{BUCKET}/data", S3Server(f"http://127.0.0.1:{port}").storage_options)
            with pytest.raises(UnmetRequirementError, match=f"^s3://{BUCKET}/data: this store has no conditional put"):
                commit_file(folder)
            assert list_objects(folder) == []
        finally:
            process.kill()


def wait_until_listening(port: int) -> None:
    deadline_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        else:
            return


def test_of_a_file_only_the_needed_bytes_are_read(s3_server: S3Server, store_folder: StorePath) -> None:
    columns = {f"c{index}": pa.array(range(index, index + 200_000), pa.int64()) for index in range(10)}
    path = store_folder / "wide.arrow"
    schema = bs.schema(dict.fromkeys(columns, "int64"))
    write_batches(path, iter([pa.record_batch(columns)]), schema, WriteOptions())
    before = s3_server.count_sent_bytes()
    batches = [batch.batch for batch in read_batches(path, None, ["c7"])]
    assert [batch.column("c7").to_pylist()[:2] for batch in batches if batch is not None] == [[7, 8]]
    assert s3_server.count_sent_bytes() - before < path.stat().st_size / 4


def test_a_data_set_has_the_files_of_a_folder(
    s3_server: S3Server, store_folder: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_file(store_folder)
    commit_file(store_folder)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    described = bowstring.dataset(store_folder.url)
    assert (len(described.parts), described.num_rows) == (2, 4)
    assert described.read_all().column("id").to_pylist() == [1, 2, 1, 2]
