"""The shortest and the longest list at each level, compared with Python's lists."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.kernels.list_lengths import (
    NO_LISTS,
    ListLengthCollector,
    count_list_levels,
    list_length_bounds,
    merge_list_length_bounds,
)
from tests.kernels.ml_values import VECTOR_TYPE
from tests.layouts.random_arrays import random_array

LIST_TYPES: list[Any] = [
    bs.list_,
    bs.large_list,
    bs.list_view,
    bs.large_list_view,
    lambda values: bs.list_(values, 3),
    lambda values: bs.list_(values, 0),
]


def find_bounds(values: list[Any], num_levels: int) -> list[tuple[int, int]]:
    """Return the bounds of lists in Python."""
    lists = [value for value in values if value is not None]
    bounds = [(min(map(len, lists)), max(map(len, lists))) if lists else NO_LISTS]
    return bounds + (find_bounds([e for each in lists for e in each], num_levels - 1) if num_levels > 1 else [])


@pytest.mark.parametrize("num_levels", [1, 2, 3])
def test_bounds_are_those_of_the_lists_that_are_not_null(num_levels: int) -> None:
    for seed in range(150):
        random = Random(seed)
        data_type = random.choice([bs.int8(), bs.string(), bs.struct({"x": bs.list_(bs.int8())})])
        for _ in range(num_levels):
            data_type = random.choice(LIST_TYPES)(data_type)
        arrays = [random_array(random, data_type, random.choice([0, 1, 2, 5, 40])) for _ in range(2)]
        sliced = arrays[0].slice(random.randrange(3), random.randrange(20))
        for array in (*arrays, sliced):
            assert list_length_bounds(array) == tuple(find_bounds(array.to_pylist(), num_levels)), (seed, array)
        bounds, others = map(list_length_bounds, arrays)
        assert bounds is not None
        assert others is not None
        merged = tuple(find_bounds(arrays[0].to_pylist() + arrays[1].to_pylist(), num_levels))
        assert merge_list_length_bounds(bounds, others) == merged


def test_long_columns_are_read_in_blocks() -> None:
    for position in (0, 65_535, 65_536, 199_999):
        sizes = np.full(200_000, 2)
        sizes[position] = 3
        lists = bs.Array.from_buffers(
            bs.list_(bs.int8()),
            len(sizes),
            [None, np.append(0, sizes.cumsum()).astype(np.int32)],
            [bs.array(np.zeros(sizes.sum(), np.int8))],
        )
        assert list_length_bounds(lists) == ((2, 3),)


def test_lists_under_nulls_do_not_count() -> None:
    inner = bs.Array.from_buffers(
        bs.list_(bs.int8()), 3, [None, b"\0\0\0\0\1\0\0\0\3\0\0\0\4\0\0\0"], [bs.array([1] * 4, bs.int8())]
    )
    outer_type = bs.list_(bs.list_(bs.int8()))
    outer = bs.Array.from_buffers(outer_type, 3, [b"\5", b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"], [inner])
    assert outer.to_pylist() == [[[1]], None, [[1]]]
    assert list_length_bounds(outer) == ((1, 1), (1, 1))


def test_extension_types_and_vectors_count_as_lists_and_other_types_do_not() -> None:
    tensors = bs.array([[1, 2, 3, 4, 5, 6], None], bs.list_(bs.int32(), 6)).cast(
        bs.datatypes.fixed_shape_tensor(bs.int32(), [2, 3])
    )
    assert list_length_bounds(tensors) == ((6, 6),)
    vectors = bs.array([[(0, 9, [1], [2.0]), (1, None, None, [1.0, 2.0])], [None], None], bs.list_(VECTOR_TYPE))
    assert list_length_bounds(vectors) == ((1, 2), (2, 9))
    map_type = bs.map_(bs.string(), bs.list_(bs.int8()))
    for other in (bs.int8(), bs.string(), bs.struct({"x": bs.list_(bs.int8())}), map_type, bs.null()):
        assert count_list_levels(other) == 0
        assert list_length_bounds(bs.array([None], other)) is None


def test_the_bounds_of_batches_are_merged() -> None:
    collector = ListLengthCollector([bs.int64(), bs.list_("int64"), bs.list_(bs.list_("int64"), 2)])
    assert collector.list_lengths == ((1, (NO_LISTS,)), (2, (NO_LISTS, NO_LISTS)))
    batches: list[list[Any]] = [[[1]], [None], [[], [2, 3]]]
    for lists in batches:
        nested = [each if each is None else [each, []] for each in lists]
        columns = [bs.array([1] * len(lists)), bs.array(lists, bs.list_("int64"))]
        collector.add([*columns, bs.array(nested, bs.list_(bs.list_("int64"), 2))].__getitem__)
    assert collector.list_lengths == ((1, ((0, 2),)), (2, ((2, 2), (0, 2))))


def test_falling_offsets_are_invalid_data() -> None:
    offsets = np.array([0, 9, 1], np.int32)
    array = bs.Array.from_buffers(bs.list_(bs.int8()), 2, [None, offsets], [bs.array([1], bs.int8())])
    with pytest.raises(InvalidDataError, match="less than"):
        list_length_bounds(array)
