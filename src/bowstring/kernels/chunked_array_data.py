"""The data of a chunked array: arrays of one type that make up one column.

The public class, `bowstring.arrays.chunked_array.ChunkedArray`, adds methods and protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from bowstring.datatypes.factories import int64
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import WouldCopyError, prefix_errors
from bowstring.kernels.cast import cast
from bowstring.kernels.unify_dictionaries import concat_and_unify
from bowstring.layouts.base import ArrayData, Values, check_expanded_arrays, total_buffer_size
from bowstring.layouts.dtype_conversion import convert_dtype
from bowstring.layouts.registry import layout_of
from bowstring.layouts.validation import validate


class ChunkedArrayData:
    """The chunks of a column and their type; immutable. The constructor checks nothing."""

    __slots__ = ("__weakref__", "_chunks", "type")

    _chunks: Sequence[ArrayData]

    def __init__(self, chunks: Sequence[ArrayData], type: DataType) -> None:
        self.type = type
        self._chunks = tuple(chunks)

    @property
    def chunks(self) -> Sequence[ArrayData]:
        """All chunks."""
        return self._chunks

    @property
    def num_chunks(self) -> int:
        """The number of chunks."""
        return len(self._chunks)

    @property
    def null_count(self) -> int:
        """The number of null slots."""
        return sum(chunk.null_count for chunk in self.chunks)

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes, as `Array.nbytes`."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def get_total_buffer_size(self) -> int:
        """Return the size of all buffers in bytes, as `Array.get_total_buffer_size`.

        >>> bs.chunked_array([[1, 2], [3]]).get_total_buffer_size()
        24
        """
        return total_buffer_size(self.chunks)

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects, as `Array.to_pylist`.

        >>> bs.chunked_array([[1, None], [3]]).to_pylist()
        [1, None, 3]
        """
        check_expanded_arrays(self.chunks, sum(chunk.length for chunk in self.chunks))
        return list(chain.from_iterable(chunk.to_pylist() for chunk in self.chunks))

    def to_numpy(self, zero_copy_only: bool = False) -> Values:
        """Return the values as one NumPy array, which shares the memory of a single chunk if the layout allows.

        >>> bs.chunked_array([[1, 2], [3]]).to_numpy()
        array([1, 2, 3])
        """
        if len(self.chunks) == 1:
            return self.chunks[0].to_numpy(zero_copy_only)
        if zero_copy_only:
            raise WouldCopyError(f"{len(self.chunks)} chunks can't be converted to one NumPy array without a copy")
        return combine_with_wider_indices(self).to_numpy(zero_copy_only=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """Return the values as one NumPy array, as `Array.__array__`; several chunks are copied."""
        return convert_dtype(self.to_numpy(zero_copy_only=copy is False), self, dtype, copy)

    def combine_chunks(self) -> ArrayData:
        """Return all values as one array; copies unless there is exactly one chunk.

        Raises `TypeMismatchError` if the union of the chunks' dictionaries is too large for the indices.

        >>> bs.chunked_array([[1, 2], [3]]).combine_chunks()
        <bowstring.Array int64[3]>
        [1, 2, 3]
        """
        if len(self.chunks) == 1:
            return self.chunks[0]
        return concat_and_unify(self.chunks) if self.chunks else layout_of(self.type).from_pylist([])

    def validate(self, full: bool = False) -> None:
        """Check every chunk, as `Array.validate`.

        >>> bs.chunked_array([["a"], [None]]).validate(full=True)
        """
        for chunk in self.chunks:
            validate(chunk, full)

    def __len__(self) -> int:
        return sum(chunk.length for chunk in self.chunks)


def cast_chunks(column: ChunkedArrayData, target_type: DataType, safe: bool = True) -> ChunkedArrayData:
    """Cast the chunks of a column. The error names the chunk."""
    chunks = []
    for index, chunk in enumerate(column.chunks):
        with prefix_errors(f"chunk {index}"):
            chunks.append(cast(chunk, target_type, safe))
    return ChunkedArrayData(chunks, target_type)


def combine_with_wider_indices(column: ChunkedArrayData) -> ArrayData:
    """Combine the chunks of a column, with wider indices if the union of their dictionaries may be too large."""
    type_ = column.type
    if column.num_chunks > 1 and isinstance(type_, Dictionary):
        dictionaries = {id(chunk.dictionary): chunk.dictionary for chunk in column.chunks}.values()
        num_values = sum(dictionary.length for dictionary in dictionaries if dictionary is not None)
        if num_values > np.iinfo(str(type_.index_type)).max:
            column = cast_chunks(column, Dictionary(int64(), type_.value_type, type_.ordered))
    return column.combine_chunks()
