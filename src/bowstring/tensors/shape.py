"""Shapes, dimension names and strides of tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from bowstring.datatypes.parameters import check_text
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError
from bowstring.memory.buffer import Buffer
from bowstring.tensors.elements import Values

MAX_DIMENSIONS = 64
"""NumPy's maximum."""
# Sizes and strides are int64 in the format.
_MAX_SIZE = 1 << 63


class ShapeMixin:
    """Properties derived from `type`, `shape` and `dim_names`, which the tensor classes declare."""

    __slots__ = ("__weakref__",)

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
        """The name of a dimension, or the empty string. Raises `InvalidArgumentError` if the index is out of range."""
        if not -self.ndim <= index < self.ndim:
            raise InvalidArgumentError(f"a tensor of {self.ndim} dimensions has no dimension {index}")
        return self.dim_names[index] if self.dim_names else ""

    def _equality_key(self) -> tuple[object, ...]:
        """The properties that equal tensors share; the rest are elements."""
        return self.type, self.shape, self.dim_names


def check_dimension_sizes(shape: Sequence[int]) -> None:
    """Raise `InvalidDataError` for a negative size or one beyond 63 bits, `LimitError` for too many dimensions."""
    if len(shape) > MAX_DIMENSIONS:
        raise LimitError(f"{len(shape)} dimensions exceed the maximum of {MAX_DIMENSIONS}")
    for axis, size in enumerate(shape):
        if not 0 <= size < _MAX_SIZE:
            raise InvalidDataError(f"dimension {axis}: expected a size from 0 to {_MAX_SIZE - 1}, found {size}")


def is_supported_by_numpy(shape: Sequence[int], itemsize: int) -> bool:
    """Whether NumPy supports a shape. It multiplies all non-zero sizes, even if there are no elements."""
    return prod(size for size in shape if size) * max(itemsize, 1) < _MAX_SIZE


def check_dense_shape(shape: Sequence[int], itemsize: int) -> None:
    """Raise as `check_dimension_sizes`, and `InvalidDataError` if the size in bytes overflows 63 bits."""
    check_dimension_sizes(shape)
    if not is_supported_by_numpy(shape, itemsize):
        raise InvalidDataError(f"a shape of {tuple(shape)} overflows 63 bits in elements of {itemsize} bytes")


def as_integers(values: Iterable[Any], what: str) -> tuple[int, ...]:
    """Convert values to integers. Raises `InvalidArgumentError` for other values."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise InvalidArgumentError(f"{what}: expected a sequence of integers, found {values!r}") from None


def as_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """Convert a shape to a tuple. Raises `InvalidArgumentError` unless all sizes are non-negative integers."""
    sizes = as_integers(shape, "shape")
    if any(size < 0 for size in sizes):
        raise InvalidArgumentError(f"shape: expected non-negative sizes, found {sizes}")
    return sizes


def as_dim_names(names: Iterable[str | None] | None, dimensions: int) -> tuple[str, ...]:
    """Convert dimension names to a tuple with one name per dimension, or an empty tuple if there are no names. Raises
    `InvalidArgumentError` for another number of names.
    """
    dim_names = () if names is None else tuple(name or "" for name in names)
    for name in dim_names:
        check_text("the name of a dimension", name)
    if dim_names and len(dim_names) != dimensions:
        raise InvalidArgumentError(f"expected {dimensions} dimension names, found {len(dim_names)}")
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


def is_contiguous_in_any_order(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
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
    """Return a buffer over the memory of a contiguous array (see `is_contiguous_in_any_order`), in memory order."""
    if values.size == 0:
        return Buffer.of(b"")
    order = sorted(range(values.ndim), key=lambda axis: (-values.strides[axis], values.shape[axis] == 1))
    return Buffer.of(values.transpose(order).reshape(-1).view(np.uint8) if values.ndim else values.reshape(1))
