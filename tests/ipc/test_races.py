"""Caches and lazily computed values, used by several threads that switch often."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

import bowstring as bs
from bowstring.io.byte_ranges import Span
from bowstring.io.range_source import RangeSource
from tests.ipc.samples import as_file
from tests.ipc.test_threads import in_threads

_DURATION_S = 1.0


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _repeatedly(work: Callable[[], object]) -> None:
    """Run it in several threads repeatedly until the time is over or one of them raises."""
    end = time.monotonic() + _DURATION_S

    def run(_: int) -> None:
        while time.monotonic() < end:
            work()

    in_threads(run)


def _empty_file(name: str) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, bs.schema({name: bs.int64()})):
        pass
    return sink.getvalue()


def test_threads_read_more_schemas_than_the_cache_holds() -> None:
    files = [_empty_file(f"column {number}") for number in range(200)]

    def load_schemas() -> None:
        assert all(bs.open_file(data).schema.names == [f"column {number}"] for number, data in enumerate(files))

    _repeatedly(load_schemas)


def test_threads_read_the_schema_of_a_new_reader() -> None:
    data, end = _empty_file("a"), time.monotonic() + _DURATION_S
    while time.monotonic() < end:
        readers = [bs.open_file(data) for _ in range(300)]

        def read_schemas(_: int, readers: list[bs.ipc.FileReader] = readers) -> None:
            assert all(reader.schema.names == ["a"] for reader in readers)

        in_threads(read_schemas)


class _MemoryRangeReader:
    """Reads ranges of bytes in memory."""

    name = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_size_and_edges(self) -> tuple[int, list[tuple[int, bytes]]]:
        return len(self._data), []

    def read_ranges(self, spans: Sequence[Span]) -> list[bytes]:
        return [self._data[start : start + size_bytes] for start, size_bytes in spans]

    def close(self) -> None:
        pass


def test_threads_read_ranges_of_a_source_with_readahead() -> None:
    data = bytes(range(256)) * (1 << 14)
    source = RangeSource(_MemoryRangeReader(data))
    starts = np.random.default_rng(0).integers(0, len(data) - 50, 500).tolist()
    expected = [data[start : start + 50] for start in starts]

    def read() -> None:
        assert [source.read_at(start, 50) for start in starts] == expected

    _repeatedly(read)


def test_a_column_decompressed_by_several_threads_counts_once_against_the_limit() -> None:
    batch = bs.record_batch({name: np.zeros(100_000, np.int64) for name in ("a", "b")})
    data = as_file(batch, compression="lz4")
    for _ in range(50):
        record_batch = bs.open_file(data, limits=bs.ipc.ReadLimits(max_decompressed_bytes=1_650_000)).get_batch(0)
        in_threads(lambda _: [record_batch.column(name).length for name in ("a", "b")])  # noqa: B023 -- the threads end here
