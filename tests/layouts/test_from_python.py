"""Building arrays from Python values: lists of exactly one type in one pass, all others value by value."""

from __future__ import annotations

import tracemalloc
from array import array as machine_array
from collections import UserList
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import replace_none
from tests.thorough import thorough

LENGTHS = [0, 1, 2, 3, 63, 64, 65, 1000, 70_000]
"""Few values, and more than are looked at together."""
NAN = float("nan")


class FloatSubclass(float):
    """A subclass of float."""


class StrSubclass(str):
    """A subclass of str."""


class IntSubclass(IntEnum):
    """A subclass of int."""

    RED = 3


class Untouchable:
    """A value whose methods must not be called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("asked to be pickled")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __bool__(self) -> bool:
        raise AssertionError("asked whether it is true")

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __repr__(self) -> str:
        return "Unwilling()"


KINDS: dict[str, tuple[bs.DataType, Sequence[Any]]] = {
    "floats": (bs.float64(), [0.0, -0.0, 1.5, NAN, float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308]),
    "integers": (bs.int64(), [0, 1, -1, 255, 256, 1 << 31, -(1 << 31), (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]),
    "truth values": (bs.bool_(), [True, False, False]),
    "strings": (bs.string(), ["", "a", "é", "\0", "👍🏽", "naïve façade", "x" * 300]),
    "byte strings": (bs.binary(), [b"", b"a", b"\xff\0", b"x" * 300]),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def is_identical(left: Any, right: Any) -> bool:
    """Return whether two values have the same type and are equal, including -0.0 and NaN."""
    return type(left) is type(right) and repr(left) == repr(right)


def values_with_nulls(kind: str, length: int, nulls: Callable[[int], bool]) -> tuple[bs.DataType, list[Any]]:
    """Return values of a kind, with None where `nulls(index)` is true."""
    type_, pattern = KINDS[kind]
    return type_, [None if nulls(index) else pattern[index % len(pattern)] for index in range(length)]


NULLS: dict[str, Callable[[int], bool]] = {
    "no": lambda index: False,
    "hardly any": lambda index: index % 100 == 3,
    "rare": lambda index: index % 10 == 3,
    "frequent": lambda index: index % 3 > 0,
    "only": lambda index: True,
    "late": lambda index: index > 60_000,
}


@EVERY_KIND
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("nulls", NULLS)
def test_values_and_nulls_are_preserved_exactly(kind: str, length: int, nulls: str) -> None:
    type_, values = values_with_nulls(kind, length, NULLS[nulls])
    originals = list(values)
    array = bs.array(values, type_)
    assert all(map(is_identical, array.to_pylist(), values))
    assert len(array) == length
    assert array.null_count == values.count(None)
    array.validate(full=True)
    assert array.equals(bs.array(values, type_), nans_equal=True)
    if array.null_count < length:
        infer_array = bs.array(values)
        assert infer_array.type == type_
        assert all(map(is_identical, infer_array.to_pylist(), values))
    assert all(mine is original for mine, original in zip(values, originals, strict=True)), (
        "the caller's list was changed"
    )


@EVERY_KIND
@pytest.mark.parametrize("make", [tuple, iter, lambda values: (value for value in values), UserList])
def test_any_sequence_of_values_is_accepted(kind: str, make: Callable[[list[Any]], Any]) -> None:
    type_, values = values_with_nulls(kind, 1000, NULLS["rare"])
    for array in (bs.array(make(values), type_), bs.array(make(values))):
        assert array.type == type_
        assert all(map(is_identical, array.to_pylist(), values))


VALUES_OF_OTHER_TYPES = [
    True,
    7,
    1.5,
    "1.5",
    b"1.5",
    1j,
    FloatSubclass(1.5),
    IntSubclass.RED,
    StrSubclass("word"),
    Decimal("1.5"),
    Fraction(1, 2),
    [],
    (),
    {},
    [1.5],
    (None,),
    float,
    object(),
    np.float64(1.5),
    np.float32(1.5),
    np.int64(7),
    np.bool_(True),
    np.array(1.5),
    np.array([1.5]),
    np.datetime64(7, "s"),
    machine_array("d", [1.5]),
    bytearray(b"abc"),
    Untouchable(),
]
SINGLE_VALUES: dict[str, dict[type, Any]] = {
    "floats": {
        int: 7.0,
        FloatSubclass: 1.5,
        IntSubclass: 3.0,
        np.float64: 1.5,
        np.float32: 1.5,
        np.int64: 7.0,
        float: 1.5,
    },
    "integers": {int: 7, IntSubclass: 3, np.int64: 7},
    "truth values": {bool: True, np.bool_: True},
    "strings": {str: "1.5", StrSubclass: "word"},
    "byte strings": {bytes: b"1.5", bytearray: b"abc"},
}
"""The inferred types of common values."""


@EVERY_KIND
@pytest.mark.parametrize("stray", VALUES_OF_OTHER_TYPES, ids=lambda value: f"{type(value).__name__}-{str(value)[:9]}")
def test_a_value_among_many_of_another_type_is_converted_like_a_single_value(kind: str, stray: Any) -> None:
    type_ = KINDS[kind][0]
    try:
        alone = bs.array([stray], type_).to_pylist()
    except TypeMismatchError:
        alone = []
    assert type(stray) not in SINGLE_VALUES[kind] or is_identical(alone[0], SINGLE_VALUES[kind][type(stray)])
    assert alone or type(stray) not in SINGLE_VALUES[kind]
    assert not alone or type(stray) is not bool or kind == "truth values"
    for nulls in ("no", "rare"):
        for at in (0, 1, 999):
            _, values = values_with_nulls(kind, 1000, NULLS[nulls])
            values[at] = stray
            if alone:
                values_read = bs.array(values, type_).to_pylist()
                assert all(map(is_identical, values_read, [*values[:at], *alone, *values[at + 1 :]]))
            else:
                with pytest.raises(TypeMismatchError, match=rf"\b{at}\b"):
                    bs.array(values, type_)


@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize(("bits", "is_signed"), [(b, s) for b in (8, 16, 32, 64) for s in (False, True)])
def test_integers_are_accepted_up_to_their_limits(bits: int, is_signed: bool, has_nulls: bool) -> None:
    type_ = getattr(bs, f"{'' if is_signed else 'u'}int{bits}")()
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    values: list[Any] = [low, high, None if has_nulls else 1] * 50
    assert bs.array(values, type_).to_pylist() == values
    for beyond in (low - 1, high + 1, 1 << 200, -(1 << 200)):
        with pytest.raises(TypeMismatchError, match="value 149"):
            bs.array([*values[:-1], beyond], type_)


@pytest.mark.parametrize("make", [bs.float16, bs.float32, bs.float64])
@pytest.mark.parametrize("has_nulls", [False, True])
def test_floats_are_rounded_like_in_numpy(make: Any, has_nulls: bool) -> None:
    random = np.random.default_rng(7)
    values: list[Any] = [*(random.standard_normal(300) * 10.0 ** random.integers(-320, 308, 300)).tolist(), NAN, -0.0]
    if has_nulls:
        values[::7] = [None] * len(values[::7])
    array = bs.array(values, make())
    width = make().bit_width // 8
    with np.errstate(over="ignore"):
        expected = np.array([0.0 if value is None else value for value in values]).astype(f"f{width}")
    valid = np.array([value is not None for value in values])
    assert array.buffer_values(1)[valid].tobytes() == expected[valid].tobytes()
    assert not array.buffer_values(1)[~valid].any()


@pytest.mark.parametrize(("make", "digits"), [(bs.float16, 11), (bs.float32, 24), (bs.float64, 53)])
def test_integers_among_floats_are_accepted_if_exact(make: Any, digits: int) -> None:
    every = 1 << digits
    values: list[Any] = [1.5, 0, every - 1, every, -every, every + 2, -every - 2, 2 * every + 4, None, NAN] * 10
    expected = [value if value is None else float(value) for value in values]
    assert all(map(is_identical, bs.array(values, make()).to_pylist(), expected))
    for rounded in (every + 1, -every - 1, 2 * every + 2, (1 << 200) + 1):
        with pytest.raises(TypeMismatchError, match="value 100"):
            bs.array([*values, rounded], make())


@pytest.mark.parametrize("type_", [bs.float64(), bs.int64(), bs.bool_(), bs.string()], ids=str)
def test_recursive_lists_are_rejected_at_once(type_: bs.DataType) -> None:
    doubled: Any = [1.5]
    for _ in range(60):
        doubled = [doubled, doubled]
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1.5
    for _ in range(5000):
        deep = [deep]
    for bomb in (doubled, endless, deep, (doubled,) * 4):
        for first in KINDS["floats"][1]:
            with pytest.raises(TypeMismatchError, match=r"\b100\b"):
                bs.array([first if type_ == bs.float64() else None] * 100 + [bomb] * 3, type_)


def test_a_large_value_among_floats_is_formatted_once() -> None:
    large: Any = b"x" * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(TypeMismatchError, match=r"\b100\b"):
            bs.array([1.5] * 100 + [large] * 1000, bs.float64())
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_none_is_detected_by_identity() -> None:
    odd: list[Any] = [None, Untouchable(), np.arange(3), (), [], None]
    filled, mask = replace_none(odd, ())
    assert mask is not None
    assert mask.tolist() == [False, True, True, True, True, False]
    assert [type(value) for value in filled] == [tuple, Untouchable, np.ndarray, tuple, list, tuple]
    assert all(mine is original for mine, original in zip(filled[1:5], odd[1:5], strict=True))


def test_no_reference_to_a_value_is_kept() -> None:
    import sys

    value = 1234.5
    before = sys.getrefcount(value)
    for nulls in ([None], [None] * 300):
        bs.array([value] * 300 + nulls, bs.float64())
        bs.array([value] * 300 + nulls)
    assert sys.getrefcount(value) == before


NESTED_VALUES: dict[str, tuple[bs.DataType, list[Any]]] = {
    "integers": (bs.list_(bs.int64()), [[1, 2, 3], [], None, [None], [4]]),
    "floats": (bs.list_(bs.float64()), [[0.5], [], [-0.0, NAN], None]),
    "strings": (bs.list_(bs.string()), [["a", "é"], None, [], ["\0", None]]),
    "lists": (bs.list_(bs.list_(bs.int64())), [[[1], []], None, [None, [2, None]], []]),
    "large lists": (bs.large_list(bs.bool_()), [[True], [False, None], [], None]),
    "structs": (bs.list_(bs.struct({"a": bs.int64()})), [[{"a": 1}, None], [], None]),
    "long ones": (bs.list_(bs.int64()), [list(range(300)), [], None, [1]]),
    "maps": (bs.map_(bs.string(), bs.int64()), [[("a", 1), ("b", None)], [], None, [("é", 4)]]),
    "maps of lists": (bs.map_(bs.int8(), bs.list_(bs.string())), [[(1, ["a", None])], None, [(2, None), (3, [])]]),
    "maps of structs": (bs.map_(bs.int8(), bs.struct({"a": bs.int8()})), [[(1, {"a": 2}), (2, None)], None, []]),
}


@pytest.mark.parametrize("kind", NESTED_VALUES)
@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 9000])
def test_lists_are_preserved_exactly(kind: str, length: int) -> None:
    type_, pattern = NESTED_VALUES[kind]
    values = [pattern[index % len(pattern)] for index in range(length)]
    originals = [None if value is None else list(value) for value in values]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert repr(array.to_pylist()) == repr(values) == repr(originals)
    assert array.null_count == values.count(None)


@pytest.mark.parametrize("at", [0, 4095, 4096, 8999])
def test_an_invalid_list_or_element_is_named_by_its_index(at: int) -> None:
    values: list[Any] = [[1, 2, 3]] * 9000
    values[at] = (1, None)
    assert bs.array(values, bs.list_(bs.int64())).to_pylist() == [*values[:at], [1, None], *values[at + 1 :]]
    values[at] = 7
    with pytest.raises(TypeMismatchError, match=rf"value {at}: 7"):
        bs.array(values, bs.list_(bs.int64()))
    values[at] = [1, True, 3]
    with pytest.raises(TypeMismatchError, match=rf"value {3 * at + 1}: True"):
        bs.array(values, bs.list_(bs.int64()))
    values[at] = {"a": 1}
    with pytest.raises(TypeMismatchError, match=rf"value {at}\b"):
        bs.array(values, bs.list_(bs.int64()))


@pytest.mark.parametrize("length", [1, 64, 65, 4097, 9000])
@pytest.mark.parametrize("nulls", NULLS)
def test_dictionaries_become_maps_of_their_items(length: int, nulls: str) -> None:
    type_ = bs.map_(bs.string(), bs.float64())
    rows: list[dict[str, float | None]] = [{"a": 1.5, "é": None}, {}, {"b": -0.0}]
    values = [None if NULLS[nulls](index) else rows[index % len(rows)] for index in range(length)]
    expected = [None if value is None else list(value.items()) for value in values]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert array.to_pylist() == expected
    mixed = [value if index % 2 else row for index, (value, row) in enumerate(zip(values, expected, strict=True))]
    assert bs.array(mixed, type_).equals(array)


@pytest.mark.parametrize("at", [4095, 4096, *thorough(0, 8999)])
def test_an_invalid_map_or_pair_is_named_by_its_index(at: int) -> None:
    type_ = bs.map_(bs.string(), bs.int64())
    pairs: list[Any] = [("a", 1), ("b", None)]
    values: list[Any] = [pairs] * 9000
    for same_pairs in (tuple(pairs), [["a", 1], ("b", None)], dict(pairs), UserList(pairs)):
        values[at] = same_pairs
        assert bs.array(values, type_).to_pylist() == [pairs] * 9000
    for stray in (("a",), ("a", 1, 2), "ab", b"ab", {"a", "b"}, None, 7, {"a": 1, "b": 2}, (None, 1)):
        values[at] = [pairs[0], stray]
        with pytest.raises(TypeMismatchError, match=rf"entry {2 * at + 1}\b"):
            bs.array(values, type_)
    values[at] = {"a": 1, None: 2}
    with pytest.raises(TypeMismatchError, match=rf"entry {2 * at + 1}\b"):
        bs.array(values, type_)
    for stray in (7, "ab"):
        values[at] = stray
        with pytest.raises(TypeMismatchError, match=rf"value {at}\b|entry {2 * at}\b"):
            bs.array(values, type_)
    for key, item in ((7, 1), ("a", "1"), ("a", True)):
        values[at] = [pairs[0], (key, item)]
        with pytest.raises(TypeMismatchError, match=rf"value {2 * at + 1}\b"):
            bs.array(values, type_)


@pytest.mark.parametrize("first", [1, 1.5])
@pytest.mark.parametrize(
    "stray",
    [Decimal("1.5"), Fraction(1, 2), True, np.bool_(True), np.array(1.5), Untouchable()],
    ids=lambda v: type(v).__name__,
)
def test_a_type_is_inferred_only_from_real_numbers(first: Any, stray: Any) -> None:
    for length in (2, 65, 40_000):
        for nulls in ([], [None]):
            with pytest.raises(TypeMismatchError):
                bs.array([first, *nulls] * length + [stray])


def test_the_type_of_integers_and_floats_does_not_depend_on_their_order() -> None:
    for values in ([1, 2.5, None], [2.5, 1, None], [None, 1, 2.5]):
        for count in (1, 100, 20_000):
            array = bs.array(values * count)
            assert array.type == bs.float64()
            assert array.to_pylist() == values * count
    for count in (1, 100):
        assert bs.array([(1 << 64) - 1, None] * count).type == bs.uint64()
        with pytest.raises(TypeMismatchError):
            bs.array([1.5, (1 << 53) + 1] * count)


def test_long_and_short_strings_are_stored_contiguously() -> None:
    for odd in ("", "ä" * 70_000, "x" * 300_000):
        values = ["a" * (index % 700) for index in range(5000)]
        for at in (0, 33, 4095, 4999):
            values[at] = odd
        array = bs.array(values, bs.string())
        array.validate(full=True)
        assert array.to_pylist() == values
        raw = [value.encode() for value in values]
        assert bs.array(raw, bs.binary()).to_pylist() == raw


class DatetimeSubclass(datetime):
    """A subclass of datetime."""


class UnhashableZone(tzinfo):
    """A time zone that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def utcoffset(self, when: datetime | None) -> timedelta:
        """Return two and a half hours."""
        return timedelta(hours=2, minutes=30)

    def dst(self, when: datetime | None) -> None:
        """Return None."""

    def tzname(self, when: datetime | None) -> str:
        """Return some name."""
        return "elsewhere"


TIMESTAMPS = [
    datetime(1970, 1, 1),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 1),
]
DURATIONS = [timedelta(0), timedelta(microseconds=-1), timedelta(days=-9, seconds=3), timedelta(days=106_751)]
DECIMALS = [(32, 9, bs.decimal32), (64, 18, bs.decimal64), (128, 38, bs.decimal128), (256, 76, bs.decimal256)]


def numbers(digits: int) -> list[int]:
    """Return numbers of at most this many digits, within 64 bits and beyond."""
    most = 10**digits - 1
    return [0, 1, -1, 100, most, -most, most // 3, -(most // 7)]


TEMPORAL_AND_DECIMAL: dict[str, tuple[bs.DataType, list[Any]]] = {
    "days": (bs.date32(), [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)]),
    "days in milliseconds": (bs.date64(), [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
    "timestamps": (bs.timestamp("us"), TIMESTAMPS),
    "timestamps with a zone": (bs.timestamp("us", "UTC"), [timestamp.replace(tzinfo=UTC) for timestamp in TIMESTAMPS]),
    "timestamps in seconds": (bs.timestamp("s"), [timestamp.replace(microsecond=0) for timestamp in TIMESTAMPS]),
    "timestamps in nanoseconds": (bs.timestamp("ns"), [TIMESTAMPS[0], TIMESTAMPS[3]]),
    "durations": (bs.duration("us"), DURATIONS),
    "durations in nanoseconds": (bs.duration("ns"), DURATIONS),
    "times of day": (bs.time64("us"), [time(0), time(23, 59, 59, 999999), time(12, 30, fold=1)]),
    "times of day in milliseconds": (bs.time32("ms"), [time(0), time(23, 59, 59, 999000)]),
    **{
        f"decimals of {width} bits": (make_type(digits, 2), [Decimal(f"{number}E-2") for number in numbers(digits)])
        for width, digits, make_type in DECIMALS
    },
    "decimals of thousands": (
        bs.decimal128(5, -3),
        [Decimal("1E+3"), Decimal(-99999000), Decimal("0E+9"), Decimal(7000)],
    ),
    "byte strings of one width": (bs.binary(3), [b"abc", b"\0\0\0", b"\xff\xfe\0"]),
}


@pytest.mark.parametrize("kind", TEMPORAL_AND_DECIMAL)
@pytest.mark.parametrize("nulls", NULLS)
def test_many_values_are_converted_like_single_ones(kind: str, nulls: str) -> None:
    type_, pattern = TEMPORAL_AND_DECIMAL[kind]
    values = [None if NULLS[nulls](index) else pattern[index % len(pattern)] for index in range(70_000)]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert array.equals(
        bs.concat_arrays([bs.array(values[first : first + 60], type_) for first in range(0, 70_000, 60)])
    )
    assert array.slice(0, 600).to_pylist() == values[:600]
    assert array.null_count == values.count(None)


@pytest.mark.parametrize(
    ("type_", "value", "stray"),
    [
        (bs.date32(), date(2020, 1, 1), "2020-01-01"),
        (bs.timestamp("s"), datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1)),
        (bs.timestamp("ns"), datetime(2020, 1, 1), datetime(2500, 1, 1)),
        (bs.timestamp("us"), datetime(2020, 1, 1), "2020-01-01"),
        (
            bs.timestamp("us", "UTC"),
            TIMESTAMPS[0].replace(tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
        ),
        (bs.duration("ms"), timedelta(1), timedelta(microseconds=1)),
        (bs.duration("us"), timedelta(1), timedelta.max),
        (bs.duration("ns"), timedelta(1), timedelta(days=106_752)),
        (bs.duration("ns"), timedelta(1), 1.5),
        (bs.time64("us"), time(1), time(1, tzinfo=UTC)),
        (bs.time64("us"), time(1), time(1, tzinfo=UnhashableZone())),
        (bs.time32("s"), time(1), time(1, microsecond=1)),
        (bs.decimal128(5, 2), Decimal("1.5"), Decimal("1.005")),
        (bs.decimal128(5, 2), Decimal("1.5"), Decimal("1000.00")),
        (bs.decimal64(18, 0), Decimal(10**18 - 1), Decimal(10**18)),
        (bs.decimal256(76, 2), Decimal("1.5"), Decimal("1E+1000000000")),
        (bs.decimal32(9, 2), Decimal("1.5"), Decimal("NaN")),
        (bs.decimal32(9, 2), Decimal("1.5"), Decimal("sNaN")),
        (bs.decimal32(9, 2), Decimal("1.5"), Decimal("-Infinity")),
        (bs.decimal32(9, 2), Decimal("1.5"), 1.5),
        (bs.binary(3), b"abc", b"abcd"),
        (bs.binary(3), b"abc", "abcd"),
        (bs.day_time_interval(), timedelta(1), timedelta(microseconds=1)),
        (bs.int64(), 1.0, 1.5),
        (bs.int64(), 1.0, float("nan")),
        (bs.int64(), 1.0, 2.0**63),
        (bs.int64(), Decimal(1), Decimal("1.5")),
    ],
    ids=str,
)
def test_an_invalid_value_among_many_is_named_by_its_index(type_: bs.DataType, value: Any, stray: Any) -> None:
    for nulls in ([], [None]):
        with pytest.raises(TypeMismatchError, match="value 200"):
            bs.array([*nulls, *[value] * (200 - len(nulls)), stray, value], type_)


def test_decimals_are_read_from_several_types() -> None:
    forms = [Decimal(1), Decimal("1.00"), Decimal("1.0000000000000000000000000000"), Decimal("1E+2"), 7, "2.5", None]
    array = bs.array(forms * 100, bs.decimal128(5, 2))
    shown = [Decimal("1.00")] * 3 + [Decimal("100.00"), Decimal("7.00"), Decimal("2.50"), None]
    assert list(map(repr, array.to_pylist())) == list(map(repr, shown * 100))


def test_timestamps_of_several_zones_and_types_keep_their_instant() -> None:
    odd = [
        datetime(2020, 6, 1, 12, tzinfo=timezone(timedelta(hours=5))),
        datetime(2020, 6, 1, 12, tzinfo=UnhashableZone()),
        datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    ]
    for others in (
        [],
        [datetime(2020, 6, 1)],
        [DatetimeSubclass(2020, 6, 1, tzinfo=UTC)],
        [np.datetime64("2020-06-01")],
    ):
        values = [*odd, *others] * 100
        array = bs.array(values, bs.timestamp("us", "UTC"))
        alone = bs.concat_arrays([bs.array([value], array.type) for value in values])
        assert array.equals(alone)


@pytest.mark.parametrize("type_", [bs.string_view(), bs.binary_view()], ids=str)
@pytest.mark.parametrize("sizes", [[0], [12], [13], [3, 400], [1, 2, 30], [0, 12, 13, 100_000], [7, 12]], ids=str)
@pytest.mark.parametrize("nulls", ["no", "rare", "frequent"])
def test_views_are_built_from_values_of_all_lengths(type_: bs.DataType, sizes: list[int], nulls: str) -> None:
    words = ["äx"[size % 2] * (size // (2 - size % 2)) for size in sizes]
    pattern: list[Any] = [word.encode() if type_ == bs.binary_view() else word for word in words]
    count = 50 if max(sizes) > 1000 else 9000
    values = [None if NULLS[nulls](index) else pattern[index % len(pattern)] for index in range(count)]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert array.to_pylist() == values
    needed = sum(
        size for index in range(count) if (size := sizes[index % len(sizes)]) > 12 and values[index] is not None
    )
    assert needed <= sum(buffer.size for buffer in array.own_buffers[2:] if buffer is not None) <= needed / 0.75


def test_strings_with_nulls_are_stored_contiguously() -> None:
    kinds: list[Any] = ["ascii", "ä", "привет", "👍🏽", "", "\0", "x" * 300]
    for first in (0, 100, 8191, 8192, 20_000):
        values = ["plain"] * 25_000
        values[first : first + len(kinds)] = kinds
        for null in (first + 1, first + 3, 24_999):
            with_null: list[Any] = [*values]
            with_null[null] = None
            array = bs.array(with_null, bs.string())
            assert array.to_pylist() == with_null
            assert (array.own_buffers[2] or bs.memory.Buffer.of(b"")).size == sum(
                len(value.encode()) for value in with_null if value is not None
            )
    surrogate: list[Any] = ["plain"] * 10_000 + ["\ud800", None]
    with pytest.raises(TypeMismatchError, match="surrogates"):
        bs.array(surrogate, bs.string())


_VALUES_OF_EACH_TYPE: dict[str, tuple[bs.DataType, list[Any]]] = {
    "int8": (bs.int8(), [-128, 127, 0]),
    "uint64": (bs.uint64(), [0, 2**64 - 1, 5]),
    "float16": (bs.float16(), [1.5, float("inf"), -0.0]),
    "float32": (bs.float32(), [0.1, 1e300, -1e-50]),
    "float64": (bs.float64(), [0.1, float("nan"), -0.0]),
    "bool": (bs.bool_(), [True, False, True]),
    "string": (bs.string(), ["", "é😀", "abc"]),
    "large_binary": (bs.large_binary(), [b"", b"\x00", b"abc"]),
    "list": (bs.list_(bs.int16()), [[], [1, None], [2, 3]]),
    "lists of lists": (bs.large_list(bs.list_(bs.string())), [[["a"], []], [], [["b", None], None]]),
    "dictionary": (bs.dictionary(bs.int8(), bs.string()), ["a", "b", "a"]),
}


@pytest.mark.parametrize("kind", _VALUES_OF_EACH_TYPE)
@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 9, 63, 64])
def test_few_values_are_converted_like_many(kind: str, with_nulls: bool, count: int) -> None:
    type_, some = _VALUES_OF_EACH_TYPE[kind]
    cycle = [None, *some] if with_nulls else some
    values = [cycle[at % len(cycle)] for at in range(128)]
    few, many = bs.array(values[:count], type_), bs.array(values, type_)
    few.validate(full=True)
    assert few.equals(many.slice(0, count), nans_equal=True)
    assert few.null_count == values[:count].count(None)
    assert repr(few.to_pylist()) == repr(many.slice(0, count).to_pylist())


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (bs.int8(), [1, 128]),
        (bs.uint8(), [-1]),
        (bs.int64(), [1, "2"]),
        (bs.int64(), [1, True]),
        (bs.float32(), [1.0, "2"]),
        (bs.bool_(), [True, 1]),
        (bs.string(), ["a", b"\xff"]),
        (bs.binary(), [b"a", "\ud800"]),
        (bs.string(), ["a", "\ud800"]),
        (bs.list_(bs.int8()), [[1], "no"]),
        (bs.list_(bs.int8()), [[1], [300]]),
    ],
)
def test_the_value_that_does_not_fit_is_named(type_: bs.DataType, values: list[Any]) -> None:
    with pytest.raises(TypeMismatchError):
        bs.array(values, type_)
    with pytest.raises(TypeMismatchError):
        bs.array([None, *values], type_)


@pytest.mark.parametrize(
    ("type_", "values", "message"),
    [
        (bs.string(), [b"", "", 5], "value 2: 5 cannot be converted to string: int is neither text nor bytes"),
        (bs.string(), ["a", None, "\ud800"], "value 2: .* cannot be converted to string: .* surrogates not allowed"),
        (bs.binary(), ["a", b"", "\ud800"], "value 2: .* cannot be converted to binary: .* surrogates not allowed"),
        (bs.string(), [b"a", b"\xff"], "value 1: .* cannot be converted to string: .* can't decode byte 0xff"),
        (bs.string(), [b"", memoryview(b"a")], "value 1: <memory at .* cannot be converted to string"),
    ],
)
def test_a_string_that_does_not_fit_is_named(type_: bs.DataType, values: list[Any], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        bs.array(values, type_)
    with pytest.raises(TypeMismatchError, match=message):
        bs.array(values, bs.dictionary(bs.int8(), type_))


@pytest.mark.parametrize(
    "make", [lambda type_: bs.dictionary("int32", type_), lambda t: bs.run_end_encoded("int32", t)]
)
def test_repeated_strings_are_stored_once(make: Callable[[bs.DataType], bs.DataType]) -> None:
    values = [None, "a", *["x" * 300_000] * 80, *["y" * 300_000] * 40, "a", None]
    tracemalloc.start()
    try:
        array = bs.array(values, make(bs.string()))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10_000_000
    array.validate(full=True)
    assert array.equals(bs.array(values).cast(array.type))
    with pytest.raises(TypeMismatchError, match=f"value {len(values)}: "):
        bs.array([*values, "\ud800"], array.type)


def test_numpy_s_strings_become_bytes() -> None:
    assert bs.array([np.str_("a"), b"b"]).to_pylist() == [b"a", b"b"]
    assert bs.array([np.str_("ä"), None], bs.binary()).to_pylist() == ["ä".encode(), None]
    with pytest.raises(TypeMismatchError, match="value 1: <memory at"):
        bs.array([b"a", np.array([1, 2], np.int16).data], bs.binary())


def test_values_of_compatible_types_are_accepted() -> None:
    assert bs.array([1, 2.5, None], bs.float64()).to_pylist() == [1.0, 2.5, None]
    assert bs.array([(1, 2), [3]], bs.list_(bs.int8())).to_pylist() == [[1, 2], [3]]
    assert bs.array([bytearray(b"a"), memoryview(b"bc")], bs.binary()).to_pylist() == [b"a", b"bc"]
