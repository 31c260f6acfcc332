"""Unusual values: enormous exponents, NaT, slice bounds that are not integers."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors


@pytest.mark.parametrize("value", [Decimal("1E+999999999"), "1e999999999", "-9E+99999999"], ids=str)
@pytest.mark.parametrize("make", [bs.decimal32, bs.decimal256])
def test_a_decimal_with_an_enormous_exponent_is_rejected_at_once(value: Any, make: Any) -> None:
    start = time.monotonic()
    with pytest.raises(errors.TypeMismatchError, match="digits"):
        bs.array([value], make(9, 2))
    assert time.monotonic() - start < 2


def test_an_integer_with_an_enormous_exponent_is_rejected_at_once() -> None:
    start = time.monotonic()
    for value in (Decimal("1E+999999999"), Decimal("-1E+20"), Decimal("Infinity")):
        with pytest.raises(errors.TypeMismatchError, match="out of range"):
            bs.array([1, value], bs.int64())
    assert time.monotonic() - start < 2
    assert bs.array([Decimal("1E+19"), Decimal("0E+999999999")], bs.uint64()).to_pylist() == [10**19, 0]


def test_a_zero_with_an_enormous_exponent_is_a_zero() -> None:
    assert bs.array([Decimal("0E+999999")], bs.decimal32(9, 2)).to_pylist() == [Decimal("0.00")]


def test_the_largest_decimals_are_preserved() -> None:
    largest = Decimal("9" * 76)
    assert bs.array([largest, largest.copy_negate()], bs.decimal256(76, 0)).to_pylist() == [
        largest,
        largest.copy_negate(),
    ]
    shifted = Decimal("9" * 76 + "E+5")
    assert bs.array([shifted], bs.decimal256(76, -5)).to_pylist() == [shifted]


def test_nat_of_pandas_is_null() -> None:
    pandas = pytest.importorskip("pandas")
    assert bs.array([pandas.NaT], bs.timestamp("ns")).to_pylist() == [None]


@pytest.mark.parametrize("bounds", [(1.5,), (0, 1.5), ("1",), (None,)], ids=str)
def test_a_slice_accepts_only_integers(bounds: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be an integer"):
        bs.array([1, 2, 3]).slice(*bounds)


def test_a_slice_accepts_numpy_integers() -> None:
    bounds: Any = (np.int64(1), np.uint8(1))
    assert bs.array([1, 2, 3]).slice(*bounds).to_pylist() == [2]


@pytest.mark.parametrize("other", [None, [1, 2, 3], np.arange(3)], ids=lambda other: type(other).__name__)
def test_arrays_are_compared_and_concatenated_only_with_arrays(other: Any) -> None:
    array = bs.array([1, 2, 3])
    with pytest.raises(errors.TypeMismatchError, match="expected an array"):
        array.equals(other)
    with pytest.raises(errors.TypeMismatchError, match="expected an array"):
        bs.concat_arrays([array, other])


def test_a_huge_value_is_abbreviated_in_errors() -> None:
    for values, type_ in (([b"x" * 10**6], bs.int8()), (["x" * 10**6], bs.bool_()), (b"x" * 10**6, None)):
        with pytest.raises(errors.TypeMismatchError) as caught:
            bs.array(values, type_)
        assert len(str(caught.value)) < 300


def test_a_union_stores_a_value_in_a_member_that_accepts_it() -> None:
    times = bs.sparse_union([("s", bs.time32("s")), ("ms", bs.time32("ms"))])
    array = bs.array([86_399, 86_400], times)
    array.validate(full=True)
    assert array.buffer_values(0).tolist() == [0, 1]


def test_an_empty_array_of_a_union_without_members_is_built() -> None:
    nothing = bs.sparse_union([])
    array = bs.array([], bs.sparse_union([("inner", nothing)]))
    array.validate(full=True)
    assert bs.concat_arrays([array, array]).to_pylist() == []
