"""Functions on random arrays of any type with unusual buffers give the same values as Python."""

from __future__ import annotations

from collections import Counter

import pytest

import bowstring as bs
from tests.kernels.test_random_arrays import BLOCKS, arrays, check_values, is_nan, texts
from tests.layouts.random_arrays import random_array


@BLOCKS
def test_choices_membership_and_counts_are_those_of_python(block: int) -> None:
    for random, array in arrays(block):
        values, other = array.to_pylist(), random_array(random, array.type, array.length)
        shown, others = texts(values), texts(other)
        condition = [random.choice([True, False, None]) for _ in values]
        check_values(
            bs.compute.if_else(bs.array(condition, "bool"), array, other),
            ["None" if is_left is None else shown[i] if is_left else others[i] for i, is_left in enumerate(condition)],
        )
        expected = [others[i] if value is None else shown[i] for i, value in enumerate(values)]
        check_values(bs.compute.coalesce(array, other), expected)
        assert bs.compute.count(array) == sum(value is not None for value in values)
        if any(name in str(array.type) for name in ("union", "bool8")):  # equal values may be stored differently
            continue
        assert bs.compute.is_in(array, other).to_pylist() == [text in others for text in shown]
        counts = bs.compute.value_counts(array)
        counts.validate(full=True)
        assert dict(zip(texts(counts.field("values")), counts.field("counts"), strict=True)) == Counter(shown)
        assert bs.compute.count_distinct(array, mode="all") == len(set(shown))


@BLOCKS
def test_comparisons_and_extremes_are_those_of_python(block: int) -> None:
    for _, array in arrays(block):
        try:
            least, greatest = bs.compute.min(array), bs.compute.max(array)
        except bs.errors.TypeMismatchError:
            with pytest.raises(bs.errors.TypeMismatchError, match="have no order"):
                bs.compute.equal(array, array)
            continue
        values = array.to_pylist()
        is_true = bs.compute.equal(array, array).to_pylist()
        assert is_true == [None if value is None else not is_nan(value) for value in values]
        numbers = [value for value in values if value is not None and not is_nan(value)]
        if numbers and len(set(map(type, numbers))) == 1 and "extension" not in str(array.type):
            assert (least, greatest) == (min(numbers), max(numbers))
            expected = [None if value is None else value < greatest.as_py() for value in values]
            assert bs.compute.less(array, greatest).to_pylist() == expected
