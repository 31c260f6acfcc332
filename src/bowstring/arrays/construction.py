"""Arrays of Python objects, NumPy arrays, and data of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np

from bowstring.arrays.array import Array, import_array
from bowstring.arrays.chunked_array import ChunkedArray, as_chunked_array
from bowstring.arrays.scalar import Scalar
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.field import DataType
from bowstring.datatypes.types import Null
from bowstring.errors import InvalidArgumentError, TypeMismatchError, WouldCopyError, check_count
from bowstring.interop import c_data, dlpack
from bowstring.interop.pandas import is_pandas_object
from bowstring.interop.pyarrow_arrays import is_pyarrow_scalar, scalar_from_pyarrow
from bowstring.kernels.cast import cast
from bowstring.kernels.nulls import set_nulls
from bowstring.layouts.base import ArrayData, Values, short_repr
from bowstring.layouts.construction import array_from_numpy, array_from_python, invert_mask
from bowstring.layouts.expansion_limits import allow_available_memory


def array(
    values: Any,
    type: TypeLike | None = None,
    mask: Values | Sequence[bool] | None = None,
    size: int | None = None,
    from_pandas: bool | None = None,
    safe: bool = True,
) -> Array:
    """Create an array of `values`, of the given data type or of one that is inferred from them.

    The type is one of Bowstring or of another library, or a name such as "int64". Arrays of another type are cast.

    `values` is a sequence of Python objects (None for null), a NumPy array, or an object that exports the Arrow C data
    interface, `__array__` or DLPack; memory is shared with all but the first if the type allows. `mask` has one boolean
    for each value, and True makes it null, in addition to nulls of the values; for a NumPy array of several
    dimensions, one for each row. At most `size` values are read. With `from_pandas`, NaN is null, as it is by default
    in pandas' objects. Raises `TypeMismatchError` naming the first value that does not fit, unless `safe=False`
    truncates it as `Array.cast`; `InvalidArgumentError` if the mask has another shape than the values, and `LimitError`
    for dictionaries with so few common keys that nearly all values would be null.

    >>> import numpy as np
    >>> bs.array([1, None, 3])
    <bowstring.Array int64[3]>
    [1, null, 3]
    >>> bs.array(np.arange(3.0), mask=[False, True, False])
    <bowstring.Array double[3]>
    [0.0, null, 2.0]
    """
    data_type = None if type is None else as_type(type, "array")
    if size is not None or from_pandas is not None or not safe:
        values, mask = _select_values(values, mask, size, from_pandas)
        if not safe and data_type is not None:
            with suppress(TypeMismatchError):
                return array(values, data_type, mask)
            return array(values, None, mask).cast(data_type, safe=False)
    if values.__class__ is np.ndarray and values.dtype.kind == "O" and values.ndim == 1:
        values = values.tolist()
    # First the two most frequent kinds, which need none of the tests for protocols.
    if mask is None and values.__class__ in (list, tuple):
        return _array_from_objects(values, data_type)
    if mask is None and values.__class__ is np.ndarray:
        return Array.from_array_data(array_from_numpy(values, data_type))
    if isinstance(values, ChunkedArray):
        values = values.combine_chunks()
    elif is_pandas_object(values):
        values = Array.from_pandas(values, data_type)
    elif not isinstance(values, ArrayData) and (c_data.has_c_array(values) or c_data.has_c_stream(values)):
        values = import_array(values)
    if isinstance(values, ArrayData):
        values = Array.from_array_data(values if data_type is None else cast(values, data_type))
        return values if mask is None else Array.from_array_data(set_nulls(values, as_mask(mask, (len(values),))))
    valid = None
    if isinstance(values, np.ma.MaskedArray):
        valid = invert_mask(np.ma.getmaskarray(values))
        values = values.data
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__") and not np.isscalar(values):
        # NumPy's scalars have `__array__`, too, but are not sequences.
        values = np.asarray(values)
    elif not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values = dlpack.numpy_from_dlpack(values)
    if isinstance(values, np.ndarray):
        # The mask of a masked structured array has a boolean for each field.
        if mask is not None and valid is not None and valid.dtype.names is not None:
            raise InvalidArgumentError("a masked structured array can't have another mask")
        if mask is not None:
            not_masked = ~as_mask(mask, values.shape[:1] if valid is None else valid.shape)
            valid = not_masked if valid is None else valid & not_masked
        return Array.from_array_data(array_from_numpy(values, data_type, valid))
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeMismatchError(f"expected a sequence of values, found {short_repr(values)}")
    values = values if isinstance(values, (list, tuple)) else list(values)
    if mask is not None:
        is_null = as_mask(mask, (len(values),)).tolist()
        values = [None if null else value for value, null in zip(values, is_null, strict=True)]
    return _array_from_objects(values, data_type)


def _array_from_objects(values: Sequence[Any], data_type: DataType | None) -> Array:
    """Create an array of Python objects. Scalars have the type of the first one by default that is not of nulls."""
    if data_type is None and values:
        first: Any = values[0] if values[0] is not None else next((each for each in values if each is not None), None)
        if isinstance(first, Scalar) or is_pyarrow_scalar(first):
            types = (as_type(each.type) for each in values if isinstance(each, Scalar) or is_pyarrow_scalar(each))
            data_type = next((type_ for type_ in types if not isinstance(type_, Null)), None)
    return Array.from_array_data(array_from_python(values, data_type))


def _select_values(values: Any, mask: Any, size: int | None, from_pandas: bool | None) -> tuple[Any, Any]:
    """Return the first `size` values, as a sequence, and their mask, which with `from_pandas` includes NaN."""
    if size is not None and isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        count = check_count("array: the size", size)
        sliceable: Any = getattr(values, "iloc", values)  # of a pandas series: by position, whatever its labels
        values = sliceable[:count] if hasattr(values, "__array__") else list(islice(values, count))
    if is_pandas_object(values):
        values = np.asarray(values) if from_pandas is False else values
    elif isinstance(values, Iterator):
        values = list(values)
    if not from_pandas:
        return values, mask
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.ma.MaskedArray(values, np.isnan(np.ma.getdata(values))), mask
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.kind == "O"):
        numbers = (float, np.floating, Decimal)
        values = [None if isinstance(value, numbers) and value != value else value for value in values]
    return values, mask


def chunked_array(arrays: Iterable[Any], type: TypeLike | None = None) -> ChunkedArray:
    """Create a chunked array of arrays, or of anything else that `array` accepts. Arrays are not copied.

    An array or a column of another library is the only chunk, or has its chunks. The type is the first chunk's by
    default. Raises `InvalidArgumentError` if there are neither chunks nor a type, or a chunk has another type.

    >>> bs.chunked_array([[1, 2], [None, 4]])
    <bowstring.ChunkedArray int64[4] in 2 chunks>
    [1, 2, null, 4]
    """
    if is_pandas_object(arrays):
        arrays = ChunkedArray.from_pandas(arrays).chunks
    elif isinstance(arrays, ArrayData | ChunkedArray) or c_data.has_c_array(arrays) or c_data.has_c_stream(arrays):
        arrays = as_chunked_array(arrays).chunks
    data_type = None if type is None else as_type(type, "chunked_array")
    chunks: list[Array] = []
    for values in arrays:
        chunks.append(array(values, None if type is None and isinstance(values, ArrayData) else data_type))
        data_type = data_type or chunks[0].type
    if data_type is None:
        raise InvalidArgumentError("chunked_array: without chunks, a type is needed")
    return ChunkedArray(chunks, data_type)


def scalar(value: Any, type: TypeLike | None = None) -> Scalar:
    """Create a scalar of a Python value or a scalar of pyarrow. By default it has its type, or an inferred one.

    >>> import bowstring as bs
    >>> bs.scalar(5, "int8")
    <bowstring.Scalar int8: 5>
    """
    if is_pyarrow_scalar(value):
        value = Scalar(Array.from_array_data(scalar_from_pyarrow(value)))
    if isinstance(value, Scalar):
        return value if type is None else value.cast(type)
    return Scalar(array([value], type))


def repeat(value: Any, size: int, type: TypeLike | None = None) -> Array:
    """Create an array of a Python value, repeated `size` times. By default its type is inferred.

    >>> bs.repeat("x", 3)
    <bowstring.Array string[3]>
    ["x", "x", "x"]
    """
    count = check_count("repeat: the size", size)
    with allow_available_memory():
        return scalar(value, type).to_array().take(np.zeros(count, np.int64))


def nulls(size: int, type: TypeLike | None = None) -> Array:
    """Create an array of nulls, by default of the type null.

    >>> bs.nulls(2, "string")
    <bowstring.Array string[2]>
    [null, null]
    """
    return repeat(None, size, type)


def infer_type(values: Any, mask: Values | Sequence[bool] | None = None, from_pandas: bool = False) -> DataType:
    """Return the type that `array` infers from values.

    >>> bs.infer_type([1, None, 2.5])
    DataType(double)
    """
    return array(values, mask=mask, from_pandas=from_pandas or None).type


def from_numpy_dtype(dtype: Any) -> DataType:
    """Return the type that `array` infers from NumPy arrays of a dtype. Raises `TypeMismatchError` if there is none.

    >>> str(bs.from_numpy_dtype("datetime64[ms]"))
    'timestamp[ms]'
    """
    try:
        numpy_dtype = np.dtype(dtype)
    except TypeError as error:
        raise TypeMismatchError(f"expected a dtype of NumPy, found {dtype!r:.60}: {error}") from None
    if numpy_dtype.kind == "O":
        raise TypeMismatchError("NumPy's object has no data type of its own: it depends on the values")
    return infer_type(np.empty(0, numpy_dtype))


def as_mask(mask: Values | Sequence[bool], shape: tuple[int, ...]) -> Values:
    """Return a mask as NumPy booleans. Raises `InvalidArgumentError` unless it has this shape."""
    booleans = np.asarray(mask)
    if booleans.shape != shape or (booleans.dtype.kind != "b" and booleans.size):
        raise InvalidArgumentError(
            f"expected a mask of booleans of shape {shape}, found {booleans.dtype} of shape {booleans.shape}"
        )
    return booleans.astype(np.bool_)


def from_dlpack(source: Any, copy: bool | None = None) -> Array:
    """Import any object with `__dlpack__` (NumPy, PyTorch, JAX, …) whose memory the CPU can read as an array.

    More than one dimension becomes fixed-size lists. Shares the memory if the producer does and the elements are
    contiguous in C order and not booleans, else copies. `copy=True` always copies, `copy=False` raises `WouldCopyError`
    instead of copying. Writes to shared memory by others change the array. Raises `UnsupportedError` for memory of
    another device, `TypeMismatchError` for elements without an Arrow type or zero dimensions, `BufferExchangeError` for
    what DLPack doesn't support.

    >>> import numpy as np
    >>> bs.from_dlpack(np.arange(3))
    <bowstring.Array int64[3]>
    [0, 1, 2]
    """
    values = dlpack.numpy_from_dlpack(source, copy)
    if copy is False and not (values.flags.c_contiguous and values.dtype.kind != "b"):
        raise WouldCopyError("booleans and elements that are not contiguous can't become an array without a copy")
    return array(values.copy() if copy else values)
