"""Clients of other processes read more than a UCX server's memory holds, and exit, are killed or refused."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import bowstring as bs
from bowstring.sharing.server.server import Server
from bowstring_networks.ucx.transport import UCX, UcxOptions
from networks.tests.ucx.ucp_processes import require_libucp
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

require_libucp()

REGISTERED_BYTES = 16 << 20
NUM_TABLES, ROWS = 8, 1 << 19  # of 4 MB: the memory holds three with their metadata
CLIENT = """
import bowstring as bs
from bowstring.sharing.client.connection import Connection
from bowstring_networks.ucx.transport import UCX, UcxOptions

UCX.configure(UcxOptions(shares_memory=True))
connections = []
initialize = Connection.__init__
Connection.__init__ = lambda self, *arguments: (initialize(self, *arguments), connections.append(self))[0]


def is_mapped(connection):
    (channel,) = connection.driver.session.channels.values()
    return channel.bytes_received < 1 << 20


def read(uri):
    with bs.connect(uri) as dataset:
        return dataset.read_all()["x"].chunks[0]


def summarize(columns):
    return [(int(column.to_numpy()[0]), int(column.to_numpy().sum())) for column in columns]
"""
READ_AND_FREE = f"""{CLIENT}
sums = [summarize([read(uri)])[0] for uri in uris]
send((sums, [is_mapped(connection) for connection in connections]))
"""
READ_AND_KEEP = f"""{CLIENT}
columns = [read(uri) for uri in uris]
sums = summarize(columns)
send((sums, [is_mapped(connection) for connection in connections]))
receive()
send(summarize(columns))
"""
READ_IN_ONE_REQUEST = f"""{CLIENT}
with bs.connect(uris) as dataset:
    sums = [summarize([batch.column(0)])[0] for batch in dataset]
    send((sums, len(connections)))
"""
KEEP_AND_BE_REFUSED = f"""{CLIENT}
dataset = bs.connect(uris[0])
columns = [batch.column(0) for batch in dataset]
send(summarize(columns))
receive()
try:
    dataset.read_all()
except bs.errors.NotFoundError:
    send("refused")
receive()
send(summarize(columns))
"""
EXPECTED = [(number, number * ROWS) for number in range(NUM_TABLES)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    gc.collect()
    UCX.configure(UcxOptions(shares_memory=True, registered_bytes=REGISTERED_BYTES))
    with Server(scheme="ucx") as server:
        for number in range(NUM_TABLES):
            server.add(str(number), bs.record_batch({"x": np.full(ROWS, number)}))
        yield server
    gc.collect()
    UCX.configure(UcxOptions())


def uris(server: Server) -> list[str]:
    return [server.uri(str(number)) for number in range(NUM_TABLES)]


def assert_memory_is_free(server: Server) -> None:
    """Assert that a new client can map three tables at once."""
    assert wait_until(lambda: not server.num_clients)
    last = range(NUM_TABLES - 3, NUM_TABLES)
    with PythonProcess(READ_AND_KEEP, uris=[server.uri(str(number)) for number in last]) as client:
        assert client.receive() == ([EXPECTED[number] for number in last], [True] * 3)


@pytest.mark.thorough
def test_a_client_that_frees_each_table_maps_all_of_them(server: Server) -> None:
    for _ in range(2):
        assert run_python(READ_AND_FREE, uris=uris(server)) == (EXPECTED, [True] * NUM_TABLES)
    assert_memory_is_free(server)


@pytest.mark.thorough
def test_a_client_that_keeps_all_tables_receives_those_as_bytes_that_do_not_fit(server: Server) -> None:
    with PythonProcess(READ_AND_KEEP, uris=uris(server)) as client:
        assert client.receive() == (EXPECTED, [True] * 3 + [False] * (NUM_TABLES - 3))
        assert run_python(READ_AND_FREE, uris=uris(server)[:6]) == (EXPECTED[:6], [True] * 3 + [False] * 3)
        client.send(None)
        assert client.receive() == EXPECTED
    assert_memory_is_free(server)


def test_all_tables_are_read_in_one_request(server: Server) -> None:
    assert run_python(READ_IN_ONE_REQUEST, uris=uris(server)) == (EXPECTED, 1)
    assert_memory_is_free(server)


@pytest.mark.thorough
def test_the_blocks_of_a_killed_client_are_used_again(server: Server) -> None:
    with PythonProcess(READ_AND_KEEP, uris=uris(server)[:3]) as client:
        assert client.receive() == (EXPECTED[:3], [True] * 3)
        client.kill()
        assert_memory_is_free(server)


@pytest.mark.thorough
@pytest.mark.parametrize("is_killed", [False, True], ids=["ends", "is killed"])
def test_a_refused_client_keeps_its_memory_until_it(server: Server, is_killed: bool) -> None:
    server.add("removed", bs.record_batch({"x": np.full(4 * ROWS - 1024, 77)}))  # all of the registered memory
    expected = [(77, 77 * (4 * ROWS - 1024))]
    with PythonProcess(KEEP_AND_BE_REFUSED, uris=[server.uri("removed")]) as client:
        assert client.receive() == expected
        server.remove("removed")
        client.send(None)
        assert client.receive() == "refused"
        assert wait_until(lambda: not server.num_clients)
        assert run_python(READ_AND_FREE, uris=uris(server)[:1]) == (EXPECTED[:1], [False]), "it is mapped elsewhere"
        if is_killed:
            client.kill()
        else:
            client.send(None)
            assert client.receive() == expected
    assert_memory_is_free(server)
