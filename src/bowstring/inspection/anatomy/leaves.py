"""Cutting a message into leaves («Encapsulated message format», «RecordBatch message», «Buffer Alignment and
Padding»).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Child, Children, Message, Scalar, Slot, Structs, Table, Text
from bowstring.flatbuf.tables import HEADERS, SPARSE_INDEXES, SPECS, TYPES
from bowstring.inspection.anatomy.model import Leaf, Leaves

_Numbers = npt.NDArray[np.int64]
_MAX_PADDING = 64
_PADDING, _BUFFER = int(Leaf.PADDING), int(Leaf.BUFFER)
_UNIONS = {
    ("Message", "header"): ("header_type", HEADERS),
    ("Field", "type"): ("type_type", TYPES),
    ("Tensor", "type"): ("type_type", TYPES),
    ("SparseTensor", "type"): ("type_type", TYPES),
    ("SparseTensor", "sparseIndex"): ("sparseIndex_type", SPARSE_INDEXES),
}


def metadata_leaves(raw: bytes, prefix_bytes: int, used: int) -> Leaves:
    """The leaves of a message up to its body: `raw` is all of that, `used` what `flatbuffer_bytes` says of the rest."""
    marker = prefix_bytes - 4
    return Leaves.of(
        (marker, Leaf.CONTINUATION),
        (4, Leaf.LENGTH),
        (used, Leaf.METADATA),
        (len(raw) - prefix_bytes - used, Leaf.PADDING),
    )


def body_leaves(offsets: _Numbers, lengths: _Numbers, body_bytes: int) -> Leaves:
    """A body of buffers at `offsets` with `lengths`, cut where they end. They lie within it, and may overlap."""
    non_empty = np.flatnonzero(lengths > 0)
    order = non_empty[np.argsort(offsets[non_empty], kind="stable")]
    starts, stops = offsets[order], offsets[order] + lengths[order]
    reach = np.zeros(len(order) + 1, np.int64)
    np.maximum.accumulate(stops, out=reach[1:])
    before = reach[:-1]
    sizes = np.empty(2 * len(order) + 1, np.int64)
    sizes[:-1:2] = np.maximum(starts - before, 0)
    sizes[1:-1:2] = np.maximum(stops - np.maximum(starts, before), 0)
    sizes[-1] = body_bytes - reach[-1]
    kinds = np.full(len(sizes), _PADDING, np.uint8)
    kinds[1::2] = _BUFFER
    buffers = np.full(len(sizes), -1, np.int32)
    buffers[1::2] = order
    has_bytes = sizes > 0
    return Leaves(sizes[has_bytes], kinds[has_bytes], buffers[has_bytes])


def clip_buffers(offsets: _Numbers, lengths: _Numbers, body_bytes: int) -> tuple[_Numbers, _Numbers]:
    """Buffers as far as they lie within the first `body_bytes` of a body; what lies beyond becomes empty."""
    starts = np.clip(offsets, 0, body_bytes)
    room = body_bytes - starts
    fits = (offsets >= 0) & (offsets <= body_bytes)
    return starts, np.where(fits, np.clip(lengths, 0, room), 0)


def flatbuffer_bytes(raw: bytes, root: str, where: str, max_tables: int) -> int:
    """Where the flatbuffer in `raw` ends and padding begins: after the last byte that one of its tables refers to.

    What is not zero behind it, or too long for padding, may be something that we do not know, and is counted in.
    """
    try:
        end = max(_ends(Message(raw, SPECS, where, max_tables).root(root)), default=len(raw))
    except InvalidDataError:
        return len(raw)
    rest = raw[end:]
    return end if len(rest) < _MAX_PADDING and not any(rest) else len(raw)


def _ends(root: Table) -> Iterator[int]:
    tables = [root]
    while tables:
        table = tables.pop()
        yield table.vtable + table.vtable_size
        yield table.position + table.size
        for slot in table.spec.slots.values():
            offset = 0 if isinstance(slot.kind, Scalar) else table.locate(slot.number, 4)
            if not offset:
                continue
            if isinstance(slot.kind, Text):
                start, count = table.message.vector(offset, 1, slot.name)
                yield start + count + 1  # and its zero
            elif isinstance(slot.kind, Structs):
                start, count = table.span(slot.name)
                yield start + count * slot.kind.dtype.itemsize
            elif isinstance(slot.kind, Children):
                start, count = table.message.vector(offset, 4, slot.name)
                yield start + 4 * count
                tables += table[slot.name]
            elif isinstance(slot.kind, Child):
                tables += _child(table, slot)


def _child(table: Table, slot: Slot) -> list[Table]:
    kind: Any = slot.kind
    name = kind.spec
    if not name:
        number, names = _UNIONS[table.spec.name, slot.name]
        type_index = table[number]
        name = names[type_index] if 0 < type_index < len(names) else ""
    child = table.union(slot.name, name) if name else None
    return [] if child is None else [child]
