"""Schemas as metadata («Schema message»): `Schema` and `Field` to and from the records of `bowstring.flatbuf`.

A dictionary-encoded field carries its values' type and a dictionary id. The ids are no part of a `Schema`: they are in a tree of
`DictionaryId`s beside it, in the order in which a walk over the arrays meets the dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, get_args

from bowstring.datatypes import extension, types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import InvalidDataError, LimitError, UnsupportedError, UnsupportedTypeError, UsageError
from bowstring.flatbuf.codec import Built, Table
from bowstring.flatbuf.tables import TYPES
from bowstring.ipc.limits import Limits

LITTLE, BIG = 0, 1
V4, V5 = 3, 4
_INTERVALS = get_args(types.IntervalUnit)
_FLOAT_BITS = (16, 32, 64)
_UNION_MODES = ("sparse", "dense")
_DATE_UNITS = ("day", "ms")


@dataclass(frozen=True, slots=True)
class DictionaryId:
    """The dictionary of one dictionary-encoded field: its id, the type of its values, and the dictionaries inside those."""

    id: int
    value_type: DataType
    inside: tuple[DictionaryId, ...] = ()


@dataclass(frozen=True, slots=True)
class WireSchema:
    """A schema with what only the wire knows: for each field the dictionaries that a walk over its array meets, in order."""

    schema: Schema
    dictionaries: tuple[tuple[DictionaryId, ...], ...]
    by_id: dict[int, DictionaryId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[int, DictionaryId] = {}
        for node in _every(node for nodes in self.dictionaries for node in nodes):
            if found.setdefault(node.id, node) != node:
                raise InvalidDataError(
                    f"schema: dictionary {node.id} is of type {found[node.id].value_type} and of type {node.value_type}"
                )
        object.__setattr__(self, "by_id", found)


def _every(nodes: Iterator[DictionaryId] | tuple[DictionaryId, ...]) -> Iterator[DictionaryId]:
    for node in nodes:
        yield node
        yield from _every(node.inside)


# Reading

_Children: TypeAlias = Sequence[Field]


def _only(children: _Children, wanted: int) -> _Children:
    if len(children) != wanted:
        raise InvalidDataError(f"expected {wanted} children, found {len(children)}")
    return children


def _pick(what: str, names: Sequence[Any], number: int) -> Any:
    if not 0 <= number < len(names):
        raise InvalidDataError(f"{what} {number} is none of the {len(names)} that there are")
    return names[number]


def _int(table: Table, children: _Children) -> types.Int:
    return types.Int(table["bitWidth"], table["is_signed"])


def _time(table: Table, children: _Children) -> types.Time:
    made = types.Time(_pick("time unit", types.TIME_UNITS, table["unit"]))
    if table["bitWidth"] != made.bit_width:
        raise InvalidDataError(f"a {made} has {made.bit_width} bits, not {table['bitWidth']}")
    return made


def _union(table: Table, children: _Children) -> types.Union:
    ids = table["typeIds"].tolist() if table.locate(1, 4) else range(len(children))
    return types.Union(_pick("union mode", _UNION_MODES, table["mode"]), tuple(children), tuple(ids))


_TYPE_READERS: dict[str, Callable[[Table, _Children], DataType]] = {
    "Null": lambda t, c: types.Null(),
    "Int": _int,
    "FloatingPoint": lambda t, c: types.FloatingPoint(_pick("precision", _FLOAT_BITS, t["precision"])),
    "Binary": lambda t, c: types.Binary(),
    "Utf8": lambda t, c: types.Utf8(),
    "Bool": lambda t, c: types.Bool(),
    "Decimal": lambda t, c: types.Decimal(t["precision"], t["scale"], t["bitWidth"]),
    "Date": lambda t, c: types.Date(_pick("date unit", _DATE_UNITS, t["unit"])),
    "Time": _time,
    "Timestamp": lambda t, c: types.Timestamp(_pick("time unit", types.TIME_UNITS, t["unit"]), t["timezone"] or None),
    "Interval": lambda t, c: types.Interval(_pick("interval unit", _INTERVALS, t["unit"])),
    "List": lambda t, c: types.List(*_only(c, 1)),
    "Struct_": lambda t, c: types.Struct(tuple(c)),
    "Union": _union,
    "FixedSizeBinary": lambda t, c: types.FixedSizeBinary(t["byteWidth"]),
    "FixedSizeList": lambda t, c: types.FixedSizeList(*_only(c, 1), t["listSize"]),
    "Map": lambda t, c: types.Map(*_only(c, 1), t["keysSorted"]),
    "Duration": lambda t, c: types.Duration(_pick("time unit", types.TIME_UNITS, t["unit"])),
    "LargeBinary": lambda t, c: types.LargeBinary(),
    "LargeUtf8": lambda t, c: types.LargeUtf8(),
    "LargeList": lambda t, c: types.LargeList(*_only(c, 1)),
    "RunEndEncoded": lambda t, c: types.RunEndEncoded(*_only(c, 2)),
    "BinaryView": lambda t, c: types.BinaryView(),
    "Utf8View": lambda t, c: types.Utf8View(),
    "ListView": lambda t, c: types.ListView(*_only(c, 1)),
    "LargeListView": lambda t, c: types.LargeListView(*_only(c, 1)),
}
_CHILDLESS_TYPES = {"Null", "Int", "FloatingPoint", "Binary", "Utf8", "Bool", "LargeBinary", "LargeUtf8"}


def read_schema(table: Table, limits: Limits) -> WireSchema:
    """The schema of a `Schema` table.

    Raises `InvalidDataError` naming the field, `LimitError` for types nested too deep, `UnsupportedError` for big-endian data.
    """
    endianness = table["endianness"]
    if endianness == BIG:
        raise UnsupportedError(f"{table.message.where}: big-endian data is not supported yet")
    if endianness != LITTLE:
        raise InvalidDataError(f"{table.message.where}: endianness {endianness} is neither little (0) nor big (1)")
    read = [_read_field(child, limits.max_nesting, limits.max_nesting) for child in table["fields"]]
    schema = Schema(tuple(f for f, _ in read), read_pairs(table))
    return WireSchema(schema, tuple(nodes for _, nodes in read))


def read_pairs(table: Table) -> Metadata:
    """The custom metadata of a table, in order («Custom Application Metadata»)."""
    return tuple((pair["key"] or b"", pair["value"] or b"") for pair in table["custom_metadata"])


def _read_field(table: Table, depth: int, max_depth: int) -> tuple[Field, tuple[DictionaryId, ...]]:
    name = table["name"] or ""
    try:
        if depth == 0:
            raise LimitError(f"types are nested deeper than {max_depth}, the limit")
        below = [_read_field(child, depth - 1, max_depth) for child in table["children"]]
        nodes = tuple(node for _, inside in below for node in inside)
        made = _read_type(table, [child for child, _ in below])
        encoding = table["dictionary"]
        if encoding is not None:
            nodes = (DictionaryId(encoding["id"], made, nodes),)
            made = _read_encoding(encoding, made)
        field = Field(name, made, table["nullable"], read_pairs(table))
        return (extension.resolve(field) if field.pairs else field), nodes
    except UsageError as error:  # from the types' own checks: here it is the data's fault
        raise InvalidDataError(f"field {name!r}: {error}") from None
    except InvalidDataError as error:
        raise type(error)(f"field {name!r}: {error}") from None


def _read_type(table: Table, children: _Children) -> DataType:
    name = _pick("type", TYPES, table["type_type"])
    inner = table.union("type", name)
    if inner is None:
        raise InvalidDataError(f"{table.message.where}: a field without a type")
    if children and name in _CHILDLESS_TYPES:
        raise InvalidDataError(f"expected no children of a {name}, found {len(children)}")
    return _TYPE_READERS[name](inner, children)


def _read_encoding(encoding: Table, values: DataType) -> Dictionary:
    if encoding["dictionaryKind"] != 0:
        raise UnsupportedError(f"dictionary kind {encoding['dictionaryKind']} is not known")
    index = encoding["indexType"]
    index_type = types.Int(32) if index is None else _int(index, ())
    return Dictionary(index_type, values, encoding["isOrdered"])


# Writing

_TYPE_WRITERS: dict[type[DataType], Callable[[Any], Built]] = {
    types.Null: lambda t: Built("Null", {}),
    types.Int: lambda t: Built("Int", {"bitWidth": t.bit_width, "is_signed": t.is_signed}),
    types.FloatingPoint: lambda t: Built("FloatingPoint", {"precision": _FLOAT_BITS.index(t.bit_width)}),
    types.Binary: lambda t: Built("Binary", {}),
    types.Utf8: lambda t: Built("Utf8", {}),
    types.Bool: lambda t: Built("Bool", {}),
    types.Decimal: lambda t: Built(
        "Decimal", {"precision": t.precision, "scale": t.scale, "bitWidth": t.bit_width}
    ),
    types.Date: lambda t: Built("Date", {"unit": _DATE_UNITS.index(t.unit)}),
    types.Time: lambda t: Built("Time", {"unit": types.TIME_UNITS.index(t.unit), "bitWidth": t.bit_width}),
    types.Timestamp: lambda t: Built(
        "Timestamp", {"unit": types.TIME_UNITS.index(t.unit), "timezone": t.timezone}
    ),
    types.Interval: lambda t: Built("Interval", {"unit": _INTERVALS.index(t.unit)}),
    types.List: lambda t: Built("List", {}),
    types.Struct: lambda t: Built("Struct_", {}),
    types.Union: lambda t: Built("Union", {"mode": _UNION_MODES.index(t.mode), "typeIds": list(t.type_ids)}),
    types.FixedSizeBinary: lambda t: Built("FixedSizeBinary", {"byteWidth": t.byte_width}),
    types.FixedSizeList: lambda t: Built("FixedSizeList", {"listSize": t.list_size}),
    types.Map: lambda t: Built("Map", {"keysSorted": t.keys_sorted}),
    types.Duration: lambda t: Built("Duration", {"unit": types.TIME_UNITS.index(t.unit)}),
    types.LargeBinary: lambda t: Built("LargeBinary", {}),
    types.LargeUtf8: lambda t: Built("LargeUtf8", {}),
    types.LargeList: lambda t: Built("LargeList", {}),
    types.RunEndEncoded: lambda t: Built("RunEndEncoded", {}),
    types.BinaryView: lambda t: Built("BinaryView", {}),
    types.Utf8View: lambda t: Built("Utf8View", {}),
    types.ListView: lambda t: Built("ListView", {}),
    types.LargeListView: lambda t: Built("LargeListView", {}),
}


def write_schema(schema: Schema) -> tuple[dict[str, Any], WireSchema]:
    """The record of a `Schema` table, and the schema with the dictionary ids that were given out.

    Raises `UnsupportedTypeError` naming the column path for a type that the format has no words for.
    """
    ids = count()
    written = [_write_field(field, ids, field.name) for field in schema.fields]
    record = {"fields": [r for r, _ in written], "custom_metadata": write_pairs(schema.pairs)}
    return record, WireSchema(schema, tuple(nodes for _, nodes in written))


def write_pairs(pairs: Metadata) -> list[dict[str, bytes]] | None:
    """The records of custom metadata; None where there is none."""
    return [{"key": key, "value": value} for key, value in pairs] or None


def _write_field(field: Field, ids: Iterator[int], path: str) -> tuple[dict[str, Any], tuple[DictionaryId, ...]]:
    field = extension.annotate(field)
    values, encoding = field.type, None
    if isinstance(values, Dictionary):
        index, ordered, values = values.index_type, values.ordered, values.value_type
        encoding = {"id": next(ids), "indexType": _TYPE_WRITERS[types.Int](index).record, "isOrdered": ordered}
    writer = _TYPE_WRITERS.get(type(values))
    if writer is None:
        inside = "a dictionary of " if encoding else ""
        what = "an extension type" if isinstance(values, ExtensionType) else str(values)
        raise UnsupportedTypeError(f"column {path}: the IPC format has no words for {inside}{what} ({values})")
    below = [_write_field(child, ids, f"{path}.{child.name}") for child in values.fields]
    nodes = tuple(node for _, inside_nodes in below for node in inside_nodes)
    if encoding:
        nodes = (DictionaryId(encoding["id"], values, nodes),)
    made = writer(values)
    record = {
        "name": field.name,
        "nullable": field.nullable,
        "type_type": TYPES.index(made.spec),
        "type": made,
        "dictionary": encoding,
        "children": [r for r, _ in below],
        "custom_metadata": write_pairs(field.pairs),
    }
    return record, nodes
