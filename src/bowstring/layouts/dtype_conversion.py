"""Conversion of a column's NumPy array to the dtype that `__array__` receives, without turning nulls into values."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.errors import TypeMismatchError, WouldCopyError
from bowstring.layouts.base import Values, to_object_array

_NULLABLE_KINDS = {"f": "fcO", "M": "MO", "m": "mO"}
"""For each kind of NumPy type that represents nulls, the kinds that still do after a cast."""


def convert_dtype(values: Values, column: Any, dtype: Any, copy: bool | None) -> Values:
    """Convert the NumPy array of a column to another dtype.

    Nulls, which are NaN, NaT or None in `values`, never become values, and are None among Python objects. Raises
    `TypeMismatchError` if the dtype cannot represent them, and `WouldCopyError` if `copy` is False and a copy is
    needed.
    """
    if dtype is None or values.dtype == dtype:
        return values.copy() if copy else values
    target = np.dtype(dtype)
    if copy is False:
        raise WouldCopyError(f"{column.type} cannot be converted to {target} without copying")
    masks = [chunk.layout.logical_validity_mask(chunk) for chunk in getattr(column, "chunks", [column])]
    if all(mask is None or mask.all() for mask in masks):
        return values.astype(target)
    if target.kind == "O" and values.ndim == 1:
        return to_object_array(column.to_pylist())
    if values.dtype.kind == "O" and target.kind in "fc":
        nulls = np.fromiter((value is None for value in values.tolist()), np.bool_, values.size)
        values = np.where(nulls.reshape(values.shape), np.nan, values)
    elif target.kind not in _NULLABLE_KINDS.get(values.dtype.kind, "O"):
        raise TypeMismatchError(f"NumPy type {target} cannot represent the nulls of {column.type}")
    return values.astype(target)
