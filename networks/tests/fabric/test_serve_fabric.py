"""Data sets served over libfabric to another process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

import bowstring as bs
from bowstring.sharing.server.server import Server
from bowstring_networks.fabric.transport import FABRIC, FabricOptions
from networks.tests.fabric.pairs import require_libfabric, require_provider

require_libfabric()

CLIENT = """
import sys
import bowstring as bs
for uri in sys.argv[1:]:
    with bs.connect(uri) as dataset:
        for _ in range(2):
            table = dataset.read_all()
            column = table["number"].to_pylist()
            assert column == list(range(len(column))), column[:10]
            assert table["text"].to_pylist()[:3] == [None, "row 1", "row 2"]
        print(len(column))
"""


def table(num_rows: int) -> bs.Table:
    return bs.table({"number": list(range(num_rows)), "text": [f"row {i}" if i % 7 else None for i in range(num_rows)]})


@pytest.fixture(params=[False, True], ids=["bytes", "shared"])
def shares_memory(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether bodies are addresses of memory that clients fetch."""
    gc.collect()
    FABRIC.configure(FabricOptions(shares_memory=request.param, registered_bytes=1 << 26))
    yield request.param
    gc.collect()
    FABRIC.configure(FabricOptions())


@pytest.mark.parametrize("provider", ["tcp", "net", "sockets"])
def test_another_process_reads_data_sets(provider: str, shares_memory: bool) -> None:
    require_provider(provider)
    with Server(scheme="fabric", address=f"//127.0.0.1:0/{provider}") as server:
        uris = [server.add(str(num_rows), table(num_rows).to_batches()) for num_rows in (3, 200_000)]
        assert all(uri.startswith("fabric://127.0.0.1:") and f"/{provider}?" in uri for uri in uris)
        assert all(("remote_handle" in uri) is shares_memory for uri in uris)
        command = [sys.executable, "-c", CLIENT, *uris]
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (output.stdout.split(), output.stderr) == (["3", "200000"], "")
