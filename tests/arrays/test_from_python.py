"""Long lists of Python values become arrays; unusual values are handled at every position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import TypeMismatchError
from tests.parameter_ids import parameter_id

BLOCK = 1 << 13
"""So many values are looked at together."""
INDICES = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK]
VALUES: dict[str, tuple[bs.DataType, Any]] = {
    "integers": (bs.int64(), 7),
    "floats": (bs.float64(), 0.5),
    "strings": (bs.string(), "abc"),
    "strings of two bytes a letter": (bs.string(), "éé"),
    "byte strings": (bs.binary(), b"abc"),
    "booleans": (bs.bool_(), True),
    "lists": (bs.list_(bs.int64()), [1, 2]),
    "structs": (bs.struct({"a": bs.int64()}), {"a": 1}),
}
KINDS = pytest.mark.parametrize("kind", VALUES)


@KINDS
@pytest.mark.parametrize("index", INDICES)
def test_a_null_is_detected_at_every_position(kind: str, index: int) -> None:
    type_, value = VALUES[kind]
    values = [value] * (2 * BLOCK + 1)
    values[index] = None
    for array in (bs.array(values, type_), bs.array(values)):
        assert array.type == type_
        assert array.to_pylist() == values


@KINDS
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(
    "stray", [object(), b"", "", True, 3.25, "7", 3j, {"b": 1}], ids=lambda it: parameter_id(repr(it))
)
def test_a_value_of_another_type_is_rejected_at_every_position(kind: str, index: int, stray: Any) -> None:
    type_, value = VALUES[kind]
    if type(stray) is type(value):
        stray = object() if kind != "structs" else {"b": 1}
    if kind.startswith(("strings", "byte strings")) and isinstance(stray, str | bytes):
        stray = b"\xff" if kind.startswith("strings") else 1  # text in UTF-8 converts
    values = [value] * (2 * BLOCK + 1)
    values[index] = stray
    with pytest.raises(TypeMismatchError, match=rf"\b{index}\b"):
        bs.array(values, type_)


@pytest.mark.parametrize("index", INDICES)
def test_nan_is_not_null(index: int) -> None:
    values: list[float | None] = [float("nan")] * (2 * BLOCK + 1)
    values[index] = None
    array = bs.array(values)
    assert array.null_count == 1
    assert not array.is_valid(index)
    assert np.isnan(array.drop_null().to_numpy()).all()


@pytest.mark.parametrize("number", [(1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63), -(1 << 53) - 1])
def test_integers_among_nulls_keep_every_digit(number: int) -> None:
    assert bs.array([number, None, 1]).to_pylist() == [number, None, 1]
    assert bs.array([None, number], bs.int64()).to_pylist() == [None, number]


@pytest.mark.parametrize("number", [128, -129, 1 << 70])
def test_an_integer_out_of_range_is_rejected_among_nulls(number: int) -> None:
    for values in ([number], [number, None], [None] * BLOCK + [number]):
        with pytest.raises(TypeMismatchError, match=f"value {len(values) - 1 - (values[-1] is None)}"):
            bs.array(values, bs.int8())


def test_strings_with_every_kind_of_character_keep_their_lengths() -> None:
    words = ["\0", "é\0", "", "👍🏽", "a" * 20, "\0\0é"] * BLOCK
    assert bs.array(words).to_pylist() == words
    assert bs.array([*words, None], bs.string_view()).to_pylist() == [*words, None]
    with pytest.raises(TypeMismatchError, match="surrogates"):
        bs.array([*words, "\ud800"], bs.string())


@pytest.mark.parametrize("longest", [255, 256, 70_000])
def test_strings_of_any_length_are_preserved_among_empty_ones_and_nulls(longest: int) -> None:
    words = ["", None, "a", "b" * longest, None, "", "c" * (longest - 1), None]
    for more in (0, BLOCK - 3, BLOCK):
        for filling in ("", None, "word"):
            values = [filling] * more + words
            assert bs.array(values).to_pylist() == values
            data = [value if value is None else value.encode() for value in values]
            assert bs.array(data, bs.binary_view()).to_pylist() == data == bs.array(data).to_pylist()


def test_line_ends_and_control_characters_are_preserved() -> None:
    words = ["\r\n", "\r", "\n", "\0", "\x1a", "\x1c\x85", "a\r\nb\r", "".join(map(chr, range(128)))]
    for values in (words[:5], words, [*words, "é"], [*words, "x" * 300 * len(words)]):
        for type_ in (bs.string(), bs.large_string(), bs.string_view()):
            assert bs.array(values, type_).to_pylist() == values


def test_mixed_integers_and_floats_become_floats() -> None:
    assert bs.array([1.5, 2]).type == bs.float64()
    assert bs.array([2, None, 1.5]).to_pylist() == [2.0, None, 1.5]
    assert bs.array([1 << 63]).type == bs.uint64()


@pytest.mark.parametrize("index", [0, 1, 1023, 1024, 1500])
def test_a_row_with_other_fields_is_handled_at_every_position(index: int) -> None:
    class Ordered(dict[str, int]):
        """A subclass of dict."""

    rows: list[Any] = [{"a": index, "b": -index} for index in range(1501)]
    for other in ({"b": 2, "a": 1}, Ordered(a=1, b=2)):
        rows[index] = other
        assert bs.table(rows).to_pylist() == bs.array(rows).to_pylist() == rows
    for other, expected in (({"b": 2, "c": 3}, {"a": None, "b": 2, "c": 3}), ({}, dict.fromkeys("abc"))):
        rows[index] = other
        rows_read = bs.array([*rows, {"c": 0}]).to_pylist()
        assert rows_read[index] == expected
        assert rows_read[-1] == {"a": None, "b": None, "c": 0}
    rows[index] = 7
    with pytest.raises(TypeMismatchError, match="int"):
        bs.array(rows)


@pytest.mark.parametrize("length", [1, 1023, 1024, 1025])
def test_rows_are_preserved(length: int) -> None:
    rows = [{"a": index, "b": None if index % 3 else str(index), "": [index]} for index in range(length)]
    assert bs.table(rows).to_pylist() == rows
    assert bs.array([None, *rows]).to_pylist() == [None, *rows]
    assert len({id(row) for row in bs.table(rows).to_pylist()}) == length


def test_fields_may_be_absent_but_not_unknown() -> None:
    type_ = bs.struct({"a": bs.int64(), "b": bs.string()})
    array = bs.array([{"a": 1}, {"b": "x"}, {}, None, {"b": "y", "a": 2}], type_)
    assert array.to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
        None,
        {"a": 2, "b": "y"},
    ]
    with pytest.raises(TypeMismatchError, match="value 1 has 'c'"):
        bs.array([{"a": 1, "b": "x"}, {"a": 1, "c": "x"}], type_)
