"""Prints a digest of what many operations write: `written_bytes.py BYTE`, where new memory is filled with BYTE.

NumPy's functions for uninitialized memory and the pool fill it here, malloc with the environment variable
`MALLOC_PERTURB_`. An operation whose digest depends on BYTE would write what the process had in freed memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

import numpy as np

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring.memory.mapping_pool import MAPPING_POOL, MappingPool
from tests.layouts.random_arrays import any_type, random_array

SEEDS = 100
ROWS = 21
CASTS = (bs.string(), bs.string_view(), bs.large_binary(), bs.float64(), bs.int64(), bs.int8(), bs.bool_())
OPERATIONS: dict[str, Callable[[bs.Array], Any]] = {
    "from Python values": lambda array: bs.array(array.to_pylist(), array.type),
    "slice": lambda array: array.slice(3, 9),
    "take": lambda array: array.take([3, 0, 7, 7, 1]),
    "filter": lambda array: array.filter(bs.array([True, None, False] * (ROWS // 3))),
    "concatenate": lambda array: bs.ChunkedArray([array, array.slice(5)], array.type).combine_chunks(),
    "drop nulls": lambda array: array.drop_null(),
    "fill nulls": lambda array: array.fill_null(array.drop_null()[0]),
    "sort": lambda array: array.sort(),
    "unique": lambda array: array.unique(),
    "dictionary encode": lambda array: array.dictionary_encode(),
    "dictionary decode": lambda array: array.dictionary_encode().dictionary_decode(),
    "run-end encode": lambda array: array.run_end_encode(),
    "run-end decode": lambda array: array.run_end_encode().run_end_decode(),
    "is valid": lambda array: array.is_valid(),
    **{f"cast to {target}": partial(bs.Array.cast, target_type=target, safe=False) for target in CASTS},
}
BIG_ENDIAN = bs.ipc.IpcWriteOptions(byte_order="big")


def filled(allocate: Callable[..., Any], byte: int) -> Callable[..., Any]:
    """Return an allocating function that fills the memory."""

    def allocate_and_fill(*arguments: Any, **options: Any) -> Any:
        array = allocate(*arguments, **options)
        if array.nbytes and not array.dtype.hasobject:
            ctypes.memset(array.ctypes.data, byte, array.nbytes)
        return array

    return allocate_and_fill


def fill_new_memory(byte: int) -> None:
    """Make NumPy and the pool fill uninitialized memory with a byte."""
    for owner, name in ((np, "empty"), (np, "empty_like"), (MappingPool, "allocate")):
        setattr(owner, name, filled(getattr(owner, name), byte))


def batch_of(array: bs.Array) -> bs.RecordBatch:
    """Return a batch with one column."""
    return bs.record_batch({"column": array})


def stream_of(batch: bs.RecordBatch, options: Mapping[str, Any]) -> bytes:
    """Return a stream with the batch."""
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema, **options) as writer:
        writer.write(batch)
    return sink.getvalue()


def file_of(batch: bs.RecordBatch) -> bytes:
    """Return a file with the batch."""
    sink = io.BytesIO()
    with bs.new_file(sink, batch.schema) as writer:
        writer.write(batch)
    return sink.getvalue()


def shared_memory_of(batch: bs.RecordBatch) -> bytes:
    """Return the bytes of the memory that `share` creates."""
    with bs.share(batch) as handle:
        return b"".join(bytes(region.memory) for region in handle.open_regions())


def stream_after(array: bs.Array, operation: Callable[[bs.Array], Any]) -> bytes:
    """Return a stream with the array after an operation."""
    return stream_of(batch_of(operation(array)), {})


WRITERS: dict[str, Callable[[bs.Array], bytes]] = {
    "file": lambda array: file_of(batch_of(array)),
    "shared memory": lambda array: shared_memory_of(batch_of(array)),
    "stream": lambda array: stream_of(batch_of(array), {}),
    "aligned stream": lambda array: stream_of(batch_of(array), {"alignment": 8}),
    "big-endian stream": lambda array: stream_of(batch_of(array), {"options": BIG_ENDIAN}),
    "compressed stream": lambda array: stream_of(batch_of(array), {"compression": "lz4"}),
    **{name: partial(stream_after, operation=operation) for name, operation in OPERATIONS.items()},
}


def contents() -> Iterator[tuple[str, bytes]]:
    """Yield what each operation writes, with arrays of random types; also uninitialized memory, for comparison."""
    yield "numpy.empty", np.empty(1000, np.uint8).tobytes()
    yield "malloc", np.ndarray(2000, np.uint8).tobytes()
    yield "pool", MAPPING_POOL.allocate(1000).tobytes()
    for seed in range(SEEDS):
        random = Random(seed)
        type_ = any_type(random)
        array = random_array(random, type_, ROWS)
        for name, write in WRITERS.items():
            try:
                yield f"{seed} {type_}: {name}", write(array)
            except (BowstringError, IndexError):  # the type is not supported, or there are only nulls
                continue


if __name__ == "__main__":
    fill_new_memory(int(sys.argv[1]))
    json.dump({name: hashlib.sha256(content).hexdigest() for name, content in contents()}, sys.stdout)
