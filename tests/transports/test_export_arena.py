"""Arenas: blocks are used again when nobody can read them any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bowstring.errors import ResourceError
from bowstring.memory.region import Region
from bowstring.transports.export_arena import ArenaExporter, HostArena

BLOCK = b"x" * 64


def test_blocks_are_used_again_when_no_channel_exports_them() -> None:
    arena = HostArena(memoryview(bytearray(128)), 1000, "test")
    first, second = ArenaExporter(arena), ArenaExporter(arena)
    with Region.copy_of([BLOCK]) as one, Region.copy_of([BLOCK]) as two, Region.copy_of([BLOCK]) as three:
        assert [first.export(one).address, second.export(one).address, second.export(two).address] == [1000, 1000, 1064]
        first.close()
        with pytest.raises(ResourceError, match="a region of 64 bytes does not fit into the arena; 0 are free"):
            first.export(three)
        second.close()
        assert first.export(three).address == 1000


def test_blocks_that_a_process_may_read_are_not_used_again_until_it_has_ended() -> None:
    arena = HostArena(memoryview(bytearray(64)), 0, "test")
    exporter = ArenaExporter(arena)
    with Region.copy_of([BLOCK]) as one, Region.copy_of([BLOCK]) as two:
        exporter.export(one)
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            exporter.close_after_peer_exit(process.pid)
            with pytest.raises(ResourceError, match="does not fit"):
                exporter.export(two)
            assert exporter.export(one).address == 0  # the copy is still there
            exporter.close()
            with pytest.raises(ResourceError, match="does not fit"):
                exporter.export(two)
            process.communicate(b"\n")
        assert exporter.export(two).address == 0


@pytest.mark.parametrize("process_id", [None, 0, 1, os.getpid()], ids=["unknown", "elsewhere", "init", "this"])
def test_blocks_of_a_process_that_may_be_alive_are_kept(process_id: int | None) -> None:
    arena = HostArena(memoryview(bytearray(64)), 0, "test")
    exporter = ArenaExporter(arena)
    with Region.copy_of([BLOCK]) as one, Region.copy_of([BLOCK]) as two:
        exporter.export(one)
        exporter.close_after_peer_exit(process_id)
        for _ in range(2):
            with pytest.raises(ResourceError, match="does not fit"):
                exporter.export(two)


def test_a_block_that_could_not_be_filled_is_free() -> None:
    arena = HostArena(memoryview(bytearray(64)), 0, "test")
    exporter = ArenaExporter(arena)
    with Region.copy_of([BLOCK]) as one, Region.copy_of([BLOCK]) as two:
        one.close()
        with pytest.raises(Exception, match="closed"):
            exporter.export(one)
        assert exporter.export(two).address == 0
