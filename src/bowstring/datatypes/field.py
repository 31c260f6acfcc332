"""Data types and fields, which contain each other («Schema message»), and their custom metadata («Custom Application
Metadata»). Also as C structures: each type class has its own format string and flags.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field as _slot, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from bowstring.datatypes.parameters import check_text, is_integer_within
from bowstring.errors import InvalidArgumentError, NotFoundError, UnsupportedTypeError, escape_unprintable
from bowstring.memory import c_abi
from bowstring.pyarrow_names import explain_missing_attributes

NULLABLE = 2
"""ARROW_FLAG_NULLABLE of the C data interface."""

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
    ALIASES: ClassVar[tuple[str, ...]] = ()

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
        return self.ALIASES or (() if self.fields else (str(self),))

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
        return Field("", self).__arrow_c_schema__()

    def c_format(self) -> bytes:
        """Return the format string of the C data interface («Data type description -- format strings»), if any."""
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
        return c_abi.new_capsule(c_abi.SCHEMA_CAPSULE, build_field_block(self))

    def __repr__(self) -> str:
        return f"Field({self._to_string()})"


def check_metadata_is_converted(pairs: Metadata, function: str) -> None:
    """Raise `InvalidArgumentError` for custom metadata that is not a tuple, naming the function that converts it."""
    if pairs.__class__ is not tuple:
        raise InvalidArgumentError(f"expected custom metadata as a tuple of pairs: {function} converts a dictionary")


def check_field_name(name: str) -> None:
    """Raise `InvalidArgumentError` unless a field's name is a string that UTF-8 can encode."""
    check_text("a field's name", name)


def check_type(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a data type."""
    if not isinstance(value, DataType):
        raise InvalidArgumentError(f"{what}: {value!r} is not a data type")


# C structures


def build_field_block(field: Field) -> c_abi.ExportedStructBlock:
    """Return a block with the ArrowSchema structure of a field («The ArrowSchema structure» of the C data interface).

    Raises `UnsupportedTypeError`, naming the field's path, for types and names that the C data interface can't express.
    """
    with c_abi.ExportedStructBlock() as block:
        _append_schema_struct(block, field, field.name)
    return block


def _append_schema_struct(block: c_abi.ExportedStructBlock, field: Field, path: str) -> int:
    type_, pairs = field.type.to_storage_and_metadata(field.pairs)
    encoded_name = field.name.encode()
    if b"\0" in encoded_name:
        raise UnsupportedTypeError(
            f"the name of field {path!r} contains a NUL character, which is not allowed in a C string"
        )
    children, flags = type_.fields, type_.c_flags | (NULLABLE if field.nullable else 0)
    index = block.append_fields([0, 0, 0, flags, len(children), 0, 0, c_abi.RELEASE_SCHEMA_ADDRESS, block.retain()])
    try:
        block.set_string(index + c_abi.FORMAT, _format_string(type_) + b"\0")
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}") from None
    block.set_string(index + c_abi.NAME, encoded_name + b"\0")
    if pairs:
        block.set_string(index + c_abi.METADATA, _encode_metadata(pairs))
    if children:
        pointers = block.append_fields([0] * len(children))
        block.set_pointer(index + c_abi.SCHEMA_CHILDREN, pointers)
        for i, child in enumerate(children):
            block.set_pointer(pointers + i, _append_schema_struct(block, child, f"{path}.{child.name}"))
    if type_.c_dictionary_type is not None:
        dictionary = _append_schema_struct(block, Field("", type_.c_dictionary_type), f"{path}.dictionary")
        block.set_pointer(index + c_abi.SCHEMA_DICTIONARY, dictionary)
    return index


def _format_string(type_: DataType) -> bytes:
    text = type_.c_format()
    if not text:
        raise UnsupportedTypeError(f"{type_} has no format string in the C data interface")
    if b"\0" in text:
        raise UnsupportedTypeError(f"{type_} contains a NUL character, which is not allowed in a format string")
    return text


def _encode_metadata(pairs: Metadata) -> bytes:
    parts = [struct.pack("=i", len(pairs))]
    for text in (text for pair in pairs for text in pair):
        parts += (struct.pack("=i", len(text)), text)
    return b"".join(parts)
