"""«UUID» of the canonical extension types.

>>> import uuid
>>> import bowstring as bs
>>> ids = bs.array([uuid.UUID(int=7), None], bs.datatypes.uuid())
>>> ids[0]
UUID('00000000-0000-0000-0000-000000000007')
>>> ids.storage.type
DataType(fixed_size_binary[16])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from bowstring.datatypes.canonical.parameters import check_storage_type
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.types import FixedSizeBinary
from bowstring.errors import TypeMismatchError


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class UuidType(ExtensionType):
    """UUIDs of any version, as 16 bytes in big-endian order. Values are `uuid.UUID`; bytes and text are accepted."""

    EXTENSION_NAME: ClassVar[str] = "arrow.uuid"

    def __post_init__(self) -> None:
        check_storage_type(self.EXTENSION_NAME, self.storage_type, FixedSizeBinary(16))

    def decode(self, value: Any) -> UUID:
        """Convert 16 bytes to a UUID."""
        return UUID(bytes=value)

    def encode(self, value: Any) -> bytes:
        """Convert a UUID, its text or its 16 bytes to 16 bytes."""
        try:
            if isinstance(value, str):
                return UUID(value).bytes
            return (value if isinstance(value, UUID) else UUID(bytes=bytes(value))).bytes
        except (TypeError, ValueError) as error:
            raise TypeMismatchError(f"{value!r:.60} is not a valid UUID: {error}") from None


def uuid() -> UuidType:
    """UUIDs, stored as `binary(16)`.

    >>> from uuid import UUID
    >>> bs.array([UUID(int=1)], bs.datatypes.uuid()).to_pylist()
    [UUID('00000000-0000-0000-0000-000000000001')]
    """
    return UuidType(FixedSizeBinary(16))
