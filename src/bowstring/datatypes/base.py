"""What all data types have in common, and the checks of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

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
        """Whether both are the same type, and the custom metadata of their fields at every level if asked for.

        The other may be a type of another library, or the name of one.
        """
        if isinstance(other, str) or (not isinstance(other, DataType) and hasattr(other, "__arrow_c_schema__")):
            other = as_type(other)
        if not isinstance(other, DataType) or self != other:
            return False
        return not check_metadata or self.nested_metadata() == other.nested_metadata()

    def nested_metadata(self) -> tuple[object, ...]:
        """The custom metadata of the fields at every level, which `==` and hashes leave out; hashable."""
        fields = self.fields
        return tuple((frozenset(f.pairs), f.type.nested_metadata()) for f in fields) if fields else ()

    def __str__(self) -> str:
        return self.NAME

    def __repr__(self) -> str:
        return f"DataType({self})"

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_type(self)


def check_one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    """Raise `UsageError` if a type's parameter is none of these values, which are of one Python type."""
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise UsageError(f"{what} is one of {', '.join(map(str, allowed))}, not {value!r}")


def is_within(number: object, low: int, high: int) -> bool:
    """Whether a type's parameter is an integer between two bounds, either one included."""
    return isinstance(number, int) and low <= number <= high


def check_size(what: str, value: object) -> None:
    """Raise `UsageError` if a type's parameter is no size of 31 bits."""
    if not is_within(value, 0, (1 << 31) - 1):
        raise UsageError(f"{what} is an integer from 0 to 2147483647, not {value!r}")


def check_text(what: str, value: object) -> None:
    """Raise `UsageError` if a type's parameter is no string, or one that UTF-8 does not encode."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is a string, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} has characters that UTF-8 does not encode (surrogates): {value!r}") from None


class HasSchema(Protocol):
    """What the PyCapsule interface calls an ArrowSchema exporter."""

    def __arrow_c_schema__(self) -> object:
        """A capsule with a schema."""


TypeLike: TypeAlias = HasSchema | str
"""What is taken for a data type: one of ours or of another library, or the name of one."""


def as_type(value: object, what: str = "a data type") -> DataType:
    """A data type, one of another library (by `__arrow_c_schema__`), or the one of a name such as "int64".

    Raises `UsageError` for anything else; `what` says in the message what it was given for.
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        from bowstring.datatypes.aliases import parse_alias

        return parse_alias(value)
    if hasattr(value, "__arrow_c_schema__"):
        from bowstring.interop import c_data

        return c_data.import_type(value)
    raise UsageError(f"{what}: expected a type such as bs.int32() or 'int32', found {value!r:.100}")


def check_type(what: str, value: object) -> None:
    """Raise `UsageError` if a type's parameter is no data type itself."""
    if not isinstance(value, DataType):
        raise UsageError(f"{what}: {value!r} is no data type")
