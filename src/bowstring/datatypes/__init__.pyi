from bowstring.datatypes.c_schema import import_field as import_field
from bowstring.datatypes.canonical.bool8 import bool8 as bool8
from bowstring.datatypes.canonical.json import json_ as json_
from bowstring.datatypes.canonical.opaque import opaque as opaque
from bowstring.datatypes.canonical.parquet_variant import parquet_variant as parquet_variant
from bowstring.datatypes.canonical.tensors import (
    fixed_shape_tensor as fixed_shape_tensor,
    variable_shape_tensor as variable_shape_tensor,
)
from bowstring.datatypes.canonical.timestamp_with_offset import (
    TimestampWithOffset as TimestampWithOffset,
    timestamp_with_offset as timestamp_with_offset,
)
from bowstring.datatypes.canonical.uuid import uuid as uuid
from bowstring.datatypes.conversion import as_type as as_type
from bowstring.datatypes.extension import (
    ExtensionType as ExtensionType,
    register_extension_type as register_extension_type,
    unregister_extension_type as unregister_extension_type,
)
from bowstring.datatypes.types import (
    BaseBinary as BaseBinary,
    BaseList as BaseList,
    BaseString as BaseString,
    BaseTemporal as BaseTemporal,
    Binary as Binary,
    BinaryView as BinaryView,
    Bool as Bool,
    Date as Date,
    Decimal as Decimal,
    Dictionary as Dictionary,
    Duration as Duration,
    FixedSizeBinary as FixedSizeBinary,
    FixedSizeList as FixedSizeList,
    FloatingPoint as FloatingPoint,
    Int as Int,
    Interval as Interval,
    LargeBinary as LargeBinary,
    LargeList as LargeList,
    LargeListView as LargeListView,
    LargeUtf8 as LargeUtf8,
    List as List,
    ListView as ListView,
    Map as Map,
    Null as Null,
    RunEndEncoded as RunEndEncoded,
    Struct as Struct,
    Time as Time,
    Timestamp as Timestamp,
    Union as Union,
    Utf8 as Utf8,
    Utf8View as Utf8View,
)
