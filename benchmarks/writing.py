"""Writing an Arrow file, until it is closed. The peer is pyarrow on a path, on an OSFile, behind a buffer.

Both take the same columns at the same addresses. Bowstring writes under a temporary name and renames; that counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed, writing

GROUP = "writing"
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """A table to write, and the bound for it."""

    name: str
    make: Callable[[np.random.Generator, int, int], Any]
    columns: int
    batches: int
    rows: int
    bound: float


SHAPES = (
    Shape("numbers", data.numbers, 10, 6, 500_000, bound=1.1),
    Shape("strings", data.strings, 4, 6, 500_000, bound=1.1),
    Shape("mixed", data.mixed, 1000, 20, 1000, bound=1.0),
)
_TINY_BATCHES, _TINY_ROWS, _TINY_BOUND = 5000, 10, 1.5


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each table, into a new file and over an old one."""
    random = np.random.default_rng(2025)
    for shape in SHAPES:
        rows = effort.rows(shape.rows)
        stream = data.as_stream([shape.make(random, rows, shape.columns) for _ in range(2)], shape.batches)
        line = f"{shape.name}, {shape.columns} columns × {shape.batches} batches of {rows:,} rows"
        theirs = _their_table(stream)
        made, read = bowstring.table(theirs), _read_table(stream)
        for ours in (made, read):
            _check(ours, theirs, str(folder / "check.arrow"))
        for note, ours, is_new in (
            ("", made, True),
            (", over an old file", made, False),
            (", as it was read", read, True),
        ):
            yield compare(
                (GROUP, f"{line}{note}"),
                shape.bound if ours is made and is_new else None,
                *_contenders(ours, theirs, folder, is_new),
                effort,
            )
    yield from _tiny(folder, effort)


def _tiny(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Batches of a few rows: those that are there already, and those that are made of Python values on the way.

    The last line is of rows that are handed over without batches, which pyarrow's writers have no way to take.
    """
    count = effort.rows(_TINY_BATCHES)
    values = [
        {"n": list(range(at, at + _TINY_ROWS)), "x": [at / 7] * _TINY_ROWS, "s": [f"row {at}"] * _TINY_ROWS}
        for at in range(count)
    ]
    their_schema = pa.schema({"n": pa.int64(), "x": pa.float64(), "s": pa.string()})
    our_schema = bowstring.schema(their_schema)
    theirs = [pa.record_batch(held, their_schema) for held in values]
    ours = [bowstring.record_batch(held, schema=our_schema) for held in values]

    def write_ours(batches: Iterable[bowstring.RecordBatch], path: str) -> None:
        with bowstring.CoalescingWriter(bowstring.new_file(path, our_schema)) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def write_values(path: str) -> None:
        with bowstring.CoalescingWriter(bowstring.new_file(path, our_schema)) as writer:
            for held in values:
                writer.write_pydict(held)

    def write_theirs(batches: Iterable[Any], path: str) -> None:
        with (
            pa.OSFile(path, "wb") as file,
            pa.BufferedOutputStream(file, _BUFFER_BYTES) as sink,
            pa.ipc.new_file(sink, their_schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)

    our_path, their_path = str(folder / "tiny-ours.arrow"), str(folder / "tiny-theirs.arrow")
    for write in (partial(write_ours, ours), write_values):
        write(our_path)
        assert data.read_by_pyarrow(our_path).equals(pa.Table.from_batches(theirs)), "rows changed on the way"
    for note, our_work, their_work in (
        ("", lambda: write_ours(ours, our_path), lambda: write_theirs(theirs, their_path)),
        (
            ", made of Python values on the way",
            lambda: write_ours((bowstring.record_batch(held, schema=our_schema) for held in values), our_path),
            lambda: write_theirs((pa.record_batch(held, their_schema) for held in values), their_path),
        ),
        (
            " as Python values, no batches made (pyarrow makes them)",
            lambda: write_values(our_path),
            lambda: write_theirs((pa.record_batch(held, their_schema) for held in values), their_path),
        ),
    ):
        yield compare(
            (GROUP, f"tiny, 3 columns × {count:,} batches of {_TINY_ROWS} rows, gathered{note}"),
            _TINY_BOUND,
            Contender("bowstring, CoalescingWriter", timed(our_work)),
            [Contender("pyarrow, 1 MiB buffer", timed(their_work))],
            effort,
        )


def _read_table(stream: Any) -> bowstring.Table:
    """The stream as our table, over the same memory, its columns not made."""
    return bowstring.open_stream(stream).read_all()


def _their_table(stream: Any) -> Any:
    """The stream as pyarrow's table, over the same memory, its nulls counted."""
    theirs = pa.ipc.open_stream(stream).read_all()
    for column in theirs.columns:
        _ = column.null_count
    return theirs


def _write_ours(table: bowstring.Table, path: str) -> None:
    with bowstring.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _write_to_path(table: Any, path: str) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _write_to_os_file(table: Any, path: str) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_through_buffer(table: Any, path: str) -> None:
    with (
        pa.OSFile(path, "wb") as file,
        pa.BufferedOutputStream(file, _BUFFER_BYTES) as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


_PEERS: dict[str, Callable[[Any, str], None]] = {
    "pyarrow, path": _write_to_path,
    "pyarrow, OSFile": _write_to_os_file,
    "pyarrow, 1 MiB buffer": _write_through_buffer,
}


def _contenders(ours: bowstring.Table, theirs: Any, folder: Path, is_new: bool) -> tuple[Contender, list[Contender]]:
    peers = [writing(name, folder, partial(write, theirs), is_new) for name, write in _PEERS.items()]
    return writing("bowstring", folder, partial(_write_ours, ours), is_new), peers


def _check(ours: bowstring.Table, theirs: Any, path: str) -> None:
    """What we write, pyarrow reads as what it would have written itself."""
    _write_ours(ours, path)
    assert data.read_by_pyarrow(path).equals(theirs), "what Bowstring wrote differs from its table"
    os.unlink(path)
