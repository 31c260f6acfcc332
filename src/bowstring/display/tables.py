"""Tables as text, in box drawing, and as HTML; all text is escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from bowstring.display.printable_text import display_width, fit_to_width, to_printable

# Two columns of long texts and their borders fit 80 characters.
MAX_CELL_WIDTH = 32
# A browser lays these out at once.
MAX_HTML_ROWS = 100


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table: its name, its type, and its cells, one per row."""

    name: str
    type: str
    cells: Sequence[str]
    is_right_aligned: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of all lines, escaped."""
        return tuple(map(to_printable, (self.name, self.type, *self.cells)))

    @property
    def width(self) -> int:
        """The width of the widest text, truncated to `MAX_CELL_WIDTH`."""
        return min(max(map(display_width, self.texts)), MAX_CELL_WIDTH)


def draw_table(columns: Sequence[TextColumn], max_width: int) -> str:
    """Draw columns of equal length in boxes, each as wide as its widest text, at most `MAX_CELL_WIDTH` and `max_width`.

    >>> print(draw_table([TextColumn("n", "int8", ["1", "20"], True), TextColumn("s", "string", ["a", "b"])], 80))
    ┌──────┬────────┐
    │    n ┆ s      │
    │ int8 ┆ string │
    ╞══════╪════════╡
    │    1 ┆ a      │
    │   20 ┆ b      │
    └──────┴────────┘
    """
    widths = [min(column.width, max_width - 4) for column in columns]  # 4: the borders and spaces of a single column
    cells = [
        align_cells(column.texts, width, column.is_right_aligned) for column, width in zip(columns, widths, strict=True)
    ]
    lines = [f"│ {' ┆ '.join(line)} │" for line in zip(*cells, strict=True)]
    rules = [
        left + middle.join(line * (width + 2) for width in widths) + right
        for left, line, middle, right in ("┌─┬┐", "╞═╪╡", "└─┴┘")
    ]
    return "\n".join([rules[0], *lines[:2], rules[1], *lines[2:], rules[2]])


def to_encodable(text: str) -> str:
    """Return text that standard output can encode: under an ASCII locale with lines of ASCII, and escapes.

    `print` of a table would raise `UnicodeEncodeError` otherwise.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        lines = str.maketrans("┌┬┐╞╪╡└┴┘─═│┆×…", "+++++++++-=||x~")
        return text.translate(lines).encode(encoding, "backslashreplace").decode(encoding)
    return text


def align_cells(texts: Iterable[str], width: int, is_right_aligned: bool) -> list[str]:
    """Return printable texts with the width of a column of a terminal; wider ones are truncated.

    >>> align_cells(["n", "12345"], 3, True)
    ['  n', '12…']
    """
    cells = [fit_to_width(text, width) for text in texts]
    paddings = [" " * (width - display_width(cell)) for cell in cells]
    return [
        f"{padding}{cell}" if is_right_aligned else f"{cell}{padding}"
        for cell, padding in zip(cells, paddings, strict=True)
    ]


def to_html_table(caption: str, titles: Sequence[str | tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML. A title may have a second line. Only the first `MAX_HTML_ROWS` rows are shown.

    >>> to_html_table("1 row", ["a"], [["<1>"]]).partition("<thead>")[2]
    '<tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    heads = "".join(
        f"<th>{_escape(title)}</th>"
        if isinstance(title, str)
        else f"<th>{_escape(title[0])}<br><small>{_escape(title[1])}</small></th>"
        for title in titles
    )
    body = ""
    # `rows` may be an iterator over many rows: of those that are not shown, only the first is read.
    for index, row in enumerate(rows):
        cells = row if index < MAX_HTML_ROWS else ["…"] * len(titles)
        body += "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in cells) + "</tr>"
        if index == MAX_HTML_ROWS:
            break
    return f"<table><caption>{_escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _escape(text: str) -> str:
    return escape(to_printable(text))
