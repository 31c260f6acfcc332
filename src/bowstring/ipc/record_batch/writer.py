"""Encode bodies («RecordBatch message», «Variadic buffers»): walk from arrays to field nodes and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.ipc.codecs import CompressFunction
from bowstring.ipc.metadata.header import BatchHeaderValues
from bowstring.ipc.metadata.schema import V4, has_legacy_validity
from bowstring.ipc.record_batch.byte_order import swap_byte_order
from bowstring.ipc.record_batch.compression import compress_buffers
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.layouts.base import ArrayData
from bowstring.memory.buffer import Buffer
from bowstring.memory.iovec import Int64Array


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """Encoded arrays: the numbers for the header, the parts of the body with padding, and their total size."""

    header_values: BatchHeaderValues
    parts: Sequence[Any]
    size_bytes: int


# By length: batches share these zeros.
_PADDINGS = [bytes(length_bytes) for length_bytes in range(64)]


def encode_body(
    length: int,
    arrays: Sequence[ArrayData],
    alignment: int,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    compress: CompressFunction | None = None,
) -> EncodedBody:
    """Encode a batch of `length` rows; its buffers begin at multiples of `alignment` bytes (8 to 64).

    Buffers are shared, except for slices that do not begin at a byte boundary, big-endian numbers and compressed
    buffers, which are copied.
    """
    flattened = _FlattenedArrays([], [], [], options.metadata_version_number == V4)
    for array in arrays:
        compact = array.layout.compact(array)
        flattened.add(swap_byte_order(compact, is_native=True) if options.is_big_endian else compact)
    if compress is None:
        parts_of_buffers = [_get_parts(buffer) for buffer in flattened.buffers]
    else:
        parts_of_buffers = compress_buffers(flattened.buffers, compress)
    sizes = np.array([sum(map(len, parts)) for parts in parts_of_buffers], np.int64)
    spans, paddings, size_bytes = compute_buffer_spans(sizes, alignment)
    parts: list[Any] = []
    for buffer_parts, padding in zip(parts_of_buffers, paddings.tolist(), strict=True):
        parts += buffer_parts
        if padding:
            parts.append(_PADDINGS[padding])
    nodes, variadic = np.array(flattened.nodes, np.int64).reshape(-1, 2), np.array(flattened.variadic, np.int64)
    return EncodedBody(BatchHeaderValues(length, nodes, spans, variadic), parts, size_bytes)


def compute_buffer_spans(sizes: Int64Array, alignment: int) -> tuple[Int64Array, Int64Array, int]:
    """Arrange buffers of these sizes at multiples of `alignment` bytes: return offset and size of each, shape (n, 2),
    the padding after each, shape (n,), and the size of all.
    """
    # A power of two, so that its negative is a mask of the bits above it.
    padded = (sizes + (alignment - 1)) & -alignment
    ends = np.cumsum(padded)
    return np.stack((ends - padded, sizes), 1), padded - sizes, int(ends[-1]) if len(ends) else 0


def _get_parts(buffer: Buffer | None) -> list[Any]:
    """Return the bytes of a buffer as the only element; none if it is empty."""
    if buffer is None or not buffer.size:
        return []
    whole, size = buffer.memory.bytes, buffer.size
    return [whole if whole.size == size else whole[buffer.offset : buffer.offset + size]]


@dataclass(frozen=True, slots=True)
class _FlattenedArrays:
    """Nodes, buffers and variadic counts of arrays, depth first; in metadata version 4 unions have a validity buffer
    too.
    """

    nodes: list[int]
    buffers: list[Buffer | None]
    variadic: list[int]
    is_version_4: bool

    def add(self, array: ArrayData) -> None:
        """Add an array that begins at offset 0."""
        layout = array.layout
        self.nodes.extend((array.length, array.null_count))
        if self.is_version_4 and has_legacy_validity(layout):
            self.buffers.append(None)
        self.buffers.extend(array.own_buffers)
        if layout.VARIADIC:
            self.variadic.append(len(array.own_buffers) - len(layout.buffers))
        for child in array.children:
            self.add(child)
