"""«SparseTensor Message Format»: the non-zero elements and an index of their coordinates.

There are three index formats: coordinates (COO), compressed rows or columns of a matrix (CSR, CSC), and compressed
sparse fibers (CSF, in `bowstring.tensors.csf`).

>>> import bowstring as bs
>>> import numpy as np
>>> matrix = bs.tensors.SparseCSRMatrix.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
>>> [part.tolist() for part in matrix.to_numpy()]
[[1, 2, 3], [0, 2, 2, 3], [1, 2, 0]]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError
from bowstring.layouts.base import find_first_true
from bowstring.tensors import scipy
from bowstring.tensors.dense import Tensor
from bowstring.tensors.elements import (
    Values,
    as_index_array,
    as_unmasked_array,
    dtype_to_element_type,
    element_type_to_dtype,
    to_native_byte_order,
)
from bowstring.tensors.shape import (
    ShapeMixin,
    as_dim_names,
    as_shape,
    check_dimension_sizes,
    is_supported_by_numpy,
)

MAX_DENSE_BYTES = 16 << 30
"""Default limit on the size of a dense tensor made from a sparse one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseTensor(ShapeMixin, ABC):
    """Base class of sparse tensors: element type, shape, and the non-zero values, an array of shape (non_zero_length,).

    Immutable, over shared memory. `dim_names` has a name for each dimension, or is empty. `read_tensor` checks the
    structure; `from_numpy` and `validate(full=True)` also check every index.
    """

    INDEX_TYPE: ClassVar[str] = ""

    type: DataType
    shape: tuple[int, ...]
    values: Values
    dim_names: tuple[str, ...]

    @classmethod
    @abstractmethod
    def from_dense_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """Create a tensor of the non-zero elements of a NumPy array; copies."""

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """Create a tensor of the non-zero elements of a dense tensor; copies."""
        return cls.from_dense_numpy(tensor.to_numpy(), tensor.dim_names)

    @classmethod
    def _create(cls, data: Any, shape: Iterable[int], dim_names: Iterable[str | None] | None, *index: Any) -> Self:
        """Create a tensor of values, a shape, dimension names and the remaining fields, which are the index.

        Raises `InvalidDataError` if they do not match.
        """
        values, sizes = as_value_array(data, cls.__name__), as_shape(shape)
        tensor = cls(dtype_to_element_type(values.dtype), sizes, values, as_dim_names(dim_names, len(sizes)), *index)
        tensor.validate(full=True)
        return tensor

    @property
    def non_zero_length(self) -> int:
        """The number of stored elements."""
        return len(self.values)

    @abstractmethod
    def to_numpy(self) -> Any:
        """The values of shape (non_zero_length,), then the arrays of the index; read-only, without copying."""

    @abstractmethod
    def index_arrays(self) -> list[Values]:
        """The arrays of the index, in the order of the message."""

    @abstractmethod
    def coordinates(self) -> Values:
        """The coordinates of each value, shape (non_zero_length, ndim). The indices must be valid."""

    @abstractmethod
    def _check_structure(self) -> None:
        """Check the structure: everything except the index values."""

    @abstractmethod
    def _check_indices(self) -> None:
        """Check every index value, after `_check_structure`."""

    def validate(self, full: bool = False) -> None:
        """Check shape, lengths and types; with `full` also every index and pointer. Raises `InvalidDataError`."""
        check_dimension_sizes(self.shape)
        self._check_structure()
        if full:
            self._check_indices()

    def to_tensor(self, max_bytes: int = MAX_DENSE_BYTES) -> Tensor:
        """Convert to a dense tensor in C order.

        Checks every index first. Raises `LimitError` if the dense tensor exceeds `max_bytes` bytes, and
        `InvalidDataError` for duplicate coordinates, which the format does not define.
        """
        self.validate(full=True)
        dtype = element_type_to_dtype(self.type)
        if self.size * dtype.itemsize > max_bytes:
            raise LimitError(
                f"a dense tensor of shape {self.shape} needs {self.size * dtype.itemsize} bytes, more than the limit "
                f"of {max_bytes} (max_bytes)"
            )
        if not is_supported_by_numpy(self.shape, dtype.itemsize):
            raise LimitError(f"NumPy does not support the dense shape {self.shape}: its sizes overflow 63 bits")
        dense = np.zeros(self.shape, dtype)
        coordinates = self.coordinates()
        # NumPy would keep the last value of duplicates; SciPy adds them up.
        _check_unique(coordinates)
        if self.ndim:
            dense[tuple(coordinates.T.astype(np.intp))] = self.values
        elif len(self.values):
            dense[()] = self.values[0]
        return Tensor.from_numpy(dense, self.dim_names)

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Whether class, types, shapes, dimension names, indices and values are equal."""
        if (
            not isinstance(other, SparseTensor)
            or type(self) is not type(other)
            or self._equality_key() != other._equality_key()
        ):
            return False
        pairs = zip(self.index_arrays(), other.index_arrays(), strict=True)
        if any(a.dtype != b.dtype or not np.array_equal(a, b) for a, b in pairs):
            return False
        nans = nans_equal and self.values.dtype.kind in "fmM"
        return bool(np.array_equal(self.values, other.values, equal_nan=nans))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, SparseTensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<bowstring.tensors.{type(self).__name__} {self.type} of shape {self.shape}, "
            f"{self.non_zero_length} non-zero values>"
        )


def shared_prefix_mask(rows: Values) -> Values:
    """For sorted coordinates of shape (n, k), return an array of shape (n - 1, k): whether rows i and i + 1
    have the same first j + 1 coordinates.
    """
    return np.logical_and.accumulate(rows[1:] == rows[:-1], axis=1)


def _check_unique(coordinates: Values) -> None:
    if len(coordinates) < 2:
        return
    # `lexsort` takes the most significant key last.
    ordered = coordinates[np.lexsort(coordinates.T[::-1])] if coordinates.shape[1] else coordinates
    is_duplicate = shared_prefix_mask(ordered)[:, -1] if ordered.shape[1] else np.ones(len(ordered) - 1, np.bool_)
    if is_duplicate.any():
        raise InvalidDataError(f"duplicate coordinates {ordered[find_first_true(is_duplicate)].tolist()}")


def as_value_array(data: Any, name: str) -> Values:
    """Convert values to an array of shape (n,). Accepts shape (n, 1) too, which pyarrow returns."""
    values = to_native_byte_order(as_unmasked_array(data))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.reshape(-1)
    if values.ndim != 1:
        raise InvalidArgumentError(f"{name}: expected values of shape (non_zero_length,), found {values.shape}")
    return read_only_view(values)


def read_only_view(values: Values) -> Values:
    """Return a read-only view of an array."""
    view = values.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCOOTensor(SparseTensor):
    """Values with their coordinates (SparseTensorIndexCOO).

    `coords` has the shape (non_zero_length, ndim). `has_canonical_format` is True if the coordinates are in
    lexicographic order without duplicates.

    >>> import numpy as np
    >>> tensor = bs.tensors.SparseCOOTensor.from_dense_numpy(np.array([[0, 1], [2, 0]]))
    >>> values, coordinates = tensor.to_numpy()
    >>> values.tolist(), coordinates.tolist()
    ([1, 2], [[0, 1], [1, 0]])
    """

    INDEX_TYPE: ClassVar[str] = "SparseTensorIndexCOO"

    coords: Values
    has_canonical_format: bool

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        coords: Any,
        shape: Iterable[int],
        dim_names: Iterable[str | None] | None = None,
        is_canonical: bool | None = None,
    ) -> Self:
        """Create a tensor over values of shape (n,) and coordinates of shape (n, ndim), without copying.

        If `is_canonical` is None, the order of the coordinates is checked. Raises `InvalidDataError` if they do not
        match the shape.
        """
        coordinates = as_index_array("coordinates", coords)
        if coordinates.ndim != 2:
            raise InvalidArgumentError(
                f"expected coordinates of shape (non_zero_length, ndim), found {coordinates.shape}"
            )
        canonical = _is_canonical(coordinates) if is_canonical is None else is_canonical
        return cls._create(data, shape, dim_names, read_only_view(coordinates), canonical)

    @classmethod
    def from_dense_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """Create a tensor of the non-zero elements of a NumPy array, in canonical order; copies."""
        array = as_unmasked_array(values)
        # `argwhere` returns coordinates in C order, which is the canonical order.
        coordinates = np.ascontiguousarray(np.argwhere(array))
        non_zero = array[tuple(coordinates.T)] if array.ndim else array.reshape(-1)[: len(coordinates)]
        return cls.from_numpy(non_zero, coordinates, array.shape, dim_names, True)

    @classmethod
    def from_scipy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """Create a tensor from SciPy's `coo_array` or `coo_matrix`. Copies the coordinates, but not the values."""
        scipy.check_sparse_format(values, "coo")
        return cls.from_numpy(values.data, np.stack(values.coords, axis=1), values.shape, dim_names)

    def to_scipy(self) -> Any:
        """Convert to SciPy's `coo_array` without copying values. Checks every index. Requires the extra `sparse`."""
        self.validate(full=True)
        array = scipy.create_sparse_array("coo", (self.values, tuple(self.coords.T)), self)
        array.has_canonical_format = self.has_canonical_format
        return array

    def to_numpy(self) -> tuple[Values, Values]:
        """Values of shape (n,) and coordinates of shape (n, ndim), read-only, without copying."""
        return self.values, self.coords

    def index_arrays(self) -> list[Values]:
        """The coordinates."""
        return [self.coords]

    def coordinates(self) -> Values:
        """The coordinates, not copied."""
        return self.coords

    def _check_structure(self) -> None:
        if self.coords.shape != (len(self.values), self.ndim):
            raise InvalidDataError(
                f"{len(self.values)} values in {self.ndim} dimensions with coordinates of shape {self.coords.shape}"
            )

    def _check_indices(self) -> None:
        for axis, size in enumerate(self.shape):
            check_indices(f"coordinates of dimension {axis}", self.coords[:, axis], size)
        if not self.ndim and len(self.values) > 1:
            raise InvalidDataError(f"{len(self.values)} values of a tensor without dimensions, which has one element")
        if self.has_canonical_format and not _is_canonical(self.coords):
            raise InvalidDataError("coordinates are marked canonical, but are not sorted or have duplicates")

    def _equality_key(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names, self.has_canonical_format


def check_indices(what: str, indices: Values, size: int) -> None:
    """Raise `InvalidDataError` for the first index that is not from 0 to `size` - 1."""
    out_of_range = (indices < 0) | (indices >= size)
    if out_of_range.any():
        i = find_first_true(out_of_range)
        raise InvalidDataError(f"{what}: [{i}] = {indices[i]} is not from 0 to {size - 1}")


def check_pointers(what: str, pointers: Values, end: int) -> None:
    """Raise `InvalidDataError` unless the pointers ascend from 0 to `end`."""
    if int(pointers[0]) != 0 or int(pointers[-1]) != end:
        raise InvalidDataError(f"{what}: expected values from 0 to {end}, found {pointers[0]} to {pointers[-1]}")
    is_descending = pointers[1:] < pointers[:-1]
    if is_descending.any():
        i = find_first_true(is_descending) + 1
        raise InvalidDataError(f"{what}: [{i}] = {pointers[i]} is less than [{i - 1}] = {pointers[i - 1]}")


def _is_canonical(coordinates: Values) -> bool:
    """Whether each row of coordinates is greater than the previous one, in lexicographic order."""
    if len(coordinates) < 2:
        return True
    if not coordinates.shape[1]:
        return False
    is_equal = shared_prefix_mask(coordinates)
    # A row of the mask is True up to the first difference and False after it, so that the mask changes once, there.
    is_first_difference = np.diff(is_equal, axis=1, prepend=True) if coordinates.shape[1] > 1 else ~is_equal
    return bool(not is_equal[:, -1].any() and (coordinates[1:] > coordinates[:-1])[is_first_difference].all())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseMatrix(SparseTensor):
    """Base class of compressed matrices (SparseMatrixIndexCSX).

    Row (or column) i has the values `indptr[i]` to `indptr[i + 1]`; `indices` has the column (or row) of each value.
    """

    INDEX_TYPE: ClassVar[str] = "SparseMatrixIndexCSX"
    AXIS: ClassVar[int] = 0

    indptr: Values
    indices: Values

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        indptr: Any,
        indices: Any,
        shape: Iterable[int],
        dim_names: Iterable[str | None] | None = None,
    ) -> Self:
        """Create a matrix over values, pointers and indices, without copying.

        Raises `InvalidDataError` if they do not match the shape.
        """
        pointers, inner = as_index_array("pointers", indptr), as_index_array("indices", indices)
        return cls._create(data, shape, dim_names, read_only_view(pointers), read_only_view(inner))

    @classmethod
    def from_dense_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """Create a matrix of the non-zero elements of a two-dimensional NumPy array; copies."""
        array = as_unmasked_array(values)
        if array.ndim != 2:
            raise InvalidArgumentError(f"expected an array with two dimensions, found {array.ndim}")
        transposed = array.T if cls.AXIS else array  # the compressed axis first; `nonzero` sorts by it
        outer, inner = np.nonzero(transposed)
        pointers = np.zeros(transposed.shape[0] + 1, np.int64)
        np.cumsum(np.bincount(outer, minlength=transposed.shape[0]), out=pointers[1:])
        return cls.from_numpy(transposed[outer, inner], pointers, inner, array.shape, dim_names)

    @classmethod
    def from_scipy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """Create a matrix from SciPy's array or matrix of the same format, without copying."""
        scipy.check_sparse_format(values, ("csr", "csc")[cls.AXIS])
        return cls.from_numpy(values.data, values.indptr, values.indices, values.shape, dim_names)

    def to_scipy(self) -> Any:
        """Convert to SciPy's array of the same format without a copy. Checks all indices. Needs the extra `sparse`."""
        self.validate(full=True)
        return scipy.create_sparse_array(("csr", "csc")[self.AXIS], (self.values, self.indices, self.indptr), self)

    def to_numpy(self) -> tuple[Values, Values, Values]:
        """Values of shape (n,), pointers of shape (rows or columns + 1,), indices of shape (n,); not copied."""
        return self.values, self.indptr, self.indices

    def index_arrays(self) -> list[Values]:
        """The pointers, then the indices."""
        return [self.indptr, self.indices]

    def coordinates(self) -> Values:
        """Row and column of each value, shape (non_zero_length, 2)."""
        # Pointers may be unsigned, whose differences would wrap around.
        ends = self.indptr.astype(np.int64)
        counts = ends[1:] - ends[:-1]
        outer = np.repeat(np.arange(len(counts)), counts)
        pair = (self.indices, outer) if self.AXIS else (outer, self.indices)
        return np.stack([part.astype(np.int64) for part in pair], axis=1)

    def _check_structure(self) -> None:
        if self.ndim != 2:
            raise InvalidDataError(f"a compressed matrix must have two dimensions, found {self.ndim}")
        if self.indptr.shape != (self.shape[self.AXIS] + 1,):
            raise InvalidDataError(
                f"{self.shape[self.AXIS]} {('rows', 'columns')[self.AXIS]} with pointers of shape {self.indptr.shape}"
            )
        if self.indices.shape != self.values.shape:
            raise InvalidDataError(f"{len(self.values)} values with indices of shape {self.indices.shape}")

    def _check_indices(self) -> None:
        check_pointers("indptr", self.indptr, len(self.values))
        check_indices("indices", self.indices, self.shape[1 - self.AXIS])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSRMatrix(SparseMatrix):
    """A matrix in compressed sparse row (CSR) format (SparseMatrixIndexCSX with the compressed axis Row).

    >>> import numpy as np
    >>> matrix = bs.tensors.SparseCSRMatrix.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
    >>> values, indptr, indices = matrix.to_numpy()
    >>> values.tolist(), indptr.tolist(), indices.tolist()
    ([1, 2, 3], [0, 2, 2, 3], [1, 2, 0])
    """

    AXIS: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSCMatrix(SparseMatrix):
    """A matrix in compressed sparse column (CSC) format (SparseMatrixIndexCSX with the compressed axis Column).

    >>> import numpy as np
    >>> matrix = bs.tensors.SparseCSCMatrix.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
    >>> values, indptr, indices = matrix.to_numpy()
    >>> values.tolist(), indptr.tolist(), indices.tolist()
    ([3, 1, 2], [0, 1, 2, 3], [2, 0, 0])
    """

    AXIS: ClassVar[int] = 1
