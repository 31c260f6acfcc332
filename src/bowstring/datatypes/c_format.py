"""Parse format strings («Data type description -- format strings» of the Arrow C data interface).

A format string describes one type without its children, which have structures of their own. The types without
parameters are listed in tables; the others have a prefix, a colon and parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bowstring.datatypes import types
from bowstring.datatypes.field import DataType, Field
from bowstring.datatypes.type_specs import TYPE_SPECS
from bowstring.datatypes.types import MAP_KEYS_SORTED
from bowstring.errors import InvalidArgumentError, InvalidDataError, UnsupportedError

SIMPLE_TYPES_BY_FORMAT = {type_.c_format(): type_ for type_ in types.SIMPLE_TYPES}

NESTED_SPECS = {spec.example.c_format().partition(b":")[0]: spec for spec in TYPE_SPECS if spec.num_children != 0}
"""The nested types by the prefix of their format string."""
NESTED_SPECS[b"+ud"] = NESTED_SPECS[b"+us"]  # both modes of unions

_DIGITS = re.compile(rb"-?[0-9]{1,10}")
_UNITS: dict[bytes, types.TimeUnit] = {b"s": "s", b"m": "ms", b"u": "us", b"n": "ns"}


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
    return types.Decimal(*numbers)


def _create_timestamp_parser(unit: types.TimeUnit) -> Callable[[bytes], DataType]:
    return lambda parameters: types.Timestamp(unit, parameters.decode() or None)


_PARSERS: dict[bytes, Callable[[bytes], DataType]] = {
    b"d": _parse_decimal,
    b"w": lambda parameters: types.FixedSizeBinary(_parse_int(parameters)),
    **{b"ts" + letter: _create_timestamp_parser(unit) for letter, unit in _UNITS.items()},
}


_NESTED_PARAMETERS: dict[bytes, Callable[[bytes, int], tuple[Any, ...]]] = {
    b"+w:": lambda parameters, _: (_parse_int(parameters),),
    b"+ud:": lambda parameters, _: ("dense", _parse_ints(parameters)),
    b"+us:": lambda parameters, _: ("sparse", _parse_ints(parameters)),
    b"+m": lambda _, flags: (bool(flags & MAP_KEYS_SORTED),),
    **dict.fromkeys((b"+l", b"+L", b"+vl", b"+vL", b"+s", b"+r"), lambda _, __: ()),
}
"""The parameters of nested types besides their children, from the text after the prefix and the flags."""


def parse_format_string(text: bytes, children: tuple[Field, ...], flags: int) -> DataType:
    """Return the type of a format string with the children and flags of its structure.

    Raises `UnsupportedError` for an unknown format string, `InvalidDataError` for a malformed one or the wrong number
    of children.
    """
    simple_type = SIMPLE_TYPES_BY_FORMAT.get(text)
    prefix, colon, parameters = text.partition(b":")
    spec = NESTED_SPECS.get(prefix)
    expected = 0 if spec is None else spec.num_children
    if expected is not None and expected != len(children):
        raise InvalidDataError(f"format {_quote(text)}: expected {expected} children, found {len(children)}")
    if simple_type is not None:
        return simple_type
    try:
        if colon and prefix in _PARSERS:
            return _PARSERS[prefix](parameters)
        if spec is not None and prefix + colon in _NESTED_PARAMETERS:
            return spec.create_type(children, _NESTED_PARAMETERS[prefix + colon](parameters, flags))
    except (InvalidArgumentError, ValueError) as error:
        raise InvalidDataError(f"format {_quote(text)} is not valid: {error}") from None
    raise UnsupportedError(f"unknown format {_quote(text)}")


def _quote(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
