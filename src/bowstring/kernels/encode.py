"""Dictionary and run-end encoding, decoding, and distinct values.

Values are compared as stored: all NaN are equal, 0.0 and -0.0 differ, all nulls are equal. Values of a union are equal
only if they are in the same child, nulls included, so the dictionary of a union contains its children's nulls.
"""

from __future__ import annotations

import numpy as np

from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.factories import dictionary, run_end_encoded
from bowstring.datatypes.types import Dictionary, Int, RunEndEncoded
from bowstring.layouts.base import ArrayData, check_expanded_array
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.factorize import factorize
from bowstring.layouts.registry import layout_of_class
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout


def dictionary_encode(array: ArrayData, index_type: TypeLike | None = None, *, allow_nested: bool = False) -> ArrayData:
    """Encode an array as indices (int32 by default) into its distinct values, in order of first appearance.

    Returns a dictionary-encoded array unchanged, unless `allow_nested`. Raises `TypeMismatchError` if there are too
    many distinct values for the index type.
    """
    if isinstance(array.type, Dictionary) and not allow_nested:
        return array
    index_type = Int(32) if index_type is None else as_type(index_type, "dictionary_encode")
    layout = layout_of_class(dictionary(index_type, array.type), DictionaryLayout)
    return layout.encode(array)


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
    layout = layout_of_class(run_end_encoded(run_end_type, array.type), RunEndEncodedLayout)
    return layout.encode(array)


def run_end_decode(array: ArrayData) -> ArrayData:
    """Decode a run-end encoded array; copies. Returns any other array unchanged."""
    layout = array.layout.storage
    if not isinstance(layout, RunEndEncodedLayout):
        return array
    check_expanded_array(array)
    lengths, values = layout.run_lengths_and_values(array.storage)
    return values.layout.take(values, np.repeat(np.arange(values.length), lengths))
