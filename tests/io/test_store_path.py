from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from bowstring.errors import MissingFileError, ResourceError, UnmetRequirementError
from bowstring.io import store_path
from bowstring.io.store_path import MAX_CREATE_ATTEMPTS, StorePath, find_relative_name, read_files

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def folder() -> Iterator[StorePath]:
    path = StorePath(f"memory://{uuid.uuid4().hex}/data/")
    yield path
    file_system, _ = path.resolve_location()
    if path.parent.exists():
        file_system.rm(path.parent.resolve_location()[1], recursive=True)


def test_a_path_is_joined_and_split_as_pathlib_does(folder: StorePath) -> None:
    path = folder / "part.arrow"
    assert (path.name, path.suffix, path.parent) == ("part.arrow", ".arrow", folder)
    assert path.url == f"{folder.url}/part.arrow"
    assert copy.copy(path) == path == pickle.loads(pickle.dumps(path))


def test_a_folder_exists_with_its_objects(folder: StorePath) -> None:
    assert not folder.exists()
    with pytest.raises(FileNotFoundError):
        list(folder.iterdir())
    (folder / "a" / "b.txt").replace_text("ä")
    assert folder.is_dir()
    assert (folder / "a").is_dir()
    file = folder / "a" / "b.txt"
    assert file.is_file()
    assert not file.is_dir()
    assert file.read_text() == "ä"
    assert file.stat().st_size == 2
    assert 0 < file.stat().st_mtime_ns == int(file.stat().st_mtime * 1e9)
    assert [path.url for path in folder.iterdir()] == [f"{folder.url}/a"]
    assert find_relative_name(file, folder) == "a/b.txt"
    assert find_relative_name(folder, folder) == "."
    assert find_relative_name(folder, file) is None
    assert find_relative_name(folder / "ab", folder / "a") is None
    assert [parent.url for parent in file.parents][:2] == [f"{folder.url}/a", folder.url]
    assert file.parents[-1].url == folder.parent.url
    file.unlink()
    file.unlink(missing_ok=True)
    with pytest.raises(MissingFileError, match=r"b\.txt: there is no such file"):
        file.unlink()


def test_objects_are_listed_at_any_depth(folder: StorePath) -> None:
    for name in ("part-1", "a=1/b=2/part-2", "other"):
        (folder / name).replace_text("ab")
    files = list(folder.iter_files())
    assert [find_relative_name(path, folder) for path in files] == ["a=1/b=2/part-2", "other", "part-1"]
    assert [path.stat().st_size for path in files] == [2, 2, 2]


def test_an_object_is_created_once(folder: StorePath) -> None:
    path = folder / "1.json"
    assert path.create(b"ours")
    assert not path.create(b"theirs")
    assert path.create(b"ours"), "a request repeated after a lost reply"
    assert path.read_bytes() == b"ours"
    folder.check_conditional_put()
    assert [path.name for path in folder.iterdir()] == ["1.json"]


@pytest.mark.parametrize(
    ("num_conflicts", "is_created"), [(MAX_CREATE_ATTEMPTS - 1, True), (MAX_CREATE_ATTEMPTS, False)]
)
def test_a_put_that_conflicts_with_others_is_repeated(
    folder: StorePath, monkeypatch: pytest.MonkeyPatch, num_conflicts: int, is_created: bool
) -> None:
    class ConflictError(Exception):
        response: ClassVar = {"Error": {"Code": "ConditionalRequestConflict"}}

    conflicts = iter([ConflictError()] * num_conflicts)
    file_system, _ = folder.resolve_location()
    put = file_system.pipe_file

    def conflicting_put(*arguments: Any, **options: Any) -> None:
        for conflict in conflicts:
            raise OSError from conflict  # as s3fs, whose error has the server's reply as its cause
        put(*arguments, **options)

    monkeypatch.setattr(
        type(file_system), "pipe_file", lambda _, *arguments, **options: conflicting_put(*arguments, **options)
    )
    monkeypatch.setattr(store_path, "CREATE_RETRY_S", 0)
    if is_created:
        assert (folder / "1.json").create(b"ours")
    else:
        with pytest.raises(ResourceError, match=f"conflicted with {MAX_CREATE_ATTEMPTS} attempts"):
            (folder / "1.json").create(b"ours")


def test_the_beginnings_of_files_are_read_together(folder: StorePath) -> None:
    paths = [folder / "a", folder / "b"]
    for path in paths:
        path.replace_text(path.name * 3)
    assert read_files(paths, 2) == [b"aa", b"bb"]
    with pytest.raises(FileNotFoundError):
        read_files([*paths, folder / "c"], 2)


def test_a_file_system_without_conditional_put_is_refused() -> None:
    folder = StorePath("http://user:secret@127.0.0.1:9/data")
    pytest.importorskip("aiohttp")
    with pytest.raises(
        UnmetRequirementError, match=r"^http://…@127.0.0.1:9/data: this store has no conditional put"
    ) as e:
        folder.check_conditional_put()
    assert "secret" not in str(e.value)
    assert "secret" not in repr(StorePath("s3://bucket", {"secret": "secret"}))
