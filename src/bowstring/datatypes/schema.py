"""Schemas: «an ordered sequence of fields», with custom metadata («Schema message»)."""

from __future__ import annotations

import json
import math
import operator
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field as _slot
from typing import Any, TypeAlias

from bowstring.datatypes.c_schema import import_field
from bowstring.datatypes.conversion import SupportsArrowSchema, TypeLike, field, import_field_if_foreign
from bowstring.datatypes.field import DataType, Field, Metadata, MetadataLike, as_metadata, check_metadata_is_converted
from bowstring.datatypes.types import Struct
from bowstring.display.objects import schema_to_html
from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    TypeMismatchError,
    escape_unprintable,
    format_count,
    suggest,
)
from bowstring.pyarrow_names import explain_missing_attributes

_MAX_SEARCHES = 16
"""After searching for so many names one by one, all are indexed in one pass, which takes as long as six searches."""


class LazyFields(ABC):
    """The fields of a schema, created on first access, one by one or all at once.

    An error in a field is raised when the field, or all fields, are accessed.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of fields."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all fields."""

    @abstractmethod
    def indices_of(self, name: str) -> list[int]:
        """Return the indices of the fields with this name."""

    @abstractmethod
    def field_at(self, index: int) -> Field:
        """Return the field at a valid index."""

    @abstractmethod
    def all_fields(self) -> tuple[Field, ...]:
        """Return all fields."""


@explain_missing_attributes
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Schema:
    """An ordered sequence of fields, with custom metadata.

    Equality and hash ignore the custom metadata; `equals` can compare it. Iterating yields the fields.

    >>> schema = bs.schema({"id": "int64", "name": "string"})
    >>> schema.names, schema.field("name").type
    (['id', 'name'], DataType(string))
    """

    lazy_fields: tuple[Field, ...] | LazyFields
    """The fields; the fields of a reader are created on first access."""
    pairs: Metadata = ()
    _indices: _IndicesByName = _slot(init=False)

    def __post_init__(self) -> None:
        fields = self.lazy_fields
        has_fields = type(fields) is tuple and {Field}.issuperset(map(type, fields))
        if not has_fields and not isinstance(fields, LazyFields):
            raise InvalidArgumentError(
                f"expected a tuple of fields, found {fields!r:.100}: bowstring.schema takes names and types"
            )
        check_metadata_is_converted(self.pairs, "bowstring.schema")
        object.__setattr__(self, "_indices", _IndicesByName(fields))

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, in order."""
        lazy_fields = self.lazy_fields
        return lazy_fields.all_fields() if isinstance(lazy_fields, LazyFields) else lazy_fields

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        return list(_names_of(self.lazy_fields))

    @property
    def types(self) -> list[DataType]:
        """The types of the fields, in order."""
        return [f.type for f in self.fields]

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The custom metadata as a dictionary, with the last value of a repeated key; `pairs` has all."""
        return dict(self.pairs)

    @property
    def pandas_metadata(self) -> dict[str, Any] | None:
        """What pandas keeps in the custom metadata: the index, labels and dtypes of a frame; None if there is nothing.

        Raises `InvalidDataError` if it is not JSON.
        """
        text = self.metadata.get(b"pandas")
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidDataError(f"the custom metadata 'pandas' of the schema is not JSON: {error}") from None

    def index(self, key: str | int) -> int:
        """Return the index of a field by its name or its (possibly negative) index.

        Raises `NotFoundError` if there is no such field or several have that name.

        >>> bs.schema({"a": "int64", "b": "string"}).index("b")
        1
        """
        if isinstance(key, str):
            indices = self._indices[key]
            if len(indices) == 1:
                return indices[0]
            if indices:
                ambiguous = NotFoundError(f"{len(indices)} columns are called {key!r} (at {indices})")
                ambiguous.add_note("select one by index")  # which filters and the command line can't
                raise ambiguous
            names = self.names
            raise NotFoundError(
                f"no column is called {key!r}; there are {_abbreviate_names(names)}{suggest(key, names)}"
            )
        try:
            key = operator.index(key)
        except TypeError:
            raise InvalidArgumentError(f"expected the name or the index of a column, found {key!r}") from None
        count = len(self)
        if -count <= key < count:
            return key % count
        raise NotFoundError(f"column index {key} is out of range for a schema of length {count}")

    def _position(self, i: int, count: int) -> int:
        try:
            i = operator.index(i)
        except TypeError:
            raise InvalidArgumentError(f"expected the index of a column, found {i!r:.100}") from None
        # As in `list.insert`, -1 is the position before the last field.
        if -count < i < count:
            return i if i >= 0 else i + count - 1
        raise NotFoundError(f"column index {i} is out of range for a schema of length {len(self)}")

    def _splice(self, index: int, num_dropped: int, *fields: Field | SupportsArrowSchema) -> Schema:
        old = self.fields
        return Schema((*old[:index], *as_fields(fields), *old[index + num_dropped :]), self.pairs)

    def _field_at(self, index: int) -> Field:
        lazy_fields = self.lazy_fields
        return lazy_fields.field_at(index) if isinstance(lazy_fields, LazyFields) else lazy_fields[index]

    def resolve_indices(self, keys: str | int | Iterable[str | int]) -> list[int]:
        """Return the indices of several fields, or of one, by name or index. Raises as `index`.

        >>> bs.schema({"a": "int64", "b": "string"}).resolve_indices(["b", 0])
        [1, 0]
        """
        several = [keys] if isinstance(keys, str) or not isinstance(keys, Iterable) else keys
        return list(map(self.index, several))

    def field(self, key: str | int) -> Field:
        """Return a field by name or index. Raises as `index`.

        >>> bs.schema({"a": "int64", "b": "string"}).field("b")
        Field(b: string)
        """
        return self._field_at(self.index(key))

    def select(self, keys: str | int | Iterable[str | int]) -> Schema:
        """Return the schema of some of the fields, in this order.

        >>> bs.schema({"a": "int64", "b": "string"}).select(["b"])
        Schema(b: string)
        """
        return Schema(tuple(map(self._field_at, self.resolve_indices(keys))), self.pairs)

    def get_field_index(self, name: str) -> int:
        """Return the index of a field by name; -1 if there is none, or several have that name.

        >>> bs.schema({"a": "int64", "b": "string"}).get_field_index("c")
        -1
        """
        indices = self._indices[name]
        return indices[0] if len(indices) == 1 else -1

    def get_all_field_indices(self, name: str) -> list[int]:
        """Return the indices of all fields of that name.

        >>> bs.schema([("a", "int64"), ("b", "string"), ("a", "int8")]).get_all_field_indices("a")
        [0, 2]
        """
        return list(self._indices[name])

    def append(self, field: Field | SupportsArrowSchema) -> Schema:
        """Return the schema with another field at its end.

        >>> bs.schema({"a": "int64"}).append(bs.field("b", "string"))
        Schema(a: int64, b: string)
        """
        return self._splice(len(self), 0, field)

    def insert(self, i: int, field: Field | SupportsArrowSchema) -> Schema:
        """Return the schema with another field before field `i`. Raises `NotFoundError` if `i` is out of range.

        >>> bs.schema({"a": "int64"}).insert(0, bs.field("b", "string"))
        Schema(b: string, a: int64)
        """
        return self._splice(self._position(i, len(self) + 1), 0, field)

    def set(self, i: int, field: Field | SupportsArrowSchema) -> Schema:
        """Return the schema with another field in place of field `i`. Raises `NotFoundError`.

        >>> bs.schema({"a": "int64"}).set(0, bs.field("a", "string"))
        Schema(a: string)
        """
        return self._splice(self.index(i), 1, field)

    def remove(self, i: int) -> Schema:
        """Return the schema without field `i`. Raises `NotFoundError`.

        >>> bs.schema({"a": "int64", "b": "string"}).remove(0)
        Schema(b: string)
        """
        return self._splice(self.index(i), 1)

    def to_string(self, show_field_metadata: bool = True, show_schema_metadata: bool = True) -> str:
        """Return the fields, one per line, with their custom metadata and the schema's.

        >>> print(bs.schema({"n": "int64", "city": "string"}).to_string())
        n: int64
        city: string
        """
        lines = []
        for f in self.fields:
            lines += [str(f), *_format_metadata("field", f.pairs if show_field_metadata else (), "  ")]
        return "\n".join([*lines, *_format_metadata("schema", self.pairs if show_schema_metadata else ())])

    def with_metadata(self, metadata: MetadataLike) -> Schema:
        """Return the schema with other custom metadata.

        >>> bs.schema({"a": "int64"}).with_metadata({"station": "7"}).metadata
        {b'station': b'7'}
        """
        return Schema(self.lazy_fields, as_metadata(metadata))

    def remove_metadata(self) -> Schema:
        """Return the schema without its custom metadata.

        >>> bs.schema({"a": "int64"}).with_metadata({"station": "7"}).remove_metadata().metadata
        {}
        """
        return Schema(self.lazy_fields)

    def equals(self, other: Schema | SupportsArrowSchema, check_metadata: bool = False) -> bool:
        """Return whether the fields are equal; with `check_metadata` also the custom metadata at every depth.

        `other` may be a schema of another library.

        >>> bs.schema({"a": "int64"}).equals(bs.schema({"a": "int8"}))
        False
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
        return self.lazy_fields is other.lazy_fields or self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.fields, self.pairs)

    def __contains__(self, key: object) -> bool:
        """Whether the schema has a field of this name, or this field."""
        return bool(self._indices[key]) if isinstance(key, str) else key in self.fields

    def __len__(self) -> int:
        return len(self.lazy_fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, key: str | int) -> Field:
        return self.field(key)

    def __str__(self) -> str:
        return "\n".join(str(f) for f in self.fields)

    def __arrow_c_schema__(self) -> object:
        return field_from_schema(self).__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"Schema({', '.join(map(str, self.fields))})"

    def _repr_html_(self) -> str:
        return schema_to_html(self, format_count(len(self), "column"))


class _IndicesByName(dict[str, list[int]]):
    """The indices of the fields of each name that was looked up; after `_MAX_SEARCHES` of them, of all names.

    Finding the last of a thousand names takes 50 µs, looking it up 0.3 µs. Several threads may use it.
    """

    __slots__ = ("_fields", "_has_all_names", "_searches_left")

    def __init__(self, fields: tuple[Field, ...] | LazyFields) -> None:
        self._fields = fields
        self._searches_left: float = _MAX_SEARCHES
        self._has_all_names = False

    def __missing__(self, name: str) -> list[int]:
        if self._searches_left <= 0 and not self._has_all_names:
            try:
                self._add_all_names()
            except BowstringError:  # an invalid name of one field does not hide the others
                self._searches_left = math.inf
        if self._has_all_names:
            return self.get(name, [])
        self._searches_left -= 1
        indices = _find_indices(self._fields, name)
        return self.setdefault(name, indices) if indices else indices

    def _add_all_names(self) -> None:
        indices_by_name: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(_names_of(self._fields)):
            indices_by_name[name].append(index)
        self.update(indices_by_name)
        self._has_all_names = True


def _find_indices(fields: tuple[Field, ...] | LazyFields, name: str) -> list[int]:
    if isinstance(fields, LazyFields):
        return fields.indices_of(name)
    return [index for index, f in enumerate(fields) if f.name == name]


def _names_of(fields: tuple[Field, ...] | LazyFields) -> Sequence[str]:
    return fields.names if isinstance(fields, LazyFields) else [f.name for f in fields]


def _format_metadata(owner: str, pairs: Metadata, indent: str = "") -> list[str]:
    """Return the lines that `Schema.to_string` prints of custom metadata."""
    lines = [
        f"{escape_unprintable(key.decode(errors='replace'))}: {value.decode(errors='replace')!r}"
        for key, value in pairs
    ]
    return [indent + line for line in (f"-- {owner} metadata --", *lines)] if lines else []


def _abbreviate_names(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "") if names else "none"


FieldsLike: TypeAlias = (
    Iterable[Field | SupportsArrowSchema | tuple[str, TypeLike]]
    | Mapping[str, TypeLike]
    | Mapping[str, DataType]
    | SupportsArrowSchema
)
"""Fields, (name, type) pairs, a mapping from names to types, or a schema of another library."""
SchemaLike: TypeAlias = Schema | FieldsLike
"""A schema, or anything that `schema` converts."""


def as_schema(value: SchemaLike, what: str = "a schema") -> Schema:
    """Return a schema unchanged, or convert anything that `schema` accepts.

    Raises `InvalidArgumentError` for other objects. `what` names the argument in the message.
    """
    if isinstance(value, Schema):
        return value
    is_iterable = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if is_iterable or hasattr(value, "__arrow_c_schema__"):
        return schema(value)
    raise InvalidArgumentError(f"{what}: expected a schema such as bs.schema({{'a': 'int64'}}), found {value!r:.100}")


def schema(fields: FieldsLike, metadata: MetadataLike = None) -> Schema:
    """Create a schema of fields, (name, type) pairs or a mapping from names to types, or import one.

    Types can belong to another library, or be names such as "int64". An object with `__arrow_c_schema__` is imported
    with its custom metadata, unless `metadata` replaces it.

    >>> bs.schema([("id", "int64"), bs.field("tags", bs.list_("string"), nullable=False)])
    Schema(id: int64, tags: list<item: string> not null)
    """
    if not isinstance(fields, Iterable) or hasattr(fields, "__arrow_c_schema__"):
        imported_schema = import_schema(fields)
        return imported_schema if metadata is None else Schema(imported_schema.lazy_fields, as_metadata(metadata))
    return Schema(as_fields(fields), as_metadata(metadata))


def unify_schemas(schemas: Iterable[SchemaLike]) -> Schema:
    """Return a schema with the fields of all schemas, in order of their occurrence, and the metadata of the first.

    A field is nullable if one of that name is; any other type replaces the type null. Raises `TypeMismatchError`,
    naming the field, for other differences of types, and `InvalidArgumentError` if two fields of a schema share a name.

    >>> bs.unify_schemas([bs.schema({"a": "int64"}), bs.schema({"a": "int64", "b": "string"})])
    Schema(a: int64, b: string)
    """
    sources = [as_schema(each) for each in schemas]
    unified: dict[str, Field] = {}
    for schema_index, each in enumerate(sources):
        if len(set(each.names)) < len(each):
            raise InvalidArgumentError(f"unify_schemas: schema {schema_index} has two fields of the same name")
        for new in each.fields:
            old = unified.setdefault(new.name, new)
            if old.type != new.type and "null" not in (old.type, new.type):
                raise TypeMismatchError(
                    f"unify_schemas: field {new.name!r} has type {old.type}, and {new.type} in schema {schema_index}"
                )
            type_ = new.type if old.type == "null" else old.type
            unified[new.name] = Field(new.name, type_, old.nullable or new.nullable, old.pairs)
    return Schema(tuple(unified.values()), sources[0].pairs if sources else ())


def as_fields(fields: FieldsLike) -> tuple[Field, ...]:
    """Convert fields, (name, type) pairs, a mapping, or another library's struct type or schema to fields.

    Raises `InvalidArgumentError` for anything else.
    """
    if isinstance(fields, Schema):
        return fields.fields
    if hasattr(fields, "__arrow_c_schema__"):
        return import_field_if_foreign(fields).type.fields  # type: ignore[no-any-return]
    items: Iterable[Any] = fields.items() if isinstance(fields, Mapping) else fields
    try:
        return tuple(f if isinstance(f, Field) else field(*f) for f in map(import_field_if_foreign, items))
    except TypeMismatchError:
        raise
    except TypeError:
        raise TypeMismatchError(f"expected fields or (name, type) pairs, not {fields!r:.80}") from None


def import_schema(source: object) -> Schema:
    """Import a schema from an object with `__arrow_c_schema__` or a capsule. Raises as `import_field`."""
    return schema_from_field(import_field(source))


def schema_from_field(field: Field) -> Schema:
    """Return the schema that a field of a struct type represents («Record batches» of the C data interface).

    Raises `InvalidDataError` for any other type.
    """
    if not isinstance(field.type, Struct):
        raise InvalidDataError(f"expected a struct as the type of a schema or record batch, found {field.type}")
    return Schema(field.type.children, field.pairs)


def field_from_schema(schema: Schema) -> Field:
    """Return the field of a struct type that represents a schema in the C data interface."""
    return Field("", Struct(schema.fields), False, schema.pairs)
