"""What a server reports about itself: numbers, and messages of `logging`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import ConnectionLostError, NotFoundError
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import WANT_DATA
from bowstring.transports.sockets.frames import FRAME_HEADER, MAGIC
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.sockets.unix import encode_unix_address
from tests.polling import wait_until
from tests.sharing.python_process import run_python

LOGGER = "bowstring.sharing.server"
OPTIONS = ServerOptions(inline_bytes=0, max_clients=2, max_silent=1)


def example_table() -> bs.Table:
    return bs.Table.from_batches([bs.record_batch({"a": np.arange(1000)})] * 3)


@pytest.fixture
def server() -> Iterator[Server]:
    with bs.serve({"table of visits": example_table()}, options=OPTIONS) as server:
        yield server


def connect_socket(server: Server) -> socket.socket:
    if server.uris and next(iter(server.uris.values())).startswith("tcp:"):
        return socket.create_connection(parse_address(server.address), timeout=20)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(20)
    connected.connect(encode_unix_address(server.address))
    return connected


def test_a_new_server_reports_its_data_sets(server: Server) -> None:
    stats = server.stats()
    assert (stats.num_datasets, stats.num_regions, stats.num_clients, stats.num_requests) == (1, 1, 0, 0)
    assert stats.region_bytes > 24_000
    assert 0 <= stats.uptime_s <= server.stats().uptime_s
    region = server.find_parts("table of visits")[0].region
    server.add("the same", region)
    server.add_parts("a part", *server.find_parts("the same"))
    assert server.stats().region_bytes == 2 * stats.region_bytes, "the memory of a region is counted once"
    for name in ("the same", "a part", "table of visits"):
        server.remove(name)
    assert server.stats().num_regions == server.stats().region_bytes == server.stats().num_datasets == 0


def test_leases_and_messages_are_counted_while_a_client_has_them_and_afterwards(server: Server) -> None:
    with bs.connect(server.uri("table of visits")) as dataset:
        table = dataset.read_all()
        assert wait_until(lambda: server.stats().leased_bytes == 24_000)
        stats = server.stats()
        assert (stats.num_clients, stats.num_connections, stats.num_requests) == (1, 1, 1)
        assert (stats.leased_addresses, stats.freed_addresses, stats.freed_bytes) == (3, 0, 0)
        assert stats.num_messages == 8, "a schema, three times metadata and a body, and the end"
        assert stats.bytes_sent > 0
        assert stats.bytes_received > 0
        del table
        assert wait_until(lambda: server.stats().freed_bytes == 24_000)
        assert (server.stats().leased_addresses, server.stats().freed_addresses) == (0, 3)
        leased_table = dataset.read_all()
    assert wait_until(lambda: server.stats().num_clients == 0)
    stats = server.stats()
    assert (stats.leased_addresses, stats.leased_bytes, stats.freed_addresses, stats.freed_bytes) == (0, 0, 6, 48_000)
    assert (stats.num_connections, stats.num_requests, stats.num_messages) == (1, 2, 16)
    assert leased_table.num_rows == 3000


def test_bytes_sent_are_counted_and_those_that_wait_for_a_slow_client() -> None:
    with bs.serve({"t": bs.table({"a": np.arange(4 << 20)})}, scheme="tcp") as server, connect_socket(server) as slow:
        slow.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, WANT_DATA, 1) + b"t")
        assert wait_until(lambda: server.stats().queued_bytes > 1 << 20 and server.stats().bytes_sent > 0)
        assert server.stats().bytes_sent < 32 << 20
        slow.setblocking(False)
        received = 0

        def is_complete() -> bool:
            nonlocal received
            with suppress(BlockingIOError):
                while chunk := slow.recv(1 << 20):
                    received += len(chunk)
            stats = server.stats()
            return received > 32 << 20 and not stats.queued_bytes and stats.bytes_sent == received

        assert wait_until(is_complete)


def test_refused_requests_and_connections_and_lost_clients_are_counted(server: Server) -> None:
    uri = server.uri("table of visits")
    with pytest.raises(NotFoundError):
        bs.connect(uri, "other")
    with bs.connect(uri), bs.connect(uri), pytest.raises(ConnectionLostError, match="2 clients already"):
        bs.connect(uri)
    assert wait_until(lambda: server.num_clients == 0)
    with connect_socket(server) as first, connect_socket(server) as second:
        assert b"without a request" in first.recv(1000)
        second.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, 77, 1) + b"t")
        assert b"expected the tag 1" in second.recv(1000)
    stats = server.stats()
    assert (stats.num_requests, stats.num_refused_requests) == (4, 2)
    assert (stats.num_connections, stats.num_refused_connections, stats.num_lost_clients) == (6, 1, 1)


def test_connections_are_logged_with_their_peer_and_without_their_tickets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    secret = "a secret and therefore unguessable name"
    with bs.serve({secret: example_table()}, options=OPTIONS) as server:
        uri = server.uri(secret)
        with bs.connect(uri) as dataset:
            dataset.read_all()
        with pytest.raises(NotFoundError):
            bs.connect(uri, secret.upper())
        with connect_socket(server) as violating:
            violating.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, 77, 1) + b"t")
            assert violating.recv(1000)
        assert wait_until(lambda: server.num_clients == 0)
        prefix = f"server at {server.address}"
    assert {record.name for record in caplog.records} == {LOGGER}
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert "unguessable" not in caplog.text.lower()
    peer = f"process {os.getpid()} of user {os.getuid()}"
    for level, message in (
        ("INFO", f"{prefix}: serving"),
        ("DEBUG", f"{prefix}, connection 1 from {peer}: connected"),
        ("INFO", f"{prefix}, connection 1 from {peer}: accepted"),
        ("DEBUG", f"{prefix}, connection 1 from {peer}: requests data set 'a secret…'"),
        ("WARNING", f"{prefix}, connection 2 from {peer}: refused: NotFoundError for data set 'A SECRET…'"),
        ("INFO", f"{prefix}: closing (0 connections)"),
    ):
        assert (level, message) in messages
    (lost,) = [message for level, message in messages if "connection 1" in message and "disconnected: " in message]
    assert "the peer disconnected" in lost
    (refused,) = [message for level, message in messages if "connection 3" in message and level == "WARNING"]
    assert "refused: server: expected the tag 1" in refused


def test_a_silent_or_stalled_client_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    options = ServerOptions(timeout_s=0.1, stall_s=0.1)
    with bs.serve({"t": bs.table({"a": np.arange(4 << 20)})}, options=options, scheme="tcp") as server:
        with connect_socket(server) as silent:
            assert silent.recv(100) == b""
        with connect_socket(server) as stalled:
            stalled.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, WANT_DATA, 1) + b"t")
            assert wait_until(lambda: server.stats().num_lost_clients == 1)
            address = ":".join(map(str, stalled.getsockname()))
        uri = parse_uri(server.uri("t"))
    messages = {record.getMessage(): record.levelname for record in caplog.records}
    (late,) = [message for message in messages if "no request in time" in message]
    assert messages[late] == "DEBUG"
    (lost,) = [message for message in messages if "nothing within" in message]
    assert messages[lost] == "WARNING"
    assert f"server at {uri.address}, connection 2 from //{address}" in lost


def test_nothing_is_printed_unless_logging_is_configured() -> None:
    code = """
import io, sys
sys.stderr = io.StringIO()
import bowstring as bs
with bs.serve({"t": bs.table({"a": [1]})}) as server:
    try: bs.connect(server.uri("t"), "other")
    except bs.BowstringError as error: send([str(error), sys.stderr.getvalue()])
"""
    message, printed = run_python(code)
    assert "no data set 'other'" in message
    assert printed == ""
