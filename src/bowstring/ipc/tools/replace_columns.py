"""Replace a few columns of a record batch («RecordBatch message») and copy the others unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.metadata.header import BatchHeaderValues
from bowstring.ipc.metadata.schema import V4
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.record_batch.writer import EncodedBody, compute_buffer_spans, encode_body
from bowstring.ipc.tools.message_writer import ALIGNMENT_BYTES
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.layouts.base import ArrayData
from bowstring.memory.iovec import Int64Array, PaddedBuffers


def encode_with_replacements(
    columns: BatchColumns, replacements: Mapping[int, ArrayData], location: str
) -> EncodedBody:
    """Encode the body of a batch with other arrays in place of the columns at some indices, with the batch's own
    options.

    Buffers of all other columns are neither decoded nor copied. Raises `InvalidDataError` if they are outside the body
    or overlap.
    """
    header, positions = columns.header, columns.positions
    template = header.template
    options = IpcWriteOptions("big" if positions.is_big_endian else "little", "V4" if template.version == V4 else "V5")
    compress = None if template.compression is None else create_compressor(template.compression)
    original = header.to_values()
    body = _BodyBuilder(columns, location)
    node, buffer, variadic = 0, 0, 0
    for index in sorted(replacements):
        column = positions[index]
        counts = columns.variadic[column.first_variadic : column.first_variadic + column.variadic_count]
        first = column.first_buffer + sum(columns.variadic[: column.first_variadic])
        body.copy_buffers(original.nodes[node : column.first_node], original.buffers[buffer:first])
        body.variadic += original.variadic[variadic : column.first_variadic].tolist()
        body.append_encoded(encode_body(header.length, [replacements[index]], ALIGNMENT_BYTES, options, compress))
        node, buffer = column.first_node + column.node_count, first + column.buffer_count + sum(counts)
        variadic = column.first_variadic + column.variadic_count
    body.copy_buffers(original.nodes[node:], original.buffers[buffer:])
    body.variadic += original.variadic[variadic:].tolist()
    if body.copied_bytes > header.body_bytes:
        raise InvalidDataError(
            f"{location}: buffers of {body.copied_bytes} bytes in a body of {header.body_bytes} overlap"
        )
    numbers = BatchHeaderValues(
        header.length, np.concatenate(body.nodes), np.concatenate(body.spans), np.array(body.variadic, np.int64)
    )
    return EncodedBody(numbers, body.parts, body.size_bytes)


class _BodyBuilder:
    """A body under construction."""

    def __init__(self, columns: BatchColumns, location: str) -> None:
        self._columns = columns
        self._location = location
        self.nodes: list[Int64Array] = []
        self.spans: list[Int64Array] = []
        self.variadic: list[int] = []
        self.parts: list[Any] = []
        self.size_bytes = 0
        self.copied_bytes = 0

    def copy_buffers(self, nodes: Int64Array, spans: Int64Array) -> None:
        """Add buffers of the batch unchanged."""
        offsets, sizes = spans[:, 0], spans[:, 1]
        columns, limit = self._columns, self._columns.header.body_bytes
        is_outside = (offsets < 0) | (sizes < 0) | (offsets > limit - sizes)
        if is_outside.any():
            at, size = spans[is_outside][0].tolist()
            raise InvalidDataError(f"{self._location}: a buffer of {size} bytes at byte {at} of a body of {limit}")
        new_spans, paddings, size_bytes = compute_buffer_spans(sizes, ALIGNMENT_BYTES)
        self.copied_bytes += int(sizes.sum(dtype=np.float64))
        self._add(nodes, new_spans, size_bytes)
        self.parts += PaddedBuffers.from_memory_ranges(
            columns.body.memory, columns.body.offset + offsets, sizes, paddings
        )

    def append_encoded(self, encoded: EncodedBody) -> None:
        """Add the buffers of a newly encoded column."""
        self.variadic += encoded.header_values.variadic.tolist()
        self._add(encoded.header_values.nodes, encoded.header_values.buffers, encoded.size_bytes)
        self.parts += encoded.parts

    def _add(self, nodes: Int64Array, spans: Int64Array, size_bytes: int) -> None:
        self.nodes.append(nodes)
        self.spans.append(spans + np.array([self.size_bytes, 0]))
        self.size_bytes += size_bytes
