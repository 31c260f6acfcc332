"""Casts between numbers: integers, floats, truth values, decimals."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal as PythonDecimal, localcontext
from typing import Any

import numpy as np

from bowstring.datatypes.types import Bool, DataType, Decimal, FloatingPoint, Int
from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values, first_true
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.value_codecs.decimals import DecimalCodec

_MAX_SHIFT = 1000
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN)


def refuse(array: Array, bad: Values, why: str) -> None:
    """Raise `DataTypeError` naming the first slot that is bad and not null."""
    mask = array.mask()
    if mask is not None:
        bad = bad & mask
    if bad.any():
        at = first_true(bad)
        raise DataTypeError(f"value {at}: {array[at]!r} {why}")


def slots_of(array: Array) -> Values:
    """The slots of an array of numbers or moments, truth values as 0 and 1."""
    layout = array.layout
    return layout.bits(array).view(np.uint8) if isinstance(layout, BooleanLayout) else array.values(1)


def made(target: DataType, slots: Values, array: Array) -> Array:
    """An array of slots, null where `array` is."""
    layout = layout_of(target)
    assert isinstance(layout, (BooleanLayout, PrimitiveLayout))
    return layout.of(slots, array.mask())


def numbers(array: Array, target: DataType, safe: bool) -> Array:
    """Integers, floats and truth values as each other."""
    slots = slots_of(array)
    if isinstance(target, Bool):
        return made(target, slots != 0, array)
    if isinstance(target, Int):
        return made(target, integers(array, slots, target, safe), array)
    assert isinstance(target, FloatingPoint)
    dtype = np.dtype(f"f{target.bit_width // 8}")
    with np.errstate(over="ignore"):
        out = slots.astype(dtype)
    if safe and slots.dtype.kind == "f":
        refuse(array, np.isinf(out) & ~np.isinf(slots), f"is too large for {target}")
    elif safe and slots.dtype.itemsize > 1:
        exact = 1 << (np.finfo(dtype).nmant + 1)
        refuse(array, (slots > exact) | (slots < -exact), f"is beyond the whole numbers that {target} has exactly")
    return made(target, out, array)


def integers(array: Array, slots: Values, target: Int, safe: bool) -> Values:
    """Numbers as integers of a type; refused where they are beyond it or no whole numbers."""
    dtype = primitive_layout(target).dtype
    if safe and slots.dtype.kind == "f":
        whole = np.trunc(slots).astype(np.float64)
        bits = target.bit_width - target.is_signed
        low = -(2.0**bits) if target.is_signed else 0.0
        refuse(array, ~((whole >= low) & (whole < 2.0**bits)), f"does not fit {target}")
        refuse(array, whole != slots, f"is no whole number, as {target} needs")
    elif safe and not np.can_cast(slots.dtype, dtype):
        limits = np.iinfo(dtype)
        refuse(array, (slots < int(limits.min)) | (slots > int(limits.max)), f"does not fit {target}")
    with np.errstate(invalid="ignore"):
        return slots.astype(dtype)


def _codec(type: DataType) -> DecimalCodec:
    codec = primitive_layout(type).codec
    assert isinstance(codec, DecimalCodec)
    return codec


def _digits(array: Array) -> Values:
    """The unscaled integers of decimals, exact, as Python objects; 0 where null."""
    out = np.array([*_codec(array.type).integers(array.values(1)), None], object)[:-1]
    mask = array.mask()
    if mask is not None:
        out[~mask] = 0
    return out


def _decimals(array: Array, digits: Values, target: Decimal) -> Array:
    bound = 10**target.precision
    refuse(array, np.array([not -bound < n < bound for n in digits], np.bool_), f"does not fit {target}")
    return made(target, _codec(target).from_integers(digits.tolist()), array)


def _shifted(array: Array, digits: Values, shift: int, safe: bool) -> Values:
    """Integers times 10**shift, cut off where they are no whole ones."""
    if abs(shift) > _MAX_SHIFT:
        raise DataTypeError(f"scales that are {abs(shift)} digits apart are not cast, at most {_MAX_SHIFT}")
    if shift >= 0:
        grown: Values = digits * 10**shift
        return grown
    unit = 10**-shift
    rests = np.array([abs(n) % unit != 0 for n in digits], np.bool_)
    if safe:
        refuse(array, rests, "has digits that would be lost")
    return np.array([*(abs(n) // unit * (1 if n >= 0 else -1) for n in digits), None], object)[:-1]


def rescaled(array: Array, target: Decimal, safe: bool) -> Array:
    """Decimals of another width, precision or scale."""
    scale: int = array.type.scale  # type: ignore[attr-defined]
    return _decimals(array, _shifted(array, _digits(array), target.scale - scale, safe), target)


def to_decimal(array: Array, target: Decimal, safe: bool) -> Array:
    """Numbers as decimals; floats are rounded to the nearest."""
    slots = slots_of(array)
    mask = array.mask()
    if mask is not None:
        slots = np.where(mask, slots, slots.dtype.type(0))
    if slots.dtype.kind != "f":
        return _decimals(array, _shifted(array, slots.astype(object), target.scale, safe), target)
    refuse(array, ~np.isfinite(slots), f"is no {target}")
    if abs(target.scale) > _MAX_SHIFT:
        raise DataTypeError(f"a scale of {target.scale} is not cast, at most {_MAX_SHIFT}")
    with localcontext(_WIDE):
        digits = [_nearest(value, target.scale) for value in slots.astype(np.float64).tolist()]
    return _decimals(array, np.array([*digits, None], object)[:-1], target)


def _nearest(value: float, scale: int) -> int:
    return int(PythonDecimal(value).scaleb(scale).to_integral_value())


def from_decimal(array: Array, target: DataType, safe: bool) -> Array:
    """Decimals as numbers; to floats by the nearest."""
    digits = _digits(array)
    scale: int = array.type.scale  # type: ignore[attr-defined]
    if isinstance(target, Bool):
        return made(target, digits != 0, array)
    if isinstance(target, FloatingPoint):
        if abs(scale) > _MAX_SHIFT:
            raise DataTypeError(f"a scale of {scale} is not cast, at most {_MAX_SHIFT}")
        wide = np.array(_floats(digits.tolist(), scale), np.float64)
        with np.errstate(over="ignore"):
            out = wide.astype(f"f{target.bit_width // 8}")
        if safe:
            refuse(array, np.isinf(out), f"is too large for {target}")
        return made(target, out, array)
    whole = _shifted(array, digits, -scale, safe)
    assert isinstance(target, Int)
    dtype = primitive_layout(target).dtype
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    refuse(array, np.array([not low <= n <= high for n in whole], np.bool_), f"does not fit {target}")
    return made(target, whole.astype(dtype), array)


def _floats(digits: Sequence[Any], scale: int) -> list[float]:
    """The nearest floats, each rounded once."""
    return [float(PythonDecimal(n).scaleb(-scale, _WIDE)) for n in digits]
