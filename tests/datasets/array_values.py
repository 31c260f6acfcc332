"""Columns of numbers, lists and vectors, and row by row what a model gets of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

import bowstring as bs
from bowstring.datasets.column_arrays import RaggedArray
from tests.kernels.ml_values import VECTOR_TYPE
from tests.layouts.random_arrays import random_array

Dims = tuple[int | None, ...]
"""The length of the lists of each level, None if they differ."""

NUMBERS: list[bs.DataType] = [
    *(bs.datatypes.types.Int(bits, is_signed) for bits in (8, 16, 32, 64) for is_signed in (True, False)),
    *(bs.float16(), bs.float32(), bs.float64(), bs.bool_(), bs.datatypes.bool8()),
    *(bs.dictionary(bs.int8(), bs.int32()), bs.dictionary(bs.uint16(), bs.float64())),
    *(bs.run_end_encoded(bs.int32(), bs.int64()), bs.run_end_encoded(bs.int16(), bs.bool_())),
]
LISTS: list[Callable[[Any], bs.DataType]] = [bs.list_, bs.large_list, bs.list_view, bs.large_list_view]


def list_type(random: Random, element_type: bs.DataType, num_levels: int) -> bs.DataType:
    """Return a type of lists of any kind."""
    for _ in range(num_levels):
        size = random.choice([None, None, 0, 1, 3])
        element_type = random.choice(LISTS)(element_type) if size is None else bs.list_(element_type, size)
    return element_type


def list_values(random: Random, data_type: bs.DataType, is_equal: Sequence[bool], length: int) -> list[Any]:
    """Return lists with nulls. Those of a level have one length if it `is_equal`, outermost first."""
    levels, sizes = [], []
    while isinstance(data_type, bs.datatypes.types.BaseList):
        levels.append(data_type)
        sizes.append(random.randrange(4))
        data_type = data_type.value_type
    elements = random_array(random, data_type, 20).to_pylist()

    def draw(level: int) -> Any:
        if random.random() < 0.1:
            return None
        if level == len(levels):
            return random.choice(elements)
        size = sizes[level] if is_equal[level] else random.randrange(4)
        return [draw(level + 1) for _ in range(getattr(levels[level], "list_size", size))]

    return [draw(0) for _ in range(length)]


def find_dims(data_type: bs.DataType, values: Sequence[Any]) -> Dims:
    """Return the lengths of the lists of a column at each level."""
    if not isinstance(data_type, bs.datatypes.types.BaseList):
        return ()
    lists = [value for value in values if value is not None]
    inner = find_dims(data_type.value_type, [element for each in lists for element in each])
    lengths = {len(each) for each in lists}
    size = getattr(data_type, "list_size", lengths.pop() if len(lengths) == 1 else None)
    return (None if None in inner else size, *inner)


def fill(value: Any, dims: Dims, null: Any, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a row with its nulls replaced: null lists of one length are full of nulls, others are empty."""
    if not dims:
        return null if value is None else convert(value)
    if value is None:
        value = [None] * (dims[0] or 0)
    return [fill(each, dims[1:], null, convert) for each in value]


def vectors(random: Random, size: int, length: int, *, has_sparse: bool, has_nulls: bool) -> list[Any]:
    """Return vectors of one size: dense ones, sparse ones, nulls."""
    rows: list[Any] = []
    for _ in range(length):
        if has_nulls and random.random() < 0.2:
            rows.append(None)
        elif has_sparse and random.random() < 0.5:
            indices = sorted(random.sample(range(size), random.randrange(size + 1)))
            rows.append((0, size, indices, [random.choice([0.0, 1.5, -2.0]) for _ in indices]))
        else:
            rows.append((1, None, None, [random.random() for _ in range(size)]))
    return rows


def dense_vector(vector: Any, size: int, null: float) -> list[float]:
    """Return all elements of a vector."""
    if vector is None:
        return [null] * size
    kind, _, indices, values = vector
    elements = [0.0] * size
    for index, value in zip(indices if kind == 0 else range(size), values, strict=True):
        elements[index] = value
    return elements


def vector_array(rows: list[Any]) -> bs.Array:
    return bs.array(rows, VECTOR_TYPE)


def sliced(random: Random, array: bs.Array) -> bs.Array:
    """Return the same values as a slice of a longer array."""
    before, after = (random_array(random, array.type, random.randrange(3)) for _ in range(2))
    return bs.concat_arrays([before, array, after]).slice(len(before), len(array))


def to_lists(values: Any) -> list[Any]:
    """Return an array, a ragged array, or sparse rows as lists."""
    if hasattr(values, "toarray"):
        values = values.toarray()
    lists: list[Any] = values.tolist() if isinstance(values, np.ndarray | RaggedArray) else values
    return lists
