"""Convert arguments to data types and fields: types of another library, and names of types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.c_schema import import_field
from bowstring.datatypes.field import DataType, Field, MetadataLike, as_metadata, check_field_name
from bowstring.datatypes.types import SIMPLE_TYPES, Decimal, FixedSizeBinary, Timestamp
from bowstring.errors import InvalidArgumentError, suggest


class SupportsArrowSchema(Protocol):
    """An ArrowSchema exporter of the PyCapsule interface."""

    def __arrow_c_schema__(self) -> object:
        """Return an "arrow_schema" capsule."""


TypeLike: TypeAlias = SupportsArrowSchema | str
"""A data type of Bowstring or of another library, or the name of one."""

_ALIASES: dict[str, DataType] = {name: data_type for data_type in SIMPLE_TYPES for name in data_type.aliases()}
_PARAMETERS: tuple[tuple[str, Callable[[re.Match[str]], DataType]], ...] = (
    (r"timestamp\[(s|ms|us|ns), tz=(.+)\]", lambda match: Timestamp(match[1], match[2])),  # type: ignore[arg-type]
    (r"decimal(32|64|128|256)\((\d+), *(-?\d+)\)", lambda match: Decimal(int(match[2]), int(match[3]), int(match[1]))),
    (r"fixed_size_binary\[(\d+)\]", lambda match: FixedSizeBinary(int(match[1]))),
)


def parse_alias(name: str) -> DataType:
    """Return the data type of a name such as "int64", "float32", "timestamp[us, tz=UTC]" or "decimal128(10, 2)".

    Raises `InvalidArgumentError` for any other name.
    """
    data_type = _ALIASES.get(name)
    if data_type is not None:
        return data_type
    for pattern, create_type in _PARAMETERS:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return create_type(match)
    raise InvalidArgumentError(
        f"{name!r:.100} is not the name of a data type without children, such as 'int64'{suggest(name, _ALIASES)}"
    )


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
