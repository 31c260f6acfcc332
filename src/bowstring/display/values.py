"""Values as text: each on one line, escaped and truncated; the first and last few of an array. Malformed values do not
raise.
"""

from __future__ import annotations

from typing import Any

from bowstring.display.printable_text import complete_year, display_width, fit_to_width, terminal_width, to_printable
from bowstring.display.tables import to_html_table
from bowstring.errors import BowstringError, format_count

# As many as make an array recognisable; pyarrow shows up to ten at each end, NumPy three.
EDGE_ITEMS = 5
# One value, its index and its separators fit 80 characters.
MAX_VALUE_WIDTH = 60
# An extension's `decode` may raise any of these.
_ERRORS = (BowstringError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


def format_value(value: Any) -> str:
    r"""Format a Python value on one line: `null`, quoted strings, ISO dates and times; truncated if it is long.

    >>> print(format_value({"a": None, "b": ["x\n", 1.5]}), format_value(list(range(100))))
    {a: null, b: ["x\n", 1.5]} [0, 1, 2, 3, 4, …]
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if getattr(value, "ndim", 0):
        value = value[: EDGE_ITEMS + 1].tolist()  # a tensor
    if isinstance(value, str):
        quoted = value[:MAX_VALUE_WIDTH].replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{quoted}"' if len(value) <= MAX_VALUE_WIDTH else f'"{quoted}…'
    elif isinstance(value, bytes):
        text = str(value[:MAX_VALUE_WIDTH]) + ("" if len(value) <= MAX_VALUE_WIDTH else "…")
    elif isinstance(value, list):
        text = f"[{', '.join(map(format_value, value[:EDGE_ITEMS]))}{', …' if len(value) > EDGE_ITEMS else ''}]"
    elif type(value) is tuple:  # an entry of a map
        text = f"({', '.join(map(format_value, value))})"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {format_value(element)}" for key, element in value.items()) + "}"
    else:
        text = complete_year(str(value)) if type(value).__name__ == "datetime64" else str(value)
    return fit_to_width(to_printable(text), MAX_VALUE_WIDTH)


def format_values(array: Any, start: int, stop: int) -> list[str]:
    """Format a few values of an array or chunked array. Values that can't be read are replaced by the error."""
    # Slot by slot, because `to_pylist` would convert all elements of long lists.
    try:
        return [_format_slot(array, index) for index in range(start, stop)]
    except _ERRORS as error:
        message = f"<{to_printable(str(error))}>"
    try:
        array.slice(start, stop - start).to_pylist()
    except _ERRORS as error:  # its message has the index within these values, not within a slice of one
        message = f"<{to_printable(str(error))}>"
    return [_format_slot(array, index, message) for index in range(start, stop)]


def _format_slot(array: Any, index: int, error_message: str | None = None) -> str:
    """Format a value. Of its lists, only the elements shown are read."""
    try:
        slot = array.slice(index, 1)  # of a chunked array: one chunk
        slot = getattr(slot, "chunks", [slot])[0]
        return format_value(slot.layout.value_at(slot, 0, EDGE_ITEMS + 1))
    except _ERRORS:
        if error_message is None:
            raise
        return error_message


def format_edges(array: Any, length: int) -> list[str]:
    """Format the values of an array or chunked array; of a long one, the first and last few, with "…" between them."""
    if length <= 2 * EDGE_ITEMS:
        return format_values(array, 0, length)
    return [*format_values(array, 0, EDGE_ITEMS), "…", *format_values(array, length - EDGE_ITEMS, length)]


def format_preview(array: Any, length: int) -> str:
    """Format the first and last few values of an array or chunked array in brackets: on one line if they fit."""
    texts = format_edges(array, length)
    line = f"[{', '.join(texts)}]"
    if display_width(line) <= terminal_width():
        return line
    return "[\n" + "".join(f"  {fit_to_width(text, terminal_width() - 3)},\n" for text in texts) + "]"


def array_to_html(array: Any, length: int) -> str:
    """Return the first and last few values of an array or chunked array as an HTML table."""
    rows = [(text,) for text in format_edges(array, length)]
    return to_html_table(format_count(length, "value"), (str(array.type),), rows)


def format_type(type: Any) -> str:
    """Format a data type on one line, truncated if it does not fit into the terminal with its surroundings."""
    return fit_to_width(to_printable(str(type)), max(terminal_width() - 50, 30))
