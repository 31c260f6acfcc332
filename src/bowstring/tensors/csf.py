"""«SparseTensor Message Format», SparseTensorIndexCSF: compressed sparse fibers, a tree with one level per dimension.

The nodes of a level are the distinct leading coordinates; `indices[level]` has the last coordinate of each node, and
the children of node i of a level are the nodes `indptr[level][i]` to `indptr[level][i + 1]` of the next. The leaves are
the values.

>>> import bowstring as bs
>>> import numpy as np
>>> tensor = bs.tensors.SparseCSFTensor.from_dense_numpy(np.array([[0, 1, 2], [0, 0, 0], [3, 0, 0]]))
>>> [part.tolist() for part in tensor.indptr], [part.tolist() for part in tensor.indices]
([[0, 2, 3]], [[0, 2], [1, 2, 0]])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.tensors.elements import (
    Values,
    as_index_array,
    as_unmasked_array,
)
from bowstring.tensors.shape import (
    as_shape,
)
from bowstring.tensors.sparse import SparseTensor, check_indices, check_pointers, read_only_view, shared_prefix_mask


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparseCSFTensor(SparseTensor):
    """A sparse tensor in compressed sparse fiber (CSF) format.

    `axis_order` has the dimension of each level of the tree.

    >>> import numpy as np
    >>> cube = np.zeros((2, 2, 2), np.int64)
    >>> cube[0, 1, 1] = 5
    >>> tensor = bs.tensors.SparseCSFTensor.from_dense_numpy(cube)
    >>> bool((tensor.to_tensor().to_numpy() == cube).all())
    True
    """

    INDEX_TYPE: ClassVar[str] = "SparseTensorIndexCSF"

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
        """Create a tensor over values, pointers and indices (one array per level), without copying.

        All pointer arrays have one dtype, and so do all index arrays. Raises `InvalidDataError` if they do not match
        the shape.
        """
        sizes = as_shape(shape)
        order = tuple(range(len(sizes))) if axis_order is None else as_shape(axis_order)
        return cls._create(
            data, sizes, dim_names, _as_index_arrays("pointers", indptr), _as_index_arrays("indices", indices), order
        )

    @classmethod
    def from_dense_numpy(
        cls,
        values: Any,
        dim_names: Iterable[str | None] | None = None,
        axis_order: Iterable[int] | None = None,
    ) -> Self:
        """Create a tensor of the non-zero elements of a NumPy array; copies. The default axis order is by size."""
        array = as_unmasked_array(values)
        if not array.ndim:
            raise InvalidArgumentError("CSF needs at least one dimension")
        # The smallest dimension first, as in Arrow C++: then the tree has few nodes near its root.
        order = tuple(np.argsort(array.shape, kind="stable").tolist()) if axis_order is None else as_shape(axis_order)
        if sorted(order) != list(range(array.ndim)):
            raise InvalidArgumentError(
                f"axis_order must be a permutation of the {array.ndim} dimensions, found {order}"
            )
        transposed = array.transpose(order)
        coordinates = np.argwhere(transposed)
        is_new_node = np.ones(coordinates.shape, np.bool_)  # per level
        if len(coordinates):
            is_new_node[1:] = ~shared_prefix_mask(coordinates)
        indices = [coordinates[is_new_node[:, level], level] for level in range(array.ndim)]
        # A row that begins a node also begins its first child, whose index is the number of earlier nodes of its level.
        indptr = [
            np.append((np.cumsum(is_new_node[:, level + 1]) - 1)[is_new_node[:, level]], len(indices[level + 1]))
            for level in range(array.ndim - 1)
        ]
        return cls.from_numpy(transposed[tuple(coordinates.T)], indptr, indices, array.shape, order, dim_names)

    def to_numpy(self) -> tuple[Values, tuple[Values, ...], tuple[Values, ...]]:
        """Values of shape (n,), the pointers and the indices of each level, read-only, without copying."""
        return self.values, self.indptr, self.indices

    def index_arrays(self) -> list[Values]:
        """The pointers of each level, then the indices of each level."""
        return [*self.indptr, *self.indices]

    def coordinates(self) -> Values:
        """The paths from the root to each leaf, shape (non_zero_length, ndim)."""
        # From the leaves to the root: a node's index is repeated for each of its leaves.
        leaves = np.arange(len(self.values) + 1)  # the first leaf of each node of the current level
        coordinates = np.empty((len(self.values), self.ndim), np.int64)
        for level in range(self.ndim - 1, -1, -1):
            if level < self.ndim - 1:
                leaves = leaves[self.indptr[level].astype(np.int64)]
            coordinates[:, self.axis_order[level]] = np.repeat(self.indices[level].astype(np.int64), np.diff(leaves))
        return coordinates

    def _check_structure(self) -> None:
        if not self.ndim:
            raise InvalidDataError("CSF needs at least one dimension")
        if sorted(self.axis_order) != list(range(self.ndim)):
            raise InvalidDataError(f"axis order {self.axis_order} is not a permutation of {self.ndim} axes")
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
            check_indices(f"indices[{level}]", nodes, self.shape[self.axis_order[level]])

    def _equality_key(self) -> tuple[object, ...]:
        return self.type, self.shape, self.dim_names, self.axis_order


def _as_index_arrays(what: str, arrays: Sequence[Any]) -> tuple[Values, ...]:
    levels = [as_index_array(what, level) for level in arrays]
    if any(level.ndim != 1 for level in levels):
        raise InvalidArgumentError(f"{what}: expected a one-dimensional array for each level")
    dtype = np.result_type(*levels) if levels else np.dtype(np.int64)
    if dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"{what}: the levels have no common type: {sorted({str(level.dtype) for level in levels})}"
        )
    return tuple(read_only_view(level.astype(dtype, copy=False)) for level in levels)
