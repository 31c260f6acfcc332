"""«SparseTensor Message Format», SparseTensorIndexCSF: compressed sparse fibers, a tree with a level a dimension.

The nodes of a level are the distinct leading coordinates; `indices[level]` has the last coordinate of each node, and
the children of node i of a level are the nodes `indptr[level][i]` to `indptr[level][i + 1]` of the next. The leaves are
the values.

>>> import bowstring as bs
>>> import numpy as np
>>> tensor = bs.SparseCSFTensor.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
>>> [part.tolist() for part in tensor.indptr], [part.tolist() for part in tensor.indices]
([[0, 2, 3]], [[0, 2], [1, 2, 0]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bowstring.errors import InvalidDataError, UsageError
from bowstring.tensors.common import (
    Values,
    as_names,
    as_shape,
    distinct,
    element_type,
    index_array,
    same_prefix,
    shown_shape,
    unmasked,
)
from bowstring.tensors.dense import Tensor
from bowstring.tensors.sparse import SparseTensor, check_pointers, check_within, given_values, read_only


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSFTensor(SparseTensor):
    """A tensor by compressed sparse fibers.

    `axis_order` says which dimension each level of the tree stands for.
    """

    KIND: ClassVar[str] = "SparseTensorIndexCSF"

    indptr: tuple[Values, ...]
    indices: tuple[Values, ...]
    axis_order: tuple[int, ...]

    @classmethod
    def from_numpy(
        cls,
        data: Any,
        indptr: Sequence[Any],
        indices: Sequence[Any],
        shape: Iterable[int],
        axis_order: Iterable[int] | None = None,
        dim_names: Iterable[str | None] | None = None,
    ) -> Self:
        """A tensor over values, pointers and indices (one array a level), without copying.

        The arrays of pointers have one type, those of indices too. Raises `InvalidDataError` where they do not fit the
        shape.
        """
        values, sizes = given_values(data, cls.__name__), as_shape(shape)
        order = tuple(range(len(sizes))) if axis_order is None else as_shape(axis_order)
        pointers = _levels("pointers", indptr)
        where = _levels("indices", indices)
        names = as_names(dim_names, len(sizes))
        made = cls(element_type(values.dtype), sizes, values, names, pointers, where, order)
        made.validate(full=True)
        return made

    @classmethod
    def from_dense_numpy(
        cls,
        values: Any,
        dim_names: Iterable[str | None] | None = None,
        axis_order: Iterable[int] | None = None,
    ) -> Self:
        """The elements of a NumPy array that are not zero; copies. Short dimensions come first, unless an order is
        given.
        """
        array = unmasked(values)
        if not array.ndim:
            raise UsageError("a tensor without dimensions has no fibers")
        order = tuple(np.argsort(array.shape, kind="stable").tolist()) if axis_order is None else as_shape(axis_order)
        if not distinct(order, array.ndim):
            raise UsageError(f"an axis order is a permutation of the {array.ndim} dimensions, not {order}")
        turned = array.transpose(order)
        where = np.argwhere(turned)
        first = np.ones(where.shape, np.bool_)  # where a new node begins, level by level
        if len(where):
            first[1:] = ~same_prefix(where)
        indices = [where[first[:, level], level] for level in range(array.ndim)]
        indptr = [
            np.append((np.cumsum(first[:, level + 1]) - 1)[first[:, level]], len(indices[level + 1]))
            for level in range(array.ndim - 1)
        ]
        return cls.from_numpy(turned[tuple(where.T)], indptr, indices, array.shape, order, dim_names)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """The elements of a dense tensor that are not zero; copies."""
        return cls.from_dense_numpy(tensor.to_numpy(), tensor.dim_names)

    def to_numpy(self) -> tuple[Values, tuple[Values, ...], tuple[Values, ...]]:
        """Values of shape (n,), the pointers and the indices of each level, read-only, without copying."""
        return self.values, self.indptr, self.indices

    def index_arrays(self) -> list[Values]:
        """The pointers of each level, then the indices of each level."""
        return [*self.indptr, *self.indices]

    def coordinates(self) -> Values:
        """The paths from the root to each leaf, shape (non_zero_length, ndim)."""
        leaves = np.arange(len(self.values) + 1)  # from a node of the level at hand to its first leaf
        where = np.empty((len(self.values), self.ndim), np.int64)
        for level in range(self.ndim - 1, -1, -1):
            if level < self.ndim - 1:
                leaves = leaves[self.indptr[level].astype(np.int64)]
            where[:, self.axis_order[level]] = np.repeat(self.indices[level].astype(np.int64), np.diff(leaves))
        return where

    def _check(self) -> None:
        if not self.ndim:
            raise InvalidDataError("a tensor without dimensions has no fibers")
        if not distinct(self.axis_order, self.ndim):
            raise InvalidDataError(f"axis order {shown_shape(self.axis_order)} is no permutation of {self.ndim} axes")
        if len(self.indptr) != self.ndim - 1 or len(self.indices) != self.ndim:
            raise InvalidDataError(
                f"{self.ndim} dimensions with {len(self.indptr)} arrays of pointers and {len(self.indices)} of indices"
            )
        for level, (pointers, nodes) in enumerate(zip(self.indptr, self.indices, strict=False)):
            if pointers.shape != (len(nodes) + 1,):
                raise InvalidDataError(f"level {level}: {len(nodes)} nodes with pointers of shape {pointers.shape}")
        if self.indices[-1].shape != self.values.shape:
            raise InvalidDataError(f"{len(self.values)} values with {len(self.indices[-1])} leaves")

    def _check_indices(self) -> None:
        for level, pointers in enumerate(self.indptr):
            check_pointers(f"indptr[{level}]", pointers, len(self.indices[level + 1]))
        for level, nodes in enumerate(self.indices):
            check_within(f"indices[{level}]", nodes, self.shape[self.axis_order[level]])

    def _said(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names, self.axis_order


def _levels(what: str, arrays: Sequence[Any]) -> tuple[Values, ...]:
    made = [index_array(what, part) for part in arrays]
    if any(part.ndim != 1 for part in made):
        raise UsageError(f"{what}: each level has an array of one dimension")
    wanted = np.result_type(*made) if made else np.dtype(np.int64)
    if wanted.kind not in "iu":
        raise UsageError(f"{what}: the levels have no common type: {sorted({str(part.dtype) for part in made})}")
    return tuple(read_only(part.astype(wanted, copy=False)) for part in made)
