"""What dense and sparse tensors have in common: element types, shapes, dimension names, stretches of a body."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.arrays.type_inference import type_of_numpy
from bowstring.datatypes.base import check_text
from bowstring.datatypes.types import DataType, Int
from bowstring.errors import DataTypeError, InvalidDataError, LimitError, UnsupportedTypeError, UsageError
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import Buffer

Values: TypeAlias = npt.NDArray[Any]

MAX_DIMENSIONS = 64
"""NumPy's own bound."""
MAX_DENSE_BYTES = 16 << 30
"""What making a sparse tensor dense may take, unless the caller allows more."""
_ADDRESSABLE = 1 << 63


class Shaped:
    """What every tensor tells of its shape, which its class declares together with `dim_names`."""

    __slots__ = ()

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

    @property
    def is_mutable(self) -> bool:
        """False: tensors are not written to."""
        return False

    def dim_name(self, index: int) -> str:
        """The name of a dimension; the empty string where there are no names. Raises `UsageError` outside the shape."""
        if not -self.ndim <= index < self.ndim:
            raise UsageError(f"a tensor of {self.ndim} dimensions has no dimension {index}")
        return self.dim_names[index] if self.dim_names else ""


def element_dtype(type_: DataType) -> np.dtype[Any]:
    """The NumPy type of an element. Raises `UnsupportedTypeError` for types without fixed-width numbers or moments."""
    layout = layout_of(type_)
    if isinstance(layout, PrimitiveLayout):
        shown = layout.codec.as_numpy(np.empty(0, layout.dtype))
        dtype = layout.dtype if shown is None else shown.dtype
        if dtype.kind in "iufmM":
            return dtype
    raise UnsupportedTypeError(f"a tensor's elements are numbers or moments of one width, not {type_}")


def element_type(dtype: np.dtype[Any]) -> DataType:
    """The data type for a NumPy type of elements; errors as `element_dtype`."""
    try:
        type_ = type_of_numpy(np.empty(0, dtype)) if dtype.kind != "O" else None
    except DataTypeError:
        type_ = None
    if type_ is None:
        raise UnsupportedTypeError(f"a tensor's elements are numbers or moments of one width, not NumPy's {dtype}")
    if element_dtype(type_) != dtype.newbyteorder("="):
        raise UnsupportedTypeError(f"NumPy's {dtype} is no element of a tensor: {type_} has another width")
    return type_


def unmasked(values: Any) -> Values:
    """What a caller gave as a NumPy array. Raises `UsageError` for one with masked elements: tensors have no nulls."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise UsageError("a tensor has no nulls, but the array has masked elements: fill them first")
    return np.asarray(values)


def native(values: Values) -> Values:
    """The array in the machine's byte order; copied only where it has another one."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def index_dtype(type_: Int) -> np.dtype[Any]:
    """The NumPy type of an index."""
    return np.dtype(f"{'i' if type_.is_signed else 'u'}{type_.bit_width // 8}")


def index_array(what: str, values: Any) -> Values:
    """Indices given by a caller as a NumPy array of integers; raises `DataTypeError` for anything else."""
    made = np.asarray(values)
    if made.size == 0 and made.dtype.kind == "f":
        made = made.astype(np.int64)  # an empty list says no type
    if made.dtype.kind not in "iu":
        raise DataTypeError(f"{what} are integers, not {made.dtype}")
    return native(made)


def check_sizes(shape: Sequence[int]) -> None:
    """Raise `InvalidDataError` for a negative size or one beyond 63 bits, `LimitError` for too many dimensions."""
    if len(shape) > MAX_DIMENSIONS:
        raise LimitError(f"{len(shape)} dimensions are more than the {MAX_DIMENSIONS} that an array can have")
    for axis, size in enumerate(shape):
        if not 0 <= size < _ADDRESSABLE:
            raise InvalidDataError(f"dimension {axis}: a size of {size} is not from 0 to {_ADDRESSABLE - 1}")


def is_addressable(shape: Sequence[int], itemsize: int) -> bool:
    """Whether NumPy has arrays of a shape: it multiplies all sizes but zero, also where there are no elements."""
    return prod(size for size in shape if size) * max(itemsize, 1) < _ADDRESSABLE


def check_shape(shape: Sequence[int], itemsize: int) -> None:
    """`check_sizes`, and raise `InvalidDataError` for a shape that no memory could hold."""
    check_sizes(shape)
    if not is_addressable(shape, itemsize):
        raise InvalidDataError(f"a shape of {shown_shape(shape)} overflows 63 bits in elements of {itemsize} bytes")


def shown_shape(shape: Sequence[int]) -> str:
    """A shape for a message."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def as_integers(values: Iterable[Any], what: str) -> tuple[int, ...]:
    """A caller's integers; raises `UsageError` for anything else."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise UsageError(f"{what}: expected a sequence of integers, not {values!r}") from None


def as_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """A caller's shape. Raises `UsageError` where it is not made of integers from 0 on."""
    made = as_integers(shape, "a shape")
    if any(size < 0 for size in made):
        raise UsageError(f"a shape has no negative sizes: {made}")
    return made


def as_names(names: Iterable[str | None] | None, dimensions: int) -> tuple[str, ...]:
    """Dimension names, one for each dimension or none at all. Raises `UsageError` for another number."""
    made = () if names is None else tuple(name or "" for name in names)
    for name in made:
        check_text("the name of a dimension", name)
    if made and len(made) != dimensions:
        raise UsageError(f"{len(made)} dimension names do not fit {dimensions} dimensions")
    return made if any(made) else ()


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of C order."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def column_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of Fortran order."""
    return row_major(shape[::-1], itemsize)[::-1]


def check_strides(shape: Sequence[int], strides: Sequence[int], itemsize: int, held_bytes: int) -> None:
    """Raise `InvalidDataError` where elements lie outside `held_bytes` bytes, or certainly on top of each other."""
    if len(strides) != len(shape):
        raise InvalidDataError(f"{len(strides)} strides for {len(shape)} dimensions")
    for axis, stride in enumerate(strides):
        if not 0 <= stride < _ADDRESSABLE:
            raise InvalidDataError(f"dimension {axis}: a stride of {stride} bytes is negative or beyond 63 bits")
    if 0 in shape:
        return
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + itemsize
    if last > held_bytes:
        raise InvalidDataError(
            f"a shape of {shown_shape(shape)} with strides of {shown_shape(strides)} bytes reaches byte {last} of "
            f"{held_bytes}"
        )
    if prod(shape) * itemsize > held_bytes:
        raise InvalidDataError(
            f"{prod(shape)} elements of {itemsize} bytes lie on top of each other in {held_bytes} bytes: shape "
            f"{shown_shape(shape)}, strides {shown_shape(strides)}"
        )


def overlapping(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether elements may lie on top of each other: some stride is no longer than what lies inside it."""
    inside = itemsize
    for stride, size in sorted((t, s) for s, t in zip(shape, strides, strict=True) if s > 1):
        if stride < inside:
            return True
        inside = stride * (size - 1) + inside
    return False


def is_packed(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether the elements fill one stretch of memory without gaps, in any order of the dimensions."""
    if 0 in shape:
        return True
    inside = itemsize
    for stride, size in sorted((t, s) for s, t in zip(shape, strides, strict=True) if s > 1):
        if stride != inside:
            return False
        inside *= size
    return True


def strided(buffer: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Values:
    """A read-only view of a buffer; shape and strides have been checked against it."""
    if 0 in shape:
        empty = np.empty(0, dtype)
        empty.flags.writeable = False
        return np.lib.stride_tricks.as_strided(empty, shape, (0,) * len(shape), writeable=False)
    return np.ndarray(shape, dtype, buffer.bytes.data, 0, strides)


def buffer_over(values: Values) -> Buffer:
    """A buffer over the memory of an array without gaps (see `is_packed`), in the order in which it lies there."""
    if values.size == 0:
        return Buffer.of(b"")
    order = sorted(range(values.ndim), key=lambda axis: (-values.strides[axis], values.shape[axis] == 1))
    return Buffer.of(values.transpose(order).reshape(-1).view(np.uint8) if values.ndim else values.reshape(1))


def rising(values: Values) -> int:
    """The first position whose value is less than the one before; -1 where there is none."""
    falls = values[1:] < values[:-1]
    return int(np.argmax(falls)) + 1 if falls.any() else -1


def first_outside(values: Values, size: int) -> int:
    """The position, counted in C order, of the first value that is not from 0 to `size` - 1; -1 where all are."""
    if not values.size:
        return -1
    if size and int(values.min()) >= 0 and int(values.max()) < size:
        return -1
    outside = (values < 0) | (values >= size) if size else np.ones(values.shape, np.bool_)
    return int(np.argmax(outside.reshape(-1)))


def cut(body: Buffer, offset: int, length: int, what: str) -> Buffer:
    """A stretch of a message's body. Raises `InvalidDataError` where it is not within."""
    if offset < 0 or length < 0 or offset + length > body.size:
        raise InvalidDataError(f"{what}: {length} bytes at byte {offset} are not within a body of {body.size} bytes")
    return Buffer(body.memory, body.offset + offset, length)


def same_prefix(rows: Values) -> Values:
    """For rows of coordinates, in order: in which leading columns row i + 1 is the same as row i, shape (n - 1, k)."""
    return np.logical_and.accumulate(rows[1:] == rows[:-1], axis=1)


def distinct(names: Iterable[int], count: int) -> bool:
    """Whether the numbers are 0 to `count` - 1, each once."""
    ordered = sorted(names)
    return ordered[:1] in ([], [0]) and len(ordered) == count and all(b - a == 1 for a, b in pairwise(ordered))
