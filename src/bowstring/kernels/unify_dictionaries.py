"""Unifying the dictionaries of several arrays («Dictionary-encoded Layout») and transposing their indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bowstring.layouts.base import ArrayData, Indices, Layout, to_buffer
from bowstring.layouts.dictionary import DictionaryLayout, find_dictionary_extending_all
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.factorize import factorize


def has_dictionary(layout: Layout) -> bool:
    """Whether arrays of this layout have a dictionary at any depth."""
    return layout.dictionary is not None or any(map(has_dictionary, layout.children))


def iter_dictionary_arrays(array: ArrayData) -> Iterator[ArrayData]:
    """Iterate over the dictionary-encoded arrays in an array, depth first, without those inside dictionaries."""
    if array.layout.dictionary is not None:
        yield array
    for child in array.children:
        yield from iter_dictionary_arrays(child)


def replace_dictionary_encoded_arrays(array: ArrayData, replacements: Iterator[ArrayData]) -> ArrayData:
    """Replace the arrays that `iter_dictionary_arrays` yields, in the same order."""
    if array.layout.dictionary is not None:
        return next(replacements)
    if not array.children:
        return array
    children = tuple([replace_dictionary_encoded_arrays(child, replacements) for child in array.children])
    return ArrayData(
        array.layout, array.length, array.own_buffers, children, None, array.known_null_count, array.offset
    )


def merge_dictionaries(dictionaries: Sequence[ArrayData]) -> tuple[ArrayData, list[Indices]]:
    """Merge dictionaries; copies.

    Returns a dictionary that starts with the first one unchanged, followed by every new value once, and for each
    dictionary the indices of its values in it.
    """
    dictionary, indices = _merge_and_concat_indices(dictionaries)
    return dictionary, np.split(indices, np.cumsum([dictionary.length for dictionary in dictionaries])[:-1])


def _merge_and_concat_indices(dictionaries: Sequence[ArrayData]) -> tuple[ArrayData, Indices]:
    """Like `merge_dictionaries`, with all indices in one array."""
    first = dictionaries[0]
    values = first.layout.concat(dictionaries)
    # `firsts` is the index of each distinct value's first occurrence: below the first dictionary's length, the value is
    # in it.
    codes, firsts = factorize(values)
    is_new = firsts >= first.length
    # Values of the first dictionary keep their indices, also if it has duplicates: codes refer to the first of these.
    indices = np.where(is_new, first.length + np.cumsum(is_new) - 1, firsts)[codes]
    dictionary = first
    if is_new.any():
        dictionary = first.layout.concat([first, values.layout.take(values, firsts[is_new])])
    return dictionary, indices


def replace_dictionary(array: ArrayData, dictionary: ArrayData, transposition: Indices | None) -> ArrayData:
    """Replace the dictionary of a dictionary-encoded array and transpose its indices.

    `transposition[i]` is the index of the old value i in the new dictionary; None keeps the indices. Raises
    `TypeMismatchError` if the new indices are too large for the index type.
    """
    layout = array.layout
    while isinstance(layout, ExtensionLayout):  # the storage of an extension can be an extension
        layout = layout.storage
    assert isinstance(layout, DictionaryLayout)
    if transposition is None:
        return layout.create_array(array, dictionary).with_layout(array.layout)
    indices = layout.indices(array.with_layout(layout))
    indices = transposition[indices] if transposition.size else indices
    return layout.create_from_int64_indices(indices, array.validity_mask(), dictionary).with_layout(array.layout)


def unify_dictionaries(arrays: Sequence[ArrayData]) -> list[ArrayData]:
    """Unify the dictionaries of arrays of one layout, at every depth.

    Indices stay unchanged if one dictionary starts with all others. Raises `TypeMismatchError` if a unified dictionary
    is too large for the index type.
    """
    if not arrays or not has_dictionary(arrays[0].layout):
        return list(arrays)
    arrays = [array if array.layout.dictionary is not None else array.compact() for array in arrays]
    by_depth = zip(*map(iter_dictionary_arrays, arrays), strict=True)
    unified = zip(*map(_unify_at_one_depth, by_depth), strict=True)
    return [replace_dictionary_encoded_arrays(array, iter(parts)) for array, parts in zip(arrays, unified, strict=True)]


def _unify_at_one_depth(arrays: Sequence[ArrayData]) -> list[ArrayData]:
    distinct = {id(array.dictionary): array.require_dictionary() for array in arrays}
    if len(distinct) == 1:
        return list(arrays)
    dictionaries = unify_dictionaries(list(distinct.values()))
    dictionary = find_dictionary_extending_all(dictionaries)
    transpositions: list[Indices] | list[None] = [None] * len(dictionaries)
    if dictionary is None:
        dictionary, transpositions = merge_dictionaries(dictionaries)
    transposition_by_id = dict(zip(distinct, transpositions, strict=True))
    return [replace_dictionary(array, dictionary, transposition_by_id[id(array.dictionary)]) for array in arrays]


def concat_and_unify(arrays: Sequence[ArrayData]) -> ArrayData:
    """Concatenate one or more arrays of one layout and unify their dictionaries; copies.

    Raises `TypeMismatchError` if a unified dictionary is too large for the index type.
    """
    layout = arrays[0].layout
    storage = layout.storage
    if not isinstance(storage, DictionaryLayout) or has_dictionary(storage.dictionary):
        return layout.concat(unify_dictionaries(arrays))
    dictionaries, indices, validity = storage.concat_indices(arrays)
    dictionary = dictionaries[0]
    if len(dictionaries) > 1:
        dictionary, transposition = _merge_and_concat_indices(dictionaries)
        if len(transposition):  # else all slots are null
            indices = transposition.take(indices, mode="clip")
    index_buffer = to_buffer(storage.cast_to_index_type(indices, dictionary.length))
    return ArrayData(layout, len(indices), (validity, index_buffer), (), dictionary)
