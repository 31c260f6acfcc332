"""The NumPy form of a column as `__array__` promises it: of the type that is asked for, and no value for a null."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.errors import DataTypeError, WouldCopyError
from bowstring.layouts.base import Values, object_array

_SHOWS_NULLS = {"f": "fcO", "M": "MO", "m": "mO"}
"""For a kind of NumPy's types in which nulls show, those into which they can be cast and still do."""


def convert_dtype(made: Values, source: Any, dtype: Any, copy: bool | None) -> Values:
    """A column's NumPy form as another type.

    A null, which `made` shows as NaN, NaT or None, never becomes a value: raises `DataTypeError` instead, and
    `WouldCopyError` where no copy is allowed. Among Python objects it is None.
    """
    if dtype is None or made.dtype == dtype:
        return made.copy() if copy else made
    wanted = np.dtype(dtype)
    if copy is False:
        raise WouldCopyError(f"{source.type} does not become {wanted} without copying")
    valid = [chunk.layout.valid_mask(chunk) for chunk in getattr(source, "chunks", [source])]
    if all(mask is None or mask.all() for mask in valid):
        return made.astype(wanted)
    if wanted.kind == "O" and made.ndim == 1:
        return object_array(source.to_pylist())
    if made.dtype.kind == "O" and wanted.kind in "fc":
        nulls = np.fromiter((value is None for value in made.tolist()), np.bool_, made.size).reshape(made.shape)
        made = np.where(nulls, np.nan, made)
    elif wanted.kind not in _SHOWS_NULLS.get(made.dtype.kind, "O"):
        raise DataTypeError(f"values of {source.type} are null, which NumPy's {wanted} cannot show")
    return made.astype(wanted)
