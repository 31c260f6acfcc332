"""Concatenate a hundred files into one. The peer maps them and writes their batches, which is pyarrow's only way.

Both have to copy the bytes: the larger the buffers, the more of the time is memory bandwidth.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Candidate, Measurement, Settings, compare

_COUNT = 100
_BOUND = 0.3


@dataclass(frozen=True, slots=True)
class FileShape:
    """The content of each file; `compression` is also that of the file that the peer writes."""

    name: str
    create: Callable[[np.random.Generator, int, int], Any]
    columns: int
    batches: int
    rows: int
    compression: str | None = None


_SHAPES = (
    FileShape("mixed", datasets.mixed_batch, 1000, 2, 100),
    FileShape("strings, Zstandard", datasets.string_batch, 4, 4, 10_000, compression="zstd"),
)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each shape."""
    random = np.random.default_rng(2026)
    for shape in _SHAPES:
        rows = settings.rows(shape.rows, 10)
        batches = [shape.create(random, rows, shape.columns) for _ in range(2)]
        paths = [str(folder / f"part-{number}.arrow") for number in range(_COUNT)]
        for path in paths:
            datasets.write_file(Path(path), batches, shape.batches, shape.compression)
        _check_equal_files(paths, folder, shape)
        line = f"{_COUNT} files, {shape.name}, {shape.columns} columns × {shape.batches} batches of {rows:,} rows"
        codec = shape.compression
        peers = [
            Candidate.of_writer("pyarrow, batches", folder, partial(_concat_batches, paths, compression=codec)),
            Candidate.of_writer("pyarrow, tables", folder, partial(_concat_tables, paths, compression=codec)),
        ]
        candidate = Candidate.of_writer("bowstring", folder, partial(bowstring.ipc.concat_files, paths))
        yield compare(line, _BOUND, candidate, peers, settings)
        for path in paths:
            os.unlink(path)


def _concat_batches(paths: Sequence[str], target: str, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.memory_map(paths[0]) as source:
        schema = pa.ipc.open_file(source).schema
    with pa.OSFile(target, "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        for path in paths:
            with pa.memory_map(path) as source:
                reader = pa.ipc.open_file(source)
                for index in range(reader.num_record_batches):
                    writer.write_batch(reader.get_batch(index))


def _concat_tables(paths: Sequence[str], target: str, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths])
    with pa.ipc.new_file(target, table.schema, options=options) as writer:
        writer.write_table(table)


def _check_equal_files(paths: Sequence[str], folder: Path, shape: FileShape) -> None:
    """Compare the files that Bowstring and pyarrow write."""
    path, pa_path = str(folder / "concat.arrow"), str(folder / "concat-pyarrow.arrow")
    bowstring.ipc.concat_files(paths, path)
    _concat_batches(paths, pa_path, shape.compression)
    with pa.memory_map(path) as source, pa.memory_map(pa_path) as pa_source:
        reader, pa_reader = pa.ipc.open_file(source), pa.ipc.open_file(pa_source)
        assert reader.num_record_batches == pa_reader.num_record_batches == len(paths) * shape.batches
        assert reader.read_all().equals(pa_reader.read_all()), "the file that Bowstring wrote has other values"
    for file in (path, pa_path):
        os.unlink(file)
