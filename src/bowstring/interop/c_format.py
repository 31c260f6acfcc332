"""Format strings («Data type description -- format strings» of the Arrow C data interface).

A format string describes one type without its children, which have structures of their own. The types without
parameters are listed in tables; the others have a prefix, a colon and parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from bowstring.datatypes import types as t
from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError, UnsupportedError, UnsupportedTypeError, UsageError

MAP_KEYS_SORTED = 4
"""ARROW_FLAG_MAP_KEYS_SORTED"""

SIMPLE_FORMATS: dict[t.DataType, bytes] = {
    t.Null(): b"n",
    t.Bool(): b"b",
    t.Int(8): b"c",
    t.Int(8, False): b"C",
    t.Int(16): b"s",
    t.Int(16, False): b"S",
    t.Int(32): b"i",
    t.Int(32, False): b"I",
    t.Int(64): b"l",
    t.Int(64, False): b"L",
    t.FloatingPoint(16): b"e",
    t.FloatingPoint(32): b"f",
    t.FloatingPoint(64): b"g",
    t.Binary(): b"z",
    t.LargeBinary(): b"Z",
    t.BinaryView(): b"vz",
    t.Utf8(): b"u",
    t.LargeUtf8(): b"U",
    t.Utf8View(): b"vu",
    t.Date("day"): b"tdD",
    t.Date("ms"): b"tdm",
    t.Time("s"): b"tts",
    t.Time("ms"): b"ttm",
    t.Time("us"): b"ttu",
    t.Time("ns"): b"ttn",
    t.Duration("s"): b"tDs",
    t.Duration("ms"): b"tDm",
    t.Duration("us"): b"tDu",
    t.Duration("ns"): b"tDn",
    t.Interval("year_month"): b"tiM",
    t.Interval("day_time"): b"tiD",
    t.Interval("month_day_nano"): b"tin",
}
"""The types without parameters and children."""

NESTED_FORMATS: dict[type[t.DataType], bytes] = {
    t.List: b"+l",
    t.LargeList: b"+L",
    t.ListView: b"+vl",
    t.LargeListView: b"+vL",
    t.Struct: b"+s",
    t.Map: b"+m",
    t.RunEndEncoded: b"+r",
}
"""The types whose only parameters are their children (and a map's flag)."""

_DIGITS = re.compile(rb"-?[0-9]{1,10}")
_TYPES = {text: plain for plain, text in SIMPLE_FORMATS.items()}
_CHILD_COUNTS: dict[bytes, int | None] = {b"+s": None, b"+ud": None, b"+us": None, b"+r": 2} | dict.fromkeys(
    (b"+l", b"+L", b"+vl", b"+vL", b"+m", b"+w"), 1
)
_UNITS: dict[bytes, t.TimeUnit] = {b"s": "s", b"m": "ms", b"u": "us", b"n": "ns"}
_UNIT_LETTERS = {unit: letter for letter, unit in _UNITS.items()}

_ENCODERS: dict[type[t.DataType], Callable[[Any], bytes]] = {
    t.Decimal: lambda d: b"d:%d,%d" % (d.precision, d.scale) + (b",%d" % d.bit_width if d.bit_width != 128 else b""),
    t.FixedSizeBinary: lambda d: b"w:%d" % d.byte_width,
    t.Timestamp: lambda d: b"ts%c:%s" % (_UNIT_LETTERS[d.unit], (d.timezone or "").encode()),
    t.FixedSizeList: lambda d: b"+w:%d" % d.list_size,
    t.Union: lambda d: b"+u%c:%s" % (d.mode[0].encode(), ",".join(map(str, d.type_ids)).encode()),
}


def format_string(type: t.DataType) -> bytes:
    """Return the format string, without the terminating NUL, of a type that is neither an extension type nor
    dictionary-encoded.

    Raises `UnsupportedTypeError` if the C data interface has no such type.
    """
    constant = SIMPLE_FORMATS.get(type) or NESTED_FORMATS.get(type.__class__)
    if constant is not None:
        return constant
    encode = _ENCODERS.get(type.__class__)
    if encode is None:
        raise UnsupportedTypeError(f"{type} has no format string in the C data interface")
    text = encode(type)
    if b"\0" in text:
        raise UnsupportedTypeError(f"{type} contains a NUL character, which is not allowed in a format string")
    return text


def _parse_int(digits: bytes) -> int:
    """Parse decimal digits. Other notations that `int` accepts are rejected."""
    if not _DIGITS.fullmatch(digits):
        raise ValueError(f"expected decimal digits, found {digits[:20]!r}")
    return int(digits)


def _parse_ints(parameters: bytes) -> tuple[int, ...]:
    return tuple(_parse_int(part) for part in parameters.split(b",")) if parameters else ()


def _parse_decimal(parameters: bytes) -> t.DataType:
    numbers = _parse_ints(parameters)
    if len(numbers) not in (2, 3):
        raise ValueError("expected a precision, a scale and optionally a bit width")
    return t.Decimal(*numbers)


def _timestamp_parser(unit: t.TimeUnit) -> Callable[[bytes], t.DataType]:
    return lambda parameters: t.Timestamp(unit, parameters.decode() or None)


_PARSERS: dict[bytes, Callable[[bytes], t.DataType]] = {
    b"d": _parse_decimal,
    b"w": lambda parameters: t.FixedSizeBinary(_parse_int(parameters)),
    **{b"ts" + letter: _timestamp_parser(unit) for letter, unit in _UNITS.items()},
}


def _union_parser(mode: Any) -> Callable[[bytes, tuple[Field, ...]], t.DataType]:
    return lambda parameters, children: t.Union(mode, children, _parse_ints(parameters))


_NESTED_PARSERS: dict[bytes, Callable[[bytes, tuple[Field, ...]], t.DataType]] = {
    b"+w": lambda parameters, children: t.FixedSizeList(children[0], _parse_int(parameters)),
    b"+ud": _union_parser("dense"),
    b"+us": _union_parser("sparse"),
}
_NESTED_TYPES = {text: nested for nested, text in NESTED_FORMATS.items()}


def parse_format_string(text: bytes, children: tuple[Field, ...], flags: int) -> t.DataType:
    """Return the type of a format string with the children and flags of its structure.

    Raises `UnsupportedError` for an unknown format string, `InvalidDataError` for a malformed one or the wrong number
    of children.
    """
    constant = _TYPES.get(text)
    prefix, colon, parameters = text.partition(b":")
    expected = _CHILD_COUNTS.get(prefix, 0)
    if expected is not None and expected != len(children):
        raise InvalidDataError(f"format {_quote(text)}: expected {expected} children, found {len(children)}")
    if constant is not None:
        return constant
    try:
        if colon and prefix in _PARSERS:
            return _PARSERS[prefix](parameters)
        if colon and prefix in _NESTED_PARSERS:
            return _NESTED_PARSERS[prefix](parameters, children)
        if text == b"+s":
            return t.Struct(children)
        if text == b"+m":
            return t.Map(children[0], bool(flags & MAP_KEYS_SORTED))
        if text in _NESTED_TYPES:
            return cast("Callable[..., t.DataType]", _NESTED_TYPES[text])(*children)
    except (UsageError, ValueError) as error:
        raise InvalidDataError(f"format {_quote(text)} is not valid: {error}") from None
    raise UnsupportedError(f"unknown format {_quote(text)}")


def _quote(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
