"""Convert arguments to data types and fields: types of another library, and names of types."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.aliases import parse_alias
from bowstring.datatypes.c_schema import import_field
from bowstring.datatypes.field import DataType, Field, MetadataLike, as_metadata, check_field_name
from bowstring.errors import InvalidArgumentError


class SupportsArrowSchema(Protocol):
    """An ArrowSchema exporter of the PyCapsule interface."""

    def __arrow_c_schema__(self) -> object:
        """Return an "arrow_schema" capsule."""


TypeLike: TypeAlias = SupportsArrowSchema | str
"""A data type of Bowstring or of another library, or the name of one."""


def as_type(value: object, what: str = "a data type") -> DataType:
    """Return a data type unchanged, or convert one of another library (`__arrow_c_schema__`) or a name such as "int64".

    Raises `InvalidArgumentError` for any other object; `what` names the argument in the message.

    >>> import pyarrow as pa
    >>> bs.datatypes.as_type("int64"), bs.datatypes.as_type(pa.list_(pa.string()))
    (DataType(int64), DataType(list<item: string>))
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        return parse_alias(value)
    if hasattr(value, "__arrow_c_schema__"):
        return import_field(value).type
    raise InvalidArgumentError(f"{what}: expected a type such as bs.int32() or 'int32', found {value!r:.100}")


def field(
    name: str | SupportsArrowSchema,
    type: TypeLike | None = None,
    nullable: bool | None = None,
    metadata: MetadataLike = None,
) -> Field:
    """Create a field: a named, typed column or child, nullable by default. Or import one of another library.

    The type is one of Bowstring or of another library, or a name such as "int64". The other arguments replace those of
    an imported field. Raises `InvalidArgumentError` if the name is not a string, or for any other object as the type.

    >>> bs.field("tags", bs.list_("string"), nullable=False)
    Field(tags: list<item: string> not null)
    """
    if not isinstance(name, str) and hasattr(name, "__arrow_c_schema__"):
        imported: Field = import_field_if_foreign(name)
        imported = imported if type is None else imported.with_type(as_type(type, f"field {imported.name!r}"))
        imported = imported if nullable is None else imported.with_nullable(nullable)
        return imported if metadata is None else imported.with_metadata(metadata)
    check_field_name(name)  # type: ignore[arg-type]
    return Field(name, as_type(type, f"field {name!r}"), nullable is not False, as_metadata(metadata))  # type: ignore[arg-type]


def import_field_if_foreign(value: Any) -> Any:
    """Import a field of another library; return anything else unchanged."""
    if isinstance(value, Field) or not hasattr(value, "__arrow_c_schema__"):
        return value
    return import_field(value)
