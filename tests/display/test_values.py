from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datatypes.canonical.timestamp_with_offset import TimestampWithOffset
from bowstring.display.printable_text import display_width
from bowstring.display.values import MAX_VALUE_WIDTH, format_value, format_values
from bowstring.inspection.formatting import format_json_line, iterate_rows
from bowstring.layouts.registry import layout_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ('say "hi"\\\n\x1b[2J', r'"say \"hi\"\\\n\x1b[2J"'),
        ("x" * 58, f'"{"x" * 58}"'),
        ("x" * 59, f'"{"x" * 58}…'),
        ("\u0301" * 61, '"' + "\u0301" * 60 + "…"),
        (b"a\x00", r"b'a\x00'"),
        (b"x" * 1000, "b'" + "x" * 57 + "…"),
        ([1, [2, 3, 4, 5, 6, 7]], "[1, [2, 3, 4, 5, 6, …]]"),
        ({"a": None, "b": {"c": "\t"}}, r'{a: null, b: {c: "\t"}}'),
        ({"k\n": 1}, r"{k\n: 1}"),
        (1.5, "1.5"),
    ],
)
def test_a_value_is_formatted_on_one_line(value: Any, text: str) -> None:
    assert format_value(value) == text
    assert display_width(text) <= MAX_VALUE_WIDTH


def test_an_array_that_fits_is_shown_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert repr(bs.array([1, None, 3])) == "<bowstring.Array int64[3]>\n[1, null, 3]"
    assert repr(bs.array(["x" * 36])).splitlines()[1:] == [f'["{"x" * 36}"]']
    assert repr(bs.array(["x" * 37])).splitlines()[1:] == ["[", f'  "{"x" * 35}…,', "]"]


@pytest.mark.parametrize("columns", ["40", "100"])
def test_an_array_is_shown_within_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    fields = {f"field{index}": bs.int64() for index in range(50)}
    structs = bs.array([{"field0": index} for index in range(100)], bs.struct(fields))
    for shown in (repr(structs), repr(bs.chunked_array([structs, structs]))):
        lines = shown.splitlines()
        assert display_width(lines[0]) <= max(int(columns), 80)
        assert all(display_width(line) <= int(columns) for line in lines[1:])
        assert len(lines) == 14
        assert lines[7] == "  …,"


def test_notebooks_show_the_first_and_last_values() -> None:
    shown = bs.array(["<b>", *map(str, range(100))])._repr_html_()
    assert "<caption>101 values</caption>" in shown
    assert shown.count("<tr>") == 12
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "<td>&quot;99&quot;</td></tr></tbody>" in shown
    assert bs.chunked_array([[1], [2]])._repr_html_().count("<td>") == 2


NESTED = {
    "list": bs.list_("int64"),
    "list view": bs.list_view("int64"),
    "fixed-size list": bs.list_("int64", 1000),
    "list of lists": bs.list_(bs.list_("int64")),
    "list of structs": bs.list_(bs.struct({"x": "int64"})),
    "struct of lists": bs.struct({"x": bs.list_("int64")}),
    "map": bs.map_("int64", "int64"),
}


@pytest.mark.parametrize("name", NESTED)
def test_of_a_long_list_only_the_elements_shown_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = list(range(1000))
    value: dict[str, Any] = {
        "list of lists": [numbers] * 1000,
        "list of structs": [{"x": number} for number in numbers],
        "struct of lists": {"x": numbers},
        "map": [(number, number) for number in numbers],
    }
    array = bs.array([None, value.get(name, numbers), value.get(name, numbers)], NESTED[name])
    expected = [format_value(each) for each in array.to_pylist()]
    lengths = []
    read = type(layout_of(bs.int64())).to_pylist

    def record(layout: Any, numbers: Any) -> Any:
        lengths.append(numbers.length)
        return read(layout, numbers)

    monkeypatch.setattr(type(layout_of(bs.int64())), "to_pylist", record)
    assert repr(array)
    assert sum(lengths) <= 100
    monkeypatch.undo()
    assert format_values(array, 0, 3) == expected


def test_of_a_dictionary_only_the_values_shown_are_read() -> None:
    texts = bs.array([str(number) for number in range(1000)])
    array = bs.DictionaryArray.from_arrays(bs.array([999, 0, None], "int16"), texts)
    assert repr(array).splitlines()[1] == '["999", "0", null]'


NARROW = bs.array([1.1, None, math.nan, -0.0, 1e20], "float32")
COLUMNS = {
    "float": (NARROW, "[1.1, null, nan, -0.0, 1e+20]"),
    "half": (bs.array([1.1, None, 0.1], "float16"), "[1.1, null, 0.1]"),
    "double": (bs.array([1.1, 1 / 3]), "[1.1, 0.3333333333333333]"),
    "list": (bs.array([[1.1], None], bs.list_("float32")), "[[1.1], null]"),
    "view": (bs.array([[1.1], None], bs.list_view("float32")), "[[1.1], null]"),
    "fixed": (bs.array([[1.1], None], bs.list_("float32", 1)), "[[1.1], null]"),
    "struct": (bs.array([{"x": 1.1}], bs.struct({"x": "float32"})), "[{x: 1.1}]"),
    "map": (bs.array([{"a": 1.1}, None], bs.map_("string", "float32"))[0:], '[[("a", 1.1)], null]'),
    "dictionary": (NARROW[:2].dictionary_encode(), "[1.1, null]"),
    "runs": (NARROW[:2].run_end_encode(), "[1.1, null]"),
    "union": (bs.UnionArray.from_sparse([0, 1], [NARROW[:2], bs.array(["a", "b"])]), '[1.1, "b"]'),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_float_has_the_fewest_digits_that_identify_it(name: str) -> None:
    array, text = COLUMNS[name]
    assert repr(array).endswith(f"\n{text}")
    assert repr(bs.chunked_array([array])).endswith(f"\n{text}")
    assert "1.1</td>" in bs.table({"a": COLUMNS["float"][0]})._repr_html_()
    batch = bs.record_batch({"a": array})
    lines = [format_json_line(["a"], row) for row in iterate_rows(batch)]
    assert all("0000" not in line and "99" not in line for line in lines), lines
    (row, *_) = iterate_rows(batch)
    assert format_json_line(["a"], row) == {
        "list": '{"a": [1.1]}',
        "view": '{"a": [1.1]}',
        "fixed": '{"a": [1.1]}',
        "struct": '{"a": {"x": 1.1}}',
        "map": '{"a": [["a", 1.1]]}',
    }.get(name, '{"a": 1.1}')


def test_a_year_has_at_least_four_digits() -> None:
    days = bs.array([np.datetime64(day) for day in ("-0005-02-03", "-0999-12-31", "0000-01-01")], "date32")
    assert repr(days).endswith("\n[-0005-02-03, -0999-12-31, 0000-01-01]")
    batch = bs.record_batch({"day": days[:1], "at": days[:1].cast("timestamp[s]")})
    assert [format_json_line(batch.column_names, row) for row in iterate_rows(batch)] == [
        '{"day": "-0005-02-03", "at": "-0005-02-03T00:00:00"}'
    ]
    local = TimestampWithOffset(np.datetime64("-0005-02-03T00:00", "s"), 60)
    assert format_json_line(["at"], [local]) == '{"at": "-0005-02-03T01:00:00+01:00"}'


def test_a_scalar_has_the_fewest_digits() -> None:
    assert repr(bs.scalar(1.1, "float32")) == "<bowstring.Scalar float: 1.1>"
