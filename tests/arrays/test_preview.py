"""Tables, batches and their HTML: the first and last rows, within a width, and only these rows are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.arrays.preview import preview_as_text
from bowstring.display.printable_text import display_width
from tests.arrays.recording_columns import RecordingColumns


def test_a_small_table_is_drawn_whole() -> None:
    table = bs.table({"n": [1, None, 300], "名": ["東京", 'say "hi"', "a\nb"]})
    assert repr(table).splitlines() == [
        "<bowstring.Table 3 rows × 2 columns in 1 batch>",
        "┌───────┬──────────────┐",
        "│     n ┆ 名           │",
        "│ int64 ┆ string       │",
        "╞═══════╪══════════════╡",
        '│     1 ┆ "東京"       │',
        '│  null ┆ "say \\"hi\\"" │',
        '│   300 ┆ "a\\nb"       │',
        "└───────┴──────────────┘",
    ]
    assert repr(table.to_batches()[0]).splitlines()[1:] == repr(table).splitlines()[1:]
    assert repr(bs.table({})) == "<bowstring.Table 0 rows × 0 columns in 0 batches>"
    assert len(repr(table.slice(3)).splitlines()) == 6


@pytest.mark.parametrize(("count", "lines"), [(10, 10), (11, 11), (12, 11), (100_000, 11)])
def test_the_middle_rows_of_a_long_table_are_left_out(count: int, lines: int) -> None:
    rows = preview_as_text("", bs.table({"n": np.arange(count)})).splitlines()[5:-1]
    assert len(rows) == lines
    texts = [row.strip("│ ") for row in rows]
    assert texts[:5] == ["0", "1", "2", "3", "4"]
    assert texts[-5:] == [str(count - 5 + index) for index in range(5)]
    assert ("…" in texts) == (count > 10)


def test_the_middle_columns_of_a_wide_table_are_left_out() -> None:
    table = bs.table({f"column{index}": ["日本語" * index, "x" * 500] for index in range(1000)})
    for width in (40, 41, 57, 80, 100, 200):
        lines = preview_as_text("", table, width).splitlines()[1:]
        assert {display_width(line) for line in lines} == {display_width(lines[0])}
        assert display_width(lines[0]) <= width
        names = [name.strip() for name in lines[1].strip("│").split("┆")]
        middle = names.index("…")
        assert names[:middle] == [f"column{index}" for index in range(middle)]
        assert names[middle + 1 :] == [f"column{1000 - index}" for index in range(len(names) - 1 - middle, 0, -1)]
    few = bs.table({f"c{index}": [1] for index in range(8)})
    assert preview_as_text("", few, 65).splitlines()[2].count("┆") == 7
    assert "…" in preview_as_text("", few, 64).splitlines()[2]


def test_only_the_rows_and_columns_shown_are_read() -> None:
    batches: list[bs.RecordBatch] = []
    columns_read: list[RecordingColumns] = []
    schema = bs.schema({f"c{index}": "int64" for index in range(100)})
    for _ in range(5):
        columns = RecordingColumns([bs.array(range(20)) for _ in range(100)])
        batches.append(bs.RecordBatch(schema, 20, columns))
        columns_read.append(columns)
    table = bs.Table(schema, batches)
    assert "c99" in repr(table)
    assert [bool(columns.indices) for columns in columns_read] == [True, False, False, False, True]
    assert len(columns_read[0].indices) < 20
    table._repr_html_()
    assert len(set(columns_read[0].indices)) == 20
    assert [bool(columns.indices) for columns in columns_read] == [True, False, False, False, True]


def test_malformed_values_are_shown_as_errors_beside_valid_ones() -> None:
    invalid = bs.Array.from_buffers(bs.string(), 3, [None, np.array([0, 1, 2, 3], np.int32), b"a\xffc"])
    table = bs.table({"s": invalid, "n": [1, 2, 3]})
    rows = repr(table).splitlines()[5:-1]
    assert '"a"' in rows[0]
    assert "<" in rows[1]
    assert '"c"' in rows[2]
    assert [row.rstrip("│ ")[-1] for row in rows] == ["1", "2", "3"]


def test_hostile_names_do_not_break_the_drawing() -> None:
    table = bs.table({"\x1b[2J\n": ["\u202e"]})
    assert "\x1b" not in repr(table) + table._repr_html_()
    assert len(repr(table).splitlines()) == 7


def test_a_column_that_cannot_be_read_shows_the_error(tmp_path: Path) -> None:
    path = tmp_path / "damaged.arrow"
    table = bs.table({"a": ["x" * 1000] * 9, "b": [7] * 9})
    with bs.new_file(path, table.schema, options=bs.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(table)
    content = bytearray(path.read_bytes())
    frame = content.index(b"\x28\xb5\x2f\xfd")
    content[frame : frame + 4] = bytes(4)
    path.write_bytes(content)
    with bs.open_file(path) as reader:
        read = reader.read_all()
    rows = repr(read).splitlines()[5:-1]
    assert all("<" in row and row.endswith("7 │") for row in rows)
    assert len(rows) == 9
    assert read._repr_html_().lower().count("zstandard") == 9
    assert "not a Zstandard frame" in repr(read["a"])
    assert "not a Zstandard frame" in read["a"]._repr_html_()


def test_notebooks_show_the_first_and_last_rows_and_columns() -> None:
    text = bs.table({f"<{index}>": range(30) for index in range(30)})._repr_html_()
    assert "<caption>30 rows × 30 columns</caption>" in text
    assert text.count("<th>") == 21
    assert text.count("<tr>") == 12
    assert "<th>&lt;9&gt;<br>" in text
    assert "<th>&lt;10&gt;<br>" not in text
    assert "<th>&lt;20&gt;<br>" in text
    assert text.count("<td>…</td>") == 21 + 10
