"""Encodings of arrays: dictionaries and runs, made, taken apart and unified; and the distinct values.

Two slots hold the same where these are stored alike: every NaN is one value, 0.0 and -0.0 are two, null is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bowstring.compute.ordering import identities, stable_order
from bowstring.datatypes.types import DataType, Dictionary, Int, RunEndEncoded, dictionary, run_end_encoded
from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Values
from bowstring.layouts.dictionary import DictionaryLayout, frozen
from bowstring.layouts.gather import check_length
from bowstring.layouts.ranking import differs
from bowstring.layouts.registry import layout_of
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout

_FEW_PLACES = 1 << 16


def _grouped(keys: Sequence[Values], length: int) -> tuple[Indices, Indices]:
    """For each slot the number of its value, counted as values first appear, and where each of them first does."""
    if not keys:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    places = _places(keys)
    if places is not None:
        return _grouped_places(places)
    order = stable_order(keys)
    edges = _edges([key[order] for key in keys])
    firsts = order[edges]
    appearance = np.argsort(firsts)
    number = np.empty_like(appearance)
    number[appearance] = np.arange(len(appearance))
    codes = np.empty(length, np.int64)
    codes[order] = number[np.cumsum(edges) - 1]
    return codes, firsts[appearance]


def _places(keys: Sequence[Values]) -> Indices | None:
    """One integer for each slot in the place of its keys, from 0 on and below a few times their number; None where that
    cannot be said at a glance.
    """
    *marks, key = keys
    if not key.size or key.dtype.kind not in "iu" or len(marks) > 1 or any(mark.dtype != np.bool_ for mark in marks):
        return None
    low = int(key.min())
    if int(key.max()) - low >= max(4 * key.size, _FEW_PLACES):
        return None
    places = (key - key.dtype.type(low)).astype(np.int64) if key.dtype.kind == "u" else key.astype(np.int64) - low
    for valid in marks:
        places = np.where(valid, places + 1, 0)
    return places


def _grouped_places(places: Indices) -> tuple[Indices, Indices]:
    """As `_grouped`, where values are places in a table."""
    slots = np.arange(len(places))
    table = np.empty(int(places.max()) + 1, np.int64)
    table[places[::-1]] = slots[::-1]
    firsts = np.flatnonzero(table[places] == slots)
    table[places[firsts]] = np.arange(len(firsts))
    return table[places], firsts


def _edges(keys: Sequence[Values]) -> Values:
    edges = differs(keys[0])
    for key in keys[1:]:
        edges |= differs(key)
    return edges


def _encoded(array: Array, index_type: Int) -> Array:
    layout = layout_of(dictionary(index_type, array.type))
    assert isinstance(layout, DictionaryLayout)
    keys = identities(array)
    if keys is None:
        return layout.build(array.to_pylist())
    valid = array.layout.valid(array)
    held = np.arange(array.length) if valid is None else np.flatnonzero(valid)
    codes, firsts = _grouped([key[held] for key in keys], len(held))
    if len(firsts) - 1 > np.iinfo(layout.indices.dtype).max:
        raise DataTypeError(f"{len(firsts)} distinct values are too many for indices of {index_type}")
    indices = np.zeros(array.length, layout.indices.dtype)
    indices[held] = codes.astype(indices.dtype)
    return layout.of(layout.indices.of(indices, valid), array.layout.take(array, held[firsts]))


def dictionary_encode(array: Array, index_type: Int | None = None) -> Array:
    """The array as indices (int32 by default) into its distinct values, in the order of their first appearance.

    A dictionary-encoded array is given back as it is. Raises `DataTypeError` where the distinct values are too many for
    the indices.
    """
    if isinstance(array.type, Dictionary):
        return array
    return _encoded(array, index_type or Int(32))


def unique(array: Array) -> Array:
    """The distinct values in the order of their first appearance, null among them where there is one."""
    return array.layout.take(array, numbered(array)[1])


def numbered(array: Array) -> tuple[Indices, Indices]:
    """As `_grouped`, for an array of any type."""
    keys = identities(array)
    if keys is not None:
        return _grouped(keys, array.length)
    numbers: dict[object, int] = {}
    codes = [numbers.setdefault(frozen(value), len(numbers)) for value in array.to_pylist()]
    found = np.array(codes, np.int64)
    return found, np.unique(found, return_index=True)[1].astype(np.int64)


def run_end_encode(array: Array, run_end_type: DataType | None = None) -> Array:
    """The array as runs of the same value, with run ends of int32 by default.

    A run-end encoded array is given back as it is. Raises `UsageError` where it is too long for the run ends.
    """
    if isinstance(array.type, RunEndEncoded):
        return array
    layout = layout_of(run_end_encoded(run_end_type or Int(32), array.type))
    assert isinstance(layout, RunEndEncodedLayout)
    keys = identities(array)
    if keys is None:
        return layout.build(array.to_pylist())
    starts = np.flatnonzero(_edges(keys)) if keys and array.length else np.zeros(min(array.length, 1), np.int64)
    return layout.of(np.append(starts[1:], array.length)[: len(starts)], array.layout.take(array, starts), array.length)


def run_end_decode(array: Array) -> Array:
    """A run-end encoded array as plain values, copied; any other array as it is."""
    layout = array.layout.storage
    if not isinstance(layout, RunEndEncodedLayout):
        return array
    check_length(array)
    lengths, values = layout.lengths(array.storage)
    return values.layout.take(values, np.repeat(np.arange(values.length), lengths))
