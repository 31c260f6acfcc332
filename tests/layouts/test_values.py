"""Operations of every layout on values of every type: conversion, indexing, slicing, concatenation, display."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import bowstring as bs
from tests.cases import CASES, Case
from tests.parameter_ids import parameter_id

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def slice_bounds(length: int) -> Iterator[tuple[int, int]]:
    return ((start, stop) for start in range(length + 1) for stop in range(start, length + 1))


def buffers_of(array: bs.Array) -> Iterator[bs.memory.Buffer | None]:
    """Yield the buffers of the array, of its children and of its dictionary."""
    yield from array.own_buffers
    for part in (*array.children, array.dictionary):
        if part is not None:
            yield from buffers_of(part)


def addresses(array: bs.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in buffers_of(array)]


def in_utc(value: Any) -> Any:
    """Return the value with timestamps in UTC, so that equal instants in different zones compare equal."""
    if isinstance(value, list):
        return [in_utc(item) for item in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


@EVERY_CASE
def test_python_values_are_preserved(case: Case) -> None:
    array = case.array()
    array.validate(full=True)
    assert array.type == case.type
    assert array.length == len(array) == len(case.values)
    assert in_utc(array.to_pylist()) == in_utc(case.values)
    assert list(array) == array.to_pylist()


@pytest.mark.parametrize(
    ("zone", "offset_s"), [("Europe/Paris", 3600), ("+02:00", 7200), ("UTC", 0), ("-0330", -12600)]
)
def test_timestamps_are_returned_in_the_zone_of_the_type(zone: str, offset_s: int) -> None:
    moment = datetime(2020, 1, 1, 12, tzinfo=UTC)
    (back,) = bs.array([moment], bs.timestamp("ms", zone)).to_pylist()
    assert back == moment
    assert back.utcoffset().total_seconds() == offset_s
    with pytest.raises(bs.errors.UnsupportedError, match="Mars/Base"):
        bs.array([moment], bs.timestamp("ms", "Mars/Base")).to_pylist()


@EVERY_CASE
def test_null_count_is_the_number_of_nulls(case: Case) -> None:
    array = case.array()
    own_nulls = bool(array.layout.has_validity) or case.type == bs.null()
    assert array.null_count == (case.values.count(None) if own_nulls else 0)
    for start, stop in slice_bounds(array.length):
        assert array.slice(start, stop - start).null_count == (case.values[start:stop].count(None) if own_nulls else 0)


@EVERY_CASE
def test_indexing_gives_python_values(case: Case) -> None:
    array, values = case.array(), case.array().to_pylist()
    for index in range(-len(values), len(values)):
        assert array[index] == values[index]
    for index in (len(values), -len(values) - 1):
        with pytest.raises(IndexError, match=f"index {index} "):
            array[index]
        with pytest.raises(IndexError):
            array.is_valid(index)


@EVERY_CASE
def test_slicing_shares_memory(case: Case) -> None:
    array, values = case.array(), case.array().to_pylist()
    for start, stop in slice_bounds(array.length):
        part = array[start:stop]
        assert addresses(part) == addresses(array)
        part.validate(full=True)
        assert part.to_pylist() == values[start:stop]
        assert part.slice(0, 1).to_pylist() == values[start:stop][:1]
    assert array[::-1].to_pylist() == values[::-1]
    assert array[-2:].to_pylist() == values[-2:]
    assert array[5:2].to_pylist() == []
    assert array.slice(array.length + 7).length == 0


@EVERY_CASE
def test_compacted_arrays_have_offset_zero_and_no_other_slots(case: Case) -> None:
    array, values = case.array(), case.array().to_pylist()
    for start, stop in slice_bounds(array.length):
        own = array.slice(start, stop - start).compact()
        own.validate(full=True)
        assert own.offset == 0
        assert own.to_pylist() == values[start:stop]
        assert own.equals(array.slice(start, stop - start))
        for spec, buffer in zip(own.layout.buffers, own.own_buffers, strict=False):
            if buffer is not None and spec.per_slot and own.length:
                assert buffer.size == spec.size_bytes(own.length)


@EVERY_CASE
def test_concatenated_arrays_have_all_values(case: Case) -> None:
    array, values = case.array(), case.array().to_pylist()
    for start, stop in slice_bounds(array.length):
        part = array.slice(start, stop - start)
        concatenated = bs.concat_arrays([part, array, part])
        concatenated.validate(full=True)
        assert concatenated.to_pylist() == values[start:stop] + values + values[start:stop]


@EVERY_CASE
def test_take_returns_the_slots_at_the_indices(case: Case) -> None:
    array, values = case.array(), case.array().to_pylist()
    last = array.length - 1
    for start in range(array.length):
        part = array.slice(start)
        indices = [*reversed(range(part.length)), 0, 0, last - start]
        subset = part.take(indices)
        subset.validate(full=True)
        assert subset.to_pylist() == [values[start + index] for index in indices]
    assert array.take([]).to_pylist() == []
    assert array.take(bs.array([0, last], bs.uint8())).to_pylist() == [values[0], values[last]]


@pytest.mark.parametrize("indices", [[-1], [3], [0, 1 << 40], [0.5], ["a"], [[0]], [True], [1 << 63]], ids=repr)
def test_indices_to_take_are_checked(indices: Any) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match="take"):
        bs.array([1, 2, 3]).take(indices)


@EVERY_CASE
def test_arrays_of_equal_values_are_equal_at_any_offset(case: Case) -> None:
    array = case.array()
    twice = bs.concat_arrays([array, array])
    assert array == case.array()
    assert twice.slice(array.length).equals(array)
    assert array.equals(twice.slice(0, array.length))
    if array.length > 1 and case.values[1:] != case.values[:-1]:
        assert not array.slice(1).equals(array.slice(0, array.length - 1))
    assert not array.equals(twice)
    assert not array.equals(bs.array([None], bs.null()))
    assert array != case.values


@EVERY_CASE
def test_copies_by_pickle_are_equal(case: Case) -> None:
    array = case.array()
    for start, stop in slice_bounds(array.length):
        part = array.slice(start, stop - start)
        copy = pickle.loads(pickle.dumps(part))
        copy.validate(full=True)
        assert copy.type == case.type
        assert copy.equals(part)


@EVERY_CASE
def test_empty_arrays_are_valid(case: Case) -> None:
    empty = bs.array([], case.type)
    empty.validate(full=True)
    assert (empty.length, empty.null_count, empty.to_pylist()) == (0, 0, [])
    assert empty.equals(case.array().slice(1, 0))
    assert len(empty.to_numpy(zero_copy_only=False)) == 0
    assert bs.concat_arrays([empty, case.array(), empty]).equals(case.array())
    assert bs.concat_arrays([empty, empty]).length == 0
    assert empty.nbytes <= case.array().nbytes


@EVERY_CASE
def test_arrays_of_only_nulls_are_valid(case: Case) -> None:
    nulls = bs.array([None] * 9, case.type)
    nulls.validate(full=True)
    assert nulls.to_pylist() == [None] * 9
    assert nulls.slice(3, 2).equals(nulls.slice(0, 2))
    assert all(value is None or value != value for value in nulls.to_numpy(zero_copy_only=False).tolist())


@EVERY_CASE
def test_the_repr_has_type_length_and_values(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    array = case.array()
    head, values = repr(array).split("\n", 1)
    assert head == f"<bowstring.Array {case.type}[{array.length}]>"
    assert ("null" in values) == (None in case.values or "null" in str(case.values) or "None" in str(case.values))
    parameter_id = repr(bs.concat_arrays([array] * 20))
    assert "…" in parameter_id
    assert len(parameter_id) < 2000


def to_python(value: Any) -> Any:
    """Convert NumPy arrays to lists, and NaN, which nulls of numbers become there, to None."""
    if isinstance(value, np.ndarray):
        return [to_python(element) for element in value]
    return None if isinstance(value, float) and value != value else value


@EVERY_CASE
def test_numpy_and_python_values_are_equal(case: Case) -> None:
    array = case.array()
    values = array.to_numpy(zero_copy_only=False)
    assert len(values) == array.length
    if values.dtype == object:
        assert to_python(values) == array.to_pylist()
    dropped = [index for index, value in enumerate(case.values) if value is not None]
    full = array.take(dropped).to_numpy(zero_copy_only=False)
    assert len(full) == len(dropped)


@pytest.mark.parametrize("case", [case for case in CASES if case.type != bs.null()], ids=str)
def test_a_value_of_another_type_is_named_in_the_error(case: Case) -> None:
    class Unknown:
        def __repr__(self) -> str:
            return "<stranger>"

    good = [value for value in case.values if value is not None][:1]
    with pytest.raises(bs.errors.TypeMismatchError, match="<stranger>"):
        bs.array([*good, Unknown()], case.type)


def test_the_error_names_the_first_invalid_value_and_its_index() -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 2: 'x' cannot be converted to int8"):
        bs.array([1, None, "x", "y"], bs.int8())
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 1: 128 cannot be converted to int8"):
        bs.array([127, 128], bs.int8())
    with pytest.raises(bs.errors.TypeMismatchError, match=r"field 'b': value 1: 3 cannot be converted to string"):
        bs.array([{"b": "x"}, {"b": 3}], bs.struct({"a": bs.int8(), "b": bs.string()}))
    with pytest.raises(bs.errors.TypeMismatchError, match="'c'"):
        bs.array([{"c": 1}], bs.struct({"a": bs.int8()}))
    with pytest.raises(bs.errors.TypeMismatchError, match="value 0 has 3 elements"):
        bs.array([[1, 2, 3]], bs.list_(bs.int8(), 2))
    with pytest.raises(bs.errors.TypeMismatchError, match="too large for the indices"):
        bs.array(list(range(129)), bs.dictionary(bs.int8(), bs.int32()))
    with pytest.raises(bs.errors.TypeMismatchError, match="surrogates"):
        bs.array(["ok", "\ud800"])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (bs.int8(), True),
        (bs.int64(), 1.5),
        (bs.int64(), float("inf")),
        (bs.float64(), True),
        (bs.float64(), (1 << 53) + 1),
        (bs.float32(), (1 << 24) + 1),
        (bs.bool_(), 1),
        (bs.string(), b"\xff"),
        (bs.binary(), "\ud800"),
        (bs.binary(), memoryview(array("i", [1, 2]))),
        (bs.binary(8), memoryview(array("i", range(8)))),
        (bs.binary(2), b"abc"),
        (bs.decimal32(3, 1), "123.4"),
        (bs.decimal32(3, 1), "1.23"),
        (bs.decimal128(38, 0), "NaN"),
        (bs.time32("s"), datetime(2020, 1, 1, 1, 2, 3, 4).time()),
        (bs.timestamp("s"), datetime(2020, 1, 1, 1, 2, 3, 4)),
        (bs.timestamp("ns"), datetime(9999, 1, 1)),
        (bs.timestamp("ns"), np.datetime64("9999-01-01", "s")),
        (bs.timestamp("s"), np.datetime64("NaT", "s")),
        (bs.timestamp("s"), np.timedelta64(1, "s")),
        (bs.duration("us"), timedelta(days=200_000_000)),
        (bs.duration("ns"), timedelta(days=200_000)),
        (bs.month_interval(), True),
        (bs.day_time_interval(), (1.5, 2)),
        (bs.day_time_interval(), (1 << 40, 2)),
        (bs.day_time_interval(), (1, 2, 3)),
        (bs.list_(bs.string()), "ab"),
        (bs.map_(bs.string(), bs.int8()), [(None, 1)]),
        (bs.map_(bs.string(), bs.int8()), [("a", 1, 2)]),
        (bs.struct({"a": bs.int8()}), (1, 2)),
    ],
    ids=parameter_id,
)
def test_values_that_would_lose_precision_are_rejected(type_: bs.DataType, value: Any) -> None:
    with pytest.raises(bs.errors.TypeMismatchError):
        bs.array([None, value], type_)


def test_a_union_stores_a_value_in_the_member_that_preserves_it() -> None:
    zoned = datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))
    moments: list[bs.DataType] = [bs.timestamp("s"), bs.timestamp("s", "UTC"), bs.timestamp("s", "Europe/Paris")]
    cases: list[tuple[list[bs.DataType], Any, int]] = [
        (moments, zoned, 2),
        (moments, zoned.astimezone(UTC), 1),
        ([bs.float32(), bs.float64()], 0.1, 1),
        ([bs.float32(), bs.float64()], 0.5, 0),
        ([bs.decimal128(5, 4), bs.decimal128(5, 2)], Decimal("1.50"), 1),
    ]
    for types, value, member in cases:
        union = bs.array([value], bs.dense_union([(f"m{i}", type_) for i, type_ in enumerate(types)]))
        assert union.buffer_values(0).tolist() == [member]
        assert union.to_pylist() == [value]


def test_a_union_stores_a_value_in_the_member_of_its_type() -> None:
    union = bs.dense_union([("f", bs.float64()), ("i", bs.int8()), ("s", bs.string())])
    array = bs.array([1, 1.0, "x", None, 2], union)
    assert array.buffer_values(0).tolist() == [1, 0, 2, 0, 1]
    assert [type(value) for value in array.to_pylist()] == [int, float, str, type(None), int]
    with pytest.raises(bs.errors.TypeMismatchError, match="does not fit any of the types"):
        bs.array([b"\xff"], union)


def test_timestamps_beyond_python_s_range_become_numpy_values() -> None:
    for type_, units in [
        (bs.timestamp("s"), 1 << 40),
        (bs.timestamp("ns"), 1),
        (bs.duration("s"), 10**14),
        (bs.duration("s"), (1 << 63) - 1),
        (bs.duration("ns"), 1),
        (bs.date64(), 1),
        (bs.date32(), 10**9),
        (bs.time64("us"), -1),
    ]:
        (value,) = bs.array([units], type_).to_pylist()
        assert isinstance(value, np.datetime64 | np.timedelta64), type_
        assert int(value.astype(np.int64)) == units
        assert bs.array([value], type_).equals(bs.array([units], type_))


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_duration_of_seconds_or_milliseconds_has_the_range_of_pythons(unit: Any) -> None:
    second = timedelta(seconds=1)
    for value in (timedelta.min, timedelta(days=200_000_000), timedelta(days=106_751_992), timedelta.max - second / 2):
        whole = value - value % second
        for values in ([whole], [None, whole, second]):
            assert bs.array(values, bs.duration(unit)).to_pylist() == values


@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")  # newer versions of NumPy deprecate it
@pytest.mark.parametrize("numpy_unit", ["Y", "M", "generic"])
def test_durations_without_a_fixed_length_are_rejected(numpy_unit: str) -> None:
    values = np.array([3], f"m8[{numpy_unit}]")
    for type_ in (bs.duration("s"), bs.time64("us")):
        for source in (values, list(values)):
            with pytest.raises(bs.errors.TypeMismatchError, match="has no fixed length: convert it to s, ms, us or ns"):
                bs.array(source, type_)
    no_values = np.array(["NaT"], values.dtype)
    assert bs.array(no_values, bs.duration("s")).to_pylist() == [None]
    assert bs.array(np.array([1], "m8[W]"), bs.duration("s")).to_pylist() == [timedelta(weeks=1)]
    assert bs.array(np.array([1], "M8[M]"), bs.date32()).to_pylist() == [date(1970, 2, 1)], "months of dates are exact"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("make", [bs.timestamp, bs.duration])
def test_the_smallest_integer_is_a_value_and_not_nat(make: Any, unit: str) -> None:
    smallest = -(1 << 63)
    assert bs.array([smallest], make(unit)).to_pylist() == [smallest]


def test_only_names_of_nested_fields_select_children() -> None:
    array = bs.array([{"a": 1, "b": "x"}, None, {"a": 3, "b": "y"}])
    assert array.field("b").to_pylist() == ["x", None, "y"]
    assert array.slice(2).field(0).to_pylist() == [3]
    for key in ("c", 2, -3):
        with pytest.raises(bs.errors.NotFoundError):
            array.field(key)


@pytest.mark.parametrize("length", [0, 1, 2047, 2048, 2049, 4097])
def test_lists_are_preserved_across_blocks(length: int) -> None:
    numbers = [None if index % 7 == 3 else list(range(index % 5)) for index in range(length)]
    assert bs.array(numbers, bs.list_(bs.int16())).slice(length // 3).to_pylist() == numbers[length // 3 :]
    nested = [None if value is None else [[str(item), None] for item in value] for value in numbers]
    assert bs.array(nested, bs.large_list(bs.list_(bs.string()))).to_pylist() == nested
