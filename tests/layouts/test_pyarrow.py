"""pyarrow builds the same values from the same Python objects and accepts Bowstring's arrays as valid."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from tests.cases import CASES, Case

# pyarrow's Python API lacks two interval types, and cannot build unions, runs and dictionaries of lists from values.
SUPPORTED_CASES = [case for case in CASES if str(case) not in ("month_interval", "day_time_interval")]
BUILDABLE_CASES = [
    case for case in SUPPORTED_CASES if not any(word in str(case) for word in ("union", "run_end", "values=list"))
]


def pyarrow_type(type_: bs.DataType) -> pa.DataType:
    return pa.field(bs.field("", type_)).type


@pytest.mark.parametrize("case", SUPPORTED_CASES, ids=str)
def test_pyarrow_accepts_our_arrays_as_valid(case: Case) -> None:
    for array in (case.array(), case.array().slice(1), bs.concat_arrays([case.array()] * 3).slice(1, 3)):
        pyarrow_array = pa.array(array)
        pyarrow_array.validate(full=True)
        assert len(pyarrow_array) == array.length
        assert bs.array(pyarrow_array).equals(array)


def comparable(value: Any) -> Any:
    """Return a value without what the libraries represent differently: timestamps, named tuples, time zones."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(value.astype(np.int64))
    if isinstance(value, datetime) and value.tzinfo:
        return value.timestamp()
    return tuple(map(comparable, value)) if isinstance(value, tuple) else value


def python_values(values: list[Any]) -> list[Any]:
    return [value for value in values if not isinstance(value, np.datetime64 | np.timedelta64)]


@pytest.mark.parametrize("case", BUILDABLE_CASES, ids=str)
def test_pyarrow_builds_the_same_values(case: Case) -> None:
    values = python_values(case.values)
    pyarrow_array = pa.array(values, pyarrow_type(case.type))
    bowstring_array = bs.array(values, case.type)
    assert comparable(bowstring_array.to_pylist()) == comparable(pyarrow_array.to_pylist())
    assert bowstring_array.equals(bs.array(pyarrow_array))
    assert bowstring_array.null_count == pyarrow_array.null_count


@pytest.mark.parametrize(
    "values",
    [
        [None, None],
        [True, None],
        [1, None, -5],
        [1, 2.5],
        ["a", None, "ü"],
        [b"a", None],
        [date(2020, 1, 1), None],
        [datetime(2020, 1, 1, 2, 3, 4, 5)],
        [timedelta(seconds=1)],
        [Decimal("1.50"), Decimal(12)],
        [[1, None], None, []],
        [["a"], [None]],
        [{"a": 1, "b": "x"}, None, {"b": None}],
        [[{"x": [1.5]}]],
        [np.float64(1.5), None],
        [],
    ],
    ids=repr,
)
def test_the_type_is_inferred_like_in_pyarrow(values: list[Any]) -> None:
    assert str(bs.array(values).type) == str(pa.array(values).type)
