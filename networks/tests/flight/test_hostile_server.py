"""A hostile Flight server: our client gets an error of ours or valid data, in little memory, and exits normally."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bowstring.errors import DeadlineError, InvalidDataError, LimitError, NotFoundError
from tests.sharing.python_process import PythonProcess

SERVE = r"""
import time, numpy as np, pyarrow as pa, pyarrow.flight as flight
batch = pa.record_batch({"a": list(range(1000))})
empty, zeros = batch.slice(0, 0), pa.record_batch({"a": pa.array(np.zeros(1 << 26, np.int64))})
nested = pa.int64()
for _ in range(70): nested = pa.list_(nested)
text = "x" * (100 << 10)
locations = [f"grpc://{text}", "unix:/etc/passwd?want_data=1", "file:///etc/passwd", "http://169.254.169.254/latest",
             "grpc://127.0.0.1:1", "grpc+unix:///nobody", "a:b", "tcp://0.0.0.0:1?want_data=1"]
class Hostile(flight.FlightServerBase):
    def get_flight_info(self, context, descriptor):
        name = descriptor.path[0].decode() if descriptor.path else descriptor.command.decode()
        schema, endpoints = batch.schema, [flight.FlightEndpoint(name.encode(), [])]
        if name == "many endpoints": endpoints = [flight.FlightEndpoint(b"one", [])] * 65537
        if name == "a large ticket": endpoints = [flight.FlightEndpoint(bytes(17 << 20), [])]
        if name == "nested": schema, endpoints = pa.schema([("a", nested)]), []
        if name == "locations": endpoints = [flight.FlightEndpoint(b"one", locations)]
        if name == "loop": endpoints = [flight.FlightEndpoint(b"none", [f"grpc://127.0.0.1:{self.port}"] * 60)]
        if name == "slow info": time.sleep(4)
        return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)
    def do_get(self, context, ticket):
        name = ticket.ticket.decode()
        def batches():
            while name == "endless": yield batch
            while name == "endless without rows": yield empty, bytes(100)
            while name == "slow": yield batch; time.sleep(4)
            if name == "none": raise KeyError(name)
            yield batch
        if name == "another schema": return flight.RecordBatchStream(pa.table({"b": ["x"]}))
        if name == "compressed":
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(zeros.schema, zeros), options=options)
        return flight.GeneratorStream(batch.schema, batches())
server = Hostile("grpc://127.0.0.1:0")
send(server.port)
receive()
"""
READ = """
import itertools, sys
import pyarrow.flight
import bowstring as bs
from tests.peak_memory import peak_bytes
port, name, timeout_s = sys.argv[1:]
before, outcome = peak_bytes(), "end"
try:
    with bs.connect(f"grpc://127.0.0.1:{port}/{name.replace(' ', '%20')}", timeout_s=float(timeout_s)) as dataset:
        for batch in itertools.islice(dataset, 5000):
            assert batch.num_rows in (0, 1000), batch
except bs.errors.BowstringError as error:
    assert len(str(error)) < 5000, len(str(error))
    outcome = type(error).__name__
print(outcome, peak_bytes() - before >> 20)
"""
END = "end"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with PythonProcess(SERVE) as server:
        yield server.receive()


@pytest.mark.parametrize(
    ("name", "timeout_s", "outcome"),
    [
        ("many endpoints", 20, LimitError),
        ("a large ticket", 20, InvalidDataError),
        ("nested", 20, LimitError),
        ("locations", 20, END),
        ("loop", 20, NotFoundError),
        ("slow info", 1, DeadlineError),
        ("endless", 20, END),
        ("endless without rows", 20, END),
        ("slow", 1, DeadlineError),
        ("one", 20, END),
    ],
)
def test_a_hostile_flight_server_gets_no_more_memory_or_time(
    port: int, name: str, timeout_s: int, outcome: type[Exception] | str
) -> None:
    name_of_outcome, num_mib = read(port, name, timeout_s)
    assert name_of_outcome == (outcome if isinstance(outcome, str) else outcome.__name__)
    assert num_mib < 100


def test_a_process_that_decompresses_a_batch_of_a_flight_server_exits_normally(port: int) -> None:
    """pyarrow can't be interrupted then, and would crash. 32 KB become 512 MiB; no option limits that."""
    # The first batch is received ahead.
    code = f"import bowstring as bs; bs.connect('grpc://127.0.0.1:{port}/compressed', timeout_s=20)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (process.returncode, process.stderr) == (0, "")


def read(port: int, name: str, timeout_s: float) -> tuple[str, int]:
    """Read a data set in another process; return what it ends with and how much memory it takes, in MiB."""
    command = [sys.executable, "-c", READ, str(port), name, str(timeout_s)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    outcome, num_mib = process.stdout.split()
    return outcome, int(num_mib)
