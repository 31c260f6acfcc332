"""The `repr` of arrays: the type, the length, and the first and last few values. Malformed values do not raise."""

from __future__ import annotations

from typing import Any

from bowstring.errors import BowstringError

EDGE_ITEMS = 5
MAX_VALUE_CHARACTERS = 60


def format_value(value: Any) -> str:
    """Format a Python value: `null`, quoted strings, ISO dates and times; truncated if it is long."""
    if value is None:
        return "null"
    if isinstance(value, str):
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    elif isinstance(value, list):
        text = f"[{', '.join(map(format_value, value[:EDGE_ITEMS]))}{', …' if len(value) > EDGE_ITEMS else ''}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {format_value(element)}" for key, element in value.items()) + "}"
    else:
        text = str(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


def format_values(array: Any) -> list[str]:
    """Format the values of an array or chunked array; if they are malformed, return only the error message."""
    try:
        return [format_value(value) for value in array.to_pylist()]
    except (BowstringError, ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
        return [f"<{error}>"]  # an extension's `decode` may raise any of these


def format_preview(array: Any, length: int) -> str:
    """Format the first and last few values of an array or chunked array of this length, in brackets."""
    if length <= 2 * EDGE_ITEMS:
        return f"[{', '.join(format_values(array))}]"
    first, last = format_values(array.slice(0, EDGE_ITEMS)), format_values(array.slice(length - EDGE_ITEMS))
    return f"[{', '.join(first)}, …, {', '.join(last)}]"
