"""Format strings («Data type description -- format strings» of the Arrow C data interface).

A format string says what one type is apart from its children, which travel as structures of their own. Types without
parameters are a table; the others are a prefix, a colon and parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from bowstring.datatypes import types as t
from bowstring.datatypes.field import Field
from bowstring.errors import InvalidDataError, UnsupportedError, UnsupportedTypeError, UsageError

KEYS_SORTED = 4
"""ARROW_FLAG_MAP_KEYS_SORTED"""

PLAIN: dict[t.DataType, bytes] = {
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
"""The types that have neither parameters nor children."""

NESTED: dict[type[t.DataType], bytes] = {
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
_PLAIN_TYPES = {text: plain for plain, text in PLAIN.items()}
_CHILDREN: dict[bytes, int | None] = {b"+s": None, b"+ud": None, b"+us": None, b"+r": 2} | dict.fromkeys(
    (b"+l", b"+L", b"+vl", b"+vL", b"+m", b"+w"), 1
)
_UNITS: dict[bytes, t.TimeUnit] = {b"s": "s", b"m": "ms", b"u": "us", b"n": "ns"}
_UNIT_LETTERS = {unit: letter for letter, unit in _UNITS.items()}

_WRITERS: dict[type[t.DataType], Callable[[Any], bytes]] = {
    t.Decimal: lambda d: b"d:%d,%d" % (d.precision, d.scale) + (b",%d" % d.bit_width if d.bit_width != 128 else b""),
    t.FixedSizeBinary: lambda d: b"w:%d" % d.byte_width,
    t.Timestamp: lambda d: b"ts%c:%s" % (_UNIT_LETTERS[d.unit], (d.timezone or "").encode()),
    t.FixedSizeList: lambda d: b"+w:%d" % d.list_size,
    t.Union: lambda d: b"+u%c:%s" % (d.mode[0].encode(), ",".join(map(str, d.type_ids)).encode()),
}


def format_of(type: t.DataType) -> bytes:
    """The format string of a type that is neither an extension nor dictionary-encoded, without the closing NUL.

    Raises `UnsupportedTypeError` for a type that has none.
    """
    found = PLAIN.get(type) or NESTED.get(type.__class__)
    if found is not None:
        return found
    writer = _WRITERS.get(type.__class__)
    if writer is None:
        raise UnsupportedTypeError(f"{type} has no format string in the C data interface")
    text = writer(type)
    if b"\0" in text:
        raise UnsupportedTypeError(f"{type} has a NUL character in it, which a format string cannot hold")
    return text


def _number(digits: bytes) -> int:
    """What decimal digits say, and nothing else that Python takes for a number."""
    if not _DIGITS.fullmatch(digits):
        raise ValueError(f"expected decimal digits, found {digits[:20]!r}")
    return int(digits)


def _numbers(parameters: bytes) -> tuple[int, ...]:
    return tuple(_number(part) for part in parameters.split(b",")) if parameters else ()


def _decimal(parameters: bytes) -> t.DataType:
    numbers = _numbers(parameters)
    if len(numbers) not in (2, 3):
        raise ValueError("a precision, a scale and at most a bit width")
    return t.Decimal(*numbers)


def _timestamp(unit: t.TimeUnit) -> Callable[[bytes], t.DataType]:
    return lambda parameters: t.Timestamp(unit, parameters.decode() or None)


_READERS: dict[bytes, Callable[[bytes], t.DataType]] = {
    b"d": _decimal,
    b"w": lambda parameters: t.FixedSizeBinary(_number(parameters)),
    **{b"ts" + letter: _timestamp(unit) for letter, unit in _UNITS.items()},
}


def _union(mode: Any) -> Callable[[bytes, tuple[Field, ...]], t.DataType]:
    return lambda parameters, children: t.Union(mode, children, _numbers(parameters))


_NESTED_READERS: dict[bytes, Callable[[bytes, tuple[Field, ...]], t.DataType]] = {
    b"+w": lambda parameters, children: t.FixedSizeList(children[0], _number(parameters)),
    b"+ud": _union("dense"),
    b"+us": _union("sparse"),
}
_NESTED_TYPES = {text: nested for nested, text in NESTED.items()}


def type_of(text: bytes, children: tuple[Field, ...], flags: int) -> t.DataType:
    """The type of a format string, its children and its flags.

    Raises `UnsupportedError` for a format string that is not known, `InvalidDataError` for one that is not well formed
    or has the wrong number of children.
    """
    plain = _PLAIN_TYPES.get(text)
    prefix, colon, parameters = text.partition(b":")
    expected = _CHILDREN.get(prefix, 0)
    if expected is not None and expected != len(children):
        raise InvalidDataError(f"format {_shown(text)} goes with {expected} children, not {len(children)}")
    if plain is not None:
        return plain
    try:
        if colon and prefix in _READERS:
            return _READERS[prefix](parameters)
        if colon and prefix in _NESTED_READERS:
            return _NESTED_READERS[prefix](parameters, children)
        if text == b"+s":
            return t.Struct(children)
        if text == b"+m":
            return t.Map(children[0], bool(flags & KEYS_SORTED))
        if text in _NESTED_TYPES:
            return cast("Callable[..., t.DataType]", _NESTED_TYPES[text])(*children)
    except (UsageError, ValueError) as error:
        raise InvalidDataError(f"format {_shown(text)} does not describe a type: {error}") from None
    raise UnsupportedError(f"format {_shown(text)} is none that this version knows")


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
