"""Compute functions as methods of arrays, such as `array.filter(mask)`.

`bowstring.compute` implements them. It imports arrays, so the methods import it when they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bowstring.layouts.base import Values

if TYPE_CHECKING:
    from bowstring.compute.sort import NullPlacement, Order
    from bowstring.datatypes.base import TypeLike
    from bowstring.layouts.array import Array


def filter(array: Array, mask: Sequence[bool | None] | Values | Array) -> Array:  # noqa: A001 -- a method's name
    """Return the slots for which `mask` is true, copied; a null in the mask drops its slot.

    Raises `UsageError` if the mask is not boolean or its length differs from the array's.
    """
    from bowstring.compute import filter as selection

    return selection.filter_array(array, mask)


def is_null(array: Array, nan_is_null: bool = False) -> Array:
    """Return a boolean array that is true for nulls, and with `nan_is_null` also for NaN.

    Nulls in a dictionary, a run or a union's child count as null.
    """
    from bowstring.compute import nulls

    return nulls.is_null(array, nan_is_null)


def drop_null(array: Array) -> Array:
    """Return the slots that are not null, copied if there are nulls."""
    from bowstring.compute import nulls

    return nulls.drop_null(array)


def fill_null(array: Array, fill_value: Any) -> Array:
    """Replace nulls by `fill_value`, a Python value of the array's type; copies if there are nulls.

    Raises `DataTypeError` if the value does not fit the type.
    """
    from bowstring.compute import nulls

    return nulls.fill_null(array, fill_value)


def sort_indices(array: Array, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """Return the uint64 indices that sort the array; the sort is stable (`bowstring.compute.sort`).

    Nulls, and NaN next to them, come last or first. Raises `DataTypeError` if the type has no order.
    """
    from bowstring.compute import sort as ordering

    return ordering.sort_indices(array, order, null_placement)


def sort(array: Array, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """Return the sorted values, copied, in the order of `sort_indices`."""
    return array.take(array.sort_indices(order, null_placement))


def cast(array: Array, target_type: TypeLike, safe: bool = True) -> Array:
    """Cast the values to another type, copied if they change (`bowstring.compute.cast`).

    The type is a Bowstring type, a type of another library, or a name such as "int64".

    Raises `DataTypeError` if there is no such cast or, naming the value, if a value overflows or loses information.
    With `safe=False` such a value wraps around or is truncated. Strings that cannot be parsed always raise.
    """
    from bowstring.compute import cast as casting

    return casting.cast(array, target_type, safe)


def unique(array: Array) -> Array:
    """Return the distinct values in order of first appearance, copied. All NaNs are one value, and so are all nulls."""
    from bowstring.compute import encode

    return encode.unique(array)


def dictionary_encode(array: Array, index_type: TypeLike | None = None) -> Array:
    """Dictionary-encode the array, with int32 indices by default; returns a dictionary-encoded array as it is.

    Raises `DataTypeError` if there are too many distinct values for the index type.
    """
    from bowstring.compute import encode

    return encode.dictionary_encode(array, index_type)


def run_end_encode(array: Array, run_end_type: TypeLike | None = None) -> Array:
    """Run-end encode the array, with int32 run ends by default; returns a run-end encoded array as it is."""
    from bowstring.compute import encode

    return encode.run_end_encode(array, run_end_type)


def run_end_decode(array: Array) -> Array:
    """Decode a run-end encoded array, copied; returns any other array as it is."""
    from bowstring.compute import encode

    return encode.run_end_decode(array)


def dictionary_decode(array: Array) -> Array:
    """Decode a dictionary-encoded array, copied; returns any other array as it is."""
    from bowstring.layouts.dictionary import decode_dictionary

    return decode_dictionary(array)
