"""Arrays of Python objects, NumPy arrays, and data of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bowstring.arrays.array import Array, import_array
from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.errors import InvalidArgumentError, TypeMismatchError, WouldCopyError
from bowstring.interop import c_data, dlpack
from bowstring.interop.pandas.pandas_api import is_pandas_object
from bowstring.layouts.array_data import ArrayData
from bowstring.layouts.base import Values, short_repr
from bowstring.layouts.construction import array_from_numpy, array_from_python, invert_mask


def array(values: Any, type: TypeLike | None = None, mask: Values | Sequence[bool] | None = None) -> Array:
    """Create an array of `values`, of the given data type or of one that is inferred from them.

    The type is one of Bowstring or of another library, or a name such as "int64".

    `values` is a sequence of Python objects (None for null), a NumPy array, or an object that exports the Arrow C data
    interface, `__array__` or DLPack; memory is shared with all but the first if the type allows. `mask` is True for the
    nulls of a NumPy array. Raises `TypeMismatchError` naming the first value that does not fit, and `LimitError` for
    dictionaries with so few common keys that nearly all values would be null.
    """
    data_type = None if type is None else as_type(type, "array")
    if mask is None and values.__class__ in (list, tuple):
        return Array.from_array_data(array_from_python(values, data_type))
    if mask is None and values.__class__ is np.ndarray:
        return Array.from_array_data(array_from_numpy(values, data_type))
    if isinstance(values, ChunkedArray):
        values = values.combine_chunks()
    elif is_pandas_object(values):
        values = Array.from_pandas(values, data_type)
    elif not isinstance(values, ArrayData) and (c_data.has_c_array(values) or c_data.has_c_stream(values)):
        values = import_array(values)
    if isinstance(values, ArrayData):
        if data_type is not None and values.type != data_type:
            raise TypeMismatchError(f"the array is {values.type}, not {data_type}")
        return Array.from_array_data(values)
    own_valid = None
    if isinstance(values, np.ma.MaskedArray):
        own_valid = invert_mask(np.ma.getmaskarray(values)) if mask is None else None
        values = values.data
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__") and not np.isscalar(values):
        values = np.asarray(values)
    elif not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values = dlpack.numpy_from_dlpack(values)
    if isinstance(values, np.ndarray):
        valid = own_valid if mask is None else ~np.asarray(mask, np.bool_)
        if mask is not None and valid is not None and valid.shape != values.shape[:1]:
            raise InvalidArgumentError(f"a mask of shape {valid.shape} does not fit values of shape {values.shape}")
        return Array.from_array_data(array_from_numpy(values, data_type, valid))
    if mask is not None:
        raise InvalidArgumentError("a mask requires a NumPy array; in other sequences, use None for nulls")
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeMismatchError(f"expected a sequence of values, found {short_repr(values)}")
    return Array.from_array_data(
        array_from_python(values if isinstance(values, (list, tuple)) else list(values), data_type)
    )


def from_dlpack(source: Any, copy: bool | None = None) -> Array:
    """Import any object with `__dlpack__` (NumPy, PyTorch, JAX, …) whose memory the CPU can read as an array.

    More than one dimension becomes fixed-size lists. Shares the memory if the producer does and the elements are
    contiguous in C order and not booleans, else copies. `copy=True` always copies, `copy=False` raises `WouldCopyError`
    instead of copying. Writes to shared memory by others change the array. Raises `UnsupportedError` for memory of
    another device, `TypeMismatchError` for elements without an Arrow type or zero dimensions, `BufferExchangeError` for
    what DLPack doesn't support.
    """
    values = dlpack.numpy_from_dlpack(source, copy)
    if copy is False and not (values.flags.c_contiguous and values.dtype.kind != "b"):
        raise WouldCopyError("booleans and elements that are not contiguous can't become an array without a copy")
    return array(values.copy() if copy else values)
