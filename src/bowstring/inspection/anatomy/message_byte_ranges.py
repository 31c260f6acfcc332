"""Split a message into byte ranges («Encapsulated message format», «RecordBatch message», «Buffer Alignment»)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.definitions import ScalarSlot, String, StructSlot, SubTable, TableVector, UnionSlot
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import read_root
from bowstring.inspection.anatomy.model import ByteRangeKind, ByteRanges
from bowstring.ipc.message import MAX_ALIGNMENT_BYTES

_Numbers = npt.NDArray[np.int64]
_PADDING, _BUFFER = int(ByteRangeKind.PADDING), int(ByteRangeKind.BUFFER)


def framing_byte_ranges(metadata_bytes: int, prefix_bytes: int, flatbuffer_bytes: int) -> ByteRanges:
    """Return the ranges of a message whose metadata of `metadata_bytes` precedes the body."""
    marker_bytes = prefix_bytes - 4
    return ByteRanges.from_sizes(
        (marker_bytes, ByteRangeKind.CONTINUATION),
        (4, ByteRangeKind.LENGTH),
        (flatbuffer_bytes, ByteRangeKind.METADATA),
        (metadata_bytes - prefix_bytes - flatbuffer_bytes, ByteRangeKind.PADDING),
    )


def body_byte_ranges(offsets: _Numbers, lengths: _Numbers, body_bytes: int) -> ByteRanges:
    """Split a body into the buffers at `offsets` with `lengths` and padding. Buffers must be inside and may overlap."""
    non_empty = np.flatnonzero(lengths > 0)
    order = non_empty[np.argsort(offsets[non_empty], kind="stable")]
    starts, stops = offsets[order], offsets[order] + lengths[order]
    # Ranges alternate between padding and buffers. Bytes that several buffers share belong to the first of them.
    reached_offsets = np.zeros(len(order) + 1, np.int64)
    np.maximum.accumulate(stops, out=reached_offsets[1:])
    previous_stops = reached_offsets[:-1]
    sizes = np.empty(2 * len(order) + 1, np.int64)
    sizes[:-1:2] = np.maximum(starts - previous_stops, 0)
    sizes[1:-1:2] = np.maximum(stops - np.maximum(starts, previous_stops), 0)
    sizes[-1] = body_bytes - reached_offsets[-1]
    kinds = np.full(len(sizes), _PADDING, np.uint8)
    kinds[1::2] = _BUFFER
    buffers = np.full(len(sizes), -1, np.int32)
    buffers[1::2] = order
    has_bytes = sizes > 0
    return ByteRanges(sizes[has_bytes], kinds[has_bytes], buffers[has_bytes])


def clip_buffers(offsets: _Numbers, lengths: _Numbers, body_bytes: int) -> tuple[_Numbers, _Numbers]:
    """Clip buffers to the first `body_bytes` of a body; buffers beyond become empty. Return offsets and lengths."""
    starts = np.clip(offsets, 0, body_bytes)
    remaining_bytes = body_bytes - starts
    fits = (offsets >= 0) & (offsets <= body_bytes)
    return starts, np.where(fits, np.clip(lengths, 0, remaining_bytes), 0)


def flatbuffer_size(raw: bytes, root: str, location: str, max_tables: int) -> int:
    """Return the size of the flatbuffer in `raw` without padding: the end of the last byte that a table refers to.

    Bytes after it that are not zero, or too many for padding, are counted as part of the flatbuffer.
    """
    try:
        end = max(_iter_value_ends(read_root(root, raw, location, max_tables)), default=len(raw))
    except InvalidDataError:
        return len(raw)
    rest = raw[end:]
    return end if len(rest) < MAX_ALIGNMENT_BYTES and not any(rest) else len(raw)


def _iter_value_ends(root: FlatTable) -> Iterator[int]:
    tables = [root]
    while tables:
        table = tables.pop()
        yield table.vtable + table.vtable_size
        yield table.position + table.size
        for name, slot in table.definition.slots.items():
            if isinstance(slot.type, ScalarSlot | StructSlot) or not table.locate_slot(name):
                continue
            if isinstance(slot.type, SubTable | UnionSlot):
                child = table[name]
                tables += [] if child is None else [child]
                continue
            start, length = table.locate_elements(name)
            has_zero = isinstance(slot.type, String)
            yield start + length * slot.type.item_bytes + has_zero
            if isinstance(slot.type, TableVector):
                tables += table[name]
