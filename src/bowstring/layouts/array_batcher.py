"""Collect the buffers of many small arrays, so that they can be concatenated without Python work for each array.

The arrays, their tuples and their buffers are scattered in memory. They are visited in blocks, one kind of object
after the other in creation order: the processor prefetches the next ones, and a block stays in its cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from bowstring.layouts.array import Array
from bowstring.memory.buffer import UINT8, Buffer, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Layout

BLOCK_ARRAYS = 5120
"""The number of arrays that fit the processor's cache together with their parts."""
_SLACK_BYTES = 128
"""Bytes that a buffer may have beyond its slots: one more offset and padding. Buffers of a slice have more."""
MIN_ARRAYS = 32
"""From this number of arrays on, a batcher is cheaper than a view of each array."""


class ArrayBatcher(Sequence[Array]):
    """Arrays of one layout, stored as lists of their lengths, buffer sizes and joined buffers.

    Indexing creates the arrays anew.
    """

    __slots__ = (
        "_array_lengths",
        "_buffer_parts",
        "_joined_buffers",
        "children",
        "dictionaries",
        "dictionary_batcher",
        "dictionary_indices",
        "layout",
        "lengths",
        "sizes",
    )

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lengths: list[int] = []
        self.sizes: list[list[int]] = [[] for _ in layout.buffers]
        """For each buffer of the layout, its size in each array; 0 for None."""
        self._buffer_parts: list[list[bytes]] = [[] for _ in layout.buffers]
        self._joined_buffers: list[Bytes] = []
        self._array_lengths: Indices | None = None
        self.children = [ArrayBatcher(child) for child in layout.children]
        self.dictionaries: dict[int, Array] = {}
        """The distinct dictionary objects by `id`."""
        self.dictionary_indices: list[int] = []
        """The index of each array's dictionary among `dictionaries`."""
        self.dictionary_batcher = None if layout.dictionary is None else ArrayBatcher(layout.dictionary)

    def array_lengths(self) -> Indices:
        """The lengths, shape (arrays,)."""
        if self._array_lengths is None:
            self._array_lengths = np.fromiter(self.lengths, np.int64, len(self.lengths))
        return self._array_lengths

    def buffer_sizes(self, index: int) -> Indices:
        """The sizes of buffer `index`, shape (arrays,); 0 for None."""
        return np.fromiter(self.sizes[index], np.int64, len(self.lengths))

    def joined_buffer(self, index: int) -> Bytes:
        """Buffer `index` of all arrays, end to end."""
        if not self._joined_buffers:
            self._joined_buffers = [np.frombuffer(bytearray().join(parts), UINT8) for parts in self._buffer_parts]
        return self._joined_buffers[index]

    def _append(self, block: _ArrayBlock) -> None:
        self.lengths += block.lengths
        for index, (sizes, joined) in enumerate(block.buffers):
            self.sizes[index] += sizes
            self._buffer_parts[index].append(joined)
        for child, child_block in zip(self.children, block.children, strict=True):
            child._append(child_block)
        if self.dictionary_batcher is not None:
            self.dictionaries.update(block.new_dictionaries)
            index_by_id = dict(zip(self.dictionaries, range(len(self.dictionaries)), strict=True))
            self.dictionary_indices += map(index_by_id.__getitem__, block.dictionary_ids)
            for dictionary_block in block.dictionary_blocks:
                self.dictionary_batcher._append(dictionary_block)
        self._joined_buffers, self._array_lengths = [], None

    def with_layout(self, layout: Layout) -> ArrayBatcher:
        """The same arrays under another layout of the same buffers and children."""
        batcher = copy(self)
        batcher.layout = layout
        return batcher

    def __iter__(self) -> Iterator[Array]:
        return iter(self[:])

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Any:
        indices = range(len(self))[index]
        return self._build_arrays([indices])[0] if isinstance(indices, int) else self._build_arrays(indices)

    def _build_arrays(self, indices: Sequence[int]) -> list[Array]:
        starts = [list(accumulate(sizes, initial=0)) for sizes in self.sizes]
        joined_buffers = [Buffer.of(self.joined_buffer(i)) for i in range(len(self.sizes))]
        children = [child._build_arrays(indices) for child in self.children]
        dictionaries: list[Array | None] = [*self.dictionaries.values()]
        arrays = []
        for row, index in enumerate(indices):
            buffers = tuple(
                [
                    joined.slice(start[index], size[index]) if size[index] else None
                    for joined, start, size in zip(joined_buffers, starts, self.sizes, strict=True)
                ]
            )
            array_children = tuple([column[row] for column in children])
            dictionary = dictionaries[self.dictionary_indices[index]] if dictionaries else None
            arrays.append(Array(self.layout, self.lengths[index], buffers, array_children, dictionary))
        return arrays


class _ArrayBlock:
    """The lengths, buffers, children and dictionaries of a block of arrays of one layout."""

    __slots__ = ("buffers", "children", "dictionary_blocks", "dictionary_ids", "lengths", "new_dictionaries")

    def __init__(self, lengths: list[int], buffers: list[tuple[list[int], bytes]]) -> None:
        self.lengths = lengths
        self.buffers = buffers
        """For each buffer of the layout: the sizes, and the bytes of all arrays end to end."""
        self.children: list[_ArrayBlock] = []
        self.dictionary_ids: list[int] = []
        self.new_dictionaries: dict[int, Array] = {}
        self.dictionary_blocks: list[_ArrayBlock] = []

    @property
    def size_bytes(self) -> int:
        """The size of all buffers."""
        size = sum([len(joined) for _, joined in self.buffers])
        return size + sum([block.size_bytes for block in chain(self.children, self.dictionary_blocks)])


def batch_arrays(arrays: Sequence[Array]) -> Sequence[Array]:
    """Many arrays of one layout as an `ArrayBatcher`; the arrays themselves if they are few, or slices."""
    if len(arrays) < MIN_ARRAYS or isinstance(arrays, ArrayBatcher):
        return arrays
    columns = [ArrayBatcher(arrays[0].layout)]
    for first in range(0, len(arrays), BLOCK_ARRAYS):
        if append_arrays(columns, arrays[first : first + BLOCK_ARRAYS]) is None:
            return arrays
    return columns[0]


def append_arrays(columns: Sequence[ArrayBatcher], arrays: Sequence[Array]) -> int | None:
    """Append arrays, one of each column in order, then the next row; return their size in bytes.

    Returns None and appends nothing if an array has an offset, if one of its buffers is a slice of another or much
    longer than its slots, or if it does not have exactly the buffers and children that its layout declares.
    """
    blocks = _read_blocks(columns, arrays)
    if blocks is None:
        return None
    for column, block in zip(columns, blocks, strict=True):
        column._append(block)
    return sum([block.size_bytes for block in blocks])


def _read_blocks(columns: Sequence[ArrayBatcher], arrays: Sequence[Array]) -> list[_ArrayBlock] | None:
    layouts = [column.layout for column in columns]
    width, buffer_tuples = len(layouts), [array.buffers for array in arrays]
    if list(map(len, buffer_tuples)) != [len(layout.buffers) for layout in layouts] * (len(arrays) // width):
        return None
    if any([array.offset for array in arrays]):  # noqa: C419 -- a generator takes longer
        return None
    lengths, buffers = [array.length for array in arrays], list(chain.from_iterable(buffer_tuples))
    sizes = [0 if buffer is None else buffer.size for buffer in buffers]
    contents = [b"" if buffer is None else buffer.whole for buffer in buffers]
    blocks, stride, end = [], len(buffers) * width // len(arrays), 0
    for index, layout in enumerate(layouts):
        first, end = end, end + len(layout.buffers)
        column_sizes, slots = [sizes[start::stride] for start in range(first, end)], sum(lengths[index::width])
        slack = _SLACK_BYTES * len(arrays) // width
        for spec, buffer_sizes in zip(layout.buffers, column_sizes, strict=True):
            if spec.per_slot and sum(buffer_sizes) > spec.size_bytes(slots) + slack:
                return None
        try:
            parts = [
                (buffer_sizes, b"".join(contents[first + i :: stride])) for i, buffer_sizes in enumerate(column_sizes)
            ]
        except (TypeError, ValueError):  # a slice of a buffer, or not a buffer
            return None
        block = _ArrayBlock(lengths[index::width], parts)
        if layout.children:
            children = [array.children for array in arrays[index::width]]
            if set(map(len, children)) != {len(layout.children)}:
                return None
            child_blocks = _read_blocks(columns[index].children, list(chain.from_iterable(children)))
            if child_blocks is None:
                return None
            block.children = child_blocks
        if columns[index].dictionary_batcher is not None and not _read_dictionaries(
            columns[index], arrays[index::width], block
        ):
            return None
        blocks.append(block)
    return blocks


def _read_dictionaries(column: ArrayBatcher, arrays: Sequence[Array], block: _ArrayBlock) -> bool:
    """Add the dictionaries of arrays to their block; False if an array has none, or for `append_arrays`' reasons."""
    assert column.dictionary_batcher is not None
    dictionaries = [array.dictionary for array in arrays]
    block.dictionary_ids = list(map(id, dictionaries))
    distinct = dict(zip(block.dictionary_ids, dictionaries, strict=True))
    if id(None) in distinct:
        return False
    block.new_dictionaries = {
        key: dictionary
        for key, dictionary in distinct.items()
        if key not in column.dictionaries and dictionary is not None
    }
    if block.new_dictionaries:
        dictionary_blocks = _read_blocks([column.dictionary_batcher], list(block.new_dictionaries.values()))
        if dictionary_blocks is None:
            return False
        block.dictionary_blocks = dictionary_blocks
    return True
