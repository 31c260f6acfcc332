"""Building arrays, batches and tables from Python objects, with inferred and explicit types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.layouts.value_codecs.intervals import DayTime, MonthDayNano
from tests.parameter_ids import parameter_id


class Odd(tzinfo):
    """A time zone with an unknown name."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def tzname(self, dt: datetime | None) -> str:
        return "Odd Time"

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)


MOMENT = datetime(2020, 7, 1, 12)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([], bs.null()),
        ([None], bs.null()),
        ([True, None], bs.bool_()),
        ([1, None], bs.int64()),
        ([1, 1 << 63], bs.uint64()),
        ([1, 2.0], bs.float64()),
        ([np.int8(1), None], bs.int8()),
        ([np.float16(1)], bs.float16()),
        ([np.int8(1), 2], bs.int64()),
        ([np.int8(1), np.int16(1)], bs.int64()),
        ([np.float32(1), 2.0], bs.float64()),
        ([np.bool_(True)], bs.bool_()),
        (["a"], bs.string()),
        ([b"a", bytearray(b"b"), memoryview(b"c")], bs.binary()),
        ([date(2020, 1, 1)], bs.date32()),
        ([time(1)], bs.time64("us")),
        ([timedelta(1)], bs.duration("us")),
        ([MOMENT], bs.timestamp("us")),
        ([MOMENT.replace(tzinfo=UTC)], bs.timestamp("us", "UTC")),
        ([MOMENT.replace(tzinfo=ZoneInfo("Europe/Paris"))], bs.timestamp("us", "Europe/Paris")),
        ([MOMENT.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30)))], bs.timestamp("us", "-03:30")),
        ([MOMENT.replace(tzinfo=Odd())], bs.timestamp("us", "UTC")),
        ([np.datetime64(1, "ms")], bs.timestamp("ms")),
        ([np.timedelta64(1, "ns")], bs.duration("ns")),
        ([Decimal("1.50"), Decimal("1E3")], bs.decimal128(6, 2)),
        ([Decimal("0.001")], bs.decimal128(3, 3)),
        ([Decimal(10) ** 50], bs.decimal256(51, 0)),
        ([MonthDayNano(1, 2, 3)], bs.month_day_nano_interval()),
        ([DayTime(1, 2)], bs.day_time_interval()),
        ([UUID(int=7), None], bs.datatypes.uuid()),
        ([[1], None, [None, 2]], bs.list_(bs.int64())),
        ([(1, 2)], bs.list_(bs.int64())),
        ([np.array([1, 2], "i2"), None], bs.list_(bs.int16())),
        ([np.array([], "f4")], bs.list_(bs.float32())),
        ([np.array(["NaT"], "M8[s]")], bs.list_(bs.timestamp("s"))),
        ([np.array([1], "i2"), np.array([1], "i4")], bs.list_(bs.int64())),
        ([np.array([1], "i2"), [2]], bs.list_(bs.int64())),
        ([{"a": 1}, {"b": "x"}], bs.struct({"a": bs.int64(), "b": bs.string()})),
        (range(3), bs.int64()),
        ((value for value in "ab"), bs.string()),
        ({"k": 1}.items(), None),
    ],
    ids=parameter_id,
)
def test_the_narrowest_type_is_inferred(values: Any, type_: bs.DataType | None) -> None:
    if type_ is None:
        with pytest.raises(bs.errors.TypeMismatchError, match="int and str"):
            bs.array(values)
        return
    array = bs.array(values)
    array.validate(full=True)
    assert array.type == type_


def test_timestamps_in_any_zone_keep_their_instant() -> None:
    for zone in (UTC, ZoneInfo("Asia/Kolkata"), timezone(timedelta(hours=5)), Odd()):
        moment = MOMENT.replace(tzinfo=zone)
        assert bs.array([moment]).to_pylist() == [moment]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], "int and str have no common"),
        ([True, 1], "bool and int"),
        ([1 << 64], "do not fit 64 bits"),
        ([-1, 1 << 63], "do not fit 64 bits"),
        ([object()], "object has no data type"),
        ([MOMENT, MOMENT.replace(tzinfo=UTC)], "with and without a zone"),
        ([Decimal("NaN")], "not a finite decimal"),
        ([{1: 2}], "name of a struct.s field, found 1"),
        ("text", "a sequence"),
        (b"bytes", "a sequence"),
        (7, "a sequence"),
    ],
    ids=parameter_id,
)
def test_values_without_a_type_are_named(values: Any, message: str) -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match=message):
        bs.array(values)


def test_arrays_of_other_libraries_are_imported_unchanged() -> None:
    array = bs.array([1, None])
    assert bs.array(array) is array
    assert bs.array(array, bs.int64()) is array
    assert bs.array(array, bs.int8()).equals(array.cast("int8"))
    with pytest.raises(bs.errors.TypeMismatchError, match="300"):
        bs.array(bs.array([300]), bs.int8())
    assert bs.array(bs.table({"a": array}).column(0)).equals(array)
    assert bs.array(pa.chunked_array([[1], [None]])).equals(array), "nulls stay nulls and do not become NaN"


def test_batches_are_built_from_columns() -> None:
    by_name = bs.record_batch({"a": [1, 2], "b": ["x", None]})
    assert by_name.schema == bs.schema({"a": bs.int64(), "b": bs.string()})
    assert by_name == bs.record_batch([[1, 2], ["x", None]], names=["a", "b"])
    assert by_name == bs.record_batch({"b": ["x", None], "a": np.array([1, 2])}, schema=by_name.schema)
    assert bs.record_batch(by_name) is by_name
    assert bs.record_batch(pa.record_batch(by_name)) == by_name
    assert bs.record_batch({"a": [1]}, metadata={"k": "v"}).schema.metadata == {b"k": b"v"}
    builds: list[Callable[[], object]] = [
        lambda: bs.record_batch([[1], [2]]),
        lambda: bs.record_batch([[1], [2]], names=["a"]),
        lambda: bs.record_batch({"a": [1], "b": [1, 2]}),
        lambda: bs.record_batch({"a": [1]}, schema=bs.schema({"b": bs.int64()})),
        lambda: bs.record_batch([[1]], schema=by_name.schema),
    ]
    for build in builds:
        with pytest.raises(bs.errors.InvalidArgumentError):
            build()


def test_tables_are_built_from_columns_or_rows() -> None:
    table = bs.table({"a": [1, None], "b": ["x", "y"]})
    assert table == bs.table([{"a": 1, "b": "x"}, {"b": "y"}])
    assert table == bs.table([{"b": "x", "a": 1}, {"b": "y"}], schema=table.schema)
    assert table == bs.table(table.to_batches()[0])
    assert table == bs.table(pa.table(table))
    assert bs.table(table) is table
    assert bs.table([{"a": 1}], metadata={"k": "v"}).schema.metadata == {b"k": b"v"}
    assert bs.table({}).shape == (0, 0)
    with pytest.raises(bs.errors.TypeMismatchError, match="field 'a'"):
        bs.table([{"a": "x"}], schema=bs.schema({"a": bs.int8()}))
    assert bs.table({"a": bs.ChunkedArray([], bs.int64())}, schema=bs.schema({"a": bs.int8()})).schema.types == ["int8"]
    with pytest.raises(bs.errors.TypeMismatchError, match=r"column 'a'.*300"):
        bs.table({"a": bs.chunked_array([[300]])}, schema=bs.schema({"a": bs.int8()}))
