"""Filtering by boolean masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from bowstring.datatypes.types import Bool, Int
from bowstring.errors import InvalidArgumentError
from bowstring.layouts.base import ArrayData, Indices, Values
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.registry import layout_of, primitive_layout

MaskLike: TypeAlias = Sequence[bool | None] | Values | ArrayData
NullSelection: TypeAlias = Literal["drop", "emit_null"]
"""What the null of a mask does."""


def mask_to_indices(mask: MaskLike, length: int) -> Indices:
    """Return the indices of the slots that a mask selects, in order. Null selects nothing.

    Raises `InvalidArgumentError` if the mask is not boolean or its length is not `length`.
    """
    booleans = _to_booleans(mask)
    if booleans.shape != (length,):
        raise InvalidArgumentError(f"filter: a mask of shape {booleans.shape} does not fit {length} values")
    return np.flatnonzero(booleans)


def mask_to_nullable_indices(mask: MaskLike, length: int, null_selection_behavior: str) -> ArrayData | None:
    """Return the indices of the slots that a mask selects, and null for null; None if nulls are dropped.

    Raises as `mask_to_indices`, and for a behavior other than "drop" and "emit_null".
    """
    if null_selection_behavior not in ("drop", "emit_null"):
        raise InvalidArgumentError(
            f"null_selection_behavior: expected 'drop' or 'emit_null', found {null_selection_behavior!r:.100}"
        )
    if null_selection_behavior == "drop":
        return None
    booleans = mask if isinstance(mask, ArrayData) else layout_of(Bool()).from_pylist(list(mask))
    valid = booleans.layout.logical_validity_mask(booleans)
    selected = mask_to_indices(booleans if valid is None else _to_booleans(booleans) | ~valid, length)
    return primitive_layout(Int(64)).create_array(selected, None if valid is None else valid[selected])


def _to_booleans(mask: Any) -> Values:
    """Return a mask as NumPy booleans, false for null. Raises `InvalidArgumentError` if it is not boolean."""
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
