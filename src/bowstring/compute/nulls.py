"""Nulls: finding them, dropping them and putting values in their place.

A slot is null here where it shows no value: by the array's own bitmap, or because what a dictionary, a run or the
member of a union holds for it is null («Null count», «Dictionary-encoded Layout», «Run-End Encoded Layout»).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.compute.encode import run_end_decode
from bowstring.compute.unify_dictionaries import concat_unified, has_dictionary
from bowstring.datatypes.types import Bool
from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values, error_context
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary
from bowstring.layouts.gather import check_length
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.layouts.union import UnionLayout


def booleans(values: Values, valid: Values | None = None) -> Array:
    """A boolean array of NumPy booleans."""
    layout = layout_of(Bool())
    assert isinstance(layout, BooleanLayout)
    return layout.of(values, valid)


def check_no_nulls(array: Array) -> None:
    """Raise `DataTypeError` where a slot shows no value, for a field that allows no nulls."""
    valid = array.layout.valid_mask(array)
    if valid is not None and not valid.all():
        raise DataTypeError(f"has {array.length - np.count_nonzero(valid)} nulls, its field allows none")


def is_valid(array: Array) -> Array:
    """Which slots hold a value, as booleans."""
    check_length(array)
    valid = array.layout.valid_mask(array)
    return booleans(np.ones(array.length, np.bool_) if valid is None else valid)


def is_null(array: Array, nan_is_null: bool = False) -> Array:
    """Which slots hold no value, as booleans; with `nan_is_null` also those that hold NaN."""
    check_length(array)
    valid = array.layout.valid_mask(array)
    null = np.zeros(array.length, np.bool_) if valid is None else ~valid
    if nan_is_null:
        null |= _is_nan(array)
    return booleans(null)


def _is_nan(array: Array) -> Values:
    """Which slots hold NaN; what lies under a null may be said to."""
    while isinstance(array.layout.storage, (DictionaryLayout, RunEndEncodedLayout)):
        array = run_end_decode(decode_dictionary(array))
    layout = array.layout.storage
    out = np.zeros(array.length, np.bool_)
    if isinstance(layout, PrimitiveLayout) and layout.dtype.kind == "f":
        np.isnan(array.values(1), out=out)
    elif isinstance(layout, UnionLayout):
        for slots, child in layout.split_by_child(array):
            out[slots] = _is_nan(child)
    return out


def drop_null(array: Array) -> Array:
    """The slots that hold a value; the array itself where all do, else a copy."""
    check_length(array)
    valid = array.layout.valid_mask(array)
    return array if valid is None else array.layout.take(array, np.flatnonzero(valid))


def fill_null(array: Array, fill_value: Any) -> Array:
    """The array with a Python value of its type in the place of nulls; the array itself where there are none.

    Raises `DataTypeError` where the value does not fit the type.
    """
    check_length(array)
    with error_context("fill_null"):
        filler = array.layout.build([fill_value])
    valid = array.layout.valid_mask(array)
    if valid is None or fill_value is None:
        return array
    if not has_dictionary(array.layout):
        return array.layout.fill(array, valid, filler)
    joined = concat_unified([array, filler])
    return joined.layout.take(joined, np.where(valid, np.arange(array.length), array.length))
