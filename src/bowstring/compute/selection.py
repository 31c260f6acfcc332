"""Tests for null and NaN, choices among values, and pyarrow's functions that are methods of arrays as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.scalar import Scalar
from bowstring.arrays.table import Table
from bowstring.compute.logic import unpack_booleans
from bowstring.compute.operands import (
    Operand,
    as_column,
    as_operand,
    broadcast,
    broadcast_length,
    combine_validity,
    decode_and_cast,
    map_column,
    map_operands,
    map_valid_values,
)
from bowstring.datatypes import types as t
from bowstring.datatypes.conversion import TypeLike
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels import nulls
from bowstring.kernels.cast_numeric import to_numeric_slots
from bowstring.kernels.common_type import find_common_type
from bowstring.kernels.filter import MaskLike
from bowstring.kernels.nulls import create_boolean_array
from bowstring.kernels.sort import NullPlacement, Order
from bowstring.kernels.unify_dictionaries import concat_and_unify
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.primitive import PrimitiveLayout


def is_null(values: Any, *, nan_is_null: bool = False) -> Any:
    """Return whether values are null, or with `nan_is_null` NaN.

    >>> bs.compute.is_null([1, None])
    <bowstring.Array bool[2]>
    [false, true]
    """
    return map_operands(lambda array: nulls.is_null(array, nan_is_null), values)


def is_valid(values: Any) -> Any:
    """Return whether values are not null.

    >>> bs.compute.is_valid([1, None])
    <bowstring.Array bool[2]>
    [true, false]
    """
    return map_operands(nulls.is_valid, values)


def is_nan(values: Any) -> Any:
    """Return whether numbers are NaN; null for null. Raises `TypeMismatchError` for other types.

    >>> import bowstring as bs
    >>> bs.compute.is_nan([1.5, float("nan"), None]).to_pylist()
    [False, True, None]
    """
    return _test_floats("is_nan", np.isnan, False, values)


def is_finite(values: Any) -> Any:
    """Return whether numbers are neither infinite nor NaN; as `is_nan`.

    >>> bs.compute.is_finite([1.0, float("inf"), None])
    <bowstring.Array bool[3]>
    [true, false, null]
    """
    return _test_floats("is_finite", np.isfinite, True, values)


def is_inf(values: Any) -> Any:
    """Return whether numbers are infinite; as `is_nan`.

    >>> bs.compute.is_inf([1.0, float("inf"), None])
    <bowstring.Array bool[3]>
    [false, true, null]
    """
    return _test_floats("is_inf", np.isinf, False, values)


def _test_floats(name: str, function: Callable[[Values], Values], is_true_otherwise: bool, values: Any) -> Any:
    def test_array(array: ArrayData) -> ArrayData:
        if isinstance(array.type, t.FloatingPoint):
            mask = function(to_numeric_slots(array))
        elif isinstance(array.type, t.Int | t.Decimal | t.Null | t.Duration):
            mask = np.full(array.length, is_true_otherwise)
        else:
            raise TypeMismatchError(f"{name}: expected numbers, found {array.type}")
        return create_boolean_array(mask, combine_validity(array))

    return map_operands(partial(map_valid_values, test_array), values)


def if_else(cond: Any, left: Any, right: Any) -> Any:
    """Return the values of `left` where `cond` is true, those of `right` where it is false, else null.

    The types of the values are cast to a common type; those of nested and encoded values must be equal.

    >>> import bowstring as bs
    >>> bs.compute.if_else([True, False, None], [1, 2, 3], 0).to_pylist()
    [1, 0, None]
    """
    return map_operands(_choose_by_condition, cond, left, right)


def _choose_by_condition(cond: ArrayData, left: ArrayData, right: ArrayData) -> ArrayData:
    length = broadcast_length(cond, left, right)
    chooses_right = ~broadcast(unpack_booleans("if_else", cond), length)
    valid = combine_validity(cond)
    chosen = _choose(chooses_right.view(np.uint8), _cast_to_common_type([left, right]))
    return chosen if valid is None else nulls.set_nulls(chosen, ~broadcast(valid, length))


def coalesce(*values: Any) -> Any:
    """Return for each slot the first of the values that is not null, if any. The types are as those of `if_else`.

    >>> import bowstring as bs
    >>> bs.compute.coalesce([1, None, None], [None, 2, None], 0).to_pylist()
    [1, 2, 0]
    """
    if not values:
        raise InvalidArgumentError("coalesce: expected at least one argument")
    return map_operands(_choose_first_valid, *values)


def _choose_first_valid(*arrays: ArrayData) -> ArrayData:
    arrays = tuple(_cast_to_common_type(arrays))
    length = broadcast_length(*arrays)
    choices = np.full(length, len(arrays) - 1, np.min_scalar_type(len(arrays)))
    for index in range(len(arrays) - 2, -1, -1):
        valid = combine_validity(arrays[index])
        choices[slice(None) if valid is None else broadcast(valid, length)] = index
    return _choose(choices, arrays)


def fill_null(values: Any, fill_value: Any) -> Any:
    """Return the values, with those of `fill_value` in place of nulls: one value, or one for each slot.

    `fill_value` is cast to the type of the values. Raises `TypeMismatchError` if it does not fit.

    >>> bs.compute.fill_null([1, None, 3], 0)
    <bowstring.Array int64[3]>
    [1, 0, 3]
    """
    operand, filler = as_operand(values), as_operand(fill_value)
    if filler.type != operand.type:
        filler = _cast_filler(filler, operand.type)
    if not isinstance(filler, Scalar) or isinstance(operand, Scalar):
        return coalesce(operand, filler)
    return map_operands(nulls.replace_nulls, operand, filler) if filler.is_valid else operand


def fill_null_forward(values: Any) -> Any:
    """Return the values, with the last value before each null in its place, if any.

    >>> bs.compute.fill_null_forward([None, 1, None, None, 2])
    <bowstring.Array int64[5]>
    [null, 1, 1, 1, 2]
    """
    return map_column(_fill_from_previous, values)


def fill_null_backward(values: Any) -> Any:
    """Return the values, with the next value after each null in its place, if any.

    >>> bs.compute.fill_null_backward([None, 1, None, None, 2])
    <bowstring.Array int64[5]>
    [1, 1, 2, 2, 2]
    """

    def fill_from_next(array: ArrayData) -> ArrayData:
        backward = np.arange(array.length)[::-1]
        return array.layout.take(_fill_from_previous(array.layout.take(array, backward)), backward)

    return map_column(fill_from_next, values)


def _fill_from_previous(array: ArrayData) -> ArrayData:
    valid = array.layout.logical_validity_mask(array)
    if valid is None:
        return array
    slots = np.arange(array.length)
    last_valid = np.maximum.accumulate(np.where(valid, slots, -1))
    return array.layout.take(array, np.where(last_valid < 0, slots, last_valid))


def _cast_filler(filler: Operand, type_: t.DataType) -> Operand:
    try:
        return filler.cast(type_)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"fill_null: {error}") from None


def _cast_to_common_type(arrays: Any) -> list[ArrayData]:
    types = {array.type for array in arrays if not isinstance(array.type, t.Null)}
    type_ = types.pop() if len(types) == 1 else find_common_type([array.type for array in arrays])
    return [array if array.type == type_ else decode_and_cast(array, type_) for array in arrays]


def _choose(choices: Values, arrays: Any) -> ArrayData:
    """Return for each slot the value of the array at the index in `choices`, of shape (length,)."""
    layout = arrays[0].layout
    if isinstance(layout, PrimitiveLayout):
        return _choose_slots(layout, choices, arrays)
    candidates = concat_and_unify(arrays)
    starts = np.cumsum([0, *(array.length for array in arrays)])[:-1]
    steps = np.array([array.length != 1 for array in arrays])
    return candidates.layout.take(candidates, starts[choices] + np.arange(len(choices)) * steps[choices])


def _choose_slots(layout: PrimitiveLayout, choices: Values, arrays: Any) -> ArrayData:
    """As `_choose`, without concatenating the arrays, which takes three times as long."""
    length = len(choices)
    slots, valid = np.empty(length, layout.dtype), np.ones(length, np.bool_)
    for index, array in enumerate(arrays):
        is_chosen, own_valid = choices == index, array.validity_mask()
        np.copyto(slots, array.buffer_values(1), where=is_chosen)
        if own_valid is not None:
            np.copyto(valid, own_valid, where=is_chosen)
    return layout.create_array(slots, None if valid.all() else valid)


# Functions that arrays have as methods


def cast(arr: Any, target_type: TypeLike, safe: bool = True) -> Any:
    """Cast values to another type, as `Array.cast`.

    >>> bs.compute.cast(["1", None], "int64")
    <bowstring.Array int64[2]>
    [1, null]
    """
    return as_operand(arr).cast(target_type, safe)


def filter(input: Any, mask: MaskLike | ChunkedArray) -> Any:  # noqa: A001 -- pyarrow's names
    """Return the values, or rows of a batch or table, for which `mask` is true, as `Array.filter`.

    >>> bs.compute.filter([1, 2, 3], [True, None, True])
    <bowstring.Array int64[2]>
    [1, 3]
    """
    return _as_columns(input).filter(mask)


def take(data: Any, indices: Any) -> Any:
    """Return the values, or rows of a batch or table, at `indices`, as `Array.take`.

    >>> bs.compute.take(["a", "b", "c"], [2, 0])
    <bowstring.Array string[2]>
    ["c", "a"]
    """
    return _as_columns(data).take(indices)


def drop_null(input: Any) -> Any:
    """Return the values that are not null, or the rows of a batch or table without nulls.

    >>> bs.compute.drop_null([1, None, 3])
    <bowstring.Array int64[2]>
    [1, 3]
    """
    return _as_columns(input).drop_null()


def sort_indices(input: Any, *, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """Return the uint64 indices that sort values, as `Array.sort_indices`.

    >>> bs.compute.sort_indices([3, None, 1])
    <bowstring.Array uint64[3]>
    [2, 0, 1]
    """
    return Array.from_array_data(as_column(input)).sort_indices(order, null_placement)


def unique(array: Any) -> Array:
    """Return the distinct values in order of first appearance, as `Array.unique`.

    >>> bs.compute.unique([1, None, 1, 3])
    <bowstring.Array int64[3]>
    [1, null, 3]
    """
    return Array.from_array_data(as_column(array)).unique()


def dictionary_encode(array: Any) -> Any:
    """Dictionary-encode values, as `Array.dictionary_encode`.

    >>> bs.compute.dictionary_encode(["a", "b", "a"]).dictionary
    <bowstring.Array string[2]>
    ["a", "b"]
    """
    return _as_columns(array).dictionary_encode()


def _as_columns(value: Any) -> Any:
    """Return a batch or table as it is, and convert anything else to an array or chunked array."""
    if isinstance(value, RecordBatch | Table):
        return value
    operand = as_operand(value)
    return operand.to_array() if isinstance(operand, Scalar) else operand
