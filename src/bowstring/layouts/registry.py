"""From a data type to its layout: the only switch on the type («Data Types», the column "Physical Memory Layout")."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from bowstring.datatypes import types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import DataType
from bowstring.errors import UsageError
from bowstring.layouts.base import Layout
from bowstring.layouts.binary import BinaryLayout
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.list_ import ListLayout, MapLayout
from bowstring.layouts.list_view import ListViewLayout
from bowstring.layouts.null import NullLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.run_end_encoded import RunEndEncodedLayout
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.union import UnionLayout
from bowstring.layouts.value_codecs import decimals, intervals, numbers, temporal
from bowstring.layouts.value_codecs.base import ValueCodec

_CODECS: dict[type[DataType], Callable[[Any], ValueCodec]] = {
    types.Int: numbers.IntegerCodec,
    types.FloatingPoint: numbers.FloatCodec,
    types.FixedSizeBinary: numbers.FixedSizeBinaryCodec,
    types.Decimal: decimals.DecimalCodec,
    types.Date: temporal.DateCodec,
    types.Time: temporal.TimeCodec,
    types.Timestamp: temporal.TimestampCodec,
    types.Duration: temporal.DurationCodec,
    types.Interval: intervals.interval_codec,
}

_LAYOUTS: dict[type[DataType], Callable[[Any, tuple[Layout, ...]], Layout]] = {
    types.Null: lambda t, c: NullLayout(t),
    types.Bool: lambda t, c: BooleanLayout(t),
    types.Binary: lambda t, c: BinaryLayout(t, 32, False),
    types.LargeBinary: lambda t, c: BinaryLayout(t, 64, False),
    types.Utf8: lambda t, c: BinaryLayout(t, 32, True),
    types.LargeUtf8: lambda t, c: BinaryLayout(t, 64, True),
    types.BinaryView: lambda t, c: BinaryViewLayout(t, False),
    types.Utf8View: lambda t, c: BinaryViewLayout(t, True),
    types.List: lambda t, c: ListLayout(t, 32, *c),
    types.LargeList: lambda t, c: ListLayout(t, 64, *c),
    types.ListView: lambda t, c: ListViewLayout(t, 32, *c),
    types.LargeListView: lambda t, c: ListViewLayout(t, 64, *c),
    types.FixedSizeList: lambda t, c: FixedSizeListLayout(t, *c),
    types.Struct: StructLayout,
    types.Map: lambda t, c: MapLayout(t, *c),
    types.Union: UnionLayout,
    types.RunEndEncoded: lambda t, c: RunEndEncodedLayout(t, *c),
}


def layout_of(type: DataType) -> Layout:
    """The layout of a data type; its children's layouts are resolved with it. Raises `UsageError` for anything else."""
    met = _met.get(id(type))
    if met is not None:
        return met[1]
    if not isinstance(type, DataType):
        raise UsageError(f"{type!r} is no data type of the columnar format")
    layout = _layout_of(type, type.nested_metadata())
    if layout.type is type:  # one of many equal ones is kept
        if len(_met) >= _MOST_KEPT:
            _met.clear()
        _met[id(type)] = type, layout
    return layout


_MOST_KEPT = 4096
_met: dict[int, tuple[DataType, Layout]] = {}
"""The layouts of types that were asked for lately, found without hashing all of a type; each is kept with its type, so
that its id belongs to no other object.
"""


@lru_cache(maxsize=_MOST_KEPT)
def _layout_of(type: DataType, metadata: object) -> Layout:  # noqa: ARG001 -- types that differ in it are equal
    if isinstance(type, ExtensionType):
        return ExtensionLayout(type, layout_of(type.storage_type))
    if isinstance(type, types.Dictionary):
        return DictionaryLayout(type, primitive_layout(type.index_type), layout_of(type.value_type))
    codec = _CODECS.get(type.__class__)
    if codec is not None:
        return PrimitiveLayout(type, codec(type))
    make = _LAYOUTS.get(type.__class__)
    if make is None:
        raise UsageError(f"{type!r} is no data type of the columnar format")
    return make(type, tuple(layout_of(field.type) for field in type.fields))


def primitive_layout(type: DataType) -> PrimitiveLayout:
    """The layout of a data type whose slots have one width."""
    layout = layout_of(type)
    assert isinstance(layout, PrimitiveLayout)
    return layout
