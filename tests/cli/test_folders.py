"""`bowstring validate` and `bowstring vacuum` of folders with a manifest."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.datasets.manifest import (
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    data_file_name,
    read_manifest,
    try_create_manifest,
)
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.folder import staging
from bowstring.spark.folder.vacuum import vacuum

SCHEMA = {"type": "struct", "fields": []}
JOB = "0123456789abcdef" * 2


def write_part(folder: Path, name: str, rows: int = 3) -> ManifestEntry:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    with bs.new_file(path, [("x", "int64")]) as writer:
        writer.write_table(bs.table({"x": list(range(rows))}))
    content = path.read_bytes()
    return ManifestEntry(name, len(content), rows, 1, f"crc32:{zlib.crc32(content):08x}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of four files, two of them in partitions, in two commits."""
    names = [data_file_name(JOB, 0, 0), "k=1/" + data_file_name(JOB, 0, 0, 1), "k=2/" + data_file_name(JOB, 0, 0, 2)]
    first = Manifest(0, {}, ()).replace_all(SCHEMA, [write_part(tmp_path, name) for name in names])
    second = first.append([write_part(tmp_path, data_file_name("f" * 32, 0, 0), 4)])
    assert all(try_create_manifest(tmp_path, each) for each in (first, second))
    return tmp_path


def paths_of(folder: Path) -> list[Path]:
    manifest = read_manifest(folder)
    assert manifest is not None
    return [folder / entry.name for entry in manifest.entries]


def test_a_valid_folder_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: valid: 4 files as in manifest 2, 13 rows\n"


def test_each_missing_damaged_and_unlisted_file_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, longer, damaged, other_rows = paths_of(folder)
    missing.unlink()
    longer.write_bytes(longer.read_bytes() + bytes(8))
    content = bytearray(damaged.read_bytes())
    content[content.rindex((2).to_bytes(8, "little"))] = 7  # a value, which is valid
    damaged.write_bytes(content)
    unlisted = folder / "k=1" / data_file_name("e" * 32, 0, 0)
    unlisted.touch()
    manifest = read_manifest(folder)
    assert manifest is not None
    entries = [*manifest.entries[:3], write_part(folder, other_rows.name, 5)]
    wrong = ManifestEntry(entries[3].name, entries[3].length_bytes, 4, 1, entries[3].checksum)
    assert try_create_manifest(folder, manifest.replace_all(SCHEMA, [*entries[:3], wrong]))
    assert main(["validate", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{missing}: is missing, though the manifest lists it"
    assert lines[1].startswith(f"{longer}: expected ")
    assert f"{longer.stat().st_size - 8} bytes, as in the manifest, found {longer.stat().st_size}" in lines[1]
    assert lines[2].startswith(f"{damaged}: expected the checksum crc32:")
    assert lines[3] == f"{other_rows}: expected 4 rows in 1 batch, as in the manifest, found 5 rows in 1 batch"
    assert lines[4:] == [f"{unlisted}: is not listed in manifest 3 (warning)"]
    assert main(["validate", "--json", str(folder)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["valid"], report["files"], report["fault_count"], len(report["warnings"])) == (False, 4, 4, 1)
    assert [each["source"] for each in report["reports"]] == list(map(str, (missing, longer, damaged, other_rows)))
    assert main(["validate", "--quick", str(folder)]) == 1
    assert "checksum" not in capsys.readouterr().out


def make_old(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (0, 0))


def test_vacuum_removes_old_files_that_no_manifest_lists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = paths_of(folder)
    unlisted = [folder / data_file_name("e" * 32, 0, 0), folder / "k=3" / data_file_name("e" * 32, 0, 1)]
    foreign = folder / "notes.arrow"
    unlisted[1].parent.mkdir()
    for path in (*unlisted, foreign):
        path.touch()
    running = data_file_name("d" * 32, 0, 0)
    staging.create_staging_folder(folder, "d" * 32, owner=ProcessIdentity.current())
    (folder / running).touch()  # moved, but not committed yet
    dead_owner = ProcessIdentity(ProcessIdentity.current().pid, 1, ProcessIdentity.current().host)
    dead = folder / STAGING_FOLDER / ("c" * 32)
    staging.create_staging_folder(folder, dead.name, owner=dead_owner)
    (dead / data_file_name("c" * 32, 0, 0)).touch()
    assert [path.name for path in vacuum(folder)] == ["owner.json", data_file_name("c" * 32, 0, 0)]
    assert not dead.exists()
    assert all(path.exists() for path in (*listed, *unlisted, foreign, folder / running))
    time.sleep(0.01)
    assert main(["vacuum", "--older-than", "0", "--dry-run", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == list(map(str, sorted(unlisted)))
    assert all(path.exists() for path in unlisted)
    assert main(["vacuum", "--older-than", "0", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == list(map(str, sorted(unlisted)))
    assert not any(path.exists() for path in (*unlisted, unlisted[1].parent, dead))
    assert all(path.exists() for path in (*listed, foreign, folder / running))
    assert main(["validate", str(folder)]) == 0


def test_vacuum_keeps_the_files_of_readers_of_recent_manifests(folder: Path) -> None:
    manifest, superseded = read_manifest(folder), paths_of(folder)
    assert manifest is not None
    assert try_create_manifest(folder, manifest.replace_all(SCHEMA, [manifest.entries[0]]))
    time.sleep(0.01)
    assert vacuum(folder, older_than_s=0) == []
    make_old(*(folder / "_manifest").iterdir())
    (folder / "_manifest" / f"{3:020d}.json").touch()
    assert vacuum(folder, older_than_s=0) == []  # and removes the old manifests
    assert vacuum(folder, older_than_s=0) == sorted(superseded[1:])


def test_vacuum_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vacuum", str(tmp_path / "none")]) == 1
    assert "there is no such folder" in capsys.readouterr().err
