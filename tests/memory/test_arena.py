"""Arenas: memory is filled again only after its last reader, in whichever process, has ended."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bowstring.errors import ClosedError, InvalidArgumentError, InvalidDataError, TruncatedError
from bowstring.memory import Arena, Region
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until

BLOCK_BYTES = 1 << 16
"""The smallest size of a block."""


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with assert_descriptors_closed():
        yield
        gc.collect()


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena() as arena:
        yield arena


def filled_region(arena: Arena, byte: int, size_bytes: int = 1000) -> Region:
    """A region filled with one byte."""
    with arena.create_builder(size_bytes) as builder:
        builder.memory[:] = bytes([byte]) * size_bytes
        return builder.seal()


def inode_number(region: Region) -> int:
    return os.fstat(region.descriptor).st_ino


def test_memory_is_filled_again_after_its_region_is_closed(arena: Arena) -> None:
    with filled_region(arena, 1) as region:
        first = inode_number(region)
    with filled_region(arena, 2) as region:
        assert inode_number(region) == first
        assert bytes(region.memory) == b"\2" * 1000
    assert arena.nbytes == BLOCK_BYTES


def test_an_open_region_keeps_its_bytes(arena: Arena) -> None:
    with filled_region(arena, 1) as one, filled_region(arena, 2) as two:
        assert (bytes(one.view(0, 1)), bytes(two.view(0, 1))) == (b"\1", b"\2")
        assert arena.nbytes == 2 * BLOCK_BYTES


def test_a_view_of_a_closed_region_keeps_its_bytes(arena: Arena) -> None:
    region = filled_region(arena, 1)
    view = np.frombuffer(region.memory, np.uint8)[5:]
    region.close()
    filled_region(arena, 2).close()
    assert view.tolist() == [1] * 995


def test_a_duplicate_keeps_its_bytes(arena: Arena) -> None:
    with filled_region(arena, 1) as region:
        duplicate = region.duplicate()
    with duplicate:
        filled_region(arena, 2).close()
        assert bytes(duplicate.memory) == b"\1" * 1000


def test_a_descriptor_in_a_socket_keeps_its_bytes(arena: Arena) -> None:
    one, other = socket.socketpair()
    with one, other:
        with filled_region(arena, 1) as region:
            socket.send_fds(one, [b"x"], [region.descriptor])
        filled_region(arena, 2).close()
        _, descriptors, _, _ = socket.recv_fds(other, 1, 1)
        with Region.attach(descriptors[0], 1000, accept_files=True) as received:
            assert bytes(received.memory) == b"\1" * 1000


def test_a_mapping_of_another_process_keeps_its_bytes_until_it_is_killed(arena: Arena) -> None:
    code = (
        "import mmap, os, sys\n"
        "memory = mmap.mmap(int(sys.argv[1]), 1000, prot=mmap.PROT_READ)\n"
        "os.close(int(sys.argv[1]))\n"
        "print('mapped', flush=True)\n"
        "input()\n"
        "print(memory[:3])\n"
        "input()\n"
    )
    with filled_region(arena, 1) as region:
        first, descriptor = inode_number(region), region.descriptor
        os.set_inheritable(descriptor, True)
        command = [sys.executable, "-c", code, str(descriptor)]
        other = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[descriptor]
        )
    with other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "mapped\n"
        with filled_region(arena, 2) as region:
            assert inode_number(region) != first
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == f"{bytes([1, 1, 1])!r}\n"
        other.kill()
        other.wait(30)

        def is_filled_again() -> bool:
            with filled_region(arena, 3) as one, filled_region(arena, 4) as two:
                return first in (inode_number(one), inode_number(two))

        assert wait_until(is_filled_again)


def test_a_longer_earlier_region_leaves_no_bytes(arena: Arena) -> None:
    filled_region(arena, 1, 60_000).close()
    with filled_region(arena, 2, 30_000) as region, open(f"/proc/self/fd/{region.descriptor}", "rb") as whole:
        assert whole.read() == b"\2" * 30_000 + bytes(BLOCK_BYTES - 30_000)


def test_memory_of_another_size_is_not_filled_again(arena: Arena) -> None:
    filled_region(arena, 1, 10 << 20).close()
    filled_region(arena, 2, 1 << 20).close()
    filled_region(arena, 3, 20 << 20).close()
    assert arena.nbytes == 31 << 20


def test_unused_memory_is_limited() -> None:
    with Arena(max_unused_bytes=3 * BLOCK_BYTES) as arena:
        regions = [filled_region(arena, byte) for byte in range(10)]
        assert arena.nbytes == 10 * BLOCK_BYTES
        for region in regions:
            region.close()
        with filled_region(arena, 1):
            assert arena.nbytes == 4 * BLOCK_BYTES
        assert arena.release_unused() == 4 * BLOCK_BYTES
        assert arena.nbytes == 0


def test_a_closed_arena_leaves_regions_valid() -> None:
    arena = Arena()
    with filled_region(arena, 1) as region:
        arena.close()
        arena.close()
        assert bytes(region.memory) == b"\1" * 1000
        with pytest.raises(ClosedError):
            arena.create_builder(1)


def test_memory_can_not_be_sealed_while_writable_views_exist(arena: Arena) -> None:
    with arena.create_builder(1000) as builder:
        view = np.frombuffer(builder.memory, np.int32)
        with pytest.raises(InvalidArgumentError, match="writable views"):
            builder.seal()
        view[:] = 7
        del view
        with builder.seal() as region:
            assert np.frombuffer(region.memory, np.int32).tolist() == [7] * 250


def test_discarded_memory_with_views_is_not_filled_again(arena: Arena) -> None:
    with arena.create_builder(1000) as builder:
        view = np.frombuffer(builder.memory, np.uint8)
    with filled_region(arena, 1) as region:
        view[:] = 2
        assert bytes(region.memory) == b"\1" * 1000


def test_no_other_descriptor_can_write_or_shrink_the_memory(arena: Arena) -> None:
    with filled_region(arena, 1) as region:
        descriptor = os.open(f"/proc/self/fd/{region.descriptor}", os.O_RDWR)
        try:
            for call in (lambda: os.write(descriptor, b"x"), lambda: os.ftruncate(descriptor, 0)):
                with pytest.raises(PermissionError):
                    call()
        finally:
            os.close(descriptor)


def test_memory_is_received_only_where_files_are(arena: Arena) -> None:
    with filled_region(arena, 1) as region:
        assert not region.is_sealed
        with pytest.raises(InvalidDataError, match="can still write"):
            Region.attach(os.dup(region.descriptor), 1000)
        with pytest.raises(TruncatedError):
            Region.attach(os.dup(region.descriptor), BLOCK_BYTES + 1, accept_files=True)
        with Region.attach(os.dup(region.descriptor), 1000, accept_files=True) as received:
            assert received.size_bytes == 1000


def test_memory_that_is_being_filled_can_not_be_opened(arena: Arena) -> None:
    with filled_region(arena, 1) as region:
        path = Path(f"/proc/self/fd/{arena._blocks[0].descriptor}")
        region.close()
        with arena.create_builder(1000):
            descriptor = os.open(path, os.O_RDONLY)
            with pytest.raises(ClosedError, match="another region"):
                Region.attach(descriptor, 1000, accept_files=True)


def test_an_empty_region_is_valid(arena: Arena) -> None:
    with arena.create_builder(0) as builder, builder.seal() as region:
        assert bytes(region.memory) == b""


FORK = """
import os
from bowstring.memory import Arena

def fill(byte):
    with arena.create_builder(1000) as builder:
        builder.memory[:] = bytes([byte]) * 1000
        builder.seal().close()

arena = Arena()
fill(1)
with arena.create_builder(1000) as builder:
    child = os.fork()
    if not child:
        is_empty = arena.nbytes == 0
        builder.close()
        fill(2)
        os._exit(0 if is_empty and arena.nbytes == 1 << 16 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bytes(builder.memory) == bytes([1]) * 1000)
"""


def test_a_forked_child_does_not_fill_its_parents_memory() -> None:
    process = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert process.stdout == "0 True\n"


@pytest.mark.parametrize("call", [lambda: Arena(-1), lambda: Arena().create_builder(-1)])
def test_negative_sizes_are_errors(call: object) -> None:
    with pytest.raises(InvalidArgumentError, match="0 or more"):
        call()  # type: ignore[operator]
    gc.collect()
