"""Test data as pyarrow arrays and record batches, the same for every candidate and in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

NULL_FRACTION = 0.1
_SENTENCES = (
    "plain letters only",
    "naïve façade",
    "Größenwahn",
    "Ἐν ἀρχῇ ἦν ὁ λόγος",
    "все счастливые семьи",
    "كتاب مفتوح",
    "सत्यमेव जयते",
    "天地玄黃",
    "春はあけぼの",
    "훈민정음",
    "ok 👍🏽",
    "",
)


def integers(random: np.random.Generator, rows: int) -> Any:
    """An int64 array."""
    return pa.array(random.integers(-1_000_000_000, 1_000_000_000, rows))


def ascii_strings(random: np.random.Generator, rows: int) -> Any:
    """A string array with values of 8 to 24 bytes."""
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(8, 25, rows), out=offsets[1:])
    letters = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def multilingual_strings(random: np.random.Generator, rows: int) -> Any:
    """A string array with twelve distinct values in several scripts, one to four bytes per character."""
    return pa.array(_SENTENCES).take(pa.array(random.integers(0, len(_SENTENCES), rows)))


def with_nulls(random: np.random.Generator, array: Any) -> Any:
    """The array with `NULL_FRACTION` of its values replaced by null."""
    return pa.compute.if_else(pa.array(random.random(len(array)) >= NULL_FRACTION), array, None)


def number_batch(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch of int64, float64, int32 and float32 columns; every third column has nulls."""
    dtypes = (np.int64, np.float64, np.int32, np.float32)
    arrays = []
    for index in range(columns):
        array = pa.array(random.integers(-1_000_000, 1_000_000, rows).astype(dtypes[index % len(dtypes)]))
        arrays.append(with_nulls(random, array) if index % 3 == 2 else array)
    return pa.record_batch(arrays, names=[f"number_{index}" for index in range(columns)])


def string_batch(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch of string columns; every third column has nulls."""
    arrays = [ascii_strings(random, rows) for _ in range(columns)]
    arrays = [with_nulls(random, array) if index % 3 == 2 else array for index, array in enumerate(arrays)]
    return pa.record_batch(arrays, names=[f"text_{index}" for index in range(columns)])


def mixed_batch(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch that repeats int64, float64, string, int32 with nulls, string with nulls."""
    arrays = {
        "int64": pa.array(random.integers(0, 1 << 40, rows)),
        "float64": pa.array(random.random(rows)),
        "string": ascii_strings(random, rows),
        "nullable_int32": with_nulls(random, pa.array(random.integers(0, 1 << 20, rows).astype(np.int32))),
        "nullable_string": with_nulls(random, ascii_strings(random, rows)),
    }
    names = [list(arrays)[index % len(arrays)] for index in range(columns)]
    return pa.record_batch(
        [arrays[name] for name in names], names=[f"{name}_{index}" for index, name in enumerate(names)]
    )


def write_file(path: Path, batches: list[Any], count: int, compression: str | None = None) -> None:
    """Write an Arrow file of `count` record batches, which repeat `batches`."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema, options=options) as writer:
        for index in range(count):
            writer.write_batch(batches[index % len(batches)])


def stream_buffer(batches: list[Any], count: int) -> Any:
    """A pyarrow buffer with a stream of `count` record batches, which repeat `batches`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for index in range(count):
            writer.write_batch(batches[index % len(batches)])
    return sink.getvalue()


def read_with_pyarrow(path: str, use_threads: bool = True, columns: list[int] | None = None) -> Any:
    """A memory-mapped Arrow file as a pyarrow table."""
    options = pa.ipc.IpcReadOptions(use_threads=use_threads, included_fields=columns)
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).read_all()
