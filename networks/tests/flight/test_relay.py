"""Attacks on a Flight server without a ticket: its memory, descriptors and threads, and its other listeners."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import bowstring as bs
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.tls import TlsOptions
from tests.peak_memory import peak_bytes
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors
from tests.sharing.python_process import PythonProcess
from tests.thorough import thorough
from tests.transports.certificates import Authority

MAX_DESCRIPTORS = 200
SERVE = """
import resource
import bowstring as bs
from bowstring_networks.flight.server import FlightServer
from bowstring.sharing.server.options import ServerOptions
resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptors, max_descriptors))
options = ServerOptions(ticket_key=b"k" * 32, timeout_s=timeout_s, stall_s=stall_s)
server = bs.serve({"t": bs.table({"a": [1, 2, 3]})}, options=options, addresses={"unix": None, "tcp": None})
served = FlightServer(server, address="localhost:0", tls=tls)
send((served.location, [served.uri("t"), *server.locations("t").uris]))
receive()
"""
FORK = """
import os, time
child = os.fork()
if not child: time.sleep(60)
send(child)
receive()
"""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, PADDED, END_HEADERS = 1, 8, 4


class Server:
    """A server in another process, with few descriptors and a ticket key."""

    def __init__(self, process: PythonProcess) -> None:
        self.pid = process.process.pid
        self.location, self.uris = process.receive()
        self.address = parse_address(self.location.partition(":")[2])

    def check(self, tls: TlsOptions | None = None) -> None:
        """All listeners serve."""
        for uri in self.uris:
            with bs.connect(uri, timeout_s=20, tls=tls if uri.startswith("grpc+tls") else None) as dataset:
                assert dataset.read_all()["a"].to_pylist() == [1, 2, 3]

    @property
    def num_threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))


@contextmanager
def serving(tls: TlsOptions | None = None, timeout_s: float = 30.0, stall_s: float = 600.0) -> Iterator[Server]:
    with PythonProcess(
        SERVE, tls=tls, timeout_s=timeout_s, stall_s=stall_s, max_descriptors=MAX_DESCRIPTORS
    ) as process:
        yield Server(process)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as served:
        served.check()
        yield served


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request_headers(stream: int, flags: int = END_HEADERS, method: str = "DoGet", **others: str) -> bytes:
    """The headers of a call, as literals."""
    names = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/arrow.flight.protocol.FlightService/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **others,
    }
    literals = (b"\0%c%b%c%b" % (len(name), name.encode(), len(text), text.encode()) for name, text in names.items())
    return frame(HEADERS, flags, stream, b"".join(literals))


def send_all(server: Server, content: Iterator[bytes]) -> int:
    """Send frames after the preface until the server closes the connection; return the bytes that it took."""
    num_bytes = 0
    with socket.create_connection(server.address) as client:
        client.settimeout(5)
        with suppress(OSError):
            client.sendall(PREFACE + frame(SETTINGS, 0, 0))
            for piece in content:
                client.sendall(piece)
                num_bytes += len(piece)
    return num_bytes


def upload(client: Any, content: bytes) -> None:
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(content), pa.schema({"a": pa.int64()}))
    writer.close()


def exchange(client: Any, content: bytes) -> None:
    _, reader = client.do_exchange(flight.FlightDescriptor.for_command(content))
    reader.read_chunk()


CALLS: list[Callable[[Any, bytes], Any]] = [
    lambda client, content: client.do_get(flight.Ticket(content)).read_all(),
    lambda client, content: client.get_flight_info(flight.FlightDescriptor.for_path(content)),
    lambda client, content: client.get_schema(flight.FlightDescriptor.for_command(content)),
    lambda client, content: list(client.list_flights(content)),
    lambda client, content: list(client.do_action(flight.Action("x", content))),
    lambda client, content: client.authenticate_basic_token(content[:-1].decode(), "x"),
    upload,
    exchange,
]


@pytest.mark.parametrize("compression", [0, 2])
@pytest.mark.parametrize("call", CALLS)
def test_a_large_request_takes_no_memory(call: Callable[[Any, bytes], Any], compression: int, server: Server) -> None:
    """Also one of zeros that gRPC has compressed to a thousandth."""
    before = peak_bytes(server.pid)
    options = [("grpc.default_compression_algorithm", compression), ("grpc.use_local_subchannel_pool", 1)]
    with (
        flight.FlightClient(server.location, generic_options=options) as client,
        pytest.raises((flight.FlightError, pa.ArrowException, OSError)),
    ):
        call(client, bytes(64 << 20))
    assert peak_bytes(server.pid) - before < 16 << 20
    server.check()


def incomplete_requests(size_bytes: int) -> Iterator[bytes]:
    for stream in range(1, 1 << 16, 2):
        yield request_headers(stream)
        yield frame(DATA, 0, stream, (struct.pack(">BI", 0, size_bytes) + bytes(size_bytes))[:size_bytes])


def endless_headers() -> Iterator[bytes]:
    yield request_headers(1, flags=0)
    for _ in range(1 << 14):
        yield frame(CONTINUATION, 0, 1, b"\0\x01x\x7f\x80\x7f" + bytes(1 << 14))[: 9 + (1 << 14)]


def incomplete_uploads() -> Iterator[bytes]:
    """gRPC starts a thread for each, which waits for more."""
    for stream in range(1, 1 << 16, 2):
        yield request_headers(stream, method="DoPut")


def padded_requests() -> Iterator[bytes]:
    yield request_headers(1)
    for _ in range(1 << 14):
        yield frame(DATA, PADDED, 1, b"\xff" + bytes((1 << 14) - 1))


def small_pieces() -> Iterator[bytes]:
    yield request_headers(1)
    for _ in range(1 << 20):
        yield frame(DATA, 0, 1, bytes(1))


def reset_requests() -> Iterator[bytes]:
    for stream in range(1, 40_000, 2):
        yield request_headers(stream) + frame(DATA, END_STREAM, stream, bytes(5)) + frame(RESET, 0, stream, bytes(4))


def pings() -> Iterator[bytes]:
    for _ in range(1 << 18):
        yield frame(PING, 0, 0, bytes(8))


@pytest.mark.parametrize(
    "content",
    [
        incomplete_requests(0),
        incomplete_requests(1 << 10),
        incomplete_requests(1 << 14),
        incomplete_uploads(),
        endless_headers(),
        padded_requests(),
        small_pieces(),
        reset_requests(),
        pings(),
    ],
    ids=["headers", "1 KiB", "16 KiB", "uploads", "endless headers", "padding", "pieces", "resets", "pings"],
)
def test_frames_of_a_hostile_client_take_no_memory_and_no_threads(content: Iterator[bytes], server: Server) -> None:
    before, num_threads = peak_bytes(server.pid), server.num_threads
    num_bytes = send_all(server, content)
    assert peak_bytes(server.pid) - before < 32 << 20, num_bytes
    assert wait_until(lambda: server.num_threads < num_threads + 20)
    server.check()


@pytest.mark.parametrize("uses_tls", [False, *thorough(True)])
@pytest.mark.parametrize(
    "first_bytes",
    [b"", PREFACE, PREFACE + frame(SETTINGS, 0, 0) + request_headers(1), b"\x16\x03\x01\x01\x00"],
    ids=["silent", "preface", "headers", "handshake"],
)
def test_connections_without_a_request_leave_descriptors_for_others(
    first_bytes: bytes, uses_tls: bool, tmp_path: Path
) -> None:
    authority = Authority.create(tmp_path) if uses_tls else None
    tls, client_tls = (None, None) if authority is None else (authority.server("localhost"), authority.client())
    with serving(tls) as server, ExitStack() as stack:
        server.check(client_tls)
        before = num_descriptors(server.pid)
        for _ in range(3 * MAX_DESCRIPTORS):
            with suppress(ConnectionError):
                client = stack.enter_context(socket.create_connection(server.address, timeout=20))
                client.sendall(first_bytes)
        server.check(client_tls)
        assert num_descriptors(server.pid) - before < MAX_DESCRIPTORS * 3 // 4
        stack.close()
        assert wait_until(lambda: num_descriptors(server.pid) <= before + 6)
        server.check(client_tls)


@pytest.mark.parametrize("content", [b"", PREFACE, PREFACE + frame(SETTINGS, 0, 0) + request_headers(1)])
def test_a_connection_without_a_complete_request_is_closed_after_the_timeout(content: bytes) -> None:
    with serving(timeout_s=0.5) as server, socket.create_connection(server.address, timeout=20) as client:
        client.sendall(content)
        start = time.monotonic()
        with suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass
        assert time.monotonic() - start > 0.3


def test_a_client_waits_with_more_calls_than_a_connection_may_have(server: Server) -> None:
    descriptor = flight.FlightDescriptor.for_path(server.uris[0].rpartition("/")[2])
    with flight.FlightClient(server.location) as client, ThreadPoolExecutor(150) as threads:
        ticket = client.get_flight_info(descriptor).endpoints[0].ticket
        tables = threads.map(lambda _: client.do_get(ticket).read_all(), range(450))
        assert all(table.num_rows == 3 for table in tables)


def test_requests_of_many_connections_wait_for_a_thread(server: Server) -> None:
    """Each closes its connection before it is answered."""
    num_threads = most_threads = server.num_threads
    content = b"".join(request_headers(n) + frame(DATA, END_STREAM, n, bytes(5)) for n in range(1, 180, 2))
    for _ in range(100):
        with socket.create_connection(server.address, timeout=20) as client, suppress(ConnectionError):
            client.sendall(PREFACE + frame(SETTINGS, 0, 0) + content)
            client.recv(1)
        most_threads = max(most_threads, server.num_threads)
    assert most_threads < num_threads + 250
    server.check()


def test_an_idle_connection_is_kept() -> None:
    with serving(timeout_s=0.3, stall_s=0.3) as server, flight.FlightClient(server.location) as client:
        descriptor = flight.FlightDescriptor.for_path(server.uris[0].rpartition("/")[2])
        for _ in range(2):
            assert client.get_flight_info(descriptor).total_records == 3
            time.sleep(1)
        num_open = num_descriptors(server.pid)
        assert client.get_flight_info(descriptor).total_records == 3
        assert num_descriptors(server.pid) == num_open


def test_a_forked_child_keeps_no_connection_of_a_server_that_is_killed() -> None:
    limits: dict[str, Any] = {"timeout_s": 30.0, "stall_s": 600.0, "max_descriptors": MAX_DESCRIPTORS}
    with PythonProcess(SERVE + FORK, tls=None, **limits) as process:
        server = Server(process)
        with socket.create_connection(server.address, timeout=10) as client:
            client.sendall(PREFACE + frame(SETTINGS, 0, 0))
            assert client.recv(9)
            process.send(None)
            child = process.receive()
            process.kill()
            try:
                while client.recv(1 << 16):  # without a timeout, and not until the child ends
                    pass
            except ConnectionResetError:
                pass
            finally:
                os.kill(child, signal.SIGKILL)


def test_no_other_process_finds_the_socket_of_grpc(server: Server) -> None:
    lines = Path(f"/proc/{server.pid}/net/unix").read_text().splitlines()
    paths = [Path(line.split()[-1]) for line in lines if "/bowstring-flight-" in line]
    assert paths
    assert not any(path.parent.exists() for path in paths)
