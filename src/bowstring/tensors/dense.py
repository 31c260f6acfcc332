"""«Tensor (Multi-dimensional Array) Message Format»: elements of one width in a body, by shape and strides.

>>> import bowstring as bs
>>> import numpy as np
>>> tensor = bs.Tensor.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3).T, dim_names=["x", "y"])
>>> tensor.shape, tensor.strides, tensor.is_column_major
((3, 2), (4, 12), True)
>>> tensor.to_numpy().tolist()
[[0, 3], [1, 4], [2, 5]]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError
from bowstring.interop import dlpack
from bowstring.memory.buffer import Buffer
from bowstring.tensors.common import (
    Shaped,
    Values,
    as_integers,
    as_names,
    as_shape,
    buffer_over,
    check_shape,
    check_strides,
    column_major,
    element_dtype,
    element_type,
    is_packed,
    native,
    overlapping,
    row_major,
    strided,
    unmasked,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Shaped):
    """A dense array of any number of dimensions; immutable, over memory that it shares.

    `strides` are in bytes, not negative. `dim_names` has a name for each dimension, or is empty. Made by `from_numpy`,
    `from_buffer` and `read_tensor`.
    """

    type: DataType
    data: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dim_names: tuple[str, ...] = ()

    @classmethod
    def from_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Tensor:
        """A tensor over a NumPy array (or anything that NumPy or DLPack gives one of).

        Shares the memory where the elements fill it without gaps, in any order of the dimensions, and are in the
        machine's byte order; else copies to C order. Raises `UnsupportedTypeError` for elements that are no numbers or
        moments of one width.
        """
        if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            values = dlpack.numpy_from_dlpack(values)
        array = native(unmasked(values))
        type_ = element_type(array.dtype)
        if min(array.strides, default=0) < 0 or not is_packed(array.shape, array.strides, array.itemsize):
            array = np.array(array, order="C")
        names = as_names(dim_names, array.ndim)
        strides = array.strides if array.size else row_major(array.shape, array.itemsize)
        return cls(type_, buffer_over(array), array.shape, tuple(strides), names)

    @classmethod
    def from_buffer(
        cls,
        type: TypeLike,
        data: Any,
        shape: Iterable[int],
        strides: Iterable[int] | None = None,
        dim_names: Iterable[str | None] | None = None,
    ) -> Tensor:
        """A tensor over existing memory, without copying; C order where no `strides` in bytes are given.

        Raises `InvalidDataError` where shape and strides do not fit the memory.
        """
        data_type = as_type(type, "Tensor.from_buffer")
        sizes = as_shape(shape)
        steps = (
            row_major(sizes, element_dtype(data_type).itemsize) if strides is None else as_integers(strides, "strides")
        )
        held = data if isinstance(data, Buffer) else Buffer.of(data)
        tensor = cls(data_type, held, sizes, steps, as_names(dim_names, len(sizes)))
        tensor.validate()
        return tensor

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take up."""
        return self.size * self._itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self._lies_as(row_major(self.shape, self._itemsize))

    @property
    def is_column_major(self) -> bool:
        """Whether the elements lie in Fortran order without gaps."""
        return self._lies_as(column_major(self.shape, self._itemsize))

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C or in Fortran order without gaps."""
        return self.is_row_major or self.is_column_major

    @property
    def _itemsize(self) -> int:
        return element_dtype(self.type).itemsize

    def _lies_as(self, strides: tuple[int, ...]) -> bool:
        return 0 in self.shape or all(
            size == 1 or own == other for size, own, other in zip(self.shape, self.strides, strides, strict=True)
        )

    def validate(self, full: bool = False) -> None:
        """Check that shape and strides are sound and stay within the data; with `full` also that no two elements share
        bytes. Raises `InvalidDataError`.
        """
        itemsize = self._itemsize
        check_shape(self.shape, itemsize)
        check_strides(self.shape, self.strides, itemsize, self.data.size)
        if full and 0 not in self.shape and overlapping(self.shape, self.strides, itemsize):
            raise InvalidDataError(
                f"strides of {self.strides} bytes lay elements of shape {self.shape} over each other"
            )

    def to_numpy(self) -> Values:
        """The elements as a read-only NumPy array of the same shape and strides, without copying."""
        return strided(self.data, element_dtype(self.type), self.shape, self.strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """A copy of the elements as a DLPack capsule, or with `copy=False` the elements themselves, read-only;
        `options` as the array API standard lists them (`bowstring.interop.dlpack`).

        Raises `NotShareableError` (a `BufferError`) for moments, which DLPack does not know, and for `copy=False` where
        the consumer does not pass a `max_version` of DLPack 1.0 or later.
        """
        return dlpack.dlpack_capsule(self.to_numpy(), options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the elements are: the processor's memory."""
        return dlpack.CPU_DEVICE

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor.from_buffer, (self.type, self.data, self.shape, self.strides, self.dim_names)

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Whether both are dense and types, shapes, dimension names and elements the same, however they lie."""
        if not isinstance(other, Tensor) or self._said() != other._said():
            return False
        mine, theirs = self.to_numpy(), other.to_numpy()
        return bool(np.array_equal(mine, theirs, equal_nan=nans_equal and mine.dtype.kind in "fmM"))

    def _said(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Tensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = f", dimensions {', '.join(map(repr, self.dim_names))}" if self.dim_names else ""
        return f"<bowstring.Tensor {self.type} of shape {self.shape}, strides {self.strides} bytes{names}>"
