"""«Opaque» of the canonical extension types.

>>> import bowstring as bs
>>> bs.array([b"POINT (0 1)"], bs.datatypes.opaque(bs.binary(), "geometry", "PostGIS")).type
DataType(extension<arrow.opaque[binary, 'geometry' of 'PostGIS']>)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from bowstring.datatypes.canonical.parameters import parse_parameters, parse_string, serialize_parameters
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.field import check_type
from bowstring.datatypes.parameters import check_text
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class OpaqueType(ExtensionType):
    """Values of another system that Arrow can't interpret. They are values of the storage type."""

    EXTENSION_NAME: ClassVar[str] = "arrow.opaque"

    type_name: str
    vendor_name: str

    def __post_init__(self) -> None:
        check_type("an opaque type's storage", self.storage_type)
        for name in (self.type_name, self.vendor_name):
            check_text("the name of an opaque type or its vendor", name)

    def serialize(self) -> bytes:
        """Return both names as a JSON object."""
        return serialize_parameters(type_name=self.type_name, vendor_name=self.vendor_name)

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """Return the type for a JSON object with both names; other members are ignored."""
        name, keys = cls.EXTENSION_NAME, ("type_name", "vendor_name")
        parameters = parse_parameters(name, serialized, keys)
        missing = [key for key in keys if key not in parameters]
        if missing:
            raise InvalidDataError(f"{name}: metadata {serialized[:60]!r} lacks {' and '.join(map(repr, missing))}")
        return cls(storage_type, *(parse_string(name, key, parameters[key]) for key in keys))

    def __str__(self) -> str:
        return f"extension<arrow.opaque[{self.storage_type}, {self.type_name!r} of {self.vendor_name!r}]>"


def opaque(storage_type: TypeLike, type_name: str, vendor_name: str) -> OpaqueType:
    """Values of type `type_name` of the system `vendor_name`, which Arrow can't interpret.

    >>> bs.datatypes.opaque(bs.binary(), "geometry", "PostGIS")
    DataType(extension<arrow.opaque[binary, 'geometry' of 'PostGIS']>)
    """
    return OpaqueType(as_type(storage_type, "an opaque type's storage"), type_name, vendor_name)
