"""Write and read compressed files at default levels. The peer is pyarrow, with and without threads.

One column is compared with pyarrow reading all columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls

_CODECS = ("lz4", "zstd")
_COLUMNS, _BATCHES, _ROWS = 10, 6, 200_000
_COLUMN = 3
_THREADS = {"pyarrow, threads": True, "pyarrow": False}


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure writing, reading all columns and reading one column, with each codec."""
    random = np.random.default_rng(2026)
    rows = settings.rows(_ROWS)
    stream = datasets.stream_buffer([datasets.mixed_batch(random, rows, _COLUMNS) for _ in range(2)], _BATCHES)
    table, pa_table = bowstring.open_stream(stream).read_all(), pa.ipc.open_stream(stream).read_all()
    for codec in _CODECS:
        line = f"{codec}, {_COLUMNS} columns × {_BATCHES} batches of {rows:,} rows"
        yield from _measure_codec(codec, line, (table, pa_table), folder, settings)


def _measure_codec(
    codec: str, line: str, tables: tuple[bowstring.Table, Any], folder: Path, settings: Settings
) -> Iterator[Measurement]:
    table, pa_table = tables
    path, pa_path = str(folder / f"{codec}.arrow"), str(folder / f"{codec}-pyarrow.arrow")
    _write(table, path, codec)
    assert datasets.read_with_pyarrow(path).equals(pa_table), "the file that Bowstring wrote has other values"
    writers = {name: partial(_write_pyarrow, pa_table, pa_path, codec, threads) for name, threads in _THREADS.items()}
    yield compare_calls(f"write {line}", 1.1, partial(_write, table, path, codec), writers, settings)
    all_columns = {name: partial(datasets.read_with_pyarrow, pa_path, threads) for name, threads in _THREADS.items()}
    yield compare_calls(f"read {line}", 1.3, partial(_read, pa_path), all_columns, settings)
    read_column = partial(_read_column, pa_path)
    yield compare_calls(f"read one column of {line}, pyarrow all columns", 0.3, read_column, all_columns, settings)
    for file in (path, pa_path):
        Path(file).unlink()


def _write(table: bowstring.Table, path: str, codec: Any) -> None:
    with bowstring.new_file(path, table.schema, compression=codec) as writer:
        writer.write_table(table)


def _write_pyarrow(table: Any, path: str, codec: str, use_threads: bool) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=use_threads)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _read(path: str) -> list[Any]:
    return [batch.columns for batch in bowstring.open_file(path)]


def _read_column(path: str) -> object:
    return bowstring.open_file(path).column(_COLUMN).chunks
