"""Filtering arrays, and finding, dropping and filling nulls, for every layout and like pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring_testing import strategies
from tests.cases import CASES, Case

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def validated(array: bs.Array) -> bs.Array:
    array.validate(full=True)
    return array


@EVERY_CASE
def test_a_filter_keeps_the_slots_of_the_mask(case: Case) -> None:
    array = case.array()
    mask = [index % 3 != 1 for index in range(len(array))]
    expected = [value for value, keep in zip(case.values, mask, strict=True) if keep]
    assert validated(array.filter(mask)).to_pylist() == expected
    assert validated(array.filter(np.array(mask))).to_pylist() == expected
    sliced = [value for value, keep in zip(case.values[1:], mask[1:], strict=True) if keep]
    assert validated(array[1:].filter(bs.array(mask)[1:])).to_pylist() == sliced


@EVERY_CASE
def test_nulls_are_found_and_dropped(case: Case) -> None:
    array = case.array()
    assert array.is_null().to_pylist() == [value is None for value in case.values]
    assert array.is_valid().to_pylist() == [value is not None for value in case.values]
    assert validated(array.drop_null()).to_pylist() == [value for value in case.values if value is not None]


@EVERY_CASE
def test_nulls_are_filled(case: Case) -> None:
    array = case.array()
    filler = next((value for value in case.values if value is not None), None)
    filled_array = validated(array.fill_null(filler))
    assert filled_array.type == array.type
    assert filled_array.to_pylist() == [filler if value is None else value for value in case.values]


@settings(max_examples=60)
@given(data=st.data(), array=strategies.arrays())
def test_filter_equals_take_of_the_selected_indices(data: st.DataObject, array: bs.Array) -> None:
    mask = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=len(array), max_size=len(array)))
    chosen = [index for index, keep in enumerate(mask) if keep]
    subset = validated(array.filter(mask))
    assert subset.equals(array.take(chosen), nans_equal=True)
    assert subset.equals(array.filter(bs.array(mask, bs.bool_())), nans_equal=True)


@settings(max_examples=60)
@given(array=strategies.arrays())
def test_null_slots_are_those_with_the_value_none(array: bs.Array) -> None:
    assert array.is_null().to_pylist() == [value is None for value in array.to_pylist()]
    assert array.drop_null().is_valid().to_pylist() == [True] * len(array.drop_null())


def test_a_null_in_the_mask_drops_its_slot_as_in_pyarrow() -> None:
    mask = [True, None, False, True]
    expected = pa.array([1, 2, 3, None]).filter(pa.array(mask)).to_pylist()
    assert bs.array([1, 2, 3, None]).filter(bs.array(mask)).to_pylist() == expected == [1, None]


@pytest.mark.parametrize("nan_is_null", [False, True])
def test_nan_is_null_on_request(nan_is_null: bool) -> None:
    values = [1.0, float("nan"), None]
    peer_table = pc.is_null(pa.array(values), nan_is_null=nan_is_null).to_pylist()
    assert bs.array(values).is_null(nan_is_null).to_pylist() == peer_table
    assert bs.array(values, bs.dictionary(bs.int8(), bs.float64())).is_null(nan_is_null).to_pylist() == peer_table


def test_nan_is_detected_at_every_encoding_but_not_in_lists() -> None:
    nan, union = float("nan"), bs.dense_union([("f", bs.float64()), ("s", bs.string())])
    assert bs.array([nan, "a", 1.0], union).is_null(True).to_pylist() == [True, False, False]
    encoded = bs.dictionary(bs.int8(), bs.run_end_encoded(bs.int16(), bs.float32()))
    assert bs.array([1.0, nan, None], encoded).is_null(True).to_pylist() == [False, True, True]
    for size in (0, 2):
        lists = bs.list_(bs.float64(), size)
        for type_ in (lists, bs.dictionary(bs.int8(), lists)):
            assert bs.array([[nan] * size, None], type_).is_null(True).to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("mask", "pattern"),
    [
        ([True], r"shape \(1,\) does not fit 2"),
        ([1, 0], "a boolean as value 0 of the mask, found 1"),
        (bs.array([1, 2]), "boolean mask, found int64"),
        (np.array([0, 1]), "value 0 of the mask"),
        (np.ones((2, 2), np.bool_), r"shape \(2, 2\)"),
        ("ab", "sequence of booleans"),
        (3, "sequence of booleans"),
    ],
)
def test_an_invalid_mask_raises_an_error(mask: Any, pattern: str) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match=pattern):
        bs.array([1, 2]).filter(mask)


def test_a_fill_value_of_another_type_raises_an_error() -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match="fill_null: value 0: 'a' cannot be converted to int64"):
        bs.array([1, None]).fill_null("a")


def test_arrays_without_nulls_are_not_copied() -> None:
    array = bs.array([1, 2])
    assert array.drop_null() is array
    assert array.fill_null(0) is array
