"""The footer of a file («IPC File Format»), its lists of blocks, and the trailer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bowstring.errors import FormatMismatchError, InvalidDataError, TruncatedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import BLOCK, read_root
from bowstring.io.byte_ranges import MAX_GAP_BYTES, Span
from bowstring.io.sources import RandomAccessSource
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    FILE_START,
    MAGIC,
    Block,
    check_metadata_size,
    format_mismatch_error,
    is_file_start,
    is_stream_start,
)

TRAILER = struct.Struct("<i6s")
"""The last bytes of a file: the length of the footer in bytes, and the magic."""
_BLOCK = struct.Struct("<qi4xq")
# The time to read all blocks is at most this many times that for the file. A list may name a message twice.
_MAX_OVERLAP_FACTOR = 16


@dataclass(frozen=True, slots=True, order=True)
class BlockList:
    """A list of blocks in a footer: the byte offset of the first block in the footer, and their number."""

    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer: its byte offset in the file, its bytes, its table, and its lists of blocks."""

    offset: int
    raw: bytes
    table: FlatTable
    batches: BlockList
    dictionaries: BlockList

    def get_block(self, block_list: BlockList, index: int) -> Block:
        """The position of the message at `index` of a list, unchecked."""
        return _BLOCK.unpack_from(self.raw, block_list.offset + _BLOCK.size * index)

    def get_blocks(self, block_list: BlockList) -> npt.NDArray[np.void]:
        """The positions of messages: a view of dtype `BLOCK` (offset, metaDataLength, bodyLength, in bytes)."""
        return np.frombuffer(self.raw, BLOCK, block_list.count, block_list.offset)

    def get_header_spans(self, max_metadata_bytes: int) -> list[Span]:
        """Return offset and size of the header of each message by offset, with a small gap before it, if any.

        Blocks that overlap or exceed the limits are left out.
        """
        spans, reached_offset = [], len(FILE_START)
        block_lists = self.batches, self.dictionaries
        for start, metadata_bytes, body_bytes in sorted(
            self.get_block(block_list, index) for block_list in block_lists for index in range(block_list.count)
        ):
            stop = start + metadata_bytes + body_bytes
            if reached_offset <= start and 0 < metadata_bytes <= max_metadata_bytes and start < stop <= self.offset:
                first = reached_offset if start - reached_offset <= MAX_GAP_BYTES else start
                spans.append((first, start + metadata_bytes - first))
                reached_offset = stop
        return spans

    def get_slices_outside_block_lists(self) -> tuple[bytes, ...]:
        """Return the bytes outside the lists, usually equal in all files of one schema."""
        slices, start = [], 0
        for block_list in sorted((self.batches, self.dictionaries)):
            slices.append(self.raw[start : block_list.offset])
            start = max(start, block_list.offset + block_list.count * _BLOCK.size)
        return (*slices, self.raw[start:])


def read_footer(source: RandomAccessSource, limits: ReadLimits) -> Footer:
    """Read the footer of a file, located from the end of the file.

    Raises `FormatMismatchError` for another format, `TruncatedError` for a file that is cut off, other
    `InvalidDataError`s for a malformed footer, one without a schema, and for blocks that overlap.
    """
    _check_start(source)
    return read_footer_at_end(source, limits)


def read_footer_at_end(source: RandomAccessSource, limits: ReadLimits) -> Footer:
    """Read the footer as `read_footer` does, whatever the first bytes are."""
    raw, at = _read_footer_bytes(source, limits)
    table = read_root("Footer", raw, f"{source.name}: footer", limits.max_tables)
    if not table.locate_slot("schema"):  # without blocks, too, the file would look empty
        raise InvalidDataError(f"{source.name}: the footer has no schema")
    footer = Footer(
        at,
        raw,
        table,
        BlockList(*table.locate_elements("recordBatches")),
        BlockList(*table.locate_elements("dictionaries")),
    )
    if footer.batches.count + footer.dictionaries.count > 1:
        _check_block_overlap(footer, source.name)
    return footer


def _check_block_overlap(footer: Footer, name: str) -> None:
    """Raise `InvalidDataError` if blocks overlap so much that their total size is many times the file's: reading
    them would take time out of proportion to the file.
    """
    total_bytes = 0.0
    for block_list in (footer.batches, footer.dictionaries):
        # As unsigned numbers, negative sizes are huge.
        metadata_sizes = np.frombuffer(footer.raw, "<u4", 6 * block_list.count, block_list.offset)[2::6]
        body_sizes = np.frombuffer(footer.raw, "<u8", 3 * block_list.count, block_list.offset)[2::3]
        total_bytes += np.add.reduce(metadata_sizes, dtype=np.float64) + np.add.reduce(body_sizes, dtype=np.float64)
    if total_bytes > _MAX_OVERLAP_FACTOR * footer.offset:
        raise InvalidDataError(
            f"{name}: footer: blocks of {total_bytes:.0f} bytes before byte {footer.offset}: they overlap"
        )


def _check_start(source: RandomAccessSource) -> None:
    """Raise `FormatMismatchError` or `TruncatedError` unless the source begins with the magic."""
    name = source.name
    start = source.read_at(0, min(source.size, 16))
    if not is_file_start(start):
        if is_stream_start(start):
            raise FormatMismatchError(f"{name}: expected an Arrow file, found an Arrow stream: use open_stream")
        raise format_mismatch_error(name, "an Arrow file", start)


def _read_footer_bytes(source: RandomAccessSource, limits: ReadLimits) -> tuple[bytes, int]:
    """Read the footer's flatbuffer; return it and its byte offset."""
    name, size = source.name, source.size
    min_bytes = len(FILE_START) + TRAILER.size
    if size < min_bytes:
        raise TruncatedError(f"{name}: expected at least {min_bytes} bytes of an Arrow file, found {size}")
    length_bytes, magic = TRAILER.unpack(source.read_at(size - TRAILER.size, TRAILER.size))
    if magic != MAGIC:
        raise TruncatedError(
            f"{name}: expected {MAGIC!r} at byte {size - 6}, the end, found {magic!r}: the file is cut off"
        )
    footer_offset = size - TRAILER.size - length_bytes
    if length_bytes <= 0 or footer_offset < len(FILE_START):
        raise InvalidDataError(f"{name}: a footer of {length_bytes} bytes in a file of {size}")
    check_metadata_size(length_bytes, (f"{name}: footer",), limits)
    return source.read_at(footer_offset, length_bytes), footer_offset
