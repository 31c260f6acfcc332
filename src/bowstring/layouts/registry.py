"""The layout of each data type («Data Types», the column "Physical Memory Layout")."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from bowstring.datatypes import types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError
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
from bowstring.layouts.value_codecs import decimals, fixed_size_binary, intervals, numbers, temporal
from bowstring.layouts.value_codecs.base import ValueCodec

AnyLayout = TypeVar("AnyLayout", bound=Layout)


def _primitive(codec: Callable[[Any], ValueCodec]) -> Callable[[Any, tuple[Layout, ...]], Layout]:
    return lambda type, _: PrimitiveLayout(type, codec(type))


_LAYOUTS: dict[type[DataType], Callable[[Any, tuple[Layout, ...]], Layout]] = {
    types.Int: _primitive(numbers.IntegerCodec),
    types.FloatingPoint: _primitive(numbers.FloatCodec),
    types.FixedSizeBinary: _primitive(fixed_size_binary.FixedSizeBinaryCodec),
    types.Decimal: _primitive(decimals.DecimalCodec),
    types.Date: _primitive(temporal.DateCodec),
    types.Time: _primitive(temporal.TimeCodec),
    types.Timestamp: _primitive(temporal.TimestampCodec),
    types.Duration: _primitive(temporal.DurationCodec),
    types.Interval: _primitive(intervals.create_interval_codec),
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
    """Return the layout of a data type with its children's layouts. Raises `InvalidArgumentError` for other objects."""
    if not isinstance(type, DataType):
        raise InvalidArgumentError(f"expected a Bowstring type such as bs.int32(), found {type!r}")
    return _create_layout(type, type.child_field_metadata())


def layout_of_class(type: DataType, layout_class: builtins.type[AnyLayout]) -> AnyLayout:
    """Return the layout of a data type whose layouts are of this class."""
    layout = layout_of(type)
    assert isinstance(layout, layout_class)
    return layout


@lru_cache(maxsize=4096)
def _create_layout(type: DataType, metadata: object) -> Layout:  # noqa: ARG001 -- part of the cache key
    if isinstance(type, ExtensionType):
        return ExtensionLayout(type, layout_of(type.storage_type))
    if isinstance(type, types.Dictionary):
        return DictionaryLayout(type, primitive_layout(type.index_type), layout_of(type.value_type))
    create_layout = _LAYOUTS.get(type.__class__)
    if create_layout is None:
        raise InvalidArgumentError(f"{type!r} is not a data type of the columnar format")
    return create_layout(type, tuple(layout_of(field.type) for field in type.fields))


def primitive_layout(type: DataType) -> PrimitiveLayout:
    """Return the layout of a fixed-width primitive type."""
    return layout_of_class(type, PrimitiveLayout)
