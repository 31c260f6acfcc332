"""Unnamed files: writers that spill to them, and regions of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bowstring.errors import ClosedError, InvalidDataError, ResourceError, TruncatedError
from bowstring.memory.region import Region
from bowstring.memory.unnamed_file import find_folders, is_in_memory, open_unnamed_file, temporary_folder
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.small_disk import run_on_4_mb, run_on_read_only_files

SPILL_ON_4_MB = """
import os, sys
from bowstring.errors import ResourceError
from bowstring.memory.region import Region
folder = sys.argv[1]
before = len(os.listdir("/proc/self/fd"))
with Region.create_writer("partition") as writer:
    writer.write(b"x" * (3 << 20))
    writer.spill([folder])
    try:
        writer.write(b"x" * (2 << 20))
    except ResourceError as error:
        print(error)
with Region.create_writer("partition") as writer:
    writer.write(b"y" * (5 << 20))
    try:
        writer.spill([folder])
    except ResourceError as error:
        print(error)
    assert writer.spill_folder is None
    with writer.seal() as region:
        assert region.is_sealed and bytes(region.memory) == b"y" * (5 << 20)
assert len(os.listdir("/proc/self/fd")) == before
assert os.statvfs(folder).f_bfree > 1000 and not os.listdir(folder)
"""


@pytest.fixture(params=["O_TMPFILE", "a file without a name later", "tmpfs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tmpfs":
        if not is_in_memory("/dev/shm"):
            pytest.skip("requires a file system in memory")
        return "/dev/shm"
    if request.param != "O_TMPFILE":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(tmp_path)


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 5_000_001])
def test_a_writer_continues_in_an_unnamed_file(folder: str, size_bytes: int) -> None:
    names = os.listdir(folder)
    with Region.create_writer("partition") as writer:
        writer.write(b"m" * size_bytes)
        number = writer.fileno()
        writer.spill([folder])
        assert (writer.fileno(), writer.spill_folder) == (number, folder)
        os.write(writer.fileno(), b"in the file")
        with writer.seal() as region:
            assert writer.closed
            assert os.listdir(folder) == names
            assert (region.is_file, region.is_unnamed_file, region.is_sealed) == (True, True, False)
            assert bytes(region.memory) == b"m" * size_bytes + b"in the file"
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(region.descriptor, b"x")


def test_the_memory_of_a_writer_that_spills_is_freed(tmp_path: Path) -> None:
    with Region.create_writer("partition") as writer:
        writer.write(b"m" * 1000)
        writer.spill([str(tmp_path)])
        open_files = os.listdir("/proc/self/fd")
        links = [os.readlink(f"/proc/self/fd/{name}") for name in open_files if os.path.exists(f"/proc/self/fd/{name}")]
        assert not any("bowstring:partition" in link for link in links)


def test_a_receiver_needs_no_descriptor_of_an_unnamed_file(tmp_path: Path) -> None:
    with Region.create_writer("partition") as writer:
        writer.write(b"content")
        writer.spill([str(tmp_path)])
        with writer.seal() as region:
            received = Region.attach(os.dup(region.descriptor), 7, accept_files=True)
            with pytest.raises(InvalidDataError, match="received an ordinary file"):
                Region.attach(os.dup(region.descriptor), 7)
            with pytest.raises(TruncatedError):
                Region.attach(os.dup(region.descriptor), 8, accept_files=True)
    received.check_backing_file()
    received.release_descriptor()
    assert not received.has_descriptor
    received.check_backing_file()
    destination = bytearray(3)
    received.copy_into(4, memoryview(destination))
    assert bytes(received.memory) + destination == b"contentent"
    received.close()
    with pytest.raises(ClosedError):
        received.check_backing_file()


def test_files_with_a_name_keep_their_descriptor(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file, Region.from_file(file.fileno()) as region:
        assert (region.is_file, region.is_unnamed_file) == (True, False)
        region.release_descriptor()
        assert region.has_descriptor


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    process = run_on_4_mb(tmp_path, "-c", SPILL_ON_4_MB, tmp_path)
    assert process.returncode == 0, process.stderr
    first, second = process.stdout.splitlines()
    assert "No space left on device" in first
    assert second == f"can't spill to {tmp_path} 'partition': No space left on device"


def test_folders_without_permission_or_existence_are_skipped(tmp_path: Path) -> None:
    descriptor, folder = open_unnamed_file([str(tmp_path / "missing"), "/proc", str(tmp_path)])
    os.close(descriptor)
    assert folder == str(tmp_path)
    with pytest.raises(ResourceError, match=r"can't create a file in a folder of .*missing'\]: No such file"):
        open_unnamed_file([str(tmp_path / "missing")])


def test_a_folder_whose_files_have_another_owner_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with assert_descriptors_closed(), pytest.raises(ResourceError, match="Operation not supported"):
        open_unnamed_file([str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_folders_on_a_disk_come_before_those_in_memory(tmp_path: Path) -> None:
    if not is_in_memory("/dev/shm") or is_in_memory(str(tmp_path)):
        pytest.skip("requires a file system in memory, and one on a disk")
    assert find_folders(["/dev/shm", str(tmp_path), "/missing"]) == [str(tmp_path)]
    others = find_folders()
    assert set(others) == {temporary_folder(), "/var/tmp"}
    if not is_in_memory(others[0]):
        assert find_folders(["/dev/shm"]) == find_folders(["/missing"]) == others


FIND_FOLDERS = """
from bowstring.errors import ResourceError
from bowstring.memory.unnamed_file import find_folders, open_unnamed_file, temporary_folder
print(find_folders(), find_folders(["/dev/shm", "/home"]))
for find in (temporary_folder, lambda: open_unnamed_file([])):
    try:
        find()
    except ResourceError as error:
        print(error)
"""


def test_without_a_writable_folder_for_temporary_files_the_preferred_ones_remain() -> None:
    process = run_on_read_only_files("-c", FIND_FOLDERS)
    assert process.returncode == 0, process.stderr
    folders, *errors = process.stdout.splitlines()
    assert folders == "[] ['/dev/shm']"
    assert len(errors) == 2
    for error in errors:
        assert "no folder for temporary files is writable" in error
        assert error.endswith("set TMPDIR")


def test_an_unnamed_file_ends_with_its_process(tmp_path: Path) -> None:
    code = "import os, sys; from bowstring.memory.region import Region; writer = Region.create_writer(); "
    code += "writer.write(bytes(1000)); writer.spill([sys.argv[1]]); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    assert not list(tmp_path.iterdir())
