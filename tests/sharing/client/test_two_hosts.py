"""Two hosts: network namespaces, joined by a link with delay and loss that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bowstring.errors import DeadlineError
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.transports.certificates import Authority

SERVER_ADDRESS, CLIENT_ADDRESS = "10.77.0.1", "10.77.0.2"
ROWS, BATCHES = 1 << 16, 8  # 4 MB
MAX_SHORT_BYTES = 400
SUMS = [ROWS * (ROWS - 1) // 2 + ROWS * number for number in range(BATCHES)]

LINK = """
import ctypes, fcntl, heapq, os, random, select, signal, struct, time
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
libc = ctypes.CDLL(None, use_errno=True)
ends = []
for network in networks:
    with open(f"/run/netns/{network}") as namespace:
        assert libc.setns(namespace.fileno(), 0x40000000) == 0, os.strerror(ctypes.get_errno())
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"link0", IFF_TUN | IFF_NO_PI))
    ends.append(end)
max_bytes = 1 << 16
def cut(number, _):
    global max_bytes
    max_bytes = 0 if number == signal.SIGUSR1 else max_short_bytes
signal.signal(signal.SIGUSR1, cut)
signal.signal(signal.SIGUSR2, cut)
send(None)
source, packets, count = random.Random(1), [], 0
while True:
    wait_s = max(packets[0][0] - time.monotonic(), 0) if packets else None
    for end in select.select(ends, [], [], wait_s)[0]:
        packet = os.read(end, 1 << 16)
        if len(packet) <= max_bytes and source.random() >= loss:
            heapq.heappush(packets, (time.monotonic() + delay_s, count := count + 1, ends[end == ends[0]], packet))
    while packets and packets[0][0] <= time.monotonic():
        _, _, end, packet = heapq.heappop(packets)
        try:
            os.write(end, packet)
        except OSError:
            pass
"""
SERVE = """
import bowstring as bs, numpy as np
from bowstring.sharing.server.options import ServerOptions
table = bs.Table.from_batches([bs.record_batch({"a": np.arange(rows) + n}) for n in range(batches)])
addresses = {"unix": None, "tcp+tls": address}
server = bs.serve({"t": table}, options=ServerOptions(tls=tls, stall_s=stall_s), addresses=addresses)
send(server.locations("t"))
while True: receive(); send(server.num_clients)
"""
CONNECT = """
import bowstring as bs
sums = []
try:
    with bs.connect(locations, tls=tls, timeout_s=timeout_s) as dataset:
        send((dataset.location, dataset.unusable_locations))
        for batch in dataset:
            sums.append(int(batch.column("a").to_numpy().sum()))
            if len(sums) == 1: send(None)
    send(sums)
except Exception as error:
    send(type(error))
"""


REQUEST_AGAIN = """
import bowstring as bs
with bs.connect(locations, tls=tls, timeout_s=100) as dataset:
    send(sum(batch.num_rows for batch in dataset))
    receive()
    dataset.read_all()
"""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names of two networks, and the process that passes packets between them."""

    server: str
    client: str
    link: PythonProcess

    def cut(self) -> None:
        """Pass no more packets."""
        self.link.process.send_signal(signal.SIGUSR1)

    def drop_long_packets(self) -> None:
        """Pass requests and acknowledgements, and nothing longer."""
        self.link.process.send_signal(signal.SIGUSR2)


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        pytest.skip("needs the command ip and /dev/net/tun")
    names = [f"bowstring-{os.getpid()}-{role}" for role in ("server", "client")]
    try:
        for name in names:
            try:
                run_ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not available: {error.stderr.decode().strip()}")
        with PythonProcess(LINK, networks=names, delay_s=0.02, loss=0.01, max_short_bytes=MAX_SHORT_BYTES) as link:
            try:
                link.receive()
            except AssertionError as error:
                pytest.skip(f"a link between the namespaces is not available: {error}")
            for name, address in zip(names, (SERVER_ADDRESS, CLIENT_ADDRESS), strict=True):
                run_ip("-n", name, "address", "add", f"{address}/24", "dev", "link0")
                run_ip("-n", name, "link", "set", "link0", "mtu", "9000", "up")
            yield Hosts(names[0], names[1], link)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def serve(hosts: Hosts, authority: Authority, **values: Any) -> PythonProcess:
    tls = authority.server(SERVER_ADDRESS)
    return PythonProcess(SERVE, network=hosts.server, address=f"{SERVER_ADDRESS}:0", tls=tls, batches=BATCHES, **values)


def num_clients(server: PythonProcess) -> int:
    server.send(None)
    count: int = server.receive()
    return count


def test_a_table_of_another_host_arrives_over_a_link_with_delay_and_loss(hosts: Hosts, authority: Authority) -> None:
    with serve(hosts, authority, rows=ROWS, stall_s=20) as server:
        values = {"locations": server.receive(), "tls": authority.client(), "timeout_s": 20}
        with PythonProcess(CONNECT, network=hosts.client, **values) as client:
            client.receive()
            client.receive()
            assert client.receive() == SUMS
        assert wait_until(lambda: num_clients(server) == 0)


@pytest.mark.thorough
def test_both_ends_lose_the_connection_to_a_host_that_is_cut_off(hosts: Hosts, authority: Authority) -> None:
    with serve(hosts, authority, rows=16 * ROWS, stall_s=1) as server:
        values = {"locations": server.receive(), "tls": authority.client(), "timeout_s": 1}
        with PythonProcess(CONNECT, network=hosts.client, **values) as client:
            client.receive()
            client.receive()
            assert num_clients(server) == 1
            hosts.cut()
            assert client.receive() is DeadlineError
            assert wait_until(lambda: num_clients(server) == 0)


@pytest.mark.thorough
def test_a_client_that_stops_acknowledging_packets_is_disconnected(hosts: Hosts, authority: Authority) -> None:
    """The kernel retransmits for about 15 minutes before it reports it."""
    with serve(hosts, authority, rows=1000, stall_s=3) as server:
        values = {"locations": server.receive(), "tls": authority.client()}
        with PythonProcess(REQUEST_AGAIN, network=hosts.client, **values) as client:
            assert client.receive() == 1000 * BATCHES
            hosts.drop_long_packets()
            client.send(None)
            assert wait_until(lambda: num_clients(server) == 0)


def test_the_local_consumer_gets_shared_memory_and_the_remote_one_tcp(hosts: Hosts, authority: Authority) -> None:
    with serve(hosts, authority, rows=ROWS, stall_s=20) as server:
        locations = server.receive()
        unix, tcp = locations.uris
        values = {"locations": locations, "tls": authority.client(), "timeout_s": 20}
        for network, location, unusable in ((hosts.server, unix, []), (hosts.client, tcp, [unix])):
            with PythonProcess(CONNECT, network=network, **values) as client:
                used, reasons = client.receive()
                assert used == location
                assert list(reasons) == unusable
                assert all("another host, network or directory" in reason for reason in reasons.values())
                client.receive()
                assert client.receive() == SUMS
