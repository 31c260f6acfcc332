"""Data types to and from flatbuffer tables («Schema message»; the union Type)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, get_args

from bowstring.datatypes import types
from bowstring.datatypes.field import Field
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Table
from bowstring.flatbuf.writer import Record, UnionValue

_INTERVALS = get_args(types.IntervalUnit)
_FLOAT_BITS = (16, 32, 64)
_UNION_MODES = ("sparse", "dense")
_DATE_UNITS = ("day", "ms")

_Children: TypeAlias = Sequence[Field]
_Read: TypeAlias = Callable[[Table], DataType]
_ReadNested: TypeAlias = Callable[[Table, _Children], DataType]
_Write: TypeAlias = Callable[[Any], Record]

_PLAIN: dict[str, type[DataType]] = {
    "Null": types.Null,
    "Bool": types.Bool,
    "Binary": types.Binary,
    "LargeBinary": types.LargeBinary,
    "BinaryView": types.BinaryView,
    "Utf8": types.Utf8,
    "LargeUtf8": types.LargeUtf8,
    "Utf8View": types.Utf8View,
}
"""Types without parameters."""

LIST_CLASSES: dict[str, type[types.ListLike]] = {
    "List": types.List,
    "LargeList": types.LargeList,
    "ListView": types.ListView,
    "LargeListView": types.LargeListView,
}
"""Types with one child and no parameters."""


def _pick(what: str, names: Sequence[Any], number: int) -> Any:
    if not 0 <= number < len(names):
        raise InvalidDataError(f"{what} {number} is out of range: there are {len(names)}")
    return names[number]


def _unit(table: Table) -> types.TimeUnit:
    unit: types.TimeUnit = _pick("time unit", types.TIME_UNITS, table["unit"])
    return unit


def read_int(table: Table) -> types.Int:
    """The integer type of an `Int` table."""
    return types.Int(table["bitWidth"], table["is_signed"])


def write_int(type: types.Int) -> Record:
    """The record of an `Int` table."""
    return {"bitWidth": type.bit_width, "is_signed": type.is_signed}


def _read_time(table: Table) -> types.Time:
    time = types.Time(_unit(table))
    if table["bitWidth"] != time.bit_width:
        raise InvalidDataError(f"a {time} has {time.bit_width} bits, not {table['bitWidth']}")
    return time


_Row: TypeAlias = tuple[DataType, _Read, _Write]


def _one_of(example: DataType, key: str, what: str, names: Sequence[Any], attribute: str = "unit") -> _Row:
    """Return the row of a type with one parameter, an index into `names` in the table."""
    make: Any = type(example)
    return (
        example,
        lambda table: make(_pick(what, names, table[key])),
        lambda t: {key: names.index(getattr(t, attribute))},
    )


_PARAMETERS: dict[str, _Row] = {
    "Int": (types.Int(8), read_int, write_int),
    "FloatingPoint": _one_of(types.FloatingPoint(16), "precision", "precision", _FLOAT_BITS, "bit_width"),
    "Decimal": (
        types.Decimal(1, 0),
        lambda table: types.Decimal(table["precision"], table["scale"], table["bitWidth"]),
        lambda t: {"precision": t.precision, "scale": t.scale, "bitWidth": t.bit_width},
    ),
    "Date": _one_of(types.Date("day"), "unit", "date unit", _DATE_UNITS),
    "Time": (
        types.Time("s"),
        _read_time,
        lambda t: {"unit": types.TIME_UNITS.index(t.unit), "bitWidth": t.bit_width},
    ),
    "Timestamp": (
        types.Timestamp("s"),
        lambda table: types.Timestamp(_unit(table), table["timezone"] or None),
        lambda t: {"unit": types.TIME_UNITS.index(t.unit), "timezone": t.timezone},
    ),
    "Interval": _one_of(types.Interval("year_month"), "unit", "interval unit", _INTERVALS),
    "Duration": _one_of(types.Duration("s"), "unit", "time unit", types.TIME_UNITS),
    "FixedSizeBinary": (
        types.FixedSizeBinary(1),
        lambda table: types.FixedSizeBinary(table["byteWidth"]),
        lambda t: {"byteWidth": t.byte_width},
    ),
}
"""Types with parameters and without children: an example, its reader and its writer."""


def _read_union(table: Table, children: _Children) -> types.Union:
    ids = table["typeIds"].tolist() if table.locate("typeIds") else range(len(children))
    return types.Union(_pick("union mode", _UNION_MODES, table["mode"]), tuple(children), tuple(ids))


def _read_fixed_size_list(table: Table, children: _Children) -> DataType:
    (child,) = _exactly(children, 1)
    return types.FixedSizeList(child, table["listSize"])


def _read_map(table: Table, children: _Children) -> DataType:
    (child,) = _exactly(children, 1)
    return types.Map(child, table["keysSorted"])


def _read_run_ends(_table: Table, children: _Children) -> DataType:
    run_ends, values = _exactly(children, 2)
    return types.RunEndEncoded(run_ends, values)


_NESTED: dict[str, tuple[type[DataType], _ReadNested, _Write]] = {
    "Struct_": (types.Struct, lambda _table, children: types.Struct(tuple(children)), lambda _: {}),
    "Union": (
        types.Union,
        _read_union,
        lambda t: {"mode": _UNION_MODES.index(t.mode), "typeIds": list(t.type_ids)},
    ),
    "FixedSizeList": (types.FixedSizeList, _read_fixed_size_list, lambda t: {"listSize": t.list_size}),
    "Map": (types.Map, _read_map, lambda t: {"keysSorted": t.keys_sorted}),
    "RunEndEncoded": (types.RunEndEncoded, _read_run_ends, lambda _: {}),
}
"""Other types with children: the class, its reader and its writer."""

_NAMES: dict[type[DataType], tuple[str, _Write]] = {
    **{type_class: (name, lambda _: {}) for name, type_class in (*_PLAIN.items(), *LIST_CLASSES.items())},
    **{type(example): (name, write) for name, (example, _, write) in _PARAMETERS.items()},
    **{type_class: (name, write) for name, (type_class, _, write) in _NESTED.items()},
}


def _exactly(children: _Children, count: int) -> _Children:
    if len(children) != count:
        raise InvalidDataError(f"expected {count} children, found {len(children)}")
    return children


def read_type(field: Table, children: Sequence[Field]) -> DataType:
    """Return the type of a `Field` table, given its children.

    Raises `InvalidDataError` for an unknown or malformed type; parameters out of range raise the types' own
    `UsageError`.
    """
    table = field["type"]
    if table is None:
        raise InvalidDataError(f"{field.flatbuffer.where}: a field has no type")
    name = table.spec.name
    if name in LIST_CLASSES:
        return LIST_CLASSES[name](*_exactly(children, 1))
    if name in _NESTED:
        return _NESTED[name][1](table, children)
    _exactly(children, 0)
    return _PLAIN[name]() if name in _PLAIN else _PARAMETERS[name][1](table)


def flat_examples() -> Iterator[tuple[str, DataType]]:
    """Yield a data type of each kind without children, with the name of its table."""
    yield from ((name, type_class()) for name, type_class in _PLAIN.items())
    yield from ((name, example) for name, (example, _, _) in _PARAMETERS.items())


def write_type(type_: DataType) -> UnionValue | None:
    """Return the table of a type; None for types that are represented otherwise (dictionaries, extensions)."""
    entry = _NAMES.get(type(type_))
    return None if entry is None else UnionValue(entry[0], entry[1](type_))
