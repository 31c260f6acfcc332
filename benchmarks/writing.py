"""Writing an Arrow file, until it is closed. The peer is pyarrow on a path, on an OSFile, behind a buffer.

Both take the same columns at the same addresses. Bowstring writes under a temporary name and renames; that counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
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
_BEGIN = datetime(2026, 1, 1)


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


@dataclass(frozen=True, slots=True)
class Tiny:
    """Batches of a few rows: the columns of each, by name, as Python values or NumPy arrays."""

    name: str
    schema: Any
    columns: list[dict[str, Any]]


def _tiny(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Batches of a few rows: those that are there already, and those that are made of Python values on the way.

    Of the simple ones there are lines for batches that are made of NumPy arrays, too, and for rows that are handed over
    without batches, which pyarrow's writers have no way to take. All are streams: to a file pyarrow writes no batches
    with dictionaries of their own.
    """
    simple, wide = _simple(effort.rows(_TINY_BATCHES)), _wide(effort.rows(_TINY_BATCHES // 2))
    arrays = [{"n": np.array(held["n"]), "x": np.array(held["x"])} for held in simple.columns]
    numbers = Tiny(f"2 columns × {len(arrays):,} batches of {_TINY_ROWS} rows", simple.schema.remove(2), arrays)
    yield from _tiny_there(simple, folder, effort)
    yield from _tiny_made(simple, "made of Python values on the way", folder, effort)
    yield from _tiny_values(simple, folder, effort)
    yield from _tiny_made(numbers, "made of NumPy arrays on the way", folder, effort)
    yield from _tiny_there(wide, folder, effort)
    yield from _tiny_made(wide, "made of Python values on the way", folder, effort)


def _simple(count: int) -> Tiny:
    columns = [
        {"n": list(range(at, at + _TINY_ROWS)), "x": [at / 7] * _TINY_ROWS, "s": [f"row {at}"] * _TINY_ROWS}
        for at in range(count)
    ]
    schema = pa.schema({"n": pa.int64(), "x": pa.float64(), "s": pa.string()})
    return Tiny(f"3 columns × {count:,} batches of {_TINY_ROWS} rows", schema, columns)


def _wide(count: int) -> Tiny:
    """One row at a time, of columns of all kinds."""
    made: tuple[tuple[Any, Callable[[int], Any]], ...] = (
        (pa.int64(), lambda at: at),
        (pa.string(), lambda at: f"row {at}"),
        (pa.list_(pa.int64()), lambda at: [at, at + 1]),
        (pa.dictionary(pa.int32(), pa.string()), lambda at: f"word {at % 5}"),
        (pa.float64(), lambda at: at / 7),
        (pa.bool_(), lambda at: at % 2 == 0),
        (pa.timestamp("us"), lambda at: _BEGIN + timedelta(seconds=at)),
        (pa.list_(pa.string()), lambda at: [f"tag {at % 9}", "x"]),
        (pa.string(), lambda at: None if at % 3 else f"maybe {at}"),
        (pa.int32(), lambda at: at % 1000),
    )
    chosen = {f"{kind}, {index}": (kind, value) for index, (kind, value) in enumerate(made * 2)}
    columns = [{name: [value(at)] for name, (_, value) in chosen.items()} for at in range(count)]
    schema = pa.schema([(name, kind) for name, (kind, _) in chosen.items()])
    return Tiny(f"{len(chosen)} columns of ten kinds × {count:,} batches of one row", schema, columns)


def _our_tiny(schema: bowstring.Schema, batches: Iterable[bowstring.RecordBatch], path: str) -> None:
    with bowstring.CoalescingWriter(bowstring.new_stream(path, schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _their_tiny(schema: Any, batches: Iterable[Any], path: str) -> None:
    with (
        pa.OSFile(path, "wb") as file,
        pa.BufferedOutputStream(file, _BUFFER_BYTES) as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def _their_batches(tiny: Tiny) -> Iterator[Any]:
    return (pa.record_batch(held, tiny.schema) for held in tiny.columns)


def _tiny_line(
    tiny: Tiny, note: str, folder: Path, works: tuple[Callable[[str], None], Callable[[str], None]], effort: Effort
) -> Outcome:
    """The ratio of our work to theirs, each of which writes to a path; both have written the same rows."""
    ours, theirs = works
    our_path, their_path = str(folder / "tiny-ours.arrows"), str(folder / "tiny-theirs.arrows")
    ours(our_path)
    with pa.memory_map(our_path) as source:
        written, expected = pa.ipc.open_stream(source).read_all(), pa.Table.from_batches(_their_batches(tiny))
        assert written.to_pylist() == expected.to_pylist(), "rows changed on the way"
    return compare(
        (GROUP, f"tiny, {tiny.name}, gathered{note}"),
        _TINY_BOUND,
        Contender("bowstring, CoalescingWriter", timed(lambda: ours(our_path))),
        [Contender("pyarrow, 1 MiB buffer", timed(lambda: theirs(their_path)))],
        effort,
    )


def _tiny_there(tiny: Tiny, folder: Path, effort: Effort) -> Iterator[Outcome]:
    schema = bowstring.schema(tiny.schema)
    ours = [bowstring.record_batch(held, schema=schema) for held in tiny.columns]
    works = partial(_our_tiny, schema, ours), partial(_their_tiny, tiny.schema, list(_their_batches(tiny)))
    yield _tiny_line(tiny, "", folder, works, effort)


def _tiny_made(tiny: Tiny, note: str, folder: Path, effort: Effort) -> Iterator[Outcome]:
    schema = bowstring.schema(tiny.schema)

    def ours(path: str) -> None:
        _our_tiny(schema, (bowstring.record_batch(held, schema=schema) for held in tiny.columns), path)

    def theirs(path: str) -> None:
        _their_tiny(tiny.schema, _their_batches(tiny), path)

    yield _tiny_line(tiny, f", {note}", folder, (ours, theirs), effort)


def _tiny_values(tiny: Tiny, folder: Path, effort: Effort) -> Iterator[Outcome]:
    schema = bowstring.schema(tiny.schema)

    def ours(path: str) -> None:
        with bowstring.CoalescingWriter(bowstring.new_stream(path, schema)) as writer:
            for held in tiny.columns:
                writer.write_pydict(held)

    def theirs(path: str) -> None:
        _their_tiny(tiny.schema, _their_batches(tiny), path)

    yield _tiny_line(tiny, " as Python values, no batches made (pyarrow makes them)", folder, (ours, theirs), effort)


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
