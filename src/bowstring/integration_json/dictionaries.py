"""Unified dictionaries: integration JSON has one dictionary per ID for all batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bowstring.compute.unify_dictionaries import unify_dictionaries
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout


def unify_columns(layout: Layout, columns: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return the columns with unified dictionaries, and these dictionaries in depth-first order."""
    unified = unify_dictionaries(columns) or [layout.build([])]
    return unified[: len(columns)], list(_iter_dictionaries(unified[0]))


def _iter_dictionaries(array: Array) -> Iterator[Array]:
    """Yield the dictionaries of an array in depth-first order, nested ones before the dictionary that contains them."""
    dictionary_layout = array.layout.dictionary
    if dictionary_layout is None:
        for child in array.children:
            yield from _iter_dictionaries(child)
        return
    dictionary = dictionary_layout.build([]) if array.dictionary is None else array.dictionary
    yield from _iter_dictionaries(dictionary)
    yield dictionary
