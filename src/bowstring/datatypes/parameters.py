"""Checks of the parameters of data types and fields."""

from __future__ import annotations

from collections.abc import Sequence

from bowstring.errors import InvalidArgumentError


def check_one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is one of these values, which have one Python type."""
    if not isinstance(value, type(allowed[0])) or value not in allowed:
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(str, allowed))}, not {value!r}")


def is_integer_within(number: object, low: int, high: int) -> bool:
    """Whether a parameter of a type is an integer from `low` to `high`, inclusive."""
    return isinstance(number, int) and low <= number <= high


def check_size(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a size of at most 31 bits."""
    if not is_integer_within(value, 0, (1 << 31) - 1):
        raise InvalidArgumentError(f"{what} is an integer from 0 to 2147483647, not {value!r}")


def check_text(what: str, value: object) -> None:
    """Raise `InvalidArgumentError` unless a parameter of a type is a string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} is a string, not {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"{what} has characters that UTF-8 does not encode (surrogates): {value!r}"
            ) from None
