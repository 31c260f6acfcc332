"""Minimum, maximum and number of distinct values of a column, for statistics.

Each layout gives NumPy arrays that compare like its values (`Layout.sort_keys`), so nothing here depends on the type.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from bowstring.compute.encode import run_end_decode
from bowstring.datatypes.base import DataType
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.nested import RunEndEncoded
from bowstring.datatypes.types import Dictionary
from bowstring.layouts.base import ArrayData, Indices, Layout, Values
from bowstring.layouts.binary import BinaryLayout
from bowstring.layouts.dictionary import decode_dictionary
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.sort_keys import run_start_mask

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


def is_orderable(layout: Layout) -> bool:
    """Whether values of a plain layout have an order."""
    return layout.sort_keys(layout.from_pylist([])) is not None


def min_max(array: ArrayData, truncate: bool = True) -> MinMax | None:
    """Return the minimum and maximum of an array without nulls, NaN ignored; None if it is empty or has no order.

    With `truncate`, values of more than 64 bytes are shortened: a minimum to its beginning, a maximum to a greater
    value.
    """
    if not array.length or not is_orderable(array.layout):
        return None
    least, greatest = (_select_extreme(array, side) for side in (np.min, np.max))
    if least is None or greatest is None:
        return None
    return (_truncate_bound(least, False), _truncate_bound(greatest, True)) if truncate else (least, greatest)


def _select_extreme(array: ArrayData, reduce: Any) -> ArrayData | None:
    prefixes = _prefixes_as_integers(array)
    if prefixes is not None:
        array = array.layout.take(array, np.flatnonzero(prefixes == reduce(prefixes)))
    keys = array.layout.sort_keys(array)
    assert keys is not None
    indices: Indices = np.arange(array.length)
    if keys[0].dtype.kind == "f":
        indices = np.flatnonzero(~np.isnan(keys[0]))
        if not indices.size:
            return None
    for key in keys:
        values = key[indices]
        indices = indices[values == reduce(values)]
    return decode_array(array.layout.take(array, indices[:1]))


def _prefixes_as_integers(array: ArrayData) -> Values | None:
    """Return the first eight bytes of strings with offsets as integers, to select the few strings to compare."""
    layout = array.layout
    if not isinstance(layout, BinaryLayout):
        return None
    offsets = layout.offsets(array).astype(np.int64)
    data = layout.data_buffer(array).bytes
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[: len(data)] = data
    words = np.ndarray((len(data) + 1,), np.dtype(">u8"), padded.data, 0, (1,))
    lengths = np.minimum(np.diff(offsets), 8)
    shift = ((8 - lengths) * 8).astype(np.uint64) % np.uint64(64)
    first_words = words[offsets[:-1]].astype(np.uint64)
    prefixes: Values = np.where(lengths > 0, first_words >> shift << shift, np.uint64(0))
    return prefixes


def _truncate_bound(array: ArrayData, rounds_up: bool) -> ArrayData:
    value = array.to_pylist()[0]
    if isinstance(array.layout, PrimitiveLayout) or not isinstance(value, str | bytes):
        return array
    size_bytes = len(value.encode()) if isinstance(value, str) else len(value)
    if size_bytes <= MAX_BOUND_BYTES:
        return array
    short = (
        value[:MAX_BOUND_BYTES]
        if isinstance(value, bytes)
        else value.encode()[:MAX_BOUND_BYTES].decode(errors="ignore")
    )
    truncated = _upper_bound_of_prefix(short) if rounds_up else short
    return array if truncated is None else array.layout.from_pylist([truncated])


def _upper_bound_of_prefix(prefix: str | bytes) -> str | bytes | None:
    """Return a value, not longer than a prefix, that is greater than all values with it; None if there is none."""
    if isinstance(prefix, bytes):
        stem = prefix.rstrip(b"\xff")
        return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return None
    following = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if following == 0xD800 else following)


def count_distinct(array: ArrayData) -> int | None:
    """Return the number of distinct values of an array without nulls, all NaN counted as one; None for types without
    identity keys.
    """
    keys = array.layout.identity_keys(array)
    if keys is None:
        return None
    if not array.length or not keys:  # all structs without fields are equal
        return min(array.length, 1)
    return int(_compute_sorted_dense_ranks(keys)[-1]) + 1


def compute_dense_ranks(array: ArrayData) -> Values:
    """Return integers that compare like the values of a plain array without nulls."""
    keys = array.layout.sort_keys(array)
    assert keys is not None
    ranked = np.zeros(array.length, np.int64)
    if array.length:
        ranked[np.lexsort(keys[::-1])] = _compute_sorted_dense_ranks(keys)
    return ranked


def _compute_sorted_dense_ranks(keys: tuple[Values, ...]) -> Values:
    """Return the index of each sorted value among the distinct ones."""
    order = np.lexsort(keys[::-1])
    is_run_start = run_start_mask(*(key[order] for key in keys))
    ranks: Values = np.cumsum(is_run_start) - 1
    return ranks


def has_nan(array: ArrayData) -> bool:
    """Whether a plain array without nulls contains NaN."""
    keys = array.layout.sort_keys(array)
    return keys is not None and keys[0].dtype.kind == "f" and bool(np.isnan(keys[0]).any())
