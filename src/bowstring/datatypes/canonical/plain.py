"""«JSON», «UUID», «Opaque» and «8-bit Boolean» of the canonical extension types.

>>> import uuid
>>> import bowstring as bs
>>> ids = bs.array([uuid.UUID(int=7), None], bs.uuid())
>>> ids[0]
UUID('00000000-0000-0000-0000-000000000007')
>>> ids.storage.type
DataType(fixed_size_binary[16])
>>> bs.array([True, False, None], bs.bool8()).to_pylist()
[True, False, None]
>>> bs.array([{"a": [1, None]}, "3"], bs.json_()).to_pylist()
['{"a":[1,null]}', '3']
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

import numpy as np

from bowstring.datatypes.base import TypeLike, as_type, check_text, check_type
from bowstring.datatypes.canonical.parameters import read_json, read_parameters, text, write_parameters
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.types import DataType, FixedSizeBinary, Int, LargeUtf8, Utf8, Utf8View
from bowstring.errors import DataTypeError, InvalidDataError, UsageError


def check_storage(name: str, storage_type: DataType, *allowed: DataType) -> None:
    """Raise `UsageError` where the storage type is none of the allowed ones."""
    if storage_type not in allowed:
        raise UsageError(f"{name} is stored as {' or '.join(map(str, allowed))}, not as {storage_type}")


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class JsonType(ExtensionType):
    """Texts that are JSON (RFC 8259). Values are the texts; what is no string goes in as its JSON."""

    EXTENSION_NAME: ClassVar[str] = "arrow.json"

    def __post_init__(self) -> None:
        check_storage(self.EXTENSION_NAME, self.storage_type, Utf8(), LargeUtf8(), Utf8View())

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """The type; its metadata is empty or a JSON object, whose members are not needed."""
        read_parameters(cls.EXTENSION_NAME, serialized)
        return cls(storage_type)

    def encode(self, value: Any) -> Any:
        """A text as it is, anything else as JSON; raises `DataTypeError` for what has none."""
        if isinstance(value, str):
            return value
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataTypeError(f"{value!r:.60} is no JSON: {error}") from None

    def check_value(self, value: Any) -> None:
        """Raise `InvalidDataError` for a text that is no JSON."""
        read_json(f"{value!r:.60}", value)


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class UuidType(ExtensionType):
    """UUIDs of any version, as 16 bytes in big-endian order. Values are `uuid.UUID`; their bytes or text go in, too."""

    EXTENSION_NAME: ClassVar[str] = "arrow.uuid"

    def __post_init__(self) -> None:
        check_storage(self.EXTENSION_NAME, self.storage_type, FixedSizeBinary(16))

    def decode(self, value: Any) -> UUID:
        """Sixteen bytes as a UUID."""
        return UUID(bytes=value)

    def encode(self, value: Any) -> bytes:
        """A UUID, its text or its sixteen bytes as these bytes."""
        try:
            if isinstance(value, str):
                return UUID(value).bytes
            return (value if isinstance(value, UUID) else UUID(bytes=bytes(value))).bytes
        except (TypeError, ValueError) as error:
            raise DataTypeError(f"{value!r:.60} is no UUID: {error}") from None


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class Bool8Type(ExtensionType):
    """Truth values, a byte each: 0 is false, anything else true."""

    EXTENSION_NAME: ClassVar[str] = "arrow.bool8"

    def __post_init__(self) -> None:
        check_storage(self.EXTENSION_NAME, self.storage_type, Int(8))

    def decode(self, value: Any) -> bool:
        """Whether a byte is not 0."""
        return bool(value)

    def encode(self, value: Any) -> int:
        """1 for true, 0 for false."""
        if not isinstance(value, (bool, np.bool_)):
            raise DataTypeError(f"{value!r:.60} is no truth value")
        return int(value)

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:
        """NumPy's booleans over the same bytes where all are 0 or 1, else copied."""
        if values.dtype != np.int8:
            return values  # nulls have made it something else
        if not values.size or (values.min() >= 0 and values.max() <= 1):
            return values.view(np.bool_)
        return values != 0 if allow_copy else None

    def to_storage_numpy(self, values: Any) -> Any:
        """NumPy's booleans as bytes, without copying."""
        return values.view(np.int8) if values.dtype == np.bool_ else None


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class OpaqueType(ExtensionType):
    """Something from another system that Arrow can't interpret. Values are those of the storage type."""

    EXTENSION_NAME: ClassVar[str] = "arrow.opaque"

    type_name: str
    vendor_name: str

    def __post_init__(self) -> None:
        check_type("an opaque type's storage", self.storage_type)
        for name in (self.type_name, self.vendor_name):
            check_text("the name of an opaque type or its vendor", name)

    def serialize(self) -> bytes:
        """The two names as a JSON object."""
        return write_parameters(type_name=self.type_name, vendor_name=self.vendor_name)

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """The type for a JSON object with the two names; other members are left out."""
        name, keys = cls.EXTENSION_NAME, ("type_name", "vendor_name")
        found = read_parameters(name, serialized, keys)
        missing = [key for key in keys if key not in found]
        if missing:
            raise InvalidDataError(f"{name}: its metadata {serialized[:60]!r} lacks {' and '.join(map(repr, missing))}")
        return cls(storage_type, *(text(name, key, found[key]) for key in keys))

    def __str__(self) -> str:
        return f"extension<arrow.opaque[{self.storage_type}, {self.type_name!r} of {self.vendor_name!r}]>"


def json_(storage_type: TypeLike | None = None) -> JsonType:
    """JSON texts, stored as strings (`utf8()` by default, `large_utf8()` or `string_view()`)."""
    return JsonType(Utf8() if storage_type is None else as_type(storage_type))


def uuid() -> UuidType:
    """UUIDs, stored as 16 bytes each."""
    return UuidType(FixedSizeBinary(16))


def bool8() -> Bool8Type:
    """Truth values, stored as a byte each, as NumPy does."""
    return Bool8Type(Int(8))


def opaque(storage_type: TypeLike, type_name: str, vendor_name: str) -> OpaqueType:
    """Values of a type `type_name` of the system `vendor_name` that Arrow can't interpret."""
    return OpaqueType(as_type(storage_type, "an opaque type's storage"), type_name, vendor_name)
