"""«Schema», «Field», «Metadata» and «Type» of the JSON test data format: reading and writing.

A dictionary-encoded field has the type of its values and the ID of its dictionary. IDs are not part of a `Schema`; they
are kept in a parallel tree of `Node`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import extension, types as t
from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.errors import InvalidDataError, LimitError, UnsupportedTypeError, UsageError
from bowstring.integration_json.dataset import DocumentLimits, Json, expect, member
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

_SIMPLE_TYPES: dict[str, t.DataType] = {
    "null": t.Null(),
    "bool": t.Bool(),
    "binary": t.Binary(),
    "largebinary": t.LargeBinary(),
    "binaryview": t.BinaryView(),
    "utf8": t.Utf8(),
    "largeutf8": t.LargeUtf8(),
    "utf8view": t.Utf8View(),
}
_LIST_TYPES: dict[str, type[t.ListLike]] = {
    "list": t.List,
    "largelist": t.LargeList,
    "listview": t.ListView,
    "largelistview": t.LargeListView,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A field with its dictionary ID, if any, and the nodes of its children.

    The children of a dictionary-encoded field are those of its value type.
    """

    field: Field
    id: int | None
    children: tuple[Node, ...]


def _read_enum(parameters: Json, key: str, names: dict[str, Any]) -> Any:
    name = member(parameters, key, str)
    if name not in names:
        raise InvalidDataError(f"expected {key!r} to be one of {', '.join(names)}, found {name[:40]!r}")
    return names[name]


def _enum_name(value: Any, names: dict[str, Any]) -> str:
    return next(name for name, candidate in names.items() if candidate == value)


# Reading


def _read_time(parameters: Json) -> t.DataType:
    type_ = t.Time(_read_enum(parameters, "unit", _UNITS))
    bit_width = member(parameters, "bitWidth", int, type_.bit_width)
    if bit_width != type_.bit_width:
        raise InvalidDataError(f"expected a bit width of {type_.bit_width} for {type_}, found {bit_width}")
    return type_


def _read_decimal(default_bits: int) -> Callable[[Json], t.DataType]:
    return lambda p: t.Decimal(
        member(p, "precision", int), member(p, "scale", int), member(p, "bitWidth", int, default_bits)
    )


def _read_int(parameters: Json) -> t.Int:
    return t.Int(member(parameters, "bitWidth", int), member(parameters, "isSigned", bool))


_PARAMETRIC_TYPES: dict[str, Callable[[Json], t.DataType]] = {
    "int": _read_int,
    "floatingpoint": lambda p: t.FloatingPoint(_read_enum(p, "precision", _PRECISIONS)),
    "fixedsizebinary": lambda p: t.FixedSizeBinary(member(p, "byteWidth", int)),
    "decimal": _read_decimal(128),
    "decimal32": _read_decimal(32),
    "decimal64": _read_decimal(64),
    "decimal128": _read_decimal(128),
    "decimal256": _read_decimal(256),
    "date": lambda p: t.Date(_read_enum(p, "unit", _DATE_UNITS)),
    "time": _read_time,
    "timestamp": lambda p: t.Timestamp(_read_enum(p, "unit", _UNITS), member(p, "timezone", str, "") or None),
    "duration": lambda p: t.Duration(_read_enum(p, "unit", _UNITS)),
    "interval": lambda p: t.Interval(_read_enum(p, "unit", _INTERVALS)),
}
"""Readers of types with parameters and without children."""


def _read_union(parameters: Json, children: tuple[Field, ...]) -> t.DataType:
    ids = member(parameters, "typeIds", list, list(range(len(children))))
    return t.Union(
        _read_enum(parameters, "mode", _MODES), children, tuple(expect(number, int, "a type id") for number in ids)
    )


_NESTED_TYPES: dict[str, tuple[int | None, Callable[[Json, tuple[Field, ...]], t.DataType]]] = {
    "fixedsizelist": (1, lambda p, c: t.FixedSizeList(c[0], member(p, "listSize", int))),
    "struct": (None, lambda _, c: t.Struct(c)),
    "map": (1, lambda p, c: t.Map(c[0], member(p, "keysSorted", bool, False))),
    "union": (None, _read_union),
    "runendencoded": (2, lambda _, c: t.RunEndEncoded(*c)),
}
"""The number of children (None: any) and the reader of nested types with parameters."""


def _read_type(parameters: Json, children: tuple[Field, ...]) -> t.DataType:
    name = member(parameters, "name", str)
    if name in _LIST_TYPES:
        num_children: int | None = 1
    elif name in _NESTED_TYPES:
        num_children = _NESTED_TYPES[name][0]
    elif name in _SIMPLE_TYPES or name in _PARAMETRIC_TYPES:
        num_children = 0
    else:
        raise InvalidDataError(f"unknown type {name[:40]!r}")
    if num_children is not None and len(children) != num_children:
        raise InvalidDataError(f"type {name!r}: expected {num_children} children, found {len(children)}")
    if name in _LIST_TYPES:
        return _LIST_TYPES[name](children[0])
    if name in _NESTED_TYPES:
        return _NESTED_TYPES[name][1](parameters, children)
    return _SIMPLE_TYPES[name] if name in _SIMPLE_TYPES else _PARAMETRIC_TYPES[name](parameters)


def _read_pairs(json_object: Json) -> Metadata:
    pairs = []
    for pair in member(json_object, "metadata", list, []):
        entry = expect(pair, dict, "an entry of 'metadata'")
        try:
            pairs.append((member(entry, "key", str).encode(), member(entry, "value", str, "").encode()))
        except UnicodeEncodeError as error:
            raise InvalidDataError(f"text in 'metadata' can't be encoded as UTF-8: {error}") from None
    return tuple(pairs)


def read_schema(json_object: Json, limits: DocumentLimits) -> tuple[Schema, tuple[Node, ...], dict[int, Node]]:
    """Read a «Schema» object. Return the schema, the node of each field, and a node for each dictionary ID.

    Registered extension types are resolved. Raises `InvalidDataError` naming the field, `LimitError` for types nested
    too deeply.
    """
    nodes = tuple(_read_node(field, limits.max_nesting, limits) for field in member(json_object, "fields", list))
    dictionary_nodes: dict[int, Node] = {}
    for node in _iter_nodes(nodes):
        if node.id is None:
            continue
        first_node = dictionary_nodes.setdefault(node.id, node)
        first_type, type_ = _value_type(first_node), _value_type(node)
        if first_type != type_:
            raise InvalidDataError(f"dictionary {node.id} has conflicting types {first_type} and {type_}")
    return Schema(tuple(node.field for node in nodes), _read_pairs(json_object)), nodes, dictionary_nodes


def _iter_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _iter_nodes(node.children)


def _storage_type(type: t.DataType) -> t.DataType:
    return type.storage_type if isinstance(type, extension.ExtensionType) else type


def _value_type(node: Node) -> t.DataType:
    encoded = _storage_type(node.field.type)
    assert isinstance(encoded, t.Dictionary)
    return encoded.value_type


def _read_node(value: Any, depth: int, limits: DocumentLimits) -> Node:
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
        return Node(_resolve_extension(field), dictionary_id, children)


def _resolve_extension(field: Field) -> Field:
    """Resolve the extension type of a field. One that some writers set on dictionary values is left unresolved."""
    try:
        return extension.resolve(field)
    except InvalidDataError:
        if isinstance(field.type, t.Dictionary):
            return field
        raise


# Writing

_WRITERS: dict[type[t.DataType], tuple[str, Callable[[Any], Json]]] = {
    **{type(simple_type): (name, lambda _: {}) for name, simple_type in _SIMPLE_TYPES.items()},
    **{list_type: (name, lambda _: {}) for name, list_type in _LIST_TYPES.items()},
    t.Int: ("int", lambda x: {"bitWidth": x.bit_width, "isSigned": x.is_signed}),
    t.FloatingPoint: ("floatingpoint", lambda x: {"precision": _enum_name(x.bit_width, _PRECISIONS)}),
    t.FixedSizeBinary: ("fixedsizebinary", lambda x: {"byteWidth": x.byte_width}),
    t.Decimal: ("decimal", lambda x: {"precision": x.precision, "scale": x.scale, "bitWidth": x.bit_width}),
    t.Date: ("date", lambda x: {"unit": _enum_name(x.unit, _DATE_UNITS)}),
    t.Time: ("time", lambda x: {"unit": _enum_name(x.unit, _UNITS), "bitWidth": x.bit_width}),
    t.Timestamp: (
        "timestamp",
        lambda x: {"unit": _enum_name(x.unit, _UNITS)} | ({} if x.timezone is None else {"timezone": x.timezone}),
    ),
    t.Duration: ("duration", lambda x: {"unit": _enum_name(x.unit, _UNITS)}),
    t.Interval: ("interval", lambda x: {"unit": _enum_name(x.unit, _INTERVALS)}),
    t.FixedSizeList: ("fixedsizelist", lambda x: {"listSize": x.list_size}),
    t.Struct: ("struct", lambda _: {}),
    t.Map: ("map", lambda x: {"keysSorted": x.keys_sorted}),
    t.Union: ("union", lambda x: {"mode": _enum_name(x.mode, _MODES), "typeIds": list(x.type_ids)}),
    t.RunEndEncoded: ("runendencoded", lambda _: {}),
}


def _write_type(type: t.DataType) -> Json:
    if type.__class__ not in _WRITERS:
        raise UnsupportedTypeError(f"integration JSON has no type for {type}")
    name, write_parameters = _WRITERS[type.__class__]
    return {"name": name, **write_parameters(type)}


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
