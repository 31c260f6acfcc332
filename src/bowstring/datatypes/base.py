"""The base class of data types, and checks of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.datatypes.c_schema_export import export_schema
from bowstring.errors import InvalidArgumentError, NotFoundError, escape_unprintable
from bowstring.pyarrow_names import explain_missing_attributes

if TYPE_CHECKING:
    from bowstring.datatypes.field import Field, Metadata


@explain_missing_attributes
@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False, eq=False)
class DataType:
    """The base of all data types.

    A type without children is equal to its names and has the hash of its `str`. So `table["a"].type == "int64"` is
    true, and a dictionary of types finds "int64". Aliases, such as "i8", are equal, too, but have another hash.

    >>> bs.int32() == "int32", str(bs.list_("int8"))
    (True, 'list<item: int8>')
    """

    NAME: ClassVar[str] = ""
    C_FORMAT: ClassVar[bytes] = b""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The child fields of a nested type; empty for other types."""
        return ()

    @property
    def num_fields(self) -> int:
        """The number of child fields."""
        return len(self.fields)

    def field(self, i: int) -> Field:
        """Return a child field by index. Raises `NotFoundError` if there is none."""
        if not is_integer_within(i, -len(self.fields), len(self.fields) - 1):
            raise NotFoundError(f"expected the name or the index of one field of {self}, found {i!r:.100}")
        return self.fields[i]

    def aliases(self) -> tuple[str, ...]:
        """The names of a type without children, first its `str`."""
        return () if self.fields else (str(self),)

    def to_pandas_dtype(self) -> Any:
        """Return the dtype of a pandas column without nulls, as in pyarrow: a scalar type such as `numpy.int64`, and
        `numpy.object_` for values without a NumPy type.
        """
        return np.object_

    def __eq__(self, other: object) -> bool:
        # Types with children are dataclasses with an equality of their own.
        if other.__class__ is self.__class__:
            return self is other or str(self) == str(other)
        return isinstance(other, str) and other in self.aliases()

    def __hash__(self) -> int:
        return hash(str(self))

    def equals(self, other: object, check_metadata: bool = False) -> bool:
        """Return whether two types are equal, with `check_metadata` also in the names and the custom metadata of all
        their fields; the names of the children of lists, maps and runs are not significant.

        As for `==`, `other` is a type, or a name such as "int64"; `bowstring.datatypes.as_type` converts types of
        other libraries.
        """
        if self != other:
            return False
        if not check_metadata or not isinstance(other, DataType):
            return True
        return self.child_field_metadata() == other.child_field_metadata()

    def child_field_metadata(self) -> tuple[object, ...]:
        """The names and custom metadata of the fields at every depth, hashable. `==` and `hash` ignore the metadata,
        and the names of the children of lists, maps and runs.
        """
        fields = self.fields
        return tuple((f.name, frozenset(f.pairs), f.type.child_field_metadata()) for f in fields) if fields else ()

    def __str__(self) -> str:
        return self.NAME

    def __repr__(self) -> str:
        return f"DataType({escape_unprintable(str(self))})"

    def __arrow_c_schema__(self) -> object:
        return export_schema("", self)

    def c_format(self) -> bytes:
        """Return the format string of the C data interface («Data type description -- format strings»), if any."""
        # Here, because `__arrow_c_schema__` can't import a higher module.
        return self.C_FORMAT

    @property
    def c_flags(self) -> int:
        """The flags of the C data interface that belong to the type."""
        return 0

    @property
    def c_dictionary_type(self) -> DataType | None:
        """The type of the dictionary in the C data interface; None unless the type is dictionary-encoded."""
        return None

    def to_storage_and_metadata(self, pairs: Metadata) -> tuple[DataType, Metadata]:
        """Return the type and custom metadata of a field of this type as they are exchanged.

        An extension type is exchanged as its storage type, with its name and parameters in the metadata.
        """
        return self, pairs


def check_one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is one of these values, which have one Python type."""
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(str, allowed))}, not {value!r}")


def is_integer_within(number: object, low: int, high: int) -> bool:
    """Whether a parameter of a type is an integer from `low` to `high`, inclusive."""
    return isinstance(number, int) and low <= number <= high


def check_size(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a size of at most 31 bits."""
    if not is_integer_within(value, 0, (1 << 31) - 1):
        raise InvalidArgumentError(f"{what} is an integer from 0 to 2147483647, not {value!r}")


def check_text(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} is a string, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"{what} has characters that UTF-8 does not encode (surrogates): {value!r}"
            ) from None


def check_type(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a data type."""
    if not isinstance(value, DataType):
        raise InvalidArgumentError(f"{what}: {value!r} is not a data type")
