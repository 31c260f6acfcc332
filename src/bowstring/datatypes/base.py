"""What all data types have in common, and the checks of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bowstring.errors import UsageError

if TYPE_CHECKING:
    from bowstring.datatypes.field import Field


@dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """The base of all data types."""

    NAME: ClassVar[str] = ""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The child fields of a nested type, in order; none for the others."""
        return ()

    @property
    def num_fields(self) -> int:
        """The number of child fields."""
        return len(self.fields)

    def equals(self, other: object, check_metadata: bool = False) -> bool:
        """Whether both are the same type, and the custom metadata of their fields at every level if asked for."""
        if not isinstance(other, DataType) or self != other:
            return False
        return not check_metadata or self.metadata_within() == other.metadata_within()

    def metadata_within(self) -> tuple[object, ...]:
        """The custom metadata of the fields at every level, which `==` and hashes leave out; hashable."""
        fields = self.fields
        return tuple((frozenset(f.pairs), f.type.metadata_within()) for f in fields) if fields else ()

    def __str__(self) -> str:
        return self.NAME

    def __repr__(self) -> str:
        return f"DataType({self})"

    def __arrow_c_schema__(self) -> object:
        from bowstring.exchange import cdata

        return cdata.export_type(self)


def check_one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    """Raise `UsageError` where a type's parameter is none of these values, which are of one Python type."""
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise UsageError(f"{what} is one of {', '.join(map(str, allowed))}, not {value!r}")


def is_within(number: object, low: int, high: int) -> bool:
    """Whether a type's parameter is an integer between two bounds, either one included."""
    return isinstance(number, int) and low <= number <= high


def check_size(what: str, value: object) -> None:
    """Raise `UsageError` where a type's parameter is no size of 31 bits."""
    if not is_within(value, 0, (1 << 31) - 1):
        raise UsageError(f"{what} is an integer from 0 to 2147483647, not {value!r}")


def check_text(what: str, value: object) -> None:
    """Raise `UsageError` where a type's parameter is no string, or one that UTF-8 does not encode."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is a string, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} has characters that UTF-8 does not encode (surrogates): {value!r}") from None


def check_type(what: str, value: object) -> None:
    """Raise `UsageError` where a type's parameter is no data type itself."""
    if not isinstance(value, DataType):
        raise UsageError(f"{what}: {value!r} is no data type")
