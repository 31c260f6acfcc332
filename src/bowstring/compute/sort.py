"""The order of values: stable sorting of one or several columns.

Bytes and strings are ordered by their bytes, booleans false before true, NaN behind all numbers. Every layout says
which NumPy arrays compare as its values do (`Layout.order`), so sorting asks for no type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from bowstring.datatypes.types import Int
from bowstring.errors import DataTypeError, UsageError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Values
from bowstring.layouts.factorize import scatter_valid
from bowstring.layouts.gather import check_length
from bowstring.layouts.registry import primitive_layout
from bowstring.layouts.sort_keys import stable_argsort

Order: TypeAlias = Literal["ascending", "descending"]
NullPlacement: TypeAlias = Literal["at_start", "at_end"]


def sort_indices(array: Array, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """The uint64 indices that put an array in order; equal values stay in their order.

    Nulls, and NaN next to them, come last or first, whatever the order. Raises `DataTypeError` where a type has none.
    """
    return primitive_layout(Int(64, False)).of(sort_rows([(array, order)], null_placement).astype(np.uint64))


def sort_rows(columns: Sequence[tuple[Array, Order]], null_placement: NullPlacement = "at_end") -> Indices:
    """The positions that put rows in order, by columns of one length, the most significant first; stable."""
    if null_placement not in ("at_start", "at_end"):
        raise UsageError(f"null_placement is at_start or at_end, not {null_placement!r}")
    keys: list[Values] = []
    for array, order in columns:
        if order not in ("ascending", "descending"):
            raise UsageError(f"an order is ascending or descending, not {order!r}")
        keys.extend(_keys(array, order == "descending", null_placement == "at_start"))
    if not keys:
        raise UsageError("sorting needs at least one column")
    return stable_argsort(keys)


def _keys(array: Array, is_descending: bool, nulls_first: bool) -> list[Values]:
    check_length(array)
    valid = array.layout.valid_mask(array)
    kept = array if valid is None else array.layout.take(array, np.flatnonzero(valid))
    found = kept.layout.sort_keys(kept)
    if found is None:
        raise DataTypeError(f"values of {array.type} have no order")
    keys: list[Values] = [] if valid is None else [valid if nulls_first else ~valid]
    for part in found:
        is_float = part.dtype.kind == "f"
        if is_float and nulls_first and np.isnan(part).any():
            keys.append(scatter_valid(~np.isnan(part), valid))
        rising = part if not is_descending else -part if is_float else ~part
        keys.append(scatter_valid(rising, valid))
    return keys
