"""SciPy's sparse arrays. The only module that imports SciPy."""

from __future__ import annotations

from typing import Any

from bowstring.errors import TypeMismatchError, UnsupportedTypeError, require_package
from bowstring.tensors.shape import ShapeMixin


def _import_scipy_sparse() -> Any:
    with require_package("scipy", "sparse"):
        from scipy import sparse
    return sparse


def check_sparse_format(values: Any, format: str) -> None:
    """Raise `TypeMismatchError` if `values` is not SciPy's array or matrix of this format."""
    if not _import_scipy_sparse().issparse(values) or values.format != format:
        raise TypeMismatchError(f"expected SciPy's {format}_array, found {type(values).__name__}: call .to{format}()")


def create_sparse_array(format: str, components: tuple[Any, ...], tensor: ShapeMixin) -> Any:
    """Return SciPy's array of this format over values and indices. Raises `UnsupportedTypeError` if SciPy does not
    support the tensor's type or shape.
    """
    array_class = getattr(_import_scipy_sparse(), f"{format}_array")
    try:
        return array_class(components, shape=tensor.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedTypeError(
            f"SciPy has no {format}_array of {tensor.type}, shape {tensor.shape}: {error}"
        ) from None
