"""Chunked arrays: a column of several arrays."""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from bowstring.arrays.array import Array, as_array, as_arrays, as_nullable_indices
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.factories import bool_
from bowstring.datatypes.types import DataType
from bowstring.display.values import array_to_html, format_preview, format_type
from bowstring.errors import TypeMismatchError, format_count
from bowstring.interop import c_data
from bowstring.interop.pandas import series_to_column, to_series
from bowstring.kernels import encode
from bowstring.kernels.chunked_array_data import ChunkedArrayData, cast_chunks, combine_with_wider_indices
from bowstring.kernels.filter import MaskLike, NullSelection, mask_to_indices, mask_to_nullable_indices
from bowstring.kernels.nulls import set_nulls
from bowstring.kernels.sort import NullPlacement, Order, sort_indices
from bowstring.kernels.unify_dictionaries import concat_and_unify, unify_dictionaries
from bowstring.layouts.base import ArrayData, Indices, Values
from bowstring.layouts.indexing import (
    chunk_starts,
    clip_slice,
    normalize_index,
    resolve_chunks,
    split_slice_by_chunk,
)
from bowstring.layouts.interleave import SlotSelection
from bowstring.layouts.registry import layout_of
from bowstring.pyarrow_names import explain_missing_attributes


@explain_missing_attributes
class ChunkedArray(ChunkedArrayData):
    """Arrays of one data type that make up one column; immutable.

    A chunk of a table's column is created on first use, which raises `InvalidDataError` if it is malformed.

    >>> column = bs.chunked_array([[1, 2], [None]])
    >>> column.num_chunks, column.to_pylist()
    (2, [1, 2, None])
    """

    __slots__ = ("_name", "_starts")

    _chunks: Sequence[Array]

    def __init__(self, chunks: Sequence[ArrayData], type: TypeLike) -> None:
        self._name: str | None = None
        self.type = as_type(type, "a chunked array")
        arrays = tuple(as_arrays(chunks))
        for chunk in arrays:
            _check_chunk_type(chunk, self.type)
        self._starts = chunk_starts([chunk.length for chunk in arrays])
        self._chunks = arrays

    @classmethod
    def from_lazy_chunks(
        cls, create_chunk: Callable[[int], Array], starts: list[int], type: DataType, name: str | None = None
    ) -> ChunkedArray:
        """Return a column whose chunks `create_chunk` creates on first use, from their index.

        `starts` are as in `bowstring.layouts.indexing.chunk_starts`. `name` is of the column in its table, for pandas.
        """

        def create_checked_chunk(index: int) -> Array:
            chunk = create_chunk(index)
            _check_chunk_type(chunk, type)
            return chunk

        column = cls.__new__(cls)
        column._name = name
        column.type = type
        column._starts = starts
        column._chunks = LazyArrays(len(starts) - 1, create_checked_chunk)
        return column

    @property
    def chunks(self) -> tuple[Array, ...]:
        chunks = self._chunks = tuple(self._chunks)  # creates lazy chunks; the same tuple after that
        return chunks

    def chunk(self, index: int) -> Array:
        """Return a chunk.

        >>> bs.chunked_array([[1, 2], [3]]).chunk(1)
        <bowstring.Array int64[1]>
        [3]
        """
        return self._chunks[index]

    def to_pandas(self, **options: Any) -> Any:
        """Return the values as a pandas series, as `Array.to_pandas`; several chunks are concatenated. A column of a
        table has its name.

        >>> bs.chunked_array([[1, 2], [3]]).to_pandas().sum().item()
        6
        """
        series = to_series(self, options)
        if self._name is not None and hasattr(series, "rename"):
            series.name = self._name
        return series

    @classmethod
    def from_pandas(cls, values: Any, type: TypeLike | None = None, **options: Any) -> ChunkedArray:
        """Convert a pandas series, as `Array.from_pandas`, with the chunks that pandas has.

        >>> import pandas as pd
        >>> bs.ChunkedArray.from_pandas(pd.Series([1.5, None])).to_pylist()
        [1.5, None]
        """
        column = series_to_column(values, type, options)
        return cls(column.chunks, column.type)

    def combine_chunks(self) -> Array:
        return Array.from_array_data(super().combine_chunks())

    def slice(self, offset: int = 0, length: int | None = None) -> ChunkedArray:
        """Return up to `length` values from value `offset` on, without copying.

        >>> bs.chunked_array([[1, 2], [3, 4]]).slice(1, 2).to_pylist()
        [2, 3]
        """
        spans = split_slice_by_chunk(self._starts, *clip_slice(offset, length, len(self)))
        chunks = [self._chunks[chunk_index].slice(first, count) for chunk_index, first, count in spans]
        return ChunkedArray(chunks or [chunk.slice(0, 0) for chunk in self._chunks[:1]], self.type)

    def take(self, indices: Sequence[int | None] | Values | Array | ChunkedArray) -> ChunkedArray:
        """Return the values at `indices`, copied into one chunk, as `Array.take`.

        >>> bs.chunked_array([["a", "b"], ["c"]]).take([2, 0]).to_pylist()
        ['c', 'a']
        """
        checked_indices, is_null = as_nullable_indices(combine_if_chunked(indices), len(self))
        if is_null is not None and not len(self):  # all indices are null
            return ChunkedArray([layout_of(self.type).nulls(len(is_null))], self.type)
        array = self._take_from_chunks(*resolve_chunks(self._starts, checked_indices))
        return ChunkedArray([array if is_null is None else set_nulls(array, is_null)], self.type)

    def _take_from_chunks(self, used_chunks: Sequence[int], chunk_indices: Indices, indices: Indices) -> ArrayData:
        """Return the slots that `resolve_chunks` located, in one array."""
        # Only the chunks in use are created: the others of a lazy column may need a download or decompression.
        chunks = [self._chunks[index] for index in used_chunks]
        if len(chunks) <= 1:
            # Without indices, an empty slice of the first chunk keeps its dictionary.
            chunk = chunks[0] if chunks else self.slice(0, 0).combine_chunks()
            return chunk.layout.take(chunk, indices)
        layout = chunks[0].layout
        array = SlotSelection(chunks, chunk_indices, indices).interleave()
        if array is not None:
            return array
        # The layout can't gather from several arrays, as with dictionaries that differ: take from each chunk,
        # concatenate, and restore the order of the indices. Each value is copied twice more.
        order = np.argsort(chunk_indices, kind="stable")
        offsets = np.searchsorted(chunk_indices[order], np.arange(len(chunks) + 1)).tolist()
        spans = zip(chunks, pairwise(offsets), strict=True)
        array = concat_and_unify([layout.take(chunk, indices[order[first:last]]) for chunk, (first, last) in spans])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return layout.take(array, inverse)

    def filter(self, mask: MaskLike | ChunkedArray, *, null_selection_behavior: NullSelection = "drop") -> ChunkedArray:
        """Return the values at which `mask` is true, copied chunk by chunk, as `Array.filter`.

        >>> bs.chunked_array([[1, 2], [3]]).filter([True, False, True]).to_pylist()
        [1, 3]
        """
        booleans: MaskLike = combine_if_chunked(mask)
        nullable_indices = mask_to_nullable_indices(booleans, len(self), null_selection_behavior)
        if nullable_indices is not None:
            return self.take(Array.from_array_data(nullable_indices))
        # The indices ascend, so the indices of each chunk are contiguous.
        indices = mask_to_indices(booleans, len(self))
        offsets = np.searchsorted(indices, self._starts).tolist()
        chunks = [
            chunk.layout.take(chunk, indices[first:last] - start)
            for chunk, start, (first, last) in zip(self.chunks, self._starts, pairwise(offsets), strict=False)
        ]
        return ChunkedArray(chunks, self.type)

    def is_null(self, nan_is_null: bool = False) -> ChunkedArray:
        """Return booleans that are true for nulls, as `Array.is_null`.

        >>> bs.chunked_array([[1, None], [3]]).is_null().to_pylist()
        [False, True, False]
        """
        return ChunkedArray([chunk.is_null(nan_is_null) for chunk in self.chunks], bool_())

    def is_valid(self) -> ChunkedArray:
        """Return booleans that are true for valid slots, as `Array.is_valid`.

        >>> bs.chunked_array([[1, None], [3]]).is_valid().to_pylist()
        [True, False, True]
        """
        return ChunkedArray([chunk.is_valid() for chunk in self.chunks], bool_())

    def drop_null(self) -> ChunkedArray:
        """Return the valid slots, as `Array.drop_null`.

        >>> bs.chunked_array([[1, None], [3]]).drop_null().to_pylist()
        [1, 3]
        """
        return ChunkedArray([chunk.drop_null() for chunk in self.chunks], self.type)

    def fill_null(self, fill_value: Any) -> ChunkedArray:
        """Replace nulls by `fill_value`, as `Array.fill_null`.

        >>> bs.chunked_array([[1, None], [3]]).fill_null(0).to_pylist()
        [1, 0, 3]
        """
        return ChunkedArray([chunk.fill_null(fill_value) for chunk in self.chunks], self.type)

    def unique(self) -> Array:
        """Return the distinct values in one array, as `Array.unique`.

        Its indices are wider if the union of the chunks' dictionaries is too large for theirs.

        >>> bs.chunked_array([["a", "b"], ["a", None]]).unique()
        <bowstring.Array string[3]>
        ["a", "b", null]
        """
        return Array.from_array_data(encode.unique(combine_with_wider_indices(self)))

    def unify_dictionaries(self) -> ChunkedArray:
        """Unify the dictionaries of all chunks. Raises `TypeMismatchError` if the union is too large for the indices.

        >>> column = bs.chunked_array([bs.array(values).dictionary_encode() for values in (["a"], ["b"])])
        >>> [chunk.dictionary.to_pylist() for chunk in column.unify_dictionaries().chunks]
        [['a', 'b'], ['a', 'b']]
        """
        return ChunkedArray(unify_dictionaries(self.chunks), self.type)

    def cast(self, target_type: TypeLike, safe: bool = True) -> ChunkedArray:
        """Cast the values to another type, as `Array.cast`.

        >>> bs.chunked_array([["1"], [None]]).cast("int64").to_pylist()
        [1, None]
        """
        return ChunkedArray(cast_chunks(self, as_type(target_type, "cast"), safe).chunks, target_type)

    def sort_indices(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
        """Return the uint64 indices that sort the column, as `Array.sort_indices`; concatenates the chunks first.

        >>> bs.chunked_array([[3, None], [1]]).sort_indices().to_pylist()
        [2, 0, 1]
        """
        return Array.from_array_data(sort_indices(combine_with_wider_indices(self), order, null_placement))

    def sort(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> ChunkedArray:
        """Return the sorted values, copied, in the order of `sort_indices`.

        >>> bs.chunked_array([[3, None], [1]]).sort("descending").to_pylist()
        [3, 1, None]
        """
        return self.take(self.sort_indices(order, null_placement))

    def dictionary_encode(self, index_type: TypeLike | None = None) -> ChunkedArray:
        """Encode all chunks with one dictionary, as `Array.dictionary_encode`.

        >>> bs.chunked_array([["a", "b"], ["a"]]).dictionary_encode().type
        DataType(dictionary<values=string, indices=int32, ordered=0>)
        """
        return self._map_chunks(lambda chunk: chunk.dictionary_encode(index_type)).unify_dictionaries()

    def dictionary_decode(self) -> ChunkedArray:
        """Decode each chunk, as `Array.dictionary_decode`.

        >>> bs.chunked_array([["a", "b"], ["a"]]).dictionary_encode().dictionary_decode().to_pylist()
        ['a', 'b', 'a']
        """
        return self._map_chunks(Array.dictionary_decode)

    def run_end_encode(self, run_end_type: TypeLike | None = None) -> ChunkedArray:
        """Run-end encode each chunk, as `Array.run_end_encode`; runs end at the end of a chunk.

        >>> bs.chunked_array([["a", "a"], ["b"]]).run_end_encode().type
        DataType(run_end_encoded<run_ends: int32, values: string>)
        """
        return self._map_chunks(lambda chunk: chunk.run_end_encode(run_end_type))

    def run_end_decode(self) -> ChunkedArray:
        """Decode each chunk, as `Array.run_end_decode`.

        >>> bs.chunked_array([["a", "a"], ["b"]]).run_end_encode().run_end_decode().to_pylist()
        ['a', 'a', 'b']
        """
        return self._map_chunks(Array.run_end_decode)

    def length(self) -> int:
        """Return the number of values, as `len`.

        >>> bs.chunked_array([[1, 2], [3]]).length()
        3
        """
        return len(self)

    def iterchunks(self) -> Iterator[Array]:
        """Iterate over the chunks.

        >>> [len(chunk) for chunk in bs.chunked_array([[1, 2], [3]]).iterchunks()]
        [2, 1]
        """
        return iter(self.chunks)

    def _map_chunks(self, function: Callable[[Array], Array]) -> ChunkedArray:
        chunks = list(map(function, self.chunks))
        # Without chunks, an empty array shows the type of the values.
        first = chunks[0] if chunks else function(Array.from_array_data(layout_of(self.type).from_pylist([])))
        return ChunkedArray(chunks, first.type)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._chunks)

    def __getitem__(self, key: int | builtins.slice) -> Any:
        if isinstance(key, builtins.slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return ChunkedArray([self.combine_chunks()[key]], self.type)
            return self.slice(start, max(stop - start, 0))
        key = normalize_index(key, len(self))
        chunk_index = bisect_right(self._starts, key) - 1
        chunk = self._chunks[chunk_index]
        return chunk.layout.value_at(chunk, key - self._starts[chunk_index])

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Return whether types and values are equal; chunks may have different lengths.

        `other` may be a column of another library with `__arrow_c_stream__`.

        >>> bs.chunked_array([[1, 2], [3]]).equals(bs.chunked_array([[1], [2, 3]]))
        True
        """
        if not isinstance(other, ChunkedArray):
            if not hasattr(other, "__arrow_c_stream__"):
                raise TypeMismatchError(f"expected a chunked array, not {type(other).__name__}")

            other = import_chunked_array(other)
        if self.type != other.type or len(self) != len(other):
            return False
        if self._starts == other._starts:
            return all(a.equals(b, nans_equal) for a, b in zip(self.chunks, other.chunks, strict=True))
        # No part between consecutive edges crosses the end of a chunk, so parts are compared without copying.
        edges = sorted({*self._starts, *other._starts})
        return all(
            self._slice_within_chunk(start, stop).equals(other._slice_within_chunk(start, stop), nans_equal)
            for start, stop in pairwise(edges)
        )

    def _slice_within_chunk(self, start: int, stop: int) -> Array:
        """Return the slots from `start` to `stop`, which must be in one chunk, without copying.

        At the start of several chunks, of which only the last one has slots, it is that one; at the end the last chunk.
        """
        chunk_index = min(bisect_right(self._starts, start), self.num_chunks) - 1
        return self._chunks[chunk_index].slice(start - self._starts[chunk_index], stop - start)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ChunkedArray) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __arrow_c_schema__(self) -> object:
        return self.type.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return c_data.export_chunked_array(self, requested_schema)

    def __arrow_c_device_stream__(self, requested_schema: object = None, **options: object) -> object:
        return c_data.export_chunked_array(self, requested_schema, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkedArray, (self.chunks, self.type)

    def __repr__(self) -> str:
        chunks = format_count(self.num_chunks, "chunk")
        title = f"<bowstring.ChunkedArray {format_type(self.type)}[{len(self):,}] in {chunks}>"
        return f"{title}\n{format_preview(self, len(self))}"

    def _repr_html_(self) -> str:
        return array_to_html(self, len(self))


class LazyArrays(Sequence[Array]):
    """Arrays that a function of their index creates on first access.

    Two threads may create an array at the same time. The last one is kept; both are views of the same memory.
    """

    __slots__ = ("_arrays", "_create", "_length")

    def __init__(self, length: int, create: Callable[[int], Array]) -> None:
        self._length = length
        self._create = create
        self._arrays: dict[int, Array] = {}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(self._length)[index]]
        index = range(self._length)[index]
        array = self._arrays.get(index)
        if array is None:
            array = self._arrays[index] = self._create(index)
        return array

    def __iter__(self) -> Iterator[Array]:
        return map(self.__getitem__, range(self._length))


def _check_chunk_type(chunk: ArrayData, type: DataType) -> None:
    if chunk.type is not type and chunk.type != type:
        raise TypeMismatchError(f"a chunk of {chunk.type} does not belong to a column of {type}")


def combine_if_chunked(values: Any) -> Any:
    """Combine a chunked array into one array; return anything else unchanged."""
    return values.combine_chunks() if isinstance(values, ChunkedArray) else values


def import_chunked_array(source: object) -> ChunkedArray:
    """Import a column of another library that exports a stream. Raises as `c_data.import_chunked_array`."""
    column = c_data.import_chunked_array(source)
    return ChunkedArray(column.chunks, column.type)


def as_chunked_array(values: object) -> ChunkedArray:
    """Return a chunked array unchanged, an array as its only chunk, or import a column of another library."""
    if isinstance(values, ChunkedArray):
        return values
    if not isinstance(values, Array) and hasattr(values, "__arrow_c_stream__"):
        return import_chunked_array(values)
    array = as_array(values)
    return ChunkedArray([array], array.type)
