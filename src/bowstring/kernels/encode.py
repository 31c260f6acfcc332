"""Dictionary and run-end encoding, decoding, and distinct values.

Values are compared as stored: all NaN are equal, 0.0 and -0.0 differ, all nulls are equal. Values of a union are equal
only if they are in the same child, nulls included, so the dictionary of a union contains its children's nulls.
"""

from __future__ import annotations

import numpy as np

from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.types import Dictionary, Int, RunEndEncoded, dictionary, run_end_encoded
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, check_expanded_array
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.factorize import factorize, factorize_keys, identity_keys_with_nulls
from bowstring.layouts.registry import layout_of
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.layouts.sort_keys import run_start_mask


def dictionary_encode(array: ArrayData, index_type: TypeLike | None = None, *, allow_nested: bool = False) -> ArrayData:
    """Encode an array as indices (int32 by default) into its distinct values, in order of first appearance.

    Returns a dictionary-encoded array unchanged, unless `allow_nested`. Raises `TypeMismatchError` if there are too
    many distinct values for the index type.
    """
    if isinstance(array.type, Dictionary) and not allow_nested:
        return array
    index_type = Int(32) if index_type is None else as_type(index_type, "dictionary_encode")
    layout = layout_of(dictionary(index_type, array.type))
    assert isinstance(layout, DictionaryLayout)
    keys = identity_keys_with_nulls(array)
    valid = array.layout.logical_validity_mask(array, in_unions=False)
    slots = np.arange(array.length) if valid is None else np.flatnonzero(valid)
    codes, firsts = factorize_keys([key[slots] for key in keys], len(slots))
    if len(firsts) - 1 > np.iinfo(layout.index_layout.dtype).max:
        raise TypeMismatchError(f"{len(firsts)} distinct values are too many for indices of {index_type}")
    indices = np.zeros(array.length, layout.index_layout.dtype)
    indices[slots] = codes.astype(indices.dtype)
    return layout.create_array(
        layout.index_layout.create_array(indices, valid), array.layout.take(array, slots[firsts])
    )


def unique(array: ArrayData) -> ArrayData:
    """Return the distinct values in order of first appearance, including null, if any."""
    return array.layout.take(array, factorize(array)[1])


def run_end_encode(array: ArrayData, run_end_type: TypeLike | None = None, *, allow_nested: bool = False) -> ArrayData:
    """Encode an array as runs of equal values, with run ends of int32 by default.

    Returns a run-end encoded array unchanged, unless `allow_nested`. Raises `InvalidArgumentError` if the array is too
    long for the run ends.
    """
    if isinstance(array.type, RunEndEncoded) and not allow_nested:
        return array
    run_end_type = Int(32) if run_end_type is None else as_type(run_end_type, "run_end_encode")
    layout = layout_of(run_end_encoded(run_end_type, array.type))
    assert isinstance(layout, RunEndEncodedLayout)
    keys = identity_keys_with_nulls(array)
    starts = np.flatnonzero(run_start_mask(*keys)) if keys else np.zeros(min(array.length, 1), np.int64)
    return layout.create_array(
        np.append(starts[1:], array.length)[: len(starts)], array.layout.take(array, starts), array.length
    )


def run_end_decode(array: ArrayData) -> ArrayData:
    """Decode a run-end encoded array; copies. Returns any other array unchanged."""
    layout = array.layout.storage
    if not isinstance(layout, RunEndEncodedLayout):
        return array
    check_expanded_array(array)
    lengths, values = layout.run_lengths_and_values(array.storage)
    return values.layout.take(values, np.repeat(np.arange(values.length), lengths))
