"""Decompression into memory that is there: whatever a frame's blocks are like, the same bytes or an error come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard

from bowstring.errors import InvalidDataError
from bowstring.ipc import codecs

BLOCK, PIECE = 1 << 16, 1 << 18
SIZES = [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, PIECE - 1, PIECE, PIECE + 1, 5 * BLOCK + 11]


def mixture(size: int) -> bytes:
    """Stretches that shrink and stretches that do not, so that blocks of both kinds follow each other."""
    random = np.random.default_rng(7)
    stretch = BLOCK // 3 * 2
    parts = [random.bytes(stretch) if at % 2 else b"over and over " * stretch for at in range(size // stretch + 1)]
    return b"".join(part[:stretch] for part in parts)[:size]


def filled(decompress: Callable[[memoryview, memoryview], None], frame: bytes, size: int) -> bytes:
    out = bytearray(b"\xaa" * size)
    decompress(memoryview(frame), memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("block_linked", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store_size": False},
        {"block_size": lz4.frame.BLOCKSIZE_MAX1MB},
        {"content_checksum": True},
        {"block_checksum": True},
        {"compression_level": 9},
    ],
    ids=str,
)
def test_any_lz4_frame_is_decompressed(size: int, block_linked: bool, options: dict[str, Any]) -> None:
    data = mixture(size)
    frame = lz4.frame.compress(data, block_linked=block_linked, **options)
    assert filled(codecs.decompress_lz4, frame, size) == data
    assert filled(codecs.decompress_lz4, frame + b"what comes after", size) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", [{}, {"write_checksum": True}, {"write_content_size": False}], ids=str)
def test_any_zstandard_frame_is_decompressed(size: int, options: dict[str, Any]) -> None:
    data = mixture(size)
    frame = zstandard.ZstdCompressor(**options).compress(data)
    assert filled(codecs.decompress_zstd, frame, size) == data
    assert filled(codecs.decompress_zstd, frame + b"what comes after", size) == data


def test_a_frame_of_many_small_blocks_is_decompressed() -> None:
    context = lz4.frame.create_compression_context()
    frame = lz4.frame.compress_begin(context)
    for at in range(500):
        frame += lz4.frame.compress_chunk(context, b"%d " % at) + lz4.frame.compress_flush(context, end_frame=False)
    frame += lz4.frame.compress_flush(context)
    data = b"".join(b"%d " % at for at in range(500))
    assert filled(codecs.decompress_lz4, frame, len(data)) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_length_that_is_not_the_frame_s_is_refused(codec: str, size: int) -> None:
    data = mixture(size)
    if codec == "lz4":
        frame, decompress = lz4.frame.compress(data, store_size=False), codecs.decompress_lz4
    else:
        frame, decompress = zstandard.ZstdCompressor().compress(data), codecs.decompress_zstd
    for wrong in {size - 1, size + 1, 2 * size} - {0}:
        with pytest.raises(InvalidDataError, match="frame"):
            filled(decompress, frame, wrong)
    for end in {1, 5, len(frame) // 2, len(frame) - 1}:
        with pytest.raises(InvalidDataError, match="frame"):
            filled(decompress, frame[:end], size)


@pytest.mark.parametrize("bit", range(8 * 15))
def test_flipped_bits_in_the_head_of_a_frame_give_the_bytes_or_an_error(bit: int) -> None:
    data = mixture(BLOCK + 9)
    frame = bytearray(lz4.frame.compress(data))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        assert filled(codecs.decompress_lz4, bytes(frame), len(data)) == data
    except InvalidDataError:
        pass
