"""Extension types («Extension Types»): a storage type with a name and parameters, and the registry of such types.

An extension is exchanged as two keys of its field's custom metadata. `resolve_extension_type` returns a field of the
registered extension type, or for an unknown extension the field itself; `to_storage_field` is the inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from bowstring.datatypes.field import DataType, Field, Metadata
from bowstring.datatypes.types import Dictionary
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError
from bowstring.fork_safe_imports import completed_before_forks

NAME_KEY = b"ARROW:extension:name"
METADATA_KEY = b"ARROW:extension:metadata"


@dataclass(frozen=True, slots=True, repr=False)
class ExtensionType(DataType):
    """The base of extension types: subclass it as a frozen dataclass, set `EXTENSION_NAME`, and register the class.

    `decode` and `encode` convert between values of the storage type and Python values; by default they are the same.

    >>> class Meters(bs.datatypes.ExtensionType):
    ...     EXTENSION_NAME = "example.meters"
    ...     def decode(self, value):
    ...         return f"{value} m"
    >>> bs.array([1.5, None], Meters(bs.float64())).to_pylist()
    ['1.5 m', None]
    """

    EXTENSION_NAME: ClassVar[str] = ""
    VALUE_FIELD: ClassVar[int | None] = None
    """The index of the struct's field that orders the values, and that casts to the field's type return, if any."""

    storage_type: DataType

    @property
    def extension_name(self) -> str:
        """The name in the field's custom metadata."""
        return self.EXTENSION_NAME

    @property
    def fields(self) -> tuple[Field, ...]:
        """The child fields of the storage type."""
        return self.storage_type.fields

    def child_field_metadata(self) -> tuple[object, ...]:
        """The custom metadata of the fields in the storage type."""
        return self.storage_type.child_field_metadata()

    def serialize(self) -> bytes:
        """Serialize the type's parameters for the field's custom metadata."""
        return b""

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """Create the type from its storage type and parameters.

        Raises `InvalidDataError` if they do not fit; the parameters are external data.
        """
        if serialized:
            raise InvalidDataError(f"{cls.__name__} has no parameters, found metadata {serialized[:40]!r}")
        return cls(storage_type)

    def decode(self, value: Any) -> Any:
        """Convert a value of the storage type to a Python value (never called with None)."""
        return value

    def encode(self, value: Any) -> Any:
        """Convert a Python value to a value of the storage type (never called with None)."""
        return value

    def check_storage_value(self, value: Any) -> None:
        """Raise `InvalidDataError` if a value of the storage type (never None) is not valid for this type.

        Full validation calls it for each value.
        """

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:  # noqa: ARG002
        """Convert NumPy values of the storage type to this type, with rows first; by default unchanged.

        Returns None if they would have to be copied, but `allow_copy` is False.
        """
        return values

    def to_storage_numpy(self, values: Any) -> Any:  # noqa: ARG002
        """Convert NumPy values of this type to the storage type; None (the default) to encode values one by one."""
        return None

    def to_storage_and_metadata(self, pairs: Metadata) -> tuple[DataType, Metadata]:
        """Return the storage type, and the custom metadata with the extension's name and parameters."""
        other_pairs = tuple(pair for pair in pairs if pair[0] not in (NAME_KEY, METADATA_KEY))
        extension_pairs = ((NAME_KEY, self.extension_name.encode()), (METADATA_KEY, self.serialize()))
        return self.storage_type, (*other_pairs, *extension_pairs)

    def __str__(self) -> str:
        return f"extension<{self.extension_name}[{self.storage_type}]>"


_REGISTRY: dict[str, type[ExtensionType]] = {}
_AnyExtension = TypeVar("_AnyExtension", bound=type[ExtensionType])
_CANONICAL = {
    "arrow.bool8": "bool8",
    "arrow.fixed_shape_tensor": "tensors",
    "arrow.json": "json",
    "arrow.opaque": "opaque",
    "arrow.parquet.variant": "parquet_variant",
    "arrow.timestamp_with_offset": "timestamp_with_offset",
    "arrow.uuid": "uuid",
    "arrow.variable_shape_tensor": "tensors",
}
"""The canonical extension types and the modules that register them, which are imported on first use."""


def _import_canonical_module(name: str) -> None:
    if name in _CANONICAL:
        with completed_before_forks():
            import_module(f"bowstring.datatypes.canonical.{_CANONICAL[name]}")


def register_extension_type(extension: _AnyExtension) -> _AnyExtension:
    """Register an extension type for fields with its name; can be used as a class decorator.

    Raises `InvalidArgumentError` if the name is empty or taken.

    >>> @bs.datatypes.register_extension_type
    ... class Email(bs.datatypes.ExtensionType):
    ...     EXTENSION_NAME = "example.email"
    >>> imported = bs.datatypes.import_field(bs.field("to", Email(bs.string())))  # as from another library
    >>> isinstance(imported.type, Email)
    True
    >>> bs.datatypes.unregister_extension_type("example.email")
    """
    candidate: object = extension
    if not (isinstance(candidate, type) and issubclass(candidate, ExtensionType)):
        raise InvalidArgumentError(f"expected a subclass of ExtensionType, not {extension!r}")
    name = extension.EXTENSION_NAME
    if not name:
        raise InvalidArgumentError(f"{extension.__name__} has no EXTENSION_NAME")
    if not extension.__module__.startswith("bowstring.datatypes.canonical."):
        _import_canonical_module(name)
    if _REGISTRY.setdefault(name, extension) is not extension:
        raise InvalidArgumentError(f"the extension name {name!r} is taken by {_REGISTRY[name].__name__}")
    return extension


def unregister_extension_type(name: str) -> None:
    """Remove an extension type from the registry; its fields are then read as the storage type.

    >>> @bs.datatypes.register_extension_type
    ... class Address(bs.datatypes.ExtensionType):
    ...     EXTENSION_NAME = "example.address"
    >>> bs.datatypes.unregister_extension_type("example.address")
    """
    _import_canonical_module(name)
    if _REGISTRY.pop(name, None) is None:
        raise InvalidArgumentError(f"no extension type is called {name!r}")


def resolve_extension_type(field: Field) -> Field:
    """Return the field with its registered extension type if its custom metadata names one; else the field itself.

    Raises `InvalidDataError` if storage type or parameters do not fit the extension that is named. A field of
    dictionaries is then unchanged: some writers set the extension of the dictionary's values on the field, too.
    """
    pairs = dict(field.pairs)
    name = pairs.get(NAME_KEY, b"").decode("utf-8", "replace")
    _import_canonical_module(name)
    extension = _REGISTRY.get(name)
    if extension is None:
        return field
    other_pairs = tuple(pair for pair in field.pairs if pair[0] not in (NAME_KEY, METADATA_KEY))
    try:
        data_type = _deserialize(extension, field.type, pairs.get(METADATA_KEY, b""))
    except InvalidDataError:
        if isinstance(field.type, Dictionary):
            return field
        raise
    return Field(field.name, data_type, field.nullable, other_pairs)


def _deserialize(extension: type[ExtensionType], storage_type: DataType, parameters: bytes) -> ExtensionType:
    """Return the extension type of a storage type and parameters. Raises only `InvalidDataError` for invalid ones."""
    try:
        return extension.deserialize(storage_type, parameters)
    except InvalidArgumentError as error:  # from the type's own checks: the data is invalid
        raise InvalidDataError(str(error)) from None
    except BowstringError:
        raise
    except Exception as error:  # a user's class may raise anything for external data
        raise InvalidDataError(
            f"{parameters[:40]!r} is not valid metadata of {extension.__name__} with storage "
            f"{storage_type}: {type(error).__name__}: {error}"
        ) from error


def get_storage_type(type: DataType) -> DataType:
    """Return the storage type of an extension type; any other type unchanged."""
    return type.storage_type if isinstance(type, ExtensionType) else type


def to_storage_field(field: Field) -> Field:
    """Return a field of an extension type with the storage type and custom metadata; any other field unchanged."""
    type_, pairs = field.type.to_storage_and_metadata(field.pairs)
    return field if type_ is field.type else Field(field.name, type_, field.nullable, pairs)
