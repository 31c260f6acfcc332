"""One reader or writer in several threads: each batch is read or written exactly once."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ClosedError
from tests.ipc.samples import as_file, as_stream

THREADS = 3
WORDS = bs.dictionary(bs.int8(), bs.string())


def numbered_batch(number: int) -> bs.RecordBatch:
    words = bs.array([f"{number} {at % 3}" for at in range(20)], WORDS)
    return bs.record_batch({"n": bs.array(np.full(20, number)), "words": words})


BATCHES = [numbered_batch(number) for number in range(24)]


class SlowFile(io.RawIOBase):
    """A file object that lets another thread run before each read and write."""

    def __init__(self, raw: bytes = b"") -> None:
        self._held = io.BytesIO(raw)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        time.sleep(0.0002)
        return self._held.readinto(into)

    def write(self, data: Any) -> int:
        time.sleep(0.0002)
        return self._held.write(data)

    @property
    def raw(self) -> bytes:
        return self._held.getvalue()


def in_threads(work: Callable[[int], object]) -> None:
    """Run it in several threads at once; raise what any of them raises."""
    begun, failed = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        begun.wait(10)
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 -- it is raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_threads_that_share_a_stream_reader_get_each_batch_once() -> None:
    got: list[bs.RecordBatch] = []
    with bs.open_stream(SlowFile(as_stream(*BATCHES))) as reader:
        in_threads(lambda _: got.extend(reader))
    got.sort(key=lambda batch: batch["n"].to_pylist())
    assert [batch.to_pydict() for batch in got] == [batch.to_pydict() for batch in BATCHES]


def test_threads_that_share_a_tensor_reader_get_each_tensor_once() -> None:
    sink = io.BytesIO()
    for number in range(30):
        bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.full((3, 4), number)), sink)
    got: list[Any] = []
    with bs.tensors.open_tensor_stream(SlowFile(sink.getvalue())) as reader:
        in_threads(lambda _: got.extend(tensor.to_numpy() for tensor in reader))
    assert sorted(tensor.ravel().tolist() for tensor in got) == [[number] * 12 for number in range(30)]


@pytest.mark.parametrize("new", [bs.new_stream, bs.new_file])
def test_batches_of_several_threads_are_not_interleaved(new: Callable[..., Any]) -> None:
    sink, plain = SlowFile(), [bs.record_batch({"n": np.full(50_000, number)}) for number in range(24)]
    with new(sink, plain[0].schema) as writer:
        in_threads(lambda thread: [writer.write(batch) for batch in plain[thread::THREADS]])
    with (bs.open_stream if new is bs.new_stream else bs.open_file)(sink.raw) as reader:
        got = sorted(list(set(batch["n"].to_pylist())) for batch in reader)
    assert got == [[number] for number in range(24)]


def test_rows_added_by_several_threads_stay_rows() -> None:
    sink, schema, before = io.BytesIO(), bs.schema({"a": bs.int64(), "b": bs.int64()}), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with bs.ipc.CoalescingWriter(bs.new_stream(sink, schema), min_rows=500) as writer:

            def add_rows(thread: int) -> None:
                for number in range(thread * 1000, thread * 1000 + 600):
                    writer.write_pydict({"a": [number], "b": [number]})
                    writer.write(bs.record_batch({"a": [-number], "b": [-number]}, schema))

            in_threads(add_rows)
    finally:
        sys.setswitchinterval(before)
    rows = bs.open_stream(sink.getvalue()).read_all().to_pydict()
    assert rows["a"] == rows["b"]
    values = [sign * (thread * 1000 + at) for thread in range(THREADS) for at in range(600) for sign in (1, -1)]
    assert sorted(rows["a"]) == sorted(values)


def test_tensors_of_several_threads_are_not_interleaved() -> None:
    sink = SlowFile()
    with bs.tensors.new_tensor_stream(sink) as writer:
        in_threads(
            lambda thread: [writer.write(bs.tensors.Tensor.from_numpy(np.full(50_000, thread))) for _ in range(8)]
        )
    got = [tensor.to_numpy() for tensor in bs.tensors.open_tensor_stream(sink.raw)]
    assert sorted(int(values.min()) for values in got if values.min() == values.max()) == [0] * 8 + [1] * 8 + [2] * 8


def test_a_tensor_reader_interrupted_within_a_message_can_not_continue() -> None:
    sink = io.BytesIO()
    for _ in range(2):
        bs.tensors.write_tensor(bs.tensors.Tensor.from_numpy(np.arange(5)), sink)

    class Interrupted(SlowFile):
        def readinto(self, into: Any) -> int:
            if self._held.tell() > 8:
                raise KeyboardInterrupt
            return super().readinto(into)

    reader = bs.tensors.open_tensor_stream(Interrupted(sink.getvalue()))
    with pytest.raises(KeyboardInterrupt):
        next(reader)
    with pytest.raises(ClosedError):
        next(reader)


@pytest.mark.parametrize("is_open", [True, False], ids=["another file", "no file"])
def test_a_reused_descriptor_of_a_closed_reader_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    path, other = tmp_path / "own.arrow", tmp_path / "other"
    path.write_bytes(as_file(*[batch.select(["n"]) for batch in BATCHES]))
    other.write_bytes(b"\xff" * path.stat().st_size)
    reader, real = bs.open_file(path), os.pread
    descriptors: list[int] = []

    def read_late(descriptor: int, size: int, offset: int) -> bytes:
        if not descriptors:  # another thread closes the reader between two steps of this one and opens a file
            reader.close()
            descriptors.append(os.open(other, os.O_RDONLY))
            assert descriptors[0] == descriptor
            if not is_open:
                os.close(descriptors[0])
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", read_late)
    got = reader.get_batch(7)["n"].to_pylist()
    monkeypatch.undo()
    if is_open:
        os.close(descriptors[0])
    assert got == [7] * 20
