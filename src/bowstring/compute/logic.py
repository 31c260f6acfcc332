"""Boolean logic. The functions with `kleene` in their names return true or false where null does not matter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bowstring.compute.operands import broadcast, broadcast_length, combine_validity, decode_and_cast, map_operands
from bowstring.datatypes.types import Bool, Null, bool_
from bowstring.errors import TypeMismatchError
from bowstring.kernels.array_statistics import get_decoded_type
from bowstring.kernels.nulls import create_boolean_array
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.boolean import BooleanLayout


def and_(x: Any, y: Any) -> Any:
    """Return whether both values are true; null if one is null. Raises `TypeMismatchError` for other types than bool.

    >>> import bowstring as bs
    >>> bs.compute.and_([True, False, None], [True, True, False]).to_pylist()
    [True, False, None]
    """
    return map_operands(partial(_combine, "and_", np.logical_and), x, y)


def or_(x: Any, y: Any) -> Any:
    """Return whether one of the values is true; null if one is null. As `and_`.

    >>> bs.compute.or_([True, False, True], [False, False, None])
    <bowstring.Array bool[3]>
    [true, false, null]
    """
    return map_operands(partial(_combine, "or_", np.logical_or), x, y)


def xor(x: Any, y: Any) -> Any:
    """Return whether exactly one of the values is true; null if one is null. As `and_`.

    >>> bs.compute.xor([True, False, None], [True, True, True])
    <bowstring.Array bool[3]>
    [false, true, null]
    """
    return map_operands(partial(_combine, "xor", np.logical_xor), x, y)


def and_not(x: Any, y: Any) -> Any:
    """Return whether `x` is true and `y` is not; null if one is null. As `and_`.

    >>> bs.compute.and_not([True, True, None], [False, True, False])
    <bowstring.Array bool[3]>
    [true, false, null]
    """
    return and_(x, invert(y))


def and_kleene(x: Any, y: Any) -> Any:
    """Return whether both values are true: false if one is false, otherwise null if one is null. As `and_`.

    >>> import bowstring as bs
    >>> bs.compute.and_kleene([True, False, None], None).to_pylist()
    [None, False, None]
    """
    return map_operands(partial(_combine_kleene, "and_kleene", False), x, y)


def or_kleene(x: Any, y: Any) -> Any:
    """Return whether one of the values is true: true if one is true, otherwise null if one is null. As `and_`.

    >>> bs.compute.or_kleene([True, False], [None, None])
    <bowstring.Array bool[2]>
    [true, null]
    """
    return map_operands(partial(_combine_kleene, "or_kleene", True), x, y)


def and_not_kleene(x: Any, y: Any) -> Any:
    """Return whether `x` is true and `y` is not: false if one excludes it, otherwise null if one is null. As `and_`.

    >>> bs.compute.and_not_kleene([False, True, None], [None, None, True])
    <bowstring.Array bool[3]>
    [false, null, false]
    """
    return and_kleene(x, invert(y))


def invert(values: Any) -> Any:
    """Return whether values are false; null for null. As `and_`.

    >>> bs.compute.invert([True, None, False])
    <bowstring.Array bool[3]>
    [false, null, true]
    """

    def invert_array(array: ArrayData) -> ArrayData:
        return create_boolean_array(~unpack_booleans("invert", array), combine_validity(array))

    return map_operands(invert_array, values)


def unpack_booleans(function: str, array: ArrayData) -> Values:
    """Return the values of a boolean array, or of nulls; those of null slots are undefined.

    Raises `TypeMismatchError` for another type.
    """
    if not isinstance(get_decoded_type(array.type), Bool | Null):
        raise TypeMismatchError(f"{function}: expected booleans, found {array.type}")
    booleans = decode_and_cast(array, bool_())
    assert isinstance(booleans.layout, BooleanLayout)
    return booleans.layout.unpack_values(booleans)


def _combine(name: str, function: Callable[[Values, Values], Values], left: ArrayData, right: ArrayData) -> ArrayData:
    values = function(unpack_booleans(name, left), unpack_booleans(name, right))
    return create_boolean_array(values, combine_validity(left, right))


def _combine_kleene(name: str, decisive: bool, left: ArrayData, right: ArrayData) -> ArrayData:
    """Return `decisive` where one of the values is, else null where one is null, else its opposite."""
    length = broadcast_length(left, right)
    is_decided, valid = np.zeros(length, np.bool_), combine_validity(left, right)
    for array in (left, right):
        decides, own_valid = unpack_booleans(name, array) == decisive, combine_validity(array)
        is_decided |= broadcast(decides if own_valid is None else decides & own_valid, length)
    return create_boolean_array(is_decided == decisive, None if valid is None else valid | is_decided)
