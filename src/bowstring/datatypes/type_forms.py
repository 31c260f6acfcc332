"""Data types in metadata: names and parameters in Schema.fbs («Schema message») and in the JSON test data format.

Both formats have the same types and parameters. Enumerations are numbers in one and names in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import types as t
from bowstring.datatypes.field import Field
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
    kind: type | Enumeration
    default: Any = REQUIRED
    json_name: str = ""


@dataclass(frozen=True, slots=True)
class TypeForm:
    """A kind of data type: its name in Schema.fbs, an example, its parameters, and its number of children (None: any).

    `build` creates the type from its children and parameters; by default these are the arguments of its class.
    """

    name: str
    example: t.DataType
    parameters: tuple[TypeParameter, ...] = ()
    num_children: int | None = 0
    build: Callable[..., t.DataType] | None = None

    @property
    def json_name(self) -> str:
        """The name in JSON."""
        return self.name.lower().removesuffix("_")

    def create(self, children: Sequence[Field], values: Sequence[Any]) -> t.DataType:
        """Create a data type. Raises `InvalidDataError` for another number of children, and the errors of the type."""
        if self.num_children is not None and len(children) != self.num_children:
            raise InvalidDataError(
                f"type {self.json_name!r}: expected {self.num_children} children, found {len(children)}"
            )
        if self.build is not None:
            return self.build(tuple(children), *values)
        return type(self.example)(*children, *values)


def _build_time(_: object, unit: t.TimeUnit, bit_width: int | None) -> t.DataType:
    time = t.Time(unit)
    if bit_width not in (None, time.bit_width):
        raise InvalidDataError(f"expected a bit width of {time.bit_width} for {time}, found {bit_width}")
    return time


def _build_union(children: tuple[Field, ...], mode: Any, type_ids: Sequence[int] | None) -> t.DataType:
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

TYPE_FORMS = (
    TypeForm("Null", t.Null()),
    TypeForm("Bool", t.Bool()),
    TypeForm("Binary", t.Binary()),
    TypeForm("LargeBinary", t.LargeBinary()),
    TypeForm("BinaryView", t.BinaryView()),
    TypeForm("Utf8", t.Utf8()),
    TypeForm("LargeUtf8", t.LargeUtf8()),
    TypeForm("Utf8View", t.Utf8View()),
    TypeForm("Int", t.Int(8), (_BIT_WIDTH, _IS_SIGNED)),
    TypeForm("FloatingPoint", t.FloatingPoint(16), (_FLOAT_PRECISION,)),
    TypeForm("FixedSizeBinary", t.FixedSizeBinary(1), (TypeParameter("byteWidth", "byte_width", int),)),
    TypeForm(
        "Decimal",
        t.Decimal(1, 0),
        (TypeParameter("precision", "precision", int), TypeParameter("scale", "scale", int), _BIT_WIDTH),
    ),
    TypeForm("Date", t.Date("day"), (_DATE_UNIT,)),
    TypeForm("Time", t.Time("s"), (_TIME_UNIT, TypeParameter("bitWidth", "bit_width", int, None)), build=_build_time),
    TypeForm(
        "Timestamp",
        t.Timestamp("s"),
        (_TIME_UNIT, TypeParameter("timezone", "timezone", str, None)),
        build=lambda _, unit, timezone: t.Timestamp(unit, timezone or None),
    ),
    TypeForm("Duration", t.Duration("s"), (_TIME_UNIT,)),
    TypeForm("Interval", t.Interval("year_month"), (_INTERVAL_UNIT,)),
    TypeForm("List", t.List(_ITEM), num_children=1),
    TypeForm("LargeList", t.LargeList(_ITEM), num_children=1),
    TypeForm("ListView", t.ListView(_ITEM), num_children=1),
    TypeForm("LargeListView", t.LargeListView(_ITEM), num_children=1),
    TypeForm("FixedSizeList", t.FixedSizeList(_ITEM, 1), (TypeParameter("listSize", "list_size", int),), 1),
    TypeForm("Struct_", t.Struct((_ITEM,)), num_children=None, build=t.Struct),
    TypeForm(
        "Map",
        t.Map(Field("entries", t.Struct((_KEY, _ITEM)), nullable=False)),
        (TypeParameter("keysSorted", "keys_sorted", bool, False),),
        1,
    ),
    TypeForm(
        "Union",
        t.Union("sparse", (_ITEM,), (0,)),
        (_UNION_MODE, TypeParameter("typeIds", "type_ids", list, None)),
        None,
        _build_union,
    ),
    TypeForm("RunEndEncoded", t.RunEndEncoded(Field("run_ends", t.Int(16), False), _ITEM), num_children=2),
)
FORMS_BY_NAME = {form.name: form for form in TYPE_FORMS}
FORMS_BY_CLASS = {type(form.example): form for form in TYPE_FORMS}
