"""Fields and schemas («Schema message»), with custom metadata («Custom Application Metadata»)."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field as _slot, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from bowstring.errors import DataTypeError, NotFoundError, UsageError

if TYPE_CHECKING:
    from bowstring.datatypes.base import DataType, HasSchema, TypeLike

Metadata: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Custom metadata: key-value pairs in order; a key may come more than once."""
MetadataLike: TypeAlias = (
    "Mapping[str, str | bytes] | Mapping[bytes, str | bytes] | Iterable[tuple[str | bytes, str | bytes]] | None"
)


def as_metadata(metadata: MetadataLike) -> Metadata:
    """Custom metadata from a mapping or pairs of strings or bytes."""
    if not metadata:
        return ()
    items = metadata.items() if isinstance(metadata, Mapping) else metadata
    try:
        return tuple((_as_bytes(key), _as_bytes(value)) for key, value in items)
    except (TypeError, ValueError):
        raise UsageError(f"custom metadata is pairs of strings or bytes, not {metadata!r:.80}") from None


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(memoryview(text))


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column or child.

    Equality and hash leave the custom metadata out; `equals` can take it in.
    """

    name: str
    type: DataType
    nullable: bool = True
    pairs: Metadata = _slot(default=(), compare=False)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The custom metadata as a dictionary (the last of several equal keys wins; `pairs` has them all)."""
        return dict(self.pairs)

    def with_name(self, name: str) -> Field:
        """The same field under another name. Raises `UsageError` if it is no string."""
        check_name(name)
        return replace(self, name=name)

    def with_type(self, type: TypeLike) -> Field:
        """The same field with another type, given as `field` takes it. Raises `UsageError` for anything else."""
        from bowstring.datatypes.base import as_type

        return replace(self, type=as_type(type, f"field {self.name!r}"))

    def with_nullable(self, nullable: bool) -> Field:
        """The same field, nullable or not."""
        return replace(self, nullable=nullable)

    def with_metadata(self, metadata: MetadataLike) -> Field:
        """The same field with other custom metadata."""
        return replace(self, pairs=as_metadata(metadata))

    def remove_metadata(self) -> Field:
        """The same field without custom metadata of its own."""
        return replace(self, pairs=())

    def equals(self, other: Field | HasSchema, check_metadata: bool = False) -> bool:
        """Whether name, type and nullability are the same, and the custom metadata at every level if asked for.

        The other may be a field of another library.
        """
        other = coerce_field(other)
        if self != other:
            return False
        return not check_metadata or (
            sorted(self.pairs) == sorted(other.pairs) and self.type.equals(other.type, check_metadata=True)
        )

    def _to_string(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.nullable else " not null")

    def __str__(self) -> str:
        return self._to_string()

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_field(self)

    def __repr__(self) -> str:
        return f"Field({self._to_string()})"


_SETTERS = [Field.__dict__[name].__set__ for name in ("name", "type", "nullable", "pairs")]


def make_fields(
    names: Sequence[str], types: Sequence[DataType], nullable: Sequence[bool], pairs: Sequence[Metadata]
) -> list[Field]:
    """Create many fields at once, several times faster than one at a time."""
    fields = list(map(Field.__new__, repeat(Field, len(names))))
    for set_attribute, values in zip(_SETTERS, (names, types, nullable, pairs), strict=True):
        deque(map(set_attribute, fields, values), 0)
    return fields


def check_name(name: str) -> None:
    """Raise `UsageError` if a field cannot be called so: the name is no string, or has no form in UTF-8."""
    if not isinstance(name, str):
        raise UsageError(f"a field's name is a string, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"a field's name has characters that UTF-8 does not encode (surrogates): {name!r}") from None


def field(name: str, type: TypeLike, nullable: bool = True, metadata: MetadataLike = None) -> Field:
    """A named, typed column or child.

    The type is one of ours or of another library, or the name of one, such as "int64". Raises `UsageError` if the
    name is not a string, or the type is none of these.
    """
    from bowstring.datatypes.base import as_type

    check_name(name)
    return Field(name, as_type(type, f"field {name!r}"), nullable, as_metadata(metadata))


FieldsLike: TypeAlias = (
    "Iterable[Field | HasSchema | tuple[str, TypeLike]] | Mapping[str, TypeLike] | Mapping[str, DataType] | HasSchema"
)


def coerce_field(value: Any) -> Any:
    """Import a field of another library; return anything else unchanged."""
    if isinstance(value, Field) or not hasattr(value, "__arrow_c_schema__"):
        return value
    from bowstring.interop import c_data

    return c_data.import_field(value)


def as_fields(fields: FieldsLike) -> tuple[Field, ...]:
    """Fields from fields, (name, type) pairs, a mapping, or another library's struct type or schema.

    Raises `UsageError` for anything else.
    """
    if isinstance(fields, Schema):
        return fields.fields
    if hasattr(fields, "__arrow_c_schema__"):
        return coerce_field(fields).type.fields  # type: ignore[no-any-return]
    items: Iterable[Any] = fields.items() if isinstance(fields, Mapping) else fields
    try:
        return tuple(f if isinstance(f, Field) else field(*f) for f in map(coerce_field, items))
    except DataTypeError:
        raise
    except TypeError:
        raise DataTypeError(f"expected fields or (name, type) pairs, not {fields!r:.80}") from None


class LazyFields(ABC):
    """The fields of a schema that are made on first access, one by one or all at once.

    What is wrong with a field is told where it is asked for, or all are.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all."""

    @abstractmethod
    def named(self, name: str) -> list[int]:
        """Return the indices of the fields with this name."""

    @abstractmethod
    def one(self, index: int) -> Field:
        """Return the field at a valid index."""

    @abstractmethod
    def all(self) -> tuple[Field, ...]:
        """All of them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schema:
    """An ordered sequence of fields, with custom metadata.

    Equality and hash leave the custom metadata out; `equals` can take it in. Iterating gives the fields.
    """

    source: tuple[Field, ...] | LazyFields
    """The fields as they were handed in: a reader's are made on first access."""
    pairs: Metadata = ()
    _indices: dict[str, int] = _slot(default_factory=dict, init=False)
    """The position of each name that was looked up."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, in order."""
        source = self.source
        return source.all() if isinstance(source, LazyFields) else source

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        source = self.source
        return list(source.names) if isinstance(source, LazyFields) else [f.name for f in source]

    @property
    def types(self) -> list[DataType]:
        """The types of the fields, in order."""
        return [f.type for f in self.fields]

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The custom metadata as a dictionary (the last of several equal keys wins; `pairs` has them all)."""
        return dict(self.pairs)

    def index(self, key: str | int) -> int:
        """Return the index of a field by its name or its (possibly negative) index.

        Raises `NotFoundError` if there is no such field or several have that name.
        """
        if isinstance(key, str):
            index = self._indices.get(key)
            if index is not None:
                return index
            indices = self._named(key)
            if len(indices) == 1:
                return self._indices.setdefault(key, indices[0])
            if indices:
                raise NotFoundError(f"{len(indices)} columns are called {key!r} (at {indices}): take one by its index")
            raise NotFoundError(f"no column is called {key!r}; there are {_abbreviate(self.names)}")
        try:
            key = operator.index(key)
        except TypeError:
            raise UsageError(f"a column is found by its name or its index, not by {key!r}") from None
        if -len(self) <= key < len(self):
            return key % len(self)
        raise NotFoundError(f"there is no column {key}: the schema has {len(self)}")

    def _named(self, name: str) -> list[int]:
        source = self.source
        if isinstance(source, LazyFields):
            return source.named(name)
        return [i for i, f in enumerate(source) if f.name == name]

    def _at(self, index: int) -> Field:
        source = self.source
        return source.one(index) if isinstance(source, LazyFields) else source[index]

    def indices(self, keys: str | int | Iterable[str | int]) -> list[int]:
        """The positions of several fields, or of the one whose name or index is given; raises like `index`."""
        several = [keys] if isinstance(keys, str) or not isinstance(keys, Iterable) else keys
        return list(map(self.index, several))

    def field(self, key: str | int) -> Field:
        """A field, by its name or index; raises like `index`."""
        return self._at(self.index(key))

    def select(self, keys: str | int | Iterable[str | int]) -> Schema:
        """The schema of some of the fields, in the order given."""
        return Schema(tuple(map(self._at, self.indices(keys))), self.pairs)

    def with_metadata(self, metadata: MetadataLike) -> Schema:
        """The same schema with other custom metadata."""
        return Schema(self.source, as_metadata(metadata))

    def remove_metadata(self) -> Schema:
        """The same schema without custom metadata of its own."""
        return Schema(self.source)

    def equals(self, other: Schema | HasSchema, check_metadata: bool = False) -> bool:
        """Whether the fields are the same, and the custom metadata at every level if asked for.

        The other may be a schema of another library.
        """
        other = as_schema(other)
        if self != other:
            return False
        if not check_metadata:
            return True
        return sorted(self.pairs) == sorted(other.pairs) and all(
            a.equals(b, True) for a, b in zip(self.fields, other.fields, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self.source is other.source or self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.fields, self.pairs)

    def __contains__(self, key: object) -> bool:
        """Whether there is a field of this name, or this field."""
        return bool(self._named(key)) if isinstance(key, str) else key in self.fields

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, key: str | int) -> Field:
        return self.field(key)

    def __str__(self) -> str:
        return "\n".join(str(f) for f in self.fields)

    def __arrow_c_schema__(self) -> object:
        from bowstring.interop import c_data

        return c_data.export_schema(self)

    def __repr__(self) -> str:
        return f"Schema({', '.join(map(str, self.fields))})"


def _abbreviate(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "") if names else "none"


SchemaLike: TypeAlias = "Schema | FieldsLike"
"""What is taken for a schema: anything that `schema` takes."""


def as_schema(value: SchemaLike, what: str = "a schema") -> Schema:
    """A schema, or what `schema` makes one of; raises `UsageError` for anything else, `what` says what it was given
    for.
    """
    if isinstance(value, Schema):
        return value
    is_iterable = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if is_iterable or hasattr(value, "__arrow_c_schema__"):
        return schema(value)
    raise UsageError(f"{what}: expected a schema such as bs.schema({{'a': 'int64'}}), found {value!r:.100}")


def schema(fields: FieldsLike, metadata: MetadataLike = None) -> Schema:
    """A schema from fields, (name, type) pairs, a mapping from names to types, or another library's schema or table.

    Types may be another library's, or names such as "int64".
    What has `__arrow_c_schema__` is taken by it, with its metadata where none is given here.
    """
    if not isinstance(fields, Iterable) or hasattr(fields, "__arrow_c_schema__"):
        from bowstring.interop import c_data

        imported = c_data.import_schema(fields)
        return imported if metadata is None else Schema(imported.source, as_metadata(metadata))
    return Schema(as_fields(fields), as_metadata(metadata))
