"""Chunked arrays: one logical column in several arrays, never joined unless asked for."""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from bowstring.arrays.record_batch import combine_if_chunked
from bowstring.compute.filter import MaskLike, mask_to_indices
from bowstring.compute.sort import NullPlacement, Order
from bowstring.compute.unify_dictionaries import concat_unified, unify_dictionaries
from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.field import field
from bowstring.datatypes.types import Dictionary, bool_, int64
from bowstring.errors import DataTypeError, WouldCopyError
from bowstring.layouts.array import Array, as_array
from bowstring.layouts.base import Indices, Values, error_context
from bowstring.layouts.display import format_array_values
from bowstring.layouts.indexing import (
    check_indices,
    chunk_starts,
    clip_slice,
    normalize_index,
    resolve_chunks,
    split_slice,
)
from bowstring.layouts.interleave import SlotSelection
from bowstring.layouts.numpy_conversion import convert_dtype
from bowstring.layouts.registry import layout_of

if TYPE_CHECKING:
    from bowstring.interop.pandas.to_pandas import ToPandasOptions


class ChunkedArray:
    """Arrays of one data type that make up one column; immutable."""

    __slots__ = ("_starts", "chunks", "type")

    def __init__(self, chunks: Sequence[Array], type: TypeLike) -> None:
        self.type = data_type = as_type(type, "a chunked array")
        self.chunks = tuple([as_array(chunk) for chunk in chunks])
        for chunk in self.chunks:
            if chunk.type is not data_type and chunk.type != data_type:
                raise DataTypeError(f"a chunk of {chunk.type} does not belong to a column of {data_type}")
        self._starts = chunk_starts([chunk.length for chunk in self.chunks])

    @property
    def num_chunks(self) -> int:
        """The number of chunks."""
        return len(self.chunks)

    @property
    def null_count(self) -> int:
        """The number of null slots."""
        return sum(chunk.null_count for chunk in self.chunks)

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes, like `Array.nbytes`."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def chunk(self, index: int) -> Array:
        """One of the arrays."""
        return self.chunks[index]

    def to_pylist(self) -> list[Any]:
        """The values as Python objects, like `Array.to_pylist`."""
        return list(chain.from_iterable(chunk.to_pylist() for chunk in self.chunks))

    def to_numpy(self, zero_copy_only: bool = False) -> Values:
        """The values as one NumPy array; shares the memory of a single chunk where the layout allows, else copies."""
        if len(self.chunks) == 1:
            return self.chunks[0].to_numpy(zero_copy_only)
        if zero_copy_only:
            raise WouldCopyError(f"{len(self.chunks)} chunks do not make one NumPy array without copying")
        return combine_chunks_widened(self).to_numpy(zero_copy_only=False)

    def to_pandas(self, **options: Unpack[ToPandasOptions]) -> Any:
        """The values as a pandas series, like `Array.to_pandas`; several chunks are joined."""
        from bowstring.interop.pandas.to_pandas import to_series

        return to_series(self, options)

    @classmethod
    def from_pandas(cls, values: Any, type: TypeLike | None = None) -> ChunkedArray:
        """The column of a pandas series, like `Array.from_pandas`, in as many chunks as pandas has it."""
        from bowstring.interop.pandas.from_pandas import column_from_series

        return column_from_series(values, type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """The values as one NumPy array, like `Array.__array__`; several chunks have to be copied."""
        return convert_dtype(self.to_numpy(zero_copy_only=copy is False), self, dtype, copy)

    def combine_chunks(self) -> Array:
        """All values in one array; copies, unless there is exactly one chunk.

        Raises `DataTypeError` if the union of the chunks' dictionaries is too large for the indices.
        """
        if len(self.chunks) == 1:
            return self.chunks[0]
        return concat_unified(self.chunks) if self.chunks else layout_of(self.type).build([])

    def slice(self, offset: int = 0, length: int | None = None) -> ChunkedArray:
        """The `length` values from value `offset` on, without copying."""
        spans = split_slice(self._starts, *clip_slice(offset, length, len(self)))
        chunks = [self.chunks[number].slice(first, count) for number, first, count in spans]
        return ChunkedArray(chunks or [chunk.slice(0, 0) for chunk in self.chunks[:1]], self.type)

    def take(self, indices: Sequence[int] | Values | Array) -> ChunkedArray:
        """The values at `indices`, copied into one chunk, like `Array.take`."""
        checked_indices = check_indices(combine_if_chunked(indices), len(self))
        return ChunkedArray([self._interleave(*resolve_chunks(self._starts, checked_indices))], self.type)

    def _interleave(self, used: Sequence[int], numbers: Indices, indices: Indices) -> Array:
        """The slots that `chunk_indices` found, in one array."""
        chunks = [self.chunks[number] for number in used]
        if len(chunks) <= 1:
            chunk = chunks[0] if chunks else self.slice(0, 0).combine_chunks()
            return chunk.layout.take(chunk, indices)
        layout = chunks[0].layout
        array = layout.interleave(SlotSelection(chunks, numbers, indices))
        if array is not None:
            return array
        order = np.argsort(numbers, kind="stable")
        offsets = np.searchsorted(numbers[order], np.arange(len(chunks) + 1)).tolist()
        spans = zip(chunks, pairwise(offsets), strict=True)
        array = concat_unified([layout.take(chunk, indices[order[first:last]]) for chunk, (first, last) in spans])
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return layout.take(array, inverse)

    def filter(self, mask: MaskLike | ChunkedArray) -> ChunkedArray:
        """The values at which `mask` is true, copied chunk by chunk, like `Array.filter`."""
        indices = mask_to_indices(combine_if_chunked(mask), len(self))
        offsets = np.searchsorted(indices, self._starts).tolist()
        chunks = [
            chunk.layout.take(chunk, indices[first:last] - start)
            for chunk, start, (first, last) in zip(self.chunks, self._starts, pairwise(offsets), strict=False)
        ]
        return ChunkedArray(chunks, self.type)

    def is_null(self, nan_is_null: bool = False) -> ChunkedArray:
        """Which slots hold no value, like `Array.is_null`."""
        return ChunkedArray([chunk.is_null(nan_is_null) for chunk in self.chunks], bool_())

    def is_valid(self) -> ChunkedArray:
        """Which slots hold a value, as booleans."""
        return ChunkedArray([chunk.is_valid() for chunk in self.chunks], bool_())

    def drop_null(self) -> ChunkedArray:
        """The slots that hold a value, like `Array.drop_null`."""
        return ChunkedArray([chunk.drop_null() for chunk in self.chunks], self.type)

    def fill_null(self, fill_value: Any) -> ChunkedArray:
        """With `fill_value` in the place of nulls, like `Array.fill_null`."""
        return ChunkedArray([chunk.fill_null(fill_value) for chunk in self.chunks], self.type)

    def unique(self) -> Array:
        """The distinct values in one array, like `Array.unique`; with wider indices where the union of the chunks'
        dictionaries is too large for theirs.
        """
        return combine_chunks_widened(self).unique()

    def unify_dictionaries(self) -> ChunkedArray:
        """The chunks over one dictionary, the union of theirs; raises `DataTypeError` if it is too large."""
        return ChunkedArray(unify_dictionaries(self.chunks), self.type)

    def cast(self, target_type: TypeLike, safe: bool = True) -> ChunkedArray:
        """The values as those of another type, like `Array.cast`."""
        target_type = as_type(target_type, "cast")
        chunks = []
        for number, chunk in enumerate(self.chunks):
            with error_context(f"chunk {number}"):
                chunks.append(chunk.cast(target_type, safe))
        return ChunkedArray(chunks, target_type)

    def sort_indices(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
        """Return the uint64 indices that sort the column, like `Array.sort_indices`; joins several chunks first."""
        return combine_chunks_widened(self).sort_indices(order, null_placement)

    def sort(self, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> ChunkedArray:
        """The values in order, copied, as `sort_indices`."""
        return self.take(self.sort_indices(order, null_placement))

    def dictionary_encode(self, index_type: TypeLike | None = None) -> ChunkedArray:
        """Each chunk as indices into one dictionary of all, like `Array.dictionary_encode`."""
        return self._map_chunks(lambda chunk: chunk.dictionary_encode(index_type)).unify_dictionaries()

    def dictionary_decode(self) -> ChunkedArray:
        """Each chunk as plain values, like `Array.dictionary_decode`."""
        return self._map_chunks(Array.dictionary_decode)

    def run_end_encode(self, run_end_type: TypeLike | None = None) -> ChunkedArray:
        """Each chunk as runs of the same value, like `Array.run_end_encode`; no run goes over chunks."""
        return self._map_chunks(lambda chunk: chunk.run_end_encode(run_end_type))

    def run_end_decode(self) -> ChunkedArray:
        """Each chunk as plain values, like `Array.run_end_decode`."""
        return self._map_chunks(Array.run_end_decode)

    def _map_chunks(self, function: Callable[[Array], Array]) -> ChunkedArray:
        chunks = list(map(function, self.chunks))
        return ChunkedArray(chunks, (chunks[0] if chunks else function(layout_of(self.type).build([]))).type)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.chunks)

    def __getitem__(self, key: int | builtins.slice) -> Any:
        if isinstance(key, builtins.slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return self.combine_chunks()[key]
            return self.slice(start, max(stop - start, 0))
        key = normalize_index(key, len(self))
        number = bisect_right(self._starts, key) - 1
        chunk = self.chunks[number]
        return chunk.layout.value_at(chunk, key - self._starts[number])

    def equals(self, other: Any, nans_equal: bool = False) -> bool:
        """Whether types and values are the same, however they are chunked.

        The other may be one of another library that has `__arrow_c_stream__`.
        """
        if not isinstance(other, ChunkedArray):
            if not hasattr(other, "__arrow_c_stream__"):
                raise DataTypeError(f"expected a chunked array, not {type(other).__name__}")
            from bowstring.interop import c_data

            other = c_data.import_chunked(other)
        if self.type != other.type or len(self) != len(other):
            return False
        if self._starts == other._starts:
            return all(a.equals(b, nans_equal) for a, b in zip(self.chunks, other.chunks, strict=True))
        edges = sorted({*self._starts, *other._starts})
        return all(
            self._within(start, stop).equals(other._within(start, stop), nans_equal) for start, stop in pairwise(edges)
        )

    def _within(self, start: int, stop: int) -> Array:
        number = min(bisect_right(self._starts, start), len(self.chunks)) - 1
        return self.chunks[number].slice(start - self._starts[number], stop - start)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ChunkedArray) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def validate(self, full: bool = False) -> None:
        """Check every chunk, like `Array.validate`."""
        for chunk in self.chunks:
            chunk.validate(full)

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_field(field("", self.type))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from bowstring.interop import c_data

        return c_data.export_chunked(self, requested_schema)

    def __arrow_c_device_stream__(self, requested_schema: object = None, **options: object) -> object:
        from bowstring.interop import c_data

        return c_data.export_device_chunked(self, requested_schema, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkedArray, (self.chunks, self.type)

    def __repr__(self) -> str:
        size = len(self)
        cut = f"{len(self.chunks)} chunk{'' if len(self.chunks) == 1 else 's'}"
        return f"<bowstring.ChunkedArray {self.type}[{size}] in {cut}>\n{format_array_values(self, size)}"


def combine_chunks_widened(column: ChunkedArray) -> Array:
    """All values in one array, as `combine_chunks`, for reading them: where the union of the chunks' dictionaries might
    be too large for their indices, these are wider.
    """
    type_ = column.type
    if column.num_chunks > 1 and isinstance(type_, Dictionary):
        dictionaries = {id(chunk.dictionary): chunk.dictionary for chunk in column.chunks}.values()
        num_values = sum(dictionary.length for dictionary in dictionaries if dictionary is not None)
        if num_values > np.iinfo(str(type_.index_type)).max:
            column = column.cast(Dictionary(int64(), type_.value_type, type_.ordered))
    return column.combine_chunks()
