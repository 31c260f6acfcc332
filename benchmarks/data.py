"""What is measured with: columns of mixed types, the same for everybody and in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

NULL_SHARE = 0.1


def ascii_strings(random: np.random.Generator, rows: int, length_bytes: int = 16) -> Any:
    """Strings of `length_bytes` on average, half as many to one and a half times as many."""
    lengths = random.integers(length_bytes // 2, length_bytes * 3 // 2 + 1, rows)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def strings_of_all_scripts(random: np.random.Generator, rows: int) -> Any:
    """A pyarrow array of words and short sentences in several scripts, one to four bytes a character."""
    return pa.array(_SENTENCES).take(pa.array(random.integers(0, len(_SENTENCES), rows)))


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


def with_nulls(random: np.random.Generator, array: Any) -> Any:
    """The array with nulls strewn in, one in ten."""
    return pa.compute.if_else(pa.array(random.random(len(array)) >= NULL_SHARE), array, None)


def numbers(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch of int64, float64, int32 and float32 columns, every third one with nulls."""
    kinds = (np.int64, np.float64, np.int32, np.float32)
    arrays = []
    for index in range(columns):
        array = pa.array(random.integers(-1_000_000, 1_000_000, rows).astype(kinds[index % len(kinds)]))
        arrays.append(with_nulls(random, array) if index % 3 == 2 else array)
    return pa.record_batch(arrays, names=[f"number_{index}" for index in range(columns)])


def strings(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch of string columns, every third one with nulls."""
    arrays = [ascii_strings(random, rows) for _ in range(columns)]
    arrays = [with_nulls(random, array) if index % 3 == 2 else array for index, array in enumerate(arrays)]
    return pa.record_batch(arrays, names=[f"text_{index}" for index in range(columns)])


def mixed(random: np.random.Generator, rows: int, columns: int) -> Any:
    """A record batch that repeats int64, float64, string, int32 with nulls, string with nulls."""
    made = (
        pa.array(random.integers(0, 1 << 40, rows)),
        pa.array(random.random(rows)),
        ascii_strings(random, rows),
        with_nulls(random, pa.array(random.integers(0, 1 << 20, rows).astype(np.int32))),
        with_nulls(random, ascii_strings(random, rows)),
    )
    names = ("int64", "float64", "string", "nullable_int32", "nullable_string")
    return pa.record_batch(
        [made[index % len(made)] for index in range(columns)],
        names=[f"{names[index % len(made)]}_{index}" for index in range(columns)],
    )


def write_file(path: Path, variants: list[Any], batches: int, compression: str | None = None) -> None:
    """An Arrow file of so many batches, which repeat the given ones."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, variants[0].schema, options=options) as writer:
        _write_again_and_again(writer, variants, batches)


def as_stream(variants: list[Any], batches: int) -> Any:
    """The same as a stream in memory: a pyarrow buffer from which everybody reads without copying."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, variants[0].schema) as writer:
        _write_again_and_again(writer, variants, batches)
    return sink.getvalue()


def _write_again_and_again(writer: Any, variants: list[Any], batches: int) -> None:
    for index in range(batches):
        writer.write_batch(variants[index % len(variants)])


def read_by_pyarrow(path: str) -> Any:
    """All of an Arrow file as pyarrow's table."""
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()
