"""Memory over libfabric: the registered memory of a server, fetched by a client."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from bowstring.errors import BowstringError, InvalidArgumentError, ProtocolError
from bowstring.memory.region import Region
from bowstring.transports.base import Channel, RemoteMemory
from bowstring_networks.fabric.transport import FabricListener, FabricOptions, FabricTransport
from bowstring_testing.descriptors import assert_descriptors_closed
from bowstring_testing.transport_conformance import ExportedMemoryConformance
from networks.tests.fabric.pairs import require_libfabric, require_provider

require_libfabric()

CONTENT = bytes(range(256)) * 64
REGISTERED_BYTES = 1 << 20


def uint64s(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def new_transport(provider: str = "tcp") -> FabricTransport:
    require_provider(provider)
    return FabricTransport(FabricOptions(provider, shares_memory=True, registered_bytes=REGISTERED_BYTES))


@contextmanager
def connected(transport: FabricTransport, listener: FabricListener) -> Iterator[tuple[Channel, Channel]]:
    with transport.dial(listener.address) as client:
        channels: list[Channel] = []
        while not channels:
            client.progress()
            channels = listener.accept()
        with channels[0] as server:
            yield client, server


def fetch(memory: RemoteMemory, ends: tuple[Channel, Channel], addresses: list[int], lengths: list[int]) -> bytes:
    """Fetch buffers; raise the error if it fails."""
    located = memory.locate_buffers(uint64s(*addresses), uint64s(*lengths))
    assert memory.view_extent(located.extent) is None
    destination = bytearray(sum(lengths))
    fetches = memory.start_fetch(located, uint64s(*lengths), destination)
    while not all(fetch.is_done for fetch in fetches):
        for channel in ends:
            channel.progress()
    for fetch in fetches:
        if fetch.error is not None:
            raise fetch.error
    return bytes(destination)


class TestFetched(ExportedMemoryConformance):
    transport = FabricTransport(FabricOptions("tcp", shares_memory=True, registered_bytes=REGISTERED_BYTES))

    @pytest.fixture(autouse=True)
    @classmethod
    def provider(cls) -> None:
        require_provider("tcp")


@pytest.mark.parametrize("provider", ["tcp", "net", "sockets"])
def test_buffers_of_registered_memory_are_fetched(provider: str) -> None:
    with assert_descriptors_closed():
        transport = new_transport(provider)
        with (
            transport.listen() as listener,
            connected(transport, listener) as ends,
            Region.copy_of([CONTENT]) as region,
        ):
            memory = transport.open_remote_memory(ends[0], listener.remote_handle)
            exporter = ends[1].exporter
            assert memory is not None
            assert exporter is not None
            assert memory.size_bytes == REGISTERED_BYTES
            start = exporter.export(region).address
            assert fetch(memory, ends, [start + 1, 0, start + 300], [9, 0, 100]) == CONTENT[1:10] + CONTENT[44:144]
            many = [start + number for number in range(3000)]
            assert fetch(memory, ends, many, [1] * 3000) == CONTENT[:3000]
            for address, length in [(start + REGISTERED_BYTES, 1), (start, REGISTERED_BYTES + 1)]:
                with pytest.raises(ProtocolError, match="is not inside the server's memory"):
                    memory.locate_buffers(uint64s(address), uint64s(length))
        assert not transport.domains.has_users


@pytest.mark.parametrize(("offset", "key"), [(1, 0), (0, 1)])
def test_the_provider_checks_the_bounds_and_the_key(offset: int, key: int) -> None:
    transport = new_transport()
    with transport.listen() as listener, connected(transport, listener) as ends:
        assert listener.remote_handle is not None
        words = struct.unpack("<QQQ", listener.remote_handle)
        handle = struct.pack("<QQQ", words[0] + offset, words[1], words[2] ^ key)
        memory = transport.open_remote_memory(ends[0], handle)
        assert memory is not None
        with pytest.raises(BowstringError, match="fetch: "):
            fetch(memory, ends, [words[0] + offset], [REGISTERED_BYTES])


@pytest.mark.parametrize("handle", [b"", bytes(23), bytes(25), struct.pack("<QQQ", 2**64 - 1, 2, 0)])
def test_a_malformed_handle_is_a_protocol_error(handle: bytes) -> None:
    transport = new_transport()
    with (
        transport.listen() as listener,
        transport.dial(listener.address) as client,
        pytest.raises(ProtocolError, match="fabric: remote_handle: "),
    ):
        transport.open_remote_memory(client, handle)


def test_memory_is_shared_only_with_an_option() -> None:
    transport = FabricTransport()
    with transport.listen() as listener, connected(transport, listener) as (client, server):
        assert listener.remote_handle is None
        assert server.exporter is None
        assert transport.open_remote_memory(client, None) is None
        with pytest.raises(InvalidArgumentError, match="while there are connections"):
            transport.configure(FabricOptions(shares_memory=True))
    transport.configure(FabricOptions(shares_memory=True))


def test_memory_is_shared_at_one_interface_only() -> None:
    with (
        assert_descriptors_closed(),
        pytest.raises(InvalidArgumentError, match="expected the address of one interface"),
    ):
        new_transport().listen("//0.0.0.0:0")
