"""«SparseTensor Message Format»: the elements that are not zero, and an index that says where they are.

Three kinds of index: coordinates (COO), compressed rows or columns of a matrix (CSR, CSC), and a tree of fibers (CSF:
`bowstring.tensors.csf`).

>>> import bowstring as bs
>>> import numpy as np
>>> matrix = bs.SparseCSRMatrix.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
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
from bowstring.errors import InvalidDataError, LimitError, UsageError
from bowstring.tensors.common import (
    MAX_DENSE_BYTES,
    Shaped,
    Values,
    as_names,
    as_shape,
    check_sizes,
    element_dtype,
    element_type,
    first_outside,
    index_array,
    is_addressable,
    native,
    rising,
    same_prefix,
    unmasked,
)
from bowstring.tensors.dense import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseTensor(Shaped, ABC):
    """The base of sparse tensors: element type, shape, and the values that are not zero, shape (non_zero_length,).

    Immutable, over memory that it shares. `dim_names` has a name for each dimension, or is empty. Making one by
    `from_numpy` or `read_tensor` checks the structure; `validate(full=True)` looks at every index.
    """

    KIND: ClassVar[str] = ""

    type: DataType
    shape: tuple[int, ...]
    values: Values
    dim_names: tuple[str, ...]

    @property
    def non_zero_length(self) -> int:
        """The number of elements that are stored."""
        return len(self.values)

    @abstractmethod
    def to_numpy(self) -> Any:
        """The values of shape (non_zero_length,), then the arrays of the index; read-only, without copying."""

    @abstractmethod
    def index_arrays(self) -> list[Values]:
        """The arrays of the index, in the order in which a message holds them."""

    @abstractmethod
    def coordinates(self) -> Values:
        """Where each value is, shape (non_zero_length, ndim); every index has been checked."""

    @abstractmethod
    def _check(self) -> None:
        """The structure: what can be checked without looking at every index."""

    @abstractmethod
    def _check_indices(self) -> None:
        """Every index; `_check` has passed."""

    def validate(self, full: bool = False) -> None:
        """Check shape, lengths and types; with `full` also every index and pointer. Raises `InvalidDataError`."""
        check_sizes(self.shape)
        self._check()
        if full:
            self._check_indices()

    def to_tensor(self, max_bytes: int = MAX_DENSE_BYTES) -> Tensor:
        """The same elements as a dense tensor in C order.

        Checks every index first. Raises `LimitError` where it would take more than `max_bytes` bytes, and
        `InvalidDataError` for coordinates that come twice: what they add up to is not said anywhere.
        """
        self.validate(full=True)
        dtype = element_dtype(self.type)
        if self.size * dtype.itemsize > max_bytes:
            raise LimitError(
                f"a dense tensor of shape {self.shape} takes {self.size * dtype.itemsize} bytes, more than the limit "
                f"of {max_bytes}"
            )
        if not is_addressable(self.shape, dtype.itemsize):
            raise LimitError(f"NumPy has no dense array of shape {self.shape}: its sizes overflow 63 bits")
        dense = np.zeros(self.shape, dtype)
        where = self.coordinates()
        _no_doubles(where)
        if self.ndim:
            dense[tuple(where.T.astype(np.intp))] = self.values
        elif len(self.values):
            dense[()] = self.values[0]
        return Tensor.from_numpy(dense, self.dim_names)

    def equals(self, other: object, nans_equal: bool = False) -> bool:
        """Whether kind, types, shapes, dimension names, indices and values are the same."""
        if not isinstance(other, SparseTensor) or type(self) is not type(other) or self._said() != other._said():
            return False
        mine, theirs = self.index_arrays(), other.index_arrays()
        if any(a.dtype != b.dtype or not np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True)):
            return False
        nans = nans_equal and self.values.dtype.kind in "fmM"
        return bool(np.array_equal(self.values, other.values, equal_nan=nans))

    def _said(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, SparseTensor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<bowstring.{type(self).__name__} {self.type} of shape {self.shape}, {self.non_zero_length} values that "
            "are not zero>"
        )


def _no_doubles(where: Values) -> None:
    if len(where) < 2:
        return
    ordered = where[np.lexsort(where.T[::-1])] if where.shape[1] else where
    doubled = same_prefix(ordered)[:, -1] if where.shape[1] else np.ones(len(where) - 1, np.bool_)
    if doubled.any():
        raise InvalidDataError(f"coordinates {ordered[int(np.argmax(doubled))].tolist()} come more than once")


def given_values(data: Any, name: str) -> Values:
    """A caller's values as an array of shape (n,); (n, 1) is taken too, as pyarrow gives it."""
    made = native(unmasked(data))
    if made.ndim == 2 and made.shape[1] == 1:
        made = made.reshape(-1)
    if made.ndim != 1:
        raise UsageError(f"{name}: values have the shape (non_zero_length,), not {made.shape}")
    return read_only(made)


def read_only(values: Values) -> Values:
    """A view of an array that can't be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCOOTensor(SparseTensor):
    """Values with their coordinates (SparseTensorIndexCOO).

    `coords` has the shape (non_zero_length, ndim). `has_canonical_format` says that coordinates are in lexicographic
    order and none comes twice.
    """

    KIND: ClassVar[str] = "SparseTensorIndexCOO"

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
        """A tensor over values of shape (n,) and coordinates of shape (n, ndim), without copying.

        Whether they are canonical is found out where `is_canonical` does not say it. Raises `InvalidDataError` where
        they do not fit the shape.
        """
        values, where, sizes = given_values(data, cls.__name__), index_array("coordinates", coords), as_shape(shape)
        if where.ndim != 2:
            raise UsageError(f"coordinates have the shape (non_zero_length, ndim), not {where.shape}")
        canonical = _is_canonical(where) if is_canonical is None else is_canonical
        names = as_names(dim_names, len(sizes))
        made = cls(element_type(values.dtype), sizes, values, names, read_only(where), canonical)
        made.validate(full=True)
        return made

    @classmethod
    def from_dense_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """The elements of a NumPy array that are not zero, in canonical order; copies."""
        array = unmasked(values)
        where = np.ascontiguousarray(np.argwhere(array))
        found = array[tuple(where.T)] if array.ndim else array.reshape(-1)[: len(where)]
        return cls.from_numpy(found, where, array.shape, dim_names, True)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """The elements of a dense tensor that are not zero; copies."""
        return cls.from_dense_numpy(tensor.to_numpy(), tensor.dim_names)

    @classmethod
    def from_scipy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """From SciPy's `coo_array` or `coo_matrix`; values are not copied, coordinates are."""
        from bowstring.tensors.scipy import coordinates_of

        data, coords, shape = coordinates_of(values)
        return cls.from_numpy(data, coords, shape, dim_names)

    def to_scipy(self) -> Any:
        """SciPy's `coo_array`; values are not copied. Checks every index first. Needs the extra `sparse`."""
        from bowstring.tensors.scipy import coo_array

        self.validate(full=True)
        return coo_array(self)

    def to_numpy(self) -> tuple[Values, Values]:
        """Values of shape (n,) and coordinates of shape (n, ndim), read-only, without copying."""
        return self.values, self.coords

    def index_arrays(self) -> list[Values]:
        """The coordinates."""
        return [self.coords]

    def coordinates(self) -> Values:
        """The coordinates as they are."""
        return self.coords

    def _check(self) -> None:
        if self.coords.shape != (len(self.values), self.ndim):
            raise InvalidDataError(
                f"{len(self.values)} values in {self.ndim} dimensions with coordinates of shape {self.coords.shape}"
            )

    def _check_indices(self) -> None:
        for axis, size in enumerate(self.shape):
            check_within(f"coordinates of dimension {axis}", self.coords[:, axis], size)
        if not self.ndim and len(self.values) > 1:
            raise InvalidDataError(f"{len(self.values)} values of a tensor without dimensions, which has one element")
        if self.has_canonical_format and not _is_canonical(self.coords):
            raise InvalidDataError("coordinates are marked canonical, but they are not in order or one comes twice")

    def _said(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names, self.has_canonical_format


def check_within(what: str, indices: Values, size: int) -> None:
    """Raise `InvalidDataError` for the first index that is not from 0 to `size` - 1."""
    bad = first_outside(indices, size)
    if bad >= 0:
        raise InvalidDataError(f"{what}: [{bad}] = {indices[bad]} is not from 0 to {size - 1}")


def check_pointers(what: str, pointers: Values, end: int) -> None:
    """Raise `InvalidDataError` where pointers do not rise from 0 to `end`."""
    if int(pointers[0]) != 0 or int(pointers[-1]) != end:
        raise InvalidDataError(f"{what} goes from {pointers[0]} to {pointers[-1]}, not from 0 to {end}")
    bad = rising(pointers)
    if bad >= 0:
        raise InvalidDataError(f"{what}: [{bad}] = {pointers[bad]} is less than the {pointers[bad - 1]} before it")


def _is_canonical(where: Values) -> bool:
    """Whether each row of coordinates is greater than the one before, in lexicographic order."""
    if len(where) < 2:
        return True
    if not where.shape[1]:
        return False
    same = same_prefix(where)
    differs_first = np.diff(same, axis=1, prepend=True) if where.shape[1] > 1 else ~same
    return bool(not same[:, -1].any() and (where[1:] > where[:-1])[differs_first].all())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseMatrix(SparseTensor):
    """The base of compressed matrices (SparseMatrixIndexCSX).

    Row (or column) i has the values `indptr[i]` to `indptr[i + 1]`; `indices` says in which column (or row) each is.
    """

    KIND: ClassVar[str] = "SparseMatrixIndexCSX"
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
        """A matrix over values, pointers and indices, without copying.

        Raises `InvalidDataError` where they do not fit the shape.
        """
        values, sizes = given_values(data, cls.__name__), as_shape(shape)
        pointers, where = (read_only(index_array(*pair)) for pair in (("pointers", indptr), ("indices", indices)))
        names = as_names(dim_names, len(sizes))
        made = cls(element_type(values.dtype), sizes, values, names, pointers, where)
        made.validate(full=True)
        return made

    @classmethod
    def from_dense_numpy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """The elements of a NumPy array of two dimensions that are not zero; copies."""
        array = unmasked(values)
        if array.ndim != 2:
            raise UsageError(f"a matrix has two dimensions, not {array.ndim}")
        turned = array.T if cls.AXIS else array
        outer, inner = np.nonzero(turned)
        pointers = np.zeros(turned.shape[0] + 1, np.int64)
        np.cumsum(np.bincount(outer, minlength=turned.shape[0]), out=pointers[1:])
        return cls.from_numpy(turned[outer, inner], pointers, inner, array.shape, dim_names)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """The elements of a dense tensor of two dimensions that are not zero; copies."""
        return cls.from_dense_numpy(tensor.to_numpy(), tensor.dim_names)

    @classmethod
    def from_scipy(cls, values: Any, dim_names: Iterable[str | None] | None = None) -> Self:
        """From SciPy's array or matrix of the same format, without copying."""
        from bowstring.tensors.scipy import compressed_of

        data, indptr, indices, shape = compressed_of(values, ("csr", "csc")[cls.AXIS])
        return cls.from_numpy(data, indptr, indices, shape, dim_names)

    def to_scipy(self) -> Any:
        """SciPy's array of the same format, without copying. Checks every index first. Needs the extra `sparse`."""
        from bowstring.tensors.scipy import compressed_array

        self.validate(full=True)
        return compressed_array(self, ("csr", "csc")[self.AXIS])

    def to_numpy(self) -> tuple[Values, Values, Values]:
        """Values of shape (n,), pointers of shape (rows or columns + 1,), indices of shape (n,); not copied."""
        return self.values, self.indptr, self.indices

    def index_arrays(self) -> list[Values]:
        """The pointers, then the indices."""
        return [self.indptr, self.indices]

    def coordinates(self) -> Values:
        """Row and column of each value, shape (non_zero_length, 2)."""
        ends = self.indptr.astype(np.int64)
        counts = ends[1:] - ends[:-1]
        outer = np.repeat(np.arange(len(counts)), counts)
        pair = (self.indices, outer) if self.AXIS else (outer, self.indices)
        return np.stack([part.astype(np.int64) for part in pair], axis=1)

    def _check(self) -> None:
        if self.ndim != 2:
            raise InvalidDataError(f"a compressed matrix has two dimensions, not {self.ndim}")
        if self.indptr.shape != (self.shape[self.AXIS] + 1,):
            raise InvalidDataError(
                f"{self.shape[self.AXIS]} {('rows', 'columns')[self.AXIS]} with pointers of shape {self.indptr.shape}"
            )
        if self.indices.shape != self.values.shape:
            raise InvalidDataError(f"{len(self.values)} values with indices of shape {self.indices.shape}")

    def _check_indices(self) -> None:
        check_pointers("indptr", self.indptr, len(self.values))
        check_within("indices", self.indices, self.shape[1 - self.AXIS])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSRMatrix(SparseMatrix):
    """A matrix by compressed rows (SparseMatrixIndexCSX with the compressed axis Row)."""

    AXIS: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSCMatrix(SparseMatrix):
    """A matrix by compressed columns (SparseMatrixIndexCSX with the compressed axis Column)."""

    AXIS: ClassVar[int] = 1
