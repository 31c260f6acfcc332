"""Batches of arrays, compared row by row with the Python values of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart, EpochReader, RowOrder
from bowstring.datasets.column_arrays import RaggedArray
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError, TypeMismatchError
from bowstring.kernels.list_lengths import find_list_lengths
from bowstring.sharing.server.server import Server
from tests.datasets.array_values import (
    NUMBERS,
    dense_vector,
    fill,
    find_dims,
    list_type,
    list_values,
    sliced,
    to_lists,
    vector_array,
    vectors,
)
from tests.layouts.random_arrays import random_array

SEEDS = st.integers(0, 1 << 32)
SOURCES = st.sampled_from(["table", "mapped", "recorded"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(addresses={"unix": None, "tcp": "127.0.0.1:0"}) as server:
        yield server


def create_source(server: Server, kind: str, parts: list[bs.RecordBatch]) -> bs.Table | Dataset:
    """Return a table, or a data set in parts in shared memory, or at an address of other hosts."""
    table = bs.Table(parts[0].schema, parts)
    if kind == "table":
        return table
    dataset_parts = []
    for part in parts:
        server.add(name := f"part {len(server.names)}", bs.Table(table.schema, [part]))
        uris = [uri for uri in server.locations(name).uris if uri.startswith("unix" if kind == "mapped" else "tcp")]
        lengths = find_list_lengths(part.columns) if kind == "recorded" else ()
        dataset_parts.append(DatasetPart(part.num_rows, part.nbytes, tuple(uris), None, lengths))
    return Dataset("rows", table.schema, dataset_parts)


def read_rows(
    server: Server, random: Random, kind: str, parts: list[bs.RecordBatch], **options: Any
) -> tuple[dict[str, list[Any]], list[int], Any]:
    """Return the rows that all workers of two ranks read of a shuffled or ordered epoch as lists by array, their
    indices, and the signature.
    """
    source = create_source(server, kind, parts)
    seed, batch_rows = random.choice([None, 3]), random.choice([1, 2, 5, 100])
    rows: dict[str, list[Any]] = {}
    order = RowOrder([part.num_rows for part in parts], seed, 8)
    if kind == "table":
        order = RowOrder([sum(part.num_rows for part in parts)], seed, 8)
    indices: list[int] = []
    signature = None
    for rank in range(2):
        reader = EpochReader(source, batch_rows, seed=seed, window_rows=8, rank=rank, world_size=2)
        batches = reader.to_numpy(**options)
        signature = batches.signature
        positions = range(rank * batch_rows, order.num_rows, 2 * batch_rows)
        for start, batch in zip(positions, batches, strict=True):
            stop = min(start + batch_rows, order.num_rows)
            indices += order.rows(0, start, stop).tolist()
            for name, values in batch.items():
                assert len(to_lists(values)) == stop - start
                rows.setdefault(name, []).extend(to_lists(values))
                if name in signature:
                    shape, dtype = signature[name]
                    assert values.dtype == dtype
                    assert all(size in (None, found) for size, found in zip(shape, values.shape, strict=True))
                else:
                    assert not isinstance(values, np.ndarray)
    return rows, indices, signature


def check(rows: list[Any], indices: list[int], expected: list[Any]) -> None:
    assert repr(rows) == repr([expected[index] for index in indices])


@given(SEEDS, SOURCES)
def test_lists_of_numbers_become_arrays_of_one_shape_or_ragged_arrays(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    num_levels = random.randrange(4)
    data_type = list_type(random, random.choice(NUMBERS), num_levels)
    is_equal = [random.random() < 0.7 for _ in range(num_levels)]
    sizes = [random.choice([0, 1, 3, 9]) for _ in range(3)]
    if random.random() < 0.3:
        arrays = [random_array(random, data_type, size) for size in sizes]
    else:
        values = list_values(random, data_type, is_equal, sum(sizes))
        ends = np.cumsum(sizes).tolist()
        arrays = [
            sliced(random, bs.array(values[end - size : end], data_type)) for end, size in zip(ends, sizes, strict=True)
        ]
    values = [value for array in arrays for value in array.to_pylist()]
    dims = find_dims(data_type, values)
    parts = [bs.record_batch({"x": array}) for array in arrays]
    rows, indices, signature = read_rows(server, random, kind, parts, fill_null=1, validity_suffix="_valid")
    if not values:
        return
    is_float = any(word in str(data_type) for word in ("float", "double"))
    one = True if "bool" in str(data_type) else 1.0 if is_float else 1
    check(rows["x"], indices, [fill(value, dims, one) for value in values])
    check(rows["x_valid"], indices, [fill(value, dims, False, lambda _: True) for value in values])
    assert ("x" in signature) == (None not in dims)
    if None not in dims:
        assert signature["x"][0] == (None, *dims)
