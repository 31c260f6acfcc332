"""One dictionary for all batches: what integration JSON and weak readers of files ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bowstring.datatypes.field import Schema
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout
from bowstring.layouts.registry import layout_of
from bowstring.tabular.batch import RecordBatch


def united(schema: Schema, batches: Sequence[RecordBatch]) -> list[RecordBatch]:
    """Batches of the same values in which each column has the same dictionaries throughout.

    Columns whose dictionaries differ from batch to batch are copied, theirs put end to end; the others are as they
    were. Raises `DataTypeError` where the joined dictionary is too large for its indices.
    """
    columns = [[batch.column(index) for batch in batches] for index in range(len(schema))]
    for index, field in enumerate(schema):
        layout = layout_of(field.type)
        if has_dictionary(layout) and not all(map(_same, zip(*map(_dictionaries, columns[index]), strict=True))):
            columns[index], _ = _joined(layout, columns[index])
    return [
        RecordBatch(schema, batch.num_rows, [column[number] for column in columns], batch.pairs)
        for number, batch in enumerate(batches)
    ]


def has_dictionary(layout: Layout) -> bool:
    """Whether a dictionary is anywhere in arrays of this layout."""
    return layout.dictionary is not None or any(map(has_dictionary, layout.children))


def with_common_dictionaries(layout: Layout, columns: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The columns, and the dictionaries that serve all of them, in the order of the schema's walk."""
    shown = list(columns) or [layout.build([])]
    choices = [_longest(choice) for choice in zip(*map(_dictionaries, shown), strict=True)]
    if None in choices:
        shown, joined = _joined(layout, shown)
        choices = list(_dictionaries(joined))
    return shown[: len(columns)], [choice for choice in choices if choice is not None]


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


def _longest(choice: Sequence[Array]) -> Array | None:
    """The dictionary of which all others are a beginning, if there is one."""
    longest = max(choice, key=len)
    for dictionary in {id(d): d for d in choice}.values():
        if dictionary is not longest and not dictionary.equals(longest.slice(0, len(dictionary)), nans_equal=True):
            return None
    return longest


def _same(choice: Sequence[Array]) -> bool:
    return all(dictionary is choice[0] or dictionary.equals(choice[0], nans_equal=True) for dictionary in choice)


def _joined(layout: Layout, columns: Sequence[Array]) -> tuple[list[Array], Array]:
    """The columns end to end as one array, and as slices of it."""
    joined, start, slices = layout.concat(columns), 0, []
    for column in columns:
        slices.append(joined.slice(start, column.length))
        start += column.length
    return slices, joined
