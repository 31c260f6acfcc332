"""Arguments of compute functions, and functions of one or more of them, value by value.

An argument is an array, a chunked array, a scalar, a sequence or NumPy array, a column of another library, or any other
Python object, which is a scalar. Results are scalars for scalars, chunked arrays if an argument is one, else arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import ChunkedArray, as_chunked_array
from bowstring.arrays.construction import array
from bowstring.arrays.scalar import Scalar
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels.array_statistics import get_decoded_type
from bowstring.kernels.cast import cast
from bowstring.kernels.column_chunks import combine_with_wider_indices
from bowstring.kernels.nulls import set_nulls
from bowstring.kernels.value_field import extract_value_field
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.expansion_limits import check_expanded_array
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.memory.bitmap import Mask

Operand: TypeAlias = Array | ChunkedArray | Scalar


def as_operand(value: Any) -> Operand:
    """Convert an argument of a function."""
    if isinstance(value, Array | ChunkedArray | Scalar):
        return value
    if isinstance(value, ArrayData | list | tuple | np.ndarray) or hasattr(value, "__arrow_c_array__"):
        return array(value)
    if hasattr(value, "__arrow_c_stream__"):
        return as_chunked_array(value)
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return array(value)
    if callable(as_py := getattr(value, "as_py", None)):  # a scalar of pyarrow
        return Scalar(array([as_py()], getattr(value, "type", None)))
    return Scalar(array([value]))


def as_column(value: Any) -> ArrayData:
    """Convert an argument to one array; the chunks of a chunked array are concatenated.

    Raises `LimitError` for far more values than the array has bytes.
    """
    operand = as_operand(value)
    if isinstance(operand, Scalar):
        return operand.to_array()
    column = combine_with_wider_indices(operand) if isinstance(operand, ChunkedArray) else operand
    check_expanded_array(column)
    return column


def as_chunks(value: Any) -> list[ArrayData]:
    """Convert an argument to arrays of one type, at least one. Raises as `as_column`."""
    operand = as_operand(value)
    chunks = operand.chunks if isinstance(operand, ChunkedArray) else ()
    return list(map(as_column, chunks)) or [as_column(operand)]


def map_operands(function: Callable[..., ArrayData], *values: Any) -> Any:
    """Apply a function of arrays to arguments, slot by slot. Scalars are passed as arrays of one slot.

    Raises `InvalidArgumentError` if the lengths of two arguments differ, `LimitError` as `as_column`.
    """
    operands = [as_operand(value) for value in values]
    columns = [operand for operand in operands if not isinstance(operand, Scalar)]
    for column in columns:
        for chunk in column.chunks if isinstance(column, ChunkedArray) else (column,):
            check_expanded_array(chunk)
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InvalidArgumentError(f"expected arguments of one length, found {' and '.join(map(str, sorted(lengths)))}")
    if any(isinstance(column, ChunkedArray) for column in columns):
        arrays = [function(*parts) for parts in _align_chunks(operands)]
        return ChunkedArray(arrays, arrays[0].type)
    values_or_one = [operand.to_array() if isinstance(operand, Scalar) else operand for operand in operands]
    result_array = Array.from_array_data(function(*values_or_one))
    return result_array if columns else Scalar(result_array)


def map_column(function: Callable[[ArrayData], ArrayData], value: Any) -> Any:
    """Apply a function of all values of an argument, as one array; return as many, in the argument's chunks."""
    operand = as_operand(value)
    values = Array.from_array_data(function(as_column(operand)))
    if isinstance(operand, ChunkedArray):
        starts = [0, *accumulate(map(len, operand.chunks))]
        return ChunkedArray([values[start:stop] for start, stop in pairwise(starts)], values.type)
    return Scalar(values) if isinstance(operand, Scalar) else values


def _align_chunks(operands: Sequence[Operand]) -> list[list[ArrayData]]:
    """Return slices of the operands that are within one chunk of each; at least one, which may be empty."""
    chunk_lists: list[Any] = []
    for operand in operands:
        own_chunks = operand.chunks if isinstance(operand, ChunkedArray) else (operand,)
        is_scalar = isinstance(operand, Scalar)
        chunk_lists.append(None if is_scalar else own_chunks or (array([], operand.type),))
    starts = [[0, *accumulate(map(len, chunks))] if chunks else [0] for chunks in chunk_lists]
    edges = sorted(set().union(*starts))
    spans = list(pairwise(edges)) or [(0, 0)]
    aligned = []
    for start, stop in spans:
        parts: list[ArrayData] = []
        for operand, chunks, own_starts in zip(operands, chunk_lists, starts, strict=True):
            if chunks is None:
                assert isinstance(operand, Scalar)
                parts.append(operand.to_array())
                continue
            index = min(bisect_right(own_starts, start), len(chunks)) - 1
            parts.append(chunks[index].slice(start - own_starts[index], stop - start))
        aligned.append(parts)
    return aligned


def map_valid_values(function: Callable[[ArrayData], ArrayData], array: ArrayData) -> ArrayData:
    """Apply a function that returns null for null to the values of an array, to each dictionary value and run once.

    `function` gets a plain array, of the storage type of an extension type.
    """
    array = extract_value_field(array).storage
    layout = array.layout
    if isinstance(layout, RunEndEncodedLayout):
        lengths, values = layout.run_lengths_and_values(array)
        mapped = map_valid_values(function, values)
        return mapped.layout.take(mapped, np.repeat(np.arange(len(lengths)), lengths))
    if not isinstance(layout, DictionaryLayout):
        return function(array)
    if array.null_count == array.length:
        return function(layout.dictionary.nulls(array.length))
    compact = layout.compact_dictionary(array)
    mapped = map_valid_values(function, compact.require_dictionary())
    decoded, valid = mapped.layout.take(mapped, layout.indices(compact)), compact.validity_mask()
    return decoded if valid is None else set_nulls(decoded, ~valid)


def decode_and_cast(array: ArrayData, type_: DataType) -> ArrayData:
    """Return the values of an array without encoding and extension type, as values of a type.

    Raises `TypeMismatchError` for a value that does not fit.
    """
    return cast(extract_value_field(array), type_)


def combine_validity(*arrays: ArrayData) -> Mask | None:
    """Return which slots are valid in all arrays, of one length or of one slot; None if all are."""
    masks = [array.layout.logical_validity_mask(array) for array in arrays]
    combined: Mask | None = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    if combined is None:
        return None
    return np.broadcast_to(combined, broadcast_length(*arrays))


def broadcast_length(*arrays: ArrayData) -> int:
    """Return the length of arrays, some of which have one slot for all."""
    return next((array.length for array in arrays if array.length != 1), 1)


def broadcast(values: Values, length: int) -> Values:
    """Repeat a single value, or return the values as they are."""
    return values if len(values) == length else np.broadcast_to(values, length)


def broadcast_array(array: ArrayData, length: int) -> ArrayData:
    """Repeat the single slot of an array, or return it as it is."""
    return array if array.length == length else array.layout.take(array, np.zeros(length, np.int64))


def check_type(array: ArrayData, function: str, *types: type[DataType]) -> None:
    """Raise `TypeMismatchError` if the values of an array are not of one of the types."""
    if not isinstance(get_decoded_type(array.type), types):
        names = " or ".join(each.__name__.lower() for each in types)
        raise TypeMismatchError(f"{function}: expected {names}, found {array.type}")
