"""`connect(prefetch_bytes=…)`: batches of other hosts are received ahead of the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError
from bowstring.sharing.read_ahead import read_ahead


def numbered_table(num_batches: int, rows: int = 1000) -> bs.Table:
    batches = [bs.record_batch({"x": np.full(rows, number, np.int64)}) for number in range(num_batches)]
    return bs.Table.from_batches(batches)


def first_value(batch: bs.RecordBatch) -> int:
    return int(batch["x"].to_numpy()[0])


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bowstring-read-ahead"]


def wait_until_no_thread_reads() -> None:
    deadline = time.monotonic() + 30
    while reading_threads():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("max_bytes", [1, 7999, 8000, 8001, 1 << 30])
def test_as_many_batches_wait_as_fit(max_bytes: int) -> None:
    taken = 0

    def count_batches() -> Iterator[bs.RecordBatch]:
        nonlocal taken
        for batch in numbered_table(300).to_batches():
            taken += 1
            yield batch

    for number, batch in enumerate(read_ahead(count_batches(), max_bytes)):
        assert first_value(batch) == number
        assert taken <= number + 1 + -(-max_bytes // 8000) + 1
    assert taken == 300
    wait_until_no_thread_reads()


def test_thousands_of_batches_over_tcp_arrive_in_order_and_twice() -> None:
    table = numbered_table(4000)
    with (
        bs.serve({"t": table}, address="127.0.0.1:0", scheme="tcp") as server,
        bs.connect(server.uri("t"), prefetch_bytes=1 << 20) as data,
    ):
        for _ in range(2):
            assert list(map(first_value, data)) == list(range(4000))
        assert data.read_all() == table
    wait_until_no_thread_reads()


def test_shared_memory_is_not_read_ahead() -> None:
    with bs.serve({"t": numbered_table(10)}) as server, bs.connect(server.uri("t"), prefetch_bytes=1 << 20) as data:
        iterator = iter(data)
        next(iterator)
        assert reading_threads() == []


def test_a_loop_that_ends_early_or_a_closed_reader_ends_the_thread() -> None:
    with (
        bs.serve({"t": numbered_table(5000)}, address="127.0.0.1:0", scheme="tcp") as server,
        bs.connect(server.uri("t"), prefetch_bytes=1 << 16) as data,
    ):
        for batch in data:
            assert batch.num_rows == 1000
            break
        wait_until_no_thread_reads()
        iterator = iter(data)
        next(iterator)
        data.close()
        with pytest.raises((ClosedError, ConnectionLostError)):
            list(iterator)
    wait_until_no_thread_reads()


def test_an_error_is_raised_after_the_batches_before_it() -> None:
    def fail_after_three() -> Iterator[bs.RecordBatch]:
        yield from numbered_table(3).to_batches()
        raise ConnectionLostError("as planned")

    batches = read_ahead(fail_after_three(), 1 << 30)
    assert [first_value(next(batches)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ConnectionLostError, match="as planned"):
        next(batches)


def test_a_negative_size_is_an_error() -> None:
    with bs.serve({"t": numbered_table(1)}) as server, pytest.raises(InvalidArgumentError, match="prefetch_bytes"):
        bs.connect(server.uri("t"), prefetch_bytes=-1)
