"""Arithmetic of numbers, decimals, times and durations; null if an operand is.

Numbers are cast to a common type first. Integers wrap around on overflow; the functions with `checked` in their names
raise `InvalidArgumentError` instead. Results of decimals have all digits of a sum or product, and at least four decimal
places of a quotient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from bowstring.compute.operands import (
    as_column,
    broadcast,
    broadcast_length,
    combine_validity,
    decode_and_cast,
    map_column,
    map_operands,
    map_valid_values,
)
from bowstring.datatypes import types as t
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels import wide_integers
from bowstring.kernels.array_statistics import get_decoded_type
from bowstring.kernels.common_type import create_decimal_type, find_common_type, find_finest_unit, integer_as_decimal
from bowstring.kernels.wide_integers import Words
from bowstring.layouts.base import ArrayData, Values, find_first_true
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.value_codecs.base import view_as_words
from bowstring.layouts.value_codecs.temporal import SECONDS_PER_DAY, UNITS_PER_SECOND
from bowstring.memory.bitmap import Mask

Operation: TypeAlias = Literal["add", "subtract", "multiply", "divide", "power"]


def add(x: Any, y: Any) -> Any:
    """Add numbers; durations to timestamps, dates, times and durations.

    Raises `TypeMismatchError` for types that can't be added.

    >>> import bowstring as bs
    >>> bs.compute.add(bs.array([1, None, 3]), 0.5).to_pylist()
    [1.5, None, 3.5]
    """
    return _calculate("add", False, x, y)


def subtract(x: Any, y: Any) -> Any:
    """Subtract numbers; durations from timestamps, dates, times and durations; and these from each other.

    >>> bs.compute.subtract([5, None], [3, 1])
    <bowstring.Array int64[2]>
    [2, null]
    """
    return _calculate("subtract", False, x, y)


def multiply(x: Any, y: Any) -> Any:
    """Multiply numbers, and durations by integers.

    >>> bs.compute.multiply([1, None, 3], 2)
    <bowstring.Array int64[3]>
    [2, null, 6]
    """
    return _calculate("multiply", False, x, y)


def divide(x: Any, y: Any) -> Any:
    """Divide numbers, and durations by integers or durations. Quotients of integers are rounded towards zero.

    Raises `InvalidArgumentError` for a division of integers or decimals by zero; for floats it is infinite or NaN.

    >>> bs.compute.divide([7, None], 2)
    <bowstring.Array int64[2]>
    [3, null]
    """
    return _calculate("divide", False, x, y)


def add_checked(x: Any, y: Any) -> Any:
    """Add values as `add`; raises `InvalidArgumentError` on overflow.

    >>> bs.compute.add_checked([1, None], 2)
    <bowstring.Array int64[2]>
    [3, null]
    """
    return _calculate("add", True, x, y)


def subtract_checked(x: Any, y: Any) -> Any:
    """Subtract values as `subtract`; raises `InvalidArgumentError` on overflow.

    >>> bs.compute.subtract_checked([5, None], [3, 1])
    <bowstring.Array int64[2]>
    [2, null]
    """
    return _calculate("subtract", True, x, y)


def multiply_checked(x: Any, y: Any) -> Any:
    """Multiply values as `multiply`; raises `InvalidArgumentError` on overflow.

    >>> bs.compute.multiply_checked([1, None, 3], 2)
    <bowstring.Array int64[3]>
    [2, null, 6]
    """
    return _calculate("multiply", True, x, y)


def divide_checked(x: Any, y: Any) -> Any:
    """Divide values as `divide`; raises `InvalidArgumentError` on overflow, and for zero also of floats.

    >>> bs.compute.divide_checked([7.0, None], 2.0)
    <bowstring.Array double[2]>
    [3.5, null]
    """
    return _calculate("divide", True, x, y)


def negate(x: Any) -> Any:
    """Return numbers or durations with the opposite sign.

    >>> bs.compute.negate([1, None, -3])
    <bowstring.Array int64[3]>
    [-1, null, 3]
    """
    return map_operands(partial(map_valid_values, partial(_negate, False)), x)


def negate_checked(x: Any) -> Any:
    """Negate values as `negate`, except unsigned integers; raises `InvalidArgumentError` on overflow.

    >>> bs.compute.negate_checked([1, None, -3])
    <bowstring.Array int64[3]>
    [-1, null, 3]
    """
    return map_operands(partial(map_valid_values, partial(_negate, True)), x)


def abs(x: Any) -> Any:  # noqa: A001 -- pyarrow's name
    """Return the absolute values of numbers or durations.

    >>> bs.compute.abs([-1, 2, None])
    <bowstring.Array int64[3]>
    [1, 2, null]
    """
    return map_operands(partial(map_valid_values, partial(_absolute, False)), x)


def abs_checked(x: Any) -> Any:
    """Return absolute values as `abs`; raises `InvalidArgumentError` on overflow.

    >>> bs.compute.abs_checked([-1, 2, None])
    <bowstring.Array int64[3]>
    [1, 2, null]
    """
    return map_operands(partial(map_valid_values, partial(_absolute, True)), x)


def sign(x: Any) -> Any:
    """Return -1, 0 or 1 for negative numbers or durations, zero and others: int8, of decimals int64, of floats floats.

    >>> bs.compute.sign([-5, 0, None])
    <bowstring.Array int8[3]>
    [-1, 0, null]
    """
    return map_operands(partial(map_valid_values, _find_sign), x)


def sqrt(x: Any) -> Any:
    """Return the square roots of numbers as floats, of negative ones NaN.

    >>> bs.compute.sqrt([4, None, -1])
    <bowstring.Array double[3]>
    [2.0, null, nan]
    """
    return map_operands(partial(map_valid_values, _take_root), x)


def power(base: Any, exponent: Any) -> Any:
    """Raise numbers to powers; decimals as floats. Integers wrap around on overflow.

    Raises `InvalidArgumentError` for integers with a negative exponent.

    >>> bs.compute.power([2, None, -3], 2)
    <bowstring.Array int64[3]>
    [4, null, 9]
    """
    return map_operands(_raise_to_powers, base, exponent)


def cumulative_sum(values: Any, start: Any = None, *, skip_nulls: bool = False) -> Any:
    """Return the sum of the numbers up to each slot, added to `start`. Integers wrap around on overflow.

    The sums from the first null on are null, or with `skip_nulls` only those of nulls.

    >>> bs.compute.cumulative_sum([1, 2, None, 3], skip_nulls=True)
    <bowstring.Array int64[4]>
    [1, 3, null, 6]
    """

    def add_up(column: ArrayData) -> ArrayData:
        array = decode_and_cast(column, get_decoded_type(column.type))
        if not isinstance(array.type, t.Int | t.FloatingPoint):
            raise TypeMismatchError(f"cumulative_sum: expected integers or floats, found {column.type}")
        slots, valid, layout = array.buffer_values(1), combine_validity(array), primitive_layout(array.type)
        if valid is not None:
            slots = np.where(valid, slots, slots.dtype.type(0))
            valid = valid if skip_nulls else np.logical_and.accumulate(valid)
        first = decode_and_cast(as_column(0 if start is None else start), array.type).buffer_values(1)
        with np.errstate(all="ignore"):
            sums = np.cumsum(np.concatenate([first, slots]), dtype=layout.dtype)[1:]
        return layout.create_array(sums, valid)

    return map_column(add_up, values)


@dataclass(frozen=True, slots=True)
class _Slots:
    """The slots of one or two operands, and which are valid."""

    operation: Operation
    is_checked: bool
    valid: Mask | None

    def check(self, invalid: Values, fault: str) -> None:
        """Raise `InvalidArgumentError` naming the first slot that is invalid and not null."""
        if self.valid is not None:
            invalid = invalid & self.valid
        if invalid.any():
            raise InvalidArgumentError(f"{self.operation}: {fault} at index {find_first_true(invalid)}")

    def calculate(self, left: Values, right: Values) -> Values:
        """Return the slots of the result, of the operands' NumPy type."""
        if left.dtype.kind != "f":
            return self._divide_integers(left, right) if self.operation == "divide" else self._combine(left, right)
        if self.operation == "divide" and self.is_checked:
            self.check(right == 0, "division by zero")
        with np.errstate(all="ignore"):
            out: Values = _UFUNCS[self.operation](left, right)
        return out

    def _combine(self, left: Values, right: Values) -> Values:
        """Add, subtract or multiply integers."""
        with np.errstate(over="ignore"):
            out: Values = _UFUNCS[self.operation](left, right)
        if self.is_checked:
            self.check(_OVERFLOWS[self.operation](left, right, out), "overflow")
        return out

    def _divide_integers(self, left: Values, right: Values) -> Values:
        self.check(np.broadcast_to(right == 0, np.broadcast_shapes(left.shape, right.shape)), "division by zero")
        divisors = np.where(right == 0, right.dtype.type(1), right)
        overflows = _is_minimum(left) & (right == -1) if left.dtype.kind == "i" else np.zeros(1, np.bool_)
        if self.is_checked:
            self.check(overflows, "overflow")
        with np.errstate(over="ignore"):
            quotients = left // divisors
            has_remainder = quotients * divisors != left
        quotients += (has_remainder & ((left < 0) != (divisors < 0))).astype(quotients.dtype)
        out: Values = np.where(overflows, quotients.dtype.type(0), quotients)
        return out


def _is_minimum(slots: Values) -> Mask:
    mask: Mask = slots == np.iinfo(slots.dtype).min
    return mask


def _sum_overflows(left: Values, right: Values, total: Values) -> Values:
    return total < left if total.dtype.kind == "u" else ((left ^ total) & (right ^ total)) < 0


def _difference_overflows(left: Values, right: Values, difference: Values) -> Values:
    return left < right if difference.dtype.kind == "u" else ((left ^ right) & (left ^ difference)) < 0


def _product_overflows(left: Values, right: Values, product: Values) -> Values:
    """Whether the product, divided by a factor, is not the other factor."""
    divisors = np.where(right == 0, right.dtype.type(1), right)
    with np.errstate(over="ignore"):
        differs: Values = (product // divisors != left) & (right != 0)
    return differs | (_is_minimum(left) & (right == -1)) if product.dtype.kind == "i" else differs


_UFUNCS: dict[Operation, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}
_WIDE_FUNCTIONS: dict[Operation, Callable[[Words, Words], Words]] = {
    "add": wide_integers.add,
    "subtract": wide_integers.subtract,
    "multiply": wide_integers.multiply,
    "divide": wide_integers.divide,
}
_OVERFLOWS: dict[Operation, Callable[[Values, Values, Values], Values]] = {
    "add": _sum_overflows,
    "subtract": _difference_overflows,
    "multiply": _product_overflows,
}


def _calculate(operation: Operation, is_checked: bool, x: Any, y: Any) -> Any:
    return map_operands(partial(_calculate_arrays, operation, is_checked), x, y)


def _calculate_arrays(operation: Operation, is_checked: bool, left: ArrayData, right: ArrayData) -> ArrayData:
    types = [get_decoded_type(left.type), get_decoded_type(right.type)]
    slots = _Slots(operation, is_checked, combine_validity(left, right))
    if all(isinstance(each, t.Decimal | t.Int) for each in types) and any(
        isinstance(each, t.Decimal) for each in types
    ):
        return _calculate_decimals(slots, left, right)
    if any(isinstance(each, t.BaseTemporal) for each in types):
        return _calculate_times(slots, left, right)
    common_type = find_common_type(types)
    if isinstance(common_type, t.Null):
        return layout_of(common_type).nulls(broadcast_length(left, right))
    if not isinstance(common_type, t.Int | t.FloatingPoint | t.Decimal):
        raise _mismatch_error(operation, left, right)
    operands = [decode_and_cast(each, common_type) for each in (left, right)]
    if isinstance(common_type, t.Decimal):  # with null
        return _calculate_decimals(slots, *operands)
    return _create_array(slots, common_type, slots.calculate(*(each.buffer_values(1) for each in operands)))


def _create_array(slots: _Slots, type_: t.DataType, values: Values) -> ArrayData:
    layout = primitive_layout(type_)
    valid = slots.valid
    length = len(values) if valid is None else len(valid)
    return layout.create_array(np.ascontiguousarray(broadcast(values, length)).astype(layout.dtype, copy=False), valid)


def _mismatch_error(operation: Operation, left: ArrayData, right: ArrayData) -> TypeMismatchError:
    return TypeMismatchError(f"{operation}: {left.type} and {right.type} are not supported")


# Decimals


def _calculate_decimals(slots: _Slots, left: ArrayData, right: ArrayData) -> ArrayData:
    operands = [_decode_decimals(each) for each in (left, right)]
    a, b = (each.type for each in operands)
    assert isinstance(a, t.Decimal)
    assert isinstance(b, t.Decimal)
    shifts = [0, 0]  # the powers of ten by which integers are multiplied first; the precision includes their digits
    if slots.operation in ("add", "subtract"):
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
        shifts = [scale - a.scale, scale - b.scale]
    elif slots.operation == "multiply":
        scale, precision = a.scale + b.scale, a.precision + b.precision + 1
    else:
        scale = max(4, a.scale + b.precision - b.scale + 1)
        precision = a.precision - a.scale + b.scale + scale
        shifts = [scale + b.scale - a.scale, 0]
    type_ = create_decimal_type(precision, scale, max(a.bit_width, b.bit_width))
    dtype = primitive_layout(type_).dtype
    num_words = wide_integers.count_words(dtype)

    def calculate(*integers: Words) -> Words:
        pair = (
            each if not shift else wide_integers.multiply(each, wide_integers.create_constant(10**shift, num_words))
            for each, shift in zip(integers, shifts, strict=True)
        )
        return _WIDE_FUNCTIONS[slots.operation](*pair)

    integers = [each.buffer_values(1) for each in operands]
    if slots.operation == "divide":
        integers[1] = _replace_zeros(slots, integers[1], broadcast_length(left, right))
    return _create_array(slots, type_, wide_integers.map_slots(calculate, dtype, num_words, *integers))


def _decode_decimals(array: ArrayData) -> ArrayData:
    type_ = get_decoded_type(array.type)
    return decode_and_cast(array, integer_as_decimal(type_) if isinstance(type_, t.Int) else type_)


def _replace_zeros(slots: _Slots, divisors: Values, length: int) -> Values:
    """Raise `InvalidArgumentError` for a divisor of zero, or replace it by one under null."""
    is_zero = ~np.any(view_as_words(divisors), axis=1)
    if not is_zero.any():
        return divisors
    slots.check(broadcast(is_zero, length), "division by zero")
    out = divisors.copy()
    view_as_words(out)[is_zero, 0] = 1
    return out


# Dates, times and durations


def _calculate_times(slots: _Slots, left: ArrayData, right: ArrayData) -> ArrayData:
    types = [get_decoded_type(each.type) for each in (left, right)]
    if t.null() in types:
        types = [find_common_type(types)] * 2
    rule = _find_rule(slots.operation, *types)
    if rule is None:
        raise _mismatch_error(slots.operation, left, right)
    left_type, right_type, type_ = rule
    operands = [
        decode_and_cast(array, each).buffer_values(1).astype(np.int64)
        for array, each in ((left, left_type), (right, right_type))
    ]
    if isinstance(type_, t.FloatingPoint):
        operands = [each.astype(np.float64) for each in operands]
    values = slots.calculate(*operands)
    if isinstance(type_, t.Time):
        stop = SECONDS_PER_DAY * UNITS_PER_SECOND[type_.unit]
        slots.check((values < 0) | (values >= stop), "a time outside of the day")
    return _create_array(slots, type_, values)


def _find_rule(operation: Operation, left: t.DataType, right: t.DataType) -> tuple[t.DataType, ...] | None:
    """Return the types to which the operands are cast, and that of the result; None if there is no such operation."""
    is_duration = isinstance(left, t.Duration), isinstance(right, t.Duration)
    if operation in ("multiply", "divide"):
        if all(is_duration):
            duration = find_common_type([left, right])
            return (duration, duration, t.float64()) if operation == "divide" else None
        if is_duration[0] and isinstance(right, t.Int):
            return left, t.int64(), left
        is_product = operation == "multiply" and is_duration[1] and isinstance(left, t.Int)
        return (t.int64(), right, right) if is_product else None
    if not (isinstance(left, t.BaseTemporal) and isinstance(right, t.BaseTemporal)):
        return None
    if operation == "add" and is_duration[0] and not is_duration[1]:
        rule = _find_rule(operation, right, left)
        return rule and (rule[1], rule[0], rule[2])
    unit = find_finest_unit([_get_unit(left), _get_unit(right)])
    moment = _with_unit(left, unit)
    if is_duration[1]:
        return moment, t.Duration(unit), moment
    other = _with_unit(right, unit)
    is_difference = operation == "subtract" and type(moment) is type(other) and _are_zones_equal(left, right)
    return (moment, other, t.Duration(unit)) if is_difference else None


def _get_unit(type_: Any) -> str:
    """Return the unit of time of a type; seconds for days."""
    return "s" if type_.unit == "day" else str(type_.unit)


def _with_unit(type_: Any, unit: t.TimeUnit) -> t.DataType:
    """Return a type with another unit; a timestamp for a date."""
    return (
        t.Timestamp(unit, getattr(type_, "timezone", None))
        if isinstance(type_, t.Date | t.Timestamp)
        else type(type_)(unit)
    )


def _are_zones_equal(left: Any, right: Any) -> bool:
    """Whether two types are both with or both without a time zone; dates have none."""
    return (getattr(left, "timezone", None) is None) == (getattr(right, "timezone", None) is None)


# One operand


def _negate(is_checked: bool, array: ArrayData) -> ArrayData:
    return _map_slots("negate", is_checked, array, np.negative, wide_integers.negate)


def _absolute(is_checked: bool, array: ArrayData) -> ArrayData:
    return _map_slots("abs", is_checked, array, np.abs, wide_integers.absolute)


def _map_slots(
    name: str,
    is_checked: bool,
    array: ArrayData,
    function: Callable[[Values], Values],
    wide_function: Callable[[Words], Words],
) -> ArrayData:
    type_, valid = array.type, combine_validity(array)
    if isinstance(type_, t.Null):
        return array
    is_unsigned = isinstance(type_, t.Int) and not type_.is_signed
    supported = t.Int | t.FloatingPoint | t.Duration | t.Decimal
    if not isinstance(type_, supported) or (is_unsigned and is_checked and name == "negate"):
        raise TypeMismatchError(f"{name}: {array.type} is not supported")
    slots, layout = array.buffer_values(1), primitive_layout(type_)
    if isinstance(type_, t.Decimal):
        num_words = wide_integers.count_words(slots.dtype)
        return layout.create_array(wide_integers.map_slots(wide_function, slots.dtype, num_words, slots), valid)
    if is_checked and slots.dtype.kind == "i":
        _Slots(name, is_checked, valid).check(_is_minimum(slots), "overflow")  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        return layout.create_array(function(slots), valid)


def _find_sign(array: ArrayData) -> ArrayData:
    type_, valid = array.type, combine_validity(array)
    if isinstance(type_, t.Null):
        return array
    if not isinstance(type_, t.Int | t.FloatingPoint | t.Duration | t.Decimal):
        raise TypeMismatchError(f"sign: {type_} is not supported")
    slots = array.buffer_values(1)
    if isinstance(type_, t.FloatingPoint):
        return primitive_layout(type_).create_array(np.sign(slots), valid)
    if isinstance(type_, t.Decimal):
        words = wide_integers.to_words(slots, wide_integers.count_words(slots.dtype))
        signs = np.where(wide_integers.is_negative(words), -1, words.any(axis=0))
        return primitive_layout(t.int64()).create_array(signs.astype(np.int64), valid)
    return primitive_layout(t.int8()).create_array(np.sign(slots).astype(np.int8), valid)


def _take_root(array: ArrayData) -> ArrayData:
    type_ = array.type
    if isinstance(type_, t.Null):
        return array
    if not isinstance(type_, t.Int | t.FloatingPoint | t.Decimal):
        raise TypeMismatchError(f"sqrt: {type_} is not supported")
    floats = array if isinstance(type_, t.FloatingPoint) else decode_and_cast(array, t.float64())
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(floats.buffer_values(1))
    return primitive_layout(floats.type).create_array(roots, combine_validity(array))


def _raise_to_powers(base: ArrayData, exponent: ArrayData) -> ArrayData:
    type_ = find_common_type([base.type, exponent.type])
    if isinstance(type_, t.Null):
        return layout_of(type_).nulls(broadcast_length(base, exponent))
    if isinstance(type_, t.Decimal):
        type_ = t.float64()
    if not isinstance(type_, t.Int | t.FloatingPoint):
        raise _mismatch_error("power", base, exponent)
    slots = _Slots("power", False, combine_validity(base, exponent))
    left, right = (decode_and_cast(each, type_).buffer_values(1) for each in (base, exponent))
    if isinstance(type_, t.Int):
        is_negative = right < 0
        slots.check(broadcast(is_negative, broadcast_length(base, exponent)), "a negative power of an integer")
        right = np.where(is_negative, right.dtype.type(0), right)  # of null
    with np.errstate(all="ignore"):
        return _create_array(slots, type_, np.power(left, right))
