"""What the modules of integration JSON have in common: a data set, the limits of a reader, and looking into JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Schema
from bowstring.errors import InvalidDataError, UsageError
from bowstring.layouts.base import join_reprs

Json: TypeAlias = dict[str, Any]
"""A JSON object."""

_DEEPEST = 100
_MOST_SLOTS = (1 << 63) - 1
_MISSING: Any = object()
_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Bounds on what is read; each has a default that honest test data stays within.

    - `max_bytes`: the document, uncompressed; as Python objects it takes up some twenty times as much
    - `max_nesting`: how deep types may be nested (at most 100)
    """

    max_bytes: int = 64 << 20
    max_nesting: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.max_nesting <= _DEEPEST:
            raise UsageError(f"max_nesting is 1 to {_DEEPEST}, not {self.max_nesting}")
        if self.max_bytes < 0:
            raise UsageError(f"limits are not negative: {self}")


DEFAULT_LIMITS = DocumentLimits()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A schema and the record batches that have it."""

    schema: Schema
    batches: tuple[RecordBatch, ...]


def expect(value: Any, kind: type[_T], what: str) -> _T:
    """The value where it is of that kind; raises `InvalidDataError`."""
    if type(value) is not kind:
        raise InvalidDataError(f"expected {what} to be {_NAMES[kind]}, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{_NAMES[type(value)]} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def member(holder: Json, key: str, kind: type[_T], default: _T = _MISSING) -> _T:
    """A member of a JSON object, of that kind; the default where it is absent or null. Raises `InvalidDataError`."""
    value = holder.get(key)
    if value is None:
        if default is _MISSING:
            raise InvalidDataError(f"expected a member {key!r}, found {join_reprs(holder) or 'none'}")
        return default
    return expect(value, kind, repr(key))


def count_of(holder: Json) -> int:
    """The member «count» of a batch or a column. Raises `InvalidDataError`."""
    count = member(holder, "count", int)
    if not 0 <= count <= _MOST_SLOTS:
        raise InvalidDataError(f"expected a count of 0 or more, found {count}")
    return count


def converted(
    items: list[Any], valid: list[bool] | None, convert: Callable[[Any], _T], fill: _T, what: str
) -> list[_T]:
    """Each item converted, `fill` where it is not valid; a failure is an `InvalidDataError` that names the item."""
    out: list[_T] = []
    for index, item in enumerate(items):
        if valid is not None and not valid[index]:
            out.append(fill)
            continue
        try:
            out.append(convert(item))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"{what}[{index}] = {_shown(item)}: {error}") from None
    return out
