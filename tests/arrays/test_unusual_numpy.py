"""Unusual NumPy arrays: masks by element and by field, nested fields, strings of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors


def test_a_mask_by_element_marks_null_elements() -> None:
    masked = np.ma.masked_array(np.arange(6).reshape(3, 2), mask=[[False, True], [False, False], [True, True]])
    array = bs.array(masked)
    array.validate(full=True)
    assert array.to_pylist() == [[0, None], [2, 3], [None, None]]


def test_a_mask_by_row_marks_null_lists() -> None:
    array = bs.array(np.arange(4).reshape(2, 2), mask=[True, False])
    assert array.to_pylist() == [None, [2, 3]]


def test_a_mask_by_element_applies_to_python_values() -> None:
    masked: Any = np.ma.masked_array(np.array([["a", "b"], ["c", "d"]]), mask=[[False, True], [False, False]])
    assert bs.array(masked).to_pylist() == [["a", None], ["c", "d"]]
    assert bs.array(masked, bs.list_(bs.string())).to_pylist() == [["a", None], ["c", "d"]]


def test_a_mask_by_field_marks_null_fields() -> None:
    values = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    mask: Any = [(False, True), (True, True)]
    array = bs.array(np.ma.masked_array(values, mask=mask))
    array.validate(full=True)
    assert array.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": None}]


def test_a_field_that_is_an_array_becomes_a_fixed_size_list() -> None:
    values = np.array([([1, 2], 7), ([3, 4], 8)], dtype=[("a", "i4", (2,)), ("b", "i1")])
    array = bs.array(values)
    assert str(array.type) == str(bs.struct({"a": bs.list_(bs.int32(), 2), "b": bs.int8()}))
    assert array.to_pylist() == [{"a": [1, 2], "b": 7}, {"a": [3, 4], "b": 8}]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_numpy_strings_of_any_length_become_strings(missing: Any) -> None:
    array = bs.array(np.array(["a", missing, "b\0é" * 20], dtype=np.dtypes.StringDType(na_object=missing)))
    assert array.type == bs.string()
    assert array.to_pylist() == ["a", None, "b\0é" * 20]
    plain = np.array(["x", "yy"], dtype=np.dtypes.StringDType())
    assert bs.array(plain).to_pylist() == ["x", "yy"]
    assert bs.array(plain, bs.large_string()).to_pylist() == ["x", "yy"]


def test_recursive_values_are_rejected() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for values in (endless, deep, [{"a": deep}]):
        with pytest.raises(errors.TypeMismatchError, match="deep"):
            bs.array(values)
