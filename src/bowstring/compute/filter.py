"""Choosing slots: masks as they come from callers, and filtering by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.errors import UsageError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Values
from bowstring.layouts.boolean import BooleanLayout

MaskLike: TypeAlias = Sequence[bool | None] | Values | Array


def mask_to_indices(mask: MaskLike, length: int) -> Indices:
    """Which of `length` slots a mask selects, rising; null selects nothing.

    Raises `UsageError` where the mask is not boolean or has another length.
    """
    wanted = _truths(mask)
    if wanted.shape != (length,):
        raise UsageError(f"filter: a mask of shape {wanted.shape} does not fit {length} values")
    return np.flatnonzero(wanted)


def _truths(mask: Any) -> Values:
    if isinstance(mask, Array):
        layout = mask.layout.storage
        if not isinstance(layout, BooleanLayout):
            raise UsageError(f"filter: a mask is boolean, not {mask.type}")
        bits, valid = layout.bits(mask.storage), mask.mask()
        return bits if valid is None else bits & valid
    items = mask
    if hasattr(mask, "__array__"):  # NumPy's, pyarrow's, pandas', Polars'
        values = np.asarray(mask)
        if values.dtype == np.bool_:
            return values
        items = values.tolist()
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise UsageError(f"filter: a mask is a sequence of truth values, not {mask!r:.100}")
    for index, item in enumerate(items):
        if not (item is None or isinstance(item, (bool, np.bool_))):
            raise UsageError(f"filter: value {index} of the mask is no truth value: {item!r:.100}")
    return np.fromiter((item is not None and bool(item) for item in items), np.bool_, len(items))


def filter_array(array: Array, mask: MaskLike) -> Array:
    """The slots at which `mask` is true, copied; errors as `mask_to_indices`."""
    return array.layout.take(array, mask_to_indices(mask, array.length))
