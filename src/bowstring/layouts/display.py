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


def value_text(value: Any) -> str:
    """One Python value as short text: `null`, quoted strings, the ISO form of times."""
    if value is None:
        return "null"
    if isinstance(value, str):
        shown = '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    elif isinstance(value, list):
        shown = f"[{', '.join(map(value_text, value[:EDGE_ITEMS]))}{', …' if len(value) > EDGE_ITEMS else ''}]"
    elif isinstance(value, dict):
        shown = "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    else:
        shown = str(value)
    return shown if len(shown) <= MAX_VALUE_CHARACTERS else shown[: MAX_VALUE_CHARACTERS - 1] + "…"


def _texts(array: Array) -> list[str]:
    try:
        return [value_text(value) for value in array.to_pylist()]
    except (BowstringError, ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
        return [f"<{error}>"]  # an extension's `decode` may raise what it likes


def array_repr(array: Array) -> str:
    """The array in a few lines."""
    head = f"<bowstring.Array {array.type}[{array.length}]>"
    if array.length <= 2 * EDGE_ITEMS:
        return f"{head}\n[{', '.join(_texts(array))}]"
    first, last = _texts(array.slice(0, EDGE_ITEMS)), _texts(array.slice(array.length - EDGE_ITEMS))
    return f"{head}\n[{', '.join(first)}, …, {', '.join(last)}]"
