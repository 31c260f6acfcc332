"""Elements and indices of tensors as NumPy arrays, and their data types."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.types import DataType, Int
from bowstring.errors import InvalidArgumentError, TypeMismatchError, UnsupportedTypeError
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.type_inference import type_of_numpy_array

Values: TypeAlias = npt.NDArray[Any]


def element_type_to_dtype(type_: DataType) -> np.dtype[Any]:
    """Return the NumPy dtype of an element. Raises `UnsupportedTypeError` for types that are not numbers, timestamps or
    durations.
    """
    layout = layout_of(type_)
    if isinstance(layout, PrimitiveLayout):
        values = layout.codec.view_as_numpy(np.empty(0, layout.dtype))
        dtype = layout.dtype if values is None else values.dtype
        if dtype.kind in "iufmM":
            return dtype
    raise UnsupportedTypeError(f"tensor elements must be numbers, timestamps or durations, found {type_}")


def dtype_to_element_type(dtype: np.dtype[Any]) -> DataType:
    """Return the data type of a NumPy dtype. Raises as `element_type_to_dtype`."""
    try:
        type_ = type_of_numpy_array(np.empty(0, dtype)) if dtype.kind != "O" else None
    except TypeMismatchError:
        type_ = None
    if type_ is None:
        raise UnsupportedTypeError(
            f"tensor elements must be numbers, timestamps or durations, found NumPy dtype {dtype}"
        )
    if element_type_to_dtype(type_) != dtype.newbyteorder("="):
        raise UnsupportedTypeError(f"NumPy dtype {dtype} is not supported in tensors: {type_} has another width")
    return type_


def as_unmasked_array(values: Any) -> Values:
    """Convert values to a NumPy array. Raises `InvalidArgumentError` if elements are masked: tensors have no nulls."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise InvalidArgumentError("tensors can't have nulls, but the array has masked elements: fill them first")
    return np.asarray(values)


def to_native_byte_order(values: Values) -> Values:
    """Convert the array to the machine's byte order. Copies only if it has another one."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def index_type_to_dtype(type_: Int) -> np.dtype[Any]:
    """Return the NumPy dtype of an index type."""
    return np.dtype(str(type_))


def as_index_array(what: str, values: Any) -> Values:
    """Convert indices to a NumPy array of integers. Raises `TypeMismatchError` for other values."""
    indices = np.asarray(values)
    if indices.size == 0 and indices.dtype.kind == "f":
        indices = indices.astype(np.int64)  # the default dtype of an empty list
    if indices.dtype.kind not in "iu":
        raise TypeMismatchError(f"{what} must be integers, found {indices.dtype}")
    return to_native_byte_order(indices)
