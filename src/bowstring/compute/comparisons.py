"""Comparisons of values. A comparison with null is null, and NaN differs from every value."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bowstring.compute.operands import (
    broadcast,
    broadcast_length,
    combine_validity,
    decode_and_cast,
    map_operands,
    map_valid_values,
)
from bowstring.datatypes.types import Null
from bowstring.errors import TypeMismatchError
from bowstring.kernels.array_statistics import is_orderable
from bowstring.kernels.common_type import find_common_type
from bowstring.kernels.comparison import compare
from bowstring.kernels.nulls import create_boolean_array
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def equal(x: Any, y: Any) -> Any:
    """Return whether values are equal.

    Numbers, times and strings of different types are cast to a common type first. Raises `TypeMismatchError` if there
    is none, or the values have no order: lists, structs and intervals.

    >>> import bowstring as bs
    >>> bs.compute.equal(bs.array([1, None, 3]), 3).to_pylist()
    [False, None, True]
    """
    return _compare("==", x, y)


def not_equal(x: Any, y: Any) -> Any:
    """Return whether values differ; as `equal`.

    >>> bs.compute.not_equal([1, None, 3], 1)
    <bowstring.Array bool[3]>
    [false, null, true]
    """
    return _compare("!=", x, y)


def less(x: Any, y: Any) -> Any:
    """Return whether values of `x` are less than those of `y`; strings by their bytes. As `equal`.

    >>> bs.compute.less([1, None, 3], 2)
    <bowstring.Array bool[3]>
    [true, null, false]
    """
    return _compare("<", x, y)


def less_equal(x: Any, y: Any) -> Any:
    """Return whether values of `x` are less than or equal to those of `y`; as `less`.

    >>> bs.compute.less_equal([1, None, 3], 1)
    <bowstring.Array bool[3]>
    [true, null, false]
    """
    return _compare("<=", x, y)


def greater(x: Any, y: Any) -> Any:
    """Return whether values of `x` are greater than those of `y`; as `less`.

    >>> bs.compute.greater([1, None, 3], 2)
    <bowstring.Array bool[3]>
    [false, null, true]
    """
    return _compare(">", x, y)


def greater_equal(x: Any, y: Any) -> Any:
    """Return whether values of `x` are greater than or equal to those of `y`; as `less`.

    >>> bs.compute.greater_equal([1, None, 3], 3)
    <bowstring.Array bool[3]>
    [false, null, true]
    """
    return _compare(">=", x, y)


def _compare(symbol: str, x: Any, y: Any) -> Any:
    return map_operands(partial(_compare_arrays, symbol), x, y)


def _compare_arrays(symbol: str, left: ArrayData, right: ArrayData) -> ArrayData:
    if left.length == 1 != right.length:
        return _compare_arrays(_MIRRORED[symbol], right, left)
    common_type = find_common_type([left.type, right.type])
    if isinstance(common_type, Null):
        return layout_of(common_type).nulls(left.length)
    if not is_orderable(layout_of(common_type)):
        raise TypeMismatchError(f"values of {left.type} have no order and can't be compared")
    if right.length == 1:
        other = decode_and_cast(right, common_type)
        return map_valid_values(lambda values: _compare_plain(symbol, values, other), left)
    return _compare_plain(symbol, decode_and_cast(left, common_type), decode_and_cast(right, common_type))


def _compare_plain(symbol: str, left: ArrayData, right: ArrayData) -> ArrayData:
    left = decode_and_cast(left, right.type)
    mask = compare(left, symbol, right)
    length = broadcast_length(left, right)
    return create_boolean_array(np.array(broadcast(mask, length)), combine_validity(left, right))
