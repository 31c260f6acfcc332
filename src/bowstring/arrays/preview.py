"""The first and last rows of record batches and tables, as text and as HTML. Malformed values do not raise, and only
the rows shown are read.
"""

from __future__ import annotations

from typing import Any

from bowstring.datatypes.types import Decimal, FloatingPoint, Int
from bowstring.display.printable_text import terminal_width
from bowstring.display.tables import TextColumn, draw_table, to_encodable, to_html_table
from bowstring.display.values import EDGE_ITEMS, format_values
from bowstring.errors import BowstringError, format_count

# About the width of a screen; the first and last columns are shown.
MAX_HTML_COLUMNS = 20
# The borders and spaces between two columns of a drawn table.
_GAP_WIDTH = 4


def preview_as_text(title: str, container: Any, max_width: int | None = None) -> str:
    """Return a title and a drawing of the first and last rows of a record batch or a table.

    Columns that do not fit into the width, by default the terminal's, are left out of the middle.
    """
    max_width = terminal_width() if max_width is None else max_width
    columns: dict[int, TextColumn] = {}
    used_width = 1  # the left border; each column adds a border and two spaces
    # Only the columns shown are read: a table may have thousands of them.
    for index in _from_both_ends(container.num_columns):
        column = _preview_column(container, index)
        used_width += column.width + 3
        is_last = len(columns) == container.num_columns - 1
        # The first column is always shown; `draw_table` truncates it. Unless this is the last one, "…" needs space.
        if columns and used_width + (0 if is_last else _GAP_WIDTH) > max_width:
            break
        columns[index] = column
    shown = _with_gap(columns, container.num_columns)
    return to_encodable(f"{title}\n{draw_table(shown, max_width)}" if shown else title)


def preview_as_html(container: Any) -> str:
    """Return the first and last rows and columns of a record batch or a table as HTML."""
    indices = list(_from_both_ends(container.num_columns))[:MAX_HTML_COLUMNS]
    columns = _with_gap({index: _preview_column(container, index) for index in indices}, container.num_columns)
    titles = [(column.name, column.type) for column in columns]
    rows = zip(*(column.cells for column in columns), strict=True)
    return to_html_table(describe_shape(container), titles, rows)


def describe_shape(container: Any) -> str:
    """Return the numbers of rows and columns as text."""
    return f"{format_count(container.num_rows, 'row')} × {format_count(container.num_columns, 'column')}"


def _from_both_ends(count: int) -> list[int]:
    """Return the indices in this order: the first, the last, the second, the last but one, and so on."""
    return [position // 2 if position % 2 == 0 else count - 1 - position // 2 for position in range(count)]


def _with_gap(columns: dict[int, TextColumn], count: int) -> list[TextColumn]:
    """Return the columns in order, with one of ellipses in place of those left out."""
    ordered = [columns[index] for index in sorted(columns)]
    if ordered and len(ordered) < count:
        ordered.insert((len(ordered) + 1) // 2, TextColumn("…", "", ["…"] * len(ordered[0].cells)))
    return ordered


def _preview_column(container: Any, index: int) -> TextColumn:
    field, num_rows = container.schema.field(index), container.num_rows
    if num_rows <= 2 * EDGE_ITEMS:
        cells = _format_rows(container, index)
    else:
        first, last = container.slice(0, EDGE_ITEMS), container.slice(num_rows - EDGE_ITEMS)
        cells = [*_format_rows(first, index), "…", *_format_rows(last, index)]
    return TextColumn(field.name, str(field.type), cells, isinstance(field.type, (Int, FloatingPoint, Decimal)))


def _format_rows(container: Any, index: int) -> list[str]:
    """Format one column. If it can't be read, each row shows the error."""
    try:
        column = container.column(index)
    except (BowstringError, MemoryError) as error:
        return [f"<{error}>"] * container.num_rows
    return format_values(column, 0, container.num_rows)
