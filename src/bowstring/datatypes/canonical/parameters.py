"""Parameters of extension types as JSON in a field's custom metadata: read with suspicion."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bowstring.errors import InvalidDataError

_Members: TypeAlias = Callable[[list[tuple[str, Any]]], Any]

MAX_DIMENSIONS = 64
"""NumPy's own bound."""
_MAX_BYTES = 1 << 20


def read_parameters(name: str, serialized: bytes, known: Sequence[str] = ()) -> dict[str, Any]:
    """The members of the JSON object in an extension's metadata that are `known`; none for empty metadata.

    Raises `InvalidDataError` where it is no JSON object.
    """
    if not serialized:
        return {}
    if len(serialized) > _MAX_BYTES:
        raise InvalidDataError(f"{name}: expected up to {_MAX_BYTES} bytes of metadata, found {len(serialized)}")
    found = read_json(f"{name}: its metadata {serialized[:60]!r}", serialized, _each_key_once)
    if not isinstance(found, dict):
        raise InvalidDataError(f"{name}: expected a JSON object as metadata, found {serialized[:60]!r}")
    return {key: found[key] for key in known if found.get(key) is not None}


def read_json(what: str, text: str | bytes, members: _Members | None = None) -> Any:
    """The value that a text is the JSON of, by RFC 8259; raises `InvalidDataError`, which calls the text `what`.

    `members` makes an object of its members, and raises ValueError where they do not make one.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return json.loads(decoded, parse_constant=_no_constant, object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InvalidDataError(f"{what} is no JSON: {reason}") from None


def _each_key_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two members of one name some readers take the first and some the last."""
    made = dict(members)
    if len(made) != len(members):
        raise ValueError("a key comes twice in an object")
    return made


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def write_parameters(**members: Any) -> bytes:
    """The JSON object of the members that are not None, without spaces."""
    held = {key: value for key, value in members.items() if value is not None}
    return json.dumps(held, separators=(",", ":"), ensure_ascii=False).encode()


def text(name: str, key: str, value: Any) -> str:
    """A member that is a string; raises `InvalidDataError` for anything else."""
    if not isinstance(value, str):
        raise InvalidDataError(f"{name}: expected a string as {key!r}, found {value!r:.60}")
    return value


def sizes(name: str, key: str, value: Any, nullable: bool = False) -> tuple[Any, ...]:
    """A member that is an array of sizes, 0 to 2**31 - 1; raises `InvalidDataError` for anything else."""
    items = _items(name, key, value)
    for item in items:
        if (type(item) is not int or not 0 <= item < 1 << 31) and not (nullable and item is None):
            raise InvalidDataError(f"{name}: expected sizes of 31 bits in {key!r}, found {item!r:.60}")
    return items


def names(name: str, key: str, value: Any) -> tuple[str, ...] | None:
    """A member that is an array of strings; raises `InvalidDataError` for anything else."""
    return None if value is None else tuple(text(name, key, item) for item in _items(name, key, value))


def permutation(name: str, key: str, value: Any) -> tuple[int, ...] | None:
    """A member that is an array of dimensions; whether each is there once is the type's own check."""
    return None if value is None else sizes(name, key, value)


def _items(name: str, key: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InvalidDataError(f"{name}: expected an array as {key!r}, found {value!r:.60}")
    if len(value) > MAX_DIMENSIONS:
        raise InvalidDataError(f"{name}: expected up to {MAX_DIMENSIONS} items in {key!r}, found {len(value)}")
    return tuple(value)
