"""Serve many clients over TCP: the rate of all of them, and the memory of the server of a large file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bowstring
from benchmarks.measure import Candidate, Measurement, Settings, compare_timings, measure
from benchmarks.worker import WorkerProcess

_CLIENTS, _QUICK_CLIENTS = 64, 8
_PROCESSES = 2
_TABLE_BYTES, _QUICK_TABLE_BYTES = 100_000_000, 10_000_000
_FILE_BYTES, _QUICK_FILE_BYTES = 10_000_000_000, 1_000_000_000
_BATCH_BYTES = 4_000_000
_TIME_BOUND = 1.25
"""64 clients have at least 0.8 of the rate of one."""
_MEMORY_BOUND_MB = 60
_INTERVAL_S = 0.02


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Compare many clients that read at once with one that reads as much; then read a large file once."""
    path = folder / "serving.arrow"
    try:
        yield _measure_clients(path, settings)
        yield _measure_memory(path, _QUICK_FILE_BYTES if settings.is_quick else _FILE_BYTES)
    finally:
        path.unlink(missing_ok=True)


def _measure_clients(path: Path, settings: Settings) -> Measurement:
    size_bytes, count = (_QUICK_TABLE_BYTES, _QUICK_CLIENTS) if settings.is_quick else (_TABLE_BYTES, _CLIENTS)
    rows = _write_file(path, size_bytes)
    with WorkerProcess("serving_server", str(path)) as server, ExitStack() as stack:
        per_process = count // _PROCESSES
        workers = [
            stack.enter_context(WorkerProcess("serving_clients", server.ready["table"], str(per_process)))
            for _ in range(_PROCESSES)
        ]

        def read(num_workers: int, num_clients: int, repeats: int) -> None:
            for worker in workers[:num_workers]:
                worker.send("read", num_clients=num_clients, repeats=repeats)
            for worker in workers[:num_workers]:
                assert worker.receive()["rows"] == [rows * repeats] * num_clients

        one, many = measure(
            (
                Candidate.of_call("one client, as many bytes", partial(read, 1, 1, count)),
                Candidate.of_call(f"{count} clients", partial(read, _PROCESSES, per_process, 1)),
            ),
            settings.for_long_calls(),
        )
    return compare_timings(
        f"{count} clients read {size_bytes / 1e6:g} MB each at once over TCP", _TIME_BOUND, many, [one]
    )


def _measure_memory(path: Path, size_bytes: int) -> Measurement:
    """Measure the anonymous resident memory of a server while a client reads the whole file."""
    rows = _write_file(path, size_bytes)
    with WorkerProcess("serving_server", str(path)) as server, bowstring.connect(server.ready["table"]) as dataset:
        peak, is_read = 0, threading.Event()

        def sample_until_read() -> None:
            nonlocal peak
            is_last = False
            while not is_last:
                is_last = is_read.wait(_INTERVAL_S)
                peak = max(peak, server.request("memory")["anonymous_bytes"])

        thread = threading.Thread(target=sample_until_read)
        thread.start()
        try:
            assert sum(batch.num_rows for batch in dataset) == rows
        finally:
            is_read.set()
            thread.join()
    line = f"anonymous memory of the server of a file of {size_bytes / 1e9:g} GB"
    return Measurement(line, peak / 1e6, _MEMORY_BOUND_MB, "MB")


def _write_file(path: Path, size_bytes: int) -> int:
    """Write an Arrow file of zeros, which takes no space; return its rows."""
    batch = bowstring.record_batch({"a": np.zeros(_BATCH_BYTES // 8, np.int64)})
    count = max(size_bytes // _BATCH_BYTES, 1)
    with open(path, "wb") as file, bowstring.new_file(_SparseFile(file), batch.schema) as writer:
        for _ in range(count):
            writer.write(batch)
    return count * batch.num_rows


class _SparseFile:
    """A file in which long buffers, which are zeros, become holes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        size_bytes = memoryview(data).nbytes
        if size_bytes < _BATCH_BYTES:
            self._file.write(data)
        else:
            self._file.seek(size_bytes, 1)
        return size_bytes
