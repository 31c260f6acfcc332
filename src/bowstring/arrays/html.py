"""Record batches and tables as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

from bowstring.layouts.display import format_values

MAX_ROWS = 10
MAX_COLUMNS = 20


def to_html(data: Any) -> str:
    """Return the first rows and columns of a record batch or a table as HTML. Malformed values do not raise."""
    indices = list(range(min(data.num_columns, MAX_COLUMNS)))
    head = data.slice(0, MAX_ROWS)
    columns = []
    for index in indices:
        column_texts = format_values(head.column(index))
        columns.append(column_texts if len(column_texts) == head.num_rows else column_texts * head.num_rows)
    titles = "".join(
        f"<th>{escape(data.schema.field(i).name)}<br><small>{escape(str(data.schema.field(i).type))}</small></th>"
        for i in indices
    )
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(column[row])}</td>" for column in columns) + "</tr>"
        for row in range(head.num_rows)
    )
    size = f"{data.num_rows:,} rows × {data.num_columns:,} columns"
    return f"<table><caption>{size}</caption><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
