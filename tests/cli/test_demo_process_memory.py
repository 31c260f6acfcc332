"""The private memory of processes, which the demo reports."""

from __future__ import annotations

import mmap
import os
import time

import pytest

pytest.importorskip("pyspark")

from bowstring.cli.demo.process_memory import measure_peak_growth, private_bytes

SIZE_BYTES = 64 << 20


def test_the_peak_of_private_memory_counts_what_was_freed_meanwhile() -> None:
    def allocate() -> int:
        block = bytearray(b"x") * SIZE_BYTES
        time.sleep(0.1)
        return len(block)

    length, growth = measure_peak_growth([os.getpid()], allocate)
    assert length == SIZE_BYTES
    assert SIZE_BYTES * 0.9 < growth < SIZE_BYTES * 1.5


def test_shared_memory_is_not_private() -> None:
    before = private_bytes()
    with mmap.mmap(-1, SIZE_BYTES, flags=mmap.MAP_SHARED) as shared:
        for offset in range(0, SIZE_BYTES, mmap.PAGESIZE):
            shared[offset] = 1
        assert private_bytes() - before < SIZE_BYTES / 2


def test_a_process_that_has_ended_has_no_memory() -> None:
    assert private_bytes(2**22 + 1) == 0
