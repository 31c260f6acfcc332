"""The memory pool reuses memory only after the end of its last reference."""

from __future__ import annotations

import ctypes
import gc
import io
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.memory.buffer import Bytes, Memory
from bowstring.memory.mapping_pool import LARGE_PAGE_BYTES, MAPPING_POOL, MAX_UNUSED_BYTES, MappingPool
from tests.polling import wait_until

PAGE = LARGE_PAGE_BYTES


def address(array: Bytes) -> int:
    return int(array.__array_interface__["data"][0])


def take_filled(pool: MappingPool, size_bytes: int, byte: int) -> Bytes:
    array = pool.allocate(size_bytes)
    array[:] = byte
    return array


@pytest.mark.parametrize("size_bytes", [0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE])
def test_memory_has_the_requested_size_and_alignment(size_bytes: int) -> None:
    array = take_filled(MappingPool(), size_bytes, 3)
    assert array.shape == (size_bytes,)
    assert address(array) % PAGE == 0
    assert array.flags.writeable


def test_released_memory_is_reused() -> None:
    pool = MappingPool()
    array = pool.allocate(3 * PAGE)
    first = address(array)
    assert pool.unused_bytes == 0
    del array
    assert pool.unused_bytes == 3 * PAGE
    array = pool.allocate(3 * PAGE - 5)
    assert address(array) == first
    assert pool.unused_bytes == 0


def test_a_much_larger_block_is_not_used_for_a_small_request() -> None:
    pool = MappingPool()
    for pages in (8, 9, 20):
        pool.allocate(pages * PAGE)
    assert pool.unused_bytes == 37 * PAGE
    blocks = [pool.allocate(7 * PAGE)]
    assert pool.unused_bytes == 29 * PAGE
    blocks.append(pool.allocate(7 * PAGE))
    assert pool.unused_bytes == 29 * PAGE


class CtypesBytes(ctypes.Structure):
    _fields_ = (("first", ctypes.c_ubyte * 100),)


class ArrayInterface:
    def __init__(self, array: Bytes) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


def pickle_out_of_band(array: Bytes) -> list[pickle.PickleBuffer]:
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return buffers


VIEWS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda array: array,
    "a slice": lambda array: array[17:18],
    "a slice of a slice": lambda array: array[10:][10:20][::2],
    "another type": lambda array: array.view(np.int64)[4:],
    "another shape": lambda array: array.reshape(-1, 64).T,
    "a subclass": lambda array: array.view(np.recarray),
    "an array over its buffer": lambda array: np.frombuffer(array, np.int32, 5, 40),
    "an array over its interface": lambda array: np.asarray(ArrayInterface(array)),
    "a memoryview": lambda array: memoryview(array)[5:6],
    "a memoryview of a memoryview": lambda array: memoryview(array)[5:].cast("b").toreadonly(),
    "an iterator": lambda array: array.flat,
    "a ctypes structure": CtypesBytes.from_buffer,
    "a pickle buffer": pickle.PickleBuffer,
    "a pickle with its buffers beside it": pickle_out_of_band,
    "a buffer": lambda array: bs.memory.Buffer(Memory(array), 9, 9),
    "a view of a buffer": lambda array: bs.memory.Buffer.of(array).view(np.dtype(np.int16)),
    "a buffer of pyarrow": lambda array: pa.py_buffer(array).slice(5, 5),
    "an array of pyarrow": lambda array: pa.array(bs.array(array[:1000])).slice(10, 10),
    "a stream of pyarrow": lambda array: pa.RecordBatchReader.from_stream(bs.table({"x": bs.array(array[:1000])})),
    "a DLPack capsule": lambda array: array.__dlpack__(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_memory_is_not_reused_while_it_is_referenced(kind: str) -> None:
    pool = MappingPool()
    array = take_filled(pool, PAGE, 7)
    place = (ctypes.c_ubyte * PAGE).from_address(address(array))
    view = VIEWS[kind](array)
    del array
    gc.collect()
    assert pool.unused_bytes == 0
    others = [take_filled(pool, PAGE, 9) for _ in range(3)]
    assert bytes(place) == b"\7" * PAGE
    del view
    gc.collect()
    assert pool.unused_bytes == PAGE
    del others


def test_memory_of_a_resurrected_object_is_not_reused() -> None:
    pool = MappingPool()
    saved: list[Bytes] = []

    class Phoenix:
        def __init__(self) -> None:
            self.me: Phoenix | None = self
            array = take_filled(pool, PAGE, 7)
            self.arrays: list[Any] = [array, array.base, array[5:]]

        def __del__(self) -> None:
            saved.append(self.arrays[2])

    bird = Phoenix()
    del bird
    gc.collect()
    assert len(saved) == 1
    assert pool.unused_bytes == 0
    other = take_filled(pool, PAGE, 9)
    assert (saved[0] == 7).all()
    saved.clear()
    gc.collect()
    assert pool.unused_bytes == PAGE
    assert (other == 9).all()


def test_the_pool_is_bounded_and_evicts_the_oldest_block() -> None:
    pool = MappingPool(10 * PAGE)
    blocks = [pool.allocate(pages * PAGE) for pages in (2, 3, 4)]
    while blocks:
        del blocks[0]
    assert pool.unused_bytes == 9 * PAGE
    pool.allocate(11 * PAGE)
    assert pool.unused_bytes == 9 * PAGE
    pool.allocate(6 * PAGE)
    assert pool.unused_bytes == 10 * PAGE
    assert pool.release_unused() == 10 * PAGE
    assert pool.unused_bytes == pool.release_unused() == 0


def test_memory_released_during_a_pool_operation_is_freed() -> None:
    pool = MappingPool()
    array = pool.allocate(PAGE)
    with pool._lock:
        del array
    assert pool.unused_bytes == 0
    assert pool.allocate(PAGE).size == PAGE


def test_threads_never_get_the_same_bytes() -> None:
    pool = MappingPool(20 * PAGE)
    start = threading.Barrier(4)

    def work(number: int) -> None:
        chance = random.Random(number)
        blocks: list[tuple[int, Bytes]] = []
        start.wait(10)
        for turn in range(150):
            byte = (number * 61 + turn) % 251
            blocks.append((byte, take_filled(pool, chance.randrange(1, 3 * PAGE), byte)[:: chance.choice([1, 4096])]))
            if len(blocks) > 3:
                byte, array = blocks.pop(chance.randrange(len(blocks)))
                assert (array == byte).all()

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, range(4)))
    assert 0 < pool.unused_bytes <= 20 * PAGE


def test_a_forked_child_starts_with_an_empty_pool() -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore")
from bowstring.memory.mapping_pool import LARGE_PAGE_BYTES as PAGE, MAPPING_POOL
array = MAPPING_POOL.allocate(PAGE)
array[:] = 7
MAPPING_POOL.allocate(PAGE)
assert MAPPING_POOL.unused_bytes == PAGE
MAPPING_POOL._lock.acquire()
child = os.fork()
if not child:
    assert MAPPING_POOL.unused_bytes == 0 and (array == 7).all()
    array[:] = 8
    del array
    assert MAPPING_POOL.unused_bytes == PAGE
    MAPPING_POOL.allocate(PAGE)[:] = 9
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
MAPPING_POOL._lock.release()
assert MAPPING_POOL.unused_bytes == PAGE and (array == 7).all()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces limits of the address space")
def test_unused_memory_is_freed_if_memory_is_short() -> None:
    code = """
import resource
from bowstring.memory.mapping_pool import LARGE_PAGE_BYTES as PAGE, MappingPool
pool = MappingPool()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100 * PAGE, used + 100 * PAGE))
arrays = [pool.allocate(20 * PAGE) for _ in range(3)]
arrays.clear()
assert pool.unused_bytes == 60 * PAGE
assert pool.allocate(80 * PAGE).size == 80 * PAGE
assert pool.unused_bytes == 80 * PAGE
for size_bytes in (200 * PAGE, 1 << 62, 2**63 - 1, 1 << 70):
    try:
        pool.allocate(size_bytes)
    except MemoryError as error:
        assert "no memory for" in str(error)
    else:
        raise SystemExit("there is not so much memory")
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, "")


def test_a_process_may_end_while_memory_is_in_use() -> None:
    code = """
from bowstring.memory.mapping_pool import MAPPING_POOL
class ArrayOwner:
    def __del__(self): self.array[:] = 1
owner, cycle = ArrayOwner(), ArrayOwner()
owner.array, cycle.array, cycle.itself = MAPPING_POOL.allocate(10), MAPPING_POOL.allocate(10), cycle
MAPPING_POOL.allocate(10)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode, process.stderr) == (0, "")


def compressed_file(seed: int, codec: str) -> tuple[pa.Table, bytes]:
    chance = np.random.default_rng(seed)
    table = pa.table({f"c{index}": chance.integers(0, 1 << 40, 150_000) for index in range(4)})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=75_000)
    return table, sink.getvalue()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_referenced_columns_are_not_overwritten_by_later_reads(codec: str) -> None:
    sources = [compressed_file(seed, codec) for seed in range(4)]
    bs.memory.release_unused_memory()
    columns: list[tuple[pa.Table, int, Any]] = []
    for turn in range(24):
        table, data = sources[turn % 4]
        batches = [batch.columns for batch in bs.open_file(data)]
        assert MAPPING_POOL.unused_bytes <= MAX_UNUSED_BYTES
        column = turn % 3
        kind = turn % 5
        holder: Any = batches[0][column]
        if kind == 1:
            holder = holder.to_numpy()
        elif kind == 2:
            holder = pa.array(holder)
        elif kind == 3:
            holder = pickle.loads(pickle.dumps(holder))
        elif kind == 4:
            holder = memoryview(holder.to_numpy())
        columns.append((table, column, holder))
        if len(columns) > 7:
            columns.pop(turn % 7)
        del batches, holder
        for table, column, holder in columns:
            assert np.array_equal(np.asarray(holder), table.column(column).to_numpy()[:75_000])
    columns.clear()
    holder = None
    gc.collect()
    assert bs.memory.release_unused_memory() > 0
    assert wait_until(
        lambda: bs.memory.release_unused_memory() == 0
    )  # a decompression thread may return its memory later


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_memory_is_returned_after_a_failed_decompression(codec: str) -> None:
    table, data = compressed_file(1, codec)
    damaged = bytearray(data)
    header, body = bs.open_file(data).read_batch_message(0)
    at = body.offset + int(header.buffers()["offset"][3]) + 8
    damaged[at : at + 8] = bytes(8)
    bs.memory.release_unused_memory()
    sizes = []
    for _ in range(3):
        with pytest.raises(bs.errors.InvalidDataError, match="c1"):
            _ = bs.open_file(bytes(damaged)).get_batch(0).columns
        gc.collect()
        assert wait_until(lambda: MAPPING_POOL.unused_bytes > 0)  # a decompression thread may return it later
        sizes.append(MAPPING_POOL.unused_bytes)
    assert len(set(sizes)) == 1
    assert pa.table(bs.open_file(data).read_all()).equals(table)
