"""Connections to a UCX listener that are not of libucp take no descriptors from others."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.transports.sockets.tcp_address import parse_address
from networks.tests.ucx.ucp_processes import require_libucp
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors
from tests.sharing.python_process import PythonProcess, run_python

require_libucp()

MAX_DESCRIPTORS = 256
SERVE = """
import resource
import bowstring as bs
resource.setrlimit(resource.RLIMIT_NOFILE, (max_descriptors, max_descriptors))
server = bs.serve({"t": bs.table({"a": [1, 2, 3]})}, addresses={"unix": None, "ucx": None})
send(dict(zip(("unix", "ucx"), sorted(server.locations("t").uris, key=lambda uri: uri.startswith("ucx")))))
receive()
"""
LISTEN = """
import glob, os
import bowstring as bs
from bowstring_networks.ucx.transport import UCX, UcxOptions
UCX.configure(UcxOptions(options=options))
with bs.serve({"t": bs.table({"a": [1]})}, scheme="ucx") as server, bs.connect(server.uri("t")) as dataset:
    assert dataset.read_all().num_rows == 1
    links = {os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.islink(path)}
    lines = [line.split() for line in open("/proc/self/net/tcp")]
    send({fields[1].partition(":")[0] for fields in lines if fields[3] == "0A" and f"socket:[{fields[9]}]" in links})
"""


@pytest.fixture
def server() -> Iterator[tuple[int, dict[str, str]]]:
    """The process and the URIs of a server with few descriptors."""
    with PythonProcess(SERVE, max_descriptors=MAX_DESCRIPTORS) as process:
        uris = process.receive()
        yield process.process.pid, uris


def is_served(uris: dict[str, str]) -> bool:
    """Whether both listeners serve; a client that connects while one restarts may be refused."""
    try:
        for uri in uris.values():
            with bs.connect(uri, timeout_s=5) as dataset:
                assert dataset.read_all()["a"].to_pylist() == [1, 2, 3]
    except bs.errors.ConnectionLostError:
        return False
    return True


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_connections_that_send_other_bytes_and_close_leave_no_descriptors(
    server: tuple[int, dict[str, str]], is_reset: bool
) -> None:
    pid, uris = server
    assert is_served(uris)
    before = num_descriptors(pid)
    with bs.connect(uris["ucx"]) as dataset:
        for _ in range(2 * MAX_DESCRIPTORS):
            with suppress(OSError), socket.create_connection(find_address(uris), timeout=2) as client:
                client.send(b"\xff" * (1 << 16))
                time.sleep(0.002)  # libucp reads them meanwhile
                if is_reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert wait_until(lambda: is_served(uris))
        assert wait_until(lambda: num_descriptors(pid) < before + MAX_DESCRIPTORS // 4)
        assert dataset.read_all().num_rows == 3, "of a connection that was open"


@pytest.mark.parametrize("first_bytes", [b"", b"\xff" * 4, struct.pack("<Q", 1 << 40)])
def test_silent_connections_are_closed_by_their_number(server: tuple[int, dict[str, str]], first_bytes: bytes) -> None:
    pid, uris = server
    assert is_served(uris)
    before = num_descriptors(pid)
    with bs.connect(uris["ucx"]) as dataset, ExitStack() as clients:
        for _ in range(2 * MAX_DESCRIPTORS):
            with suppress(OSError):
                client = clients.enter_context(socket.create_connection(find_address(uris), timeout=0.2))
                client.send(first_bytes)
        assert wait_until(lambda: is_served(uris))
        assert wait_until(lambda: num_descriptors(pid) < before + MAX_DESCRIPTORS // 4)
        assert dataset.read_all().num_rows == 3, "of a connection that was open"


def test_libucp_listens_at_other_addresses_unless_an_option_forbids_that() -> None:
    loopback = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
    assert run_python(LISTEN, options={"NET_DEVICES": "lo"}) == {loopback}
    assert loopback in run_python(LISTEN, options={})


def find_address(uris: dict[str, str]) -> Any:
    return parse_address(parse_uri(uris["ucx"]).address)
