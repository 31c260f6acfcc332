"""Comparing values in their order: numbers, booleans and times, decimals, strings by their bytes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.sort_keys import ByteStrings, compare_bytes, compare_keys
from bowstring.layouts.value_codecs.fixed_size_binary import FixedSizeBinaryCodec
from bowstring.memory.bitmap import Mask

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def compare(array: ArrayData, symbol: str, other: ArrayData) -> Mask:
    """Compare the slots of a plain array with the only value of another of its type; slots of nulls may match. The type
    has an order.
    """
    comparison: Callable[[Any, Any], Mask] = COMPARISONS[symbol]
    keys = get_order_keys(array)
    if keys is not None:
        bounds = get_order_keys(other) or ()
        return comparison(keys[0], bounds[0]) if len(keys) == 1 else comparison(compare_keys(keys, bounds), 0)
    data, starts, lengths = get_byte_strings(other)
    bound = data[starts[0] : starts[0] + lengths[0]].tobytes()
    shared = array.layout.find_values_and_indices(array) if isinstance(array.layout, ByteStringLayout) else None
    if shared is None:
        return comparison(compare_bytes(get_byte_strings(array), bound), 0)
    values, codes = shared  # the values may share bytes as well, such as parts of one text
    return comparison(compare_bytes(get_byte_strings(values), bound), 0)[codes]


def get_order_keys(array: ArrayData) -> tuple[Values, ...] | None:
    """Return the sort keys of a plain array; None for byte strings, whose keys depend on the other values."""
    layout = array.layout
    if isinstance(layout, ByteStringLayout):
        return None
    if isinstance(layout, PrimitiveLayout) and isinstance(layout.codec, FixedSizeBinaryCodec):
        return None
    return layout.sort_keys(array)


def get_byte_strings(array: ArrayData) -> ByteStrings:
    """Return the bytes of an array of byte strings, and where its values are in them."""
    layout = array.layout
    if isinstance(layout, ByteStringLayout):
        data, offsets = layout.bytes_and_offsets(array)
    else:
        assert isinstance(layout, PrimitiveLayout)
        assert isinstance(layout.codec, FixedSizeBinaryCodec)
        data, offsets = layout.codec.bytes_and_offsets(array.buffer_values(1))
    return data, offsets[:-1], np.diff(offsets)
