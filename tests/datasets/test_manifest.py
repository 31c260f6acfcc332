"""Which files of a folder are its data, and what happens to those of a job that never commits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bowstring.datasets import manifest as manifests
from bowstring.datasets.manifest import (
    MANIFEST_FOLDER,
    MANIFEST_RETENTION_S,
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    QueryBatch,
    data_file_name,
    iter_data_files,
    list_files_without_manifest,
    read_manifest,
    remove_old_manifests,
    try_create_manifest,
)
from bowstring.errors import (
    BowstringError,
    ExistingFileError,
    InvalidArgumentError,
    InvalidDataError,
    IsDirectoryError,
    LimitError,
    NotDirectoryError,
)
from bowstring.io.local_path import as_folder
from bowstring.io.store_path import StorePath, find_relative_name
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.folder import staging

SCHEMA = {"type": "struct", "fields": []}
JOB = "0123456789abcdef" * 2


def manifest(sequence_number: int, *names: str) -> Manifest:
    return Manifest(sequence_number, SCHEMA, tuple(ManifestEntry(name, 8, 1, 1) for name in names))


def test_the_newest_manifest_is_read(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert try_create_manifest(tmp_path, manifest(9, "a"))
    assert try_create_manifest(tmp_path, manifest(10, "a", "b"))
    assert read_manifest(tmp_path) == manifest(10, "a", "b")


def test_a_manifest_number_is_used_once(tmp_path: Path) -> None:
    assert try_create_manifest(tmp_path, manifest(1, "a"))
    assert not try_create_manifest(tmp_path, manifest(1, "b"))
    assert read_manifest(tmp_path) == manifest(1, "a")
    assert [path.name for path in (tmp_path / MANIFEST_FOLDER).iterdir()] == [f"{1:020d}.json"]


def test_concurrent_commits_lose_no_entry(tmp_path: Path) -> None:
    def add(name: str) -> None:
        while True:
            current = read_manifest(tmp_path) or manifest(0)
            if try_create_manifest(
                tmp_path, Manifest(current.sequence_number + 1, SCHEMA, (*current.entries, ManifestEntry(name, 8)))
            ):
                return

    names = [f"f{i}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, names))
    newest = read_manifest(tmp_path)
    assert newest is not None
    assert sorted(entry.name for entry in newest.entries) == sorted(names)
    assert newest.sequence_number == 40


def test_appended_manifests_have_only_what_they_add_and_every_hundredth_is_complete(tmp_path: Path) -> None:
    current = manifest(1, "f0")
    assert try_create_manifest(tmp_path, current)
    for index in range(1, 1001):
        current = current.append([ManifestEntry(f"f{index}", 8)], QueryBatch("query", index))
        assert try_create_manifest(tmp_path, current)
    newest = read_manifest(tmp_path)
    assert newest == current
    assert newest is not None
    assert [entry.name for entry in newest.entries] == [f"f{index}" for index in range(1001)]
    assert (newest.generation, newest.sequence_number) == (1, 1001)
    assert newest.has_batch(QueryBatch("query", 1000))
    assert not newest.has_batch(QueryBatch("query", 1001))
    assert not newest.has_batch(QueryBatch("another", 0))
    sizes = [path.stat().st_size for path in sorted((tmp_path / MANIFEST_FOLDER).iterdir())]
    assert sum(size > 1000 for size in sizes) == 10
    assert sum(sizes) < 11 * 1001 * 70 // 2 + 1001 * 300


def test_files_of_a_manifest_are_read_once_unless_they_were_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    open_path = Path.open

    def open_and_count(path: Path, *arguments: Any) -> Any:
        opened.extend([path.name] if arguments == ("rb",) else [])
        return open_path(path, *arguments)

    monkeypatch.setattr(Path, "open", open_and_count)
    monkeypatch.setattr("bowstring.datasets.manifest._recent_manifests", {})  # a full one is cleared at any time
    current = manifest(1, "f1")
    for number in range(2, 60):
        assert try_create_manifest(tmp_path, current)
        assert read_manifest(tmp_path) == current
        assert opened == [f"{each:020d}.json" for each in range(1, number)]
        current = current.append([ManifestEntry(f"f{number}", 8)])
    (tmp_path / "other").mkdir()
    assert try_create_manifest(tmp_path / "other", manifest(1, "g1"))
    shutil.rmtree(tmp_path / MANIFEST_FOLDER)
    (tmp_path / "other" / MANIFEST_FOLDER).rename(tmp_path / MANIFEST_FOLDER)
    assert read_manifest(tmp_path) == manifest(1, "g1")


def test_replacing_all_files_begins_a_generation_and_keeps_the_batches_of_streams(tmp_path: Path) -> None:
    first = manifest(1, "a").append([ManifestEntry("b", 8)], QueryBatch("query", 7))
    second = first.replace_all(SCHEMA, [ManifestEntry("c", 8)])
    for each in (manifest(1, "a"), first, second):
        assert try_create_manifest(tmp_path, each)
    assert read_manifest(tmp_path) == second
    assert (second.generation, second.has_batch(QueryBatch("query", 7))) == (3, True)


def test_replacing_partitions_keeps_the_files_of_others(tmp_path: Path) -> None:
    partition_schema = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
    names = ("k=1/a", "k=1/b", "k=2/c")
    first = Manifest(0, {}, ()).replace_all(
        SCHEMA, [ManifestEntry(name, 8, 1, 1, "crc32:0123abcd") for name in names], None, partition_schema
    )
    second = first.append([ManifestEntry("k=3/d", 8)])
    third = second.replace_partitions([ManifestEntry("k=1/e", 8), ManifestEntry("k=4/f", 8)], QueryBatch("query", 1))
    for each in (first, second, third):
        assert try_create_manifest(tmp_path, each)
        assert read_manifest(tmp_path) == each
    assert [(entry.name, entry.commit) for entry in third.entries] == [
        *(("k=2/c", 1), ("k=3/d", 2)),
        *(("k=1/e", 3), ("k=4/f", 3)),
    ]
    assert (third.generation, third.base, third.has_batch(QueryBatch("query", 1))) == (3, None, True)


@pytest.mark.parametrize("is_in_store", [False, True])
def test_data_files_are_found_in_partition_folders_only(tmp_path: Path, is_in_store: bool) -> None:
    if is_in_store:
        pytest.importorskip("fsspec")
    folder = StorePath(f"memory://{uuid.uuid4().hex}/data") if is_in_store else as_folder(tmp_path)
    name = data_file_name(JOB, 0, 1, 2)
    for parent in (folder, *(folder / each for each in ("k=1", "k=1/l=2", "_staging", "plain", "_k=1", "=k", ".k=1"))):
        assert (parent / name).create(b"data")
        assert (parent / "other.arrow").create(b"data")
    paths = {find_relative_name(path, folder) for path in iter_data_files(folder)}
    assert paths == {name, f"k=1/{name}", f"k=1/l=2/{name}", f"_k=1/{name}"}


@pytest.mark.parametrize("adds_to", [0, 3, 4, -1, "1"])
def test_a_manifest_that_adds_to_one_that_is_not_complete_or_not_before_it_is_an_error(
    tmp_path: Path, adds_to: object
) -> None:
    first = manifest(1, "a")
    for each in (first, first.append([ManifestEntry("b", 8)])):
        try_create_manifest(tmp_path, each)
    record = {"format": "bowstring-manifest", "version": 2, "adds_to": adds_to, "stream_batches": {}, "files": []}
    (tmp_path / MANIFEST_FOLDER / f"{3:020d}.json").write_text(json.dumps(record))
    with pytest.raises(BowstringError, match="manifest"):
        read_manifest(tmp_path)


def test_manifests_that_a_recent_one_adds_to_are_kept(tmp_path: Path) -> None:
    current = manifest(1, "a")
    try_create_manifest(tmp_path, current)
    for index in range(205):
        current = current.append([ManifestEntry(f"f{index}", 8)])
        try_create_manifest(tmp_path, current)
    long_ago = time.time() - MANIFEST_RETENTION_S - 1
    for path in (tmp_path / MANIFEST_FOLDER).iterdir():
        if int(path.stem) < 150:
            os.utime(path, (long_ago, long_ago))
    remove_old_manifests(tmp_path)
    assert sorted(int(path.stem) for path in (tmp_path / MANIFEST_FOLDER).iterdir()) == list(range(101, 207))
    assert read_manifest(tmp_path) == current


def test_only_old_superseded_manifests_are_removed(tmp_path: Path) -> None:
    for sequence_number in (1, 2, 3):
        try_create_manifest(tmp_path, manifest(sequence_number))
    long_ago = time.time() - MANIFEST_RETENTION_S - 1
    for path in (tmp_path / MANIFEST_FOLDER).iterdir():
        if not path.name.endswith("2.json"):
            os.utime(path, (long_ago, long_ago))
    remove_old_manifests(tmp_path)
    assert sorted(int(path.stem) for path in (tmp_path / MANIFEST_FOLDER).iterdir()) == [2, 3]


@pytest.mark.parametrize("offset_s", [-2 * MANIFEST_RETENTION_S, 2 * MANIFEST_RETENTION_S])
def test_recent_manifests_are_kept_although_the_file_server_has_another_clock(tmp_path: Path, offset_s: float) -> None:
    for sequence_number in (1, 2, 3):
        try_create_manifest(tmp_path, manifest(sequence_number))
        then = time.time() + offset_s
        os.utime(tmp_path / MANIFEST_FOLDER / f"{sequence_number:020d}.json", (then, then))
    remove_old_manifests(tmp_path)
    assert sorted(int(path.stem) for path in (tmp_path / MANIFEST_FOLDER).iterdir()) == [1, 2, 3]


MALFORMED = {
    "cut": b'{"format": "bowstring-man',
    "not an object": b"[]",
    "another format": b'{"format": "delta", "version": 2, "schema": {"type": "struct"}, "files": []}',
    "a later version": b'{"format": "bowstring-manifest", "version": 3, "schema": {"type": "struct"}, "files": []}',
    "no schema": b'{"format": "bowstring-manifest", "version": 2, "schema": 1, "files": []}',
    "deep": b"[" * 100_000,
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_manifest_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST_FOLDER).mkdir()
    (tmp_path / MANIFEST_FOLDER / f"{1:020d}.json").write_bytes(content)
    with pytest.raises(InvalidDataError, match=r"00000000000000000001\.json: "):
        read_manifest(tmp_path)


def test_a_folder_in_place_of_a_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FOLDER / f"{1:020d}.json").mkdir(parents=True)
    with pytest.raises(IsDirectoryError, match=r"00000000000000000001\.json: cannot be read: Is a directory"):
        read_manifest(tmp_path)
    try_create_manifest(tmp_path, manifest(2, data_file_name(JOB, 0, 1)))
    (tmp_path / MANIFEST_FOLDER / f"{'٣' * 20}.json").touch()  # digits, but not ASCII
    assert read_manifest(tmp_path) == manifest(2, data_file_name(JOB, 0, 1))


def test_a_file_in_place_of_the_manifest_or_staging_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / STAGING_FOLDER).touch()
    staging.discard_orphaned_jobs(tmp_path)
    with pytest.raises(NotDirectoryError, match=f"{STAGING_FOLDER}.*: cannot be written: Not a directory"):
        staging.create_staging_folder(tmp_path, JOB)
    (tmp_path / MANIFEST_FOLDER).touch()
    with pytest.raises(NotDirectoryError, match=f"{MANIFEST_FOLDER}: cannot be read: Not a directory"):
        read_manifest(tmp_path)
    with pytest.raises(ExistingFileError, match="cannot be created: File exists"):
        try_create_manifest(tmp_path, manifest(1, data_file_name(JOB, 0, 1)))


@pytest.mark.parametrize("name", ["../secret.arrow", "/etc/passwd", "a/../b", "a//b", "./b", "..", "", "a\0b", 7, None])
def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path, name: object) -> None:
    record = {"format": "bowstring-manifest", "version": 2, "schema": SCHEMA}
    files = [{"name": name, "length_bytes": 8, "rows": 1, "batches": 1}]
    (tmp_path / MANIFEST_FOLDER).mkdir()
    (tmp_path / MANIFEST_FOLDER / f"{1:020d}.json").write_text(json.dumps({**record, "files": files}))
    with pytest.raises(InvalidDataError, match="not the path of a file in the folder"):
        read_manifest(tmp_path)


def test_a_manifest_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_create_manifest(tmp_path, manifest(1, data_file_name(JOB, 0, 1)))
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(LimitError, match="more than 100 bytes"):
        read_manifest(tmp_path)


def test_files_of_an_uncommitted_job_are_not_plain_files(tmp_path: Path) -> None:
    for name in ("b.arrow", "a.feather", "_hidden.arrow", ".hidden.arrow", "notes.txt", data_file_name(JOB, 0, 1)):
        (tmp_path / name).touch()
    assert [path.name for path in list_files_without_manifest(tmp_path)] == [
        "a.feather",
        "b.arrow",
        data_file_name(JOB, 0, 1),
    ]
    staging.create_staging_folder(tmp_path, JOB)
    assert [path.name for path in list_files_without_manifest(tmp_path)] == ["a.feather", "b.arrow"]


def stage_files(folder: Path, owner: ProcessIdentity) -> None:
    staging.create_staging_folder(folder, JOB)
    staged = folder / STAGING_FOLDER / JOB
    (staged / data_file_name(JOB, 0, 1)).touch()
    (folder / data_file_name(JOB, 1, 2)).touch()
    (staged / staging.OWNER_FILE_NAME).write_text(staging.encode_owner_json(owner))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_of_a_dead_driver_are_removed(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stage_files(tmp_path, ProcessIdentity.from_pid(child.pid))
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == ["_staging", data_file_name(JOB, 1, 2)]
    child.communicate(b"\n", timeout=30)
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == []


def test_files_of_a_dead_driver_are_removed_from_partition_folders(tmp_path: Path) -> None:
    stage_files(tmp_path, replace(ProcessIdentity.current(), start_ticks=1))
    (tmp_path / "k=1" / "l=2").mkdir(parents=True)
    (tmp_path / "k=1" / "l=2" / data_file_name(JOB, 1, 2, 3)).touch()
    (tmp_path / "k=1" / data_file_name("f" * 32, 1, 2)).touch()
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == ["k=1"]
    assert names(tmp_path / "k=1") == [data_file_name("f" * 32, 1, 2)]


def test_a_process_with_a_reused_id_is_not_the_driver(tmp_path: Path) -> None:
    own = ProcessIdentity.current()
    stage_files(tmp_path, replace(own, start_ticks=own.start_ticks - 1))
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == []


def test_files_of_a_driver_on_another_host_are_removed_after_a_day_without_changes(tmp_path: Path) -> None:
    stage_files(tmp_path, replace(ProcessIdentity.current(), host="another"))
    staging.discard_orphaned_jobs(tmp_path)
    assert (tmp_path / "_staging" / JOB).is_dir()
    long_ago = time.time() - staging.ORPHAN_AGE_S - 1
    for path in (*(tmp_path / "_staging" / JOB).iterdir(), tmp_path / "_staging" / JOB):
        os.utime(path, (long_ago, long_ago))
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == []


def test_committed_files_of_a_dead_job_stay(tmp_path: Path) -> None:
    stage_files(tmp_path, replace(ProcessIdentity.current(), start_ticks=1))
    try_create_manifest(tmp_path, manifest(1, data_file_name(JOB, 1, 2)))
    staging.discard_orphaned_jobs(tmp_path)
    assert names(tmp_path) == ["_manifest", data_file_name(JOB, 1, 2)]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotDirectoryError, match=r"file/_staging.*cannot be written|file.*cannot be written"):
        staging.create_staging_folder(tmp_path / "file", JOB)


def test_partition_folders_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").touch()
    assert list_files_without_manifest(tmp_path) == [tmp_path / "a.arrow"]
    (tmp_path / "k=1").mkdir()
    with pytest.raises(InvalidArgumentError, match="partition folders such as 'k=1' are not supported here"):
        list_files_without_manifest(tmp_path)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    with pytest.raises(BowstringError, match=f"{tmp_path / 'none'}: cannot be read: No such file"):
        list_files_without_manifest(tmp_path / "none")
