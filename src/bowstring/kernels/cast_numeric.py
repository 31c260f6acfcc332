"""Casts between integers, floats, booleans and decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal as PythonDecimal, localcontext

import numpy as np

from bowstring.datatypes.types import MAX_DECIMAL_DIGITS, Bool, DataType, Decimal, FloatingPoint, Int
from bowstring.errors import TypeMismatchError
from bowstring.kernels import wide_integers
from bowstring.kernels.wide_integers import Words
from bowstring.layouts.base import ArrayData, Values, find_first_true
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.value_codecs.base import view_as_words
from bowstring.layouts.value_codecs.decimals import DecimalCodec, is_within

# A float64 is 0 or between 10**-324 and 10**309, and a decimal has at most 76 digits: beyond, results are 0 or do not
# fit.
_MAX_SCALE_CHANGE = 1000
_MAX_INT64_DIGITS = 20  # of 2**64 - 1, for uint64
_EXACT_INTEGERS, _MAX_EXACT_SCALE = 1 << 53, 22
"""Integers up to this one, and powers of ten up to this one, are exact as float64."""
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
        # All integers up to this one are exact; of the larger ones some are, and are rejected as by pyarrow.
        exact = 1 << (np.finfo(dtype).nmant + 1)
        raise_if_any_invalid(array, (slots > exact) | (slots < -exact), f"is not exactly representable as {target}")
    return build_with_validity(target, out, array)


def cast_slots_to_integers(array: ArrayData, slots: Values, target: Int, safe: bool) -> Values:
    """Convert numbers to integers of a type. Raises `TypeMismatchError` for overflow or fractions if `safe`."""
    dtype = primitive_layout(target).dtype
    if safe and slots.dtype.kind == "f":
        # Bounds are powers of two, exact as float64. NaN fails both comparisons, and so is not "within".
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


def _rescale(array: ArrayData, words: Words, shift: int, target: DataType, precision: int, safe: bool) -> Words:
    """Multiply integers by 10**shift, truncating if not `safe`.

    Raises `TypeMismatchError` naming the first value of which digits are lost, or that has more than `precision`.
    """
    if shift < 0:
        # Integers have at most 76 digits, so that a power of ten that fits is large enough.
        words, is_rounded = wide_integers.divide(words, min(-shift, MAX_DECIMAL_DIGITS[64 * len(words)]))
        if safe:
            raise_if_any_invalid(array, is_rounded, "has digits that would be lost")
        shift = 0
    # Checked before multiplying: below 10**(precision - shift), the product is below 10**precision, which fits the
    # words of the target (10**38 < 2**127, 10**76 < 2**255).
    is_too_large = ~is_within(words, 10 ** max(precision - shift, 0))
    raise_if_any_invalid(array, is_too_large, f"does not fit {target}")
    return wide_integers.multiply(words, min(shift, precision))  # if `shift` is greater, all integers are 0


def cast_decimals(array: ArrayData, target: Decimal, safe: bool) -> ArrayData:
    """Cast decimals to another width, precision or scale."""
    scale: int = array.type.scale  # type: ignore[attr-defined]
    return _build_decimals(array, array.buffer_values(1), target.scale - scale, target, safe)


def _build_decimals(array: ArrayData, slots: Values, shift: int, target: Decimal, safe: bool) -> ArrayData:
    """Build decimals of the integers in slots, multiplied by 10**shift, with the validity of `array`."""
    dtype = primitive_layout(target).dtype
    words = wide_integers.to_words(slots, wide_integers.count_words(slots.dtype, dtype))
    words = _rescale(array, words, shift, target, target.precision, safe)
    return build_with_validity(target, wide_integers.to_slots(words, dtype), array)


def cast_to_decimal(array: ArrayData, target: Decimal, safe: bool) -> ArrayData:
    """Cast numbers to decimals. Floats are rounded to the nearest decimal."""
    slots = to_numeric_slots(array)
    if slots.dtype.kind != "f":
        return _build_decimals(array, slots, target.scale, target, safe)
    mask = array.validity_mask()
    if mask is not None:
        slots = np.where(mask, slots, slots.dtype.type(0))
    raise_if_any_invalid(array, ~np.isfinite(slots), f"can't be converted to {target}")
    if abs(target.scale) > _MAX_SCALE_CHANGE:
        raise TypeMismatchError(f"can't cast to a scale of {target.scale}, at most {_MAX_SCALE_CHANGE}")
    with localcontext(_WIDE_CONTEXT):
        values = map(PythonDecimal, slots.astype(np.float64).tolist())
        digits = [int(value.scaleb(target.scale).to_integral_value()) for value in values]
    bound = 10**target.precision
    is_too_large = np.array([not -bound < integer < bound for integer in digits], np.bool_)
    raise_if_any_invalid(array, is_too_large, f"does not fit {target}")
    return build_with_validity(target, get_decimal_codec(target).encode_unscaled(digits), array)


def cast_from_decimal(array: ArrayData, target: DataType, safe: bool) -> ArrayData:
    """Cast decimals to numbers, to the nearest if the target is a float."""
    slots = array.buffer_values(1)
    scale: int = array.type.scale  # type: ignore[attr-defined]
    if isinstance(target, Bool):
        return build_with_validity(target, np.any(view_as_words(slots), axis=1), array)
    if isinstance(target, FloatingPoint):
        wide = _decimals_to_floats(array, slots, scale)
        with np.errstate(over="ignore"):
            out = wide.astype(f"f{target.bit_width // 8}")
        if safe:
            raise_if_any_invalid(array, np.isinf(out), f"is too large for {target}")
        return build_with_validity(target, out, array)
    words = wide_integers.to_words(slots, wide_integers.count_words(slots.dtype))
    words = _rescale(array, words, -scale, target, _MAX_INT64_DIGITS, safe)
    integers = words[0].astype(primitive_layout(target).dtype)
    is_truncated = (wide_integers.to_words(integers, len(words)) != words).any(axis=0)
    raise_if_any_invalid(array, is_truncated, f"does not fit {target}")
    return build_with_validity(target, integers, array)


def _decimals_to_floats(array: ArrayData, slots: Values, scale: int) -> Values:
    """Return the nearest float64 of each decimal. A quotient of floats is the nearest if both are exact: integers below
    2**53, powers of ten up to 10**22. Other decimals take a hundred times as long.
    """
    if abs(scale) > _MAX_SCALE_CHANGE:
        raise TypeMismatchError(f"can't cast from a scale of {scale}, at most {_MAX_SCALE_CHANGE}")
    words = wide_integers.to_words(slots, wide_integers.count_words(slots.dtype))
    is_exact = is_within(words, _EXACT_INTEGERS) & (abs(scale) <= _MAX_EXACT_SCALE)
    unit = 10.0 ** min(abs(scale), _MAX_EXACT_SCALE)
    integers = words[0].view(np.int64).astype(np.float64)
    floats: Values = integers / unit if scale >= 0 else integers * unit
    mask = array.validity_mask()
    others = np.flatnonzero(~is_exact if mask is None else mask & ~is_exact)
    digits = get_decimal_codec(array.type).decode_unscaled(slots[others])
    floats[others] = [float(PythonDecimal(number).scaleb(-scale, _WIDE_CONTEXT)) for number in digits]
    return floats
