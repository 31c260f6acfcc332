"""pyarrow makes the same values of the same Python objects, and checks what we made."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.testing.cases import CASES, Case

# What pyarrow's Python side lacks: two of the intervals altogether, unions, runs and dictionaries of lists from values.
KNOWN = [case for case in CASES if str(case) not in ("month_interval", "day_time_interval")]
MADE = [case for case in KNOWN if not any(word in str(case) for word in ("union", "run_end", "values=list"))]


def peer_type(type_: bs.DataType) -> pa.DataType:
    return pa.field(bs.field("", type_)).type


@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_pyarrow_takes_our_arrays_for_sound(case: Case) -> None:
    for array in (case.array(), case.array().slice(1), bs.concat_arrays([case.array()] * 3).slice(1, 3)):
        theirs = pa.array(array)
        theirs.validate(full=True)
        assert len(theirs) == array.length
        assert bs.array(theirs).equals(array)


def plain(value: Any) -> Any:
    """Values without what the two libraries show differently: pandas' and NumPy's moments, named tuples, zones."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(value.astype(np.int64))
    if isinstance(value, datetime) and value.tzinfo:
        return value.timestamp()
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def python_values(values: list[Any]) -> list[Any]:
    return [value for value in values if not isinstance(value, np.datetime64 | np.timedelta64)]


@pytest.mark.parametrize("case", MADE, ids=str)
def test_pyarrow_makes_the_same_values(case: Case) -> None:
    values = python_values(case.values)
    theirs = pa.array(values, peer_type(case.type))
    ours = bs.array(values, case.type)
    assert plain(ours.to_pylist()) == plain(theirs.to_pylist())
    assert ours.equals(bs.array(theirs))
    assert ours.null_count == theirs.null_count


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
def test_the_type_is_inferred_as_pyarrow_infers_it(values: list[Any]) -> None:
    assert str(bs.array(values).type) == str(pa.array(values).type)
