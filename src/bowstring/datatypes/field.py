"""Fields («Schema message») and custom metadata («Custom Application Metadata»)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field as _slot, replace
from typing import TypeAlias

from bowstring.datatypes.base import DataType, check_text
from bowstring.datatypes.c_schema_export import export_schema
from bowstring.errors import InvalidArgumentError, escape_unprintable
from bowstring.pyarrow_names import explain_missing_attributes

Metadata: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Custom metadata: key-value pairs in order. A key can occur more than once."""
MetadataLike: TypeAlias = (
    "Mapping[str, str | bytes] | Mapping[bytes, str | bytes] | Iterable[tuple[str | bytes, str | bytes]] | None"
)


def as_metadata(metadata: MetadataLike) -> Metadata:
    """Convert a mapping, or pairs, of strings or bytes to custom metadata.

    Raises `InvalidArgumentError` for anything else.
    """
    if not metadata:
        return ()
    items = metadata.items() if isinstance(metadata, Mapping) else metadata
    try:
        return tuple((_as_bytes(key), _as_bytes(value)) for key, value in items)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"custom metadata must be pairs of strings or bytes, not {metadata!r:.80}") from None


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(memoryview(text))


@explain_missing_attributes
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Field:
    """A named, typed column or child.

    Equality and hash ignore the custom metadata; `equals` can compare it.

    >>> field = bs.field("price", "float64", nullable=False, metadata={"unit": "EUR"})
    >>> field.name, field.type, field.nullable, field.metadata
    ('price', DataType(double), False, {b'unit': b'EUR'})
    """

    name: str
    type: DataType
    nullable: bool = True
    pairs: Metadata = _slot(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.type, DataType):
            raise InvalidArgumentError(
                f"field {self.name!r}: expected a data type, found {self.type!r:.100}: bowstring.field and "
                "bowstring.datatypes.as_type convert names of types and types of other libraries"
            )
        if not isinstance(self.name, str):
            check_field_name(self.name)
        check_metadata_is_converted(self.pairs, "bowstring.field")

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The custom metadata as a dictionary, with the last value of a repeated key; `pairs` has all."""
        return dict(self.pairs)

    def with_name(self, name: str) -> Field:
        """Return the field with another name. Raises `InvalidArgumentError` if it is not a string.

        >>> bs.field("a", "int64").with_name("b")
        Field(b: int64)
        """
        check_field_name(name)
        return replace(self, name=name)

    def with_type(self, type: DataType) -> Field:
        """Return the field with another data type. Raises `InvalidArgumentError` for any other object.

        >>> bs.field("a", "int64").with_type(bs.string())
        Field(a: string)
        """
        return replace(self, type=type)

    def with_nullable(self, nullable: bool) -> Field:
        """Return the field, nullable or not.

        >>> bs.field("a", "int64").with_nullable(False)
        Field(a: int64 not null)
        """
        return replace(self, nullable=nullable)

    def with_metadata(self, metadata: MetadataLike) -> Field:
        """Return the field with other custom metadata.

        >>> bs.field("a", "int64").with_metadata({"unit": "m"}).metadata
        {b'unit': b'm'}
        """
        return replace(self, pairs=as_metadata(metadata))

    def remove_metadata(self) -> Field:
        """Return the field without its custom metadata.

        >>> bs.field("a", "int64", metadata={"unit": "m"}).remove_metadata().metadata
        {}
        """
        return replace(self, pairs=())

    def equals(self, other: object, check_metadata: bool = False) -> bool:
        """Return whether name, type and nullability are equal; with `check_metadata` also the custom metadata of the
        field and its children at every depth.

        `bowstring.datatypes.import_field` converts fields of other libraries.

        >>> bs.field("a", "int64").equals(bs.field("a", "int64", nullable=False))
        False
        """
        if not isinstance(other, Field) or self != other:
            return False
        return not check_metadata or (
            sorted(self.pairs) == sorted(other.pairs) and self.type.equals(other.type, check_metadata=True)
        )

    def _to_string(self) -> str:
        return escape_unprintable(f"{self.name}: {self.type}" + ("" if self.nullable else " not null"))

    def __str__(self) -> str:
        return self._to_string()

    def __arrow_c_schema__(self) -> object:
        return export_schema(self.name, self.type, self.nullable, self.pairs)

    def __repr__(self) -> str:
        return f"Field({self._to_string()})"


def check_metadata_is_converted(pairs: Metadata, function: str) -> None:
    """Raise `InvalidArgumentError` for custom metadata that is not a tuple, naming the function that converts it."""
    if pairs.__class__ is not tuple:
        raise InvalidArgumentError(f"expected custom metadata as a tuple of pairs: {function} converts a dictionary")


def check_field_name(name: str) -> None:
    """Raise `InvalidArgumentError` unless a field's name is a string that UTF-8 can encode."""
    check_text("a field's name", name)
