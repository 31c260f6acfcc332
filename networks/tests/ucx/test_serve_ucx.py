"""Data sets served over UCX to another process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.sharing.server.server import Server
from bowstring_networks.ucx.transport import UCX, UcxOptions
from networks.tests.ucx.ucp_processes import require_libucp
from tests.sharing.python_process import PythonProcess

require_libucp()

CLIENT = """
import sys
import bowstring as bs
from bowstring_networks.ucx.transport import UCX, UcxOptions
UCX.configure(UcxOptions(shares_memory=sys.argv[2] == "shared"))
with bs.connect(sys.argv[1]) as dataset:
    table = dataset.read_all()
    column = table["number"].to_pylist()
    assert column == list(range(len(column))), column[:10]
    assert table["text"].to_pylist()[:3] == [None, "row 1", "row 2"]
    again = dataset.read_all()
    assert again["number"].to_pylist() == column
print(len(column))
"""


def table(num_rows: int) -> bs.Table:
    return bs.table({"number": list(range(num_rows)), "text": [f"row {i}" if i % 7 else None for i in range(num_rows)]})


@pytest.fixture(params=["bytes", "shared"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether bodies are bytes, or addresses of shared memory."""
    gc.collect()
    UCX.configure(UcxOptions(shares_memory=request.param == "shared", registered_bytes=1 << 28))
    yield request.param
    gc.collect()
    UCX.configure(UcxOptions())


@pytest.mark.parametrize("num_rows", [3, 200_000])
def test_another_process_reads_a_data_set(mode: str, num_rows: int) -> None:
    with Server(scheme="ucx") as server:
        uri = server.add("data", table(num_rows).to_batches())
        assert uri.startswith("ucx://127.0.0.1:")
        assert ("remote_handle" in uri) is (mode == "shared")
        command = [sys.executable, "-c", CLIENT, uri, mode]
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (output.stdout.strip(), output.stderr) == (str(num_rows), "")


SERVE_ROLES = """
import bowstring as bs
server = bs.serve({"t": bs.table({"a": [1]})}, scheme="ucx")
send(server.uri("t").partition("?")[0])
receive()
"""


@pytest.mark.thorough
def test_a_connection_that_arrives_while_another_is_accepted_is_accepted_too() -> None:
    with PythonProcess(SERVE_ROLES) as other:
        base = other.receive()
        uri = f"{base}?want_data=3&ticket=t&bodies={quote(f'{base}?want_data=4&ticket=t', safe='')}"
        for _ in range(12):
            with bs.connect(uri, timeout_s=10) as dataset:
                assert dataset.read_all()["a"].to_pylist() == [1]


COPYING_CLIENT = """
import sys
import bowstring as bs
from bowstring.sharing.client.connection import Connection
from bowstring_networks.ucx.transport import UCX, UcxOptions

UCX.configure(UcxOptions(shares_memory=True))
connections = []
initialize = Connection.__init__
Connection.__init__ = lambda self, *arguments: (initialize(self, *arguments), connections.append(self))[0]
with bs.connect(sys.argv[1], copy=True) as dataset:
    received = [0]
    for _ in range(3):
        assert dataset.read_all()["number"].to_pylist() == list(range(200_000))
        (channel,) = connections[0].driver.session.channels.values()
        received.append(channel.bytes_received)
    assert len(connections[0]._leased_memories) == 0
print(*(end - start for start, end in zip(received, received[1:])))
"""


def test_each_copy_is_made_from_the_mapping_also_the_first_of_a_connection() -> None:
    gc.collect()
    UCX.configure(UcxOptions(shares_memory=True, registered_bytes=1 << 28))
    try:
        with Server(scheme="ucx") as server:
            uri = server.add("data", table(200_000).to_batches())
            command = [sys.executable, "-c", COPYING_CLIENT, uri]
            output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert output.stderr == ""
            assert all(received_bytes < 10_000 for received_bytes in map(int, output.stdout.split()))  # no bodies
    finally:
        gc.collect()
        UCX.configure(UcxOptions())
