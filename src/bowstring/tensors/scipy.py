"""Conversion of SciPy's sparse arrays. The only module that imports SciPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import DataTypeError, MissingExtraError, UnsupportedTypeError
from bowstring.tensors.common import Values

if TYPE_CHECKING:
    from bowstring.tensors.sparse import SparseCOOTensor, SparseMatrix, SparseTensor


def _sparse() -> Any:
    try:
        from scipy import sparse
    except ImportError:
        raise MissingExtraError.of("scipy", "sparse") from None
    return sparse


def _check_format(values: Any, format: str) -> None:
    if not _sparse().issparse(values) or values.format != format:
        raise DataTypeError(f"expected SciPy's {format}_array, found {type(values).__name__}: call .to{format}()")


def read_coo_array(values: Any) -> tuple[Values, Values, tuple[int, ...]]:
    """Return values, coordinates and shape of a `coo_array` or `coo_matrix`."""
    _check_format(values, "coo")
    components = getattr(values, "coords", None) or (values.row, values.col)
    return values.data, np.stack(components, axis=1), values.shape


def read_compressed_array(values: Any, format: str) -> tuple[Values, Values, Values, tuple[int, ...]]:
    """Return values, pointers, indices and shape of a compressed array or matrix."""
    _check_format(values, format)
    return values.data, values.indptr, values.indices, values.shape


def to_coo_array(tensor: SparseCOOTensor) -> Any:
    """Return a `coo_array` over the tensor's values."""
    components = tuple(tensor.coords[:, axis] for axis in range(tensor.ndim))
    array = _create("coo", (tensor.values, components), tensor)
    array.has_canonical_format = tensor.has_canonical_format
    return array


def to_compressed_array(matrix: SparseMatrix, format: str) -> Any:
    """Return a `csr_array` or `csc_array` over the matrix."""
    return _create(format, (matrix.values, matrix.indices, matrix.indptr), matrix)


def _create(format: str, components: tuple[Any, ...], tensor: SparseTensor) -> Any:
    array_class = getattr(_sparse(), f"{format}_array")
    try:
        return array_class(components, shape=tensor.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedTypeError(
            f"SciPy has no {format}_array of {tensor.type}, shape {tensor.shape}: {error}"
        ) from None
