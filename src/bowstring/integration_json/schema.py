"""«Schema», «Field», «Metadata» and «Type» of the JSON test data format: reading and writing.

A dictionary-encoded field has the type of its values and the ID of its dictionary. IDs are not part of a `Schema`; they
are kept in a parallel tree of `JsonField`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import extension, types as t
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, LimitError, UnsupportedTypeError, UsageError
from bowstring.integration_json.document import DocumentLimits, Json, expect, member
from bowstring.layouts.base import error_context

_UNITS: dict[str, t.TimeUnit] = {"SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us", "NANOSECOND": "ns"}
_PRECISIONS = {"HALF": 16, "SINGLE": 32, "DOUBLE": 64}
_DATE_UNITS: dict[str, Any] = {"DAY": "day", "MILLISECOND": "ms"}
_INTERVALS: dict[str, t.IntervalUnit] = {
    "YEAR_MONTH": "year_month",
    "DAY_TIME": "day_time",
    "MONTH_DAY_NANO": "month_day_nano",
}
_MODES: dict[str, Any] = {"SPARSE": "sparse", "DENSE": "dense"}

_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field with its dictionary ID, if any, and the nodes of its children.

    The children of a dictionary-encoded field are those of its value type.
    """

    field: Field
    id: int | None
    children: tuple[JsonField, ...]


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A member of a «Type» object: its key, the attribute of the data type, and its JSON type or names of values."""

    key: str
    attribute: str
    json_type_or_names: type | dict[str, Any]
    default: Any = _REQUIRED

    def read(self, json_object: Json) -> Any:
        """Return the attribute. Raises `InvalidDataError`."""
        if not isinstance(self.json_type_or_names, dict):
            arguments = () if self.default is _REQUIRED else (self.default,)
            return member(json_object, self.key, self.json_type_or_names, *arguments)
        name = member(json_object, self.key, str)
        if name not in self.json_type_or_names:
            raise InvalidDataError(
                f"expected {self.key!r} to be one of {', '.join(self.json_type_or_names)}, found {name[:40]!r}"
            )
        return self.json_type_or_names[name]

    def write(self, type_: t.DataType) -> Any:
        """Return the JSON value of the attribute."""
        value = getattr(type_, self.attribute)
        if isinstance(self.json_type_or_names, dict):
            return next(name for name, candidate in self.json_type_or_names.items() if candidate == value)
        return list(value) if self.json_type_or_names is list else value


@dataclass(frozen=True, slots=True)
class _TypeForm:
    """The name and the parameters of a data type in JSON, and its number of children (None: any).

    `build` makes the type from its children and the values of the parameters; by default they are its arguments.
    """

    name: str
    type: type[t.DataType]
    parameters: tuple[_Parameter, ...] = ()
    num_children: int | None = 0
    build: Callable[..., t.DataType] | None = None

    def read(self, json_object: Json, children: tuple[Field, ...]) -> t.DataType:
        """Return the data type. Raises `InvalidDataError`."""
        if self.num_children is not None and len(children) != self.num_children:
            raise InvalidDataError(f"type {self.name!r}: expected {self.num_children} children, found {len(children)}")
        values = [parameter.read(json_object) for parameter in self.parameters]
        if self.build is not None:
            return self.build(children, *values)
        return self.type(*children, *values)


def _build_time(_: object, unit: t.TimeUnit, bit_width: int | None) -> t.DataType:
    type_ = t.Time(unit)
    if bit_width not in (None, type_.bit_width):
        raise InvalidDataError(f"expected a bit width of {type_.bit_width} for {type_}, found {bit_width}")
    return type_


def _build_union(children: tuple[Field, ...], mode: Any, ids: list[Any] | None) -> t.DataType:
    type_ids = range(len(children)) if ids is None else (expect(number, int, "a type id") for number in ids)
    return t.Union(mode, children, tuple(type_ids))


def _decimal_form(name: str, default_bits: int) -> _TypeForm:
    bit_width = _Parameter("bitWidth", "bit_width", int, default_bits)
    return _TypeForm(
        name, t.Decimal, (_Parameter("precision", "precision", int), _Parameter("scale", "scale", int), bit_width)
    )


_UNIT = _Parameter("unit", "unit", _UNITS)
_TYPE_FORMS = (
    _TypeForm("null", t.Null),
    _TypeForm("bool", t.Bool),
    _TypeForm("binary", t.Binary),
    _TypeForm("largebinary", t.LargeBinary),
    _TypeForm("binaryview", t.BinaryView),
    _TypeForm("utf8", t.Utf8),
    _TypeForm("largeutf8", t.LargeUtf8),
    _TypeForm("utf8view", t.Utf8View),
    _TypeForm("int", t.Int, (_Parameter("bitWidth", "bit_width", int), _Parameter("isSigned", "is_signed", bool))),
    _TypeForm("floatingpoint", t.FloatingPoint, (_Parameter("precision", "bit_width", _PRECISIONS),)),
    _TypeForm("fixedsizebinary", t.FixedSizeBinary, (_Parameter("byteWidth", "byte_width", int),)),
    *(_decimal_form(f"decimal{bits}", bits) for bits in (32, 64, 128, 256)),
    _decimal_form("decimal", 128),
    _TypeForm("date", t.Date, (_Parameter("unit", "unit", _DATE_UNITS),)),
    _TypeForm("time", t.Time, (_UNIT, _Parameter("bitWidth", "bit_width", int, None)), build=_build_time),
    _TypeForm(
        "timestamp",
        t.Timestamp,
        (_UNIT, _Parameter("timezone", "timezone", str, None)),
        build=lambda _, unit, timezone: t.Timestamp(unit, timezone or None),
    ),
    _TypeForm("duration", t.Duration, (_UNIT,)),
    _TypeForm("interval", t.Interval, (_Parameter("unit", "unit", _INTERVALS),)),
    _TypeForm("list", t.List, num_children=1),
    _TypeForm("largelist", t.LargeList, num_children=1),
    _TypeForm("listview", t.ListView, num_children=1),
    _TypeForm("largelistview", t.LargeListView, num_children=1),
    _TypeForm("fixedsizelist", t.FixedSizeList, (_Parameter("listSize", "list_size", int),), 1),
    _TypeForm("struct", t.Struct, num_children=None, build=t.Struct),
    _TypeForm("map", t.Map, (_Parameter("keysSorted", "keys_sorted", bool, False),), 1),
    _TypeForm(
        "union",
        t.Union,
        (_Parameter("mode", "mode", _MODES), _Parameter("typeIds", "type_ids", list, None)),
        None,
        _build_union,
    ),
    _TypeForm("runendencoded", t.RunEndEncoded, num_children=2),
)
_FORMS_BY_NAME = {form.name: form for form in _TYPE_FORMS}
_FORMS_BY_TYPE = {form.type: form for form in _TYPE_FORMS}  # of decimals the last form, "decimal"


# Reading


def _read_type(json_object: Json, children: tuple[Field, ...]) -> t.DataType:
    name = member(json_object, "name", str)
    if name not in _FORMS_BY_NAME:
        raise InvalidDataError(f"unknown type {name[:40]!r}")
    return _FORMS_BY_NAME[name].read(json_object, children)


def _read_pairs(json_object: Json) -> Metadata:
    pairs = []
    for pair in member(json_object, "metadata", list, []):
        entry = expect(pair, dict, "an entry of 'metadata'")
        try:
            pairs.append((member(entry, "key", str).encode(), member(entry, "value", str, "").encode()))
        except UnicodeEncodeError as error:
            raise InvalidDataError(f"text in 'metadata' can't be encoded as UTF-8: {error}") from None
    return tuple(pairs)


def read_schema(
    json_object: Json, limits: DocumentLimits
) -> tuple[Schema, tuple[JsonField, ...], dict[int, JsonField]]:
    """Read a «Schema» object. Return the schema, the node of each field, and a node for each dictionary ID.

    Registered extension types are resolved. Raises `InvalidDataError` naming the field, `LimitError` for types nested
    too deeply.
    """
    nodes = tuple(_read_node(field, limits.max_nesting, limits) for field in member(json_object, "fields", list))
    dictionary_nodes: dict[int, JsonField] = {}
    for node in _iter_nodes(nodes):
        if node.id is None:
            continue
        first_node = dictionary_nodes.setdefault(node.id, node)
        first_type, type_ = _value_type(first_node), _value_type(node)
        if first_type != type_:
            raise InvalidDataError(f"dictionary {node.id} has conflicting types {first_type} and {type_}")
    return Schema(tuple(node.field for node in nodes), _read_pairs(json_object)), nodes, dictionary_nodes


def _iter_nodes(nodes: tuple[JsonField, ...]) -> Iterator[JsonField]:
    for node in nodes:
        yield node
        yield from _iter_nodes(node.children)


def _storage_type(type: t.DataType) -> t.DataType:
    return type.storage_type if isinstance(type, extension.ExtensionType) else type


def _value_type(node: JsonField) -> t.DataType:
    encoded = _storage_type(node.field.type)
    assert isinstance(encoded, t.Dictionary)
    return encoded.value_type


def _read_node(value: Any, depth: int, limits: DocumentLimits) -> JsonField:
    json_object = expect(value, dict, "a field")
    name = member(json_object, "name", str, "")
    with error_context(f"field {name!r}"):
        if depth == 0:
            raise LimitError(f"types are nested deeper than the limit of {limits.max_nesting} (max_nesting)")
        children = tuple(_read_node(child, depth - 1, limits) for child in member(json_object, "children", list, []))
        try:
            name.encode()
            type_ = _read_type(member(json_object, "type", dict), tuple(node.field for node in children))
            dictionary_id = None
            if json_object.get("dictionary") is not None:
                encoding = member(json_object, "dictionary", dict)
                dictionary_id = member(encoding, "id", int)
                index = member(encoding, "indexType", dict, {"name": "int", "bitWidth": 32, "isSigned": True})
                index_type = _read_type(index, ())
                if not isinstance(index_type, t.Int):
                    raise InvalidDataError(f"dictionary indices must be integers, found {index_type}")
                type_ = t.Dictionary(index_type, type_, member(encoding, "isOrdered", bool, False))
        except (UsageError, UnicodeEncodeError) as error:  # raised by the constructors of types
            raise InvalidDataError(str(error)) from None
        field = Field(name, type_, member(json_object, "nullable", bool, True), _read_pairs(json_object))
        return JsonField(_resolve_extension(field), dictionary_id, children)


def _resolve_extension(field: Field) -> Field:
    """Resolve the extension type of a field. One that some writers set on dictionary values is left unresolved."""
    try:
        return extension.resolve(field)
    except InvalidDataError:
        if isinstance(field.type, t.Dictionary):
            return field
        raise


# Writing


def _write_type(type: t.DataType) -> Json:
    form = _FORMS_BY_TYPE.get(type.__class__)
    if form is None:
        raise UnsupportedTypeError(f"integration JSON has no type for {type}")
    values = {parameter.key: parameter.write(type) for parameter in form.parameters}
    return {"name": form.name, **{key: value for key, value in values.items() if value is not None}}


def write_schema(schema: Schema, ids: Iterator[int]) -> Json:
    """Build the «Schema» object. `ids` are the dictionary IDs, nested dictionaries before those that contain them.

    Raises `UnsupportedTypeError` naming the column path for types that JSON can't express.
    """
    json_object: Json = {"fields": [_write_field(field, ids, field.name) for field in schema]}
    if schema.pairs:
        json_object["metadata"] = _write_pairs(schema.pairs, "the schema")
    return json_object


def _write_field(field: Field, ids: Iterator[int], path: str) -> Json:
    field = extension.annotate(field)
    values, encoding = field.type, None
    if isinstance(values, t.Dictionary):
        encoding, values = values, values.value_type
    try:
        json_type = _write_type(values)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"column {path}: {error}") from None
    children = [_write_field(child, ids, f"{path}.{child.name}") for child in values.fields]
    json_object: Json = {"name": field.name, "type": json_type, "nullable": field.nullable, "children": children}
    if encoding is not None:
        index = _write_type(encoding.index_type)
        json_object["dictionary"] = {"id": next(ids), "indexType": index, "isOrdered": encoding.ordered}
    if field.pairs:
        json_object["metadata"] = _write_pairs(field.pairs, f"column {path}")
    return json_object


def _write_pairs(pairs: Metadata, location: str) -> list[Json]:
    try:
        return [{"key": key.decode(), "value": value.decode()} for key, value in pairs]
    except UnicodeDecodeError as error:
        raise UnsupportedTypeError(
            f"{location}: custom metadata that is not valid UTF-8 can't be written as JSON: {error}"
        ) from None
