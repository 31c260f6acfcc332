"""Vectors and matrices of Spark's machine learning: structs whose rows are dense or sparse.

Spark stores its types `VectorUDT` and `MatrixUDT` so. A dense vector (type 1) has all `values`; a sparse one (type 0)
has its `size`, and the `values` at some `indices`. Matrices have their values column by column, or row by row if
`isTransposed`: a dense one (type 1) all of them, a sparse one (type 0) as SciPy's CSC or CSR, with `colPtrs` and
`rowIndices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.datatypes import types as t
from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError
from bowstring.kernels.lists import offsets_and_sizes
from bowstring.layouts.base import ArrayData, Indices, Values, find_first_true, pack_validity
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.gather import range_indices, sum_lengths
from bowstring.layouts.list_ import AnyListLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.struct_ import StructLayout
from bowstring.memory.bitmap import Mask

_INT8, _INT32, _FLOAT64 = t.Int(8), t.Int(32), t.FloatingPoint(64)
# One type in brackets is a list.
_VECTOR_FIELDS = {"type": _INT8, "size": _INT32, "indices": [_INT32], "values": [_FLOAT64]}
_MATRIX_FIELDS = {
    "type": _INT8,
    "numRows": _INT32,
    "numCols": _INT32,
    "colPtrs": [_INT32],
    "rowIndices": [_INT32],
    "values": [_FLOAT64],
    "isTransposed": t.Bool(),
}
_SPARSE = 0
_SPARSE_FIELDS = {"size", "indices", "colPtrs", "rowIndices"}
"""What only sparse vectors and matrices have."""


class MalformedRowError(InvalidDataError):
    """A vector or matrix that is malformed."""

    def __init__(self, kind: str, row: int, text: str) -> None:
        super().__init__(f"{kind} {row}: {text}")
        self.kind, self.row, self.text = kind, row, text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.row, self.text), {**vars(self), "args": self.args}


def is_vector(data_type: t.DataType) -> bool:
    """Whether a type is the struct of vectors, whatever the nullability of its fields and the kind of its lists."""
    return _list_fields(data_type) == [*_VECTOR_FIELDS.items()]


def is_matrix(data_type: t.DataType) -> bool:
    """Whether a type is the struct of matrices, as `is_vector`."""
    return _list_fields(data_type) == [*_MATRIX_FIELDS.items()]


def _list_fields(data_type: t.DataType) -> list[tuple[str, object]]:
    if not isinstance(data_type, t.Struct):
        return []
    types = [field.type for field in data_type.fields]
    elements = [[each.value_type] if isinstance(each, t.BaseList) else each for each in types]
    return [(field.name, element) for field, element in zip(data_type.fields, elements, strict=True)]


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """The values that vectors store, row by row: all values of dense ones, and those at `indices` of sparse ones.

    With ``indptr = np.append(0, counts.cumsum())`` this is SciPy's CSR. Null vectors have size 0 and store nothing.
    """

    sizes: Indices
    """Shape (length,)."""
    counts: Indices
    """How many values each vector stores, shape (length,)."""
    values: Values
    """float64, shape (counts.sum(),)."""
    sparse_indices: Indices | None
    """`indices`; None if no vector is sparse."""

    @property
    def indices(self) -> Indices:
        """The index of each value in its vector, shape (counts.sum(),)."""
        return _count_within(self.counts) if self.sparse_indices is None else self.sparse_indices

    @property
    def rows(self) -> Indices:
        """The vector of each value, shape (counts.sum(),)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def is_dense(self) -> bool:
        """Whether all vectors store all their values, in order."""
        return self.sparse_indices is None or (
            bool((self.counts == self.sizes).all()) and np.array_equal(self.sparse_indices, _count_within(self.counts))
        )


def vector_sizes(array: ArrayData) -> Indices:
    """Return the size of each vector, shape (length,), 0 for null. Raises `InvalidDataError` for negative ones."""
    types, sizes, _, values = _columns(array)
    is_sparse = types.buffer_values(1) == _SPARSE
    vector_sizes = np.where(is_sparse, sizes.buffer_values(1), offsets_and_sizes(values)[1])
    return _check_sizes("vector", _zero_nulls(array, vector_sizes))


def read_vectors(array: ArrayData) -> StoredVectors:
    """Return the stored values of vectors; values are copied unless they are contiguous.

    Raises `InvalidDataError` if indices are out of range, or not as many as values, or anything that is needed is null.
    """
    types, _, indices, values = _columns(array)
    _check_nulls("vector", array)
    sizes, is_sparse = vector_sizes(array), types.buffer_values(1) == _SPARSE
    starts, counts = offsets_and_sizes(values)
    counts = _zero_nulls(array, counts)
    index_starts, index_counts = offsets_and_sizes(indices)
    is_wrong = is_sparse & (_zero_nulls(array, index_counts) != counts)
    if is_wrong.any():
        row = find_first_true(is_wrong)
        raise MalformedRowError("vector", row, f"has {index_counts[row]} indices and {counts[row]} values")
    sparse_indices = None
    if is_sparse.any():
        sparse_indices = _gather(indices, index_starts[is_sparse], counts[is_sparse]).astype(np.int64)
        if not is_sparse.all():
            given_indices, sparse_indices = sparse_indices, _count_within(counts)
            sparse_indices[np.repeat(is_sparse, counts)] = given_indices
        _check_indices("vector", sparse_indices, sizes, np.repeat(np.arange(array.length), counts))
    return StoredVectors(sizes, counts, _gather(values, starts, counts), sparse_indices)


def count_values(array: ArrayData) -> int:
    """Return the number of values of the vectors and matrices in an array of any type, zeros included.

    Raises `InvalidDataError` for negative sizes.
    """
    if is_vector(array.type):
        return sum_lengths(vector_sizes(array))
    if is_matrix(array.type):
        num_rows, num_columns = _matrix_shapes(array)
        return sum_lengths(num_rows * num_columns)
    return sum(map(count_values, array.compact().children))


def to_lists(array: ArrayData, value_type: t.FloatingPoint) -> ArrayData:
    """Return vectors as lists of their values, and matrices as lists of rows, zeros included; null stays null.

    Values beyond float32 become infinite. Raises `InvalidDataError` as `read_vectors`, `LimitError` if there are many
    more zeros than values.
    """
    lists = t.List(Field("element", value_type, nullable=False))
    if is_matrix(array.type):
        (num_rows, num_columns), (counts, positions, values) = _matrix_shapes(array), _read_matrices(array)
        elements = _create_numbers(value_type, _scatter(num_rows * num_columns, counts, positions, values))
        rows = _create_lists(lists, np.repeat(num_columns, num_rows), elements)
        return _create_lists(t.List(Field("element", lists, nullable=False)), num_rows, rows, array.validity_mask())
    stored = read_vectors(array)
    values = stored.values
    if not stored.is_dense:
        values = _scatter(stored.sizes, stored.counts, stored.indices, values)
    return _create_lists(lists, stored.sizes, _create_numbers(value_type, values), array.validity_mask())


def to_sparse(array: ArrayData) -> ArrayData:
    """Return vectors with only their values that are not zero, all of the sparse form; null stays null.

    Raises `InvalidDataError` as `read_vectors`.
    """
    stored, layout = read_vectors(array), array.layout
    assert isinstance(layout, StructLayout)
    nonzero = np.flatnonzero(stored.values)
    ends = np.cumsum(stored.counts)
    counts = np.diff(np.searchsorted(nonzero, ends), prepend=0)
    # Computed here for dense vectors, because there may be far fewer of them than values.
    if stored.sparse_indices is None:
        nonzero_indices = nonzero - np.repeat(ends - stored.counts, counts)
    else:
        nonzero_indices = stored.sparse_indices[nonzero]
    type_, size, indices, values = (field.type for field in array.type.fields)
    assert isinstance(indices, t.BaseList)
    assert isinstance(values, t.BaseList)
    columns = (
        _create_numbers(type_, np.full(array.length, _SPARSE)),
        _create_numbers(size, stored.sizes),
        _create_lists(indices, counts, _create_numbers(indices.value_type, nonzero_indices)),
        _create_lists(values, counts, _create_numbers(values.value_type, stored.values[nonzero])),
    )
    return layout.create_array(columns, array.length, array.validity_mask())


def _matrix_shapes(array: ArrayData) -> tuple[Indices, Indices]:
    """Return the numbers of rows and columns of matrices, 0 for null. Raises `InvalidDataError` for negative ones."""
    _, num_rows, num_columns, *_ = _columns(array)
    rows, columns = (_zero_nulls(array, each.buffer_values(1)) for each in (num_rows, num_columns))
    return _check_sizes("matrix", rows), _check_sizes("matrix", columns)


def _read_matrices(array: ArrayData) -> tuple[Indices, Values, Values]:
    """Return the number of values that each matrix stores, and their positions in it, row by row, and the values.

    Raises `InvalidDataError` if a matrix is malformed.
    """
    types, _, _, pointers, row_indices, values, transposed = _columns(array)
    _check_nulls("matrix", array)
    assert isinstance(transposed.layout, BooleanLayout)
    is_transposed, is_sparse = transposed.layout.unpack_values(transposed), types.buffer_values(1) == _SPARSE
    num_rows, num_columns = _matrix_shapes(array)
    # A matrix has `major` columns of `minor` values, or if it is transposed, rows.
    major, minor = np.where(is_transposed, (num_rows, num_columns), (num_columns, num_rows))
    starts, counts = offsets_and_sizes(values)
    index_starts, index_counts = offsets_and_sizes(row_indices)
    pointer_starts, pointer_counts = offsets_and_sizes(pointers)
    is_wrong = np.where(is_sparse, (index_counts != counts) | (pointer_counts != major + 1), counts != major * minor)
    is_wrong, counts = _zero_nulls(array, is_wrong), _zero_nulls(array, counts)
    if is_wrong.any():
        row = find_first_true(is_wrong != 0)
        raise InvalidDataError(
            f"matrix {row}: {num_rows[row]} rows and {num_columns[row]} columns do not fit its {counts[row]} values, "
            f"{index_counts[row]} indices and {pointer_counts[row]} pointers"
        )
    positions = _count_within(counts)  # in the order of storage: column by column, or row by row if it is transposed
    is_sparse &= _zero_nulls(array, np.ones(array.length)) != 0
    if is_sparse.any():
        counts_of_sparse, major_of_sparse, first = counts[is_sparse], major[is_sparse], pointer_starts[is_sparse]
        ends = _gather(pointers, first + 1, major_of_sparse)
        lengths = ends - _gather(pointers, first, major_of_sparse)
        bounds = [_gather(pointers, slots, np.ones_like(first)) for slots in (first, first + major_of_sparse)]
        if (lengths < 0).any() or bounds[0].any() or (bounds[1] != counts_of_sparse).any():
            raise InvalidDataError("the pointers of a sparse matrix do not ascend from 0 to its number of values")
        indices = _gather(row_indices, index_starts[is_sparse], counts_of_sparse)
        _check_indices("matrix", indices, minor, np.repeat(np.flatnonzero(is_sparse), counts_of_sparse))
        lines = np.repeat(_count_within(major_of_sparse), lengths)
        positions[np.repeat(is_sparse, counts)] = lines * np.repeat(minor[is_sparse], counts_of_sparse) + indices
    lines, indices = np.divmod(positions, np.repeat(minor, counts))
    by_rows = indices * np.repeat(major, counts) + lines
    return counts, np.where(np.repeat(is_transposed, counts), positions, by_rows), _gather(values, starts, counts)


def _columns(array: ArrayData) -> tuple[ArrayData, ...]:
    assert isinstance(array.layout, StructLayout)
    return array.layout.columns(array)


def _zero_nulls(array: ArrayData, numbers: Values) -> Indices:
    """Return integers for the slots of an array, 0 for null."""
    valid = array.validity_mask()
    return numbers.astype(np.int64) if valid is None else np.where(valid, numbers, 0).astype(np.int64)


def _check_nulls(kind: str, array: ArrayData) -> None:
    """Raise `InvalidDataError` if a vector or matrix has a null that its type does not allow."""
    valid, columns = array.validity_mask(), _columns(array)
    is_sparse = columns[0].buffer_values(1) == _SPARSE
    for name, column in zip((field.name for field in array.type.fields), columns, strict=True):
        is_needed = is_sparse if name in _SPARSE_FIELDS else np.ones(array.length, np.bool_)
        is_needed = is_needed if valid is None else is_needed & valid
        has_value = column.validity_mask()
        if has_value is not None and (is_needed & ~has_value).any():
            raise MalformedRowError(kind, find_first_true(is_needed & ~has_value), f"{name}: found null")
        is_element = column.children[0].validity_mask() if column.children else None
        if is_element is not None and is_needed.any():
            rows = np.flatnonzero(is_needed)
            starts, sizes = (each[rows] for each in offsets_and_sizes(column))
            is_null = ~is_element[range_indices(starts, sizes)]
            if is_null.any():
                row = int(np.repeat(rows, sizes)[find_first_true(is_null)])
                raise MalformedRowError(kind, row, f"{name}: found null")


def _check_sizes(kind: str, sizes: Indices) -> Indices:
    if (sizes < 0).any():
        row = find_first_true(sizes < 0)
        raise MalformedRowError(kind, row, f"the size {sizes[row]} is negative")
    return sizes


def _check_indices(kind: str, indices: Values, sizes: Indices, rows: Indices) -> None:
    """Raise `InvalidDataError` if an index is not below the size of its row."""
    is_wrong = (indices < 0) | (indices >= sizes[rows])
    if is_wrong.any():
        first = find_first_true(is_wrong)
        raise MalformedRowError(kind, int(rows[first]), f"the index {indices[first]} is not below {sizes[rows[first]]}")


def _count_within(counts: Indices) -> Indices:
    """Return the numbers from 0 below each count."""
    return range_indices(np.zeros_like(counts), counts)


def _gather(lists: ArrayData, starts: Indices, counts: Indices) -> Values:
    """Return numbers from ranges of the child of lists, copied unless they are contiguous."""
    numbers = lists.children[0].buffer_values(1)
    if counts.size and (starts[1:] == starts[:-1] + counts[:-1]).all():
        return numbers[starts[0] : starts[0] + sum_lengths(counts)]
    return numbers[range_indices(starts, counts)]


def _scatter(sizes: Indices, counts: Indices, indices: Values, values: Values) -> Values:
    """Return the values of rows of these sizes, which are zero except at the indices of each row."""
    total = sum_lengths(sizes)
    check_expanded_values(total, len(values) + len(sizes))
    elements = np.zeros(total, values.dtype)
    elements[np.repeat(np.cumsum(sizes) - sizes, counts) + indices] = values
    return elements


def _create_numbers(data_type: t.DataType, numbers: Values) -> ArrayData:
    layout = primitive_layout(data_type)
    with np.errstate(over="ignore"):  # beyond float32: infinite
        return layout.create_array(numbers.astype(layout.dtype, copy=False))


def _create_lists(data_type: t.BaseList, sizes: Indices, elements: ArrayData, valid: Mask | None = None) -> ArrayData:
    layout = layout_of(data_type)
    assert isinstance(layout, AnyListLayout)
    return layout.create_array(sizes, elements, pack_validity(valid))
