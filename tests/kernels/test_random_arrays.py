"""Every function on random arrays of any type with unusual buffers gives the same values as Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.datatypes.extension import ExtensionType
from tests.layouts.random_arrays import FLAT, any_type, random_array

NOT_IN_PYARROW = (r"month_interval|day_time_interval", r"values: run_end_encoded", r"opaque\[extension")
"""Types that pyarrow lacks, or lacks in nested types. The C structures can't describe extensions of extensions."""
BLOCKS = pytest.mark.parametrize("block", range(12))
SEEDS_PER_BLOCK = 50


def texts(values: Any) -> list[str]:
    """Return values as text, so that NaN equals itself and -0.0 differs from 0.0."""
    return [repr(value) for value in (values.to_pylist() if hasattr(values, "to_pylist") else values)]


def check_values(array: Any, expected: list[str]) -> None:
    array.validate(full=True)
    assert texts(array) == expected


def arrays(block: int) -> Iterator[tuple[Random, bs.Array]]:
    """Yield arrays of any type, each with its random generator."""
    for seed in range(block * SEEDS_PER_BLOCK, block * SEEDS_PER_BLOCK + SEEDS_PER_BLOCK):
        random = Random(seed)
        type_ = any_type(random, random.choice([0, 1, 2, 3]))
        yield random, random_array(random, type_, random.choice([0, 1, 2, 5, 13]))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


@BLOCKS
def test_functions_give_the_same_values_as_python(block: int) -> None:
    for random, array in arrays(block):
        other = random_array(random, array.type, random.choice([0, 1, 2, 5, 13]))
        array.validate(full=True)
        values, size = array.to_pylist(), array.length
        shown = texts(values)
        start, count = random.randrange(size + 1), random.randrange(size + 2)
        indices = [random.randrange(size) for _ in range(6)] if size else []
        mask = [random.choice([True, False, None]) for _ in values]
        nulls = [value is None for value in values]

        check_values(array.compact(), shown)
        check_values(array.slice(start, count), shown[start : start + count])
        check_values(array.take(indices), [shown[i] for i in indices])
        check_values(array.filter(mask), [text for text, keep in zip(shown, mask, strict=True) if keep])
        check_values(bs.concat_arrays([array, other, array[start:]]), shown + texts(other) + shown[start:])
        assert array.is_null().to_pylist() == nulls
        assert array.is_valid().to_pylist() == [not null for null in nulls]
        assert array.is_null(nan_is_null=True).to_pylist() == [v is None or is_nan(v) for v in values]
        check_values(array.drop_null(), [text for text, null in zip(shown, nulls, strict=True) if not null])
        present = [value for value in values if value is not None]
        if present and "union" not in str(array.type):
            check_values(
                array.fill_null(present[-1]), [repr(present[-1]) if null else shown[i] for i, null in enumerate(nulls)]
            )
        assert array.equals(array.take(range(size)), nans_equal=True)
        assert array.to_numpy(zero_copy_only=False).shape[0] == size


@BLOCKS
def test_encodings_preserve_every_value(block: int) -> None:
    for _, array in arrays(block):
        shown = texts(array)
        words, runs = array.dictionary_encode(), array.run_end_encode()
        check_values(words, shown)
        check_values(runs, shown)
        check_values(words.dictionary_decode(), shown)
        check_values(runs.run_end_decode(), shown)
        distinct = array.unique()
        distinct.validate(full=True)
        if not any(
            name in str(array.type) for name in ("union", "bool8")
        ):  # different values of these may have the same text
            assert texts(distinct) == list(dict.fromkeys(shown))
            if words is not array:
                assert words.dictionary_decode().equals(array, nans_equal=True)
            if runs is not array:
                assert runs.run_end_decode().equals(array, nans_equal=True)


@BLOCKS
def test_chunks_are_combined_into_one_column(block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, block * SEEDS_PER_BLOCK + SEEDS_PER_BLOCK):
        random = Random(seed)
        type_ = any_type(random, random.choice([0, 1, 2, 3]))
        parts = [random_array(random, type_, size) for size in random.sample([0, 0, 1, 3, 7], 3)]
        column = bs.ChunkedArray([part for part in parts for part in (part, part[:0])], type_)
        shown = [text for part in parts for text in texts(part)]
        size, start = len(shown), random.randrange(len(shown) + 1)
        mask = [random.choice([True, False, None]) for _ in shown]
        check_values(column, shown)
        check_values(column.combine_chunks(), shown)
        check_values(column.slice(start, 4), shown[start : start + 4])
        check_values(column.take(range(size - 1, -1, -1)), shown[::-1])
        check_values(column.filter(mask), [text for text, keep in zip(shown, mask, strict=True) if keep])
        check_values(column.unify_dictionaries(), shown)
        assert column.equals(bs.ChunkedArray([column.combine_chunks()], type_), nans_equal=True)
        assert column.is_null().to_pylist() == [text == "None" for text in shown]


@pytest.mark.parametrize("type_", FLAT, ids=str)
def test_the_order_is_that_of_the_python_values(type_: bs.DataType) -> None:
    for seed in range(10):
        random = Random(seed)
        array = random_array(random, random.choice([type_, bs.dictionary(bs.int8(), type_)]), 13)
        if str(type_).startswith(("day_time", "month_day")):
            with pytest.raises(bs.errors.TypeMismatchError, match="have no order"):
                array.sort_indices()
            continue
        plain = array.dictionary_decode().compact()
        for order in ("ascending", "descending"):
            for placement in ("at_start", "at_end"):
                indices = array.sort_indices(order, placement).to_pylist()
                assert indices == plain.sort_indices(order, placement).to_pylist()


@BLOCKS
def test_pyarrow_round_trips_preserve_values(block: int) -> None:
    for random, array in arrays(block):
        if any(re.search(pattern, str(array.type)) for pattern in NOT_IN_PYARROW):
            continue
        peer = pa.array(array)
        peer.validate(full=True)
        back = bs.array(peer)
        back.validate(full=True)
        assert texts(back) == texts(array)
        if not isinstance(array.type, ExtensionType):
            assert back.equals(array, nans_equal=True)
        if size := len(array):
            start = random.randrange(size)
            assert texts(bs.array(peer.slice(start))) == texts(array)[start:]


def test_arrays_of_different_values_are_not_equal() -> None:
    for seed in range(300):
        random = Random(seed)
        type_ = any_type(random, random.choice([0, 1, 2]))
        left, right = (random_array(random, type_, 3) for _ in range(2))
        if "union" in str(type_) or "-0.0" in "".join(texts(left) + texts(right)) or "tensor" in str(type_):
            continue
        if "bool8" not in str(type_):
            assert left.equals(right, nans_equal=True) == (texts(left) == texts(right))
        assert left.equals(right) <= left.equals(right, nans_equal=True)
