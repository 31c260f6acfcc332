"""The everyday verbs as methods of arrays, because `array.filter(mask)` reads best. What they do is the business of
`bowstring.compute`, which knows arrays, and so is imported when a verb is called.
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
    """The slots at which `mask` is true, copied; a null in the mask drops its slot. Raises `UsageError` where the
    mask is not boolean, or not of the array's length.
    """
    from bowstring.compute import filter as selection

    return selection.filter_array(array, mask)


def is_null(array: Array, nan_is_null: bool = False) -> Array:
    """An array of booleans: which slots hold no value; with `nan_is_null` also those that hold NaN.

    A null in a dictionary, in a run or in the member of a union is one.
    """
    from bowstring.compute import nulls

    return nulls.is_null(array, nan_is_null)


def drop_null(array: Array) -> Array:
    """The slots that hold a value; copied where there are others."""
    from bowstring.compute import nulls

    return nulls.drop_null(array)


def fill_null(array: Array, fill_value: Any) -> Array:
    """The array with `fill_value`, a Python value of its type, in the place of nulls; copied where there are any.

    Raises `DataTypeError` where the value does not fit the type.
    """
    from bowstring.compute import nulls

    return nulls.fill_null(array, fill_value)


def sort_indices(array: Array, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """The uint64 indices that put the array in order; equal values stay in theirs (`bowstring.compute.sort`).

    Nulls, and NaN next to them, come last or first. Raises `DataTypeError` for a type without order.
    """
    from bowstring.compute import sort as ordering

    return ordering.sort_indices(array, order, null_placement)


def sort(array: Array, order: Order = "ascending", null_placement: NullPlacement = "at_end") -> Array:
    """The values in order, copied, as `sort_indices`."""
    return array.take(array.sort_indices(order, null_placement))


def cast(array: Array, target_type: TypeLike, safe: bool = True) -> Array:
    """The values as those of another type, copied where they change (`bowstring.compute.cast`).

    The type is one of ours or of another library, or the name of one, such as "int64".

    Raises `DataTypeError` where there is no such cast and, naming the value, where one overflows or would lose part
    of itself; with `safe=False` such a value wraps around or is cut off. Text that spells no value is always
    refused.
    """
    from bowstring.compute import cast as casting

    return casting.cast(array, target_type, safe)


def unique(array: Array) -> Array:
    """The distinct values in the order of their first appearance, copied; every NaN is one, and so is null."""
    from bowstring.compute import encode

    return encode.unique(array)


def dictionary_encode(array: Array, index_type: TypeLike | None = None) -> Array:
    """The array as indices (int32 by default) into its distinct values; one that is encoded as it is.

    Raises `DataTypeError` where the distinct values are too many for the indices.
    """
    from bowstring.compute import encode

    return encode.dictionary_encode(array, index_type)


def run_end_encode(array: Array, run_end_type: TypeLike | None = None) -> Array:
    """The array as runs of the same value, with run ends of int32 by default; one that is encoded as it is."""
    from bowstring.compute import encode

    return encode.run_end_encode(array, run_end_type)


def run_end_decode(array: Array) -> Array:
    """A run-end encoded array as plain values, copied; any other array as it is."""
    from bowstring.compute import encode

    return encode.run_end_decode(array)


def dictionary_decode(array: Array) -> Array:
    """A dictionary-encoded array as plain values, copied; any other array as it is."""
    from bowstring.layouts.dictionary import decode_dictionary

    return decode_dictionary(array)
