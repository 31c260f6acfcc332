"""Where two data sets part: schema, then batches, values by value and types by type.

The names of a map's entries, keys and values do not count: the format recommends some, and writers put those in the
place of others («Map» in Schema.fbs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Field, Schema
from bowstring.datatypes.types import DataType, Map, Struct
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout
from bowstring.layouts.registry import layout_of


def find_differences(
    expected_schema: Schema, expected: Iterable[RecordBatch], schema: Schema, batches: Iterable[RecordBatch]
) -> Iterator[str]:
    """A sentence for each difference: fields with nullability and custom metadata at every level, batches, columns.

    NaN equals NaN, and what lies under a null does not count. Batches are compared only where the types are the same.
    Arrays whose buffers do not hold values of their type raise `InvalidDataError`.
    """
    comparable = True
    if len(expected_schema) != len(schema):
        yield f"schema: expected {len(expected_schema)} fields, found {len(schema)}"
        comparable = False
    if sorted(expected_schema.pairs) != sorted(schema.pairs):
        yield f"schema: expected custom metadata {expected_schema.pairs}, found {schema.pairs}"
    for number, (mine, theirs) in enumerate(zip(expected_schema, schema, strict=False)):
        difference = _of_fields(mine, theirs)
        if difference is not None:
            yield f"field {number} ({mine.name!r}): {difference}"
            comparable = comparable and _canonical(mine.type) == _canonical(theirs.type)
    if not comparable:
        return
    for number, (left, right) in enumerate(zip_longest(expected, batches)):
        if left is None or right is None:
            yield f"record batch {number}: expected {_found(left)}, found {_found(right)}"
            return
        yield from _of_batches(number, left, right)


def _found(batch: RecordBatch | None) -> str:
    return "none" if batch is None else f"{batch.num_rows} rows"


def _canonical(part: Any) -> Any:
    """A type, or a part of one, with the recommended names in its maps."""
    if isinstance(part, tuple):
        return tuple(map(_canonical, part))
    if not isinstance(part, (DataType, Field)):
        return part
    said = {slot.name: getattr(part, slot.name) for slot in dataclasses.fields(part)}
    changed = {name: _canonical(value) for name, value in said.items()}
    if isinstance(part, Map):
        entries = changed["entries_field"]
        key, item = entries.type.fields
        pair = Struct((key.with_name("key"), item.with_name("value")))
        changed["entries_field"] = entries.with_name("entries").with_type(pair)
    return part if said == changed else dataclasses.replace(part, **changed)


def _recast(array: Array, layout: Layout) -> Array:
    """The same memory, at every level, under a layout that differs in names only."""
    if array.layout is layout:
        return array
    children = tuple(map(_recast, array.children, layout.children))
    held = array.dictionary
    dictionary = held if held is None or layout.dictionary is None else _recast(held, layout.dictionary)
    return Array(layout, array.length, array.buffers, children, dictionary, array._null_count, array.offset)


def _of_fields(mine: Field, theirs: Field) -> str | None:
    mine, theirs = _canonical(mine), _canonical(theirs)
    if mine.name != theirs.name:
        return f"expected this name, found {theirs.name!r}"
    if mine.type != theirs.type:
        return f"expected type {mine.type}, found {theirs.type}"
    if mine.nullable != theirs.nullable:
        return f"expected it {'' if mine.nullable else 'not '}to be nullable"
    if not mine.equals(theirs, check_metadata=True):
        if sorted(mine.pairs) != sorted(theirs.pairs):
            return f"expected custom metadata {mine.pairs}, found {theirs.pairs}"
        return "the custom metadata of its children differs"
    return None


def _of_batches(number: int, left: RecordBatch, right: RecordBatch) -> Iterator[str]:
    if left.num_rows != right.num_rows:
        yield f"record batch {number}: expected {left.num_rows} rows, found {right.num_rows}"
        return
    for index, field in enumerate(left.schema):
        layout = layout_of(_canonical(field.type))
        mine, theirs = _recast(left.column(index), layout), _recast(right.column(index), layout)
        if not mine.equals(theirs, nans_equal=True):
            row = _first_difference(mine, theirs)
            yield f"record batch {number}: column {index} ({field.name!r}) differs from row {row} on"


def _first_difference(mine: Array, theirs: Array) -> int:
    """The first row that differs; halving finds it."""
    same, differs = 0, mine.length
    while differs - same > 1:
        middle = (same + differs) // 2
        if mine.slice(same, middle - same).equals(theirs.slice(same, middle - same), nans_equal=True):
            same = middle
        else:
            differs = middle
    return same
