"""Storage types and JSON parameters of the canonical extension types, checked as untrusted input."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bowstring.datatypes.field import DataType
from bowstring.errors import InvalidArgumentError, InvalidDataError

_PairsHook: TypeAlias = Callable[[list[tuple[str, Any]]], Any]

MAX_DIMENSIONS = 64
"""The limit of NumPy."""
# Hostile metadata: parameters have some hundred bytes, and JSON takes many times its size as Python objects.
_MAX_BYTES = 1 << 20


def check_storage_type(name: str, storage_type: DataType, *allowed: DataType) -> None:
    """Raise `InvalidArgumentError` if the storage type is not one of `allowed`."""
    if storage_type not in allowed:
        raise InvalidArgumentError(
            f"{name}: expected {' or '.join(map(str, allowed))} as storage type, found {storage_type}"
        )


def parse_parameters(name: str, serialized: bytes, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Read an extension's metadata, a JSON object, and return its members named in `keys`; {} for empty metadata.

    Members that are null are left out. Raises `InvalidDataError` if the metadata is not a JSON object.
    """
    if not serialized:
        return {}
    if len(serialized) > _MAX_BYTES:
        raise InvalidDataError(f"{name}: expected up to {_MAX_BYTES} bytes of metadata, found {len(serialized)}")
    members = parse_json(f"{name}: metadata {serialized[:60]!r}", serialized, _reject_duplicate_keys)
    if not isinstance(members, dict):
        raise InvalidDataError(f"{name}: expected a JSON object as metadata, found {serialized[:60]!r}")
    return {key: members[key] for key in keys if members.get(key) is not None}


def parse_json(what: str, text: str | bytes, pairs_hook: _PairsHook | None = None) -> Any:
    """Parse JSON (RFC 8259). Raises `InvalidDataError`, naming the text `what`, if the text is not valid.

    `pairs_hook` builds an object from its key-value pairs and raises ValueError to reject it.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return json.loads(decoded, parse_constant=_reject_constant, object_pairs_hook=pairs_hook)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidDataError(f"{what} is not valid JSON: {reason}") from None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate keys: some readers use the first value, others the last."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a duplicate key")
    return members


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not allowed in JSON")


def serialize_parameters(**members: Any) -> bytes:
    """Serialize the members that are not None as a JSON object without spaces."""
    present = {key: value for key, value in members.items() if value is not None}
    return json.dumps(present, separators=(",", ":"), ensure_ascii=False).encode()


def parse_string(name: str, key: str, value: Any) -> str:
    """Return a member that is a string. Raises `InvalidDataError` for anything else."""
    if not isinstance(value, str):
        raise InvalidDataError(f"{name}: expected a string as {key!r}, found {value!r:.60}")
    return value


def parse_sizes(name: str, parameters: dict[str, Any], key: str, nullable: bool = False) -> tuple[Any, ...] | None:
    """Return a member that is an array of sizes from 0 to 2**31 - 1, or None if absent.

    Raises `InvalidDataError` for anything else.
    """
    elements = _parse_array(name, parameters, key)
    for element in elements or ():
        if (type(element) is not int or not 0 <= element < 1 << 31) and not (nullable and element is None):
            raise InvalidDataError(f"{name}: expected sizes from 0 to 2147483647 in {key!r}, found {element!r:.60}")
    return elements


def parse_names(name: str, parameters: dict[str, Any], key: str) -> tuple[str, ...] | None:
    """Return a member that is an array of strings, or None if absent. Raises `InvalidDataError` for anything else."""
    elements = _parse_array(name, parameters, key)
    return None if elements is None else tuple(parse_string(name, key, element) for element in elements)


def _parse_array(name: str, parameters: dict[str, Any], key: str) -> tuple[Any, ...] | None:
    value = parameters.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidDataError(f"{name}: expected an array as {key!r}, found {value!r:.60}")
    if len(value) > MAX_DIMENSIONS:
        raise InvalidDataError(f"{name}: expected up to {MAX_DIMENSIONS} elements in {key!r}, found {len(value)}")
    return tuple(value)
