"""Finding, dropping, inserting and filling nulls.

These functions use logical nulls: a slot is null in the array's own bitmap, or because its value in the dictionary,
run or union member is null («Null count», «Dictionary-encoded Layout», «Run-End Encoded Layout»).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import Bool
from bowstring.errors import TypeMismatchError, prefix_errors
from bowstring.kernels.encode import run_end_decode
from bowstring.kernels.unify_dictionaries import concat_and_unify, has_dictionary
from bowstring.layouts.base import ArrayData, Values, check_expanded_array, pack_validity
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.construction import array_from_python
from bowstring.layouts.dictionary import DictionaryLayout, decode_dictionary
from bowstring.layouts.expansion_limits import allow_available_memory
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of_class
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.union import UnionLayout


def _create_boolean_array(values: Values) -> ArrayData:
    layout = layout_of_class(Bool(), BooleanLayout)
    return layout.create_array(values)


def check_no_nulls(array: ArrayData) -> None:
    """Raise `TypeMismatchError` if an array of a non-nullable field has nulls."""
    valid = array.layout.logical_validity_mask(array)
    if valid is not None and not valid.all():
        raise TypeMismatchError(f"has {array.length - np.count_nonzero(valid)} nulls, but its field is not nullable")


def is_valid(array: ArrayData) -> ArrayData:
    """Return a boolean array that is true for valid slots."""
    check_expanded_array(array)
    valid = array.layout.logical_validity_mask(array)
    return _create_boolean_array(np.ones(array.length, np.bool_) if valid is None else valid)


def is_null(array: ArrayData, nan_is_null: bool = False) -> ArrayData:
    """Return a boolean array that is true for null slots, with `nan_is_null` also for NaN."""
    check_expanded_array(array)
    valid = array.layout.logical_validity_mask(array)
    null = np.zeros(array.length, np.bool_) if valid is None else ~valid
    if nan_is_null:
        null |= _nan_mask(array)
    return _create_boolean_array(null)


def _nan_mask(array: ArrayData) -> Values:
    """Return which slots are NaN. Values of null slots are arbitrary."""
    while isinstance(array.layout.storage, (DictionaryLayout, RunEndEncodedLayout)):
        array = run_end_decode(decode_dictionary(array))
    layout = array.layout.storage
    out = np.zeros(array.length, np.bool_)
    if isinstance(layout, PrimitiveLayout) and layout.dtype.kind == "f":
        np.isnan(array.buffer_values(1), out=out)
    elif isinstance(layout, UnionLayout):
        for slots, child in layout.split_by_child(array):
            out[slots] = _nan_mask(child)
    return out


def drop_null(array: ArrayData) -> ArrayData:
    """Return a copy without null slots, or the array itself if there are none."""
    check_expanded_array(array)
    valid = array.layout.logical_validity_mask(array)
    return array if valid is None else array.layout.take(array, np.flatnonzero(valid))


def insert_nulls(values: ArrayData, array: ArrayData) -> ArrayData:
    """Return `values`, one for each valid slot of `array`, at the indices of these slots; the other slots are null."""
    mask = array.validity_mask()
    return values if mask is None else insert_nulls_at(values, ~mask)


def insert_nulls_at(values: ArrayData, mask: Values) -> ArrayData:
    """Return an array with nulls where `mask`, booleans of shape (length,), is true, and `values` elsewhere."""
    layout = values.layout
    # Null slots take the one null at the end, others the value of their number among the slots that are not null.
    values_and_null = layout.concat([values, layout.nulls(1)])
    return layout.take(values_and_null, np.where(mask, values.length, np.cumsum(~mask) - 1))


def set_nulls(array: ArrayData, mask: Values) -> ArrayData:
    """Return the array with nulls where `mask`, booleans of shape (length,), is true.

    Shares the memory, except for unions and run-end encoded arrays, which have no validity bitmap.
    """
    layout = array.layout
    if not layout.has_validity:
        return layout.fill_null(array, ~mask, layout.nulls(1))
    compact = layout.compact(array)
    valid = compact.validity_mask()
    validity = pack_validity(~mask if valid is None else valid & ~mask)
    return ArrayData(layout, array.length, (validity, *compact.own_buffers[1:]), compact.children, compact.dictionary)


def inherit_nulls(child: ArrayData, parent: ArrayData) -> ArrayData:
    """Return a column of a struct array with nulls where the struct is null."""
    valid = parent.validity_mask()
    return child if valid is None else set_nulls(child, np.logical_not(valid))


def fill_null(array: ArrayData, fill_value: Any) -> ArrayData:
    """Replace nulls with a Python value, or a scalar, of the array's type. Returns the array itself if it has no nulls.

    Raises `TypeMismatchError` if the value does not fit the type.
    """
    check_expanded_array(array)
    with prefix_errors("fill_null"):
        filler = array_from_python([fill_value], array.type)
    if filler.null_count:
        return array
    with allow_available_memory():  # the value is the caller's
        return replace_nulls(array, filler)


def replace_nulls(array: ArrayData, filler: ArrayData) -> ArrayData:
    """Replace nulls with the single slot of an array of the same type. Returns the array itself if it has no nulls."""
    valid = array.layout.logical_validity_mask(array)
    if valid is None:
        return array
    if not has_dictionary(array.layout):
        return array.layout.fill_null(array, valid, filler)
    values_and_filler = concat_and_unify([array, filler])
    return values_and_filler.layout.take(values_and_filler, np.where(valid, np.arange(array.length), array.length))


def extract_value_field(array: ArrayData) -> ArrayData:
    """Return the value field of an extension array, such as the timestamps of `timestamp_with_offset`, null where the
    extension is null; any other array as it is. It determines the order, and casts to the field's type.
    """
    type_ = array.type
    if not isinstance(type_, ExtensionType) or type_.VALUE_FIELD is None:
        return array
    storage = array.storage
    assert isinstance(storage.layout, StructLayout)
    return inherit_nulls(storage.layout.columns(storage)[type_.VALUE_FIELD], storage)
