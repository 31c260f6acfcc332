"""Hypothesis strategies: data types, arrays of them, record batches.

`types()` draws any data type of the columnar format, nested ones included; `arrays(type)` draws arrays with nulls and
without, empty ones, and slices of longer ones; `batches()` draws record batches of them.

Strategies are cached: Hypothesis validates each new one, which takes longer than drawing from it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes import factories, types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.layouts.registry import layout_of

ValueStrategy: TypeAlias = SearchStrategy[Any]

# Hypothesis asks for the same strategies again; to build one takes milliseconds.
_CACHE_SIZE = 1024
_INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
_DAY_UNITS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
# Years 1700 to 2250: the range of timestamps in nanoseconds.
_DAYS = st.integers(-98_000, 102_000)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_BYTES = st.binary(max_size=20)

units = st.sampled_from(t.TIME_UNITS)
names = st.text(st.characters(codec="utf-8"), max_size=6)


@functools.cache
def flat_types() -> SearchStrategy[t.DataType]:
    """Every data type that has no children.

    >>> from hypothesis import find
    >>> find(flat_types(), lambda type: str(type).startswith("timestamp"))
    DataType(timestamp[s, tz=UTC])
    """
    return st.one_of(
        st.sampled_from(t.SIMPLE_TYPES),
        decimal_types(),
        st.builds(t.Timestamp, units, st.sampled_from(["UTC", "Europe/Paris"])),
        st.builds(t.FixedSizeBinary, st.integers(1, 20)),
    )


@functools.cache
def int_types() -> SearchStrategy[t.Int]:
    """Integers of every width and sign."""
    return st.builds(t.Int, st.sampled_from([8, 16, 32, 64]), st.booleans())


@functools.cache
@st.composite
def decimal_types(draw: st.DrawFn) -> t.Decimal:
    """Decimals of every width, with scales from 0 up to the precision."""
    width = draw(st.sampled_from(sorted(t.MAX_DECIMAL_DIGITS)))
    precision = draw(st.integers(1, t.MAX_DECIMAL_DIGITS[width]))
    return t.Decimal(precision, draw(st.integers(0, precision)), width)


@functools.cache
def fields(inner: SearchStrategy[t.DataType]) -> SearchStrategy[Field]:
    """Fields with short names, nullable or not.

    >>> from hypothesis import find
    >>> find(fields(flat_types()), lambda field: not field.nullable).nullable
    False
    """
    return st.builds(Field, names, inner, st.booleans())


def _struct_children(inner: SearchStrategy[t.DataType]) -> SearchStrategy[tuple[Field, ...]]:
    return st.lists(fields(inner), max_size=3, unique_by=lambda f: f.name).map(tuple)


def _nested_types(inner: SearchStrategy[t.DataType]) -> SearchStrategy[t.DataType]:
    child = fields(inner)
    children = _struct_children(inner)
    return st.one_of(
        st.builds(t.List, child),
        st.builds(t.LargeList, child),
        st.builds(t.ListView, child),
        st.builds(t.LargeListView, child),
        st.builds(t.FixedSizeList, child, st.integers(1, 3)),
        st.builds(t.Struct, children),
        st.builds(factories.map_, _key_types(), inner),
        st.builds(_create_union_type, children.filter(len), st.sampled_from(["sparse", "dense"]), st.booleans()),
        st.builds(t.Dictionary, int_types(), _value_types(inner), st.booleans()),
        st.builds(
            factories.run_end_encoded,
            st.sampled_from([factories.int16(), factories.int32(), factories.int64()]),
            _value_types(inner),
        ),
    )


def _create_union_type(children: tuple[Field, ...], mode: Any, has_gaps: bool) -> t.Union:
    return factories.union(children, mode, [7 * i + 5 if has_gaps else i for i in range(len(children))])


def _key_types() -> SearchStrategy[t.DataType]:
    return st.sampled_from([factories.string(), factories.int32(), factories.date32(), factories.large_binary()])


def _value_types(inner: SearchStrategy[t.DataType]) -> SearchStrategy[t.DataType]:
    """Return value types of dictionaries and runs: types that have nulls and are not encoded."""
    return inner.filter(lambda it: not isinstance(it, t.Null | t.Union | t.Dictionary | t.RunEndEncoded))


@functools.cache
def types(max_leaves: int = 4) -> SearchStrategy[t.DataType]:
    """Any data type, nested to some depth.

    >>> from hypothesis import find
    >>> find(types(), lambda type: str(type).startswith("struct"))
    DataType(struct<>)
    """
    return st.recursive(flat_types(), _nested_types, max_leaves=max_leaves)


# Values


@functools.lru_cache(_CACHE_SIZE)
def values(type_: t.DataType) -> ValueStrategy:
    """Python values of a type, none of them None unless the type is null.

    >>> from hypothesis import find
    >>> find(values(bs.int8()), lambda value: value > 5)
    6
    """
    return next(create for type_class, create in _VALUES.items() if isinstance(type_, type_class))(type_)


@functools.lru_cache(_CACHE_SIZE)
def nullable_values(field: Field) -> ValueStrategy:
    """Values of a field's type, or None if the field is nullable.

    >>> from hypothesis import find
    >>> print(find(nullable_values(bs.field("n", "int8")), lambda value: value is None))
    None
    """
    non_null = values(field.type)
    return st.one_of(non_null, st.none()) if field.nullable and not isinstance(field.type, t.Union) else non_null


def _decimals(type: t.Decimal) -> ValueStrategy:
    max_unscaled = 10**type.precision - 1
    return st.integers(-max_unscaled, max_unscaled).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -type.scale))
    )


def _floats(type: t.FloatingPoint) -> ValueStrategy:
    widths: dict[int, ValueStrategy] = {16: st.floats(width=16), 32: st.floats(width=32), 64: st.floats()}
    return widths[type.bit_width]


def _timestamps(type: t.Timestamp) -> ValueStrategy:
    return st.builds(lambda day, time: day * _DAY_UNITS[type.unit] + time, _DAYS, _times_of_day(type.unit))


def _times_of_day(unit: str) -> SearchStrategy[int]:
    return st.integers(0, _DAY_UNITS[unit] - 1)


def _intervals(type: t.Interval) -> ValueStrategy:
    parts: dict[str, ValueStrategy] = {
        "year_month": _INT32,
        "day_time": st.tuples(_INT32, _INT32),
        "month_day_nano": st.tuples(_INT32, _INT32, st.integers(-(1 << 63), (1 << 63) - 1)),
    }
    return parts[type.unit]


def _list_values(type: Any) -> ValueStrategy:
    return st.lists(nullable_values(type.value_field), max_size=3)


def _struct_values(type: t.Struct) -> ValueStrategy:
    return st.fixed_dictionaries({f.name: nullable_values(f) for f in type.children})


def _map_values(type: t.Map) -> ValueStrategy:
    pairs = st.tuples(values(type.key_field.type), nullable_values(type.item_field))
    return st.lists(pairs, max_size=3, unique_by=lambda pair: repr(pair[0]))


_VALUES: dict[type[t.DataType], Callable[[Any], ValueStrategy]] = {
    t.Null: lambda _: st.none(),
    t.Bool: lambda _: st.booleans(),
    t.Int: lambda it: st.integers(
        -(1 << it.bit_width - 1) if it.is_signed else 0, (1 << it.bit_width - it.is_signed) - 1
    ),
    t.FloatingPoint: _floats,
    t.Decimal: _decimals,
    t.Date: lambda it: _DAYS if it.unit == "day" else _DAYS.map(lambda day: day * _DAY_UNITS["ms"]),
    t.Time: lambda it: _times_of_day(it.unit),
    t.Timestamp: _timestamps,
    t.Duration: lambda _: st.integers(-(1 << 62), 1 << 62),
    t.Interval: _intervals,
    t.FixedSizeBinary: lambda it: st.binary(min_size=it.byte_width, max_size=it.byte_width),
    t.BaseBinary: lambda _: _BYTES,
    t.BaseString: lambda _: _TEXT,
    t.FixedSizeList: lambda it: st.lists(nullable_values(it.value_field), min_size=it.list_size, max_size=it.list_size),
    t.BaseList: _list_values,
    t.Struct: _struct_values,
    t.Map: _map_values,
    t.Union: lambda it: st.one_of([values(f.type) for f in it.children]),
    t.Dictionary: lambda it: values(it.value_type),
    t.RunEndEncoded: lambda it: values(it.value_type),
}
"""Functions that create the values of a type. The first class of which the type is an instance applies."""


@st.composite
def arrays(
    draw: st.DrawFn,
    type_: t.DataType | None = None,
    max_size: int = 8,
    length: int | None = None,
    nullable: bool | None = None,
) -> Array:
    """Arrays of a type (any by default), of `length` slots if given; some are slices of longer ones.

    They may have nulls unless `nullable` is False. Children of required fields have nulls only under nulls.

    >>> from hypothesis import find
    >>> find(arrays(bs.int8()), lambda array: array.length == 2 and array.null_count == 0)
    <bowstring.Array int8[2]>
    [0, 0]
    """
    type_ = draw(types()) if type_ is None else type_
    before, after = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2), (3, 1), (9, 8)]))
    array_length = draw(st.integers(0, max_size)) if length is None else length
    total = before + array_length + after
    has_nulls = draw(st.booleans()) and nullable is not False
    elements = draw(st.lists(nullable_values(Field("", type_, has_nulls)), min_size=total, max_size=total))
    array = (
        _union_array(draw, type_, total)
        if isinstance(type_, t.Union)
        else Array.from_array_data(layout_of(type_).from_pylist(elements))
    )
    return array.slice(before, array_length)


def _union_array(draw: st.DrawFn, type: t.Union, length: int) -> Array:
    """Draw a union array with a type for each slot, so that children of equal types are all used."""
    child_indices = draw(st.lists(st.integers(0, len(type.children) - 1), min_size=length, max_size=length))
    ids = np.array([type.type_ids[m] for m in child_indices], np.int8)
    counts = [length if type.mode == "sparse" else child_indices.count(i) for i in range(len(type.children))]
    children = [draw(arrays(f.type, length=n, nullable=f.nullable)) for f, n in zip(type.children, counts, strict=True)]
    if type.mode == "sparse":
        return Array.from_buffers(type, length, [ids], children)
    offsets = np.array([child_indices[:i].count(m) for i, m in enumerate(child_indices)], np.int32)
    return Array.from_buffers(type, length, [ids, offsets], children)


@st.composite
def batches(draw: st.DrawFn, schema: Schema | None = None, max_columns: int = 4) -> RecordBatch:
    """Record batches of a schema, by default of one with up to `max_columns` columns of any type.

    >>> from hypothesis import find
    >>> find(batches(bs.schema({"n": "int8"})), lambda batch: batch.num_rows == 1).schema
    Schema(n: int8)
    """
    if schema is None:
        columns = draw(st.lists(fields(types()), max_size=max_columns, unique_by=lambda f: f.name))
        schema = Schema(tuple(columns), draw(metadata()))
    length = draw(st.integers(0, 8))
    return RecordBatch(
        schema,
        length,
        [draw(arrays(_unwrap_extension_type(f.type), length=length, nullable=f.nullable)) for f in schema.fields],
    )


def _unwrap_extension_type(type: t.DataType) -> t.DataType:
    return type.storage_type if isinstance(type, ExtensionType) else type


@functools.cache
def metadata() -> SearchStrategy[Metadata]:
    """Custom metadata: a few pairs with distinct keys.

    >>> from hypothesis import find
    >>> len(find(metadata(), lambda pairs: len(pairs) == 2))
    2
    """
    pair = st.tuples(_TEXT.map(str.encode), _TEXT.map(str.encode))
    return st.lists(pair, max_size=2, unique_by=lambda p: p[0]).map(tuple)
