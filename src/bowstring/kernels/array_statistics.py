"""Minimum, maximum and number of distinct values of a column, for statistics.

Each layout gives NumPy arrays that compare like its values (`Layout.sort_keys`), so nothing here depends on the type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np

from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import DataType
from bowstring.datatypes.types import Dictionary, RunEndEncoded
from bowstring.kernels.encode import run_end_decode
from bowstring.layouts.base import ArrayData, Layout, Values
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.dictionary import decode_dictionary
from bowstring.layouts.factorize import factorize
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.sort_keys import find_extreme_bytes, run_start_mask, stable_argsort

# The footer has two bounds for each column of each batch. Parquet cuts the bounds of column indexes at 64 bytes, too.
MAX_BOUND_BYTES = 64
MinMax: TypeAlias = tuple[ArrayData, ArrayData]
"""A minimum and a maximum, arrays of one value."""


def get_decoded_type(type_: DataType) -> DataType:
    """Return the type of the values without dictionary, run-end encoding and extension type."""
    while True:
        if isinstance(type_, ExtensionType):
            type_ = type_.storage_type
        elif isinstance(type_, Dictionary):
            type_ = type_.value_type
        elif isinstance(type_, RunEndEncoded):
            type_ = type_.values_field.type
        else:
            return type_


def decode_array(array: ArrayData) -> ArrayData:
    """Return the values without encoding and extension type; encoded values are copied."""
    decoded = get_decoded_type(array.type)
    while array.type != decoded:
        array = run_end_decode(decode_dictionary(array.storage))
    return array


@lru_cache(maxsize=1024)
def is_orderable(layout: Layout) -> bool:
    """Whether values of a plain layout have an order."""
    return layout.sort_keys(layout.from_pylist([])) is not None


def min_max(array: ArrayData, truncate: bool = True) -> MinMax | None:
    """Return the minimum and maximum of an array, nulls and NaN ignored; None if there are none, or no order.

    With `truncate`, values of more than 64 bytes are shortened: a minimum to its beginning, a maximum to a greater
    value.
    """
    if not array.length or not is_orderable(array.layout):
        return None
    layout, valid = array.layout, array.layout.logical_validity_mask(array)
    slots = None if valid is None else np.flatnonzero(valid)
    if slots is not None and not slots.size:
        return None
    if isinstance(layout, ByteStringLayout):
        shared = layout.find_values_and_indices(array)
        if shared is not None:
            values, codes = shared
            array, slots = layout.take(values, np.unique(codes if slots is None else codes[slots])), None
        data, offsets = layout.bytes_and_offsets(array)
        starts, lengths = offsets[:-1], np.diff(offsets)
        if slots is not None:
            starts, lengths = starts[slots], lengths[slots]
        indices: tuple[int, int] | None = find_extreme_bytes(data, starts, lengths)
    else:
        array, slots = array if slots is None else layout.take(array, slots), None
        indices = _find_extremes(layout.sort_keys(array))
    if indices is None:
        return None
    least, greatest = (
        decode_array(layout.take(array, np.array([index if slots is None else slots[index]]))) for index in indices
    )
    return (_truncate_bound(least, False), _truncate_bound(greatest, True)) if truncate else (least, greatest)


def _find_extremes(keys: tuple[Values, ...] | None) -> tuple[int, int] | None:
    """Return the indices of a smallest and a greatest row of keys, NaN ignored; None if there is no other."""
    indices = []
    for is_greatest in (False, True):
        # Row by row only where more significant keys are equal: `ties` are the indices of rows that are extreme so far.
        ties = None
        for key in keys or ():
            values = key if ties is None else key[ties]
            if key.dtype.kind == "f":
                extreme = (np.fmax if is_greatest else np.fmin).reduce(values)  # NaN only if there is nothing else
                if np.isnan(extreme):
                    return None
            else:
                extreme = values.max() if is_greatest else values.min()
            equal = np.flatnonzero(values == extreme)
            ties = equal if ties is None else ties[equal]
        assert ties is not None
        indices.append(int(ties[0]))
    return indices[0], indices[1]


def _truncate_bound(array: ArrayData, rounds_up: bool) -> ArrayData:
    if isinstance(array.layout, PrimitiveLayout):
        return array
    value = array.to_pylist()[0]
    if not isinstance(value, str | bytes):
        return array
    size_bytes = len(value.encode()) if isinstance(value, str) else len(value)
    if size_bytes <= MAX_BOUND_BYTES:
        return array
    short = (
        value[:MAX_BOUND_BYTES]
        if isinstance(value, bytes)
        else value.encode()[:MAX_BOUND_BYTES].decode(errors="ignore")
    )
    # Cutting a maximum makes it smaller, so its last byte or character is increased. A minimum only becomes smaller.
    truncated = get_upper_bound_of_prefix(short) if rounds_up else short
    return array if truncated is None else array.layout.from_pylist([truncated])


def get_upper_bound_of_prefix(prefix: str | bytes) -> str | bytes | None:
    """Return a value, not longer than a prefix, that is greater than all values with it; None if there is none."""
    if isinstance(prefix, bytes):
        # 0xff has no successor: the byte before is increased instead.
        stem = prefix.rstrip(b"\xff")
        return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return None
    # Surrogates, 0xD800 to 0xDFFF, are not characters; code points and UTF-8 have the same order.
    following = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if following == 0xD800 else following)


def count_distinct(array: ArrayData) -> int:
    """Return the number of distinct values of an array without nulls, all NaN counted as one."""
    return len(factorize(array)[1])


def compute_dense_ranks(array: ArrayData) -> Values:
    """Return integers that compare like the values of a plain array without nulls."""
    keys = array.layout.sort_keys(array)
    assert keys is not None
    order, ranks = stable_argsort(keys), np.empty(array.length, np.int64)
    ranks[order] = np.cumsum(run_start_mask(*(key[order] for key in keys))) - 1
    return ranks


def has_nan(array: ArrayData) -> bool:
    """Whether a plain array without nulls contains NaN."""
    keys = array.layout.sort_keys(array)
    return keys is not None and keys[0].dtype.kind == "f" and bool(np.isnan(keys[0]).any())
