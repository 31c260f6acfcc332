"""Data types in metadata: names and parameters in Schema.fbs («Schema message») and in the JSON test data format.

Both formats have the same types and parameters. Enumerations are numbers in one and names in the other. The format
strings of the C data interface need the numbers of children, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import types as t
from bowstring.datatypes.field import DataType, Field
from bowstring.errors import InvalidDataError

REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The values of an attribute by their names in JSON, in the order of their numbers in Schema.fbs."""

    label: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TypeParameter:
    """A parameter of a type: its name, the attribute of the data type, and its Python type or its values.

    `default` applies if JSON omits it. The name in JSON is `json_name` if that is not empty.
    """

    name: str
    attribute: str
    value_type: type | Enumeration
    default: Any = REQUIRED
    json_name: str = ""


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A kind of data type: its name in Schema.fbs, an example, its parameters, and its number of children (None: any).

    `build` creates the type from its children and parameters; by default these are the arguments of its class.
    """

    name: str
    example: DataType
    parameters: tuple[TypeParameter, ...] = ()
    num_children: int | None = 0
    build: Callable[..., DataType] | None = None

    @property
    def json_name(self) -> str:
        """The name in JSON."""
        return self.name.lower().removesuffix("_")

    def create_type(self, children: Sequence[Field], values: Sequence[Any]) -> DataType:
        """Create a data type. Raises `InvalidDataError` for another number of children, and the errors of the type."""
        if self.num_children is not None and len(children) != self.num_children:
            raise InvalidDataError(
                f"type {self.json_name!r}: expected {self.num_children} children, found {len(children)}"
            )
        if self.build is not None:
            return self.build(tuple(children), *values)
        return type(self.example)(*children, *values)


def _create_time(_: object, unit: t.TimeUnit, bit_width: int | None) -> DataType:
    time = t.Time(unit)
    if bit_width not in (None, time.bit_width):
        raise InvalidDataError(f"expected a bit width of {time.bit_width} for {time}, found {bit_width}")
    return time


def create_union(children: tuple[Field, ...], mode: Any, type_ids: Sequence[int] | None) -> t.Union:
    """Create a union, whose type ids are 0, 1, … by default."""
    return t.Union(mode, children, tuple(range(len(children)) if type_ids is None else type_ids))


_BIT_WIDTH = TypeParameter("bitWidth", "bit_width", int)
_IS_SIGNED = TypeParameter("is_signed", "is_signed", bool, json_name="isSigned")
_TIME_UNIT = TypeParameter(
    "unit",
    "unit",
    Enumeration("time unit", {"SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us", "NANOSECOND": "ns"}),
)
_DATE_UNIT = TypeParameter("unit", "unit", Enumeration("date unit", {"DAY": "day", "MILLISECOND": "ms"}))
_INTERVAL_UNIT = TypeParameter(
    "unit",
    "unit",
    Enumeration(
        "interval unit",
        {"YEAR_MONTH": "year_month", "DAY_TIME": "day_time", "MONTH_DAY_NANO": "month_day_nano"},
    ),
)
_FLOAT_PRECISION = TypeParameter(
    "precision", "bit_width", Enumeration("precision", {"HALF": 16, "SINGLE": 32, "DOUBLE": 64})
)
_UNION_MODE = TypeParameter("mode", "mode", Enumeration("union mode", {"SPARSE": "sparse", "DENSE": "dense"}))

_ITEM = Field("item", t.Int(8))
_KEY = Field("key", t.Int(8), nullable=False)

TYPE_SPECS = (
    TypeSpec("Null", t.Null()),
    TypeSpec("Bool", t.Bool()),
    TypeSpec("Binary", t.Binary()),
    TypeSpec("LargeBinary", t.LargeBinary()),
    TypeSpec("BinaryView", t.BinaryView()),
    TypeSpec("Utf8", t.Utf8()),
    TypeSpec("LargeUtf8", t.LargeUtf8()),
    TypeSpec("Utf8View", t.Utf8View()),
    TypeSpec("Int", t.Int(8), (_BIT_WIDTH, _IS_SIGNED)),
    TypeSpec("FloatingPoint", t.FloatingPoint(16), (_FLOAT_PRECISION,)),
    TypeSpec("FixedSizeBinary", t.FixedSizeBinary(1), (TypeParameter("byteWidth", "byte_width", int),)),
    TypeSpec(
        "Decimal",
        t.Decimal(1, 0),
        (TypeParameter("precision", "precision", int), TypeParameter("scale", "scale", int), _BIT_WIDTH),
    ),
    TypeSpec("Date", t.Date("day"), (_DATE_UNIT,)),
    TypeSpec(
        "Time",
        t.Time("s"),
        (_TIME_UNIT, TypeParameter("bitWidth", "bit_width", int, None)),
        build=_create_time,
    ),
    TypeSpec(
        "Timestamp",
        t.Timestamp("s"),
        (_TIME_UNIT, TypeParameter("timezone", "timezone", str, None)),
        build=lambda _, unit, timezone: t.Timestamp(unit, timezone or None),
    ),
    TypeSpec("Duration", t.Duration("s"), (_TIME_UNIT,)),
    TypeSpec("Interval", t.Interval("year_month"), (_INTERVAL_UNIT,)),
    TypeSpec("List", t.List(_ITEM), num_children=1),
    TypeSpec("LargeList", t.LargeList(_ITEM), num_children=1),
    TypeSpec("ListView", t.ListView(_ITEM), num_children=1),
    TypeSpec("LargeListView", t.LargeListView(_ITEM), num_children=1),
    TypeSpec("FixedSizeList", t.FixedSizeList(_ITEM, 1), (TypeParameter("listSize", "list_size", int),), 1),
    TypeSpec("Struct_", t.Struct((_ITEM,)), num_children=None, build=t.Struct),
    TypeSpec(
        "Map",
        t.Map(Field("entries", t.Struct((_KEY, _ITEM)), nullable=False)),
        (TypeParameter("keysSorted", "keys_sorted", bool, False),),
        1,
    ),
    TypeSpec(
        "Union",
        t.Union("sparse", (_ITEM,), (0,)),
        (_UNION_MODE, TypeParameter("typeIds", "type_ids", list, None)),
        None,
        create_union,
    ),
    TypeSpec("RunEndEncoded", t.RunEndEncoded(Field("run_ends", t.Int(16), False), _ITEM), num_children=2),
)
TYPE_SPECS_BY_NAME = {type_spec.name: type_spec for type_spec in TYPE_SPECS}
TYPE_SPECS_BY_CLASS = {type(type_spec.example): type_spec for type_spec in TYPE_SPECS}
