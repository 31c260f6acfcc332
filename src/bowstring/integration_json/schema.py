"""«Schema», «Field», «Metadata» and «Type» of the JSON test data format: both ways.

A dictionary-encoded field carries the type of its values and the id of its dictionary. The ids are no part of a
`Schema`; they stand in a tree of `Node`s beside it.
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

_PLAIN: dict[str, t.DataType] = {
    "null": t.Null(),
    "bool": t.Bool(),
    "binary": t.Binary(),
    "largebinary": t.LargeBinary(),
    "binaryview": t.BinaryView(),
    "utf8": t.Utf8(),
    "largeutf8": t.LargeUtf8(),
    "utf8view": t.Utf8View(),
}
_LISTS: dict[str, type[t.ListLike]] = {
    "list": t.List,
    "largelist": t.LargeList,
    "listview": t.ListView,
    "largelistview": t.LargeListView,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A field with what only the document knows: the dictionary's id, and the fields below.

    Those below are the type's children, or where there is a dictionary the children of its values' type.
    """

    field: Field
    id: int | None
    below: tuple[Node, ...]


def _named(parameters: Json, key: str, names: dict[str, Any]) -> Any:
    name = member(parameters, key, str)
    if name not in names:
        raise InvalidDataError(f"expected {key!r} to be one of {', '.join(names)}, found {name[:40]!r}")
    return names[name]


def _name_of(value: Any, names: dict[str, Any]) -> str:
    return next(name for name, known in names.items() if known == value)


# Reading


def _read_time(parameters: Json) -> t.DataType:
    made = t.Time(_named(parameters, "unit", _UNITS))
    bits = member(parameters, "bitWidth", int, made.bit_width)
    if bits != made.bit_width:
        raise InvalidDataError(f"a {made} has {made.bit_width} bits, not {bits}")
    return made


def _read_decimal(default_bits: int) -> Callable[[Json], t.DataType]:
    return lambda p: t.Decimal(
        member(p, "precision", int), member(p, "scale", int), member(p, "bitWidth", int, default_bits)
    )


def _read_int(parameters: Json) -> t.Int:
    return t.Int(member(parameters, "bitWidth", int), member(parameters, "isSigned", bool))


_PARAMETERS: dict[str, Callable[[Json], t.DataType]] = {
    "int": _read_int,
    "floatingpoint": lambda p: t.FloatingPoint(_named(p, "precision", _PRECISIONS)),
    "fixedsizebinary": lambda p: t.FixedSizeBinary(member(p, "byteWidth", int)),
    "decimal": _read_decimal(128),
    "decimal32": _read_decimal(32),
    "decimal64": _read_decimal(64),
    "decimal128": _read_decimal(128),
    "decimal256": _read_decimal(256),
    "date": lambda p: t.Date(_named(p, "unit", _DATE_UNITS)),
    "time": _read_time,
    "timestamp": lambda p: t.Timestamp(_named(p, "unit", _UNITS), member(p, "timezone", str, "") or None),
    "duration": lambda p: t.Duration(_named(p, "unit", _UNITS)),
    "interval": lambda p: t.Interval(_named(p, "unit", _INTERVALS)),
}
"""Types with parameters and without children."""


def _read_union(parameters: Json, children: tuple[Field, ...]) -> t.DataType:
    ids = member(parameters, "typeIds", list, list(range(len(children))))
    return t.Union(
        _named(parameters, "mode", _MODES), children, tuple(expect(number, int, "a type id") for number in ids)
    )


_NESTED: dict[str, tuple[int | None, Callable[[Json, tuple[Field, ...]], t.DataType]]] = {
    "fixedsizelist": (1, lambda p, c: t.FixedSizeList(c[0], member(p, "listSize", int))),
    "struct": (None, lambda _, c: t.Struct(c)),
    "map": (1, lambda p, c: t.Map(c[0], member(p, "keysSorted", bool, False))),
    "union": (None, _read_union),
    "runendencoded": (2, lambda _, c: t.RunEndEncoded(*c)),
}
"""Types with children and more: how many children, and the type."""


def _read_type(parameters: Json, children: tuple[Field, ...]) -> t.DataType:
    name = member(parameters, "name", str)
    if name in _LISTS:
        wanted: int | None = 1
    elif name in _NESTED:
        wanted = _NESTED[name][0]
    elif name in _PLAIN or name in _PARAMETERS:
        wanted = 0
    else:
        raise InvalidDataError(f"{name[:40]!r} is the name of no type")
    if wanted is not None and len(children) != wanted:
        raise InvalidDataError(f"type {name!r} has {wanted} children, found {len(children)}")
    if name in _LISTS:
        return _LISTS[name](children[0])
    if name in _NESTED:
        return _NESTED[name][1](parameters, children)
    return _PLAIN[name] if name in _PLAIN else _PARAMETERS[name](parameters)


def _read_pairs(holder: Json) -> Metadata:
    pairs = []
    for pair in member(holder, "metadata", list, []):
        held = expect(pair, dict, "an entry of 'metadata'")
        try:
            pairs.append((member(held, "key", str).encode(), member(held, "value", str, "").encode()))
        except UnicodeEncodeError as error:
            raise InvalidDataError(f"'metadata' has text that UTF-8 does not encode: {error}") from None
    return tuple(pairs)


def read_schema(holder: Json, limits: DocumentLimits) -> tuple[Schema, tuple[Node, ...], dict[int, Node]]:
    """The schema of a «Schema» object, the node of each field, and for each dictionary id a node that carries it.

    Extension types that are registered are resolved. Raises `InvalidDataError` naming the field, `LimitError` for types
    nested too deep.
    """
    nodes = tuple(_read_node(field, limits.max_nesting, limits) for field in member(holder, "fields", list))
    by_id: dict[int, Node] = {}
    for node in _every(nodes):
        if node.id is None:
            continue
        known = by_id.setdefault(node.id, node)
        mine, theirs = _value_type(known), _value_type(node)
        if mine != theirs:
            raise InvalidDataError(f"dictionary {node.id} is of type {mine} and of type {theirs}")
    return Schema(tuple(node.field for node in nodes), _read_pairs(holder)), nodes, by_id


def _every(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _every(node.below)


def _storage_type(type: t.DataType) -> t.DataType:
    return type.storage_type if isinstance(type, extension.ExtensionType) else type


def _value_type(node: Node) -> t.DataType:
    encoded = _storage_type(node.field.type)
    assert isinstance(encoded, t.Dictionary)
    return encoded.value_type


def _read_node(value: Any, depth: int, limits: DocumentLimits) -> Node:
    holder = expect(value, dict, "a field")
    name = member(holder, "name", str, "")
    with error_context(f"field {name!r}"):
        if depth == 0:
            raise LimitError(f"types are nested deeper than {limits.max_nesting}, the limit (max_nesting)")
        below = tuple(_read_node(child, depth - 1, limits) for child in member(holder, "children", list, []))
        try:
            name.encode()
            made = _read_type(member(holder, "type", dict), tuple(node.field for node in below))
            number = None
            if holder.get("dictionary") is not None:
                encoding = member(holder, "dictionary", dict)
                number = member(encoding, "id", int)
                index = member(encoding, "indexType", dict, {"name": "int", "bitWidth": 32, "isSigned": True})
                index_type = _read_type(index, ())
                if not isinstance(index_type, t.Int):
                    raise InvalidDataError(f"the indices of a dictionary are integers, not {index_type}")
                made = t.Dictionary(index_type, made, member(encoding, "isOrdered", bool, False))
        except (UsageError, UnicodeEncodeError) as error:  # from the types' own checks: here it is the data's fault
            raise InvalidDataError(str(error)) from None
        field = Field(name, made, member(holder, "nullable", bool, True), _read_pairs(holder))
        return Node(_resolved(field), number, below)


def _resolved(field: Field) -> Field:
    """The field with its extension type; one that writers give to a dictionary's values stays as it is."""
    try:
        return extension.resolve(field)
    except InvalidDataError:
        if isinstance(field.type, t.Dictionary):
            return field
        raise


# Writing

_WRITERS: dict[type[t.DataType], tuple[str, Callable[[Any], Json]]] = {
    **{type(plain): (name, lambda _: {}) for name, plain in _PLAIN.items()},
    **{made: (name, lambda _: {}) for name, made in _LISTS.items()},
    t.Int: ("int", lambda x: {"bitWidth": x.bit_width, "isSigned": x.is_signed}),
    t.FloatingPoint: ("floatingpoint", lambda x: {"precision": _name_of(x.bit_width, _PRECISIONS)}),
    t.FixedSizeBinary: ("fixedsizebinary", lambda x: {"byteWidth": x.byte_width}),
    t.Decimal: ("decimal", lambda x: {"precision": x.precision, "scale": x.scale, "bitWidth": x.bit_width}),
    t.Date: ("date", lambda x: {"unit": _name_of(x.unit, _DATE_UNITS)}),
    t.Time: ("time", lambda x: {"unit": _name_of(x.unit, _UNITS), "bitWidth": x.bit_width}),
    t.Timestamp: (
        "timestamp",
        lambda x: {"unit": _name_of(x.unit, _UNITS)} | ({} if x.timezone is None else {"timezone": x.timezone}),
    ),
    t.Duration: ("duration", lambda x: {"unit": _name_of(x.unit, _UNITS)}),
    t.Interval: ("interval", lambda x: {"unit": _name_of(x.unit, _INTERVALS)}),
    t.FixedSizeList: ("fixedsizelist", lambda x: {"listSize": x.list_size}),
    t.Struct: ("struct", lambda _: {}),
    t.Map: ("map", lambda x: {"keysSorted": x.keys_sorted}),
    t.Union: ("union", lambda x: {"mode": _name_of(x.mode, _MODES), "typeIds": list(x.type_ids)}),
    t.RunEndEncoded: ("runendencoded", lambda _: {}),
}


def _write_type(type: t.DataType) -> Json:
    found = _WRITERS.get(type.__class__)
    if found is None:
        raise UnsupportedTypeError(f"integration JSON has no words for {type}")
    return {"name": found[0], **found[1](type)}


def write_schema(schema: Schema, ids: Iterator[int]) -> Json:
    """The «Schema» object. `ids` are those of the dictionaries, those inside a dictionary before it.

    Raises `UnsupportedTypeError` naming the column path for what JSON cannot say.
    """
    written: Json = {"fields": [_write_field(field, ids, field.name) for field in schema]}
    if schema.pairs:
        written["metadata"] = _write_pairs(schema.pairs, "the schema")
    return written


def _write_field(field: Field, ids: Iterator[int], path: str) -> Json:
    field = extension.annotate(field)
    values, encoding = field.type, None
    if isinstance(values, t.Dictionary):
        encoding, values = values, values.value_type
    try:
        said = _write_type(values)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"column {path}: {error}") from None
    children = [_write_field(child, ids, f"{path}.{child.name}") for child in values.fields]
    written: Json = {"name": field.name, "type": said, "nullable": field.nullable, "children": children}
    if encoding is not None:
        index = _write_type(encoding.index_type)
        written["dictionary"] = {"id": next(ids), "indexType": index, "isOrdered": encoding.ordered}
    if field.pairs:
        written["metadata"] = _write_pairs(field.pairs, f"column {path}")
    return written


def _write_pairs(pairs: Metadata, where: str) -> list[Json]:
    try:
        return [{"key": key.decode(), "value": value.decode()} for key, value in pairs]
    except UnicodeDecodeError as error:
        raise UnsupportedTypeError(
            f"{where}: custom metadata that is not UTF-8 has no place in JSON: {error}"
        ) from None
