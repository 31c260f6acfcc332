"""The field of an extension's struct that has its value: it determines the order and casts to the field's type."""

from __future__ import annotations

from bowstring.datatypes.extension import ExtensionType
from bowstring.kernels.nulls import inherit_nulls
from bowstring.layouts.base import ArrayData
from bowstring.layouts.struct_ import StructLayout


def extract_value_field(array: ArrayData) -> ArrayData:
    """Return the value field of an extension array, such as the timestamps of `timestamp_with_offset`, null where the
    extension is null; any other array as it is.
    """
    type_ = array.type
    if not isinstance(type_, ExtensionType) or type_.VALUE_FIELD is None:
        return array
    storage = array.storage
    assert isinstance(storage.layout, StructLayout)
    return inherit_nulls(storage.layout.columns(storage)[type_.VALUE_FIELD], storage)
