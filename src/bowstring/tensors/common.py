"""Shared by dense and sparse tensors: element types, shapes, dimension names, slices of a message body."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.datatypes.base import check_text
from bowstring.datatypes.types import DataType, Int
from bowstring.errors import DataTypeError, InvalidDataError, LimitError, UnsupportedTypeError, UsageError
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.type_inference import type_of_numpy
from bowstring.memory.buffer import Buffer

Values: TypeAlias = npt.NDArray[Any]

MAX_DIMENSIONS = 64
"""NumPy's maximum."""
MAX_DENSE_BYTES = 16 << 30
"""Default limit on the size of a dense tensor made from a sparse one."""
_MAX_SIZE = 1 << 63


class ShapeMixin:
    """Properties derived from `type`, `shape` and `dim_names`, which the tensor classes declare."""

    __slots__ = ()

    type: DataType
    shape: tuple[int, ...]
    dim_names: tuple[str, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, zeros included."""
        return prod(self.shape)

    def dim_name(self, index: int) -> str:
        """The name of a dimension, or the empty string. Raises `UsageError` if the index is out of range."""
        if not -self.ndim <= index < self.ndim:
            raise UsageError(f"a tensor of {self.ndim} dimensions has no dimension {index}")
        return self.dim_names[index] if self.dim_names else ""

    def _comparison_key(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names


def element_dtype(type_: DataType) -> np.dtype[Any]:
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


def element_type(dtype: np.dtype[Any]) -> DataType:
    """Return the data type of a NumPy dtype. Raises as `element_dtype`."""
    try:
        type_ = type_of_numpy(np.empty(0, dtype)) if dtype.kind != "O" else None
    except DataTypeError:
        type_ = None
    if type_ is None:
        raise UnsupportedTypeError(
            f"tensor elements must be numbers, timestamps or durations, found NumPy dtype {dtype}"
        )
    if element_dtype(type_) != dtype.newbyteorder("="):
        raise UnsupportedTypeError(f"NumPy dtype {dtype} is not supported in tensors: {type_} has another width")
    return type_


def as_unmasked_array(values: Any) -> Values:
    """Convert values to a NumPy array. Raises `UsageError` if elements are masked: tensors have no nulls."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise UsageError("tensors can't have nulls, but the array has masked elements: fill them first")
    return np.asarray(values)


def to_native_byte_order(values: Values) -> Values:
    """Convert the array to the machine's byte order. Copies only if it has another one."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def index_dtype(type_: Int) -> np.dtype[Any]:
    """Return the NumPy dtype of an index type."""
    return np.dtype(str(type_))


def as_index_array(what: str, values: Any) -> Values:
    """Convert indices to a NumPy array of integers. Raises `DataTypeError` for other values."""
    indices = np.asarray(values)
    if indices.size == 0 and indices.dtype.kind == "f":
        indices = indices.astype(np.int64)  # the default dtype of an empty list
    if indices.dtype.kind not in "iu":
        raise DataTypeError(f"{what} must be integers, found {indices.dtype}")
    return to_native_byte_order(indices)


def check_sizes(shape: Sequence[int]) -> None:
    """Raise `InvalidDataError` for a negative size or one beyond 63 bits, `LimitError` for too many dimensions."""
    if len(shape) > MAX_DIMENSIONS:
        raise LimitError(f"{len(shape)} dimensions exceed the maximum of {MAX_DIMENSIONS}")
    for axis, size in enumerate(shape):
        if not 0 <= size < _MAX_SIZE:
            raise InvalidDataError(f"dimension {axis}: expected a size from 0 to {_MAX_SIZE - 1}, found {size}")


def is_addressable(shape: Sequence[int], itemsize: int) -> bool:
    """Whether NumPy supports a shape. It multiplies all non-zero sizes, even if there are no elements."""
    return prod(size for size in shape if size) * max(itemsize, 1) < _MAX_SIZE


def check_shape(shape: Sequence[int], itemsize: int) -> None:
    """Raise as `check_sizes`, and `InvalidDataError` if the size in bytes overflows 63 bits."""
    check_sizes(shape)
    if not is_addressable(shape, itemsize):
        raise InvalidDataError(f"a shape of {tuple(shape)} overflows 63 bits in elements of {itemsize} bytes")


def as_integers(values: Iterable[Any], what: str) -> tuple[int, ...]:
    """Convert values to integers. Raises `UsageError` for other values."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise UsageError(f"{what}: expected a sequence of integers, found {values!r}") from None


def as_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """Convert a shape to a tuple. Raises `UsageError` unless all sizes are non-negative integers."""
    sizes = as_integers(shape, "shape")
    if any(size < 0 for size in sizes):
        raise UsageError(f"shape: expected non-negative sizes, found {sizes}")
    return sizes


def as_dim_names(names: Iterable[str | None] | None, dimensions: int) -> tuple[str, ...]:
    """Convert dimension names to a tuple with one name per dimension, or an empty tuple if there are no names. Raises
    `UsageError` for another number of names.
    """
    dim_names = () if names is None else tuple(name or "" for name in names)
    for name in dim_names:
        check_text("the name of a dimension", name)
    if dim_names and len(dim_names) != dimensions:
        raise UsageError(f"expected {dimensions} dimension names, found {len(dim_names)}")
    return dim_names if any(dim_names) else ()


def row_major_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of C order."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def column_major_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of Fortran order."""
    return row_major_strides(shape[::-1], itemsize)[::-1]


def check_strides(shape: Sequence[int], strides: Sequence[int], itemsize: int, buffer_bytes: int) -> None:
    """Raise `InvalidDataError` if elements exceed `buffer_bytes` bytes, or are too many not to overlap."""
    if len(strides) != len(shape):
        raise InvalidDataError(f"expected {len(shape)} strides, found {len(strides)}")
    for axis, stride in enumerate(strides):
        if not 0 <= stride < _MAX_SIZE:
            raise InvalidDataError(f"dimension {axis}: expected a stride from 0 to {_MAX_SIZE - 1}, found {stride}")
    if 0 in shape:
        return
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + itemsize
    if last > buffer_bytes:
        raise InvalidDataError(
            f"shape {tuple(shape)} with strides {tuple(strides)} needs {last} bytes, the buffer has {buffer_bytes}"
        )
    if prod(shape) * itemsize > buffer_bytes:
        raise InvalidDataError(
            f"{prod(shape)} elements of {itemsize} bytes overlap in {buffer_bytes} bytes: shape {tuple(shape)}, "
            f"strides {tuple(strides)}"
        )


def has_overlap(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether elements may overlap: some stride is shorter than the extent of the dimensions with smaller strides."""
    extent = itemsize
    for stride, size in sorted((t, s) for s, t in zip(shape, strides, strict=True) if s > 1):
        if stride < extent:
            return True
        extent = stride * (size - 1) + extent
    return False


def is_packed(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether the elements are contiguous in memory, in any order of the dimensions."""
    if 0 in shape:
        return True
    extent = itemsize
    for stride, size in sorted((t, s) for s, t in zip(shape, strides, strict=True) if s > 1):
        if stride != extent:
            return False
        extent *= size
    return True


def strided_view(buffer: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Values:
    """Return a read-only view of a buffer. Shape and strides must be checked before."""
    if 0 in shape:
        empty = np.empty(0, dtype)
        empty.flags.writeable = False
        return np.lib.stride_tricks.as_strided(empty, shape, (0,) * len(shape), writeable=False)
    return np.ndarray(shape, dtype, buffer.bytes.data, 0, strides)


def as_buffer(values: Values) -> Buffer:
    """Return a buffer over the memory of a contiguous array (see `is_packed`), in memory order."""
    if values.size == 0:
        return Buffer.of(b"")
    order = sorted(range(values.ndim), key=lambda axis: (-values.strides[axis], values.shape[axis] == 1))
    return Buffer.of(values.transpose(order).reshape(-1).view(np.uint8) if values.ndim else values.reshape(1))


def slice_body(body: Buffer, offset: int, length: int, what: str) -> Buffer:
    """Return a slice of a message body. Raises `InvalidDataError` if it is out of bounds."""
    if offset < 0 or length < 0 or offset + length > body.size:
        raise InvalidDataError(f"{what}: {length} bytes at offset {offset} exceed the body of {body.size} bytes")
    return Buffer(body.memory, body.offset + offset, length)


def equal_prefixes(rows: Values) -> Values:
    """For sorted coordinates of shape (n, k), return an array of shape (n - 1, k): whether the first j + 1 coordinates
    of row i + 1 equal those of row i.
    """
    return np.logical_and.accumulate(rows[1:] == rows[:-1], axis=1)
