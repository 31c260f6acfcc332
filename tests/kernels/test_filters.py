"""Filters in the form of pyarrow.parquet: every type, operator and encoding, with pyarrow and Python as judges."""

from __future__ import annotations

import datetime as dt
import io
import math
import operator
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings, strategies as st

import bowstring as bs
from bowstring import errors
from bowstring.kernels.filters import parse_filters
from bowstring_testing import strategies
from tests.cases import FLAT, Case

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
ORDERED = [case for case in FLAT if "interval" not in str(case.type) and str(case.type) != "null"]
UTC_NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


def column(values: list[Any], type_: Any = None) -> bs.Table:
    """Return a table of a column "a"."""
    return bs.table({"a": bs.array(values, type_)})


def matches(table: bs.Table, *filters: tuple[Any, ...]) -> list[Any]:
    """Return the values of the column "a" that match all filters."""
    values: list[Any] = table.filter(list(filters))["a"].to_pylist()
    return values


@settings(max_examples=150)
@given(data=st.data(), case=st.sampled_from(ORDERED), symbol=st.sampled_from(sorted(COMPARISONS)))
def test_every_ordered_type_compares_as_in_python(data: st.DataObject, case: Case, symbol: str) -> None:
    array = data.draw(strategies.arrays(case.type, max_size=20))
    values = array.to_pylist()
    # Nanoseconds that Python can't represent are NumPy's, which don't compare with those of Python.
    assume(len({type(value) for value in [*values, *case.values] if value is not None}) == 1)
    bound = data.draw(st.sampled_from([value for value in [*values, *case.values] if value is not None]))
    chosen = data.draw(st.lists(st.sampled_from([value for value in [*values, bound] if value is not None])))
    for each in (array, encode_as_dictionary(array), encode_runs(array)):
        table = bs.table({"a": each})
        mask = [value is not None and COMPARISONS[symbol](value, bound) for value in values]
        assert evaluate(table, ("a", symbol, bound)) == mask
        mask = [value is not None and value in chosen for value in values]
        if not any(value != value for value in chosen):
            assert evaluate(table, ("a", "in", chosen)) == mask
            mask = [value is not None and not isin for value, isin in zip(values, mask, strict=True)]
            assert evaluate(table, ("a", "not in", chosen)) == mask
        assert evaluate(table, ("a", "is null")) == [value is None for value in values]
        assert evaluate(table, ("a", "is not null")) == [value is not None for value in values]


def evaluate(table: bs.Table, *filters: tuple[Any, ...]) -> list[bool]:
    """Return which rows of a table of one batch match."""
    (batch,) = table.to_batches() or [bs.record_batch(table)]
    mask: list[bool] = parse_filters(list(filters), table.schema).evaluate(batch.columns).tolist()
    return mask


def encode_as_dictionary(array: bs.Array) -> bs.Array:
    return array.dictionary_encode()


def encode_runs(array: bs.Array) -> bs.Array:
    return array.run_end_encode()


JUDGED = [
    case
    for case in ORDERED
    if not any(
        word in str(case.type) for word in ("view", "decimal32", "decimal64", "decimal256", "halffloat", "date64")
    )
]


@settings(max_examples=150)
@given(data=st.data(), case=st.sampled_from(JUDGED), symbol=st.sampled_from([*sorted(COMPARISONS), "in"]))
def test_the_rows_are_those_of_pyarrow(data: st.DataObject, case: Case, symbol: str) -> None:
    array = data.draw(strategies.arrays(case.type, max_size=20))
    bound = data.draw(st.sampled_from([value for value in case.values if value is not None]))
    value = pa.scalar(bound, pa.array(array).type) if symbol != "in" else pa.array([bound], pa.array(array).type)
    expected = pa.table({"a": pa.array(array)}).filter(pq.filters_to_expression([("a", symbol, value)]))
    filtered = bs.table({"a": array}).filter([("a", symbol, bound if symbol != "in" else [bound])])
    assert filtered.equals(bs.table(expected), nans_equal=True)


INTEGERS = st.one_of(st.integers(-300, 300), st.integers(-(1 << 64), 1 << 64))
NUMBERS = st.one_of(
    INTEGERS,
    st.floats(allow_nan=False),
    st.floats(-300, 300, width=16),
    st.fractions(-300, 300, max_denominator=100),
    st.decimals(-300, 300, places=3),
)


@settings(max_examples=300)
@given(
    data=st.data(),
    type_=st.one_of(
        strategies.int_types(),
        strategies.decimal_types(),
        st.sampled_from([bs.float16(), bs.float32(), bs.float64()]),
    ),
    symbol=st.sampled_from(sorted(COMPARISONS)),
    bound=NUMBERS,
)
def test_numbers_of_other_types_compare_exactly(data: st.DataObject, type_: Any, symbol: str, bound: Any) -> None:
    array = data.draw(strategies.arrays(type_, max_size=20))
    exact_bound = bound if bound in (math.inf, -math.inf) else Fraction(bound)
    expected = [
        value is not None and COMPARISONS[symbol](value if isinstance(value, float) else Fraction(value), exact_bound)
        for value in array.to_pylist()
    ]
    assert evaluate(bs.table({"a": array}), ("a", symbol, bound)) == expected


@pytest.mark.parametrize("type_", ["int8", "uint64", "float32", "decimal32(3, 1)", "decimal256(40, 2)"])
def test_numbers_between_the_values_of_a_type_compare_exactly(type_: str) -> None:
    values = [value if "int" in type_ else Decimal(value) / 2 for value in (2, 3, 100)]
    table = column([float(value) for value in values] if type_ == "float32" else values, type_)
    bound = Fraction(values[0]) + Fraction(1, 10**12)
    for symbol, count in {"<": 1, "<=": 1, ">": 2, ">=": 2, "==": 0, "!=": 3}.items():
        assert len(matches(table, ("a", symbol, bound))) == count
    for symbol, count in {"<": 3, "<=": 3, ">": 0, ">=": 0, "==": 0, "!=": 3}.items():
        assert len(matches(table, ("a", symbol, 10**90))) == count
        assert len(matches(table, ("a", symbol, 10**400))) == count  # beyond Python's floats
        assert len(matches(table, ("a", symbol, -math.inf))) == (3 - count if symbol not in ("==", "!=") else count)


@pytest.mark.parametrize("type_", ["float16", "float32", "float64"])
def test_floats_compare_with_numbers_that_no_float_can_hold(type_: str) -> None:
    table = column([-math.inf, 1.5, math.inf], type_)
    for number in (10**400, Fraction(10**400)):
        assert matches(table, ("a", "<", number)) == [-math.inf, 1.5]
        assert matches(table, ("a", ">=", -number)) == [1.5, math.inf]
        assert matches(table, ("a", "in", [number, -number])) == []
    assert matches(table, ("a", "<", Decimal("sNaN"))) == []


@given(data=st.data(), symbol=st.sampled_from(sorted(COMPARISONS)))
def test_times_finer_than_the_columns_unit_compare_exactly(data: st.DataObject, symbol: str) -> None:
    unit = data.draw(strategies.units)
    array = data.draw(strategies.arrays(bs.timestamp(unit), max_size=10))
    bound = data.draw(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1)))
    nanoseconds = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    bound_ns = (bound - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000
    units = pa.array(array).cast(pa.int64()).to_pylist()
    expected = [each is not None and COMPARISONS[symbol](each * nanoseconds, bound_ns) for each in units]
    assert evaluate(bs.table({"a": array}), ("a", symbol, bound)) == expected


@pytest.mark.parametrize("type_name", ["date32", "date64"])
@pytest.mark.parametrize("symbol", sorted(COMPARISONS))
@pytest.mark.parametrize("make", [lambda moment: moment, pd.Timestamp])
def test_a_date_is_compared_with_a_datetime_as_its_midnight(type_name: str, symbol: str, make: Any) -> None:
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]
    for moment in (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 2)):
        expected = [day for day in days if COMPARISONS[symbol](dt.datetime.combine(day, dt.time()), moment)]
        assert matches(column(days, type_name), ("a", symbol, make(moment))) == expected
    noons = [make(dt.datetime(2020, 1, 1, 12)), make(dt.datetime(2020, 1, 2))]
    assert matches(column(days, type_name), ("a", "in", noons)) == days[1:]
    assert matches(column(days, type_name), ("a", "not in", noons)) == days[:1]


def test_views_of_overlapping_parts_of_a_text_are_compared() -> None:
    text = b"the quick brown fox jumps"
    parts = [(0, 20), (4, 20), (4, 21), (0, 20)]
    views = [
        b"".join((size.to_bytes(4, "little"), text[start : start + 4], bytes(4), start.to_bytes(4, "little")))
        for start, size in parts
    ]
    array = bs.Array.from_buffers(bs.string_view(), len(parts), [None, b"".join(views), text])
    values = array.to_pylist()
    for symbol, compare in COMPARISONS.items():
        for bound in (values[1], values[1][:-1], "r"):
            assert evaluate(bs.table({"a": array}), ("a", symbol, bound)) == [compare(each, bound) for each in values]


@pytest.mark.parametrize("encode", [bs.Array.compact, encode_as_dictionary, encode_runs])
def test_every_byte_but_zero_is_true(encode: Callable[[bs.Array], bs.Array]) -> None:
    bytes_ = bs.array([0, 1, 2, -1, None], "int8")
    values = bytes_.cast(bs.datatypes.bool8()).to_pylist()
    table = bs.table({"a": encode(bytes_.cast(bs.datatypes.bool8()))})
    for value in (False, True):
        for symbol, compare in COMPARISONS.items():
            expected = [each is not None and compare(each, value) for each in values]
            assert evaluate(table, ("a", symbol, value)) == expected
        assert evaluate(table, ("a", "in", [value])) == [each == value for each in values]
        assert evaluate(table, ("a", "not in", [value])) == [each == (not value) for each in values]
    assert evaluate(table, ("a", "is null")) == [False, False, False, False, True]
    assert evaluate(table, ("a", "in", [])) == [False] * 5


def test_values_of_related_types_are_accepted() -> None:
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]
    assert matches(column(days), ("a", ">", dt.datetime(2020, 1, 1, 12))) == days[1:]
    moments = [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]
    assert matches(column(moments, "timestamp[ns]"), ("a", "<=", days[0])) == moments[:1]
    assert matches(column(moments, "timestamp[s]"), ("a", "=", np.datetime64("2020-01-02", "ns"))) == moments[1:]
    noon = [UTC_NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))]
    assert len(matches(column([UTC_NOON], bs.timestamp("us", "Europe/Paris")), ("a", "in", noon))) == 1
    assert matches(column([0.5, 1.5], "float32"), ("a", "<", np.float64(0.6))) == [0.5]
    assert matches(column([1, 2]), ("a", "in", np.array([2, 3]))) == [2]
    durations = [dt.timedelta(seconds=1), dt.timedelta(seconds=2)]
    assert matches(column(durations, "duration[s]"), ("a", ">", np.timedelta64(1_500_000_000, "ns"))) == durations[1:]
    assert matches(column(["x", "y"]), ("a", "in", {"y"})) == ["y"]
    identifiers = [uuid.UUID(int=4), uuid.UUID(int=5)]
    assert matches(column(identifiers, bs.datatypes.uuid()), ("a", "==", identifiers[1])) == identifiers[1:]


def test_nan_matches_only_unequal_and_in() -> None:
    table = column([math.nan, 1.0, None])
    for symbol in ("==", "<", ">", "<=", ">="):
        assert matches(table, ("a", symbol, math.nan)) == []
        assert "nan" not in str(matches(table, ("a", symbol, 1.0)))
    assert str(matches(table, ("a", "!=", 1.0))) == "[nan]"
    assert str(matches(table, ("a", "in", [math.nan]))) == "[nan]"
    assert str(matches(table, ("a", "in", [Decimal("NaN")]))) == str(matches(table, ("a", "in", [Decimal("sNaN")])))
    assert matches(table, ("a", "not in", [math.nan])) == [1.0]
    for condition in (("a", "in", [math.nan]), ("a", "==", math.nan), ("a", "!=", math.nan)):
        expected = pa.table(table).filter(pq.filters_to_expression([condition]))["a"].to_pylist()
        assert str(matches(table, condition)) == str(expected)
    assert matches(column([-0.0]), ("a", "==", 0.0), ("a", "in", [0.0])) == [0.0]


def test_lists_of_tuples_are_and_and_lists_of_lists_are_or() -> None:
    table = bs.table({"a": [1, 2, 3, None], "b": ["x", "y", None, "x"]})
    both: list[tuple[Any, ...]] = [("a", ">", 1), ("b", "==", "y")]
    assert table.filter(both).to_pylist() == [{"a": 2, "b": "y"}]
    assert table.filter([both, [("a", "is null")]])["a"].to_pylist() == [2, None]
    assert table.filter((("a", ">", 1),))["a"].to_pylist() == [2, 3]
    assert table.to_batches()[0].filter(both).to_pylist() == [{"a": 2, "b": "y"}]


def test_batches_without_matches_are_dropped() -> None:
    table = bs.Table.from_batches([bs.record_batch({"a": [1, 2]}), bs.record_batch({"a": [3]})])
    assert [batch.num_rows for batch in table.filter([("a", ">", 2)]).to_batches()] == [1]
    assert table.filter([("a", "<", 5)]).to_batches()[0] is table.to_batches()[0]
    assert table.filter([("a", ">", 5)]).num_rows == 0
    assert bs.Table(table.schema).filter([("a", ">", 5)]).num_rows == 0


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        ([("a", "~", 5)], errors.InvalidArgumentError, r"\('a', '~', 5\): expected one of the operators ==, !="),
        ([("a", ">")], errors.InvalidArgumentError, "expected a value after '>'"),
        ([("a", "is null", None)], errors.InvalidArgumentError, "expected no value after 'is null'"),
        ([("a", ">", None)], errors.InvalidArgumentError, "use 'is null' or 'is not null'"),
        ([("a", "in", [1, None])], errors.InvalidArgumentError, "use 'is null'"),
        ([("a", "in", 5)], errors.InvalidArgumentError, "expected a list of values after 'in'"),
        ([("a", "in", "5")], errors.InvalidArgumentError, "expected a list of values after 'in'"),
        ([("c", ">", 5)], errors.NotFoundError, r"filter \('c', '>', 5\): no column is called 'c'; there are 'a'"),
        ([("a", ">", "5")], errors.TypeMismatchError, r"filter \('a', '>', '5'\): .*'5'.*int64"),
        ([("a", ">", True)], errors.TypeMismatchError, "True"),
        ([("a", ">", math.nan)], errors.TypeMismatchError, "NaN can't be compared with int64"),
        ([("a", ">", np.timedelta64(5, "ns"))], errors.TypeMismatchError, "timedelta64 is not a number type"),
        ([("b", "==", [1])], errors.TypeMismatchError, "have no order: only 'is null' and 'is not null'"),
        ([["a", ">", 5]], errors.InvalidArgumentError, "expected a name, an operator and a value"),
        ([()], errors.InvalidArgumentError, "expected a name, an operator and a value"),
        ([[]], errors.InvalidArgumentError, "expected a list of tuples"),
        ([[("a", ">", 5)], ("a", ">", 5)], errors.InvalidArgumentError, "expected a name"),
    ],
)
def test_malformed_filters_are_rejected(filters: Any, error: type[Exception], message: str) -> None:
    table = bs.table({"a": [1], "b": [[1]]})
    with pytest.raises(error, match=message):
        table.filter(filters)


def test_null_tests_work_for_types_without_order() -> None:
    table = bs.table({"a": [[1], None], "b": [{"c": 1}, None]})
    assert table.filter([("a", "is null"), ("b", "is null")]).num_rows == 1


# Statistics


def open_with_statistics(*batches: bs.RecordBatch) -> bs.ipc.FileReader:
    """Return a reader of a file with statistics."""
    sink = io.BytesIO()
    with bs.new_file(sink, batches[0].schema) as writer:
        writer.enable_statistics()
        for batch in batches:
            writer.write(batch)
    return bs.open_file(sink.getvalue())


@settings(max_examples=150)
@given(
    data=st.data(),
    case=st.sampled_from([*FLAT, Case(bs.string(), ["a" * 70, "a" * 64 + "b"])]),
    symbol=st.sampled_from([*sorted(COMPARISONS), "in", "not in", "is null", "is not null"]),
)
def test_batches_that_statistics_exclude_have_no_matching_rows(data: st.DataObject, case: Case, symbol: str) -> None:
    arrays = data.draw(st.lists(strategies.arrays(case.type, max_size=4), min_size=1, max_size=4))
    candidates = [value for array in arrays for value in array.to_pylist()] + case.values
    bounds = [value for value in candidates if value is not None]
    condition: Any = ("a", symbol)
    if not symbol.startswith("is "):
        assume(bounds and "interval" not in str(case.type))
        bound = data.draw(st.sampled_from(bounds))
        condition = ("a", symbol, bound if symbol in COMPARISONS else [bound])
    reader = open_with_statistics(*(bs.record_batch({"a": array}) for array in arrays))
    filters = parse_filters([condition], reader.schema)
    assert reader.statistics is not None
    may_match = reader.statistics.may_match(filters)
    for batch, is_candidate in zip(reader, may_match.tolist(), strict=True):
        assert is_candidate or not filters.evaluate(batch.columns).any()


def test_statistics_exclude_every_batch_that_they_can() -> None:
    batches = [
        bs.record_batch({"a": bs.array(values, "int64")}) for values in ([1, 2], [3, 3], [4, None], [None, None])
    ]
    reader = open_with_statistics(*batches)
    assert reader.statistics is not None
    expected: dict[tuple[Any, ...], str] = {
        ("a", "<", 2): "1000",
        ("a", "<=", 0.5): "0000",
        ("a", ">", 3.5): "0010",
        ("a", ">=", 3): "0110",
        ("a", "==", 3): "0100",
        ("a", "==", 3.5): "0000",
        ("a", "!=", 3): "1010",
        ("a", "in", (2, 4)): "1010",
        ("a", "not in", (3,)): "1010",
        ("a", "is null"): "0011",
        ("a", "is not null"): "1110",
    }
    for condition, digits in expected.items():
        mask = reader.statistics.may_match(parse_filters([condition], reader.schema))
        assert "".join(map(str, map(int, mask))) == digits, condition
    either = parse_filters([[("a", "<", 2), ("a", "is null")], [("a", ">", 3)]], reader.schema)
    assert reader.statistics.may_match(either).tolist() == [False, False, True, False]


def test_nan_is_in_no_bounds() -> None:
    batches = [bs.record_batch({"a": values}) for values in ([math.nan, 1.0], [math.nan, math.nan], [2.0, 2.0])]
    reader = open_with_statistics(*batches)
    assert reader.statistics is not None
    expected = {("!=", 1.0): "111", ("==", 1.0): "100", ("<", 5.0): "101", ("not in", (2.0,)): "111"}
    expected |= {("in", (math.nan,)): "111", ("in", (2.0,)): "001"}
    for condition, digits in expected.items():
        mask = reader.statistics.may_match(parse_filters([("a", *condition)], reader.schema))
        assert "".join(map(str, map(int, mask))) == digits, condition


def test_malformed_columns_are_errors() -> None:
    broken = bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 9, 3], np.int32), b"abc"])
    with pytest.raises(errors.InvalidDataError, match="offsets"):
        bs.table({"a": broken}).filter([("a", "==", "b")])
