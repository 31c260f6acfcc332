"""Rounding of numbers to whole ones, or to a number of digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from bowstring.compute.operands import combine_validity, map_operands, map_valid_values
from bowstring.datatypes import types as t
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels import wide_integers
from bowstring.kernels.cast import cast
from bowstring.kernels.wide_integers import Words
from bowstring.layouts.base import ArrayData, Values, find_first_true
from bowstring.layouts.registry import primitive_layout
from bowstring.memory.bitmap import Mask

_MAX_DIGITS = 20
"""A number of digits that no integer has."""
RoundMode: TypeAlias = Literal[
    "down",
    "up",
    "towards_zero",
    "towards_infinity",
    "half_down",
    "half_up",
    "half_towards_zero",
    "half_towards_infinity",
    "half_to_even",
    "half_to_odd",
]


_WHOLE_NUMBERS: dict[str, Callable[[Values], Values]] = {
    "down": np.floor,
    "up": np.ceil,
    "towards_zero": np.trunc,
    "half_to_even": np.rint,
}
"""The functions of NumPy that round floats to whole numbers, by mode."""


def round(x: Any, ndigits: int = 0, round_mode: RoundMode = "half_to_even") -> Any:  # noqa: A001 -- pyarrow's name
    """Round numbers to a number of decimal places, or with a negative number to powers of ten.

    The modes with `half` round to the nearest number, and differ in which of two equally near ones they choose. "down"
    is towards negative infinity. Raises `InvalidArgumentError` if a number does not fit its type, `TypeMismatchError`
    for other types.

    >>> bs.compute.round([1.5, None, -2.25], 1)
    <bowstring.Array double[3]>
    [1.5, null, -2.2]
    >>> bs.compute.round([15, 25], -1, round_mode="half_up")
    <bowstring.Array int64[2]>
    [20, 30]
    """
    if round_mode not in get_args(RoundMode):
        raise InvalidArgumentError(f"round: expected one of {', '.join(get_args(RoundMode))}, found {round_mode!r}")
    return map_operands(partial(map_valid_values, partial(_round, "round", ndigits, round_mode)), x)


def floor(x: Any) -> Any:
    """Return the greatest whole numbers that are not greater: floats for integers, decimals for decimals.

    >>> bs.compute.floor([1.5, None, -2.5])
    <bowstring.Array double[3]>
    [1.0, null, -3.0]
    """
    return _round_to_whole("floor", "down", x)


def ceil(x: Any) -> Any:
    """Return the least whole numbers that are not less; as `floor`.

    >>> bs.compute.ceil([1.5, None, -2.5])
    <bowstring.Array double[3]>
    [2.0, null, -2.0]
    """
    return _round_to_whole("ceil", "up", x)


def trunc(x: Any) -> Any:
    """Return numbers without their decimal places; as `floor`.

    >>> bs.compute.trunc([1.5, None, -2.5])
    <bowstring.Array double[3]>
    [1.0, null, -2.0]
    """
    return _round_to_whole("trunc", "towards_zero", x)


def _round_to_whole(name: str, mode: RoundMode, values: Any) -> Any:
    def round_array(array: ArrayData) -> ArrayData:
        return _round(name, 0, mode, cast(array, t.float64()) if isinstance(array.type, t.Int) else array)

    return map_operands(partial(map_valid_values, round_array), values)


def _round(name: str, ndigits: int, mode: RoundMode, array: ArrayData) -> ArrayData:
    type_ = array.type
    if isinstance(type_, t.Null):
        return array
    if not isinstance(type_, t.Int | t.FloatingPoint | t.Decimal):
        raise TypeMismatchError(f"{name}: expected numbers, found {type_}")
    slots, valid = array.buffer_values(1), combine_validity(array)

    def check(invalid: Values, fault: str) -> None:
        if valid is not None:
            invalid = invalid & valid
        if invalid.any():
            raise InvalidArgumentError(f"{name}: {fault} at index {find_first_true(invalid)}")

    if isinstance(type_, t.FloatingPoint):
        rounded = _round_floats(slots, ndigits, mode, check)
    elif isinstance(type_, t.Int):
        rounded = slots if ndigits >= 0 else _round_integers(slots, 10 ** min(-ndigits, _MAX_DIGITS), mode, check)
    else:
        rounded = slots if ndigits >= type_.scale else _round_decimals(slots, type_, type_.scale - ndigits, mode, check)
    return primitive_layout(type_).create_array(rounded, valid)


def _rounds_away(mode: str, is_negative: Mask, is_odd: Callable[[], Mask], above_half: Mask, is_half: Mask) -> Any:
    """Return which numbers are rounded away from zero, given whether the quotient by the unit is odd, and the remainder
    is above or equal to half of the unit. It is not zero.
    """
    if mode.startswith("half_"):
        tie_mode = mode.removeprefix("half_")
        return above_half | (is_half & _rounds_away(tie_mode, is_negative, is_odd, above_half, is_half))
    choices: dict[str, Callable[[], Any]] = {
        "down": lambda: is_negative,
        "up": lambda: ~is_negative,
        "towards_zero": lambda: False,
        "towards_infinity": lambda: True,
        "to_even": is_odd,
        "to_odd": lambda: ~is_odd(),
    }
    return choices[mode]()


def _round_floats(slots: Values, ndigits: int, mode: str, check: Callable[[Values, str], None]) -> Values:
    if ndigits == 0 and mode in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS[mode](slots)
    unit = slots.dtype.type(10.0 ** min(abs(ndigits), 308))
    with np.errstate(all="ignore"):
        scaled = slots * unit if ndigits >= 0 else slots / unit
        whole = np.trunc(scaled)
        remainders = np.abs(scaled - whole)
        away = _rounds_away(
            mode, slots < 0, lambda: whole / 2 != np.trunc(whole / 2), remainders > 0.5, remainders == 0.5
        )
        rounded = whole + np.copysign(away, slots).astype(slots.dtype)
        rounded = np.copysign(rounded / unit if ndigits > 0 else rounded * unit, slots)
    is_changed = np.isfinite(slots) & (remainders != 0)
    check(is_changed & ~np.isfinite(rounded), "overflow")
    return np.where(is_changed, rounded, slots)


def _round_integers(slots: Values, unit: int, mode: str, check: Callable[[Values, str], None]) -> Values:
    limits = np.iinfo(slots.dtype)
    if unit > limits.max:
        raise InvalidArgumentError(f"round: multiples of {unit} are out of range for {slots.dtype}")
    remainders = np.fmod(slots, slots.dtype.type(unit))
    truncated = slots - remainders
    # The absolute value of a remainder is less than the unit, so that these can't overflow.
    sizes, half = np.abs(remainders), unit // 2
    is_negative = slots < 0
    away = (remainders != 0) & _rounds_away(
        mode, is_negative, lambda: truncated // slots.dtype.type(unit) % 2 != 0, sizes > half, sizes == half
    )
    check(away & ~is_negative & (truncated > limits.max - unit), "overflow")
    check(away & is_negative & (truncated < limits.min + unit), "overflow")
    steps = np.where(is_negative, -unit, unit).astype(slots.dtype)
    with np.errstate(over="ignore"):
        rounded: Values = np.where(away, truncated + steps, truncated)
    return rounded


def _round_decimals(
    slots: Values, type_: t.Decimal, num_digits: int, mode: str, check: Callable[[Values, str], None]
) -> Values:
    """Round decimals to multiples of 10**num_digits of their last digit."""
    if num_digits >= type_.precision:
        raise InvalidArgumentError(f"round: multiples of 10**{num_digits} of the last digit do not fit {type_}")
    num_words = wide_integers.count_words(slots.dtype)
    unit = wide_integers.create_constant(10**num_digits, num_words)
    half = wide_integers.create_constant(10**num_digits // 2, num_words)

    def round_block(integers: Words) -> Words:
        quotients = wide_integers.divide(integers, unit)
        remainders = wide_integers.subtract(integers, wide_integers.multiply(quotients, unit))
        sizes, is_negative = wide_integers.absolute(remainders), wide_integers.is_negative(integers)
        above_half, is_half = wide_integers.is_less_unsigned(half, sizes), (sizes == half).all(axis=0)
        away = _rounds_away(mode, is_negative, lambda: (quotients[0] & np.uint64(1)) != 0, above_half, is_half)
        steps = np.where(is_negative, -1, 1) * (away & remainders.any(axis=0))
        return wide_integers.multiply(wide_integers.add(quotients, wide_integers.to_words(steps, num_words)), unit)

    rounded = wide_integers.map_slots(round_block, slots.dtype, num_words, slots)
    sizes = wide_integers.absolute(wide_integers.to_words(rounded, num_words))
    bound = wide_integers.create_constant(10**type_.precision, num_words)
    check(~wide_integers.is_less_unsigned(sizes, bound), f"a number that does not fit {type_}")
    return rounded
