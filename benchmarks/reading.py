"""Read a memory-mapped Arrow file. The peer is pyarrow on a memory map, with and without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Call, Measurement, Settings, compare_calls
from bowstring.ipc import schema_cache


@dataclass(frozen=True, slots=True)
class FileShape:
    """The size of a file, with the bounds of its measurements."""

    name: str
    columns: int
    batches: int
    rows: int
    headers_bound: float
    column_bound: float
    open_bound: float | None = None


_SHAPES = (
    FileShape("wide", 1000, 100, 200, headers_bound=0.2, column_bound=0.3, open_bound=1.5),
    FileShape("narrow", 20, 2000, 1000, headers_bound=0.6, column_bound=0.6),
)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure a wide and a narrow file."""
    random = np.random.default_rng(2024)
    for shape in _SHAPES:
        path = folder / f"{shape.name}.arrow"
        rows = settings.rows(shape.rows, 10)
        batches = [datasets.mixed_batch(random, rows, shape.columns) for _ in range(4)]
        datasets.write_file(path, batches, shape.batches)
        try:
            yield from _measure_file(shape, str(path), batches[0].schema.names, settings)
        finally:
            path.unlink()


def _measure_file(shape: FileShape, path: str, names: list[str], settings: Settings) -> Iterator[Measurement]:
    size = f"{shape.columns} columns × {shape.batches} batches"
    index = shape.columns // 10 * 5 + 4
    name = names[index]
    _check_equal_columns(path, [index - 3, index])
    peers = _pyarrow_calls(path, {"get_batch": _read_batches_with_pyarrow, "read_all": _read_table_with_pyarrow})
    yield compare_calls(
        f"all record batch headers, {size}",
        shape.headers_bound,
        partial(_read_batches, path),
        peers,
        settings,
        clear_schema_cache,
    )
    yield compare_calls(
        f"one string column, {size}",
        shape.column_bound,
        partial(_read_column, path, name),
        _pyarrow_calls(path, {"get_batch": _read_columns_with_pyarrow, "read_all": _read_table_with_pyarrow}, [index]),
        settings,
        clear_schema_cache,
    )
    if shape.open_bound is not None:
        yield compare_calls(
            f"open, {size}",
            shape.open_bound,
            partial(open_with_bowstring, path),
            _pyarrow_calls(path, {"open_file": open_with_pyarrow}),
            settings,
            clear_schema_cache,
        )


def clear_schema_cache() -> None:
    """Discard the schemas of previous rounds: pyarrow decodes the schema in each round."""
    schema_cache._cache.clear()


def open_with_bowstring(path: str) -> object:
    """Open a file and return the number of its record batches."""
    with bowstring.open_file(path) as reader:
        return reader.num_record_batches


def open_with_pyarrow(path: str, options: Any = None) -> object:
    """Open a memory-mapped file and return the number of its record batches."""
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).num_record_batches


def _read_batches(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _read_column(path: str, name: str) -> object:
    with bowstring.open_file(path, columns=[name]) as reader:
        return [batch.column(0) for batch in reader]


def _pyarrow_calls(
    path: str, methods: Mapping[str, Callable[[str, Any], object]], indices: list[int] | None = None
) -> dict[str, Call]:
    """Each method with and without threads; `indices` selects columns."""
    calls: dict[str, Call] = {}
    for name, method in methods.items():
        for use_threads in (False, True):
            options = pa.ipc.IpcReadOptions(use_threads=use_threads, included_fields=indices)
            calls[f"pyarrow {name}{', threads' if use_threads else ''}"] = partial(method, path, options)
    return calls


def _read_batches_with_pyarrow(path: str, options: Any) -> list[Any]:
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source, options=options)
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _read_columns_with_pyarrow(path: str, options: Any) -> list[Any]:
    return [batch.column(0) for batch in _read_batches_with_pyarrow(path, options)]


def _read_table_with_pyarrow(path: str, options: Any) -> object:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).read_all()


def _check_equal_columns(path: str, indices: list[int]) -> None:
    """Compare the columns that both libraries read."""
    with bowstring.open_file(path, columns=indices) as reader:
        table = pa.table(reader.read_all())
    expected = datasets.read_with_pyarrow(path).select(indices)
    assert table.equals(expected), f"{path}: Bowstring and pyarrow read different values"
