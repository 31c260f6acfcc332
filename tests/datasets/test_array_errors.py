"""Errors that name the values that do not fit, malformed parts, and options that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart, EpochReader
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError, TypeMismatchError
from bowstring.sharing.server.server import Server
from tests.datasets.array_values import sliced, vector_array
from tests.kernels.ml_values import VECTOR_TYPE

PART_ROWS = (9, 1, 14)
NULL = "found null: use fill_null or validity_suffix"
DECIMAL = bs.decimal128(38, 2)
VECTOR = (1, None, None, [1.0, 2.0])


def decimals(values: list[Any]) -> bs.Array:
    return bs.array([None if value is None else str(value) for value in values]).cast(DECIMAL)


# A good value, a bad one, the type or how an array is made, options, the text of the error.
CASES: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (1, 2**31, bs.int64(), {"dtypes": "int32"}, "2147483648 is not within int32"),
    (1, -1, bs.int64(), {"dtypes": "uint64"}, "-1 is not within uint64"),
    (1, 2**64 - 1, bs.uint64(), {"dtypes": "int64"}, "18446744073709551615 is not within int64"),
    (1, 70_000, bs.int32(), {"dtypes": "float16"}, "70000 is beyond float16"),
    (1, -1e39, bs.float64(), {"dtypes": "float32"}, "-1e+39 is beyond float32"),
    (1, 70_000, bs.float32(), {"dtypes": "float16"}, "70000.0 is beyond float16"),
    (1, float("nan"), bs.float64(), {"dtypes": "int64"}, "nan is not within int64"),
    (1, float("inf"), bs.float32(), {"dtypes": {"x": "int8"}}, "inf is not within int8"),
    (1, 2.0**63, bs.float64(), {"dtypes": "int64"}, "9.223372036854776e+18 is not within int64"),
    (1, 1.5, bs.float16(), {"dtypes": "int8"}, "1.5 is not within int8"),
    (1, "1.5", decimals, {"dtypes": "int8"}, "1.50 is not within int8"),
    (1, 300, decimals, {"dtypes": "int8"}, "300 is not within int8"),
    (1, 10**30, decimals, {"dtypes": "int64", "fill_null": 0}, f"{10**30}.00 is not within int64"),
    (1, -1, decimals, {"dtypes": "uint64"}, "-1.00 is not within uint64"),
    (0, 2**62, bs.timestamp("us"), {"dtypes": {"x": "M8[ns]"}}, "is not within datetime64[ns]"),
    (0, 1, bs.duration("ms"), {"dtypes": {"x": "m8[s]"}}, "1 milliseconds is not within timedelta64[s]"),
    (1, None, bs.int8(), {}, NULL),
    (1, None, bs.float64(), {"fill_null": {}}, NULL),
    (1, None, bs.dictionary(bs.int8(), bs.int64()), {}, NULL),
    (1, None, bs.run_end_encoded(bs.int32(), bs.int64()), {}, NULL),
    ([1], None, bs.list_(bs.int8()), {}, NULL),
    ([1], [None], bs.list_(bs.int8()), {}, NULL),
    ([1, 2], [1], bs.list_(bs.int8()), {"shapes": {"x": (2,)}}, "expected 2 elements, found 1"),
    ([1, 2], [1, 2, 3], bs.large_list_view(bs.int8()), {"shapes": {"x": (2, 1)}}, "expected 2 elements, found 3"),
    ([[1], [2]], [[1], [2, 3]], bs.list_(bs.list_(bs.int8())), {"shapes": {"x": (2, 1)}}, "expected 1 elements"),
    ([[1], [2]], [[1], None], bs.list_(bs.list_(bs.int8(), 1)), {"shapes": {"x": (2, 1)}}, NULL),
    ([[], [1]], [[1], [300]], bs.list_(bs.list_(bs.int64())), {"dtypes": "int8"}, "300 is not within int8"),
    ([[], [1, 2]], [[1, 2], [3, 300]], bs.list_(bs.list_(bs.int64())), {"dtypes": "uint8"}, "300 is not within uint8"),
    ([[1, 2]], [[1, 2], [3, 300]], bs.list_(bs.list_(bs.int64(), 2)), {"dtypes": "uint8"}, "300 is not within uint8"),
    ([[1]], [[1], None], bs.list_(bs.list_(bs.int64())), {"pad": {}}, NULL),
    ([1, 2], [1, 300], bs.list_(bs.int64()), {"features": {"f": ["x"]}, "shapes": {"x": 2}, "dtypes": {"f": "int8"}},
     "300 is not within int8"),
    (VECTOR, None, VECTOR_TYPE, {}, NULL),
    (VECTOR, (1, None, None, [1.0]), VECTOR_TYPE, {"shapes": {"x": 2}}, "expected 2 elements, found 1"),
    (VECTOR, (0, 3, [], []), VECTOR_TYPE, {"shapes": {"x": 2}}, "expected 2 elements, found 3"),
    (VECTOR, (0, 2, [2], [1.0]), VECTOR_TYPE, {}, "the index 2 is not below 2"),
    (VECTOR, (0, 2, [-1], [1.0]), VECTOR_TYPE, {"shapes": {"x": (2,)}}, "the index -1 is not below 2"),
    (VECTOR, (0, 2, [0, 1], [1.0]), VECTOR_TYPE, {}, "has 2 indices and 1 values"),
    (VECTOR, (0, -2, [], []), VECTOR_TYPE, {}, "the size -2 is negative"),
    (VECTOR, (0, None, [], []), VECTOR_TYPE, {}, "size: found null"),
    (VECTOR, (1, None, None, [1e300, 0.0]), VECTOR_TYPE, {"dtypes": "float32"}, "1e+300 is beyond float32"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[4]}"[:40])
def test_a_value_that_does_not_fit_is_named_by_its_part_column_and_row(server: Server, case: Any) -> None:
    good, bad, data_type, options, text = case
    for seed in range(4):
        random = Random(seed)
        part, parts = random.choice([0, 2]), []
        row = random.randrange(PART_ROWS[part])
        for index, rows in enumerate(PART_ROWS):
            values = [good] * rows
            if index == part:
                values[row] = bad
            array = data_type(values) if callable(data_type) else create(values, data_type)
            parts.append(bs.record_batch({"x": sliced_copies(random, array), "y": range(rows)}))
        table = bs.Table(parts[0].schema, parts)
        locations = [server.add(f"part {len(server.names)}", bs.Table(table.schema, [each])) for each in parts]
        sizes = zip(PART_ROWS, locations, strict=True)
        dataset = Dataset("rows", table.schema, [DatasetPart(rows, 100, (uri,)) for rows, uri in sizes])
        for end in ("keep", "pad"):
            reader = EpochReader(dataset, 5, seed=random.choice([None, seed]), end=end)
            message = f"data set 'rows': part {part}: column 'x': row {row}: "
            with pytest.raises(InvalidDataError, match=f"^{re.escape(message)}.*{re.escape(text)}"):
                list(reader.to_numpy(**options))
        row += sum(PART_ROWS[:part])
        with pytest.raises(InvalidDataError, match=f"^column 'x': row {row}: .*{re.escape(text)}"):
            list(EpochReader(table, 7, seed=seed).to_numpy(**options))


def test_a_value_that_does_not_fit_into_a_feature_is_named_by_its_row_in_any_block_of_batches() -> None:
    num_rows = 1 << 17
    values = np.zeros(num_rows, np.int64)
    for row in (0, 70_000, num_rows - 1):
        values[row] = 1000
        reader = EpochReader(bs.table({"x": values, "y": np.zeros(num_rows)}), 1 << 14, seed=1)
        with pytest.raises(InvalidDataError, match=f"^column 'x': row {row:,}: 1000 is not within int8"):
            list(reader.to_numpy(features={"f": ["y", "x"]}, dtypes={"f": "int8"}))
        values[row] = 0


def create(values: list[Any], data_type: bs.DataType) -> bs.Array:
    if "timestamp" in str(data_type) or "duration" in str(data_type):
        return bs.array(values, bs.int64()).cast(data_type)
    return bs.array(values, data_type)


def sliced_copies(random: Random, array: bs.Array) -> bs.Array:
    """Return the same values as a slice of longer ones."""
    count = random.randrange(3)
    return bs.concat_arrays([array[:count], array, array[:1]]).slice(min(count, len(array)), len(array))


def test_an_integer_that_float32_does_not_have_is_rounded_as_numpy_does() -> None:
    numbers = [2**24 + 1, 2**53 + 1, -(2**63)]
    (batch,) = EpochReader(bs.table({"x": numbers}), 3).to_numpy(dtypes="float32")
    assert batch["x"].tolist() == np.array(numbers).astype("float32").tolist()
    (batch,) = EpochReader(bs.table({"x": [float("inf"), -float("inf"), 1e-300]}), 3).to_numpy(dtypes="float32")
    assert batch["x"].tolist() == [np.inf, -np.inf, 0.0]


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
@pytest.mark.parametrize(
    ("data_type", "bounds"),
    [
        (bs.list_(bs.int8()), ((3, 3),)),
        (bs.list_(bs.int8()), ((1 << 47, 1 << 47),)),
        (bs.list_(bs.int8()), ((1 << 62, 1 << 62),)),
        (bs.list_(bs.int8()), ((-1, -1),)),
        (bs.list_(bs.int8()), ((2, 2), (2, 2))),
        (bs.list_(bs.list_(bs.int8())), ((2, 2), (1, 1))),
        (bs.list_(bs.list_(bs.int8())), ((2, 2), (1 << 62, 1 << 62))),
        (bs.list_(bs.list_(bs.int8())), ((1 << 40, 1 << 40), (1 << 40, 1 << 40))),
        (VECTOR_TYPE, ((3, 3),)),
        (VECTOR_TYPE, ((1 << 62, 1 << 62),)),
    ],
    ids=str,
)
def test_lists_of_other_lengths_than_recorded_are_errors(data_type: Any, bounds: Any, scheme: str) -> None:
    values: list[Any] = [[1, 2], [3, 4]]
    if data_type == VECTOR_TYPE:
        values = [VECTOR, VECTOR]
    elif data_type != bs.list_(bs.int8()):
        values = [[[1], [2, 3]], [[1, 2], [3]]]
    for rows in (values, [None, None], [None, *values]):
        table = bs.table({"y": [1] * len(rows), "x": bs.array(rows, data_type)})
        with bs.serve({"t": table}, scheme=scheme) as server:
            part = DatasetPart(len(rows), 100, (server.uri("t"),), None, ((1, bounds),))
            dataset = Dataset("rows", table.schema, [DatasetPart(0, 0, ()), part])
            for seed in (None, 1):
                reader = EpochReader(dataset, 2, seed=seed)
                if rows == [None, None] and (data_type == VECTOR_TYPE or bounds in (((3, 3),), ((2, 2), (1, 1)))):
                    continue
                with pytest.raises(InvalidDataError, match=r"'x'.*(expected|exceeds|found|too long)"):
                    list(reader.to_numpy(fill_null=7))


@given(st.integers(0, 1 << 32))
def test_vectors_with_random_fields_are_read_or_named(seed: int) -> None:
    random = Random(seed)
    rows = [
        random.choice([None, VECTOR, (0, 2, [0], [1.0]), (0, 2, [5], [1.0]), (0, 2, [], [1.0]), (1, None, None, None)])
        for _ in range(6)
    ]
    array = sliced(random, vector_array(rows)) if random.random() < 0.5 else vector_array(rows)
    is_wrong = [row is not None and row[2:] in (([5], [1.0]), ([], [1.0]), (None, None)) for row in rows]
    reader = EpochReader(bs.table({"x": array}), 6)
    if any(is_wrong):
        with pytest.raises(InvalidDataError, match=r"^column 'x': row \d: ") as caught:
            list(reader.to_numpy(fill_null=0))
        assert is_wrong[int(re.findall(r"row (\d)", str(caught.value))[0])]
    else:
        list(reader.to_numpy(fill_null=0))


def test_malformed_buffers_are_named_by_part_and_column() -> None:
    offsets = np.array([0, 2, 1, 4], np.int32).tobytes()
    lists = bs.Array.from_buffers(bs.list_(bs.int8()), 3, [None, offsets], [bs.array([1, 2, 3, 4], bs.int8())])
    words = bs.Array.from_buffers(
        bs.dictionary(bs.int8(), bs.int32()), 3, [None, b"\0\1\7"], [], bs.array([1, 2], bs.int32())
    )
    for array, text in ((lists, r"offsets\[2\] = 1 is less than offsets\[1\] = 2"), (words, r"indices\[2\] = 7")):
        table = bs.table({"y": [1, 2, 3], "x": array})
        for seed in (None, 1):
            with pytest.raises(InvalidDataError, match=f"^column 'x': {text}"):
                list(EpochReader(table, 3, seed=seed).to_numpy())


TABLE = {
    "i": [1, None],
    "s": ["a", "b"],
    "l": [[1, 2], [3]],
    "d": [[1, 2], [3, 4]],
    "m": [[[1], [2]], [[3], [4]]],
}
OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dtype": "int8"}, NotFoundError, "options: there is no option 'dtype'; did you mean 'dtypes'?"),
    ({"columns": ["ii"]}, NotFoundError, "columns: there is no column 'ii'; did you mean 'i'?"),
    ({"columns": "i"}, InvalidArgumentError, "columns: expected a list of names, found 'i'"),
    ({"columns": [0]}, NotFoundError, "columns: there is no column 0"),
    ({"columns": [["i"]]}, NotFoundError, "columns: there is no column ['i']"),
    ({"columns": ["i", "s", "i"]}, InvalidArgumentError, "columns: column 'i' is named twice"),
    ({"dtypes": {"ii": "int8"}}, NotFoundError, "dtypes: there is no column 'ii'; did you mean 'i'?"),
    ({"dtypes": "flot32"}, InvalidArgumentError, "dtypes: column 'i': 'flot32' is not a type of numbers"),
    ({"dtypes": ["int8"]}, InvalidArgumentError, "dtypes: column 'i': ['int8'] is not a type of numbers"),
    ({"dtypes": "V8"}, InvalidArgumentError, "dtypes: column 'i': 'V8' is not a type of numbers"),
    ({"dtypes": "i4,i4"}, InvalidArgumentError, "dtypes: column 'i': 'i4,i4' is not a type of numbers"),
    ({"dtypes": "complex64"}, InvalidArgumentError, "dtypes: column 'i': 'complex64' is not a type of numbers"),
    ({"dtypes": {"i": "M8[s]"}}, TypeMismatchError, "dtypes: column 'i': int64 is not converted to datetime64[s]"),
    ({"dtypes": {"s": "int8"}}, InvalidArgumentError, "dtypes: column 's' is string, not numbers"),
    ({"fill_null": {"ii": 0}}, NotFoundError, "fill_null: there is no column 'ii'; did you mean 'i'?"),
    ({"fill_null": "a"}, TypeMismatchError, "fill_null: column 'i': 'a' is not within int64"),
    ({"fill_null": 1.5}, TypeMismatchError, "fill_null: column 'i': 1.5 is not within int64"),
    ({"fill_null": [1, 2]}, TypeMismatchError, "fill_null: column 'i': [1, 2] is not within int64"),
    ({"fill_null": {"s": "x"}}, InvalidArgumentError, "fill_null: column 's' is string, not numbers"),
    ({"validity_suffix": 5}, InvalidArgumentError, "validity_suffix: expected a string, found 5"),
    ({"validity_suffix": ""}, InvalidArgumentError, "a batch would have 2 columns 'i'"),
    ({"shapes": {"x": 2}}, NotFoundError, "shapes: there is no column 'x'"),
    ({"shapes": (2,)}, InvalidArgumentError, "shapes: expected a dictionary by column, found (2,)"),
    ({"shapes": {"i": (2,)}}, InvalidArgumentError, "shapes: column 'i': int64 is not a list of numbers"),
    ({"shapes": {"s": (2,)}}, InvalidArgumentError, "shapes: column 's' is string, not numbers"),
    ({"shapes": {"l": ()}}, InvalidArgumentError, "shapes: column 'l': expected a tuple of lengths, found ()"),
    ({"shapes": {"l": (-1,)}}, InvalidArgumentError, "shapes: column 'l': expected an integer of 0 or more, found -1"),
    ({"shapes": {"m": (2,)}}, InvalidArgumentError, "shapes: column 'm': expected 2 dimensions, found (2,)"),
    ({"shapes": {"l": (2,)}, "pad": {"l": 0}}, InvalidArgumentError, "pad: column 'l' is list<item: int64>: expected"),
    ({"pad": {"ll": 0}}, NotFoundError, "pad: there is no column 'll'; did you mean 'l'?"),
    ({"pad": {"i": 0}}, InvalidArgumentError, "pad: column 'i' is int64: expected lists of different lengths"),
    ({"pad": {"m": 0}}, InvalidArgumentError, "pad: column 'm' is list<item: list<item: int64>>: expected lists"),
    ({"pad": {"l": None}}, TypeMismatchError, "pad: column 'l': None is not within int64"),
    ({"pad": {"l": [0, 3]}}, TypeMismatchError, "pad: column 'l': [0, 3] is not within int64"),
    ({"pad": {"l": (0, -1)}}, InvalidArgumentError, "pad: column 'l': expected an integer of 0 or more, found -1"),
    ({"pad": {"l": 0}, "columns": ["i"]}, InvalidArgumentError, "pad: column 'l' is not among the columns of a batch"),
    ({"categories": {"ss": "auto"}}, NotFoundError, "categories: there is no column 'ss'; did you mean 's'?"),
    ({"categories": {"s": ["a", "a"]}}, InvalidArgumentError, "categories: column 's': expected distinct values"),
    ({"categories": {"s": ["a", None]}}, InvalidArgumentError, "categories: column 's': expected distinct values"),
    ({"categories": {"s": ["a", 1]}}, TypeMismatchError, "categories: column 's': value 1: 1 cannot be converted"),
    (
        {"categories": {"s": "abc"}},
        InvalidArgumentError,
        "categories: column 's': expected a list of values or \"auto\"",
    ),
    ({"categories": {"s": 5}}, InvalidArgumentError, "categories: column 's': expected a list of values or \"auto\""),
    ({"categories": {"l": "auto"}}, TypeMismatchError, "categories: column 'l': values of list<item: int64> have no"),
    ({"categories": {"i": [1]}, "dtypes": {"i": "int8"}}, InvalidArgumentError, "dtypes: column 'i' has categories"),
    ({"categories": {"i": [1]}, "fill_null": {"i": 1}}, InvalidArgumentError, "fill_null: column 'i' has categories"),
    ({"categories": {"i": [1]}, "pad": {"i": 1}}, InvalidArgumentError, "pad: column 'i' has categories"),
    ({"features": {"f": ["ii"]}}, NotFoundError, "features: 'f': there is no column 'ii'; did you mean 'i'?"),
    ({"features": {"f": "i"}}, InvalidArgumentError, "features: 'f': expected a list of names, found 'i'"),
    ({"features": {"f": []}}, InvalidArgumentError, "features: 'f' has no columns"),
    ({"features": {"f": ["i", "i"]}}, InvalidArgumentError, "features: 'f': column 'i' is named twice"),
    ({"features": {"f": ["s"]}}, InvalidArgumentError, "features: 'f': column 's' is string: expected numbers"),
    ({"features": {"f": ["l"]}}, InvalidArgumentError, "features: 'f': column 'l' is list<item: int64>: expected"),
    ({"features": {"s": ["i"]}}, InvalidArgumentError, "a batch would have 2 columns 's'"),
    ({"transform": 5}, InvalidArgumentError, "transform: expected a function, found 5"),
]


@pytest.mark.parametrize(("options", "error", "text"), OPTIONS, ids=lambda value: str(value)[:50])
def test_options_that_do_not_fit_are_errors(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(text)}"):
        EpochReader(bs.table(TABLE), 2).to_numpy(**options)


def test_an_error_of_a_transform_passes_to_the_loop() -> None:
    def fail(_batch: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(EpochReader(bs.table({"x": [1]}), 1).to_numpy(transform=fail))
