"""Memory over UCX: the registered memory of a server, mapped or fetched by a client."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import bowstring
from bowstring.errors import ConnectionLostError, InvalidArgumentError, ProtocolError, ResourceError
from bowstring.memory.region import Region
from bowstring.transports.base import Channel, DirectionEnded, Event, ExportedRegion
from bowstring.transports.blocking import dial
from bowstring_networks.registered_memory import RegisteredMemory, RegisteredMemoryExporter
from bowstring_networks.ucx.channel import UcxChannel
from bowstring_networks.ucx.context import DEFAULT_FEATURES, Context
from bowstring_networks.ucx.libucp import Feature
from bowstring_networks.ucx.memory import RegisteredUcxMemory, RemoteUcxMemory
from bowstring_networks.ucx.transport import UCX, UcxListener, UcxOptions, UcxTransport
from bowstring_testing.transport_conformance import ExportedMemoryConformance
from networks.tests.ucx.ucp_processes import require_libucp

require_libucp()

CONTENT = bytes(range(256)) * 64
REPLACING_SERVER = """
import sys
import bowstring, numpy as np
from bowstring_networks.ucx.transport import UCX, UcxOptions

UCX.configure(UcxOptions(shares_memory=True))
with bowstring.serve({"first": bowstring.table({"x": np.full(100_000, 1)})}, "127.0.0.1:0", scheme="ucx") as server:
    print(server.uri("first"), flush=True)
    sys.stdin.readline()
    server.remove("first")
    server.add("second", bowstring.table({"x": np.full(100_000, 2)}))
    print(server.uri("second"), flush=True)
    sys.stdin.readline()
"""
OPTIONS = [pytest.param({}, id="all"), pytest.param({"TLS": "tcp"}, id="tcp")]


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


@pytest.fixture
def registered_memory() -> Iterator[RegisteredMemory]:
    with Context(DEFAULT_FEATURES | Feature.RMA) as context:
        yield RegisteredUcxMemory(context, 1 << 16)


def connect(transport: UcxTransport, listener: UcxListener) -> tuple[UcxChannel, UcxChannel]:
    client = transport.dial(listener.address)
    accepted: list[UcxChannel] = []
    while not accepted:
        client.progress()
        accepted += [channel for channel in listener.accept() if isinstance(channel, UcxChannel)]
    server = accepted[0]
    requests = [channel.endpoint.flush() for channel in (client, server)]
    while not all(request.is_done for request in requests):
        client.progress()
        server.progress()
    return client, server


@pytest.mark.parametrize("options", OPTIONS)
def test_buffers_of_registered_memory_are_mapped_or_fetched(options: dict[str, str]) -> None:
    transport = UcxTransport(UcxOptions(options=options, shares_memory=True, registered_bytes=1 << 20))
    with transport.listen() as listener, Region.copy_of([CONTENT]) as region:
        client, server = connect(transport, listener)
        with client, server:
            exporter = server.exporter
            memory = transport.open_remote_memory(client, listener.remote_handle)
            assert exporter is not None
            assert memory is not None
            start = exporter.export(region).address
            addresses, lengths = numbers(start + 1, 0, start + 300), numbers(9, 0, 100)
            located = memory.locate_buffers(addresses, lengths)
            view = memory.view_extent(located.extent)
            if options:
                assert view is None
            else:
                assert view is not None
                assert view.readonly
                assert bytes(view[int(located.offsets[2]) :][:100]) == CONTENT[300 - 256 :][:100]
            destination = bytearray(109)
            fetches = memory.start_fetch(located, lengths, destination)
            while not all(fetch.is_done for fetch in fetches):
                client.progress()
                server.progress()
            assert [fetch.error for fetch in fetches if fetch.error] == []
            assert bytes(destination) == CONTENT[1:10] + CONTENT[300:400]
            with pytest.raises(ProtocolError, match="is not inside the server's memory"):
                memory.locate_buffers(numbers(start + (1 << 21)), numbers(1))
            with pytest.raises(ProtocolError, match="is not inside the server's memory"):
                memory.locate_buffers(numbers(start), numbers(1 << 21))
            memory.close()
            del memory, located
    assert transport._context is None


class TestMapped(ExportedMemoryConformance):
    transport = UcxTransport(UcxOptions(shares_memory=True, registered_bytes=1 << 20))


class TestFetched(ExportedMemoryConformance):
    """Over tcp, memory is not mapped."""

    transport = UcxTransport(UcxOptions(options={"TLS": "tcp"}, shares_memory=True, registered_bytes=1 << 20))


def test_a_key_without_our_trailer_has_unknown_bounds_and_is_fetched() -> None:
    transport = UcxTransport(UcxOptions(shares_memory=True, registered_bytes=1 << 20))
    with transport.listen() as listener, Region.copy_of([CONTENT]) as region:
        client, server = connect(transport, listener)
        with client, server:
            exporter = server.exporter
            assert exporter is not None
            assert listener.remote_handle is not None
            start = exporter.export(region).address
            with RemoteUcxMemory(client, listener.remote_handle[:-24]) as memory:
                assert memory.size_bytes == 1 << 64
                located = memory.locate_buffers(numbers(start), numbers(256))
                assert memory.view_extent(located.extent) is None
                destination = bytearray(256)
                fetches = memory.start_fetch(located, numbers(256), destination)
                while not all(fetch.is_done for fetch in fetches):
                    client.progress()
                    server.progress()
                assert bytes(destination) == CONTENT[:256]


def test_memory_is_shared_only_with_an_option() -> None:
    transport = UcxTransport()
    with transport.listen() as listener:
        assert listener.remote_handle is None
        client, server = connect(transport, listener)
        with client, server:
            assert server.exporter is None
            assert transport.open_remote_memory(client, b"key") is None
            with pytest.raises(InvalidArgumentError, match="while there are connections"):
                transport.configure(UcxOptions(shares_memory=True))
    transport.configure(UcxOptions(shares_memory=True))


def test_regions_share_a_copy_and_their_blocks_are_used_again(registered_memory: RegisteredMemory) -> None:
    first, second = RegisteredMemoryExporter(registered_memory), RegisteredMemoryExporter(registered_memory)
    with Region.copy_of([bytes(40_000)]) as region, Region.copy_of([bytes(40_000)]) as other:
        address = first.export(region).address
        assert second.export(region).address == address
        with pytest.raises(
            ResourceError, match="40000 bytes does not fit into the registered memory; 25536 of 65536 are free"
        ):
            first.export(other)
        first.close()
        with pytest.raises(ResourceError, match="does not fit"):
            first.export(other)
        second.close()
        assert first.export(other).address == address
        with pytest.raises(InvalidArgumentError, match="this end has exported 2 regions"):
            first.retire(ExportedRegion(address, 2))
        first.close()


@pytest.mark.parametrize("leaves_first", ["client", "server"])
def test_memory_that_a_client_may_still_read_is_not_used_again(leaves_first: str) -> None:
    transport = UcxTransport(UcxOptions(shares_memory=True, registered_bytes=1 << 16))
    with transport.listen() as listener, Region.copy_of([bytes(40_000)]) as region:
        other = Region.copy_of([bytes(40_000)])
        client, server = connect(transport, listener)
        second_client, second_server = connect(transport, listener)
        with client, server, second_client, second_server:
            exporter, second_exporter = server.exporter, second_server.exporter
            assert exporter is not None
            assert second_exporter is not None
            address = exporter.export(region).address
            if leaves_first == "client":
                client.close()
                while not any(isinstance(event, DirectionEnded) for event in server.progress()):
                    pass
            server.close()
            if leaves_first == "client":
                assert second_exporter.export(other).address == address
            else:
                with pytest.raises(ResourceError, match="does not fit"):
                    second_exporter.export(other)
                client.close()
                assert second_exporter.export(other).address == address


@pytest.mark.thorough
def test_arrays_of_a_closed_dataset_keep_their_values() -> None:
    command = [sys.executable, "-c", REPLACING_SERVER]
    UCX.configure(UcxOptions(shares_memory=True))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with bowstring.connect(process.stdout.readline().strip()) as dataset:
                values = dataset.read_all()["x"].chunks[0].to_numpy()
            process.stdin.write("\n")
            process.stdin.flush()
            with bowstring.connect(process.stdout.readline().strip()) as dataset:
                others = dataset.read_all()["x"].chunks[0].to_numpy()
            assert np.all(others == 2)
            assert np.all(values == 1)
            del values, others
            gc.collect()
        finally:
            process.communicate("\n")
            UCX.configure(UcxOptions())


def test_a_client_is_connected_when_it_can_map_memory() -> None:
    transport = UcxTransport(UcxOptions(shares_memory=True, registered_bytes=1 << 20))
    with transport.listen() as listener, transport.dial(listener.address) as client:
        memory = transport.open_remote_memory(client, listener.remote_handle)
        assert memory is not None
        assert (client.is_connected, memory.can_copy_locally) == (False, False)
        accepted: list[Channel] = []
        while not client.is_connected:
            accepted += listener.accept()
            assert not [event for channel in (client, *accepted) for event in channel.progress()]
        assert memory.can_copy_locally
        memory.close()
        for channel in accepted:
            channel.close()
    gc.collect()


def test_a_refused_client_that_shares_memory_does_not_wait_for_its_deadline() -> None:
    transport = UcxTransport(UcxOptions(shares_memory=True, registered_bytes=1 << 20))
    with transport.listen() as listener:
        address = listener.address
    with pytest.raises(ConnectionLostError):
        dial(transport, address, timeout_s=600)


def test_a_malformed_handle_is_a_protocol_error() -> None:
    transport = UcxTransport(UcxOptions(shares_memory=True))
    with transport.listen() as listener, transport.dial(listener.address) as client:
        for handle in (b"", b"\xff" * 16 + b"bowstrin", b"key" + b"\xff" * 16 + b"bowstrin"):
            if handle.startswith(b"\xff"):
                continue  # a key without a trailer, which only libucp can judge
            with pytest.raises(ProtocolError, match="remote_handle is malformed"):
                transport.open_remote_memory(client, handle)
    gc.collect()


@pytest.mark.parametrize("address", ["", "//127.0.0.1", "//:1", "//127.0.0.1:65536", "//127.0.0.1:x", "@name"])
def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"ucx address .*: expected //HOST:PORT"):
        UcxTransport().dial(address)
    with pytest.raises(InvalidArgumentError, match=r"ucx address .*: expected //HOST:PORT"):
        UcxTransport().listen(address)


def test_dialing_an_address_without_a_listener_is_reported_as_lost() -> None:
    transport = UcxTransport()
    with transport.listen() as listener:
        address = listener.address
    with transport.dial(address) as client:
        client.submit([b"hello"], 1)
        events: list[Event] = []
        while not events:
            events = client.progress()
        assert [type(event).__name__ for event in events] == ["DirectionEnded", "DirectionEnded"]
