"""Copies by several threads."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from bowstring.memory.parallel_copy import copy_all, copy_bytes

PIECE_BYTES = 1 << 22


@pytest.mark.parametrize("size_bytes", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 5])
def test_all_bytes_are_copied_and_no_others(size_bytes: int) -> None:
    source = np.random.default_rng(size_bytes).integers(0, 256, size_bytes, np.uint8)
    target = np.full(size_bytes + 2, 0xAA, np.uint8)
    copy_bytes(source.data, target[1:-1].data)
    assert np.array_equal(target[1:-1], source)
    assert target[0] == target[-1] == 0xAA


def test_several_sources_are_copied_each_to_its_target() -> None:
    sources = [np.full(PIECE_BYTES + index, index, np.uint8) for index in range(4)]
    targets = [np.empty_like(source) for source in sources]
    copy_all(list(zip(sources, targets, strict=True)))
    for source, target in zip(sources, targets, strict=True):
        assert np.array_equal(source, target)


def test_no_thread_keeps_a_view_of_the_memory_after_the_copy() -> None:
    source = bytes(4 * PIECE_BYTES)
    for _ in range(20):
        with mmap.mmap(-1, len(source)) as target, memoryview(target) as view:
            copy_bytes(memoryview(source), view)
        assert target.closed  # `close` raises BufferError if there are views


def test_sizes_that_differ_are_an_error() -> None:
    with pytest.raises(ValueError, match="has 2 bytes, the source 1"):
        copy_bytes(memoryview(b"x"), memoryview(bytearray(2)))
