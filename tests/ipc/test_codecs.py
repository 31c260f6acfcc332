"""Decompression into existing memory: every frame gives the original bytes or an error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard

from bowstring.errors import InvalidDataError
from bowstring.ipc import codecs

BLOCK, PIECE = 1 << 16, 1 << 18
SIZES = [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, PIECE - 1, PIECE, PIECE + 1, 5 * BLOCK + 11]


def mixed_bytes(size: int) -> bytes:
    """Return compressible and incompressible ranges in turn, so that both kinds of blocks alternate."""
    random = np.random.default_rng(7)
    stretch = BLOCK // 3 * 2
    parts = [random.bytes(stretch) if at % 2 else b"over and over " * stretch for at in range(size // stretch + 1)]
    return b"".join(part[:stretch] for part in parts)[:size]


def decompress_to_bytes(decompress: Callable[[memoryview, memoryview], None], frame: bytes, size: int) -> bytes:
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
    data = mixed_bytes(size)
    frame = lz4.frame.compress(data, block_linked=block_linked, **options)
    assert decompress_to_bytes(codecs.decompress_lz4_into, frame, size) == data
    for excess in (b"what comes after", bytes(8)):  # pyarrow, too, rejects them
        with pytest.raises(InvalidDataError, match=f"a buffer has {len(excess)} bytes after its LZ4 frame"):
            decompress_to_bytes(codecs.decompress_lz4_into, frame + excess, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", [{}, {"write_checksum": True}, {"write_content_size": False}], ids=str)
def test_any_zstandard_frame_is_decompressed(size: int, options: dict[str, Any]) -> None:
    data = mixed_bytes(size)
    frame = zstandard.ZstdCompressor(**options).compress(data)
    assert decompress_to_bytes(codecs.decompress_zstd_into, frame, size) == data
    for excess in (b"what comes after", bytes(8)):  # pyarrow, too, rejects them
        with pytest.raises(InvalidDataError, match=f"a buffer has {len(excess)} bytes after its Zstandard frame"):
            decompress_to_bytes(codecs.decompress_zstd_into, frame + excess, size)


def test_a_frame_of_many_small_blocks_is_decompressed() -> None:
    context = lz4.frame.create_compression_context()
    frame = lz4.frame.compress_begin(context)
    for at in range(500):
        frame += lz4.frame.compress_chunk(context, b"%d " % at) + lz4.frame.compress_flush(context, end_frame=False)
    frame += lz4.frame.compress_flush(context)
    data = b"".join(b"%d " % at for at in range(500))
    assert decompress_to_bytes(codecs.decompress_lz4_into, frame, len(data)) == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_wrong_length_is_rejected(codec: str, size: int) -> None:
    data = mixed_bytes(size)
    if codec == "lz4":
        frame, decompress = lz4.frame.compress(data, store_size=False), codecs.decompress_lz4_into
    else:
        frame, decompress = zstandard.ZstdCompressor().compress(data), codecs.decompress_zstd_into
    for wrong in {size - 1, size + 1, 2 * size} - {0}:
        with pytest.raises(InvalidDataError, match="frame"):
            decompress_to_bytes(decompress, frame, wrong)
    for end in {1, 5, len(frame) // 2, len(frame) - 1}:
        with pytest.raises(InvalidDataError, match="frame"):
            decompress_to_bytes(decompress, frame[:end], size)


@pytest.mark.parametrize("bit", range(8 * 15))
def test_flipped_bits_in_a_frame_header_give_the_bytes_or_an_error(bit: int) -> None:
    data = mixed_bytes(BLOCK + 9)
    frame = bytearray(lz4.frame.compress(data))
    frame[bit // 8] ^= 1 << bit % 8
    try:
        assert decompress_to_bytes(codecs.decompress_lz4_into, bytes(frame), len(data)) == data
    except InvalidDataError:
        pass


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129])
@pytest.mark.parametrize("rest", [0, 1, BLOCK - 1])
@pytest.mark.parametrize("is_linked", [True, False])
def test_consecutive_uncompressed_blocks_are_read(count: int, rest: int, is_linked: bool) -> None:
    random = np.random.default_rng(count)
    noise = random.bytes(count * BLOCK)
    for data in (noise + random.bytes(rest), bytes(BLOCK) + noise + bytes(rest), noise + bytes(BLOCK) + noise[:rest]):
        frame = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=is_linked)
        assert decompress_to_bytes(codecs.decompress_lz4_into, frame, len(data)) == data
        for wrong in (len(data) - 1, len(data) + 1, len(data) - BLOCK):
            if wrong > 0:
                with pytest.raises(InvalidDataError, match="frame"):
                    decompress_to_bytes(codecs.decompress_lz4_into, frame, wrong)
        with pytest.raises(InvalidDataError, match="frame"):
            decompress_to_bytes(codecs.decompress_lz4_into, frame[: len(frame) - BLOCK // 2], len(data))


def bytes_or_none(
    decompress: Callable[[memoryview, memoryview], None], frame: bytes, size: int, byte: int
) -> bytes | None:
    out = bytearray([byte]) * size
    try:
        decompress(memoryview(frame), memoryview(out))
    except InvalidDataError:
        return None
    return bytes(out)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_previous_memory_contents_are_never_returned(codec: str) -> None:
    rng = np.random.default_rng(17)
    data = mixed_bytes(3 * BLOCK + 5)
    if codec == "lz4":
        decompress = codecs.decompress_lz4_into
        frames = [
            lz4.frame.compress(data, store_size=False, block_linked=is_linked, block_size=size)
            for is_linked in (True, False)
            for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB)
        ]
    else:
        decompress = codecs.decompress_zstd_into
        frames = [zstandard.ZstdCompressor(write_content_size=with_size).compress(data) for with_size in (True, False)]
    refusals = 0
    for frame in frames:
        for turn in range(150):
            damaged = bytearray(frame)
            for _ in range(1 + turn % 2):
                at = int(rng.integers(0, 40 if turn % 3 == 0 else len(frame)))
                damaged[at] ^= 1 << int(rng.integers(0, 8))
            if turn % 5 == 0:
                cut, length = (int(n) for n in rng.integers(1, len(frame), 2))
                del damaged[cut : cut + length]
            zeros = bytes_or_none(decompress, bytes(damaged), len(data), 0)
            assert zeros == bytes_or_none(decompress, bytes(damaged), len(data), 0xA5)
            refusals += zeros is None
    assert refusals > 60


@pytest.mark.parametrize("size", [*SIZES, 1 << 20, (1 << 20) + 1, 5 << 19])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_frame_is_written_into_the_given_memory_or_rejected_as_too_long(codec: str, size: int) -> None:
    compress = codecs.create_compressor(codec)
    decompress = codecs.decompress_lz4_into if codec == "lz4" else codecs.decompress_zstd_into
    for data in (mixed_bytes(size), np.random.default_rng(size).bytes(size), bytes(size)):
        for out_bytes in {1, len(compress(data)) - 1, len(compress(data)), len(compress(data)) + 1, 2 * size + 100}:
            out = bytearray(out_bytes)
            frame = compress(data, memoryview(out))
            if len(frame) < out_bytes:
                assert isinstance(frame, memoryview)
                assert frame.obj is out
                assert decompress_to_bytes(decompress, bytes(frame), size) == data
            else:
                assert len(compress(data)) >= out_bytes - 64  # compressed in pieces, a frame may be some bytes longer


def test_threads_may_share_a_compressor() -> None:
    pieces = [mixed_bytes(size) + bytes(size) for size in range(100_000, 101_000, 25)]
    for codec, decompress in (("lz4", codecs.decompress_lz4_into), ("zstd", codecs.decompress_zstd_into)):
        compress = codecs.create_compressor(codec)

        def round_trips(
            data: bytes,
            compress: codecs.CompressFunction = compress,
            decompress: Callable[[memoryview, memoryview], None] = decompress,
        ) -> bool:
            return (
                decompress_to_bytes(decompress, bytes(compress(data, memoryview(bytearray(len(data))))), len(data))
                == data
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(round_trips, pieces))
