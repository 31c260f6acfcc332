"""Casts between integers, floats, booleans and decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal as PythonDecimal, localcontext

import numpy as np

from bowstring.datatypes.types import Bool, DataType, Decimal, FloatingPoint, Int
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, Values, find_first_true, to_object_array
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.value_codecs.decimals import DecimalCodec

_MAX_SCALE_CHANGE = 1000
_WIDE_CONTEXT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def raise_if_any_invalid(array: ArrayData, invalid: Values, fault: str) -> None:
    """Raise `TypeMismatchError` naming the first slot that is invalid and not null."""
    mask = array.validity_mask()
    if mask is not None:
        invalid = invalid & mask
    if invalid.any():
        index = find_first_true(invalid)
        raise TypeMismatchError(f"value {index}: {array.layout.value_at(array, index)!r} {fault}")


def to_numeric_slots(array: ArrayData) -> Values:
    """Return the slots of a numeric or temporal array, booleans as 0 and 1."""
    layout = array.layout
    return layout.unpack_values(array).view(np.uint8) if isinstance(layout, BooleanLayout) else array.buffer_values(1)


def build_with_validity(target: DataType, slots: Values, array: ArrayData) -> ArrayData:
    """Build an array of slots with the validity of `array`."""
    layout = layout_of(target)
    assert isinstance(layout, (BooleanLayout, PrimitiveLayout))
    return layout.create_array(slots, array.validity_mask())


def cast_numbers(array: ArrayData, target: DataType, safe: bool) -> ArrayData:
    """Cast between integers, floats and booleans."""
    slots = to_numeric_slots(array)
    if isinstance(target, Bool):
        return build_with_validity(target, slots != 0, array)
    if isinstance(target, Int):
        return build_with_validity(target, cast_slots_to_integers(array, slots, target, safe), array)
    assert isinstance(target, FloatingPoint)
    dtype = np.dtype(f"f{target.bit_width // 8}")
    with np.errstate(over="ignore"):
        out = slots.astype(dtype)
    if safe and slots.dtype.kind == "f":
        raise_if_any_invalid(array, np.isinf(out) & ~np.isinf(slots), f"is too large for {target}")
    elif safe and slots.dtype.itemsize > 1:
        exact = 1 << (np.finfo(dtype).nmant + 1)
        raise_if_any_invalid(array, (slots > exact) | (slots < -exact), f"is not exactly representable as {target}")
    return build_with_validity(target, out, array)


def cast_slots_to_integers(array: ArrayData, slots: Values, target: Int, safe: bool) -> Values:
    """Convert numbers to integers of a type. Raises `TypeMismatchError` for overflow or fractions if `safe`."""
    dtype = primitive_layout(target).dtype
    if safe and slots.dtype.kind == "f":
        whole = np.trunc(slots).astype(np.float64)
        bits = target.bit_width - target.is_signed
        low = -(2.0**bits) if target.is_signed else 0.0
        raise_if_any_invalid(array, ~((whole >= low) & (whole < 2.0**bits)), f"does not fit {target}")
        raise_if_any_invalid(array, whole != slots, f"can't be converted to {target} without loss")
    elif safe and not np.can_cast(slots.dtype, dtype):
        limits = np.iinfo(dtype)
        raise_if_any_invalid(array, (slots < int(limits.min)) | (slots > int(limits.max)), f"does not fit {target}")
    with np.errstate(invalid="ignore"):
        return slots.astype(dtype)


def get_decimal_codec(type: DataType) -> DecimalCodec:
    """Return the codec of a decimal type."""
    codec = primitive_layout(type).codec
    assert isinstance(codec, DecimalCodec)
    return codec


def get_unscaled_integers(array: ArrayData) -> Values:
    """Return the unscaled integers of decimals as Python integers; 0 for null."""
    out = to_object_array(get_decimal_codec(array.type).decode_unscaled(array.buffer_values(1)))
    mask = array.validity_mask()
    if mask is not None:
        out[~mask] = 0
    return out


def _build_decimals(array: ArrayData, digits: Values, target: Decimal) -> ArrayData:
    """Build decimals of unscaled integers, with the validity of `array`. Raises `TypeMismatchError` naming its first
    value whose integer has too many digits.
    """
    bound = 10**target.precision
    raise_if_any_invalid(array, np.array([not -bound < n < bound for n in digits], np.bool_), f"does not fit {target}")
    return build_with_validity(target, get_decimal_codec(target).encode_unscaled(digits.tolist()), array)


def rescale(array: ArrayData, digits: Values, shift: int, safe: bool) -> Values:
    """Multiply integers by 10**shift, truncating if not `safe`."""
    if abs(shift) > _MAX_SCALE_CHANGE:
        raise TypeMismatchError(f"can't change a scale by {abs(shift)} digits, at most by {_MAX_SCALE_CHANGE}")
    if shift >= 0:
        scaled: Values = digits * 10**shift
        return scaled
    unit = 10**-shift
    has_fraction = np.array([abs(n) % unit != 0 for n in digits], np.bool_)
    if safe:
        raise_if_any_invalid(array, has_fraction, "has digits that would be lost")
    return to_object_array([abs(n) // unit * (1 if n >= 0 else -1) for n in digits])


def cast_decimals(array: ArrayData, target: Decimal, safe: bool) -> ArrayData:
    """Cast decimals to another width, precision or scale."""
    scale: int = array.type.scale  # type: ignore[attr-defined]
    return _build_decimals(array, rescale(array, get_unscaled_integers(array), target.scale - scale, safe), target)


def cast_to_decimal(array: ArrayData, target: Decimal, safe: bool) -> ArrayData:
    """Cast numbers to decimals. Floats are rounded to the nearest decimal."""
    slots = to_numeric_slots(array)
    mask = array.validity_mask()
    if mask is not None:
        slots = np.where(mask, slots, slots.dtype.type(0))
    if slots.dtype.kind != "f":
        return _build_decimals(array, rescale(array, slots.astype(object), target.scale, safe), target)
    raise_if_any_invalid(array, ~np.isfinite(slots), f"can't be converted to {target}")
    if abs(target.scale) > _MAX_SCALE_CHANGE:
        raise TypeMismatchError(f"can't cast to a scale of {target.scale}, at most {_MAX_SCALE_CHANGE}")
    with localcontext(_WIDE_CONTEXT):
        values = map(PythonDecimal, slots.astype(np.float64).tolist())
        digits = [int(value.scaleb(target.scale).to_integral_value()) for value in values]
    return _build_decimals(array, to_object_array(digits), target)


def cast_from_decimal(array: ArrayData, target: DataType, safe: bool) -> ArrayData:
    """Cast decimals to numbers, to the nearest if the target is a float."""
    digits = get_unscaled_integers(array)
    scale: int = array.type.scale  # type: ignore[attr-defined]
    if isinstance(target, Bool):
        return build_with_validity(target, digits != 0, array)
    if isinstance(target, FloatingPoint):
        if abs(scale) > _MAX_SCALE_CHANGE:
            raise TypeMismatchError(f"can't cast from a scale of {scale}, at most {_MAX_SCALE_CHANGE}")
        wide = np.array([float(PythonDecimal(n).scaleb(-scale, _WIDE_CONTEXT)) for n in digits], np.float64)
        with np.errstate(over="ignore"):
            out = wide.astype(f"f{target.bit_width // 8}")
        if safe:
            raise_if_any_invalid(array, np.isinf(out), f"is too large for {target}")
        return build_with_validity(target, out, array)
    whole = rescale(array, digits, -scale, safe)
    assert isinstance(target, Int)
    dtype = primitive_layout(target).dtype
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    raise_if_any_invalid(array, np.array([not low <= n <= high for n in whole], np.bool_), f"does not fit {target}")
    return build_with_validity(target, whole.astype(dtype), array)
