"""Registered memory: blocks are filled again when no peer can read them any more, and not before."""

from __future__ import annotations

import gc
import socket
import weakref
from typing import ClassVar

import pytest

from bowstring.errors import ResourceError
from bowstring.memory.region import Region
from bowstring_networks.cuda.transport import DisconnectedUnixPeer
from bowstring_networks.registered_memory import RegisteredHostMemory, RegisteredMemoryExporter
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess

BLOCK = b"x" * 64
HOLD_SOCKET = """
import socket
connection = socket.socket(fileno=socket.socket(socket.AF_UNIX).detach())
connection.connect(address)
send(None)
receive()
"""


class MappedMemory(RegisteredHostMemory):
    """Registered memory that clients map, so that they can read it after their connection was closed."""

    is_mapped_by_clients: ClassVar[bool] = True


def new_memory(num_blocks: int) -> MappedMemory:
    return MappedMemory(memoryview(bytearray(64 * num_blocks)), 1000, "test")


def new_block(content: bytes = BLOCK) -> Region:
    return Region.copy_of([content])


def test_a_region_is_copied_once_for_all_channels() -> None:
    registered_memory = new_memory(2)
    first, second = RegisteredMemoryExporter(registered_memory), RegisteredMemoryExporter(registered_memory)
    one, two, three = new_block(), new_block(), new_block()
    assert [first.export(one).address, second.export(one).address, second.export(two).address] == [1000, 1000, 1064]
    first.close()
    with pytest.raises(
        ResourceError, match="a region of 64 bytes does not fit into the registered memory; 0 of 128 are free"
    ):
        first.export(three)
    second.close()
    assert first.export(three).address == 1000


def test_a_retired_block_is_used_again_when_its_last_lease_has_ended() -> None:
    registered_memory = new_memory(1)
    exporter = RegisteredMemoryExporter(registered_memory)
    one, two = new_block(), new_block()
    exported = exporter.export(one)
    lease_owner = [exported]
    exporter.retire(exported)
    del exported
    exporter.reclaim()
    with pytest.raises(ResourceError, match="does not fit"):
        exporter.export(two)
    lease_owner.clear()
    exporter.reclaim()
    assert exporter.export(two).address == 1000


def test_an_unused_copy_is_kept_until_its_space_is_needed() -> None:
    memory = bytearray(192)
    registered_memory = RegisteredHostMemory(memoryview(memory), 0, "test")
    exporter = RegisteredMemoryExporter(registered_memory)
    regions = [new_block(bytes([number]) * 64) for number in range(3)]
    for region in regions:
        exporter.export(region)
    exporter.close()
    memory[:64] = bytes(64)  # shows whether the first region is copied again
    assert exporter.export(regions[0]).address == 0
    assert memory[:64] == bytes(64), "copied again"
    exporter.close()
    assert exporter.export(new_block()).address == 64, "the least recently used block is filled first"


def test_a_large_region_takes_the_space_of_several_unused_ones() -> None:
    registered_memory = new_memory(4)
    exporter = RegisteredMemoryExporter(registered_memory)
    regions = [new_block() for _ in range(4)]
    for region in regions:
        exporter.export(region)
    exporter.close()
    with pytest.raises(
        ResourceError, match="a region of 257 bytes does not fit into the registered memory; 256 of 256 are free"
    ):
        exporter.export(Region.copy_of([bytes(257)]))
    assert exporter.export(Region.copy_of([bytes(256)])).address == 1000


def test_an_unused_copy_does_not_keep_its_region() -> None:
    exporter = RegisteredMemoryExporter(new_memory(1))
    region = new_block()
    exporter.export(region)
    exporter.close()
    reference = weakref.ref(region)
    del region
    gc.collect()
    assert reference() is None
    assert exporter.export(new_block()).address == 1000


def test_a_file_is_copied_again_for_the_next_client(tmp_path: object) -> None:
    with open(f"{tmp_path}/file", "wb") as file:
        file.write(BLOCK)
    memory = bytearray(64)
    exporter = RegisteredMemoryExporter(RegisteredHostMemory(memoryview(memory), 0, "test"))
    with Region.from_file(f"{tmp_path}/file") as region:
        exporter.export(region)
        exporter.close()
        with open(f"{tmp_path}/file", "wb") as file:
            file.write(BLOCK.upper())
        exporter.export(region)
        assert memory == BLOCK.upper()


def test_a_block_that_could_not_be_filled_is_free() -> None:
    exporter = RegisteredMemoryExporter(new_memory(1))
    one = new_block()
    one.close()
    with pytest.raises(Exception, match="closed"):
        exporter.export(one)
    assert exporter.export(new_block()).address == 1000


@pytest.mark.parametrize("is_killed", [False, True], ids=["ends", "is killed"])
def test_blocks_of_a_disconnected_peer_are_used_again_when_its_process(is_killed: bool) -> None:
    exporter = RegisteredMemoryExporter(new_memory(1))
    one, two = new_block(), new_block()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        with PythonProcess(HOLD_SOCKET, address=listener.getsockname()) as process:
            connection, _ = listener.accept()
            process.receive()
            exporter.export(one)
            assert exporter.close(DisconnectedUnixPeer(connection))
            for _ in range(2):
                with pytest.raises(ResourceError, match="does not fit"):
                    exporter.export(two)
            assert exporter.export(one).address == 1000, "the copy is still there"
            exporter.close()
            if is_killed:
                process.kill()
            else:
                process.send(None)

            def can_export() -> bool:
                try:
                    return exporter.export(two).address == 1000
                except ResourceError:
                    return False

            assert wait_until(can_export)
            assert connection.fileno() == -1


def test_closed_memory_closes_the_connections_of_disconnected_peers() -> None:
    registered_memory = new_memory(1)
    exporter = RegisteredMemoryExporter(registered_memory)
    region = new_block()
    exporter.export(region)
    first, second = socket.socketpair()
    with first, second:
        assert exporter.close(DisconnectedUnixPeer(first))
        registered_memory.close()
        assert first.fileno() == -1
        exporter.export(region)
        assert not exporter.close(DisconnectedUnixPeer(second)), "nothing is filled again"
