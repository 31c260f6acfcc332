"""Chunked arrays: one logical column in several arrays, never joined unless asked for."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.datatypes.field import field
from bowstring.errors import DataTypeError, UsageError, WouldCopyError
from bowstring.layouts.base import Values
from bowstring.layouts.display import EDGE_ITEMS, value_text
from bowstring.layouts.registry import layout_of

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType
    from bowstring.layouts.array import Array


class ChunkedArray:
    """Arrays of one data type that make up one column; immutable."""

    __slots__ = ("_starts", "chunks", "type")

    def __init__(self, chunks: Sequence[Array], type: DataType) -> None:
        for chunk in chunks:
            if chunk.type != type:
                raise DataTypeError(f"a chunk of {chunk.type} does not belong to a column of {type}")
        self.chunks = list(chunks)
        self.type = type
        self._starts = np.cumsum([0, *(chunk.length for chunk in chunks)])

    @property
    def num_chunks(self) -> int:
        """How many arrays there are."""
        return len(self.chunks)

    @property
    def null_count(self) -> int:
        """The number of null slots."""
        return sum(chunk.null_count for chunk in self.chunks)

    @property
    def nbytes(self) -> int:
        """The bytes that the values take up, as `Array.nbytes`."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def chunk(self, index: int) -> Array:
        """One of the arrays."""
        return self.chunks[index]

    def to_pylist(self) -> list[Any]:
        """The values as Python objects, as `Array.to_pylist`."""
        return list(chain.from_iterable(chunk.to_pylist() for chunk in self.chunks))

    def to_numpy(self, zero_copy_only: bool = False) -> Values:
        """The values as one NumPy array; shares the memory of a single chunk where the layout allows, else copies."""
        if len(self.chunks) == 1:
            return self.chunks[0].to_numpy(zero_copy_only)
        if zero_copy_only:
            raise WouldCopyError(f"{len(self.chunks)} chunks do not make one NumPy array without copying")
        return self.combine_chunks().to_numpy(zero_copy_only=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        return np.array(self.to_numpy(zero_copy_only=copy is False), dtype=dtype, copy=copy)

    def combine_chunks(self) -> Array:
        """All values in one array; copies, unless there is exactly one chunk."""
        if len(self.chunks) == 1:
            return self.chunks[0]
        layout = layout_of(self.type)
        return layout.concat(self.chunks) if self.chunks else layout.build([])

    def slice(self, offset: int = 0, length: int | None = None) -> ChunkedArray:
        """The `length` values from value `offset` on, without copying."""
        if offset < 0 or (length is not None and length < 0):
            raise UsageError(f"a slice begins at 0 or later and is not negative: offset {offset}, length {length}")
        stop = len(self) if length is None else min(offset + length, len(self))
        parts = []
        for chunk, start in zip(self.chunks, self._starts.tolist(), strict=False):
            first, last = max(offset - start, 0), min(stop - start, chunk.length)
            if first < last:
                parts.append(chunk.slice(first, last - first))
        return ChunkedArray(parts or [chunk.slice(0, 0) for chunk in self.chunks[:1]], self.type)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.chunks)

    def __getitem__(self, key: int | builtins.slice) -> Any:
        if isinstance(key, builtins.slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self.combine_chunks()[key]
            return self.slice(start, max(stop - start, 0))
        if not -len(self) <= key < len(self):
            raise IndexError(f"index {key} is not within a column of {len(self)} values")
        key %= len(self)
        number = int(np.searchsorted(self._starts, key, "right")) - 1
        return self.chunks[number][key - int(self._starts[number])]

    def equals(self, other: ChunkedArray, nans_equal: bool = False) -> bool:
        """Whether types and values are the same, however they are chunked."""
        if self.type != other.type or len(self) != len(other):
            return False
        edges = np.union1d(self._starts, other._starts).tolist()
        return all(
            self._within(start, stop).equals(other._within(start, stop), nans_equal) for start, stop in pairwise(edges)
        )

    def _within(self, start: int, stop: int) -> Array:
        number = int(np.searchsorted(self._starts, start, "right")) - 1
        return self.chunks[number].slice(start - int(self._starts[number]), stop - start)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ChunkedArray) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check every chunk, as `Array.validate`."""
        for chunk in self.chunks:
            chunk.validate(full)

    def __arrow_c_schema__(self) -> object:
        from bowstring.exchange import cdata

        return cdata.export_field(field("", self.type))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from bowstring.exchange import cdata

        return cdata.export_chunked(self)

    def __repr__(self) -> str:
        size = len(self)
        cut = f"{len(self.chunks)} chunk{'' if len(self.chunks) == 1 else 's'}"
        head = f"<bowstring.ChunkedArray {self.type}[{size}] in {cut}>"
        if size <= 2 * EDGE_ITEMS:
            return f"{head}\n[{', '.join(map(value_text, self.to_pylist()))}]"
        first = self.slice(0, EDGE_ITEMS).to_pylist()
        last = self.slice(size - EDGE_ITEMS).to_pylist()
        return f"{head}\n[{', '.join(map(value_text, first))}, …, {', '.join(map(value_text, last))}]"
