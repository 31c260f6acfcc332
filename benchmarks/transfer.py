"""Transfer 1 GB to another process until it is usable, the first value of each column read; and three rows.

The peer is Arrow Flight on the same host, over TCP and a unix socket, with its best batch size. All times include the
connection and the whole protocol.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

import bowstring
from benchmarks import datasets
from benchmarks.flight_server import FLIGHT_OPTIONS, SMALL
from benchmarks.measure import Candidate, Measurement, Settings, Timings, compare_calls, compare_timings, measure
from benchmarks.worker import WorkerProcess
from bowstring_networks.ucx.transport import UCX, UcxOptions

_BYTES = 1_000_000_000
_QUICK_BYTES = 100_000_000
_BATCHES = 16
_COLUMNS = 10
_CHUNKS_PER_BATCH = (1, 4, 16)
_SMALL_TICKET = flight.Ticket(SMALL)
_IN_PLACE_BOUND, _TCP_BOUND, _COPY_BOUND, _ARENA_BOUND, _FILE_BOUND = 0.01, 0.7, 0.7, 0.2, 1.1
_OPEN_CONNECTION_BOUND, _NEW_CONNECTION_BOUND = 0.5, 0.7
_UCX_MAPPED_BOUND, _UCX_COPY_BOUND = 0.01, 0.3
_SMALL_READS, _SMALL_CONNECTIONS, _SMALL_CLIENTS, _SMALL_CLIENTS_BOUND = 200, 20, 4, 1.0


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure methods that use the memory in place, then methods that first copy the table."""
    path, size_bytes = folder / "table.arrow", _QUICK_BYTES if settings.is_quick else _BYTES
    rows = _write_table(path, size_bytes)
    size = f"{path.stat().st_size / 1e9:.2g} GB"
    socket_path = folder / "flight.sock"
    try:
        with WorkerProcess("transfer_server", str(path), str(socket_path)) as server:
            tcp = f"grpc://127.0.0.1:{server.ready['tcp_port']}"
            chunk_rows = best_chunk_rows(tcp, rows)
            _check_equal_columns(tcp, chunk_rows, server.ready)
            over_tcp = Candidate.of_call("Flight, TCP", partial(fetch_with_flight, tcp, chunk_rows))
            over_unix = Candidate.of_call(
                "Flight, unix socket", partial(fetch_with_flight, f"grpc+unix://{socket_path}", chunk_rows)
            )
            timings = measure((over_tcp, over_unix, *_candidates_in_place(server)), settings)
            yield from _compare_each(size, _IN_PLACE_BOUND, timings[:2], timings[2:])
            # Before the others: files that are written and deleted fragment the memory from which sockets take theirs.
            sent = Candidate.of_call("shared memory served over TCP", partial(_read_columns, server.ready["sent"]))
            timings = measure((over_tcp, sent), settings)
            yield from _compare_each(size, _TCP_BOUND, timings[:1], timings[1:])
            flights = over_tcp, over_tcp.with_free_memory(2 * size_bytes, "Flight, TCP, free memory")
            copies = [candidate.with_free_memory(2 * size_bytes) for candidate in _candidates_with_copy(server)]
            timings = measure((*flights, *copies), settings)
            added, shared, reused, file = timings[2:]
            yield from _compare_each(size, _COPY_BOUND, timings[:2], (added, shared))
            yield from _compare_each(size, _ARENA_BOUND, timings[:2], (reused,))
            yield compare_timings(f"{size}, {shared.name}, or written as a file", _FILE_BOUND, shared, [file])
            sums, pa_sums = measure(
                (
                    Candidate.of_call(
                        "an Arrow file served, all numbers summed", lambda: _column_sums(server.ready["file"])
                    ),
                    Candidate.of_call("Flight, TCP", lambda: _column_sums_with_flight(tcp, chunk_rows)),
                ),
                settings.for_long_calls(),
            )
            yield from _compare_each(size, None, [pa_sums], [sums])
            yield from _measure_ucx(size, server.ready["ucx"], over_tcp, settings)
            yield from _measure_small(server, tcp, settings)
            yield _measure_small_clients(server.ready["small"], tcp, settings)
    finally:
        path.unlink()


def _measure_ucx(size: str, uri: str, peer: Candidate, settings: Settings) -> Iterator[Measurement]:
    """Measure reads over UCX on an open connection, because opening one takes longer than mapping the table."""
    UCX.configure(UcxOptions(shares_memory=True))
    with bowstring.connect(uri) as mapped, bowstring.connect(uri, copy=True) as copied:
        flight_timings, *timings = measure(
            (
                peer,
                Candidate.of_call("UCX, mapped, open connection", lambda: access_columns(mapped.read_all())),
                Candidate.of_call("UCX, copied, open connection", lambda: access_columns(copied.read_all())),
            ),
            settings.for_long_calls(),
        )
    for bound, each in zip((_UCX_MAPPED_BOUND, _UCX_COPY_BOUND), timings, strict=True):
        yield compare_timings(f"{size}, {each.name}", bound, each, [flight_timings])


def _measure_small(server: WorkerProcess, tcp: str, settings: Settings) -> Iterator[Measurement]:
    """Measure reads of three rows, again on an open connection and with a new one."""
    uri = server.ready["small"]
    with flight.FlightClient(tcp) as client, bowstring.connect(uri) as dataset:
        assert pa.table(dataset.read_all()).equals(client.do_get(_SMALL_TICKET).read_all())
        yield compare_calls(
            "three rows, again on an open connection",
            _OPEN_CONNECTION_BOUND,
            lambda: [dataset.read_all() for _ in range(_SMALL_READS)],
            {"Flight, TCP": lambda: [client.do_get(_SMALL_TICKET).read_all() for _ in range(_SMALL_READS)]},
            settings,
        )
    yield compare_calls(
        "three rows, new connection",
        _NEW_CONNECTION_BOUND,
        lambda: [_read_columns(uri) for _ in range(_SMALL_CONNECTIONS)],
        {"Flight, TCP": lambda: [_fetch_small_with_flight(tcp) for _ in range(_SMALL_CONNECTIONS)]},
        settings,
    )


def _measure_small_clients(uri: str, location: str, settings: Settings) -> Measurement:
    """Measure how long processes take that read three rows again and again at once."""
    with ExitStack() as stack:
        clients = [stack.enter_context(WorkerProcess("small_clients", uri, location)) for _ in range(_SMALL_CLIENTS)]

        def read(method: str) -> None:
            for client in clients:
                client.send(method, repeats=_SMALL_READS)
            assert [client.receive()["rows"] for client in clients] == [3 * _SMALL_READS] * _SMALL_CLIENTS

        line = f"three rows, {_SMALL_CLIENTS} clients at once on open connections"
        peers = {"Flight, TCP": partial(read, "read_with_flight")}
        return compare_calls(line, _SMALL_CLIENTS_BOUND, partial(read, "read"), peers, settings)


def _fetch_small_with_flight(location: str) -> Any:
    with flight.FlightClient(location) as client:
        return access_columns(client.do_get(_SMALL_TICKET).read_all())


def _write_table(path: Path, size_bytes: int) -> int:
    """Write an Arrow file of about this size; return the number of rows of a batch."""
    random = np.random.default_rng(2026)
    row_bytes = datasets.mixed_batch(random, 10_000, _COLUMNS).nbytes / 10_000
    rows = int(size_bytes / _BATCHES / row_bytes)
    datasets.write_file(path, [datasets.mixed_batch(random, rows, _COLUMNS) for _ in range(2)], _BATCHES)
    return rows


def _candidates_in_place(server: WorkerProcess) -> tuple[Candidate, ...]:
    """The methods that pass the server's memory to this process."""
    file, memory = server.ready["file"], server.ready["memory"]
    handle = _receive_handle(server)
    return (
        Candidate.of_call("an Arrow file served", partial(_read_columns, file)),
        Candidate.of_call("shared memory served", partial(_read_columns, memory)),
        Candidate.of_call("shared memory attached by handle", lambda: access_columns(bowstring.attach(handle))),
    )


def _candidates_with_copy(server: WorkerProcess) -> tuple[Candidate, ...]:
    """The methods that first copy the table to shared memory."""

    def add() -> object:
        return _read_columns(server.request("add")["uri"])

    def share(is_reused: bool) -> object:
        return access_columns(bowstring.attach(_receive_handle(server, is_reused)))

    def map_file() -> object:
        return access_columns(datasets.read_with_pyarrow(server.request("write_file")["path"]))

    free_handle = partial(server.request, "unshare")
    return (
        Candidate.of_call("copied, then served", add, teardown=partial(server.request, "remove")),
        Candidate.of_call("copied, then attached by handle", partial(share, False), teardown=free_handle),
        Candidate.of_call("copied to an arena, then attached by handle", partial(share, True), teardown=free_handle),
        Candidate.of_call("written as a file by pyarrow", map_file, teardown=partial(server.request, "delete_file")),
    )


def _compare_each(
    size: str, bound: float | None, peers: Sequence[Timings], candidates: Sequence[Timings]
) -> Iterator[Measurement]:
    for timings in candidates:
        yield compare_timings(f"{size}, {timings.name}", bound, timings, peers)


def _read_columns(uri: str) -> Any:
    with bowstring.connect(uri) as dataset:
        return access_columns(dataset.read_all())


def access_columns(table: Any) -> Any:
    """Return the columns of a table of either library. Reads the first value of each, to be sure that it is usable."""
    for column in table.columns:
        _ = column[0]
    return table.columns


def _receive_handle(server: WorkerProcess, is_reused: bool = False) -> bowstring.sharing.SharedTableHandle:
    reply = server.request("share", is_reused=is_reused)
    handle: bowstring.sharing.SharedTableHandle = pickle.loads(base64.b64decode(reply["handle"]))
    return handle


def fetch_with_flight(location: str, chunk_rows: int) -> Any:
    """The columns of a table, in messages of this many rows."""
    with flight.FlightClient(location, generic_options=list(FLIGHT_OPTIONS)) as client:
        return access_columns(client.do_get(flight.Ticket(str(chunk_rows).encode())).read_all())


def best_chunk_rows(location: str, rows: int) -> int:
    """The rows of a Flight message for which it is fastest: a whole batch, a quarter or a sixteenth."""
    chunks = {str(rows // divisor): rows // divisor for divisor in _CHUNKS_PER_BATCH}
    candidates = [
        Candidate.of_call(name, partial(fetch_with_flight, location, count)) for name, count in chunks.items()
    ]
    return chunks[min(measure(candidates, Settings(2)), key=lambda timings: min(timings.seconds)).name]


def _column_sums(uri: str) -> list[Any]:
    return [
        sum(chunk.to_numpy().sum() for chunk in column.chunks)
        for column in _read_columns(uri)
        if column.type in (bowstring.int64(), bowstring.float64())
    ]


def _column_sums_with_flight(location: str, chunk_rows: int) -> list[Any]:
    columns = fetch_with_flight(location, chunk_rows)
    return [pa.compute.sum(column).as_py() for column in columns if column.type in (pa.int64(), pa.float64())]


def _check_equal_columns(location: str, chunk_rows: int, uris: dict[str, str]) -> None:
    """Compare the columns of each method."""
    expected = fetch_with_flight(location, chunk_rows)
    for name in ("file", "memory", "sent"):
        columns = [pa.chunked_array(column) for column in _read_columns(uris[name])]
        is_equal = all(column.equals(other) for column, other in zip(columns, expected, strict=True))
        assert is_equal, f"{name}: the columns differ from those of Flight"
