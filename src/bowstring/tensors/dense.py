"""«Tensor (Multi-dimensional Array) Message Format»: dense tensors, defined by shape and strides.

>>> import bowstring as bs
>>> import numpy as np
>>> tensor = bs.tensors.Tensor.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3).T, dim_names=["x", "y"])
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

from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError
from bowstring.interop import dlpack
from bowstring.memory.buffer import Buffer
from bowstring.tensors.elements import (
    Values,
    as_unmasked_array,
    dtype_to_element_type,
    element_type_to_dtype,
    to_native_byte_order,
)
from bowstring.tensors.shape import (
    ShapeMixin,
    as_buffer,
    as_dim_names,
    as_integers,
    as_shape,
    check_dense_shape,
    check_strides,
    column_major_strides,
    has_overlap,
    is_contiguous_in_any_order,
    row_major_strides,
    strided_view,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(ShapeMixin):
    """An immutable dense array with any number of dimensions, over shared memory.

    `strides` are in bytes and not negative. `dim_names` has a name for each dimension, or is empty. Create it with
    `from_numpy`, `from_buffer` or `read_tensor`.

    >>> import numpy as np
    >>> tensor = bs.tensors.Tensor.from_numpy(np.arange(6).reshape(2, 3), dim_names=["row", "column"])
    >>> tensor.shape, tensor.strides, tensor.dim_names
    ((2, 3), (24, 8), ('row', 'column'))
    """

    type: DataType
    data: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dim_names: tuple[str, ...] = ()

    @classmethod
    def from_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Tensor:
        """Create a tensor from a NumPy array, or anything that NumPy or DLPack converts to one.

        Shares the memory if the elements are contiguous, in any order of the dimensions, and in the machine's byte
        order; otherwise copies to C order. Raises `UnsupportedTypeError` for elements that are not numbers, timestamps
        or durations.

        >>> import numpy as np
        >>> bs.tensors.Tensor.from_numpy(np.zeros((2, 3)), dim_names=["row", "column"]).shape
        (2, 3)
        """
        if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            values = dlpack.numpy_from_dlpack(values)
        array = to_native_byte_order(as_unmasked_array(values))
        type_ = dtype_to_element_type(array.dtype)
        # The format has no negative strides, and a view with gaps would need bytes that are not its own.
        if min(array.strides, default=0) < 0 or not is_contiguous_in_any_order(
            array.shape, array.strides, array.itemsize
        ):
            array = np.array(array, order="C")
        names = as_dim_names(dim_names, array.ndim)
        # NumPy's strides of an array without elements are arbitrary.
        strides = array.strides if array.size else row_major_strides(array.shape, array.itemsize)
        return cls(type_, as_buffer(array), array.shape, tuple(strides), names)

    @classmethod
    def from_buffer(
        cls,
        type: TypeLike,
        data: Any,
        shape: Iterable[int],
        strides: Iterable[int] | None = None,
        dim_names: Iterable[str | None] | None = None,
    ) -> Tensor:
        """Create a tensor over existing memory, without copying. `strides` are in bytes; the default is C order.

        Raises `InvalidDataError` if shape and strides exceed the memory.
        """
        data_type = as_type(type, "Tensor.from_buffer")
        sizes = as_shape(shape)
        byte_strides = (
            row_major_strides(sizes, element_type_to_dtype(data_type).itemsize)
            if strides is None
            else as_integers(strides, "strides")
        )
        buffer = data if isinstance(data, Buffer) else Buffer.of(data)
        tensor = cls(data_type, buffer, sizes, byte_strides, as_dim_names(dim_names, len(sizes)))
        tensor.validate()
        return tensor

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * self._itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether the elements are contiguous in C order."""
        return self._has_strides(row_major_strides(self.shape, self._itemsize))

    @property
    def is_column_major(self) -> bool:
        """Whether the elements are contiguous in Fortran order."""
        return self._has_strides(column_major_strides(self.shape, self._itemsize))

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous in C or Fortran order."""
        return self.is_row_major or self.is_column_major

    @property
    def _itemsize(self) -> int:
        return element_type_to_dtype(self.type).itemsize

    def _has_strides(self, strides: tuple[int, ...]) -> bool:
        # The stride of a dimension of size 1 is never used.
        return 0 in self.shape or all(
            size == 1 or actual == expected
            for size, actual, expected in zip(self.shape, self.strides, strides, strict=True)
        )

    def validate(self, full: bool = False) -> None:
        """Check that shape and strides stay within the data; with `full` also that elements don't overlap. Raises
        `InvalidDataError`.
        """
        itemsize = self._itemsize
        check_dense_shape(self.shape, itemsize)
        check_strides(self.shape, self.strides, itemsize, self.data.size)
        if full and 0 not in self.shape and has_overlap(self.shape, self.strides, itemsize):
            raise InvalidDataError(f"elements overlap: shape {self.shape}, strides {self.strides} bytes")

    def to_numpy(self) -> Values:
        """Return a read-only NumPy array with the same shape and strides, without copying.

        >>> import numpy as np
        >>> bs.tensors.Tensor.from_numpy(np.eye(2)).to_numpy().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return strided_view(self.data, element_type_to_dtype(self.type), self.shape, self.strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of a copy, or with `copy=False` of the shared, read-only memory. `options` are those
        of the array API standard (`bowstring.interop.dlpack`).

        Raises `BufferExchangeError` (a `BufferError`) for timestamps and durations, which DLPack doesn't support, and
        `copy=False` without a `max_version` of DLPack 1.0 or later.
        """
        return dlpack.numpy_to_dlpack(self.to_numpy(), options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device: the CPU."""
        return dlpack.CPU_DEVICE

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor.from_buffer, (self.type, self.data, self.shape, self.strides, self.dim_names)

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Whether both tensors are dense with equal types, shapes, dimension names and elements. Strides may differ.

        >>> import numpy as np
        >>> bs.tensors.Tensor.from_numpy(np.eye(2)).equals(bs.tensors.Tensor.from_numpy(np.eye(2)))
        True
        """
        if not isinstance(other, Tensor) or self._equality_key() != other._equality_key():
            return False
        values = self.to_numpy()
        return bool(np.array_equal(values, other.to_numpy(), equal_nan=nans_equal and values.dtype.kind in "fmM"))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Tensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = f", dimensions {', '.join(map(repr, self.dim_names))}" if self.dim_names else ""
        return f"<bowstring.tensors.Tensor {self.type} of shape {self.shape}, strides {self.strides} bytes{names}>"
