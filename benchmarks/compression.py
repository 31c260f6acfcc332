"""Compressed files, written and read, at default levels. The peer is pyarrow, with threads and without.

One column in ten is raced against pyarrow reading all of them, as a reader that decompresses everything would, and
against pyarrow reading the one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed

GROUP = "compression"
CODECS = ("lz4", "zstd")
_COLUMNS, _BATCHES, _ROWS = 10, 6, 200_000
_ONE = 3


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure writing, reading all columns, and reading one."""
    random = np.random.default_rng(2026)
    rows = effort.rows(_ROWS)
    stream = data.as_stream([data.mixed(random, rows, _COLUMNS) for _ in range(2)], _BATCHES)
    ours, theirs = bowstring.open_stream(stream).read_all(), pa.ipc.open_stream(stream).read_all()
    for codec in CODECS:
        line = f"{codec}, {_COLUMNS} columns × {_BATCHES} batches of {rows:,} rows"
        yield from _lines(codec, line, (ours, theirs), folder, effort)


def _lines(
    codec: str, line: str, tables: tuple[bowstring.Table, Any], folder: Path, effort: Effort
) -> Iterator[Outcome]:
    ours, theirs = tables
    path, other = str(folder / f"ours-{codec}.arrow"), str(folder / f"theirs-{codec}.arrow")
    _write_ours(ours, path, codec)
    assert data.read_by_pyarrow(path).equals(theirs), "what Bowstring wrote differs from its table"
    peers = [
        Contender("pyarrow", timed(lambda: _write_theirs(theirs, other, codec, True))),
        Contender("pyarrow, one thread", timed(lambda: _write_theirs(theirs, other, codec, False))),
    ]
    written = Contender("bowstring", timed(lambda: _write_ours(ours, path, codec)))
    yield compare((GROUP, f"write {line}"), 1.1, written, peers, effort)
    every = [
        Contender("pyarrow", timed(lambda: _read_theirs(other, True, None))),
        Contender("pyarrow, one thread", timed(lambda: _read_theirs(other, False, None))),
    ]
    read = Contender("bowstring", timed(lambda: _read_ours(other)))
    yield compare((GROUP, f"read {line}"), 1.3, read, every, effort)
    one = Contender("bowstring", timed(lambda: bowstring.open_file(other).column(_ONE).chunks))
    yield compare((GROUP, f"read one column of {line}"), 0.3, one, every, effort)
    selected = [Contender("pyarrow", timed(lambda: _read_theirs(other, True, [_ONE])))]
    yield compare((GROUP, f"the same, pyarrow reads but this one, of {line}"), None, one, selected, effort)
    os.unlink(path)
    os.unlink(other)


def _write_ours(table: bowstring.Table, path: str, codec: str) -> None:
    with bowstring.new_file(path, table.schema, compression=codec) as writer:
        writer.write_table(table)


def _write_theirs(table: Any, path: str, codec: str, use_threads: bool) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=use_threads)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _read_ours(path: str) -> list[Any]:
    return [batch.columns for batch in bowstring.open_file(path)]


def _read_theirs(path: str, use_threads: bool, columns: list[int] | None) -> Any:
    options = pa.ipc.IpcReadOptions(use_threads=use_threads, included_fields=columns)
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).read_all()
