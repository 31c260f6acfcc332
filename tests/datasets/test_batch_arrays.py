"""Batches of arrays, compared row by row with the Python values of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart, EpochReader, RowOrder
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


FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
INTEGERS = [np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")]


@given(SEEDS, SOURCES)
def test_numbers_are_converted_as_numpy_does(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    dtype = random.choice([*FLOATS, *INTEGERS, np.dtype(np.bool_)])
    element_types: list[Any] = [bs.int8(), bs.uint64(), bs.int64(), bs.float64(), bs.float32(), bs.bool_()]
    element_types += [bs.dictionary(bs.int8(), bs.int64()), bs.decimal128(9, 2), bs.decimal256(40, 0)]
    element_type = random.choice(element_types)
    numbers: list[Any] = [0, 1, 100, None]
    if dtype.kind == "f" and element_type in (bs.int64(), bs.uint64(), bs.float64()):
        numbers += [2**15 - 1, 4097, 3001]
    if "decimal128" in str(element_type) and dtype.kind == "f":
        numbers += [0.25, 1.5]
    num_levels = random.randrange(3)
    data_type = element_type
    for _ in range(num_levels):
        data_type = bs.list_(data_type)
    sizes = [random.choice([0, 1, 4]) for _ in range(3)]

    def draw(level: int) -> Any:
        if level == num_levels:
            number = random.choice(numbers)
            return bool(number) if element_type == bs.bool_() and number is not None else number
        return [draw(level + 1) for _ in range(random.choice([0, 2, 2]))]

    parts = []
    for size in sizes:
        values = [draw(0) for _ in range(size)]
        floats = bs.array(values, data_type) if "decimal" not in str(element_type) else None
        if floats is None:
            doubles: bs.DataType = bs.float64()
            for _ in range(num_levels):
                doubles = bs.list_(doubles)
            floats = bs.array(values, doubles).cast(data_type)
        parts.append(bs.record_batch({"x": sliced(random, floats)}))
    values = [value for part in parts for value in part["x"].to_pylist()]
    dtypes = random.choice([dtype, dtype.name, {"x": dtype}, {"x": dtype.name}])
    rows, indices, _ = read_rows(server, random, kind, parts, dtypes=dtypes, fill_null={"x": 7})

    def convert(value: Any) -> Any:
        return dtype.type(float(value) if dtype.kind == "f" else value).item()

    if values:
        dims = find_dims(data_type, values)
        check(rows["x"], indices, [fill(value, dims, convert(7), convert) for value in values])


TIMES: list[tuple[bs.DataType, str]] = [
    (bs.date32(), "M8[D]"),
    (bs.date64(), "M8[ms]"),
    *((bs.timestamp(unit), f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")),
    (bs.timestamp("us", "Europe/Paris"), "M8[us]"),
    *((bs.duration(unit), f"m8[{unit}]") for unit in ("s", "ms", "us", "ns")),
    *((bs.time32(unit), f"m8[{unit}]") for unit in ("s", "ms")),
    *((bs.time64(unit), f"m8[{unit}]") for unit in ("us", "ns")),
]


@pytest.mark.parametrize(("data_type", "own_dtype"), TIMES, ids=str)
def test_dates_and_times_become_numbers_or_times_by_column(data_type: bs.DataType, own_dtype: str) -> None:
    numbers = [86_399 if "time32" in str(data_type) else 86_400_000, None, 0]
    times = bs.array(numbers, bs.int32() if "32" in str(data_type) else bs.int64()).cast(data_type)
    table = bs.table({"t": times, "l": bs.array([[time] for time in times.to_pylist()], bs.list_(data_type))})
    reader = EpochReader(table, 3)
    for dtype in ("int64", "float64", own_dtype):
        (batch,) = reader.to_numpy(dtypes={"t": dtype, "l": dtype}, fill_null=0)
        assert batch["t"].dtype == batch["l"].dtype == np.dtype(dtype)
        assert batch["t"].astype("int64").tolist() == [number or 0 for number in numbers]
        assert batch["l"].astype("int64").tolist() == [[number or 0] for number in numbers]
    (batch,) = reader.to_numpy(dtypes="float32")
    assert batch["t"] == times.to_pylist()
    (batch,) = reader.to_numpy(dtypes={"t": "float32"}, fill_null=0)
    assert batch["t"].tolist() == [float(number or 0) for number in numbers]
    assert batch["l"] == table["l"].to_pylist()


@given(SEEDS, SOURCES)
def test_vectors_become_matrices_or_sparse_rows(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    has_sparse, has_nulls, size = random.random() < 0.5, random.random() < 0.5, random.randrange(1, 6)
    sizes = [random.choice([0, 1, 4, 9]) for _ in range(3)]
    parts, values = [], []
    for length in sizes:
        rows_of_part = vectors(random, size, length, has_sparse=has_sparse, has_nulls=has_nulls)
        parts.append(bs.record_batch({"v": sliced(random, vector_array(rows_of_part))}))
        values += rows_of_part
    is_stated = random.random() < 0.5
    options: dict[str, Any] = {"shapes": {"v": (size,)}} if is_stated else {}
    options |= {"dtypes": "float32"} if random.random() < 0.5 else {}
    rows, indices, signature = read_rows(server, random, kind, parts, fill_null={"v": 2}, **options)
    if not any(value is not None for value in values):
        return
    is_dense = is_stated or (kind != "recorded" and all(value is None or value[0] == 1 for value in values))
    assert ("v" in signature) == is_dense
    expected = [dense_vector(value, size, 2.0 if is_dense else 0.0) for value in values]
    for found, index in zip(rows["v"], indices, strict=True):
        # A batch without any vectors has sparse rows of no columns.
        assert np.allclose(found, expected[index][: len(found)], rtol=1e-6)
        assert len(found) == size or (not is_dense and values[index] is None)


@given(SEEDS)
def test_tensors_are_in_their_logical_order(seed: int) -> None:
    random = Random(seed)
    shape = [random.randrange(1, 4) for _ in range(random.randrange(1, 4))]
    permutation = random.choice([None, random.sample(range(len(shape)), len(shape))])
    data_type = bs.datatypes.fixed_shape_tensor(bs.int16(), shape, permutation=permutation)
    values = np.random.default_rng(seed).integers(0, 100, (7, int(np.prod(shape)))).astype("int16")
    storage = bs.array([*values.tolist(), None], bs.list_(bs.int16(), values.shape[1]))
    table = bs.table({"t": sliced(random, storage.cast(data_type))})
    (batch,) = EpochReader(table, 8).to_numpy(fill_null=5)
    logical = values.reshape(7, *shape)
    if permutation is not None:
        logical = logical.transpose(0, *(axis + 1 for axis in permutation))
    assert batch["t"].shape == (8, *logical.shape[1:])
    assert (batch["t"][:7] == logical).all()
    assert (batch["t"][7] == 5).all()


@given(SEEDS, SOURCES)
def test_features_are_columns_side_by_side(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    sizes = [random.choice([0, 1, 4, 9]) for _ in range(3)]
    parts, values = [], []
    for size in sizes:
        part: dict[str, list[Any]] = {
            "i": [random.choice([0, 1, 100, None]) for _ in range(size)],
            "f": [random.random() for _ in range(size)],
            "l": [random.choice([None, [1, 2, 3], [4, None, 6]]) for _ in range(size)],
            "m": [[[1.0, 2.0], [3.0, random.random()]] for _ in range(size)],
            "c": [random.choice(["a", "b", "c", None]) for _ in range(size)],
            "v": vectors(random, 2, size, has_sparse=True, has_nulls=False),
        }
        types = (bs.int64(), bs.float64(), bs.list_(bs.int32()), bs.list_(bs.list_(bs.float64())), bs.string())
        arrays = {name: bs.array(part[name], each) for name, each in zip("iflmc", types, strict=True)}
        parts.append(bs.record_batch({**arrays, "v": vector_array(part["v"])}))
        values += list(zip(*part.values(), strict=True))
    names = random.sample("iflmcv", random.randrange(1, 7))
    options = {
        "shapes": {"l": (3,), "m": (2, 2), "v": 2},
        "categories": {"c": ["b", "a"]},
        "fill_null": {"i": 7, "l": 8},
        "dtypes": random.choice([None, {"x": "float32"}, "float64"]),
    }
    rows, indices, signature = read_rows(
        server, random, kind, parts, features={"x": names}, columns=["x", "f"], **options
    )
    if not values:
        return
    expected, plain = [], []
    for i, f, lists, m, c, v in values:
        row = {
            "i": [7 if i is None else i],
            "f": [f],
            "l": [8 if each is None else each for each in (lists or [None] * 3)],
            "m": m[0] + m[1],
            "c": [{"b": 0, "a": 1}.get(c, 2)],
            "v": dense_vector(v, 2, 0),
        }
        expected.append([element for name in names for element in row[name]])
        plain.append(f)
    assert np.allclose(rows["x"], [expected[index] for index in indices], rtol=1e-6)
    assert signature["x"][0] == (None, len(expected[0]))
    assert rows["f"] == [plain[index] for index in indices]


@given(SEEDS, SOURCES)
def test_lists_are_padded_or_cut(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    sizes = [random.choice([0, 1, 4, 9]) for _ in range(3)]
    is_nested = random.random() < 0.3
    data_type = bs.list_(bs.list_(bs.int32(), 2)) if is_nested else random.choice(LIST_OF_INT32)
    values = list_values(random, data_type, [False, False], sum(sizes))
    ends = np.cumsum(sizes).tolist()
    parts = [
        bs.record_batch({"x": sliced(random, bs.array(values[end - size : end], data_type))})
        for end, size in zip(ends, sizes, strict=True)
    ]
    length = random.choice([None, 0, 2, 5])
    padding = -1 if length is None else (-1, length)
    options: dict[str, Any] = {"validity_suffix": "_ok"} if random.random() < 0.5 else {}
    rows, indices, _ = read_rows(server, random, kind, parts, pad={"x": padding}, fill_null={"x": 3}, **options)
    if not values:
        return
    dims = (None, 2) if is_nested else (None,)
    blank: Any = [-1, -1] if is_nested else -1
    for row, length_of_row, index in zip(rows["x"], rows["x_length"], indices, strict=True):
        expected = fill(values[index], dims, 3)[:length]
        assert length_of_row == len(expected)
        assert row == expected + [blank] * (len(row) - len(expected))
        assert length is None or len(row) == length
    if options:
        for row, index in zip(rows["x_ok"], indices, strict=True):
            expected = fill(values[index], dims, False, lambda _: True)[:length]
            blank = [False, False] if is_nested else False
            assert row == expected + [blank] * (len(row) - len(expected))


LIST_OF_INT32 = [bs.list_(bs.int32()), bs.large_list(bs.int32()), bs.list_view(bs.int32()), bs.list_(bs.int32(), 3)][:3]


@given(SEEDS, SOURCES)
def test_categories_become_codes(server: Server, seed: int, kind: str) -> None:
    random = Random(seed)
    choices: list[tuple[bs.DataType, list[Any]]] = [
        *((bs.string(), ["b", "", "ü", "a" * 20]), (bs.int16(), [3, -1, 7]), (bs.bool_(), [True, False])),
        *((bs.large_string(), ["x", "y"]), (bs.string_view(), ["x", "a longer value"]), (bs.date32(), [])),
    ]
    value_type, own = random.choice(choices)
    own = own or bs.array([1, 2, 3], bs.int32()).cast(bs.date32()).to_pylist()
    data_type = random.choice(
        [value_type, bs.dictionary(bs.int8(), value_type), bs.run_end_encoded(bs.int32(), value_type)]
    )
    parts = []
    for _ in range(3):
        values = [random.choice([*own, None]) for _ in range(random.choice([0, 1, 4, 9]))]
        parts.append(bs.record_batch({"c": sliced_values(random, bs.array(values, data_type))}))
    values = [value for part in parts for value in part["c"].to_pylist()]
    present = sorted({value for value in values if value is not None})
    categories: Any = random.choice(["auto", own[:2], random.sample(own, len(own))])
    rows, indices, signature = read_rows(server, random, kind, parts, categories={"c": categories})
    assert signature["c"] == ((None,), np.dtype(np.int64))
    if values:
        codes = {value: code for code, value in enumerate(present if categories == "auto" else categories)}
        check(rows["c"], indices, [codes.get(value, len(codes)) for value in values])


def sliced_values(random: Random, array: bs.Array) -> bs.Array:
    """Return the same values as a slice of an array with some of them twice."""
    count = random.randrange(3)
    return bs.concat_arrays([array[:count], array]).slice(min(count, len(array)), len(array))
