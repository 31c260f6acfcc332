"""Reading one column of a wide file out of a store that takes 20 ms to answer, and opening a wide file that is mapped.

The store answers any number of ranges at once in one such time, as object stores do for those who ask side by side. The
peer is pyarrow over the same store, as a file and as a data set, with threads and without.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed
from bowstring.ipc import schema_cache

GROUP = "remote"
LATENCY_S = 0.02
_MOST_QUESTIONS = 4
_OPEN_BOUND = 0.5
_ROWS = 20


class LateFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of the store, read ahead in blocks of 5 MB as those of fsspec are."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        answer: bytes = self.fs.cat_file(self.path, start, end)
        return answer


class LateStore(AbstractFileSystem):  # type: ignore[misc]
    """Files of this machine behind a delay: each question takes `LATENCY_S`, however many ranges it names."""

    protocol = "late"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.questions = self.ranges = self.sent_bytes = 0

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of a file."""
        self._wait()
        return {"name": path, "size": Path(path).stat().st_size, "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """One range."""
        return self.cat_ranges([path], [start], [end])[0]

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, **_: Any) -> list[bytes]:
        """All ranges in one answer."""
        self._wait()
        out = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
                out.append(held[start:end])
        self.ranges += len(out)
        self.sent_bytes += sum(map(len, out))
        return out

    def _open(self, path: str, mode: str = "rb", **options: Any) -> LateFile:
        return LateFile(self, path, mode, **{**options, "block_size": 5 << 20})

    def _wait(self) -> None:
        self.questions += 1
        time.sleep(LATENCY_S)


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure questions, bytes and time, then opening."""
    columns, batches = (1000, 10) if effort.quick else (10_000, 100)
    path = folder / "widest.arrow"
    random = np.random.default_rng(2026)
    data.write_file(path, [data.mixed(random, _ROWS, columns) for _ in range(2)], batches)
    size = f"{columns:,} columns × {batches} batches"
    try:
        yield from _afar(str(path), f"of {size}, {LATENCY_S * 1e3:.0f} ms away", columns // 2 + 1, effort)
        yield from _mapped(str(path), size, columns // 2 + 1, effort)
    finally:
        path.unlink()


def _afar(path: str, what: str, index: int, effort: Effort) -> Iterator[Outcome]:
    name = _name(path, index)
    store = LateStore()
    ours = _our_column(path, name, store)
    assert pa.chunked_array(ours).equals(_peer_file(path, name, index, LateStore(), True).column(0))
    yield Outcome(GROUP, f"questions for one column {what}", store.questions, _MOST_QUESTIONS, "round trips")
    yield Outcome(GROUP, "ranges that are asked for in them", store.ranges, None, "ranges")
    yield Outcome(GROUP, "bytes that come", store.sent_bytes / 1e6, None, "MB")
    peers = [
        Contender("pyarrow open_file", timed(lambda: _peer_file(path, name, index, LateStore(), False))),
        Contender("pyarrow open_file, threads", timed(lambda: _peer_file(path, name, index, LateStore(), True))),
        Contender("pyarrow dataset", timed(lambda: _peer_dataset(path, name, LateStore()))),
    ]
    yield compare(
        (GROUP, f"one column {what}"),
        1.0,
        Contender("bowstring", timed(lambda: _our_column(path, name, LateStore()), _forget)),
        peers,
        effort.few(),
    )


def _mapped(path: str, size: str, index: int, effort: Effort) -> Iterator[Outcome]:
    name = _name(path, index)
    ways: tuple[tuple[str, float | None, Callable[[], object], Sequence[tuple[str, Callable[[], object]]]], ...] = (
        (
            f"opening {size}",
            _OPEN_BOUND,
            partial(_our_opening, path),
            [("pyarrow open_file", partial(_peer_opening, path))],
        ),
        (
            "opening it, and a column of the first batch",
            _OPEN_BOUND,
            partial(_our_first, path, name),
            [
                ("pyarrow open_file", partial(_peer_first, path, index, False)),
                ("pyarrow open_file, one field", partial(_peer_first, path, index, True)),
            ],
        ),
        *(
            (
                f"opening it, and of its schema {what}",
                bound,
                partial(_our_schema, path, use),
                [("pyarrow open_file", partial(_peer_schema, path, use))],
            )
            for what, bound, use in _schema_uses(name, index)
        ),
    )
    for line, bound, ours, peers in ways:
        contenders = [Contender(who, timed(work)) for who, work in peers]
        yield compare((GROUP, line), bound, Contender("bowstring", timed(ours, _forget)), contenders, effort)


def _schema_uses(name: str, index: int) -> tuple[tuple[str, float | None, Callable[[Any], object]], ...]:
    """What may be asked of a schema, with its bound; both libraries have the same words for it."""
    return (
        ("how many fields", _OPEN_BOUND, len),
        ("a field by position", _OPEN_BOUND, lambda schema: schema.field(index)),
        ("a field by name", _OPEN_BOUND, lambda schema: schema.field(name)),
        ("all names", None, lambda schema: schema.names),
        ("all fields", None, list),
    )


def _forget() -> None:
    """Let no schema be known from the last round: pyarrow reads it each time."""
    schema_cache._cache.clear()


def _our_column(path: str, name: str, store: LateStore) -> Any:
    with bowstring.open_file(fsspec.core.OpenFile(store, path), columns=[name]) as reader:
        return reader.read_all().column(name)


def _peer_file(path: str, name: str, index: int, store: LateStore, threads: bool) -> Any:
    files = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(store))
    options = pa.ipc.IpcReadOptions(use_threads=threads, included_fields=[index])
    with files.open_input_file(path) as source:
        return pa.ipc.open_file(source, options=options).read_all().select([name])


def _peer_dataset(path: str, name: str, store: LateStore) -> Any:
    files = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(store))
    return pa.dataset.dataset(path, format="ipc", filesystem=files).to_table(columns=[name])


def _our_opening(path: str) -> object:
    with bowstring.open_file(path) as reader:
        return reader.num_record_batches


def _our_first(path: str, name: str) -> object:
    with bowstring.open_file(path, columns=[name]) as reader:
        return reader[0].column(0)


def _our_schema(path: str, use: Callable[[Any], object]) -> object:
    with bowstring.open_file(path) as reader:
        return use(reader.schema)


def _peer_opening(path: str) -> object:
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).num_record_batches


def _peer_first(path: str, index: int, chosen: bool) -> object:
    options = pa.ipc.IpcReadOptions(included_fields=[index] if chosen else None)
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source, options=options).get_batch(0).column(0 if chosen else index)


def _peer_schema(path: str, use: Callable[[Any], object]) -> object:
    with pa.memory_map(path) as source:
        return use(pa.ipc.open_file(source).schema)


def _name(path: str, index: int) -> str:
    with pa.memory_map(path) as source:
        return str(pa.ipc.open_file(source).schema.names[index])
