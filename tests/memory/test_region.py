"""Shared memory regions: read-only, permanent while they are used, and released with their last holder."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bowstring.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    MissingFileError,
    NotFoundError,
    ResourceError,
    TruncatedError,
)
from bowstring.memory import available_memory, descriptors
from bowstring.memory.region import Region, RegionWriter
from bowstring_testing.descriptors import assert_descriptors_closed

F_ADD_SEALS = 1033
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE, SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16
ALLOW_SEALING = 2


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with assert_descriptors_closed():
        yield
        gc.collect()


def new_memfd(content: bytes = b"content", seals: int = 0, size: int | None = None) -> int:
    descriptor = os.memfd_create("test", ALLOW_SEALING)
    os.write(descriptor, content)
    if size is not None:
        os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor


# Writing


def test_a_writer_grows_and_becomes_a_region() -> None:
    with Region.create_writer("grown") as writer:
        assert writer.write(b"abc") == 3
        assert writer.writelines([b"de", b"", memoryview(b"f"), bytearray(b"g")]) == 4
        assert writer.tell() == 7
        with writer.seal() as region:
            assert (region.size_bytes, len(region), bytes(region.memory)) == (7, 7, b"abcdefg")
            assert region.is_sealed
            assert "grown" in repr(region)
        assert writer.closed
        with pytest.raises(ClosedError, match="grown"):
            writer.write(b"more")


def test_thousands_of_parts_of_any_shape_are_written_in_order() -> None:
    parts: list[bytes | memoryview] = [bytes([n % 256]) * (n % 7) for n in range(5000)]
    parts.append(np.arange(1000, dtype="<u8").data)
    with Region.copy_of(parts) as region:
        assert bytes(region.memory) == b"".join(bytes(part) for part in parts)


def test_a_writer_seals_what_was_written_through_its_descriptor() -> None:
    with Region.create_writer() as writer:
        os.writev(writer.fileno(), [b"raw ", b"bytes"])
        with writer.seal() as region:
            assert bytes(region.memory) == b"raw bytes"


def test_memory_whose_permissions_can_t_be_set_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", deny)
    with assert_descriptors_closed(), pytest.raises(ResourceError, match="can't create 'part'"):
        RegionWriter("part")


def test_memory_of_a_known_size_is_written_in_place() -> None:
    with Region.create_builder(1000) as builder:
        builder.memory[:5] = b"first"
        np.frombuffer(builder.memory, np.uint8)[-1] = 255
        with builder.seal() as region:
            assert bytes(region.view(0, 6)) == b"first\0"
            assert region.memory[999] == 255
        with pytest.raises(ClosedError):
            builder.memory[0] = 1


@pytest.mark.parametrize("keep", [lambda memory: memory[:5], lambda memory: np.frombuffer(memory, np.uint8)])
def test_memory_can_t_be_sealed_while_a_writable_view_is_held(keep: object) -> None:
    with Region.create_builder(100) as builder:
        view = keep(builder.memory)  # type: ignore[operator]
        with pytest.raises(InvalidArgumentError, match="writable views"):
            builder.seal()
        view[:5] = memoryview(b"still") if isinstance(view, memoryview) else 7
        del view
        builder.seal().close()


def test_memory_that_is_busy_is_sealed_soon_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to seal memory while it is mapped for writing, and while it uses the pages itself."""
    with RegionWriter("busy") as writer:
        writer.write(b"content")
        with mmap.mmap(writer.fileno(), 7), pytest.raises(InvalidArgumentError, match="mapped for writing"):
            writer.seal()
        mapping = mmap.mmap(writer.fileno(), 7)
        monkeypatch.setattr("time.sleep", lambda _: mapping.close())
        with writer.seal() as region:
            assert bytes(region.memory) == b"content"


def test_memory_that_failed_to_be_sealed_can_be_written_and_sealed_later() -> None:
    with Region.create_builder(100) as builder:
        builder.memory[:5] = b"first"
        path = Path(f"/proc/self/fd/{builder._descriptor}")
        with (
            path.open("r+b") as other,
            mmap.mmap(other.fileno(), 100),
            pytest.raises(InvalidArgumentError, match="mapped"),
        ):
            builder.seal()
        assert bytes(builder.memory[:5]) == b"first"
        builder.memory[5:11] = b"second"
        with builder.seal() as region:
            assert bytes(region.memory[:11]) == b"firstsecond"


def test_memory_can_be_sealed_after_a_lack_of_descriptors() -> None:
    with Region.create_builder(100) as builder:
        builder.memory[:5] = b"first"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            for attempt in (builder.seal, builder.seal):
                with pytest.raises(ResourceError, match="region"):
                    attempt()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with builder.seal() as region:
            assert bytes(region.memory[:5]) == b"first"


def test_an_empty_region_is_valid() -> None:
    with Region.create_builder(0) as builder, builder.seal() as region:
        assert bytes(region.memory) == b""
        with Region.attach(os.dup(region.descriptor), 0) as received:
            assert bytes(received.view(0, 0)) == b""


def test_a_region_that_is_never_sealed_is_discarded() -> None:
    with RegionWriter("thrown away") as writer:
        writer.write(b"x")
        path = Path(f"/proc/self/fd/{writer.fileno()}")
        assert "thrown away" in str(path.readlink())
    writer.close()
    assert not path.is_symlink()


# Read-only memory


def test_a_region_cannot_be_written_even_by_its_creator() -> None:
    with Region.copy_of([b"sealed"]) as region:
        with pytest.raises(TypeError):
            region.memory[0] = 1
        assert not np.frombuffer(region.memory, np.uint8).flags.writeable
        for flags in (os.O_RDWR, os.O_WRONLY):
            descriptor = os.open(f"/proc/self/fd/{region.descriptor}", flags)
            try:
                with pytest.raises(PermissionError):
                    os.pwrite(descriptor, b"x", 0)
                with pytest.raises(PermissionError):
                    mmap.mmap(descriptor, 6)
                with pytest.raises(PermissionError):
                    os.ftruncate(descriptor, 0)
                with pytest.raises(PermissionError):
                    os.ftruncate(descriptor, 100)
                with pytest.raises(PermissionError):
                    fcntl.fcntl(descriptor, F_ADD_SEALS, 0)
            finally:
                os.close(descriptor)
        with pytest.raises(PermissionError):
            mmap.mmap(region.descriptor, 6)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(region.descriptor, b"x")
        assert bytes(region.memory) == b"sealed"


# Views and holders


def test_views_outlive_the_region_and_the_last_one_releases_the_memory() -> None:
    region = Region.copy_of([b"x" * 100], "goes with its last holder")
    view = region.view(10, 5)
    region.close()
    region.close()
    assert region.is_closed
    assert bytes(view) == b"xxxxx"
    assert region.name in Path("/proc/self/maps").read_text()
    del view
    gc.collect()
    assert region.name not in Path("/proc/self/maps").read_text()
    with pytest.raises(ClosedError):
        _ = region.memory
    with pytest.raises(ClosedError):
        _ = region.descriptor


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 101), (100, 1), (2**70, 0), (0, -1)])
def test_a_view_must_be_inside_its_region(offset: int, length: int) -> None:
    with Region.copy_of([b"x" * 100]) as region, pytest.raises(LimitError, match="100 bytes"):
        region.view(offset, length)


def test_a_duplicate_keeps_the_memory_of_a_closed_region() -> None:
    region = Region.copy_of([b"shared"])
    with region.duplicate() as other:
        region.close()
        assert bytes(other.memory) == b"shared"


def test_a_view_of_a_closed_region_keeps_no_descriptor() -> None:
    with assert_descriptors_closed():
        views = []
        for number in range(20):
            with Region.copy_of([bytes([number]) * 5000]) as region:
                views.append(region.view(100, 2))
    assert [bytes(view) for view in views] == [bytes([number]) * 2 for number in range(20)]


def test_a_consumer_can_release_the_descriptor() -> None:
    with Region.copy_of([b"mapped"]) as region:
        region.release_descriptor()
        assert bytes(region.memory) == b"mapped"
        with pytest.raises(ClosedError):
            _ = region.descriptor


# Received regions


def test_a_received_region_is_mapped_for_reading() -> None:
    with Region.copy_of([b"hello"]) as region, Region.attach(os.dup(region.descriptor), 5) as received:
        assert bytes(received.memory) == b"hello"
        assert received.memory.readonly
        assert received.is_sealed


@pytest.mark.parametrize(
    "seals", [0, SEAL_WRITE, SEAL_SHRINK, SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE, SEAL_GROW | SEAL_WRITE]
)
@pytest.mark.parametrize("accept_files", [False, True])
def test_memory_that_its_creator_can_still_change_is_rejected(seals: int, accept_files: bool) -> None:
    with pytest.raises(InvalidDataError, match="still write or shrink"):
        Region.attach(new_memfd(seals=seals), accept_files=accept_files)


@pytest.mark.parametrize("promised", [0, 6, 8, 2**60])
def test_a_size_that_differs_from_the_declared_one_is_rejected(promised: int) -> None:
    with pytest.raises(TruncatedError, match=f"{promised} bytes, received 7"):
        Region.attach(new_memfd(seals=SEAL_SHRINK | SEAL_WRITE), promised)


def test_sealed_memory_with_holes_is_rejected() -> None:
    with pytest.raises(InvalidDataError, match="holes"):
        Region.attach(new_memfd(seals=SEAL_SHRINK | SEAL_WRITE, size=1 << 40))


def test_memory_whose_pages_were_removed_immediately_before_it_was_sealed_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    descriptor = new_memfd()

    def read_seals_of_another_process(received: int, status: os.stat_result) -> int | None:
        os.ftruncate(descriptor, 0)
        os.ftruncate(descriptor, len(b"content"))
        fcntl.fcntl(descriptor, F_ADD_SEALS, SEAL_SHRINK | SEAL_WRITE)
        return read_seals(received, status)

    read_seals = descriptors.read_seals
    monkeypatch.setattr(descriptors, "read_seals", read_seals_of_another_process)
    with pytest.raises(InvalidDataError, match="holes"):
        Region.attach(descriptor)


def test_pipes_sockets_devices_and_directories_are_rejected(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(InvalidDataError, match="a pipe"):
        Region.attach(reader, accept_files=True)
    with pytest.raises(InvalidDataError, match="a socket"):
        Region.attach(socket.socket(socket.AF_UNIX).detach(), accept_files=True)
    for path, kind in ((Path("/dev/zero"), "a device"), (tmp_path, "a directory")):
        with pytest.raises(InvalidDataError, match=kind):
            Region.attach(os.open(path, os.O_RDONLY), accept_files=True)


# Files


def test_a_file_becomes_a_region_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"in a file")
    with Region.from_file(path) as region, Region.attach(os.dup(region.descriptor), 9, accept_files=True) as received:
        assert (bytes(region.memory), region.is_sealed) == (b"in a file", False)
        assert bytes(received.memory) == b"in a file"
        received.release_descriptor()
        received.check_backing_file()
        assert str(path) in Path("/proc/self/maps").read_text()
    with path.open("rb") as file, Region.from_file(file.fileno()) as region:
        assert bytes(region.memory) == b"in a file"


def test_a_file_is_rejected_unless_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(InvalidDataError, match="an ordinary file"):
        Region.attach(os.open(tmp_path / "file", os.O_RDONLY))


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="requires a writable /dev/shm")
def test_a_file_on_tmpfs_is_accepted_as_a_file() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(b"in memory, with a name")
        file.flush()
        with Region.attach(os.dup(file.fileno()), 22, accept_files=True) as region:
            assert (bytes(region.memory), region.is_sealed) == (b"in memory, with a name", False)
        with pytest.raises(InvalidDataError, match="received an ordinary file"):
            Region.attach(os.dup(file.fileno()), 22)


def test_a_file_that_is_truncated_while_it_is_copied_is_an_error(tmp_path: Path) -> None:
    path, content = tmp_path / "file", bytes(range(256)) * (10 << 12)  # several pieces
    path.write_bytes(content)
    with Region.attach(os.open(path, os.O_RDONLY), len(content), accept_files=True) as region:
        copy = bytearray(len(content) - 3)
        region.copy_into(3, memoryview(copy))
        assert copy == content[3:]
        with pytest.raises(LimitError):
            region.copy_into(4, memoryview(copy))
        os.truncate(path, 5000)
        with pytest.raises(TruncatedError, match=r"expected 10485757 bytes at byte 3, found 4997"):  # not SIGBUS
            region.copy_into(3, memoryview(copy))


def test_a_sealed_region_is_copied_without_its_descriptor() -> None:
    with Region.copy_of([b"0123456789"]) as region:
        region.release_descriptor()
        copy = bytearray(4)
        region.copy_into(2, memoryview(copy))
        assert copy == b"2345"
        with pytest.raises(LimitError):
            region.copy_into(7, memoryview(copy))


def test_a_truncated_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with Region.from_file(path) as region:
        region.check_backing_file()
        os.truncate(path, 5000)
        with pytest.raises(TruncatedError, match="expected 10000 bytes, its file now has 5000"):
            region.check_backing_file()
        with pytest.raises(TruncatedError, match="expected 10000 bytes"):
            _ = region.memory


def test_a_file_with_a_released_descriptor_is_reopened_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    monkeypatch.chdir(tmp_path)
    with Region.from_file("file") as region:
        monkeypatch.chdir("/")
        region.release_descriptor()
        with pytest.raises(ClosedError):
            _ = region.descriptor
        region.check_backing_file()
        with region.duplicate() as other:
            assert bytes(other.memory) == bytes(region.memory) == b"content"
        os.truncate(path, 3)
        with pytest.raises(TruncatedError, match="7 bytes"):
            region.check_backing_file()
    with pytest.raises(ClosedError):
        region.duplicate()


def test_a_replaced_or_removed_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with Region.from_file(path) as region:
        region.release_descriptor()
        (tmp_path / "new").write_bytes(b"another")
        (tmp_path / "new").rename(path)
        for attempt in (region.check_backing_file, region.duplicate):
            with pytest.raises(InvalidDataError, match="replaced"):
                attempt()
        path.unlink()
        for attempt in (region.check_backing_file, region.duplicate):
            with pytest.raises(MissingFileError, match="opened again: No such file"):
                attempt()
        assert bytes(region.memory) == b"content"


def test_only_regular_files_are_accepted(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="a directory"):
        Region.from_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgumentError, match="a pipe"):
        Region.from_file(tmp_path / "pipe")
    with pytest.raises(NotFoundError, match="missing: there is no such file"):
        Region.from_file(tmp_path / "missing")
    with pytest.raises(InvalidArgumentError, match="not a valid path"):
        Region.from_file("a\0b")
    with pytest.raises(NotFoundError, match="Not a directory"):
        Region.from_file(tmp_path / "pipe" / "file")


# Shortage


def test_a_request_beyond_available_memory_is_a_resource_error() -> None:
    with pytest.raises(ResourceError, match="available") as caught:
        Region.create_builder(1 << 50)
    assert caught.value.errno == errno.ENOMEM


def test_a_writer_stops_before_memory_is_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = bytes(1 << 20)
    with Region.create_writer() as writer:
        monkeypatch.setattr(available_memory, "available_memory_bytes", lambda: (100 << 20) - writer.tell())
        with pytest.raises(ResourceError, match=r"1048576 bytes requested, [0-9]{1,6} available"):
            for _ in range(150):
                writer.write(chunk)
        assert 64 << 20 < writer.tell() < 100 << 20


def test_a_little_available_memory_is_enough_for_what_is_freed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available_memory, "available_memory_bytes", lambda: 3 << 20)
    for _ in range(100):
        with Region.create_writer() as writer:
            writer.write(bytes(1 << 20))


def test_a_lack_of_descriptors_is_a_resource_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    region = Region.copy_of([b"x"])
    lowest_free = os.dup(region.descriptor)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        for attempt in (
            region.duplicate,
            Region.create_writer,
            lambda: Region.create_builder(10),
            lambda: Region.from_file("/"),
        ):
            with pytest.raises(ResourceError) as caught:
                attempt()
            assert caught.value.errno == errno.EMFILE
        assert bytes(region.memory) == b"x"  # a mapping needs no descriptor
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    region.close()


def test_a_shortage_while_writing_is_a_resource_error_not_a_signal() -> None:
    # A limit on the size of files simulates a full tmpfs: the same system calls fail.
    script = """
import resource
from bowstring.errors import ResourceError
from bowstring.memory.region import Region
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for attempt in (lambda: Region.create_builder(2 << 20), lambda: Region.copy_of([bytes(2 << 20)])):
    try:
        attempt()
    except ResourceError as error:
        print(error.errno)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout.split() == [str(errno.EFBIG)] * 2


def test_without_memfd_the_error_suggests_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ResourceError, match="share a file instead"):
        Region.create_writer()
