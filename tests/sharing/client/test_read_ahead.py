"""`connect(prefetch_bytes=…)`: batches of other hosts are received ahead of the loop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError
from bowstring.sharing.client import dataset_reader
from bowstring.sharing.client.read_ahead import ReadAhead
from tests.sharing.python_process import PythonProcess, run_python


def numbered_table(num_batches: int, rows: int = 1000) -> bs.Table:
    batches = [bs.record_batch({"x": np.full(rows, number, np.int64)}) for number in range(num_batches)]
    return bs.Table.from_batches(batches)


def first_value(batch: bs.RecordBatch) -> int:
    return int(batch["x"].to_numpy()[0])


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bowstring-read-ahead"]


@pytest.mark.parametrize("max_bytes", [1, 7999, 8000, 8001, 1 << 30])
def test_as_many_batches_wait_as_fit(max_bytes: int) -> None:
    taken = 0

    def count_batches() -> Iterator[bs.RecordBatch]:
        nonlocal taken
        for batch in numbered_table(300).to_batches():
            taken += 1
            yield batch

    for number, batch in enumerate(ReadAhead(max_bytes).iterate(count_batches())):
        assert first_value(batch) == number
        assert taken <= number + 1 + -(-max_bytes // 8000) + 1
    assert taken == 300
    assert reading_threads() == []


def test_thousands_of_batches_over_tcp_arrive_in_order_and_twice() -> None:
    table = numbered_table(4000)
    with (
        bs.serve({"t": table}, address="127.0.0.1:0", scheme="tcp") as server,
        bs.connect(server.uri("t"), prefetch_bytes=1 << 20) as data,
    ):
        for _ in range(2):
            assert list(map(first_value, data)) == list(range(4000))
        assert data.read_all() == table
    assert reading_threads() == []


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
        assert reading_threads() == []
        iterator = iter(data)
        next(iterator)
        data.close()
        with pytest.raises(ClosedError, match="closed while it was read"):
            next(iterator)
    assert reading_threads() == []


def test_an_error_is_raised_after_the_batches_before_it() -> None:
    def fail_after_three() -> Iterator[bs.RecordBatch]:
        yield from numbered_table(3).to_batches()
        raise ConnectionLostError("as planned")

    batches = ReadAhead(1 << 30).iterate(fail_after_three())
    assert [first_value(next(batches)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ConnectionLostError, match="as planned"):
        next(batches)


def test_a_negative_size_is_an_error() -> None:
    with bs.serve({"t": numbered_table(1)}) as server, pytest.raises(InvalidArgumentError, match="prefetch_bytes"):
        bs.connect(server.uri("t"), prefetch_bytes=-1)


SERVE = """
import numpy as np, os
import bowstring as bs
batches = [bs.record_batch({"x": np.full(1000, number, np.int64)}) for number in range(5000)]
with bs.serve({"t": bs.Table.from_batches(batches)}, address="127.0.0.1:0", scheme="tcp") as server:
    send((os.getpid(), server.uri("t")))
    receive()
"""
FORK = """
import os
import bowstring as bs
from bowstring.errors import ClosedError
with bs.connect(uri, prefetch_bytes=1 << 16) as data:
    iterator = iter(data)
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except ClosedError as error:
            os._exit(0 if "in the parent process" in str(error) else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    send((status, sum(1 for _ in iterator)))
"""


def test_a_loop_that_ends_while_the_server_is_silent_ends_the_thread() -> None:
    with PythonProcess(SERVE) as server:
        process_id, uri = server.receive()
        with bs.connect(uri, prefetch_bytes=1 << 30) as data:
            iterator = iter(data)
            next(iterator)
            os.kill(process_id, signal.SIGSTOP)
            try:
                del iterator
                assert reading_threads() == []
            finally:
                os.kill(process_id, signal.SIGCONT)
            assert sum(1 for _ in data) == 5000


def test_the_batches_before_the_end_of_a_killed_server_arrive_in_order() -> None:
    with PythonProcess(SERVE) as server:
        process_id, uri = server.receive()
        with bs.connect(uri, prefetch_bytes=1 << 16) as data:
            numbers = []
            with pytest.raises(ConnectionLostError):
                for batch in data:
                    numbers.append(first_value(batch))
                    if len(numbers) == 10:
                        os.kill(process_id, signal.SIGKILL)
            assert numbers == list(range(len(numbers)))
            assert 10 <= len(numbers) < 5000
            assert reading_threads() == []


def test_parts_in_shared_memory_are_not_read_before_they_are_needed() -> None:
    taken = 0
    ahead = ReadAhead(1 << 30)

    def count_batches() -> Iterator[bs.RecordBatch]:
        nonlocal taken
        for batch in numbered_table(300).to_batches():
            ahead.wait_until_needed()
            taken += 1
            yield batch

    for number, _ in enumerate(ahead.iterate(count_batches())):
        assert taken == number + 1


def test_parts_of_all_kinds_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [bs.Table.from_batches(numbered_table(150).to_batches()[start : start + 50]) for start in (0, 50, 100)]
    with bs.new_file(tmp_path / "1.arrow", tables[1].schema) as file:
        file.write_table(tables[1])
    needed = []
    wait = ReadAhead.wait_until_needed

    def count_and_wait(ahead: ReadAhead) -> None:
        needed.append(ahead)
        wait(ahead)

    monkeypatch.setattr(ReadAhead, "wait_until_needed", count_and_wait)
    with (
        bs.serve({"0": tables[0]}, address="127.0.0.1:0", scheme="tcp") as tcp,
        bs.serve({"2": tables[2]}) as unix,
    ):
        uris = (tcp.uri("0"), f"file:{tmp_path}/1.arrow", unix.uri("2"))
        dataset = Dataset("mixed", tables[0].schema, [DatasetPart(50_000, 0, (uri,)) for uri in (*uris, uris[0])])
        with bs.connect(dataset, prefetch_bytes=1 << 30) as data:
            assert list(map(first_value, data)) == [*range(150), *range(50)]
        assert len(needed) == 51  # before the part, and after each of its batches
        with bs.connect(dataset, prefetch_bytes=1 << 30) as data:
            for number, _ in zip(range(120), data, strict=False):
                assert number < 120
    assert reading_threads() == []


def test_the_bytes_of_columns_that_are_not_selected_count(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = []

    class Spy(ReadAhead):
        def _take(self) -> bs.RecordBatch | None:
            waiting.append(len(self._waiting))
            return super()._take()

    monkeypatch.setattr(dataset_reader, "ReadAhead", Spy)
    batch = bs.record_batch({"x": np.arange(100), **{f"wide {number}": np.arange(100) for number in range(99)}})
    table = bs.Table.from_batches([batch] * 500)
    with bs.serve({"t": table}, address="127.0.0.1:0", scheme="tcp") as server:
        dataset = Dataset("wide", table.schema, [DatasetPart(50_000, table.nbytes, (server.uri("t"),))]).select("x")
        with bs.connect(dataset, prefetch_bytes=2 * batch.nbytes) as data:
            assert sum(each.num_rows for each in data) == 50_000
    assert max(waiting) <= 2


@pytest.mark.thorough
def test_a_forked_child_does_not_wait_for_the_thread_of_its_parent() -> None:
    with PythonProcess(SERVE) as server:
        _, uri = server.receive()
        assert run_python(FORK, uri=uri) == (0, 4999)
