"""The memory of received messages."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from bowstring.memory.mapping_pool import MAPPING_POOL, POOLED_BYTES
from bowstring.transports import frames

SIZE_BYTES = 2 * POOLED_BYTES


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    MAPPING_POOL.release_unused()
    yield
    MAPPING_POOL.release_unused()


def address_of(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def test_memory_is_used_again_after_the_last_view_is_gone() -> None:
    message = frames._allocate_message(SIZE_BYTES, "test")
    message[:3] = b"abc"
    slice_of_it, first = message[1:3], address_of(message)
    del message
    gc.collect()
    other = frames._allocate_message(SIZE_BYTES - 100, "test")
    assert address_of(other) != first
    content = bytes(slice_of_it)
    del slice_of_it
    gc.collect()
    assert content == b"bc"
    again = frames._allocate_message(SIZE_BYTES - 200, "test")
    assert (address_of(again), len(again)) == (first, SIZE_BYTES - 200)


def test_only_long_messages_use_the_pool() -> None:
    for length_bytes in (0, frames._MIN_MAPPED_BYTES, POOLED_BYTES - 1):
        assert len(frames._allocate_message(length_bytes, "test")) == length_bytes
    assert MAPPING_POOL.unused_bytes == 0
