"""How arrays print: the type, the length, and the first and last few values; never an error, however broken the values
are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bowstring.errors import BowstringError

if TYPE_CHECKING:
    from bowstring.layouts.array import Array

EDGE_ITEMS = 5
MAX_VALUE_CHARACTERS = 60


def format_value(value: Any) -> str:
    """One Python value as short text: `null`, quoted strings, the ISO form of times."""
    if value is None:
        return "null"
    if isinstance(value, str):
        shown = '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    elif isinstance(value, list):
        shown = f"[{', '.join(map(format_value, value[:EDGE_ITEMS]))}{', …' if len(value) > EDGE_ITEMS else ''}]"
    elif isinstance(value, dict):
        shown = "{" + ", ".join(f"{key}: {format_value(item)}" for key, item in value.items()) + "}"
    else:
        shown = str(value)
    return shown if len(shown) <= MAX_VALUE_CHARACTERS else shown[: MAX_VALUE_CHARACTERS - 1] + "…"


def format_values(array: Any) -> list[str]:
    """The values of an array or chunked array as short texts; one text that says why where they cannot be shown."""
    try:
        return [format_value(value) for value in array.to_pylist()]
    except (BowstringError, ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
        return [f"<{error}>"]  # an extension's `decode` may raise what it likes


def format_array_values(array: Any, length: int) -> str:
    """The first and last few values of an array or chunked array of this length, in brackets."""
    if length <= 2 * EDGE_ITEMS:
        return f"[{', '.join(format_values(array))}]"
    first, last = format_values(array.slice(0, EDGE_ITEMS)), format_values(array.slice(length - EDGE_ITEMS))
    return f"[{', '.join(first)}, …, {', '.join(last)}]"


def array_repr(array: Array) -> str:
    """The array in a few lines."""
    return f"<bowstring.Array {array.type}[{array.length}]>\n{format_array_values(array, array.length)}"
