"""Extension types («Extension Types»): a storage type with a name and parameters of its own, and their registry.

An extension travels as two keys of its field's custom metadata. `resolve` turns a field that carries them into one
whose type is the registered extension type, and leaves the fields of unknown extensions untouched; `annotate` is the
way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from bowstring.datatypes.field import Field
from bowstring.datatypes.types import DataType
from bowstring.errors import BowstringError, InvalidDataError, UsageError

NAME_KEY = b"ARROW:extension:name"
METADATA_KEY = b"ARROW:extension:metadata"


@dataclass(frozen=True, slots=True, repr=False)
class ExtensionType(DataType):
    """The base of extension types: subclass it as a frozen dataclass, set `EXTENSION_NAME`, and register the class.

    `decode` and `encode` convert between values of the storage type and Python values; by default they are the same.
    """

    EXTENSION_NAME: ClassVar[str] = ""

    storage_type: DataType

    @property
    def extension_name(self) -> str:
        """The name in the field's custom metadata."""
        return self.EXTENSION_NAME

    @property
    def fields(self) -> tuple[Field, ...]:
        """The child fields of the storage type."""
        return self.storage_type.fields

    def nested_metadata(self) -> tuple[object, ...]:
        """That of the storage type."""
        return self.storage_type.nested_metadata()

    def serialize(self) -> bytes:
        """Serialize the type's parameters for the field's custom metadata."""
        return b""

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """Create the type from its storage type and parameters.

        Raises `InvalidDataError` if they do not fit (the parameters come from outside).
        """
        if serialized:
            raise InvalidDataError(f"{cls.__name__} takes no parameters, its metadata is {serialized[:40]!r}")
        return cls(storage_type)

    def decode(self, value: Any) -> Any:
        """Convert a value of the storage type to a Python value (never called with None)."""
        return value

    def encode(self, value: Any) -> Any:
        """Convert a Python value to a value of the storage type (never called with None)."""
        return value

    def check_value(self, value: Any) -> None:
        """Raise `InvalidDataError` for a value of the storage type (never None) that stands for none of this type.

        Full validation asks for each value.
        """

    def from_storage_numpy(self, values: Any, allow_copy: bool) -> Any:  # noqa: ARG002
        """The storage's NumPy form as this type's, rows first; by default the same.

        None where it would have to be copied, but may not.
        """
        return values

    def to_storage_numpy(self, values: Any) -> Any:  # noqa: ARG002
        """This type's NumPy form as the storage's; None, the default, where values have to be encoded one by one."""
        return None

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
"""The canonical extension types, registered from the start, and the modules that register them when loaded."""


def _load(name: str) -> None:
    if name in _CANONICAL:
        import_module(f"bowstring.datatypes.canonical.{_CANONICAL[name]}")


def register_extension_type(extension: _AnyExtension) -> _AnyExtension:
    """Register an extension type, so that fields with its name get it; usable as a class decorator.

    Raises `UsageError` if the name is empty or taken.
    """
    candidate: object = extension
    if not (isinstance(candidate, type) and issubclass(candidate, ExtensionType)):
        raise UsageError(f"expected a subclass of ExtensionType, not {extension!r}")
    name = extension.EXTENSION_NAME
    if not name:
        raise UsageError(f"{extension.__name__} has no EXTENSION_NAME")
    if not extension.__module__.startswith("bowstring.datatypes.canonical."):
        _load(name)
    if _REGISTRY.setdefault(name, extension) is not extension:
        raise UsageError(f"the extension name {name!r} is taken by {_REGISTRY[name].__name__}")
    return extension


def unregister_extension_type(name: str) -> None:
    """Remove an extension type from the registry; its fields are then read as their storage type."""
    _load(name)
    if _REGISTRY.pop(name, None) is None:
        raise UsageError(f"no extension type is called {name!r}")


def resolve(field: Field) -> Field:
    """The field with its registered extension type, if its custom metadata names one; else the field itself.

    Raises `InvalidDataError` if storage type or parameters do not fit the extension that is named.
    """
    pairs = dict(field.pairs)
    name = pairs.get(NAME_KEY, b"").decode("utf-8", "replace")
    _load(name)
    extension = _REGISTRY.get(name)
    if extension is None:
        return field
    other_pairs = tuple(pair for pair in field.pairs if pair[0] not in (NAME_KEY, METADATA_KEY))
    parameters = pairs.get(METADATA_KEY, b"")
    try:
        data_type = extension.deserialize(field.type, parameters)
    except UsageError as error:  # from the type's own checks: here it is the data's fault
        raise InvalidDataError(str(error)) from None
    except BowstringError:
        raise
    except Exception as error:  # the parameters come from outside, whatever the class makes of them
        raise InvalidDataError(
            f"field {field.name!r}: {parameters[:40]!r} over {field.type} does not make a {extension.__name__}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return Field(field.name, data_type, field.nullable, other_pairs)


def annotate(field: Field) -> Field:
    """The field with its extension type spelled out as storage type and custom metadata; else the field itself."""
    extension = field.type
    if not isinstance(extension, ExtensionType):
        return field
    other_pairs = tuple(pair for pair in field.pairs if pair[0] not in (NAME_KEY, METADATA_KEY))
    extension_pairs = ((NAME_KEY, extension.extension_name.encode()), (METADATA_KEY, extension.serialize()))
    return Field(field.name, extension.storage_type, field.nullable, (*other_pairs, *extension_pairs))
