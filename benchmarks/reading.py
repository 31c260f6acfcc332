"""Reading a mapped Arrow file. The peer is pyarrow on a memory map, with and without threads, in its quickest way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed
from bowstring.ipc import schema_cache

GROUP = "reading"


@dataclass(frozen=True, slots=True)
class Shape:
    """A file, and the bounds of what is measured on it."""

    name: str
    columns: int
    batches: int
    rows: int
    headers_bound: float
    column_bound: float
    open_bound: float = 1.5

    @property
    def chosen(self) -> tuple[int, ...]:
        """The columns that are read on their own: a float64, a string with nulls; both in the middle."""
        middle = self.columns // 10 * 5
        return middle + 1, middle + 4


SHAPES = (
    Shape("wide", 1000, 100, 200, headers_bound=0.2, column_bound=0.3),
    Shape("narrow", 20, 2000, 1000, headers_bound=0.6, column_bound=0.6),
)


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure every line of both shapes."""
    random = np.random.default_rng(2024)
    for shape in SHAPES:
        path = folder / f"{shape.name}.arrow"
        rows = effort.rows(shape.rows, 10)
        data.write_file(path, [data.mixed(random, rows, shape.columns) for _ in range(4)], shape.batches)
        try:
            yield from _lines(shape, str(path), effort)
        finally:
            path.unlink()


def _lines(shape: Shape, path: str, effort: Effort) -> Iterator[Outcome]:
    size = f"{shape.columns} columns × {shape.batches} batches"
    _check(path, shape)
    for schema, before in _SCHEMAS:
        yield compare(
            (GROUP, f"all batch headers, {size}, {schema}"),
            shape.headers_bound,
            Contender("bowstring", timed(lambda: _our_batches(path), before)),
            _peers(path, (("get_batch", _peer_batches), ("read_all", _peer_table))),
            effort,
        )
    for index, (schema, before) in product(shape.chosen, _SCHEMAS):
        name = _name(path, index)
        yield compare(
            (GROUP, f"one column ({name.rpartition('_')[0]}) of {size}, {schema}"),
            shape.column_bound,
            Contender("bowstring", timed(partial(_our_column, path, name), before)),
            _peers(
                path,
                (
                    ("get_batch", lambda path, options: [b.column(0) for b in _peer_batches(path, options)]),
                    ("read_all", lambda path, options: _peer_table(path, options).column(0)),
                ),
                [index],
            ),
            effort,
        )
    yield compare(
        (GROUP, f"opening only, {shape.name} ({size})"),
        shape.open_bound,
        Contender("bowstring", timed(lambda: _our_opening(path), _forget)),
        _peers(path, (("open_file", _peer_opening),)),
        effort,
    )
    yield compare(
        (GROUP, f"opening and asking for the schema, {shape.name}"),
        None,
        Contender("bowstring", timed(lambda: _our_schema(path), _forget)),
        _peers(path, (("open_file", _peer_opening),)),
        effort,
    )


def _forget() -> None:
    """Let no schema be known from the last round: pyarrow reads it each time."""
    schema_cache._cache.clear()


_SCHEMAS = (("a schema never met", _forget), ("a schema met before", None))


def _our_batches(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _our_column(path: str, name: str) -> object:
    with bowstring.open_file(path, columns=[name]) as reader:
        return [batch.column(0) for batch in reader]


def _our_opening(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return reader.num_record_batches


def _our_schema(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return reader.schema


Way = tuple[str, Callable[[str, Any], object]]


def _peers(path: str, ways: Sequence[Way], fields: list[int] | None = None) -> list[Contender]:
    """The peer in each way, with and without threads; `fields` is its column selection."""
    made = []
    for name, way in ways:
        for threads in (False, True):
            options = pa.ipc.IpcReadOptions(use_threads=threads, included_fields=fields)
            work = timed(partial(way, path, options))
            made.append(Contender(f"pyarrow {name}{', threads' if threads else ''}", work))
    return made


def _peer_batches(path: str, options: Any) -> list[Any]:
    with pa.memory_map(path) as source:
        reader = pa.ipc.open_file(source, options=options)
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def _peer_table(path: str, options: Any) -> Any:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).read_all()


def _peer_opening(path: str, options: Any) -> object:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).num_record_batches


def _name(path: str, index: int) -> str:
    with pa.memory_map(path) as source:
        return str(pa.ipc.open_file(source).schema.names[index])


def _check(path: str, shape: Shape) -> None:
    """Everybody reads the same."""
    chosen = list(shape.chosen)
    with bowstring.open_file(path, columns=chosen) as reader:
        ours = pa.table(reader.read_all())
    theirs = _peer_table(path, pa.ipc.IpcReadOptions()).select(chosen)
    assert ours.equals(theirs), f"{path}: what Bowstring reads differs from what pyarrow reads"
