"""Byte order («Schema message», endianness): swap the bytes of each declared buffer of a layout.

Only bodies depend on it: flatbuffers and the prefixes of compressed buffers are always little-endian.
"""

from __future__ import annotations

import numpy as np

from bowstring.layouts.base import ArrayData, BufferRole, BufferSpec
from bowstring.layouts.binary_view import VIEW
from bowstring.layouts.binary_view_validation import INLINE_BYTES
from bowstring.memory.buffer import Buffer


def swap_byte_order(array: ArrayData, is_native: bool) -> ArrayData:
    """Return the array with all numbers in the other byte order, copied; bitmaps and bytes are unchanged.

    `is_native` is whether `array` is in the machine's byte order. Its dictionary, a separate array, is not swapped.
    Incomplete elements at the end of a buffer are dropped.
    """
    layout = array.layout
    declared = zip(layout.buffers, array.own_buffers, strict=False)
    buffers = [None if b is None else _swap_buffer(b, spec, is_native) for spec, b in declared]
    children = tuple([swap_byte_order(child, is_native) for child in array.children])
    return ArrayData(
        layout,
        array.length,
        (*buffers, *array.own_buffers[len(layout.buffers) :]),
        children,
        array.dictionary,
        array.null_count if layout.has_validity else -1,
        array.offset,
    )


def _swap_buffer(buffer: Buffer, spec: BufferSpec, is_native: bool) -> Buffer:
    dtype = spec.dtype
    if dtype is None or dtype.itemsize < 2 or spec.is_opaque or not buffer.size:
        return buffer
    values = buffer.view(dtype)
    if spec.role is BufferRole.VIEWS:
        return _swap_views(buffer, is_native)
    if dtype.kind == "V" and dtype.names is None:  # a number wider than NumPy's
        digits = values.view(np.uint8).reshape(-1, dtype.itemsize)
        return Buffer.of(np.ascontiguousarray(digits[:, ::-1]))
    return Buffer.of(values.byteswap())


def _swap_views(buffer: Buffer, is_native: bool) -> Buffer:
    """Swap views, whose length determines whether bytes or numbers follow."""
    views = buffer.view(VIEW).copy()
    lengths = views["length"].byteswap()
    is_out_of_line = (views["length"] if is_native else lengths) > INLINE_BYTES
    views["length"] = lengths
    for name in ("buffer", "offset"):
        views[name] = np.where(is_out_of_line, views[name].byteswap(), views[name])
    return Buffer.of(views)
