"""Few Python values become arrays in a way of their own: they are what many of the same values are."""

from __future__ import annotations

from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import DataTypeError
from bowstring.layouts.python_conversion import FEW_VALUES

_KINDS: dict[str, tuple[bs.DataType, list[Any]]] = {
    "int8": (bs.int8(), [-128, 127, 0]),
    "uint64": (bs.uint64(), [0, 2**64 - 1, 5]),
    "float16": (bs.float16(), [1.5, float("inf"), -0.0]),
    "float32": (bs.float32(), [0.1, 1e300, -1e-50]),
    "float64": (bs.float64(), [0.1, float("nan"), -0.0]),
    "bool": (bs.bool_(), [True, False, True]),
    "string": (bs.string(), ["", "é😀", "abc"]),
    "large_binary": (bs.large_binary(), [b"", b"\x00", b"abc"]),
    "list": (bs.list_(bs.int16()), [[], [1, None], [2, 3]]),
    "lists of lists": (bs.large_list(bs.list_(bs.string())), [[["a"], []], [], [["b", None], None]]),
    "dictionary": (bs.dictionary(bs.int8(), bs.string()), ["a", "b", "a"]),
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 9, FEW_VALUES - 1, FEW_VALUES])
def test_few_values_are_what_many_are(kind: str, with_nulls: bool, count: int) -> None:
    type_, some = _KINDS[kind]
    cycle = [None, *some] if with_nulls else some
    values = [cycle[at % len(cycle)] for at in range(2 * FEW_VALUES)]
    few, many = bs.array(values[:count], type_), bs.array(values, type_)
    few.validate(full=True)
    assert few.equals(many.slice(0, count), nans_equal=True)
    assert few.null_count == values[:count].count(None)
    assert repr(few.to_pylist()) == repr(many.slice(0, count).to_pylist())


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (bs.int8(), [1, 128]),
        (bs.uint8(), [-1]),
        (bs.int64(), [1, "2"]),
        (bs.int64(), [1, True]),
        (bs.float32(), [1.0, "2"]),
        (bs.bool_(), [True, 1]),
        (bs.string(), ["a", b"b"]),
        (bs.string(), ["a", "\ud800"]),
        (bs.list_(bs.int8()), [[1], "no"]),
        (bs.list_(bs.int8()), [[1], [300]]),
    ],
)
def test_values_that_do_not_fit_are_named(type_: bs.DataType, values: list[Any]) -> None:
    with pytest.raises(DataTypeError):
        bs.array(values, type_)
    with pytest.raises(DataTypeError):
        bs.array([None, *values], type_)


def test_values_that_fit_in_another_way_are_taken() -> None:
    assert bs.array([1, 2.5, None], bs.float64()).to_pylist() == [1.0, 2.5, None]
    assert bs.array([(1, 2), [3]], bs.list_(bs.int8())).to_pylist() == [[1, 2], [3]]
    assert bs.array([bytearray(b"a"), memoryview(b"bc")], bs.binary()).to_pylist() == [b"a", b"bc"]
