"""A table of data types with example values, for tests of layouts, readers and writers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

import bowstring as bs
from bowstring.datatypes.types import DataType

LONG = "more than twelve bytes, ü included"


@dataclass(frozen=True, slots=True)
class Case:
    """A data type, and Python values that an array of this type returns unchanged."""

    type: DataType
    values: list[Any]

    def array(self) -> bs.Array:
        """Return an array of the values."""
        return bs.array(self.values, self.type)

    def __str__(self) -> str:
        return str(self.type)


_MOMENT = datetime(2020, 2, 29, 1, 2, 3, 4)
_FIELDS = {"a": bs.int8(), "b": bs.string()}
_RUNS = bs.run_end_encoded(bs.int32(), bs.date32())
_MEMBERS = [("i", bs.int32()), ("s", bs.string())]

FLAT = [
    Case(bs.null(), [None, None]),
    Case(bs.bool_(), [True, None, False, True, True, False, None, True, False, True]),
    Case(bs.int8(), [1, None, -128, 127]),
    Case(bs.int16(), [1, None, -(1 << 15)]),
    Case(bs.int32(), [1, None, 2, 4, 8]),
    Case(bs.int64(), [1, None, -(1 << 63), (1 << 63) - 1]),
    Case(bs.uint8(), [255, None, 0]),
    Case(bs.uint16(), [65535, None]),
    Case(bs.uint32(), [(1 << 32) - 1, None]),
    Case(bs.uint64(), [(1 << 64) - 1, None]),
    Case(bs.float16(), [1.5, None, -0.0]),
    Case(bs.float32(), [1.5, None, float("-inf")]),
    Case(bs.float64(), [1.5, None, float("inf"), 1e300]),
    Case(bs.decimal32(5, 2), [Decimal("1.25"), None, Decimal("-999.99")]),
    Case(bs.decimal64(12, 2), [Decimal("-1.25"), None]),
    Case(bs.decimal128(30, 4), [Decimal("-12345678901234567890123456.2500"), None, Decimal("0.0001")]),
    Case(bs.decimal256(70, -2), [Decimal(-1200), None, Decimal(10) ** 60]),
    Case(bs.date32(), [date(2020, 1, 2), None, date.min, date.max]),
    Case(bs.date64(), [date(2020, 1, 2), None, date(1969, 12, 31)]),
    Case(bs.time32("s"), [time(1, 2, 3), None, time(23, 59, 59)]),
    Case(bs.time32("ms"), [time(1, 2, 3, 4000), None]),
    Case(bs.time64("us"), [time(1, 2, 3, 4), None]),
    Case(bs.time64("ns"), [time(1, 2, 3, 4), None, np.timedelta64(5, "ns")]),
    Case(bs.timestamp("s"), [_MOMENT.replace(microsecond=0), None]),
    Case(bs.timestamp("ms"), [_MOMENT.replace(microsecond=4000), None]),
    Case(bs.timestamp("us"), [_MOMENT, None, datetime.min, datetime.max]),
    Case(bs.timestamp("ns"), [_MOMENT, None, np.datetime64(1, "ns")]),
    Case(bs.timestamp("us", "UTC"), [_MOMENT.replace(tzinfo=UTC), None]),
    Case(bs.timestamp("ns", "Europe/Paris"), [_MOMENT.replace(tzinfo=UTC), None]),
    Case(bs.timestamp("s", "+02:00"), [_MOMENT.replace(microsecond=0, tzinfo=UTC)]),
    Case(bs.duration("s"), [timedelta(days=-1, seconds=5), None]),
    Case(bs.duration("ms"), [timedelta(days=-1, milliseconds=5), None]),
    Case(bs.duration("us"), [timedelta(microseconds=-1), None]),
    Case(bs.duration("ns"), [timedelta(days=1), None, np.timedelta64(7, "ns")]),
    Case(bs.month_interval(), [5, None, -7]),
    Case(bs.day_time_interval(), [(1, -2), None]),
    Case(bs.month_day_nano_interval(), [(1, 2, -3), None, (1, 2, 3)]),
    Case(bs.binary(3), [b"abc", None, b"\0\0\0"]),
    Case(bs.binary(0), [b"", None, b""]),
    Case(bs.binary(), [b"abc", None, b"", b"\xff\0"]),
    Case(bs.large_binary(), [b"1", None, b""]),
    Case(bs.binary_view(), [b"abc", None, b"x" * 13, b"", b"\0" * 12]),
    Case(bs.string(), ["abc", None, "", "äöü€😀"]),
    Case(bs.large_string(), ["ü", None, LONG]),
    Case(bs.string_view(), ["äbc", None, LONG, "", "twelve bytes"]),
]
"""The types without children."""

NESTED = [
    Case(bs.list_(bs.int8()), [[1, None], None, [], [3]]),
    Case(bs.large_list(bs.string()), [["a", None], None, [], ["ü"]]),
    Case(bs.list_view(bs.int16()), [[1, 2], None, [3], []]),
    Case(bs.large_list_view(bs.string()), [["x", LONG], None, [None]]),
    Case(bs.list_(bs.int32(), 2), [[1, 2], None, [3, None], [4, 5]]),
    Case(bs.list_(bs.int32(), 0), [[], None, []]),
    Case(bs.struct(_FIELDS), [{"a": 1, "b": None}, None, {"a": None, "b": "x"}]),
    Case(bs.struct([]), [{}, None, {}]),
    Case(bs.map_(bs.string(), bs.int32()), [[("a", 1), ("b", None)], None, [], [("c", 3)]]),
    Case(bs.dense_union(_MEMBERS), [1, "a", None, 2]),
    Case(bs.sparse_union(_MEMBERS, [5, 9]), [1, "a", None, 2]),
    Case(bs.dictionary(bs.int8(), bs.string()), ["a", "b", "a", None]),
    Case(bs.dictionary(bs.uint16(), bs.list_(bs.int8()), ordered=True), [[1], [2], None, [1]]),
    Case(bs.run_end_encoded(bs.int16(), bs.float64()), [1.0, 1.0, None, None, 2.0]),
    Case(bs.run_end_encoded(bs.int64(), bs.string()), ["a", "a", "b", None]),
    Case(bs.list_(bs.list_(bs.bool_())), [[[True], None], None, [[], [False, None]]]),
    Case(
        bs.list_(bs.struct({"x": bs.dictionary(bs.int8(), bs.string()), "u": bs.dense_union(_MEMBERS)})),
        [[{"x": "a", "u": 1}, {"x": None, "u": "b"}], [], None, [{"x": "a", "u": None}]],
    ),
    Case(
        bs.struct({"m": bs.map_(bs.int8(), bs.list_(bs.string_view(), 1)), "r": _RUNS}),
        [{"m": [(1, [LONG]), (2, None)], "r": date(2020, 1, 1)}, None, {"m": None, "r": date(2020, 1, 1)}],
    ),
]
"""The types with children or a dictionary."""

CASES = FLAT + NESTED
