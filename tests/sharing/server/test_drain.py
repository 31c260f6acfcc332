"""Servers that end: what clients get until then, and after which signal."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.server.signals import catch_signals
from bowstring.transports.sockets.unix import encode_unix_address
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess

SERVE = """
import signal
import bowstring as bs, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background processes ignore
table = bs.Table.from_batches([bs.record_batch({"a": np.arange(rows) + n}) for n in range(batches)])
server = bs.serve({"t": table}, scheme=scheme)
send(server.uri("t"))
try: send(server.serve_forever(drain_s))
except KeyboardInterrupt: send("interrupted")
send(repr(server))
"""
NEVER_INLINE = ServerOptions(inline_bytes=0)


@pytest.fixture
def server() -> Iterator[Server]:
    with assert_descriptors_closed(), bs.serve({"t": bs.table({"a": np.arange(1000)})}, options=NEVER_INLINE) as server:
        yield server


def signal_server(other: PythonProcess, uri: str, number: signal.Signals) -> None:
    """Send a signal to a server once it waits for one, and wait until it listens no more."""
    assert wait_until(lambda: is_signal_handled(other.process.pid, signal.SIGTERM))
    other.process.send_signal(number)
    assert wait_until(lambda: not is_listening(uri))


def is_signal_handled(pid: int, number: signal.Signals) -> bool:
    (handled_mask,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(handled_mask, 16) >> (number - 1) & 1)


def is_listening(uri: str) -> bool:
    try:
        bs.connect(uri, timeout_s=20).close()
    except ConnectionLostError:
        return False
    return True


@contextmanager
def draining(server: Server, timeout_s: float = 60.0) -> Iterator[Future[bool]]:
    """Drain in another thread; the server has begun with it."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.drain, timeout_s)
        assert wait_until(lambda: server._acceptors[0].listener.is_closed)
        yield future


def serve_in_other_process(rows: int, batches: int, *, scheme: str = "tcp", drain_s: float = 60.0) -> PythonProcess:
    return PythonProcess(SERVE, rows=rows, batches=batches, scheme=scheme, drain_s=drain_s)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_after_a_signal_when_its_streams_are_sent(number: signal.Signals) -> None:
    rows, batches = 1 << 20, 8  # 64 MB, more than the buffers of the sockets
    with serve_in_other_process(rows, batches) as other:
        uri = other.receive()
        with bs.connect(uri) as dataset:
            stream = iter(dataset)
            sums = [int(next(stream).column(0).to_numpy().sum())]
            signal_server(other, uri, number)
            sums += [int(batch.column(0).to_numpy().sum()) for batch in stream]
        assert sums == [int((np.arange(rows) + n).sum()) for n in range(batches)]
        assert other.receive() is True
        assert "closed" in other.receive()
        assert other.process.wait(30) == 0


def test_a_second_signal_ends_a_server_that_waits_for_its_clients() -> None:
    with serve_in_other_process(1 << 16, 3, scheme="unix") as other:
        uri = other.receive()
        with bs.connect(uri) as dataset:
            table = dataset.read_all()
            signal_server(other, uri, signal.SIGINT)
            other.process.send_signal(signal.SIGINT)
            assert other.receive() == "interrupted"
        assert table.num_rows == 3 << 16


def test_a_client_keeps_its_leases_until_it_frees_them(server: Server) -> None:
    with bs.connect(server.uri("t")) as dataset:
        table = dataset.read_all()
        with draining(server) as drained:
            assert not drained.done()
            assert server.num_clients == 1
            assert table["a"].to_pylist() == list(range(1000))
            del table
            assert drained.result(30) is True
        with pytest.raises(ConnectionLostError):
            dataset.read_all()


def test_the_leases_of_a_client_end_with_the_time_for_draining(server: Server) -> None:
    with bs.connect(server.uri("t")) as dataset:
        table = dataset.read_all()
        assert server.drain(0.1) is False
        assert server.num_clients == 0
        assert table["a"].to_pylist() == list(range(1000))
    assert server.drain() is True


def test_a_client_that_has_finished_does_not_delay_the_end(server: Server) -> None:
    with bs.connect(server.uri("t")) as dataset:
        assert dataset.read_all().num_rows == 1000
        assert wait_until(lambda: not any(client._connection.leases for client in server._clients.accepted.active))
        assert server.num_clients == 1
        assert server.drain(60.0) is True


def test_a_connection_without_a_request_is_refused(server: Server) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.settimeout(20)
        silent.connect(encode_unix_address(parse_uri(server.uri("t")).address))
        assert wait_until(lambda: server.num_clients == 1)
        assert server.drain(60.0) is True
        assert b"shutting down" in silent.recv(1000)


def test_a_request_of_a_client_with_leases_is_refused(server: Server) -> None:
    with bs.connect(server.uri("t")) as dataset:
        table = dataset.read_all()
        with draining(server) as drained:
            with pytest.raises(ConnectionLostError):  # it has tried a new connection, too
                dataset.read_all()
            assert drained.result(30) is True
        assert table.num_rows == 1000


def test_a_closed_server_has_nothing_to_drain(server: Server) -> None:
    server.close()
    assert server.drain() is True
    with pytest.raises(ClosedError):
        server.serve_forever()


def test_the_previous_handlers_and_descriptor_return_after_the_signal() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGTERM,))
    timer.start()
    with assert_descriptors_closed(), catch_signals() as wait_for_signal:
        assert wait_for_signal() is signal.SIGTERM
    timer.join()
    assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    assert signal.set_wakeup_fd(-1) == -1


def test_signals_are_handled_only_in_the_main_thread(server: Server) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidArgumentError, match="only in the main thread"):
        pool.submit(server.serve_forever).result()
