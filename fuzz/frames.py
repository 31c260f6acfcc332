"""Compressed buffers as any writer might make them: LZ4 and Zstandard frames of all kinds, sound and not."""

from __future__ import annotations

import random
import struct

import lz4.frame
import zstandard

_ZSTD = 1
_MOST_BYTES = 1 << 16
_LENGTHS = (-1, 0, 1, -2, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))


def unpacked(raw: bytes, codec: int) -> bytes:
    """What a compressed buffer holds; nothing where it can't be told, or is much."""
    if len(raw) < 8:
        return b""
    (length,) = struct.unpack_from("<q", raw)
    if length == -1:
        return raw[8:]
    if not 0 <= length <= _MOST_BYTES:
        return b""
    try:
        if codec == _ZSTD:
            return zstandard.ZstdDecompressor().decompress(raw[8:], max_output_size=_MOST_BYTES)
        return bytes(lz4.frame.decompress(raw[8:]))
    except (zstandard.ZstdError, RuntimeError):
        return b""


def frame(chance: random.Random, content: bytes, codec: int) -> bytes:
    """The content as a compressed buffer, mostly sound: with its length before it, in a frame with any features."""
    if chance.random() < 0.1:
        return struct.pack("<q", -1) + content
    made = _zstd(chance, content) if codec == _ZSTD else _lz4(chance, content)
    pick = chance.randrange(12)
    if pick == 0:
        made += made  # two frames
    elif pick == 1:
        made = made[: -chance.randrange(1, 9)]
    elif pick == 2:
        made += chance.randbytes(chance.randrange(1, 9))
    elif pick == 3:  # one that is to be skipped
        made = struct.pack("<II", 0x184D2A50 + chance.randrange(16), 4) + b"skip" + made
    elif pick == 4:
        held = bytearray(made)
        held[chance.randrange(min(len(held), 24))] ^= 1 << chance.randrange(8)
        made = bytes(held)
    length = chance.choice(_LENGTHS) if chance.random() < 0.1 else len(content)
    return struct.pack("<q", length) + made


def _zstd(chance: random.Random, content: bytes) -> bytes:
    checked, sized = chance.random() < 0.5, chance.random() < 0.7
    packer = zstandard.ZstdCompressor(chance.choice((-5, 1, 3, 19)), write_checksum=checked, write_content_size=sized)
    if chance.random() < 0.5:
        return packer.compress(content)
    streamed = packer.compressobj()
    middle = len(content) // 2
    first = streamed.compress(content[:middle]) + streamed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return first + streamed.compress(content[middle:]) + streamed.flush()


def _lz4(chance: random.Random, content: bytes) -> bytes:
    context = lz4.frame.create_compression_context()
    options = {
        "block_size": chance.choice((4, 5, 6, 7)),
        "block_linked": chance.random() < 0.5,
        "content_checksum": chance.random() < 0.5,
        "block_checksum": chance.random() < 0.3,
        "auto_flush": True,
    }
    size = len(content) if chance.random() < 0.5 else 0
    made = lz4.frame.compress_begin(context, source_size=size, **options)
    middle = len(content) // 2
    for part in (content[:middle], content[middle:]):
        made += lz4.frame.compress_chunk(context, part)
    return bytes(made + lz4.frame.compress_flush(context))
