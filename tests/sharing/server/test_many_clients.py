"""A server of its own process, whose memory, threads and descriptors do not grow with what clients send or hold."""

from __future__ import annotations

import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, WANT_DATA, create_server_uri, format_dataset_uri
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.frames import FRAME_HEADER, MAGIC
from bowstring.transports.sockets.unix import UNIX, encode_unix_address
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.transports.blocking import BlockingListener

SERVE = """
import bowstring as bs
from bowstring.sharing.server.options import ServerOptions
server = bs.serve({"t": bs.table({"a": list(range(1000))})}, options=ServerOptions(inline_bytes=0, **options))
send(server.uri("t"))
while True: receive(); send(server.num_clients)
"""
MANY_BATCHES = """
import bowstring as bs, numpy as np
batch = bs.record_batch({f"c{i}": np.arange(1) for i in range(1000)})
server = bs.serve({"t": bs.Table.from_batches([batch] * count)})
send(server.uri("t"))
while True: receive(); send([session._connection.leases.outstanding for session in server._clients.accepted.active])
"""
CONNECT = """
import bowstring as bs, bowstring.sharing.client.connect
send(None); receive()
try: bs.connect(uri, timeout_s=20)
except Exception as error: send(type(error))
receive()
"""
THREE_GIGABYTES = 3 << 30


def frame_header(kind: int, tag: int, length_bytes: int) -> bytes:
    return FRAME_HEADER.pack(MAGIC, kind, 0, 0, tag, length_bytes)


def connect_socket(uri: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(encode_unix_address(parse_uri(uri).address))
    return connected


def process_status(pid: int, field: str) -> int:
    """A number of /proc/PID/status: `RssAnon` in KiB, `Threads`."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1])


def count_open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def request_reply(other: PythonProcess) -> Any:
    """The reply of the other process to one more request."""
    other.send(None)
    return other.receive()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def server_process(**options: float) -> Iterator[tuple[PythonProcess, str]]:
    with PythonProcess(SERVE, options=options) as other:
        yield other, other.receive()


@pytest.mark.parametrize(
    ("kind", "tag"),
    [(1, WANT_DATA), (1, FREE_DATA), (1, 77), (1, ERROR_DATA), (0, 0), (2, 0), (3, 0)],
    ids=["want_data", "free_data", "unknown", "error_data", "plain", "region", "retire"],
)
def test_a_message_of_gigabytes_takes_no_memory_of_the_server(kind: int, tag: int) -> None:
    with server_process() as (other, uri):
        assert bs.connect(uri).read_all().num_rows == 1000
        before = process_status(other.process.pid, "RssAnon")
        with connect_socket(uri) as connected:
            connected.settimeout(20)
            chunk = bytes(1 << 20)
            with suppress(ConnectionError):
                connected.sendall(frame_header(kind, tag, THREE_GIGABYTES))
                for _ in range(200):
                    connected.sendall(chunk)
                pytest.fail("the server receives the message")
        assert bs.connect(uri).read_all().num_rows == 1000
        assert process_status(other.process.pid, "RssAnon") - before < 20_000  # KiB


def test_a_message_of_gigabytes_takes_no_memory_of_the_host_agent() -> None:
    key = AgentKey()
    with AgentClient.open(key) as agent, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        pid = agent.status()["pid"]
        before = process_status(pid, "RssAnon")
        connected.connect(encode_unix_address(key.address))
        connected.settimeout(20)
        with suppress(ConnectionError):
            connected.sendall(frame_header(1, 3, THREE_GIGABYTES))
            for _ in range(200):
                connected.sendall(bytes(1 << 20))
            pytest.fail("the agent receives the message")
        assert agent.status()["pid"] == pid
        assert process_status(pid, "RssAnon") - before < 20_000


@pytest.mark.parametrize(
    ("kind", "tag"),
    [(1, ERROR_DATA), (1, 1 << 56 | 1), (1, 1 << 40), (1, 2 << 56), (0, 0), (3, 0)],
    ids=["error", "addresses", "reserved", "unknown", "plain", "retire"],
)
def test_a_message_of_gigabytes_takes_no_memory_of_a_client(kind: int, tag: int) -> None:
    with (
        BlockingListener.listen(UNIX) as listener,
        PythonProcess(CONNECT, uri=format_dataset_uri(create_server_uri(listener.address), "t")) as other,
    ):
        other.receive()
        before = process_status(other.process.pid, "RssAnon")
        other.send(None)
        with listener.accept(timeout_s=20) as server:
            server.receive(timeout_s=20)
            connected = server.channel._socket  # type: ignore[attr-defined]
            with suppress(ConnectionError, BlockingIOError):
                connected.setblocking(True)
                connected.sendall(frame_header(kind, tag, THREE_GIGABYTES))
                for _ in range(200):
                    connected.sendall(bytes(1 << 20))
                pytest.fail("the client receives the message")
        assert issubclass(other.receive(), bs.BowstringError)
        assert process_status(other.process.pid, "RssAnon") - before < 20_000


def test_a_client_cannot_free_more_addresses_than_it_leases() -> None:
    with server_process() as (other, uri), connect_socket(uri) as client:
        client.settimeout(20)
        client.sendall(frame_header(1, WANT_DATA, 1) + b"t")
        received = client.recv(100)
        before = process_status(other.process.pid, "RssAnon")
        with suppress(ConnectionError):
            client.sendall(frame_header(1, FREE_DATA, 60 << 20))
            for _ in range(60):
                client.sendall(bytes(1 << 20))
            pytest.fail("the server receives the message")
        with suppress(ConnectionError):
            while more := client.recv(1 << 20):
                received += more
        assert b"addresses were sent" in received
        assert process_status(other.process.pid, "RssAnon") - before < 20_000


@pytest.mark.usefixtures("many_descriptors")
def test_many_slow_messages_take_little_memory() -> None:
    with server_process(max_silent=2000) as (other, uri), ExitStack() as stack:
        assert bs.connect(uri).read_all().num_rows == 1000
        before = process_status(other.process.pid, "RssAnon")
        for _ in range(600):
            connected = stack.enter_context(connect_socket(uri))
            connected.sendall(frame_header(1, WANT_DATA, 1 << 16) + bytes(100))
        assert bs.connect(uri).read_all().num_rows == 1000
        assert process_status(other.process.pid, "RssAnon") - before < 60_000


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("count", [300, 1500])
def test_silent_connections_do_not_block_others_and_use_no_threads(count: int) -> None:
    with server_process() as (other, uri), ExitStack() as stack:
        threads = process_status(other.process.pid, "Threads")
        silent = [stack.enter_context(connect_socket(uri)) for _ in range(count)]
        with bs.connect(uri, timeout_s=10) as data:
            assert data.read_all().num_rows == 1000
        assert process_status(other.process.pid, "Threads") == threads
        assert count_open_descriptors(other.process.pid) < ServerOptions().max_silent + 50
        silent[0].settimeout(10)
        assert b"connections without a request" in silent[0].recv(1000)


@pytest.mark.usefixtures("many_descriptors")
def test_silent_connections_beyond_the_descriptor_limit_do_not_block_others() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
    with PythonProcess(limit + SERVE, options={}) as other, ExitStack() as stack:
        uri = other.receive()
        for _ in range(100):
            stack.enter_context(connect_socket(uri))
        with bs.connect(uri, timeout_s=10) as data:
            assert data.read_all().num_rows == 1000


def test_a_silent_client_is_disconnected_unless_it_leases_memory() -> None:
    with server_process(timeout_s=0.3) as (other, uri), bs.connect(uri) as data:
        table = data.read_all()
        with connect_socket(uri) as silent, connect_socket(uri) as slow:
            silent.settimeout(10)
            slow.settimeout(10)
            slow.sendall(frame_header(1, WANT_DATA, 10) + b"abc")
            assert (silent.recv(1), slow.recv(1)) == (b"", b"")
        assert wait_until(lambda: request_reply(other) == 1)
        assert table.num_rows == 1000


@pytest.mark.thorough
def test_a_client_that_stops_receiving_is_disconnected_but_not_a_slow_one() -> None:
    table = bs.table({"a": np.arange(2_000_000)})
    options = ServerOptions(stall_s=2.0)
    with (
        bs.serve({"t": table}, options=options) as server,
        connect_socket(server.uri("t")) as slow,
        connect_socket(server.uri("t")) as stuck,
    ):
        ticket = b"t\0packed"
        for connected in (slow, stuck):
            connected.sendall(frame_header(1, WANT_DATA, len(ticket)) + ticket)
        received = 0
        slow.settimeout(20)
        assert wait_until(lambda: server.num_clients == 2)
        while received < 16_000_000 and (chunk := slow.recv(200_000, socket.MSG_WAITALL)):
            received += len(chunk)
            time.sleep(0.04)
        assert received >= 16_000_000
        assert wait_until(lambda: server.num_clients == 1), "the one that takes nothing stays"


def test_a_client_may_free_each_body_with_a_send_that_blocks() -> None:
    """It reads nothing more until all of <free_data> is sent, while the server streams."""
    count = 100  # the addresses and freed addresses are more than the buffers of sockets
    with (
        PythonProcess(MANY_BATCHES, count=count) as other,
        connect_socket(other.receive()) as client,
        client.makefile("rb") as file,
    ):
        client.settimeout(20)
        client.sendall(frame_header(1, WANT_DATA, 1) + b"t")
        bodies = 0
        while True:
            _, kind, _, _, tag, length_bytes = FRAME_HEADER.unpack(file.read(FRAME_HEADER.size))
            content = file.read(length_bytes)
            if kind == 1:
                words = np.frombuffer(content, "<u8")
                freed = words[2::2][words[3::2] > 0].tobytes()
                client.sendall(frame_header(1, FREE_DATA, len(freed)) + freed)
                bodies += 1
            elif kind == 0 and content[0] == 0:
                break
            assert tag != ERROR_DATA
        assert bodies == count
        assert wait_until(lambda: request_reply(other) == [0])


def test_a_client_may_free_addresses_after_the_end() -> None:
    with server_process() as (_, uri), BlockingChannel.dial(UNIX, parse_uri(uri).address) as client:
        client.send((b"t",), tag=WANT_DATA)
        freed = b""
        while (received := client.receive(timeout_s=20)).tag is not None or received.data[0] != 0:
            if received.tag is not None:
                freed += np.frombuffer(received.data, "<u8")[2::2].tobytes()
        client.send((freed,), tag=FREE_DATA)
        client.send((b"t",), tag=WANT_DATA)
        assert client.receive(timeout_s=20).tag is None


def test_random_frames_end_only_their_own_connection() -> None:
    source = random.Random(11)
    good = frame_header(1, WANT_DATA, 1) + b"t" + frame_header(1, FREE_DATA, 8) + struct.pack("<Q", 64)
    with server_process() as (other, uri):
        bs.connect(uri).read_all()
        before, descriptors = process_status(other.process.pid, "RssAnon"), count_open_descriptors(other.process.pid)
        for number in range(300):
            with connect_socket(uri) as connected:
                frames = bytearray(good if number % 2 else source.randbytes(source.randrange(200)))
                for _ in range(number % 5):
                    frames[source.randrange(len(frames))] ^= 1 << source.randrange(8) if frames else 0
                with suppress(ConnectionError):
                    connected.sendall(bytes(frames))
        assert bs.connect(uri).read_all().num_rows == 1000
        assert wait_until(lambda: count_open_descriptors(other.process.pid) <= descriptors)
        assert process_status(other.process.pid, "RssAnon") - before < 20_000
