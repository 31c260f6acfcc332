"""From one process until usable in another. The peer is Arrow Flight over loopback, in batches of the best size.

Usable: a table whose columns are all at hand as arrays. Every time includes connecting and the whole protocol.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
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
from benchmarks.timing import Contender, Effort, Outcome, Times, race, timed

GROUP = "transfer"
_BYTES = 1_000_000_000
_QUICK_BYTES = 100_000_000
_BATCHES = 16
_COLUMNS = 10
_CHUNKS = (1, 4, 16)
_THERE, _COPIED = 0.01, 0.7


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Race everybody against Flight, in one race."""
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
            found = race((over_tcp, over_unix, *_ours(sender)), effort)
            yield from _outcomes(size, found)
            ours = Contender("bowstring", timed(lambda: _our_sums(_connect(sender.ready["file"]))))
            our_times, their_times = race((ours, summed), effort.few())
            yield _outcome(f"{size}, an Arrow file served, numbers summed", our_times, their_times, None)
    finally:
        path.unlink()


def _write(path: Path, size_bytes: int) -> int:
    """An Arrow file of about so many bytes; the rows of a batch."""
    random = np.random.default_rng(2026)
    a_row_bytes = data.mixed(random, 10_000, _COLUMNS).nbytes / 10_000
    rows = int(size_bytes / _BATCHES / a_row_bytes)
    data.write_file(path, [data.mixed(random, rows, _COLUMNS) for _ in range(2)], _BATCHES)
    return rows


def _ours(sender: Child) -> list[Contender]:
    uris = sender.ready

    def copied_and_served() -> object:
        return _connect(sender.ask("copy")["uri"])

    def copied_and_shared() -> object:
        return bowstring.attach(_handle(sender)).columns

    return [
        Contender(_FILE, timed(lambda: _connect(uris["file"]))),
        Contender(_MEMORY, timed(lambda: _connect(uris["memory"]))),
        Contender(_ATTACHED, _attaching(sender)),
        Contender(_COPIED_SERVED, timed(copied_and_served, after=lambda: sender.ask("forget"))),
        Contender(_COPIED_SHARED, timed(copied_and_shared, after=lambda: sender.ask("unshare"))),
    ]


def _attaching(sender: Child) -> Callable[[], float]:
    """A handle is there before the clock starts."""
    handles: list[bowstring.Handle] = []

    def before() -> None:
        handles.append(_handle(sender))

    def after() -> None:
        handles.clear()
        sender.ask("unshare")

    return timed(lambda: bowstring.attach(handles[0]).columns, before, after)


_FILE = "an Arrow file served"
_MEMORY = "shared memory served"
_ATTACHED = "shared memory attached by its handle"
_COPIED_SERVED = "copied in first, then served"
_COPIED_SHARED = "copied in first, then shared by a handle"
_BOUNDS = {_FILE: _THERE, _MEMORY: _THERE, _ATTACHED: _THERE, _COPIED_SERVED: _COPIED, _COPIED_SHARED: _COPIED}


def _outcomes(size: str, found: tuple[Times, ...]) -> Iterator[Outcome]:
    over_tcp, over_unix, *ours = found
    for times in ours:
        yield _outcome(f"{size}, {times.name}", times, over_tcp, _BOUNDS[times.name])
    for times in ours:
        if times.name in (_FILE, _COPIED_SERVED):
            yield _outcome(f"{size}, {times.name}", times, over_unix, None)


def _outcome(line: str, ours: Times, peer: Times, bound: float | None) -> Outcome:
    return Outcome(GROUP, line, ours.median_s / peer.median_s, bound, "ratio", ours, (peer,))


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
