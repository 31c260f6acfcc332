"""Processes that are killed: the other side learns it at once, and their memory goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bowstring.dissociated.messages import AddressBody
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.states import StreamState
from bowstring.errors import ConnectionLostError
from bowstring.memory.region import Region
from bowstring.transports.base import TransportOptions
from bowstring.transports.regions import encode_region_address
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until
from tests.transports.blocking import BlockingListener, has_input, send_message
from tests.transports.region_buffers import encode_region_addresses, view_buffer

OPTIONS = TransportOptions(timeout_s=20)
SIZE_BYTES, BODY_BYTES = 64 << 20, 256 << 20
PUBLISHED = f"published for {os.getpid()}"  # tests of others may run beside these

PREAMBLE = """
import signal, sys
from bowstring.memory.region import Region
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX
from bowstring.dissociated.client import ClientStream
from tests.transports.blocking import send_message
from tests.transports.region_buffers import view_buffers
transport = BlockingChannel.dial(UNIX, sys.argv[1])
"""
PUBLISHER = (
    PREAMBLE
    + f"""
region = Region.copy_of([b"x" * {SIZE_BYTES}], "{PUBLISHED}")
transport.export(region)
transport.send([b"passed"])
signal.pause()
"""
)
CLIENT = (
    PREAMBLE
    + """
client = ClientStream(1, 2, has_body=lambda header: header[:1] == b"B")
send_message(transport, client.request(b"ticket"))
while not client.has_all_messages:
    for event in client.receive(*transport.receive()):
        body = getattr(event, "body", None)
        if body is not None:
            views = view_buffers(transport.memory, body.addresses, body.lengths)
            transport.send([bytes(view[:1]) for view in views], tag=99)
signal.pause()
"""
)
SENDER = (
    PREAMBLE
    + f"""
BODY_BYTES = {BODY_BYTES}
transport.send([b"x" * BODY_BYTES], tag=1, timeout_s=60)
"""
)


@contextmanager
def running_script(script: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", script, address])
    try:
        yield child
    finally:
        child.kill()
        child.wait(10)


def processes_with_memfd(name: str) -> list[str]:
    """The processes that have a memfd of this name open or mapped."""
    places = [place for folder in Path("/proc").glob("[0-9]*") for place in (folder / "fd", folder / "maps")]
    return sorted({place.parent.name for place in places if name in describe_links(place)})


def describe_links(place: Path) -> str:
    """What a process has open or mapped; nothing where it has ended or is somebody else's."""
    try:
        return "\n".join(map(link_target, place.iterdir())) if place.name == "fd" else place.read_text()
    except OSError:
        return ""


def link_target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


@pytest.fixture
def listener() -> Iterator[BlockingListener]:
    with assert_descriptors_closed(), BlockingListener.listen(UNIX, options=OPTIONS) as own:
        yield own


def test_memory_of_a_killed_publisher_is_freed_after_its_reader_ends(listener: BlockingListener) -> None:
    with running_script(PUBLISHER, listener.address) as child, listener.accept() as transport:
        transport.receive()
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        with pytest.raises(ConnectionLostError):
            transport.receive()
        view = view_buffer(transport.memory, encode_region_address(0, SIZE_BYTES - 3), 3)
        transport.close()
        assert bytes(view) == b"xxx"
        assert processes_with_memfd(PUBLISHED) == [str(os.getpid())]
    del view
    assert processes_with_memfd(PUBLISHED) == []


def test_memory_without_receivers_is_freed_with_the_killed_publisher(listener: BlockingListener) -> None:
    with running_script(PUBLISHER, listener.address) as child, listener.accept() as transport:
        assert wait_until(lambda: has_input(transport))
        assert processes_with_memfd(PUBLISHED) == [str(child.pid)]
        assert not [
            place for place in ("fd", "maps") if "/dev/shm" in describe_links(Path(f"/proc/{child.pid}/{place}"))
        ]
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        transport.close()
        assert processes_with_memfd(PUBLISHED) == []


def test_leases_of_a_killed_client_end(listener: BlockingListener) -> None:
    server = ServerConnection(1, 2)
    with running_script(CLIENT, listener.address) as child, listener.accept() as transport:
        server.receive(*transport.receive())
        with Region.copy_of([b"abcdef"], f"leased by {os.getpid()}") as region:
            index = transport.export(region).index
            body = AddressBody.from_arrays(encode_region_addresses(index, [0, 3]), [3, 3])
            for message in [*server.send(b"Schema"), *server.send(b"B", body, owner=region), *server.send_end()]:
                send_message(transport, message)
        assert bytes(transport.receive().data) == b"ad"
        assert (server.state, server.leases.outstanding) == (StreamState.LEASED, 2)
        child.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionLostError):
            transport.receive()
        assert server.connection_lost() == 2
        child.wait(10)
    del region
    assert processes_with_memfd(f"leased by {os.getpid()}") == []


def test_a_sender_killed_in_the_middle_of_a_body_is_lost_and_its_memory_freed(listener: BlockingListener) -> None:
    with running_script(SENDER, listener.address) as child, listener.accept() as transport:
        assert wait_until(lambda: has_input(transport))
        child.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match=f"of {BODY_BYTES} bytes"):
            transport.receive()


def test_a_receiver_killed_in_the_middle_of_a_body_is_lost(listener: BlockingListener) -> None:
    with running_script(PREAMBLE + "signal.pause()", listener.address) as child, listener.accept() as transport:
        os.kill(child.pid, signal.SIGSTOP)
        killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -9 {child.pid}"])
        with pytest.raises(ConnectionLostError):
            transport.send([bytes(64 << 20)], tag=1)
        assert killer.wait(10) == 0
