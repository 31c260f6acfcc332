"""Read the fields of JSON objects that come from elsewhere: other processes, files and users."""

from __future__ import annotations

from typing import TypeVar

from bowstring.errors import BowstringError, ProtocolError

_FieldType = TypeVar("_FieldType")


def read_field(
    record: object,
    name: str,
    kind: type[_FieldType],
    subject: str,
    error_type: type[BowstringError] = ProtocolError,
) -> _FieldType:
    """Return a field of a JSON object that has exactly this type: for JSON, true is not a number.

    Raises `error_type` about `subject` if `record` is not an object, or lacks the field, or it has another type.
    """
    value = record.get(name) if isinstance(record, dict) else None
    if type(value) is not kind:
        raise error_type(f"{subject}: {name}: expected {kind.__name__}, found {value!s:.80}")
    return value


def read_list(
    record: object,
    name: str,
    kind: type[_FieldType],
    subject: str,
    error_type: type[BowstringError] = ProtocolError,
) -> tuple[_FieldType, ...]:
    """Return a field that is a list of values of exactly this type. Raises as `read_field`."""
    values = read_field(record, name, list, subject, error_type)
    if not all(type(value) is kind for value in values):
        raise error_type(f"{subject}: {name}: expected a list of {kind.__name__}, found {values!s:.80}")
    return tuple(values)
