"""Encodings of arrays: dictionaries and runs, made, taken apart and unified; and the distinct values.

Two slots hold the same where these are stored alike: every NaN is one value, 0.0 and -0.0 are two, null is one, and of
a union the same child has to hold them, nulls too. So a dictionary of a union has the nulls of its children as values.
"""

from __future__ import annotations

import numpy as np

from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.types import DataType, Dictionary, Int, RunEndEncoded, dictionary, run_end_encoded
from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.factorize import factorize, factorize_keys, find_run_starts, identity_keys
from bowstring.layouts.gather import check_length
from bowstring.layouts.registry import layout_of
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout


def encode_as_dictionary(array: Array, index_type: Int) -> Array:
    """The array as indices into its distinct values, whatever its type; errors as `dictionary_encode`."""
    layout = layout_of(dictionary(index_type, array.type))
    assert isinstance(layout, DictionaryLayout)
    keys = identity_keys(array)
    valid = array.layout.identity_mask(array)
    held = np.arange(array.length) if valid is None else np.flatnonzero(valid)
    codes, firsts = factorize_keys([key[held] for key in keys], len(held))
    if len(firsts) - 1 > np.iinfo(layout.index_layout.dtype).max:
        raise DataTypeError(f"{len(firsts)} distinct values are too many for indices of {index_type}")
    indices = np.zeros(array.length, layout.index_layout.dtype)
    indices[held] = codes.astype(indices.dtype)
    return layout.of(layout.index_layout.of(indices, valid), array.layout.take(array, held[firsts]))


def dictionary_encode(array: Array, index_type: TypeLike | None = None) -> Array:
    """The array as indices (int32 by default) into its distinct values, in the order of their first appearance.

    A dictionary-encoded array is given back as it is. Raises `DataTypeError` where the distinct values are too many for
    the indices.
    """
    if isinstance(array.type, Dictionary):
        return array
    indices = Int(32) if index_type is None else as_type(index_type, "dictionary_encode")
    return encode_as_dictionary(array, indices)  # type: ignore[arg-type]  # the dictionary's type checks it


def unique(array: Array) -> Array:
    """The distinct values in the order of their first appearance, null among them where there is one."""
    return array.layout.take(array, factorize(array)[1])


def run_end_encode(array: Array, run_end_type: TypeLike | None = None) -> Array:
    """The array as runs of the same value, with run ends of int32 by default.

    A run-end encoded array is given back as it is. Raises `UsageError` where it is too long for the run ends.
    """
    if isinstance(array.type, RunEndEncoded):
        return array
    return encode_as_runs(array, Int(32) if run_end_type is None else as_type(run_end_type, "run_end_encode"))


def encode_as_runs(array: Array, run_end_type: DataType) -> Array:
    """The array as runs of the same value, whatever its type; errors as `run_end_encode`."""
    layout = layout_of(run_end_encoded(run_end_type, array.type))
    assert isinstance(layout, RunEndEncodedLayout)
    keys = identity_keys(array)
    starts = (
        np.flatnonzero(find_run_starts(keys)) if keys and array.length else np.zeros(min(array.length, 1), np.int64)
    )
    return layout.of(np.append(starts[1:], array.length)[: len(starts)], array.layout.take(array, starts), array.length)


def run_end_decode(array: Array) -> Array:
    """A run-end encoded array as plain values, copied; any other array as it is."""
    layout = array.layout.storage
    if not isinstance(layout, RunEndEncodedLayout):
        return array
    check_length(array)
    lengths, values = layout.run_lengths(array.storage)
    return values.layout.take(values, np.repeat(np.arange(values.length), lengths))
