"""Stable sorting by one or several columns.

Bytes and strings sort by their bytes, false before true, NaN after all numbers. Every layout provides NumPy arrays that
sort like its values (`Layout.sort_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from bowstring.datatypes.types import Int
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels.nulls import extract_value_field
from bowstring.layouts.base import ArrayData, Indices, Values, check_expanded_array
from bowstring.layouts.factorize import scatter_valid
from bowstring.layouts.registry import primitive_layout
from bowstring.layouts.sort_keys import stable_argsort

Order: TypeAlias = Literal["ascending", "descending"]
NullPlacement: TypeAlias = Literal["at_start", "at_end"]


def sort_indices(array: ArrayData, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> ArrayData:
    """Return the uint64 indices that sort an array; stable.

    Nulls, and NaN next to them, come last or first for both orders. Raises `TypeMismatchError` if the type has no
    order.
    """
    return primitive_layout(Int(64, False)).create_array(
        lexsort_to_indices([(array, order, null_placement)]).astype(np.uint64)
    )


def lexsort_to_indices(columns: Sequence[tuple[ArrayData, Order, NullPlacement]]) -> Indices:
    """Return the indices that sort rows by columns of equal length, most significant first; stable."""
    keys: list[Values] = []
    for array, order, null_placement in columns:
        if null_placement not in ("at_start", "at_end"):
            raise InvalidArgumentError(f"null_placement: expected 'at_start' or 'at_end', found {null_placement!r}")
        if order not in ("ascending", "descending"):
            raise InvalidArgumentError(f"order: expected 'ascending' or 'descending', found {order!r}")
        keys.extend(_sort_keys_with_nulls(array, order == "descending", null_placement == "at_start"))
    if not keys:
        raise InvalidArgumentError("sorting needs at least one column")
    return stable_argsort(keys)


def _sort_keys_with_nulls(array: ArrayData, is_descending: bool, nulls_first: bool) -> list[Values]:
    check_expanded_array(array)
    array = extract_value_field(array)
    valid = array.layout.logical_validity_mask(array)
    valid_values = array if valid is None else array.layout.take(array, np.flatnonzero(valid))
    value_keys = valid_values.layout.sort_keys(valid_values)
    if value_keys is None:
        raise TypeMismatchError(f"values of {array.type} have no order")
    keys: list[Values] = [] if valid is None else [valid if nulls_first else ~valid]
    for key in value_keys:
        is_float = key.dtype.kind == "f"
        # NumPy sorts NaN to the end; a key before it moves NaN next to the nulls at the start.
        if is_float and nulls_first and np.isnan(key).any():
            keys.append(scatter_valid(~np.isnan(key), valid))
        # ~x is -x - 1, which reverses the order of integers without the overflow of -x for the least one, also if
        # unsigned.
        ascending = key if not is_descending else -key if is_float else ~key
        # The keys under nulls are zeros; the key of validity, more significant, keeps them apart.
        keys.append(scatter_valid(ascending, valid))
    return keys
