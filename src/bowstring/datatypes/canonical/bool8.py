"""«8-bit Boolean» of the canonical extension types.

>>> import bowstring as bs
>>> bs.array([True, False, None], bs.datatypes.bool8()).to_pylist()
[True, False, None]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bowstring.datatypes.canonical.parameters import check_storage_type
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.types import Int
from bowstring.errors import TypeMismatchError


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class Bool8Type(ExtensionType):
    """Booleans of one byte each: 0 is false, any other value true."""

    EXTENSION_NAME: ClassVar[str] = "arrow.bool8"

    def __post_init__(self) -> None:
        check_storage_type(self.EXTENSION_NAME, self.storage_type, Int(8))

    def decode(self, value: Any) -> bool:
        """Convert a byte to a boolean."""
        return bool(value)

    def encode(self, value: Any) -> int:
        """Convert a boolean to 1 or 0. Raises `TypeMismatchError` for any other value."""
        if not isinstance(value, (bool, np.bool_)):
            raise TypeMismatchError(f"{value!r:.60} is not a boolean")
        return int(value)

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:
        """View the bytes as NumPy booleans if all are 0 or 1; otherwise copy them."""
        if values.dtype != np.int8:
            return values  # with nulls
        if not values.size or (values.min() >= 0 and values.max() <= 1):
            return values.view(np.bool_)
        return values != 0 if allow_copy else None

    def to_storage_numpy(self, values: Any) -> Any:
        """View NumPy booleans as bytes, without copying."""
        return values.view(np.int8) if values.dtype == np.bool_ else None


def bool8() -> Bool8Type:
    """Booleans, stored as `int8()` like NumPy's.

    >>> bs.array([True, None], bs.datatypes.bool8())
    <bowstring.Array extension<arrow.bool8[int8]>[2]>
    [true, null]
    """
    return Bool8Type(Int(8))
