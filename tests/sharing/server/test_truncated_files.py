"""A file that another process truncates while a server sends it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import BowstringError, DeadlineError
from bowstring.transports.tls import TlsOptions
from networks.tests.ucx.ucp_processes import require_libucp
from tests.sharing.python_process import PythonProcess
from tests.transports.certificates import Authority

SERVE = """
import pickle
import bowstring as bs
from bowstring.sharing.server.options import ServerOptions
options = ServerOptions(tls=tls, max_kept_regions=0)
server = bs.serve({"file": path, "other": bs.table({"a": [1]})}, options=options, scheme=scheme)
if through_flight:
    from bowstring_networks.flight.server import FlightServer
    server = FlightServer(server)
send([server.uri("file"), server.uri("other")])
receive()
"""
FILE_BYTES = 160_000_000
"""More than the sockets buffer, so that the server is still sending."""
TIMEOUT_S = 10.0


@pytest.mark.parametrize("batch_rows", [100, 1000, pytest.param(5000, marks=pytest.mark.thorough), 1_000_000])
@pytest.mark.parametrize("scheme", ["unix", "tcp", "tcp+tls", "ucx", "flight"])
def test_a_client_learns_at_once_that_a_file_was_truncated_and_others_are_served(
    scheme: str, batch_rows: int, tmp_path: Path
) -> None:
    if scheme == "ucx":
        require_libucp()
    server_tls, client_tls = None, None
    if scheme == "tcp+tls":
        authority = Authority.create(tmp_path)
        server_tls, client_tls = authority.server(), authority.client()
    path = write_file(tmp_path / "file.arrow", batch_rows)
    through_flight = scheme == "flight"
    if through_flight:
        scheme = "unix"
    with PythonProcess(SERVE, scheme=scheme, path=str(path), tls=server_tls, through_flight=through_flight) as server:
        uri, other_uri = server.receive()
        read_truncated(uri, path, client_tls)
        with bs.connect(other_uri, tls=client_tls) as dataset:
            assert dataset.read_all().num_rows == 1
        assert server.process.poll() is None


def write_file(path: Path, batch_rows: int) -> Path:
    batch = bs.record_batch({"a": np.arange(batch_rows)})
    num_batches = FILE_BYTES // (8 * batch_rows)
    with bs.new_file(path, batch.schema) as writer:
        for _ in range(min(num_batches, 10_000)):
            writer.write_batch(batch)
    return path


def read_truncated(uri: str, path: Path, tls: TlsOptions | None) -> None:
    """Read copies of a file, which is truncated after the first batch."""
    with (
        pytest.raises(BowstringError) as error,
        bs.connect(uri, copy=True, timeout_s=TIMEOUT_S, tls=tls) as dataset,
    ):
        for _ in dataset:
            os.truncate(path, 4096)
    assert not isinstance(error.value, DeadlineError)
