"""Read one column of a wide file from a store with 20 ms latency, and open the same file from a memory map.

The store answers any number of ranges in one round trip, like an object store that is read in parallel. The peer is
pyarrow on the same store: as a file, with and without threads, and as a dataset.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import bowstring
from benchmarks import datasets
from benchmarks.measure import Candidate, Measurement, Settings, compare, compare_calls
from benchmarks.reading import clear_schema_cache, open_with_bowstring, open_with_pyarrow

_LATENCY_S = 0.02
_MAX_ROUND_TRIPS = 4
_OPEN_BOUND = 0.5
_ROWS = 20


class LatencyFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of the store, read ahead in blocks of 5 MB, which is fsspec's default."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.cat_file(self.path, start, end)
        return content


class LatencyFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Local files behind a delay: each request takes `_LATENCY_S`, whatever the number of ranges."""

    protocol = "latency"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.round_trips = 0

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of a file."""
        self._wait()
        return {"name": path, "size": Path(path).stat().st_size, "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of one range."""
        return self.cat_ranges([path], [start], [end])[0]

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **_: Any) -> list[bytes]:
        """The bytes of all ranges, in one round trip."""
        self._wait()
        ranges = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                ranges.append(memory[start:end])
        return ranges

    def _open(self, path: str, mode: str = "rb", **options: Any) -> LatencyFile:
        return LatencyFile(self, path, mode, **{**options, "block_size": 5 << 20})

    def _wait(self) -> None:
        self.round_trips += 1
        time.sleep(_LATENCY_S)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure round trips and time from the store, then opening the mapped file."""
    columns, batches = (1000, 10) if settings.is_quick else (10_000, 100)
    path = folder / "widest.arrow"
    random = np.random.default_rng(2026)
    variants = [datasets.mixed_batch(random, _ROWS, columns) for _ in range(2)]
    datasets.write_file(path, variants, batches)
    size = f"{columns:,} columns × {batches} batches"
    index = columns // 2 + 1
    name = variants[0].schema.names[index]
    try:
        yield from _measure_store(str(path), f"one column of {size}, 20 ms latency", index, name, settings)
        yield from _measure_open(str(path), size, index, name, settings)
    finally:
        path.unlink()


def _measure_store(path: str, line: str, index: int, name: str, settings: Settings) -> Iterator[Measurement]:
    store = LatencyFileSystem()
    column = pa.chunked_array(_read_column(path, name, store))
    assert column.equals(_read_file_column_with_pyarrow(path, name, index, True)), (
        "Bowstring and pyarrow read different values"
    )
    yield Measurement(f"{line}: round trips", store.round_trips, _MAX_ROUND_TRIPS, "round trips")
    peers = {
        "pyarrow open_file": partial(_read_file_column_with_pyarrow, path, name, index, False),
        "pyarrow open_file, threads": partial(_read_file_column_with_pyarrow, path, name, index, True),
        "pyarrow dataset": partial(_read_dataset_column_with_pyarrow, path, name),
    }
    yield compare(
        line,
        1.0,
        Candidate.of_call("bowstring", lambda: _read_column(path, name, LatencyFileSystem()), clear_schema_cache),
        [Candidate.of_call(peer, call) for peer, call in peers.items()],
        settings.for_long_calls(),
    )


def _measure_open(path: str, size: str, index: int, name: str, settings: Settings) -> Iterator[Measurement]:
    yield compare_calls(
        f"open a mapped file of {size}",
        _OPEN_BOUND,
        partial(open_with_bowstring, path),
        partial(open_with_pyarrow, path),
        settings,
        clear_schema_cache,
    )
    yield compare_calls(
        "open it and read a column of the first batch",
        _OPEN_BOUND,
        partial(_read_first_column, path, name),
        {
            "pyarrow open_file": partial(_read_first_column_with_pyarrow, path, index, False),
            "pyarrow open_file, included_fields": partial(_read_first_column_with_pyarrow, path, index, True),
        },
        settings,
        clear_schema_cache,
    )


def _read_column(path: str, name: str, store: LatencyFileSystem) -> Any:
    with bowstring.open_file(fsspec.core.OpenFile(store, path), columns=[name]) as reader:
        return reader.read_all().column(name)


def _read_file_column_with_pyarrow(path: str, name: str, index: int, use_threads: bool) -> Any:
    file_system = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(LatencyFileSystem()))
    options = pa.ipc.IpcReadOptions(use_threads=use_threads, included_fields=[index])
    with file_system.open_input_file(path) as source:
        return pa.ipc.open_file(source, options=options).read_all().column(name)


def _read_dataset_column_with_pyarrow(path: str, name: str) -> Any:
    file_system = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(LatencyFileSystem()))
    return pa.dataset.dataset(path, format="ipc", filesystem=file_system).to_table(columns=[name])


def _read_first_column(path: str, name: str) -> object:
    with bowstring.open_file(path, columns=[name]) as reader:
        return reader[0].column(0)


def _read_first_column_with_pyarrow(path: str, index: int, is_selected: bool) -> object:
    options = pa.ipc.IpcReadOptions(included_fields=[index] if is_selected else None)
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).get_batch(0).column(0 if is_selected else index)
