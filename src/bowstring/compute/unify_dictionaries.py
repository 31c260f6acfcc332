"""One dictionary for several arrays («Dictionary-encoded Layout»): the union of theirs, and indices into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.array_batcher import batch_arrays
from bowstring.layouts.base import Indices, Layout, to_buffer
from bowstring.layouts.concatenation import array_lengths, distinct_dictionaries
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.equality import has_prefix
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.factorize import factorize


def has_dictionary(layout: Layout) -> bool:
    """Whether a dictionary is anywhere in arrays of this layout."""
    return layout.dictionary is not None or any(map(has_dictionary, layout.children))


def dictionary_arrays(array: Array) -> Iterator[Array]:
    """The dictionary-encoded arrays that a walk over an array meets, in order; not those inside dictionaries."""
    if array.layout.dictionary is not None:
        yield array
    for child in array.children:
        yield from dictionary_arrays(child)


def dictionary_of(part: Array) -> Array:
    """The dictionary of a dictionary-encoded array; raises `InvalidDataError` where it has none."""
    if part.dictionary is None:
        raise InvalidDataError(f"the array of {part.type} has no dictionary")
    return part.dictionary


def replace_dictionary_arrays(array: Array, parts: Iterator[Array]) -> Array:
    """The array with others in the place of its `dictionary_arrays`, in the same order."""
    if array.layout.dictionary is not None:
        return next(parts)
    if not array.children:
        return array
    children = tuple([replace_dictionary_arrays(child, parts) for child in array.children])
    return Array(array.layout, array.length, array.buffers, children, None, array._null_count, array.offset)


def merge_dictionaries(dictionaries: Sequence[Array]) -> tuple[Array, list[Indices]]:
    """A dictionary with the values of all, those of the first one first and as they are, every other value once; and
    for each dictionary where its values are in it. Copies.
    """
    whole, places = _merge(dictionaries)
    return whole, np.split(places, np.cumsum([one.length for one in dictionaries])[:-1])


def _merge(dictionaries: Sequence[Array]) -> tuple[Array, Indices]:
    """As `merge_dictionaries`, the places end to end."""
    first = dictionaries[0]
    joined = first.layout.concat(dictionaries)
    numbers, firsts = factorize(joined)
    is_new = firsts >= first.length
    places = np.where(is_new, first.length + np.cumsum(is_new) - 1, firsts)[numbers]
    whole = first
    if is_new.any():
        whole = first.layout.concat([first, joined.layout.take(joined, firsts[is_new])])
    return whole, places


def with_dictionary(part: Array, dictionary: Array, places: Indices | None) -> Array:
    """A dictionary-encoded array with another dictionary, where each of its values is at one of the `places`, or where
    it is (None).

    Raises `DataTypeError` where the places are too large for the indices.
    """
    layout = part.layout
    while isinstance(layout, ExtensionLayout):  # one may be stored as another
        layout = layout.storage
    assert isinstance(layout, DictionaryLayout)
    if places is None:
        return Array(part.layout, part.length, part.buffers, (), dictionary, part._null_count, part.offset)
    keys = layout.indices(part.with_layout(layout))
    keys = places[keys] if places.size else keys
    if keys.size and keys.max() > np.iinfo(layout.index_layout.dtype).max:
        raise DataTypeError(f"a dictionary of {dictionary.length} values is too large for the indices of {part.type}")
    indices = layout.index_layout.of(keys.astype(layout.index_layout.dtype), part.mask())
    return layout.of(indices, dictionary).with_layout(part.layout)


def find_longest_dictionary(dictionaries: Iterable[Array]) -> Array | None:
    """The dictionary of which all others are a beginning, if there is one."""
    held = list(dictionaries)
    longest = max(held, key=len)
    return longest if all(has_prefix(longest, one) for one in held) else None


def unify_dictionaries(arrays: Sequence[Array]) -> list[Array]:
    """Arrays of one layout and the same values in which each dictionary is the same for all, inner ones too.

    Where one dictionary begins as all others do, no index changes. Raises `DataTypeError` where the union of
    dictionaries is too large for their indices.
    """
    if not arrays or not has_dictionary(arrays[0].layout):
        return list(arrays)
    held = [array if array.layout.dictionary is not None else array.compact() for array in arrays]
    columns = zip(*map(dictionary_arrays, held), strict=True)
    parts = zip(*map(_unify_arrays, columns), strict=True)
    return [replace_dictionary_arrays(array, iter(own)) for array, own in zip(held, parts, strict=True)]


def _unify_arrays(parts: Sequence[Array]) -> list[Array]:
    distinct = {id(own): own for own in map(dictionary_of, parts)}
    if len(distinct) == 1:
        return list(parts)
    dictionaries = unify_dictionaries(list(distinct.values()))
    whole = find_longest_dictionary(dictionaries)
    places: list[Indices] | list[None] = [None] * len(dictionaries)
    if whole is None:
        whole, places = merge_dictionaries(dictionaries)
    place_of = dict(zip(distinct, places, strict=True))
    return [with_dictionary(part, whole, place_of[id(part.dictionary)]) for part in parts]


def concat_unified(arrays: Sequence[Array]) -> Array:
    """Concatenate one or more arrays of one layout and unify their dictionaries; copies.

    Raises `DataTypeError` where the union of dictionaries is too large for their indices.
    """
    layout = arrays[0].layout
    coded = layout.storage
    if not isinstance(coded, DictionaryLayout) or has_dictionary(coded.dictionary):
        return layout.concat(unify_dictionaries(arrays))
    arrays = batch_arrays(arrays)
    dictionaries, numbers = distinct_dictionaries(arrays)
    keys, validity = coded.concat_indices(arrays)
    whole = dictionaries[0]
    if len(dictionaries) > 1:
        whole, places = _merge(dictionaries)
        lengths = array_lengths(dictionaries)
        keys += np.repeat((np.cumsum(lengths) - lengths)[numbers], array_lengths(arrays))
        keys = places.take(keys, mode="clip") if len(places) else keys  # a null has no place in an empty dictionary
        if keys.size and keys.max() > np.iinfo(coded.index_layout.dtype).max:
            raise DataTypeError(f"a dictionary of {whole.length} values is too large for the indices of {layout.type}")
    indices = to_buffer(keys.astype(coded.index_layout.dtype))
    return Array(layout, len(keys), (validity, indices), (), whole)
