"""Clients that free or receive nothing slow only themselves, also where a limit of all clients together is reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.memory.available_memory import available_memory_bytes
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import WANT_DATA
from bowstring.transports.sockets.frames import FRAME_HEADER, MAGIC
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess

ROWS, BATCHES = 1000, 40
BATCH_BYTES = 8 * ROWS
TOTAL_BYTES = 16 * BATCH_BYTES
READ_AND_KEEP = """
import bowstring as bs
with bs.connect(uri, timeout_s=120) as dataset: table = dataset.read_all()
send(sum(int(chunk.to_numpy().sum()) for chunk in table.column("a").chunks))
"""


def example_table(rows: int = ROWS, batches: int = BATCHES) -> bs.Table:
    return bs.Table.from_batches([bs.record_batch({"a": np.arange(rows) + n}) for n in range(batches)])


EXPECTED = sum(int((np.arange(ROWS) + n).sum()) for n in range(BATCHES))


@pytest.fixture
def server() -> Iterator[Server]:
    options = ServerOptions(inline_bytes=0, max_clients=4, max_total_leased_bytes=TOTAL_BYTES)
    with assert_descriptors_closed(), bs.serve({"t": example_table()}, options=options) as server:
        yield server


def read_and_free(server: Server) -> int:
    """Read all batches, of which each is freed before the next; return the sum."""
    total = 0
    with bs.connect(server.uri("t"), timeout_s=20) as dataset:
        for batch in dataset:
            total += int(batch.column(0).to_numpy().sum())
            assert server.stats().leased_bytes <= TOTAL_BYTES + BATCH_BYTES * 4
            del batch
    return total


def test_a_client_that_frees_nothing_pauses_and_others_receive_everything(server: Server) -> None:
    with PythonProcess(READ_AND_KEEP, uri=server.uri("t")) as hoarding:
        assert wait_until(lambda: server.stats().leased_bytes >= TOTAL_BYTES // 2)
        for _ in range(3):
            assert read_and_free(server) == EXPECTED
        assert hoarding.process.poll() is None
        assert wait_until(lambda: server.stats().leased_bytes == TOTAL_BYTES // 2), "it got more than its part"


def test_total_limits_have_defaults_that_depend_on_the_available_memory() -> None:
    for options in (ServerOptions(), ServerOptions(max_clients=3)):
        before, limits, after = available_memory_bytes(), options.derive_total_limits(), available_memory_bytes()
        assert before is not None
        assert after is not None
        margin = 1 << 30  # other processes use memory, too
        low, high = min(before, after) - margin, max(before, after) + margin
        assert low <= limits.leased_bytes // (2 * options.max_clients) <= high
        assert low // 4 <= limits.queued_bytes <= high // 4
    options = ServerOptions(max_total_leased_bytes=1000, max_total_queued_bytes=2000)
    assert options.derive_total_limits() == (options.max_total_leases, 1000, 2000)
    with Server(options=options) as server:
        assert server._clients.total_limits._limits[1].common == 500


def test_a_client_that_waits_for_others_continues_when_they_are_killed(server: Server) -> None:
    with PythonProcess(READ_AND_KEEP, uri=server.uri("t")) as hoarding:
        assert wait_until(lambda: server.stats().leased_bytes >= TOTAL_BYTES // 2)
        with bs.connect(server.uri("t"), timeout_s=20) as dataset:
            stream = iter(dataset)
            batches = [next(stream), next(stream)]  # its part
            assert wait_until(lambda: server.stats().leased_bytes == TOTAL_BYTES // 2 + 2 * BATCH_BYTES)
            hoarding.kill()
            batches += [next(stream) for _ in range(6)]
            assert [int(batch.column(0).to_numpy()[0]) for batch in batches] == list(range(8))


def test_clients_that_receive_nothing_do_not_stop_others_at_the_limit_of_queued_bytes() -> None:
    rows, batches = 1 << 17, 16  # 16 MB, more than the buffers of the sockets
    options = ServerOptions(max_clients=8, max_total_queued_bytes=1 << 20)
    with (
        assert_descriptors_closed(),
        bs.serve({"t": example_table(rows, batches)}, options=options, scheme="tcp") as server,
        ExitStack() as stack,
    ):
        address = parse_address(parse_uri(server.uri("t")).address)
        for count in range(1, 5):
            silent = stack.enter_context(socket.create_connection(address, timeout=20))
            silent.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, WANT_DATA, 1) + b"t")
            assert wait_until(lambda: server.stats().num_clients == count and server.stats().queued_bytes > 0)  # noqa: B023
        with bs.connect(server.uri("t"), timeout_s=20) as dataset:
            assert [int(batch.column(0).to_numpy()[-1]) for batch in dataset] == [rows - 1 + n for n in range(batches)]
        assert server.stats().num_clients >= 4
