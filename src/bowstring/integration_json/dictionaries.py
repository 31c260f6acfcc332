"""One dictionary for all batches, as integration JSON has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bowstring.compute.unify_dictionaries import unify_dictionaries
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout


def with_common_dictionaries(layout: Layout, columns: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The columns, and the dictionaries that serve all of them, in the order of the schema's walk."""
    shown = unify_dictionaries(columns) or [layout.build([])]
    return shown[: len(columns)], list(_dictionaries(shown[0]))


def _dictionaries(array: Array) -> Iterator[Array]:
    """The dictionaries that a walk over an array meets, those inside a dictionary before it."""
    held = array.layout.dictionary
    if held is None:
        for child in array.children:
            yield from _dictionaries(child)
        return
    dictionary = held.build([]) if array.dictionary is None else array.dictionary
    yield from _dictionaries(dictionary)
    yield dictionary
