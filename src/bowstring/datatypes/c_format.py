"""Parse format strings («Data type description -- format strings» of the Arrow C data interface).

A format string describes one type without its children, which have structures of their own. The types without
parameters are listed in tables; the others have a prefix, a colon and parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from bowstring.datatypes import nested, non_nested
from bowstring.datatypes.base import DataType
from bowstring.datatypes.field import Field
from bowstring.datatypes.nested import MAP_KEYS_SORTED
from bowstring.errors import InvalidArgumentError, InvalidDataError, UnsupportedError

SIMPLE_TYPES_BY_FORMAT = {type_.c_format(): type_ for type_ in non_nested.SIMPLE_TYPES}
NESTED_TYPES: dict[bytes, type[DataType]] = {
    type_.C_FORMAT: type_
    for type_ in (
        nested.List,
        nested.LargeList,
        nested.ListView,
        nested.LargeListView,
        nested.Struct,
        nested.Map,
        nested.RunEndEncoded,
    )
}
"""The types whose only parameters are their children (and a map's flag), by format string."""

_DIGITS = re.compile(rb"-?[0-9]{1,10}")
_CHILD_COUNTS: dict[bytes, int | None] = {b"+s": None, b"+ud": None, b"+us": None, b"+r": 2} | dict.fromkeys(
    (b"+l", b"+L", b"+vl", b"+vL", b"+m", b"+w"), 1
)
_UNITS: dict[bytes, non_nested.TimeUnit] = {b"s": "s", b"m": "ms", b"u": "us", b"n": "ns"}


def _parse_int(digits: bytes) -> int:
    """Parse decimal digits. Other notations that `int` accepts are rejected."""
    if not _DIGITS.fullmatch(digits):
        raise ValueError(f"expected decimal digits, found {digits[:20]!r}")
    return int(digits)


def _parse_ints(parameters: bytes) -> tuple[int, ...]:
    return tuple(_parse_int(part) for part in parameters.split(b",")) if parameters else ()


def _parse_decimal(parameters: bytes) -> DataType:
    numbers = _parse_ints(parameters)
    if len(numbers) not in (2, 3):
        raise ValueError("expected a precision, a scale and optionally a bit width")
    return non_nested.Decimal(*numbers)


def _create_timestamp_parser(unit: non_nested.TimeUnit) -> Callable[[bytes], DataType]:
    return lambda parameters: non_nested.Timestamp(unit, parameters.decode() or None)


_PARSERS: dict[bytes, Callable[[bytes], DataType]] = {
    b"d": _parse_decimal,
    b"w": lambda parameters: non_nested.FixedSizeBinary(_parse_int(parameters)),
    **{b"ts" + letter: _create_timestamp_parser(unit) for letter, unit in _UNITS.items()},
}


def _create_union_parser(mode: Any) -> Callable[[bytes, tuple[Field, ...]], DataType]:
    return lambda parameters, children: nested.Union(mode, children, _parse_ints(parameters))


_NESTED_PARSERS: dict[bytes, Callable[[bytes, tuple[Field, ...]], DataType]] = {
    b"+w": lambda parameters, children: nested.FixedSizeList(children[0], _parse_int(parameters)),
    b"+ud": _create_union_parser("dense"),
    b"+us": _create_union_parser("sparse"),
}


def parse_format_string(text: bytes, children: tuple[Field, ...], flags: int) -> DataType:
    """Return the type of a format string with the children and flags of its structure.

    Raises `UnsupportedError` for an unknown format string, `InvalidDataError` for a malformed one or the wrong number
    of children.
    """
    simple_type = SIMPLE_TYPES_BY_FORMAT.get(text)
    prefix, colon, parameters = text.partition(b":")
    expected = _CHILD_COUNTS.get(prefix, 0)
    if expected is not None and expected != len(children):
        raise InvalidDataError(f"format {_quote(text)}: expected {expected} children, found {len(children)}")
    if simple_type is not None:
        return simple_type
    try:
        if colon and prefix in _PARSERS:
            return _PARSERS[prefix](parameters)
        if colon and prefix in _NESTED_PARSERS:
            return _NESTED_PARSERS[prefix](parameters, children)
        if text == b"+s":
            return nested.Struct(children)
        if text == b"+m":
            return nested.Map(children[0], bool(flags & MAP_KEYS_SORTED))
        if text in NESTED_TYPES:
            return cast("Callable[..., DataType]", NESTED_TYPES[text])(*children)
    except (InvalidArgumentError, ValueError) as error:
        raise InvalidDataError(f"format {_quote(text)} is not valid: {error}") from None
    raise UnsupportedError(f"unknown format {_quote(text)}")


def _quote(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
