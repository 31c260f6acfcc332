"""Nothing written or shared contains what the process had in freed memory, or the bits of rows outside of a slice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.memory.region import Region
from bowstring.sharing.stored_parts import index_part

REPOSITORY = Path(__file__).parent.parent


def start(fill_byte: int) -> subprocess.Popen[bytes]:
    """Run `written_bytes.py`, with new memory filled with a byte."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "MALLOC_PERTURB_": str(fill_byte)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.written_bytes", str(fill_byte)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=environment,
    )


@pytest.mark.thorough
def test_written_bytes_do_not_depend_on_uninitialized_memory() -> None:
    with start(0x5A) as one, start(0xA5) as other:
        first, second = (json.loads(process.communicate(timeout=240)[0]) for process in (one, other))
    assert len(first) > 1000
    different = [name for name, digest in first.items() if digest != second[name]]
    assert different == ["numpy.empty", "malloc", "pool"], "memory is not filled, or it is written"


def test_the_padding_between_buffers_is_zero() -> None:
    batch = bs.record_batch({"a": np.arange(3, dtype=np.int8), "b": ["x", None, "yz"], "c": [True, None, False]})
    with bs.share(batch) as handle:
        for region in handle.open_regions():
            assert_zero_between_buffers(region)


def assert_zero_between_buffers(region: Region) -> None:
    dataset = index_part(region)
    assert dataset.messages
    for message in dataset.messages:
        is_padding = np.ones(region.size_bytes, bool)
        for start_bytes, size in zip(message.buffers.addresses, message.buffers.lengths, strict=True):
            is_padding[int(start_bytes) : int(start_bytes + size)] = False
        body = slice(message.body_offset, message.body_offset + message.body_bytes)
        padding = np.frombuffer(region.memory, np.uint8)[body][is_padding[body]]
        assert padding.size > 100
        assert not padding.any()


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_a_slice_is_written_without_the_bits_of_other_rows(offset: int) -> None:
    values = [False] * offset + [False, False, None] + [True, None] * 10
    column = bs.array(values, bs.bool_()).slice(offset, 3)
    with bs.share(bs.record_batch({"a": column})) as handle:
        (region,) = handle.open_regions()
        (message,) = index_part(region).messages
        bitmaps = [region.memory[int(address)] for address in message.buffers.addresses]
    assert bitmaps == [0b011, 0b000]
