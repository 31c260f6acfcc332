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
class Layout:
    """The size of a file, with the bounds of its measurements."""

    name: str
    columns: int
    batches: int
    rows: int
    headers_bound: float
    column_bound: float
    measures_cached_schema: bool = False


_LAYOUTS = (
    Layout("wide", 1000, 100, 200, headers_bound=0.2, column_bound=0.3, measures_cached_schema=True),
    Layout("narrow", 20, 2000, 1000, headers_bound=0.6, column_bound=0.6),
)
_OPEN_BOUND = 1.5


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure a wide and a narrow file."""
    random = np.random.default_rng(2024)
    for layout in _LAYOUTS:
        path = folder / f"{layout.name}.arrow"
        rows = settings.rows(layout.rows, 10)
        batches = [datasets.mixed_batch(random, rows, layout.columns) for _ in range(4)]
        datasets.write_file(path, batches, layout.batches)
        try:
            yield from _measure_file(layout, str(path), batches[0].schema.names, settings)
        finally:
            path.unlink()


def _measure_file(layout: Layout, path: str, names: list[str], settings: Settings) -> Iterator[Measurement]:
    size = f"{layout.columns} columns × {layout.batches} batches"
    index = layout.columns // 10 * 5 + 4
    name = names[index]
    _check(path, [index - 3, index])
    peers = _peers(path, {"get_batch": _pyarrow_batches, "read_all": _pyarrow_table})
    headers = f"all record batch headers, {size}"
    bound = layout.headers_bound
    yield compare_calls(headers, bound, partial(_batches, path), peers, settings, clear_schema_cache)
    if layout.measures_cached_schema:
        yield compare_calls(f"{headers}, schema cached", bound, partial(_batches, path), peers, settings)
    yield compare_calls(
        f"one string column, {size}",
        layout.column_bound,
        partial(_column, path, name),
        _peers(path, {"get_batch": _pyarrow_columns, "read_all": _pyarrow_table}, [index]),
        settings,
        clear_schema_cache,
    )
    yield compare_calls(
        f"open, {size}",
        _OPEN_BOUND,
        partial(open_with_bowstring, path),
        _peers(path, {"open_file": open_with_pyarrow}),
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


def _batches(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _column(path: str, name: str) -> object:
    with bowstring.open_file(path, columns=[name]) as reader:
        return [batch.column(0) for batch in reader]


def _peers(
    path: str, methods: Mapping[str, Callable[[str, Any], object]], indices: list[int] | None = None
) -> dict[str, Call]:
    """Each method with and without threads; `indices` selects columns."""
    calls: dict[str, Call] = {}
    for name, method in methods.items():
        for use_threads in (False, True):
            options = pa.ipc.IpcReadOptions(use_threads=use_threads, included_fields=indices)
            calls[f"pyarrow {name}{', threads' if use_threads else ''}"] = partial(method, path, options)
    return calls


def _pyarrow_batches(path: str, options: Any) -> list[Any]:
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source, options=options)
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _pyarrow_columns(path: str, options: Any) -> list[Any]:
    return [batch.column(0) for batch in _pyarrow_batches(path, options)]


def _pyarrow_table(path: str, options: Any) -> object:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).read_all()


def _check(path: str, indices: list[int]) -> None:
    """Compare the columns that both libraries read."""
    with bowstring.open_file(path, columns=indices) as reader:
        table = pa.table(reader.read_all())
    expected = datasets.read_with_pyarrow(path).select(indices)
    assert table.equals(expected), f"{path}: Bowstring and pyarrow read different values"
