"""Data types, fields, schemas and extension types («Data Types»).

The functions that create the types of the columnar format are in `bowstring` itself: `bowstring.int32()`. This package
exports the classes of those types, the canonical extension types, and the registry of extension types.
"""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
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
        OffsetTimestamp as OffsetTimestamp,
        timestamp_with_offset as timestamp_with_offset,
    )
    from bowstring.datatypes.canonical.uuid import uuid as uuid
    from bowstring.datatypes.conversion import as_type as as_type
    from bowstring.datatypes.extension import (
        ExtensionType as ExtensionType,
        register_extension_type as register_extension_type,
        unregister_extension_type as unregister_extension_type,
    )
    from bowstring.datatypes.nested import (
        Dictionary as Dictionary,
        FixedSizeList as FixedSizeList,
        LargeList as LargeList,
        LargeListView as LargeListView,
        List as List,
        ListLike as ListLike,
        ListView as ListView,
        Map as Map,
        RunEndEncoded as RunEndEncoded,
        Struct as Struct,
        Union as Union,
    )
    from bowstring.datatypes.primitive import (
        Binary as Binary,
        BinaryView as BinaryView,
        Bool as Bool,
        Date as Date,
        Decimal as Decimal,
        Duration as Duration,
        FixedSizeBinary as FixedSizeBinary,
        FloatingPoint as FloatingPoint,
        Int as Int,
        Interval as Interval,
        LargeBinary as LargeBinary,
        LargeUtf8 as LargeUtf8,
        Null as Null,
        Time as Time,
        Timestamp as Timestamp,
        Utf8 as Utf8,
        Utf8View as Utf8View,
    )
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "canonical.bool8": ("bool8",),
            "canonical.json": ("json_",),
            "canonical.opaque": ("opaque",),
            "canonical.parquet_variant": ("parquet_variant",),
            "canonical.tensors": ("fixed_shape_tensor", "variable_shape_tensor"),
            "canonical.timestamp_with_offset": ("OffsetTimestamp", "timestamp_with_offset"),
            "canonical.uuid": ("uuid",),
            "c_schema": ("import_field",),
            "conversion": ("as_type",),
            "extension": ("ExtensionType", "register_extension_type", "unregister_extension_type"),
            "nested": (
                "Dictionary",
                "FixedSizeList",
                "LargeList",
                "LargeListView",
                "List",
                "ListLike",
                "ListView",
                "Map",
                "RunEndEncoded",
                "Struct",
                "Union",
            ),
            "primitive": (
                "Binary",
                "BinaryView",
                "Bool",
                "Date",
                "Decimal",
                "Duration",
                "FixedSizeBinary",
                "FloatingPoint",
                "Int",
                "Interval",
                "LargeBinary",
                "LargeUtf8",
                "Null",
                "Time",
                "Timestamp",
                "Utf8",
                "Utf8View",
            ),
        },
    )
