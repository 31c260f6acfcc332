from __future__ import annotations

import re

import pytest

from bowstring.display.printable_text import display_width
from bowstring.display.tables import MAX_HTML_ROWS, TextColumn, draw_table, to_html_table


def test_cells_are_escaped_aligned_and_truncated() -> None:
    columns = [TextColumn("n", "int64", ["1", "200"], True), TextColumn("名前\n", "string", ["\x1b[2J", "x" * 50])]
    assert draw_table(columns, 80).splitlines() == [
        "┌───────┬──────────────────────────────────┐",
        "│     n ┆ 名前\\n                           │",
        "│ int64 ┆ string                           │",
        "╞═══════╪══════════════════════════════════╡",
        "│     1 ┆ \\x1b[2J                          │",
        "│   200 ┆ " + "x" * 31 + "… │",
        "└───────┴──────────────────────────────────┘",
    ]
    assert {display_width(line) for line in draw_table(columns[1:], 20).splitlines()} == {20}


@pytest.mark.parametrize(("count", "shown"), [(MAX_HTML_ROWS, 100), (MAX_HTML_ROWS + 1, 101), (10**9, 101)])
def test_the_number_of_rows_in_html_is_limited(count: int, shown: int) -> None:
    text = to_html_table("", ["a", "b"], ((str(index), "") for index in range(count)))
    assert text.count("<tr>") == 1 + shown
    assert text.endswith("<tr><td>…</td><td>…</td></tr></tbody></table>") == (count > MAX_HTML_ROWS)


def test_html_is_escaped_everywhere() -> None:
    hostile = "<script>\x00&'\""
    text = to_html_table(hostile, [hostile, (hostile, hostile)], [[hostile, hostile]])
    assert set(re.findall(r"<(\w+)", text)) == {"table", "caption", "thead", "tr", "th", "br", "small", "tbody", "td"}
    assert "\x00" not in text
    assert "'" not in text
