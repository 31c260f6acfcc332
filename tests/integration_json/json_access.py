"""Shared definitions of integration JSON: the limits of the reader, and typed access to JSON objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from bowstring.display.objects import repr_options
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.layouts.base import join_reprs

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

_MAX_NESTING = 100
_MAX_COUNT = (1 << 63) - 1
_MISSING: Any = object()
_JSON_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DocumentLimits:
    """Resource limits of `read`.

    - `max_bytes`: maximum size of the document, uncompressed; the parsed JSON takes about twenty times as much memory
    - `max_nesting`: maximum nesting depth of types (at most 100)
    """

    max_bytes: int = 64 << 20
    max_nesting: int = 64

    __repr__ = repr_options

    def __post_init__(self) -> None:
        if not 1 <= self.max_nesting <= _MAX_NESTING:
            raise InvalidArgumentError(f"max_nesting must be from 1 to {_MAX_NESTING}, found {self.max_nesting}")
        if self.max_bytes < 0:
            raise InvalidArgumentError(f"max_bytes must not be negative, found {self.max_bytes}")


DEFAULT_LIMITS = DocumentLimits()


def expect_json_type(value: Any, kind: type[_T], name: str) -> _T:
    """Return the value if it has the JSON type `kind`, else raise `InvalidDataError`."""
    if type(value) is not kind:
        raise InvalidDataError(f"expected {name} to be {_JSON_TYPE_NAMES[kind]}, found {_summarize(value)}")
    return value


def _summarize(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{_JSON_TYPE_NAMES[type(value)]} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_member(json_object: Json, key: str, kind: type[_T], default: _T = _MISSING) -> _T:
    """Return a member of a JSON object, or the default if it is absent or null. Raises `InvalidDataError` if it has
    another JSON type than `kind`, or is absent and there is no default.
    """
    value = json_object.get(key)
    if value is None:
        if default is _MISSING:
            raise InvalidDataError(f"expected a member {key!r}, found {join_reprs(json_object) or 'none'}")
        return default
    return expect_json_type(value, kind, repr(key))


def read_count(json_object: Json) -> int:
    """Return the «count» member of a batch or column. Raises `InvalidDataError`."""
    count = read_member(json_object, "count", int)
    if not 0 <= count <= _MAX_COUNT:
        raise InvalidDataError(f"expected a count of 0 or more, found {count}")
    return count


def convert_values(
    values: list[Any], valid: list[bool] | None, convert: Callable[[Any], _T], fill: _T, name: str
) -> list[_T]:
    """Convert each value, or use `fill` for nulls. Raises `InvalidDataError` naming the element that is invalid."""
    converted: list[_T] = []
    for index, value in enumerate(values):
        if valid is not None and not valid[index]:
            converted.append(fill)
            continue
        try:
            converted.append(convert(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"{name}[{index}] = {_summarize(value)}: {error}") from None
    return converted
