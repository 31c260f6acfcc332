"""The methods that folders of a file system and of a store share."""

from __future__ import annotations

import errno
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import MissingFileError
from bowstring.io.local_path import Folder, LocalPath, absolute_path, as_folder
from bowstring.io.store_path import StorePath, find_relative_name


@pytest.fixture(params=["local", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "local":
        yield as_folder(tmp_path)
        return
    pytest.importorskip("fsspec")
    path = StorePath(f"memory://{uuid.uuid4().hex}/data")
    yield as_folder(path)
    file_system, name = path.resolve_location()
    if path.exists():
        file_system.rm(name, recursive=True)


def test_a_path_of_a_folder_stays_one(folder: Folder) -> None:
    for path in (folder / "a", (folder / "a").parent, pickle.loads(pickle.dumps(folder))):
        assert type(path) is type(folder)
    assert as_folder(folder) == folder
    assert LocalPath("a") == Path("a")


def test_a_file_is_created_once_and_replaced(folder: Folder) -> None:
    folder.check_conditional_put()
    path = folder / "1.json"
    assert path.create(b"ours")
    assert not path.create(b"theirs")
    assert path.read_bytes() == b"ours"
    before = path.stat()
    path.replace_text("newer")
    assert path.read_text() == "newer"
    assert (path.stat().st_ino, path.stat().st_ctime_ns, path.stat().st_size) != (
        *(before.st_ino, before.st_ctime_ns),
        before.st_size,
    )
    assert [entry.name for entry in folder.scan()] == ["1.json"], "without temporary files"
    path.sync()
    folder.sync()
    assert not path.is_symlink()


def test_a_file_that_exists_is_created_though_its_folder_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(path: LocalPath) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", str(path))  # as some network file systems do for folders

    monkeypatch.setattr(LocalPath, "sync", reject)
    path = LocalPath(tmp_path / "1.json")
    assert path.create(b"ours")
    assert path.read_bytes() == b"ours"
    assert f"{path}: exists, but may be lost if the host fails: Invalid argument" in caplog.text


def test_files_are_listed_below_the_folders_that_are_entered(folder: Folder) -> None:
    for name in ("part", "a=1", "b"):
        assert (folder / name / "x" if name != "part" else folder / name).create(b"")
    assert sorted(entry.name for entry in folder.scan() if entry.is_dir()) == ["a=1", "b"]
    assert sorted(str(find_relative_name(path, folder)) for path in folder.iter_files()) == ["a=1/x", "b/x", "part"]
    entered = folder.iter_files(lambda name: "=" in name)
    assert sorted(str(find_relative_name(path, folder)) for path in entered) == ["a=1/x", "part"]
    assert [url.rpartition("/")[2] for url in (folder / "pa*").glob_urls()] == ["part"]
    with pytest.raises(FileNotFoundError):
        (folder / "none").scan()


def test_a_staged_file_is_at_its_name_once_it_is_placed(folder: Folder) -> None:
    (folder / "_staging").mkdir()
    (folder / "_staging/1").mkdir()
    path = folder.stage("_staging/1", "a=1/part")
    assert path.create(b"data")
    assert list(folder.iter_staged("_staging/1")) == [path]
    folder.place("_staging/1", "a=1/part")
    assert (folder / "a=1/part").read_bytes() == b"data"
    assert [find_relative_name(each, folder) for each in folder.iter_files()] == ["a=1/part"]


def test_folders_of_a_file_system_may_be_missing(tmp_path: Path) -> None:
    folder = LocalPath(tmp_path)
    assert (folder / "a" / "b").find_missing_folders() == (folder / "a" / "b", folder / "a")
    assert StorePath("memory://a/b").find_missing_folders() == ()
    with pytest.raises(MissingFileError, match=r"x: cannot be created: No such file"):
        (folder / "a" / "b" / "x").create(b"")
    with pytest.raises(FileNotFoundError):
        folder.place("_staging/1", "part")


def test_a_relative_path_in_a_working_folder_that_was_removed_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_path("../a") == f"{tmp_path}/../a"  # ".." of a symbolic link is another folder
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    assert absolute_path("/a") == "/a"
    for use in (absolute_path, bs.dataset, lambda path: bs.connect(Path(path))):
        with pytest.raises(MissingFileError, match=r"^a\.arrow: the working folder was removed$") as problem:
            use("a.arrow")
        assert problem.value.filename == "a.arrow"
