"""Pass wide bodies through («RecordBatch message»): encode many flat columns by their numbers, without a walk over
each.

The header of a batch that was read contains these numbers, so none of its columns is created.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain

import numpy as np

from bowstring.ipc.metadata.header import BatchHeaderValues
from bowstring.ipc.metadata.schema import BatchColumnPositions
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.record_batch.writer import EncodedBody, compute_buffer_spans
from bowstring.layouts.base import ArrayData, BufferSpec, Layout
from bowstring.memory.iovec import Int64Array, PaddedBuffers

# NumPy calls have a fixed cost: walking over fewer columns takes less time.
_MIN_COLUMNS = 16
_NO_VARIADIC_COUNTS = np.empty(0, np.int64)


class FlatColumnsEncoder:
    """Encodes flat columns whose buffers contain exactly their slots.

    Only for schemas without nested, dictionary-encoded and variadic columns that are wide enough to benefit.
    """

    __slots__ = ("_has_free_size", "_layouts", "_matching_layout", "_spec_of", "_specs", "_validity_at")

    def __init__(self, layouts: Sequence[Layout]) -> None:
        all_specs = [spec for layout in layouts for spec in layout.buffers]
        # By identity: columns of one type share a layout, so sizes are computed once for each of few specs.
        specs: dict[int, BufferSpec] = {id(spec): spec for spec in all_specs}
        spec_indices = {key: number for number, key in enumerate(specs)}
        self._layouts = list(layouts)
        self._matching_layout: BatchColumnPositions | None = None
        self._specs = list(specs.values())
        # The index in `_specs` of each buffer of a batch, in the order of the header, shape (buffers,).
        self._spec_of = np.array([spec_indices[id(spec)] for spec in all_specs], np.intp)
        is_validity = np.array([spec.is_validity for spec in self._specs], bool)
        self._has_free_size = np.array([not spec.per_slot for spec in self._specs], bool)[self._spec_of]
        # The index of each column's validity buffer: every flat layout has one, so this is parallel to the nodes.
        self._validity_at = np.flatnonzero(is_validity[self._spec_of])

    @classmethod
    def for_layouts(cls, layouts: Sequence[Layout]) -> FlatColumnsEncoder | None:
        """Return an encoder for a schema's layouts, or None if columns have to be walked."""
        return cls(layouts) if len(layouts) >= _MIN_COLUMNS and all(map(_is_flat, layouts)) else None

    def encode(self, columns: Sequence[ArrayData], alignment: int) -> EncodedBody | None:
        """The body of all columns of a batch, its buffers at multiples of `alignment` bytes.

        The body is as from `encode_body` with default options, little-endian and uncompressed. None if columns have
        to be changed or rejected, which is left to `encode_body`.
        """
        if not isinstance(columns, BatchColumns):
            return self._encode_arrays(columns, alignment)
        if not columns.is_local_and_complete:
            return None
        # All batches of a reader have the same positions: the layouts are compared once.
        if columns.positions is not self._matching_layout:
            if [column.layout for column in columns.positions] != self._layouts:
                return None
            self._matching_layout = columns.positions
        header, length = columns.header, columns.header.length
        if header.template.compression is not None or columns.positions.is_big_endian:
            return None
        # Shapes (columns, 2) and (buffers, 2), views of the untrusted header.
        nodes = header.nodes().view(np.int64).reshape(-1, 2)
        spans = header.buffers().view(np.int64).reshape(-1, 2)
        null_counts = nodes[:, 1]
        offsets, stored_sizes = spans[:, 0], spans[:, 1]
        # After this, every range is in the body, so that adding its offset to the body's can't overflow.
        if (nodes[:, 0] != length).any() or header.find_problem() is not None:
            return None
        sizes = self._compute_sizes_to_write(length, stored_sizes, null_counts)
        if sizes is None:
            return None
        new_spans, paddings, size_bytes = compute_buffer_spans(sizes, alignment)
        parts = PaddedBuffers.from_memory_ranges(columns.body.memory, columns.body.offset + offsets, sizes, paddings)
        return EncodedBody(BatchHeaderValues(length, nodes, new_spans, _NO_VARIADIC_COUNTS), parts, size_bytes)

    def _encode_arrays(self, arrays: Sequence[ArrayData], alignment: int) -> EncodedBody | None:
        if not isinstance(arrays, (list, tuple)) or len(arrays) != len(self._layouts):
            return None
        length = arrays[0].length
        if [array.layout for array in arrays] != self._layouts or any([array.offset for array in arrays]):  # noqa: C419
            return None
        if [array.length for array in arrays] != [length] * len(arrays):
            return None
        buffers = list(chain.from_iterable([array.own_buffers for array in arrays]))
        if len(buffers) != len(self._spec_of):
            return None
        null_counts = np.array([array.known_null_count for array in arrays], np.int64)
        if (null_counts < 0).any():
            null_counts = np.array([array.null_count for array in arrays], np.int64)
        stored_sizes = np.array([0 if buffer is None else buffer.size for buffer in buffers], np.int64)
        sizes = self._compute_sizes_to_write(length, stored_sizes, null_counts)
        if sizes is None:
            return None
        nodes = np.stack((np.full(len(arrays), length, np.int64), null_counts), 1)
        spans, paddings, size_bytes = compute_buffer_spans(sizes, alignment)
        parts = PaddedBuffers.from_buffers(buffers, sizes, paddings)
        return EncodedBody(BatchHeaderValues(length, nodes, spans, _NO_VARIADIC_COUNTS), parts, size_bytes)

    def _compute_sizes_to_write(
        self, length: int, stored_sizes: Int64Array, null_counts: Int64Array
    ) -> Int64Array | None:
        """Return the number of bytes to write of each buffer, or None if one does not contain exactly its slots."""
        # Each spec is asked once, in Python integers, before the sizes spread over all buffers, shape (buffers,).
        size_by_spec = [spec.size_bytes(length) for spec in self._specs]
        # A header from outside may declare any length: this size in bytes need not fit an int64.
        if max(size_by_spec) > sys.maxsize:
            return None
        expected_sizes = np.array(size_by_spec, np.int64)[self._spec_of]
        sizes: Int64Array = stored_sizes.copy()
        no_nulls = self._validity_at[null_counts == 0]
        # A column without nulls has no bitmap when written, whether the source had one or not.
        sizes[no_nulls] = expected_sizes[no_nulls] = 0
        return None if ((sizes != expected_sizes) & ~self._has_free_size).any() else sizes


def _is_flat(layout: Layout) -> bool:
    return layout.has_validity and not (layout.children or layout.VARIADIC or layout.dictionary)
