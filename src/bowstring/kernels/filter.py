"""Filtering by boolean masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from bowstring.errors import InvalidArgumentError
from bowstring.layouts.base import ArrayData, Indices, Values
from bowstring.layouts.boolean import BooleanLayout

MaskLike: TypeAlias = Sequence[bool | None] | Values | ArrayData


def mask_to_indices(mask: MaskLike, length: int) -> Indices:
    """Return the indices of the slots that a mask selects, in order. Null selects nothing.

    Raises `InvalidArgumentError` if the mask is not boolean or its length is not `length`.
    """
    booleans = _to_booleans(mask)
    if booleans.shape != (length,):
        raise InvalidArgumentError(f"filter: a mask of shape {booleans.shape} does not fit {length} values")
    return np.flatnonzero(booleans)


def _to_booleans(mask: Any) -> Values:
    if isinstance(mask, ArrayData):
        layout = mask.layout.storage
        if not isinstance(layout, BooleanLayout):
            raise InvalidArgumentError(f"filter: expected a boolean mask, found {mask.type}")
        bits, valid = layout.unpack_values(mask.storage), mask.validity_mask()
        return bits if valid is None else bits & valid
    values = mask
    if hasattr(mask, "__array__"):  # NumPy's, pyarrow's, pandas', Polars'
        array = np.asarray(mask)
        if array.dtype == np.bool_:
            return array
        values = array.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"filter: expected a sequence of booleans as mask, found {mask!r:.100}")
    for index, value in enumerate(values):
        if not (value is None or isinstance(value, (bool, np.bool_))):
            raise InvalidArgumentError(f"filter: expected a boolean as value {index} of the mask, found {value!r:.100}")
    return np.fromiter((value is not None and bool(value) for value in values), np.bool_, len(values))
