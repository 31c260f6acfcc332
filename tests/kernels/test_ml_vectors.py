"""Vectors and matrices as lists of their values, compared with Python's."""

from __future__ import annotations

import math
import pickle
from copy import copy
from random import Random
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datatypes import List
from bowstring.errors import InvalidDataError, LimitError, prefix_errors
from bowstring.kernels.ml_vectors import (
    MalformedRowError,
    count_values,
    is_matrix,
    is_vector,
    read_vectors,
    to_lists,
    to_sparse,
)
from bowstring.layouts.validation import validate
from tests.kernels.ml_values import MATRIX_TYPE, VECTOR_TYPE

Row = tuple[Any, ...] | None


def random_vector(random: Random, *, is_sparse: bool) -> tuple[Row, list[float] | None]:
    """Return a vector as Spark stores it, and its values."""
    if random.random() < 0.2:
        return None, None
    values = [random.choice([0.0, 1.5, -2.0]) for _ in range(random.choice([0, 1, 7]))]
    if not is_sparse:
        return (1, None, None, values), values
    # A sparse vector may store zeros.
    indices = [index for index, value in enumerate(values) if value or random.random() < 0.3]
    return (0, len(values), indices, [values[index] for index in indices]), values


def random_matrix(random: Random, *, is_sparse: bool) -> tuple[Row, list[list[float]] | None]:
    """Return a matrix as Spark stores it, and its rows."""
    if random.random() < 0.2:
        return None, None
    num_rows, num_columns = random.choice([0, 1, 3]), random.choice([0, 1, 4])
    rows = [[random.choice([0.0, 1.5, -2.0]) for _ in range(num_columns)] for _ in range(num_rows)]
    is_transposed = random.random() < 0.5
    lines = rows if is_transposed else [[row[column] for row in rows] for column in range(num_columns)]
    if not is_sparse:
        return (1, num_rows, num_columns, [], [], [value for line in lines for value in line], is_transposed), rows
    indices = [[index for index, value in enumerate(line) if value or random.random() < 0.3] for line in lines]
    values = [line[index] for line, kept in zip(lines, indices, strict=True) for index in kept]
    pointers = np.cumsum([0, *map(len, indices)]).tolist()
    return (0, num_rows, num_columns, pointers, [i for kept in indices for i in kept], values, is_transposed), rows


def with_hidden_values(array: bs.Array, random: Random) -> bs.Array:
    """Return an equal slice of a longer array, with values under nulls."""
    rows = [tuple(row.values()) if row is not None else None for row in array.to_pylist()]
    if not rows:
        return array
    fillers: list[Row] = [row for row in rows if row is not None] or [None]
    padded = bs.array([random.choice(fillers) if row is None else row for row in [*fillers[:1], *rows]], array.type)
    is_valid = np.array([True] + [row is not None for row in rows])
    validity = np.packbits(is_valid, bitorder="little").tobytes()
    return bs.Array.from_buffers(array.type, len(padded), [validity], padded.children).slice(1)


@pytest.mark.parametrize("kinds", [(True,), (False,), (True, False)])
@pytest.mark.parametrize("create_row", [random_vector, random_matrix])
def test_values_are_those_of_the_dense_and_sparse_forms(create_row: Any, kinds: tuple[bool, ...]) -> None:
    for seed in range(150):
        random = Random(seed)
        pairs = [create_row(random, is_sparse=random.choice(kinds)) for _ in range(random.choice([0, 1, 2, 12]))]
        expected = [values for _, values in pairs]
        array = bs.array([row for row, _ in pairs], VECTOR_TYPE if create_row is random_vector else MATRIX_TYPE)
        for each in (array, with_hidden_values(array, random), array.slice(1)):
            values = expected[1:] if len(each) < len(array) else expected
            for value_type in (bs.float64(), bs.float32()):
                lists = to_lists(each, value_type)
                validate(lists, full=True)
                assert lists.to_pylist() == values, seed
            num_values = int(sum(np.size(value) for value in values if value is not None))
            assert count_values(each) == num_values
            nested = bs.Array.from_buffers(bs.list_(each.type), 1, [None, np.array([0, len(each)], np.int32)], [each])
            assert count_values(nested) == num_values


def test_sparse_vectors_have_no_zeros() -> None:
    for seed in range(100):
        random = Random(seed)
        pairs = [random_vector(random, is_sparse=random.random() < 0.5) for _ in range(8)]
        array = with_hidden_values(bs.array([row for row, _ in pairs], VECTOR_TYPE), random)
        sparse = to_sparse(array)
        validate(sparse, full=True)
        assert sparse.type == array.type
        assert to_lists(sparse, bs.float64()).to_pylist() == [values for _, values in pairs]
        for row in filter(None, sparse.to_pylist()):
            assert row["type"] == 0
            assert 0.0 not in row["values"]
            assert row["indices"] == sorted(row["indices"])
    not_a_number = bs.array([(1, None, None, [0.0, math.nan])], VECTOR_TYPE)
    assert to_sparse(not_a_number).to_pylist()[0]["indices"] == [1]


def test_stored_vectors_are_rows_of_a_csr_matrix() -> None:
    stored = read_vectors(bs.array([(0, 4, [1, 3], [5.0, 6.0]), None, (1, None, None, [7.0, 0.0])], VECTOR_TYPE))
    assert stored.sizes.tolist() == [4, 0, 2]
    assert stored.counts.tolist() == [2, 0, 2]
    assert stored.indices.tolist() == [1, 3, 0, 1]
    assert stored.values.tolist() == [5.0, 6.0, 7.0, 0.0]
    assert stored.rows.tolist() == [0, 0, 2, 2]


def test_dense_vectors_are_not_copied() -> None:
    vectors = bs.array([(1, None, None, [1.0, 2.0]), (1, None, None, [3.0, 4.0])], VECTOR_TYPE)
    stored = vectors.children[3].children[0].buffer_values(1)
    assert np.shares_memory(to_lists(vectors, bs.float64()).children[0].buffer_values(1), stored)


def test_values_beyond_float32_are_infinite() -> None:
    vectors = bs.array([(1, None, None, [1e300, -1e300])], VECTOR_TYPE)
    assert to_lists(vectors, bs.float32()).to_pylist() == [[math.inf, -math.inf]]


def test_the_types_are_recognized_whatever_their_nullability_and_the_kind_of_their_lists_is() -> None:
    large = bs.struct(
        {"type": bs.int8(), "size": bs.int32(), "indices": bs.large_list("int32"), "values": bs.large_list("float64")}
    )
    assert is_vector(VECTOR_TYPE)
    assert is_vector(large)
    assert is_matrix(MATRIX_TYPE)
    others = [bs.int8(), bs.list_("float64"), bs.struct({}), MATRIX_TYPE]
    others += [
        bs.struct([*VECTOR_TYPE.fields[:3], bs.field("values", other)]) for other in (bs.float64(), bs.list_("float32"))
    ]
    assert not any(map(is_vector, others))
    assert not any(map(is_matrix, [VECTOR_TYPE, *others[:3]]))
    assert to_sparse(bs.array([(1, None, None, [0.0, 1.0])], large)).to_pylist()[0]["size"] == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 2, [2], [1.0]), "vector 1: the index 2 is not below 2"),
        ((0, 2, [-1], [1.0]), "vector 1: the index -1 is not below 2"),
        ((0, 2, [0, 1], [1.0]), "vector 1: has 2 indices and 1 values"),
        ((0, -2, [], []), "vector 1: the size -2 is negative"),
        ((0, None, [0], [1.0]), "vector 1: size: found null"),
        ((0, 2, None, []), "vector 1: indices: found null"),
        ((1, None, None, None), "vector 1: values: found null"),
        ((1, -1, 1, [], [], [], False), "matrix 1: the size -1 is negative"),
        ((1, 1, 2, [], [], [1.0], False), "matrix 1: 1 rows and 2 columns do not fit its 1 values"),
        (
            (0, 1, 2, [0, 1], [0], [1.0], False),
            "matrix 1: 1 rows and 2 columns do not fit its 1 values, 1 indices",
        ),
        ((0, 1, 2, [0, 1, 1], [1], [1.0], False), "matrix 1: the index 1 is not below 1"),
        ((0, 1, 2, [0, 2, 1], [0], [1.0], False), "the pointers of a sparse matrix do not ascend from 0"),
        ((0, 1, 2, [0, 0, 0], [0], [1.0], False), "the pointers of a sparse matrix do not ascend from 0"),
        ((0, 1, 2, [1, 1, 1], [0], [1.0], False), "the pointers of a sparse matrix do not ascend from 0"),
    ],
)
def test_malformed_values_are_invalid_data(row: tuple[Any, ...], message: str) -> None:
    array = bs.array([None, row], VECTOR_TYPE if len(row) == 4 else MATRIX_TYPE)
    with pytest.raises(InvalidDataError, match=message):
        to_lists(array, bs.float64())


def test_a_copied_error_keeps_its_location_and_notes() -> None:
    with pytest.raises(MalformedRowError) as caught, prefix_errors("column 'v'"):
        to_lists(bs.array([(0, -2, [], [])], VECTOR_TYPE), bs.float64())
    caught.value.add_note("in part 3")
    for error in (copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert str(error) == "column 'v': vector 0: the size -2 is negative"
        assert (error.kind, error.row, error.__notes__) == ("vector", 0, ["in part 3"])


def test_nulls_in_vectors_are_invalid_data() -> None:
    fields = {"type": bs.int8(), "size": bs.int32(), "indices": bs.list_("int32"), "values": bs.list_("float64")}
    good: Any = (0, 3, [0, 1], [1.0, 2.0])
    for row, name in (
        ((None, 3, [0], [1.0]), "type"),
        ((0, 3, [0, None], [1.0, 2.0]), "indices"),
        ((1, None, None, [1.0, None]), "values"),
    ):
        array = bs.array([None, good, row], bs.struct(fields)).slice(1)
        with pytest.raises(InvalidDataError, match=f"vector 1: {name}: found null"):
            read_vectors(array)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_nulls_in_matrices_are_invalid_data(kind: str) -> None:
    nullable = bs.struct(
        [
            (field.name, bs.list_(field.type.value_type) if isinstance(field.type, List) else field.type)
            for field in MATRIX_TYPE.fields
        ]
    )
    names = [field.name for field in MATRIX_TYPE.fields]
    row = (
        (1, 1, 2, None, None, [1.0, 2.0], False) if kind == "dense" else (0, 1, 2, [0, 1, 2], [0, 0], [1.0, 2.0], False)
    )
    good: dict[str, Any] = dict(zip(names, row, strict=True))
    assert to_lists(bs.array([None, good], nullable), bs.float64()).to_pylist() == [None, [[1.0, 2.0]]]
    for name in [name for name in names if good[name] is not None]:
        bad_values = [None] if not isinstance(good[name], list) else [None, [None, *good[name][1:]]]
        for value in bad_values:
            with pytest.raises(InvalidDataError, match=f"matrix 1: {name}: found null"):
                to_lists(bs.array([good, {**good, name: value}], nullable), bs.float64())


def test_the_zeros_of_a_few_bytes_are_limited() -> None:
    with pytest.raises(LimitError, match="materializing 2147483647 values"):
        to_lists(bs.array([(0, 2**31 - 1, [], [])], VECTOR_TYPE), bs.float32())
