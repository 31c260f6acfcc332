"""Data sets over TCP, between real processes: plain, with TLS, killed, slow."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import ConnectionLostError, InvalidArgumentError, NotFoundError
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import WANT_DATA
from bowstring.transports.sockets.frames import FRAME_HEADER, MAGIC
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.tls import TlsOptions
from bowstring_testing.descriptors import assert_descriptors_closed, count_open_descriptors
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.transports.certificates import Authority

SERVE = """
import bowstring as bs, numpy as np
from bowstring.sharing.server.options import ServerOptions
table = bs.Table.from_batches([bs.record_batch({"a": np.arange(rows) + n}) for n in range(batches)])
server = bs.serve({"t": table}, options=ServerOptions(**options), scheme=scheme)
send(server.uri("t"))
while True: receive(); send(server.num_clients)
"""
CONNECT = """
import bowstring as bs
dataset = bs.connect(uri)
batches = iter(dataset)
next(batches)
send(None)
receive()
"""
ROWS, BATCHES = 1 << 20, 32  # 256 MB, more than the buffers of the sockets


def serve_in_other_process(scheme: str = "tcp", rows: int = 1000, batches: int = 3, **options: object) -> PythonProcess:
    return PythonProcess(SERVE, scheme=scheme, rows=rows, batches=batches, options=options)


def num_clients(other: PythonProcess) -> int:
    other.send(None)
    count: int = other.receive()
    return count


def connect_socket(uri: str) -> socket.socket:
    return socket.create_connection(parse_address(parse_uri(uri).address), timeout=20)


def batch_sums(table: bs.Table) -> list[int]:
    return [int(chunk.to_numpy().sum()) for chunk in table.column("a").chunks]


def write_file(path: Path, table: bs.Table) -> None:
    with bs.new_file(path, table.schema) as writer:
        writer.write(table)


@pytest.mark.parametrize("rows", [3, 1000, 300_000])
def test_a_table_of_another_process_is_received(rows: int) -> None:
    with serve_in_other_process(rows=rows) as other:
        uri = other.receive()
        assert uri.startswith("tcp://127.0.0.1:")
        with assert_descriptors_closed(), bs.connect(uri) as dataset:
            for _ in range(2):
                assert batch_sums(dataset.read_all()) == [int((np.arange(rows) + n).sum()) for n in range(3)]
        assert wait_until(lambda: num_clients(other) == 0)


def test_files_and_data_sets_of_several_kinds_are_received(tmp_path: Path) -> None:
    table = bs.table({"a": list(range(100_000)), "b": ["text", None] * 50_000})
    write_file(tmp_path / "file.arrow", table)
    with bs.serve({"t": table, "f": tmp_path / "file.arrow"}, scheme="tcp") as server:
        before = count_open_descriptors()
        for name in ("t", "f"):
            with bs.connect(server.uri(name)) as dataset:
                assert dataset.read_all().to_pydict() == table.to_pydict()
        assert wait_until(lambda: count_open_descriptors() == before)  # the server closes its ends in its own thread
        with bs.connect([server.uri("t"), server.uri("f")]) as dataset:
            assert dataset.read_all().num_rows == 200_000
        uri = server.uri("t").replace("ticket=t", "ticket=missing")
        with pytest.raises(NotFoundError, match="no data set 'missing'"):
            bs.connect(uri)


def test_a_file_whose_descriptor_is_released_is_received(tmp_path: Path) -> None:
    write_file(tmp_path / "file.arrow", bs.table({"a": list(range(100_000))}))
    with Server(scheme="tcp") as server:
        uri = server.add("f", tmp_path / "file.arrow")
        for part in server.find_parts("f"):
            part.region.release_descriptor()
        with bs.connect(uri) as dataset:
            assert dataset.read_all().num_rows == 100_000


def test_a_table_is_received_with_tls_and_certificates_of_both_ends(authority: Authority) -> None:
    with serve_in_other_process("tcp+tls", 300_000, tls=authority.server(checks_clients=True)) as other:
        uri = other.receive()
        with assert_descriptors_closed(), bs.connect(uri, tls=authority.client("alice")) as dataset:
            assert batch_sums(dataset.read_all()) == [int((np.arange(300_000) + n).sum()) for n in range(3)]
        with assert_descriptors_closed(), pytest.raises(ConnectionLostError):  # an alert, unless it is late
            bs.connect(uri, tls=authority.client())
        with assert_descriptors_closed(), pytest.raises(ConnectionLostError, match="certificate is not valid"):
            bs.connect(uri)
        with assert_descriptors_closed(), pytest.raises(ConnectionLostError):
            bs.connect(uri.replace("tcp+tls:", "tcp:"))


def test_a_server_at_all_addresses_needs_tls(authority: Authority) -> None:
    with (
        assert_descriptors_closed(),
        pytest.raises(InvalidArgumentError, match="not a loopback address: use tcp\\+tls"),
    ):
        Server("0.0.0.0:0", scheme="tcp")
    with Server("0.0.0.0:0", ServerOptions(tls=authority.server()), scheme="tcp+tls") as server:
        uri = server.add("t", bs.table({"a": [1]}))
        assert uri.startswith(f"tcp+tls://{socket.gethostname()}:")


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_tls_is_refused_by_name_where_it_is_not_supported(scheme: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{scheme}: the option tls is not supported: use tcp\\+tls"):
        Server(options=ServerOptions(tls=TlsOptions()), scheme=scheme)
    with (
        Server(scheme=scheme) as server,
        pytest.raises(InvalidArgumentError, match=f"{scheme}: the option tls is not supported: use tcp\\+tls"),
    ):
        bs.connect(server.add("t", bs.table({"a": [1]})), tls=TlsOptions())


def test_a_server_that_is_killed_in_the_middle_is_a_lost_connection() -> None:
    with serve_in_other_process(rows=ROWS, batches=BATCHES) as other, assert_descriptors_closed():
        with bs.connect(other.receive()) as dataset:
            batches = iter(dataset)
            first = next(batches)
            other.kill()
            with pytest.raises(ConnectionLostError, match="the server disconnected before the end"):
                list(batches)
        assert first.column("a").to_numpy()[-1] == ROWS - 1


def test_the_server_drops_a_client_that_is_killed_in_the_middle() -> None:
    with serve_in_other_process(rows=ROWS, batches=BATCHES) as other:
        with PythonProcess(CONNECT, uri=other.receive()) as client:
            client.receive()
            assert num_clients(other) == 1
            client.kill()
        assert wait_until(lambda: num_clients(other) == 0)


def test_a_slow_client_slows_only_itself() -> None:
    with serve_in_other_process(rows=ROWS, batches=BATCHES) as other:
        uri = other.receive()
        with connect_socket(uri) as slow:
            slow.sendall(FRAME_HEADER.pack(MAGIC, 1, 0, 0, WANT_DATA, 1) + b"t")
            assert slow.recv(100)
            stop = threading.Event()

            def read_slowly() -> None:
                while not stop.is_set() and slow.recv(1000):
                    time.sleep(0.01)

            thread = threading.Thread(target=read_slowly)
            thread.start()
            try:
                with bs.connect(uri) as dataset:
                    assert dataset.read_all().num_rows == ROWS * BATCHES
                assert num_clients(other) >= 1, "the slow client is not connected any more"
            finally:
                stop.set()
                thread.join(20)
        assert wait_until(lambda: num_clients(other) == 0)


def test_clients_that_read_at_once_receive_all_batches_each() -> None:
    rows, batches, clients = 1 << 17, 4, 8  # 4 MB
    everyone_is_connected = threading.Barrier(clients, timeout=20)
    with serve_in_other_process(rows=rows, batches=batches) as other:
        uri = other.receive()

        def read(_: int) -> list[int]:
            with bs.connect(uri) as dataset:
                everyone_is_connected.wait()
                return [sum(batch_sums(dataset.read_all())) for _ in range(2)]

        with assert_descriptors_closed(), ThreadPoolExecutor(clients) as pool:
            expected = sum(int((np.arange(rows) + n).sum()) for n in range(batches))
            assert list(pool.map(read, range(clients))) == [[expected, expected]] * clients
        assert wait_until(lambda: num_clients(other) == 0)


def test_connections_without_a_request_are_limited_and_expire() -> None:
    with serve_in_other_process(max_silent=2, timeout_s=0.5) as other:
        uri = other.receive()
        silent = [connect_socket(uri) for _ in range(4)]
        assert all(connection.recv(1 << 10) for connection in silent[:1]), "the oldest is refused with an error"
        with bs.connect(uri) as dataset:
            assert dataset.read_all().num_rows == 3000
        assert wait_until(lambda: num_clients(other) == 0)
        for connection in silent:
            connection.close()


def test_clients_are_limited() -> None:
    with serve_in_other_process(max_clients=1) as other:
        uri = other.receive()
        with bs.connect(uri) as dataset:
            dataset.read_all()
            with pytest.raises(ConnectionLostError, match="1 clients already"):
                bs.connect(uri)
