"""Bodies, written («RecordBatch message», «Variadic buffers»): the walk from arrays to field nodes and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.ipc.header import BatchNumbers
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout
from bowstring.memory.buffer import Buffer


@dataclass(frozen=True, slots=True)
class FlatBody:
    """Arrays as nodes and buffers: what a header says of them, the bytes with their padding, their number."""

    numbers: BatchNumbers
    parts: Sequence[Any]
    size_bytes: int


_PADDINGS = [bytes(length_bytes) for length_bytes in range(64)]


def flatten(length: int, arrays: Sequence[Array], alignment: int) -> FlatBody:
    """The body of a batch of `length` rows whose buffers begin at multiples of `alignment` bytes (8 to 64).

    Buffers are not copied, except for slices that do not begin at a byte of their own.
    """
    nodes: list[int] = []
    buffers: list[Buffer | None] = []
    variadic: list[int] = []
    exact: dict[Layout, tuple[tuple[int, int, int], ...] | None] = {}
    for array in arrays:
        layout = array.layout
        if layout not in exact:
            exact[layout] = _slots(layout)
        slots = exact[layout]
        if slots is not None and array.offset == 0 and _fits(array, slots):
            nodes += (array.length, array.null_count)
            buffers += array.buffers
        else:
            _collect(layout.rebase(array), nodes, buffers, variadic)
    sizes = np.array([0 if b is None else b.size for b in buffers], np.int64)
    padded = (sizes + (alignment - 1)) & -alignment
    ends = np.cumsum(padded)
    spans = np.empty((len(sizes), 2), np.int64)
    spans[:, 0] = ends - padded
    spans[:, 1] = sizes
    parts: list[Any] = []
    memory, view = None, memoryview(b"")
    for buffer, padding in zip(buffers, (padded - sizes).tolist(), strict=True):
        if buffer is not None and buffer.size:
            if buffer.memory is not memory:
                memory = buffer.memory
                view = memory.bytes.data
            parts.append(view[buffer.offset : buffer.offset + buffer.size])
            if padding:
                parts.append(_PADDINGS[padding])
    numbers = BatchNumbers(length, np.array(nodes, np.int64).reshape(-1, 2), spans, np.array(variadic, np.int64))
    return FlatBody(numbers, parts, int(ends[-1]) if len(ends) else 0)


def _slots(layout: Layout) -> tuple[tuple[int, int, int], ...] | None:
    """Position, bytes an element and extra elements of each buffer with one a slot; None for nested layouts."""
    if layout.children or layout.VARIADIC or layout.dictionary is not None or not layout.has_validity:
        return None
    if any(spec.dtype is None for spec in layout.buffers[1:]):
        return None
    return tuple(
        (index, spec.dtype.itemsize, spec.extra)
        for index, spec in enumerate(layout.buffers)
        if spec.dtype is not None and spec.per_slot
    )


def _fits(array: Array, slots: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether the buffers hold the slots of the array and nothing else, so that they can go out as they are."""
    buffers, length = array.buffers, array.length
    if buffers[0] is not None and (array.null_count == 0 or buffers[0].size != (length + 7) >> 3):
        return False
    for index, width, extra in slots:
        buffer = buffers[index]
        if buffer is None or buffer.size != (length + extra) * width:
            return False
    return True


def _collect(array: Array, nodes: list[int], buffers: list[Buffer | None], variadic: list[int]) -> None:
    layout = array.layout
    nodes += (array.length, array.null_count)
    buffers += array.buffers
    if layout.VARIADIC:
        variadic.append(len(array.buffers) - len(layout.buffers))
    for child in array.children:
        _collect(child, nodes, buffers, variadic)


def dictionaries_of(array: Array) -> Iterator[Array]:
    """The dictionaries that a walk over an array meets, in order; not those inside dictionaries."""
    if array.dictionary is not None:
        yield array.dictionary
    for child in array.children:
        yield from dictionaries_of(child)
