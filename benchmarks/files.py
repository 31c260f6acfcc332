"""One file out of a hundred. The peer reads them, mapped, and writes their batches: pyarrow has no other way.

What both have to do is to move the bytes, so the larger the buffers, the more of the time is the memory's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, writing

GROUP = "files"
_COUNT = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """What is in each file; `compression` is that of its bodies, and of what the peer writes."""

    name: str
    make: Callable[[np.random.Generator, int, int], Any]
    columns: int
    batches: int
    rows: int
    bound: float | None
    compression: str | None = None


SHAPES = (
    Shape("mixed", data.mixed, 1000, 2, 100, bound=0.3),
    Shape("mixed", data.mixed, 100, 2, 1000, bound=None),
    Shape("mixed, LZ4", data.mixed, 100, 2, 1000, bound=0.3, compression="lz4"),
    Shape("strings, ZSTD", data.strings, 4, 4, 10_000, bound=0.3, compression="zstd"),
    Shape("numbers", data.numbers, 10, 2, 20_000, bound=None),
)


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each shape, into a new file."""
    random = np.random.default_rng(2026)
    for shape in SHAPES:
        rows = effort.rows(shape.rows, 10)
        variants = [shape.make(random, rows, shape.columns) for _ in range(2)]
        parts = [folder / f"part-{number}.arrow" for number in range(_COUNT)]
        for path in parts:
            data.write_file(path, variants, shape.batches, shape.compression)
        paths = list(map(str, parts))
        _check(paths, folder, shape)
        line = f"{_COUNT} files, {shape.name}, {shape.columns} columns × {shape.batches} batches of {rows:,} rows"
        yield compare((GROUP, line), shape.bound, *_contenders(paths, folder, shape), effort)
        for path in parts:
            path.unlink()


def _ours(paths: Sequence[str], target: str) -> None:
    bowstring.concat_files(paths, target)


def _batch_by_batch(paths: Sequence[str], target: str, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.memory_map(paths[0]) as source:
        schema = pa.ipc.open_file(source).schema
    with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        for path in paths:
            with pa.memory_map(path) as source:
                reader = pa.ipc.open_file(source)
                for index in range(reader.num_record_batches):
                    writer.write_batch(reader.get_batch(index))


def _as_tables(paths: Sequence[str], target: str, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    tables = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths]
    whole = pa.concat_tables(tables)
    with pa.ipc.new_file(target, whole.schema, options=options) as writer:
        writer.write_table(whole)


def _contenders(paths: Sequence[str], folder: Path, shape: Shape) -> tuple[Contender, list[Contender]]:
    kind = shape.compression
    peers = [
        writing("pyarrow, batch by batch", folder, lambda target: _batch_by_batch(paths, target, kind)),
        writing("pyarrow, tables", folder, lambda target: _as_tables(paths, target, kind)),
    ]
    return writing("bowstring", folder, lambda target: _ours(paths, target)), peers


def _check(paths: Sequence[str], folder: Path, shape: Shape) -> None:
    """What we put together pyarrow reads as what it would have written itself."""
    ours, theirs = str(folder / "ours.arrow"), str(folder / "theirs.arrow")
    _ours(paths, ours)
    _batch_by_batch(paths, theirs, shape.compression)
    with pa.memory_map(ours) as left, pa.memory_map(theirs) as right:
        mine, other = pa.ipc.open_file(left), pa.ipc.open_file(right)
        assert mine.num_record_batches == other.num_record_batches == len(paths) * shape.batches
        assert mine.read_all().equals(other.read_all()), "what Bowstring put together differs"
    for path in (ours, theirs):
        os.unlink(path)
