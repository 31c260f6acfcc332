"""From one process until usable in another. The peer is Arrow Flight over loopback, in batches of the best size.

Usable: a table whose columns are all at hand as arrays. Every time includes connecting and the whole protocol.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

import bowstring
from benchmarks import data
from benchmarks.child import Child
from benchmarks.sender import FLIGHT_OPTIONS
from benchmarks.timing import Contender, Effort, Outcome, Times, race, timed, with_memory

GROUP = "transfer"
_BYTES = 1_000_000_000
_QUICK_BYTES = 100_000_000
_BATCHES = 16
_COLUMNS = 10
_CHUNKS = (1, 4, 16)
_THERE, _COPIED = 0.01, 0.7


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Race against Flight: those who copy nothing, and those who do."""
    path, size_bytes = folder / "table.arrow", _QUICK_BYTES if effort.quick else _BYTES
    rows = _write(path, size_bytes)
    size = f"{path.stat().st_size / 1e9:.2g} GB"
    try:
        with Child("sender", str(path), str(folder / "flight.sock")) as sender:
            tcp = f"grpc://127.0.0.1:{sender.ready['tcp_port']}"
            chunk = _best_chunk(tcp, rows)
            _check(tcp, chunk, sender.ready)
            over_tcp = Contender("Flight, TCP", timed(lambda: _flight(tcp, chunk)))
            unix = f"grpc+unix://{folder / 'flight.sock'}"
            over_unix = Contender("Flight, unix socket", timed(lambda: _flight(unix, chunk)))
            summed = Contender("Flight, TCP", timed(lambda: _their_sums(_flight(tcp, chunk))))
            yield from _outcomes(size, _THERE, race((over_tcp, over_unix, *_there(sender)), effort))
            at_hand = with_memory(replace(over_tcp, name="Flight, TCP, memory at hand"), 2 * size_bytes)
            copied = [with_memory(one, 2 * size_bytes) for one in _copied(sender)]
            yield from _outcomes(size, _COPIED, race((over_tcp, at_hand, *copied), effort))
            ours = Contender("bowstring", timed(lambda: _our_sums(_connect(sender.ready["file"]))))
            our_times, their_times = race((ours, summed), effort.few())
            ratio = our_times.median_s / their_times.median_s
            line = f"{size}, an Arrow file served, numbers summed"
            yield Outcome(GROUP, line, ratio, None, "ratio", our_times, (their_times,))
    finally:
        path.unlink()


def _write(path: Path, size_bytes: int) -> int:
    """An Arrow file of about so many bytes; the rows of a batch."""
    random = np.random.default_rng(2026)
    a_row_bytes = data.mixed(random, 10_000, _COLUMNS).nbytes / 10_000
    rows = int(size_bytes / _BATCHES / a_row_bytes)
    data.write_file(path, [data.mixed(random, rows, _COLUMNS) for _ in range(2)], _BATCHES)
    return rows


def _there(sender: Child) -> tuple[Contender, ...]:
    """Those whose bytes lie where the other process finds them."""
    file, memory = sender.ready["file"], sender.ready["memory"]
    handle = _handle(sender)
    return (
        Contender("an Arrow file served", timed(lambda: _connect(file))),
        Contender("shared memory served", timed(lambda: _connect(memory))),
        Contender("shared memory attached by its handle", timed(lambda: bowstring.attach(handle).columns)),
    )


def _copied(sender: Child) -> tuple[Contender, ...]:
    """Those who copy the table into shared memory first."""

    def served() -> object:
        return _connect(sender.ask("copy")["uri"])

    def shared() -> object:
        return bowstring.attach(_handle(sender)).columns

    return (
        Contender("copied in first, then served", timed(served, after=lambda: sender.ask("forget"))),
        Contender("copied in first, then shared by a handle", timed(shared, after=lambda: sender.ask("unshare"))),
    )


def _outcomes(size: str, bound: float, found: tuple[Times, ...]) -> Iterator[Outcome]:
    peers, ours = found[:2], found[2:]
    for times in ours:
        best = min(peers, key=lambda peer: peer.median_s)
        yield Outcome(GROUP, f"{size}, {times.name}", times.median_s / best.median_s, bound, "ratio", times, peers)


def _connect(uri: str) -> Any:
    with bowstring.connect(uri) as dataset:
        return dataset.read_all().columns


def _handle(sender: Child) -> bowstring.Handle:
    """A handle that came through the pipe between the two."""
    handle: bowstring.Handle = pickle.loads(base64.b64decode(sender.ask("share")["handle"]))
    return handle


def _flight(location: str, rows: int) -> Any:
    with flight.FlightClient(location, generic_options=list(FLIGHT_OPTIONS)) as client:
        return client.do_get(flight.Ticket(str(rows).encode())).read_all().columns


def _best_chunk(location: str, rows: int) -> int:
    """The rows of a Flight message with which it is quickest: a whole batch, a quarter, a sixteenth."""
    chunks = {str(rows // share): rows // share for share in _CHUNKS}
    contenders = [Contender(name, timed(partial(_flight, location, chunk))) for name, chunk in chunks.items()]
    return chunks[min(race(contenders, Effort(2)), key=lambda times: min(times.seconds)).name]


def _our_sums(columns: Any) -> list[Any]:
    return [
        sum(chunk.to_numpy().sum() for chunk in column.chunks)
        for column in columns
        if column.type in (bowstring.int64(), bowstring.float64())
    ]


def _their_sums(columns: Any) -> list[Any]:
    return [pa.compute.sum(column).as_py() for column in columns if column.type in (pa.int64(), pa.float64())]


def _check(location: str, chunk: int, uris: dict[str, str]) -> None:
    """The same arrives on every way."""
    theirs = _flight(location, chunk)
    for name in ("file", "memory"):
        ours = [pa.chunked_array(column) for column in _connect(uris[name])]
        assert all(a.equals(b) for a, b in zip(ours, theirs, strict=True)), f"{name}: not what Flight brings"
