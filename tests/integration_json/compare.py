"""Compare two data files: the schemas, then the batches.

The field names inside a map are ignored: the format only recommends names, and some writers replace others by these
(«Map» in Schema.fbs).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import DataType, Map, Struct
from bowstring.layouts.base import ArrayData
from bowstring.layouts.equality import arrays_equal


def find_differences(
    expected_schema: Schema, expected: Iterable[RecordBatch], schema: Schema, batches: Iterable[RecordBatch]
) -> Iterator[str]:
    """Yield a sentence for each difference of fields, nullability and custom metadata at every level, batches, columns.

    NaN equals NaN. Values under nulls, the order of custom metadata and field names inside maps are ignored. Batches
    are compared only if the types are equal. Raises `InvalidDataError` for arrays with values that are invalid for
    their type.

    >>> one, other = bs.table({"n": [1, 2]}), bs.table({"n": [1, 3]})
    >>> for difference in find_differences(one.schema, one.to_batches(), other.schema, other.to_batches()):
    ...     print(difference)
    record batch 0: column 0 ('n') differs from row 1 on
    """
    is_comparable = True
    if len(expected_schema) != len(schema):
        yield f"schema: expected {len(expected_schema)} fields, found {len(schema)}"
        is_comparable = False
    if sorted(expected_schema.pairs) != sorted(schema.pairs):
        yield f"schema: expected custom metadata {expected_schema.pairs}, found {schema.pairs}"
    for index, (expected_field, field) in enumerate(zip(expected_schema, schema, strict=False)):
        difference = _describe_field_difference(expected_field, field)
        if difference is not None:
            yield f"field {index} ({expected_field.name!r}): {difference}"
            if _with_canonical_map_names(expected_field.type) != _with_canonical_map_names(field.type):
                is_comparable = False
    if not is_comparable:
        return
    for index, (expected_batch, batch) in enumerate(zip_longest(expected, batches)):
        if expected_batch is None or batch is None:
            yield f"record batch {index}: expected {_describe_batch(expected_batch)}, found {_describe_batch(batch)}"
            return
        yield from _compare_batches(index, expected_batch, batch)


def _describe_batch(batch: RecordBatch | None) -> str:
    return "none" if batch is None else f"{batch.num_rows} rows"


def _with_canonical_map_names(type_or_field: Any) -> Any:
    """Replace the field names inside maps of a type, field or tuple of these by the recommended names."""
    if isinstance(type_or_field, tuple):
        changed_items = tuple(map(_with_canonical_map_names, type_or_field))
        return changed_items if any(map(operator.is_not, changed_items, type_or_field)) else type_or_field
    if not isinstance(type_or_field, (DataType, Field)):
        return type_or_field
    # Types and fields are dataclasses, so their attributes are all of their children.
    attributes = {slot.name: getattr(type_or_field, slot.name) for slot in dataclasses.fields(type_or_field)}
    changed = {name: _with_canonical_map_names(value) for name, value in attributes.items()}
    if isinstance(type_or_field, Map):
        entries = changed["entries_field"]
        key, item = entries.type.fields
        pair = Struct((key.with_name("key"), item.with_name("value")))
        changed["entries_field"] = entries.with_name("entries").with_type(pair)
    # By identity: types are equal whatever the names in them.
    is_changed = any(changed[name] is not value for name, value in attributes.items())
    return dataclasses.replace(type_or_field, **changed) if is_changed else type_or_field


def _describe_field_difference(expected: Field, actual: Field) -> str | None:
    expected, actual = _with_canonical_map_names(expected), _with_canonical_map_names(actual)
    if expected.name != actual.name:
        return f"expected the name {expected.name!r}, found {actual.name!r}"
    if expected.type != actual.type:
        return f"expected type {expected.type}, found {actual.type}"
    if expected.nullable != actual.nullable:
        return f"expected it {'' if expected.nullable else 'not '}to be nullable"
    if not expected.equals(actual, check_metadata=True):
        if sorted(expected.pairs) != sorted(actual.pairs):
            return f"expected custom metadata {expected.pairs}, found {actual.pairs}"
        return "the custom metadata of its children differs"
    return None


def _compare_batches(batch_index: int, expected: RecordBatch, actual: RecordBatch) -> Iterator[str]:
    if expected.num_rows != actual.num_rows:
        yield f"record batch {batch_index}: expected {expected.num_rows} rows, found {actual.num_rows}"
        return
    for index, field in enumerate(expected.schema):
        type_ = _with_canonical_map_names(field.type)
        expected_column, actual_column = expected.column(index).cast(type_), actual.column(index).cast(type_)
        if not arrays_equal(expected_column, actual_column, nans_equal=True):
            row = _find_first_different_row(expected_column, actual_column)
            yield f"record batch {batch_index}: column {index} ({field.name!r}) differs from row {row} on"


def _find_first_different_row(expected: ArrayData, actual: ArrayData) -> int:
    """Return the index of the first row that differs, by binary search."""
    # The rows before `low` are equal; one of those from `low` to `high` differs.
    low, high = 0, expected.length
    while high - low > 1:
        middle = (low + high) // 2
        if arrays_equal(expected.slice(low, middle - low), actual.slice(low, middle - low), nans_equal=True):
            low = middle
        else:
            high = middle
    return low
