"""Write an Arrow file until it is closed, and streams of many small batches. The peer is pyarrow.

Both libraries write the same memory. Bowstring writes under a temporary name and renames the file, within the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Candidate, Measurement, Settings, compare, compare_calls

_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of several batches, and the bound for writing it."""

    name: str
    create: Callable[[np.random.Generator, int, int], Any]
    columns: int
    batches: int
    rows: int
    bound: float


_TABLES = (
    TableShape("numbers", datasets.number_batch, 10, 6, 500_000, bound=1.1),
    TableShape("strings", datasets.string_batch, 4, 6, 500_000, bound=1.1),
    TableShape("mixed", datasets.mixed_batch, 1000, 20, 1000, bound=1.0),
)
_SMALL_BATCHES, _SMALL_ROWS, _SMALL_BOUND = 5000, 10, 1.5
_EPOCH = datetime(2026, 1, 1)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure files of large batches, then streams of small ones."""
    random = np.random.default_rng(2025)
    for shape in _TABLES:
        rows = settings.rows(shape.rows)
        stream = datasets.stream_buffer([shape.create(random, rows, shape.columns) for _ in range(2)], shape.batches)
        line = f"{shape.name}, {shape.columns} columns × {shape.batches} batches of {rows:,} rows"
        pa_table = _pyarrow_table(stream)
        table = bowstring.table(pa_table)
        _check_equal_tables(table, pa_table, str(folder / "check.arrow"))
        peers = [
            Candidate.of_writer(name, folder, partial(write, pa_table)) for name, write in _PYARROW_WRITERS.items()
        ]
        candidate = Candidate.of_writer("bowstring", folder, partial(_write_file, table))
        yield compare(line, shape.bound, candidate, peers, settings)
    yield from _measure_small_batches(folder, settings)


def _pyarrow_table(stream: Any) -> Any:
    """The stream as a pyarrow table over the same memory, with its nulls counted."""
    table = pa.ipc.open_stream(stream).read_all()
    for column in table.columns:
        _ = column.null_count
    return table


def _write_file(table: bowstring.Table, path: str) -> None:
    with bowstring.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _write_pyarrow_path(table: Any, path: str) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _write_pyarrow_os_file(table: Any, path: str) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_pyarrow_buffered(table: Any, path: str) -> None:
    with (
        pa.OSFile(path, "wb") as file,
        pa.BufferedOutputStream(file, _BUFFER_BYTES) as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


_PYARROW_WRITERS: dict[str, Callable[[Any, str], None]] = {
    "pyarrow, path": _write_pyarrow_path,
    "pyarrow, OSFile": _write_pyarrow_os_file,
    "pyarrow, 1 MiB buffer": _write_pyarrow_buffered,
}


def _check_equal_tables(table: bowstring.Table, pa_table: Any, path: str) -> None:
    """Read with pyarrow what Bowstring has written."""
    _write_file(table, path)
    assert datasets.read_with_pyarrow(path).equals(pa_table), "the file that Bowstring wrote has other values"
    os.unlink(path)


@dataclass(frozen=True, slots=True)
class SmallBatches:
    """Batches of a few rows as Python values: a dictionary of columns for each batch."""

    name: str
    schema: Any
    columns: list[dict[str, Any]]

    def pyarrow_batches(self) -> Iterator[Any]:
        """The record batches, created one by one."""
        return (pa.record_batch(columns, self.schema) for columns in self.columns)


def _measure_small_batches(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Streams of small batches through a `CoalescingWriter`: complete batches, and Python values. Then each batch as it
    is, passed on at once or gathered in a buffer of bytes.

    They are streams because pyarrow cannot write batches with different dictionaries to a file.
    """
    small = _three_columns(settings.rows(_SMALL_BATCHES))
    wide = _twenty_columns(settings.rows(_SMALL_BATCHES // 2))
    schema = bowstring.schema(small.schema)
    batches = [bowstring.record_batch(columns, schema=schema) for columns in small.columns]
    pa_batches = list(small.pyarrow_batches())
    yield _compare_streams(
        f"{small.name}, complete",
        small,
        folder,
        partial(_write_batches, schema, batches),
        partial(_write_pyarrow_batches, small.schema, pa_batches, _BUFFER_BYTES),
        settings,
    )
    for line, buffer_bytes, bound in (("each passed on", 0, 5.0), ("gathered", _BUFFER_BYTES, None)):
        yield _compare_streams(
            f"{small.name}, {line}",
            small,
            folder,
            partial(_write_uncoalesced, schema, batches, buffer_bytes),
            partial(_write_pyarrow_batches, small.schema, pa_batches, buffer_bytes),
            settings,
            bound,
        )
    yield _compare_streams(
        f"{wide.name}, from Python values",
        wide,
        folder,
        partial(_write_values, bowstring.schema(wide.schema), wide.columns),
        partial(_write_pyarrow_values, wide),
        settings,
    )


def _three_columns(count: int) -> SmallBatches:
    columns = [
        {
            "n": list(range(index, index + _SMALL_ROWS)),
            "x": [index / 7] * _SMALL_ROWS,
            "s": [f"row {index}"] * _SMALL_ROWS,
        }
        for index in range(count)
    ]
    schema = pa.schema({"n": pa.int64(), "x": pa.float64(), "s": pa.string()})
    return SmallBatches(f"3 columns × {count:,} batches of {_SMALL_ROWS} rows", schema, columns)


def _twenty_columns(count: int) -> SmallBatches:
    """Batches of one row, with two columns of each of ten types."""
    functions: tuple[tuple[Any, Callable[[int], Any]], ...] = (
        (pa.int64(), lambda index: index),
        (pa.string(), lambda index: f"row {index}"),
        (pa.list_(pa.int64()), lambda index: [index, index + 1]),
        (pa.dictionary(pa.int32(), pa.string()), lambda index: f"category {index % 5}"),
        (pa.float64(), lambda index: index / 7),
        (pa.bool_(), lambda index: index % 2 == 0),
        (pa.timestamp("us"), lambda index: _EPOCH + timedelta(seconds=index)),
        (pa.list_(pa.string()), lambda index: [f"tag {index % 9}", "x"]),
        (pa.string(), lambda index: None if index % 3 else f"maybe {index}"),
        (pa.int32(), lambda index: index % 1000),
    )
    fields = {f"{type_}, {index}": (type_, function) for index, (type_, function) in enumerate(functions * 2)}
    columns = [{name: [function(index)] for name, (_, function) in fields.items()} for index in range(count)]
    schema = pa.schema([(name, type_) for name, (type_, _) in fields.items()])
    return SmallBatches(f"{len(fields)} columns of ten types × {count:,} batches of one row", schema, columns)


def _compare_streams(  # noqa: PLR0913 -- two functions, and what they write
    line: str,
    source: SmallBatches,
    folder: Path,
    write: Callable[[str], None],
    pyarrow_write: Callable[[str], None],
    settings: Settings,
    bound: float | None = _SMALL_BOUND,
) -> Measurement:
    """Measure two functions that write a stream to a path, after a comparison of the rows."""
    path, pyarrow_path = str(folder / "small.arrows"), str(folder / "small-pyarrow.arrows")
    write(path)
    with pa.memory_map(path) as stream:
        rows = pa.ipc.open_stream(stream).read_all().to_pylist()
    assert rows == pa.Table.from_batches(source.pyarrow_batches()).to_pylist(), f"{line}: the rows differ"
    return compare_calls(line, bound, lambda: write(path), lambda: pyarrow_write(pyarrow_path), settings)


def _write_uncoalesced(
    schema: bowstring.Schema, batches: Iterable[bowstring.RecordBatch], buffer_bytes: int, path: str
) -> None:
    with bowstring.new_stream(path, schema, buffer_bytes=buffer_bytes) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_batches(schema: bowstring.Schema, batches: Iterable[bowstring.RecordBatch], path: str) -> None:
    with bowstring.ipc.CoalescingWriter(bowstring.new_stream(path, schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_values(schema: bowstring.Schema, batches: Iterable[dict[str, Any]], path: str) -> None:
    with bowstring.ipc.CoalescingWriter(bowstring.new_stream(path, schema)) as writer:
        for columns in batches:
            writer.write_pydict(columns)


def _write_pyarrow_batches(schema: Any, batches: Iterable[Any], buffer_bytes: int, path: str) -> None:
    with (
        pa.OSFile(path, "wb") as file,
        pa.BufferedOutputStream(file, buffer_bytes) if buffer_bytes else nullcontext(file) as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def _write_pyarrow_values(source: SmallBatches, path: str) -> None:
    _write_pyarrow_batches(source.schema, source.pyarrow_batches(), _BUFFER_BYTES, path)
