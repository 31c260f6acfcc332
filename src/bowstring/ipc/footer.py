"""The footer of a file («IPC File Format»), its lists of blocks, and the trailer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError, TruncatedError
from bowstring.flatbuf.reader import Message, Table
from bowstring.flatbuf.tables import BLOCK, SPECS
from bowstring.io.sources import RandomAccess
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    FILE_START,
    MAGIC,
    detect_foreign_format,
    format_mismatch,
    is_file_start,
    is_stream_start,
    parse_prefix,
)
from bowstring.memory.buffer import UINT8, Bytes

TRAILER = struct.Struct("<i6s")
"""The last bytes of a file: the length of the footer in bytes, and the magic."""
_LENGTH = struct.Struct("<i")
_MAX_OVERLAP_FACTOR = 16


@dataclass(frozen=True, slots=True)
class BlockList:
    """The blocks of one kind that a footer lists: the first byte of the first one in the footer, and their number."""

    offset: int
    count: int

    @property
    def stop(self) -> int:
        """The byte of the footer after the last block."""
        return self.offset + self.count * BLOCK.itemsize


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer: the byte of the file at which it begins, its bytes, its table, and what it lists."""

    offset: int
    raw: bytes
    table: Table
    batches: BlockList
    dictionaries: BlockList

    def blocks(self, listing: BlockList) -> npt.NDArray[Any]:
        """Where messages are: a view of dtype `BLOCK` (offset, metaDataLength, bodyLength, in bytes)."""
        return np.frombuffer(self.raw, BLOCK, listing.count, listing.offset)

    def bytes_around_blocks(self) -> tuple[Bytes, ...]:
        """The stretches of bytes that files of one schema mostly have in common, without copying."""
        stretches, start, raw = [], 0, np.frombuffer(self.raw, UINT8)
        for listing in sorted((self.batches, self.dictionaries), key=lambda listing: (listing.offset, listing.stop)):
            stretches.append(raw[start : listing.offset])
            start = max(start, listing.stop)
        return (*stretches, raw[start:])


def read_footer(source: RandomAccess, limits: ReadLimits) -> Footer:
    """The footer of a file, found from its end.

    Raises `FormatMismatchError` for another format, `TruncatedError` for a file that is cut off, other
    `InvalidDataError`s for a malformed footer and for blocks that overlap.
    """
    raw, at = _footer_bytes(source, limits)
    table = Message(raw, SPECS, f"{source.name}: footer", limits.max_tables).root("Footer")
    footer = Footer(at, raw, table, BlockList(*table.span("recordBatches")), BlockList(*table.span("dictionaries")))
    if footer.batches.count + footer.dictionaries.count > 1:
        _check_blocks(footer, source.name)
    return footer


def _check_blocks(footer: Footer, name: str) -> None:
    """Raise `InvalidDataError` where blocks overlap so far that they are many times as long as the file, taken
    together: what reads them all would do so out of proportion.
    """
    total_bytes = 0.0
    for listing in (footer.batches, footer.dictionaries):
        if listing.count:
            fields = np.frombuffer(footer.raw, "<u8", 3 * listing.count, listing.offset)
            fields = fields.reshape(listing.count, 3)  # what is negative is huge
            total_bytes += float(fields[:, 2].sum(dtype=np.float64)) + float((fields[:, 1] & 0xFFFFFFFF).sum())
    if total_bytes > _MAX_OVERLAP_FACTOR * footer.offset:
        raise InvalidDataError(
            f"{name}: footer: blocks of {total_bytes:.0f} bytes before byte {footer.offset}: they overlap"
        )


def _footer_bytes(source: RandomAccess, limits: ReadLimits) -> tuple[bytes, int]:
    """The footer's flatbuffer, and the byte where it begins."""
    name, size = source.name, source.size
    start = source.read_at(0, min(size, 16))
    if not is_file_start(start):
        if is_stream_start(start):
            raise format_mismatch(name, "an Arrow file", "an Arrow stream: use open_stream")
        if MAGIC.startswith(start):
            raise TruncatedError(f"{name}: expected an Arrow file, found only {size} bytes")
        raise format_mismatch(name, "an Arrow file", detect_foreign_format(start) or f"other bytes ({start[:8]!r})")
    min_bytes = len(FILE_START) + TRAILER.size
    if size < min_bytes:
        raise TruncatedError(f"{name}: expected at least {min_bytes} bytes of an Arrow file, found {size}")
    length_bytes, magic = TRAILER.unpack(source.read_at(size - TRAILER.size, TRAILER.size))
    if magic != MAGIC:
        raise TruncatedError(
            f"{name}: expected {MAGIC!r} at byte {size - 6}, the end, found {magic!r}: the file is cut off"
        )
    footer_at = size - TRAILER.size - length_bytes
    if length_bytes <= 0 or footer_at < len(FILE_START):
        raise InvalidDataError(f"{name}: a footer of {length_bytes} bytes in a file of {size}")
    parse_prefix(_LENGTH.pack(length_bytes), f"{name}: footer", limits.max_metadata_bytes)
    return source.read_at(footer_at, length_bytes), footer_at
