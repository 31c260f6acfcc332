"""Casting like pyarrow, in both directions, with errors that name the value."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import TypeMismatchError
from bowstring_testing import strategies
from tests.cases import CASES, Case
from tests.kernels.ml_values import MATRIX_TYPE, VECTOR_TYPE

INTEGERS = [1, None, 0, 127]
TIMESTAMPS = [datetime(2020, 2, 29), None, datetime(1969, 12, 31)]
PYARROW_CASTS: list[tuple[list[Any], bs.DataType, bs.DataType]] = [
    *[
        (INTEGERS, bs.int64(), target)
        for target in (bs.int8(), bs.uint16(), bs.float16(), bs.float64(), bs.bool_(), bs.string())
    ],
    (INTEGERS, bs.uint8(), bs.decimal128(10, 2)),
    (INTEGERS, bs.int64(), bs.timestamp("s")),
    (INTEGERS, bs.int32(), bs.date32()),
    ([1.0, None, -3.0], bs.float32(), bs.int16()),
    ([1.5, None, float("inf"), -2.25], bs.float64(), bs.float32()),
    ([0.1, None, -2.675, 1e10], bs.float64(), bs.decimal128(20, 2)),
    ([True, None, False], bs.bool_(), bs.int8()),
    ([True, None, False], bs.bool_(), bs.string_view()),
    ([Decimal("1.50"), None, Decimal("-2.00")], bs.decimal128(5, 2), bs.decimal256(40, 4)),
    ([Decimal("1.50"), None, Decimal("-2.00")], bs.decimal128(5, 2), bs.decimal128(5, 1)),
    ([Decimal("1.50"), None, Decimal("-2.25")], bs.decimal128(5, 2), bs.float64()),
    ([Decimal("1.50"), None, Decimal("-2.01")], bs.decimal128(5, 2), bs.string()),
    ([Decimal("15.00"), None, Decimal("-2.00")], bs.decimal128(5, 2), bs.int8()),
    (["1", None, "-12", "+3"][:3], bs.string(), bs.int32()),
    (["1.5", None, "-1e3", "inf"], bs.large_string(), bs.float64()),
    (["true", None, "0"], bs.string(), bs.bool_()),
    (["1.25", None, "-7"], bs.string(), bs.decimal128(7, 2)),
    (["2020-02-29", None], bs.string(), bs.date32()),
    (["2020-02-29 01:02:03.000004", None, "2020-02-29T01:02", "2020-02-29"], bs.string(), bs.timestamp("us")),
    (["2020-02-29 01:02:03Z", None, "2020-02-29T01:02:03+02:00"], bs.string(), bs.timestamp("ms", "UTC")),
    *[
        (["ab", None, "", "ü and more than twelve"], bs.string(), to)
        for to in (bs.large_string(), bs.string_view(), bs.binary(), bs.binary_view(), bs.large_binary())
    ],
    ([b"abc", None, b"xyz"], bs.binary(), bs.binary(3)),
    ([b"abc", None, b"xyz"], bs.binary(3), bs.large_binary()),
    (["abc", "more than twelve bytes", None], bs.string_view(), bs.string()),
    (TIMESTAMPS, bs.timestamp("s"), bs.timestamp("ns")),
    (TIMESTAMPS, bs.timestamp("us"), bs.timestamp("s")),
    (TIMESTAMPS, bs.timestamp("us"), bs.date32()),
    (TIMESTAMPS, bs.timestamp("us"), bs.date64()),
    (TIMESTAMPS, bs.timestamp("ms"), bs.int64()),
    (TIMESTAMPS, bs.timestamp("ms"), bs.string()),
    ([date(2020, 2, 29), None], bs.date32(), bs.date64()),
    ([date(2020, 2, 29), None], bs.date64(), bs.date32()),
    ([date(2020, 2, 29), None], bs.date32(), bs.timestamp("us")),
    ([date(2020, 2, 29), None], bs.date32(), bs.string()),
    ([time(1, 2, 3), None], bs.time32("s"), bs.time64("ns")),
    ([time(1, 2, 3), None], bs.time64("us"), bs.string()),
    ([timedelta(seconds=5), None], bs.duration("s"), bs.duration("us")),
    ([datetime(2020, 1, 1, 1, 2, 3), None], bs.timestamp("us"), bs.time64("us")),
    (["a", "b", None, "a"], bs.dictionary(bs.int8(), bs.string()), bs.large_string()),
    (["1", "2", None, "1"], bs.dictionary(bs.int8(), bs.string()), bs.string()),
    ([[1, None], None, []], bs.list_(bs.int8()), bs.list_(bs.float32())),
    ([{"a": 1, "b": "x"}, None], bs.struct({"a": bs.int8(), "b": bs.string()}),
     bs.struct({"a": bs.int64(), "b": bs.large_string()})),
    ([None, None], bs.null(), bs.int32()),
]  # fmt: skip


@pytest.mark.parametrize(("values", "source", "target"), PYARROW_CASTS, ids=lambda it: str(it)[:40])
def test_values_are_cast_like_in_pyarrow(values: list[Any], source: bs.DataType, target: bs.DataType) -> None:
    array = bs.array([None, *values], source)[1:]
    converted = array.cast(target)
    converted.validate(full=True)
    assert converted.type == target
    expected = pa.array(array).cast(pa.field(bs.field("", target)).type)
    assert converted.to_pylist() == bs.array(expected).to_pylist()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cast_to_the_same_type_returns_the_array_itself(case: Case) -> None:
    array = case.array()
    assert array.cast(case.type) is array


@pytest.mark.parametrize(
    ("values", "source", "target", "pattern"),
    [
        ([None, 1, 300], bs.int64(), bs.int8(), "value 2: 300 does not fit int8"),
        ([-1], bs.int8(), bs.uint64(), "value 0: -1 does not fit uint64"),
        ([1 << 63], bs.uint64(), bs.int64(), "value 0: 9223372036854775808 does not fit int64"),
        ([1.5], bs.float64(), bs.int8(), "value 0: 1.5 can't be converted to int8 without loss"),
        ([1.0, float("nan")], bs.float64(), bs.int8(), "value 1: nan does not fit int8"),
        ([2.0**63], bs.float64(), bs.int64(), "does not fit int64"),
        ([1e300], bs.float64(), bs.float32(), "too large for float"),
        ([(1 << 53) + 1], bs.int64(), bs.float64(), "not exactly representable as double"),
        ([Decimal("1.55")], bs.decimal128(5, 2), bs.decimal128(5, 1), r"value 0: Decimal\('1.55'\) has digits"),
        ([Decimal("999.55")], bs.decimal128(5, 2), bs.decimal128(5, 3), "does not fit decimal128"),
        ([Decimal("300.00")], bs.decimal128(5, 2), bs.int8(), "does not fit int8"),
        ([float("nan")], bs.float64(), bs.decimal128(5, 2), "value 0: nan can't be converted to decimal128"),
        (["1", "x"], bs.string(), bs.int8(), "value 1: can't parse 'x' as int8"),
        (["300"], bs.string(), bs.int8(), "value 0: 300 cannot be converted to int8"),
        (["1_0"], bs.string(), bs.float64(), "can't parse '1_0' as double"),
        (["yes"], bs.string(), bs.bool_(), "can't parse 'yes' as bool"),
        (["2020-02-30"], bs.string(), bs.date32(), "can't parse '2020-02-30' as date32"),
        (["2020-01-01 00:00:00.5"], bs.string(), bs.timestamp("s"), "as timestamp"),
        (["2020-01-01 00:00:00Z"], bs.string(), bs.timestamp("s"), "as timestamp"),
        ([b"a", b"\xff"], bs.binary(), bs.string(), r"values\[1\] is not valid UTF-8"),
        ([b"abc", b"ab"], bs.binary(), bs.binary(3), r"value 1: b'ab' has 2 bytes"),
        ([datetime(2020, 1, 1, 0, 0, 0, 5)], bs.timestamp("us"), bs.timestamp("ms"), "is finer than timestamp"),
        ([datetime(9999, 1, 1)], bs.timestamp("s"), bs.timestamp("ns"), "does not fit timestamp"),
        ([datetime(2020, 1, 1, 5)], bs.timestamp("s"), bs.date32(), "is finer than date32"),
        ([datetime(2020, 1, 1, 5)], bs.timestamp("s"), bs.date64(), "is not a whole number of days"),
        ([86_400, -1], bs.int32(), bs.time32("s"), "value 0: 86400 is not a time of day"),
        ([0, -1], bs.int8(), bs.time64("ns"), "value 1: -1 is not a time of day"),
        ([86_400_000, 1], bs.int64(), bs.date64(), "value 1: 1 is not a whole number of days"),
        ([[1, 300]], bs.list_(bs.int64()), bs.list_(bs.int8()), "field 'item': value 1: 300"),
        ([1], bs.int8(), bs.list_(bs.int8()), "can't cast int8 to list"),
        ([1], bs.int8(), bs.duration("s"), None),
        ([True], bs.bool_(), bs.date32(), "can't cast bool to date32"),
    ],
)
def test_a_failed_cast_names_the_value(values: Any, source: bs.DataType, target: bs.DataType, pattern: Any) -> None:
    array = bs.array(values, source)
    if pattern is None:
        assert array.cast(target).cast(source).to_pylist() == values
        return
    with pytest.raises(bs.errors.TypeMismatchError, match=pattern):
        array.cast(target)


def test_decimals_become_the_nearest_float() -> None:
    assert bs.array([Decimal("-2.01")]).cast(bs.float64()).to_pylist() == [-2.01], "pyarrow is one unit off"
    integers = [number * 3**power + offset for number in (1, -7) for power in range(60) for offset in (0, 1, 5)]
    integers += [sign * (2**53 + offset) for sign in (1, -1) for offset in (-1, 0, 1)]
    for scale in (0, 1, 17, 22, 23, 30, -5):
        decimals = [Decimal(number).scaleb(-scale, Context(prec=76)) for number in integers]
        floats = bs.array([None, *decimals], bs.decimal128(38, scale)).cast(bs.float64())
        assert floats.to_pylist() == [None, *map(float, decimals)]


def test_text_is_parsed_as_times_of_day() -> None:
    words = bs.array(["01:02:03", None, "23:59", "00:00:00.5"])
    assert words.cast(bs.time32("ms")).to_pylist() == [time(1, 2, 3), None, time(23, 59), time(0, 0, 0, 500_000)]
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 3: can't parse '00:00:00.5' as time32"):
        words.cast(bs.time32("s"))


@pytest.mark.parametrize("year", ["-10000", "-9999", "-0999", "-0005", "0000", "0001", "9999", "10000"])
def test_dates_of_any_year_are_formatted_with_four_digits_or_more_and_parsed_again(year: str) -> None:
    day = f"{year}-02-28"
    days = int(np.datetime64(day, "D").astype(np.int64))
    for type_, units_per_day, text in [
        (bs.date32(), 1, day),
        (bs.date64(), 86_400_000, day),
        (bs.timestamp("s"), 86_400, f"{day} 00:00:00"),
        (bs.timestamp("us"), 86_400_000_000, f"{day} 00:00:00.000000"),
        (bs.timestamp("ms", "UTC"), 86_400_000, f"{day} 00:00:00.000Z"),
        (bs.timestamp("s", "+02:00"), 86_400, f"{day} 02:00:00+0200"),
    ]:
        array = bs.array([days * units_per_day], type_)
        assert array.cast("string").to_pylist() == [text]
        assert bs.array([text]).cast(type_) == array
    for invalid in (f"{year}-02-30", f"+{day}", f"{year}-2-28"):
        with pytest.raises(TypeMismatchError, match="can't parse"):
            bs.array([invalid]).cast(bs.date32())


def test_values_of_null_slots_are_ignored() -> None:
    array = bs.array(np.array([1, 300, 2]), mask=[False, True, False])
    assert array.cast(bs.int8()).to_pylist() == [1, None, 2]
    assert bs.array(np.array([1.0, np.nan]), mask=[False, True]).cast(bs.int8()).to_pylist() == [1, None]


BEYOND_INT8 = bs.array([300, 1, 300, 2, 300], bs.int64())
LIST_TYPES = [bs.list_, bs.large_list, bs.list_view, bs.large_list_view, lambda item: bs.list_(item, 2)]


def test_unreferenced_values_are_ignored() -> None:
    own = bs.Array.from_buffers
    views, starts = bs.list_view(bs.int64()), np.array([1, 3], np.int32)
    hidden = [
        own(bs.dictionary(bs.int8(), bs.int64()), 3, [None, np.array([3, 1, 3], np.int8)], dictionary=BEYOND_INT8),
        own(bs.struct([("a", bs.int64())]), 5, [bytes([0b01010]), ], [BEYOND_INT8]),
        own(bs.list_(bs.int64()), 5, [bytes([0b01010]), np.arange(6, dtype=np.int32)], [BEYOND_INT8]),
        own(bs.list_(bs.int64(), 1), 5, [bytes([0b01010])], [BEYOND_INT8]),
        own(views, 2, [None, starts, np.array([1, 1], np.int32)], [BEYOND_INT8]),
        own(bs.dense_union([("a", bs.int64())]), 2, [np.zeros(2, np.int8), starts], [BEYOND_INT8]),
    ]  # fmt: skip
    for array, narrow in zip(hidden, [bs.int8(), *[with_int8(array.type) for array in hidden[1:]]], strict=True):
        converted = array.cast(narrow)
        converted.validate(full=True)
        assert converted.type == narrow
        assert converted.to_pylist() == array.to_pylist()


def with_int8(type_: bs.DataType) -> bs.DataType:
    expected: Any = bs.Field("a", bs.int8())
    parts = {"children": (expected,), "value_field": bs.Field("item", bs.int8())}
    return replace(type_, **{name: part for name, part in parts.items() if hasattr(type_, name)})


@pytest.mark.parametrize("source", LIST_TYPES)
@pytest.mark.parametrize("target", LIST_TYPES)
def test_every_list_type_is_cast_to_every_other(source: Any, target: Any) -> None:
    values = [[1, None], None, [3, 4], [5, 6]]
    array = bs.array([[9, 9], *values, [7, 7]], source(bs.int64()))[1:5]
    converted = array.cast(target(bs.int8()))
    converted.validate(full=True)
    assert converted.type == target(bs.int8())
    assert converted.to_pylist() == values


def test_lists_of_different_sizes_are_not_cast_to_a_fixed_size() -> None:
    lists = bs.array([None, [1, 2], [3]])
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 2: expected 2 elements .*, found 1"):
        lists.cast(bs.list_(bs.int64(), 2))
    assert lists[:2].cast(bs.list_(bs.int64(), 2)).to_pylist() == [None, [1, 2]]
    strict = bs.large_list(bs.field("item", bs.int64(), nullable=False))
    assert lists.cast(strict).to_pylist() == [None, [1, 2], [3]]
    with pytest.raises(bs.errors.TypeMismatchError, match="field 'item': has 1 nulls, but its field is not nullable"):
        bs.array([[None]], bs.list_(bs.int64())).cast(strict)


def test_a_cast_between_dictionaries_keeps_the_order_of_values() -> None:
    sizes = bs.dictionary(bs.int32(), bs.string(), ordered=True)
    array = bs.Array.from_buffers(sizes, 2, [None, np.array([2, 0], np.int32)], dictionary=bs.array(["s", "m", "l"]))
    converted = array.cast(bs.dictionary(bs.int8(), bs.string(), ordered=True))
    assert converted.dictionary is array.dictionary
    assert converted.to_pylist() == ["l", "s"]
    large = array.cast(bs.dictionary(bs.int8(), bs.large_string(), ordered=True))
    assert large.dictionary is not None
    assert large.dictionary.to_pylist() == ["s", "l"]
    many = bs.array([str(n) for n in range(300)]).dictionary_encode()
    assert many[:100].cast(bs.dictionary(bs.int8(), bs.string())).to_pylist() == many[:100].to_pylist()
    with pytest.raises(bs.errors.TypeMismatchError, match="a dictionary of 300 values is too large"):
        many.cast(bs.dictionary(bs.int8(), bs.string()))


def test_field_names_inside_maps_are_ignored() -> None:
    entries = bs.struct([bs.field("k", bs.string(), False), bs.field("v", bs.int64())])
    target = bs.datatypes.types.Map(bs.field("pairs", entries, False))
    converted = bs.array([[("a", 1)], None], bs.map_(bs.large_string(), bs.int8())).cast(target)
    assert converted.type == target
    assert converted.to_pylist() == [[("a", 1)], None]


@pytest.mark.parametrize(
    ("wrap", "wrap_value"),
    [
        (lambda type_: type_, lambda value: value),
        (bs.list_, lambda value: [value]),
        (lambda type_: bs.struct({"m": type_}), lambda value: {"m": value}),
        (lambda type_: bs.dictionary("int8", type_), lambda value: value),
    ],
)
def test_a_cast_to_an_equal_type_changes_field_names_at_every_depth(wrap: Any, wrap_value: Any) -> None:
    entries = bs.struct([bs.field("k", bs.string(), False), bs.field("v", bs.list_(bs.field("element", "int64")))])
    source = wrap(bs.datatypes.types.Map(bs.field("pairs", entries, False)))
    target = wrap(bs.map_(bs.string(), bs.list_("int64")))
    values = [wrap_value(value) for value in ([("a", [1])], None, [("b", None)])]
    array = bs.array(values, source)
    converted = array.cast(target)
    converted.validate(full=True)
    assert converted.type.equals(target, check_metadata=True)
    assert converted.to_pylist() == values
    assert [buffer and buffer.address for buffer in converted.buffers()] == [
        buffer and buffer.address for buffer in array.buffers()
    ]


def test_a_null_is_not_cast_to_a_non_nullable_field() -> None:
    array = bs.array([{"a": 1}, None, {"a": None}])
    strict = bs.struct([bs.field("a", bs.int64(), False)])
    with pytest.raises(bs.errors.TypeMismatchError, match="field 'a': has 1 nulls, but its field is not nullable"):
        array.cast(strict)
    assert array[:2].cast(strict).to_pylist() == [{"a": 1}, None]
    coded = bs.dictionary(bs.int8(), bs.string())
    word = bs.Array.from_buffers(coded, 2, [None, bytes([0, 1])], dictionary=bs.array(["a", None]))
    for type_ in (coded, bs.run_end_encoded(bs.int32(), bs.string())):
        with pytest.raises(bs.errors.TypeMismatchError, match="column 'w': has 1 nulls, but its field is not nullable"):
            bs.record_batch({"w": word}).cast(bs.schema([bs.field("w", type_, nullable=False)]))


def test_floats_are_formatted_with_the_fewest_digits() -> None:
    values = np.array([0.1, 1.5, 1e20, -0.0, np.inf], np.float32)
    words = bs.array(values).cast(bs.string())
    assert words.to_pylist() == ["0.1", "1.5", "1e+20", "-0.0", "inf"]
    assert words.cast(bs.float32()).equals(bs.array(values))
    assert bs.array(np.array([0.1], np.float16)).cast(bs.string()).to_pylist() == ["0.1"]


def test_nat_is_not_formatted() -> None:
    least = bs.array([0, -(1 << 63)]).cast(bs.timestamp("s"))
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 1: -9223372036854775808 .* can't be formatted"):
        least.cast(bs.string())


def test_an_unsafe_cast_truncates_and_wraps_around() -> None:
    assert bs.array([1.9, -1.9]).cast(bs.int8(), safe=False).to_pylist() == [1, -1]
    assert bs.array([300, 1]).cast(bs.int8(), safe=False).to_pylist() == [44, 1]
    stamps = bs.array([datetime(2020, 1, 1, 5)], bs.timestamp("s"))
    assert stamps.cast(bs.date32(), safe=False).to_pylist() == [date(2020, 1, 1)]
    assert stamps.cast(bs.date64(), safe=False).to_pylist() == [date(2020, 1, 1)]
    before = bs.array([-1500, 1500]).cast(bs.timestamp("ms")).cast(bs.timestamp("s"), safe=False)
    assert before.cast(bs.int64()).to_pylist() == [-1, 1], "rounded towards zero, as in pyarrow"
    durations = bs.array([-1500, 1500, -2000]).cast(bs.duration("ms")).cast(bs.duration("s"), safe=False)
    assert durations.cast(bs.int64()).to_pylist() == [-1, 1, -2], "truncated like numbers"
    milliseconds = bs.array([86_400_001, None, -1]).cast(bs.date64(), safe=False)
    milliseconds.validate(full=True)
    assert milliseconds.to_pylist() == [date(1970, 1, 2), None, date(1969, 12, 31)]
    decimals = bs.array([Decimal("1.55"), Decimal("-1.55")])
    assert decimals.cast(bs.decimal128(5, 1), safe=False).to_pylist() == [Decimal("1.5"), Decimal("-1.5")]
    assert decimals.cast(bs.decimal128(5, -200), safe=False).to_pylist() == [0, 0]


@pytest.mark.parametrize(
    "inner", [bs.dictionary(bs.uint8(), bs.string()), bs.run_end_encoded(bs.int64(), bs.string()), bs.list_(bs.int8())]
)
@pytest.mark.parametrize("source", ["plain", "inner", "words", "runs"])
def test_nested_encodings_are_cast(source: str, inner: bs.DataType) -> None:
    words, runs = bs.dictionary(bs.int16(), inner), bs.run_end_encoded(bs.int16(), inner)
    values: list[Any] = [[1], [1], None, [2, 3]] if inner == bs.list_(bs.int8()) else ["a", "a", None, "b"]
    array = bs.array(values)
    if source != "plain":
        array = array.cast({"inner": inner, "words": words, "runs": runs}[source])
    rows = bs.Array.from_buffers(bs.list_(array.type), 1, [None, np.array([0, 4], np.int32)], [array])
    for target in (words, runs):
        converted, inside = array.cast(target), rows.cast(bs.large_list(target))
        converted.validate(full=True)
        inside.validate(full=True)
        assert (converted.to_pylist(), inside.to_pylist()) == (values, [values])


def test_an_unsafe_cast_creates_no_invalid_values() -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match="value 1: 86400000 is not a time of day"):
        bs.array([0, 86_400_000]).cast(bs.time32("ms"), safe=False)
    for source in (bs.int64(), bs.timestamp("ms")):
        least = bs.Array.from_buffers(source, 1, [None, np.array([-(1 << 63)], np.int64)])
        with pytest.raises(bs.errors.TypeMismatchError, match="does not fit date64"):
            least.cast(bs.date64(), safe=False)


LOSSLESS_CASTS = [
    (bs.int16(), bs.int64()), (bs.uint8(), bs.float16()), (bs.int32(), bs.float64()), (bs.int64(), bs.string()),
    (bs.int8(), bs.decimal32(5, 2)), (bs.float32(), bs.float64()), (bs.float64(), bs.string_view()),
    (bs.bool_(), bs.string()), (bs.bool_(), bs.uint8()), (bs.decimal128(20, 4), bs.string()),
    (bs.decimal64(9, 2), bs.decimal256(40, 7)), (bs.string(), bs.string_view()), (bs.string_view(), bs.large_binary()),
    (bs.binary(), bs.binary_view()), (bs.binary(5), bs.binary()), (bs.date32(), bs.date64()),
    (bs.date32(), bs.timestamp("ms")), (bs.timestamp("s"), bs.timestamp("ns")), (bs.timestamp("ns"), bs.string()),
    (bs.time32("ms"), bs.time64("ns")), (bs.time64("ns"), bs.string()), (bs.date32(), bs.string()),
    (bs.timestamp("us", "UTC"), bs.string()), (bs.duration("ns"), bs.int64()),
    (bs.dictionary(bs.int32(), bs.string()), bs.string()),
]  # fmt: skip


@settings(max_examples=60)
@given(data=st.data(), pair=st.sampled_from(LOSSLESS_CASTS[:-1]))
def test_a_cast_and_its_reverse_return_the_values(data: st.DataObject, pair: tuple[bs.DataType, bs.DataType]) -> None:
    array = data.draw(strategies.arrays(pair[0]))
    converted = array.cast(pair[1])
    converted.validate(full=True)
    assert converted.is_valid().equals(array.is_valid())
    assert repr(converted.cast(pair[0]).to_pylist()) == repr(array.to_pylist())


def test_tables_are_cast_by_schema() -> None:
    table = bs.concat_tables([bs.table({"a": [1, None], "b": ["1", "2"]}), bs.table({"a": [300], "b": ["3"]})])
    expected = bs.schema({"a": bs.int16(), "b": bs.int8()})
    converted = table.cast(expected)
    converted.validate(full=True)
    assert converted.schema == expected
    assert converted.to_pydict() == {"a": [1, None, 300], "b": [1, 2, 3]}
    assert table["b"].cast(bs.float32()).to_pylist() == [1.0, 2.0, 3.0]
    with pytest.raises(bs.errors.TypeMismatchError, match="record batch 1: column 'a': value 0: 300 does not fit int8"):
        table.cast(bs.schema({"a": bs.int8(), "b": bs.int8()}))
    with pytest.raises(bs.errors.TypeMismatchError, match="column 'a': has 1 nulls"):
        table.cast(bs.schema([bs.field("a", bs.int64(), False), bs.field("b", bs.string())]))
    with pytest.raises(bs.errors.InvalidArgumentError, match="the columns are"):
        table.cast(bs.schema({"a": bs.int8()}))


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_a_union_is_cast_to_a_struct_in_which_only_the_active_child_is_set(mode: str) -> None:
    union = getattr(bs, f"{mode}_union")([("n", bs.int32()), ("s", bs.string())])
    array = bs.array([5, "x", None, 7, "y"], union)
    target = bs.struct([("n", bs.int64()), ("s", bs.string())])
    for part in (array, array.slice(1, 3)):
        structs = part.cast(target)
        structs.validate(full=True)
        values = part.to_pylist()
        assert structs.to_pylist() == [
            {"n": v if isinstance(v, int) else None, "s": v if isinstance(v, str) else None} for v in values
        ]
    nested = bs.array([[5, "x"], None, []], bs.list_(union)).cast(bs.list_(target))
    assert nested.to_pylist() == [[{"n": 5, "s": None}, {"n": None, "s": "x"}], None, []]
    with pytest.raises(bs.errors.TypeMismatchError, match="nulls, but its field is not nullable"):
        array.cast(bs.struct([bs.field("n", bs.int64(), nullable=False), ("s", bs.string())]))
    with pytest.raises(bs.errors.TypeMismatchError, match="expected the fields"):
        array.cast(bs.struct([("n", bs.int64()), ("t", bs.string())]))


def test_calendar_intervals_are_cast_to_their_fields() -> None:
    fields = bs.struct([("months", bs.int32()), ("days", bs.int32()), ("time", bs.duration("us"))])
    months = bs.array([14, None, -1], bs.month_interval())
    assert months.cast(bs.int32()).to_pylist() == [14, None, -1]
    assert months.cast(fields).to_pylist()[:2] == [{"months": 14, "days": 0, "time": timedelta(0)}, None]
    days = bs.array([(3, -4), None], bs.day_time_interval())
    assert days.cast(fields).to_pylist() == [{"months": 0, "days": 3, "time": timedelta(milliseconds=-4)}, None]
    nanos = bs.array([(1, -2, 3_000), None], bs.month_day_nano_interval())
    expected = [{"months": 1, "days": -2, "time": timedelta(microseconds=3)}, None]
    assert nanos.cast(fields).to_pylist() == expected
    assert bs.array([nanos.to_pylist()], bs.list_(nanos.type)).cast(bs.list_(fields)).to_pylist() == [expected]
    with pytest.raises(bs.errors.TypeMismatchError, match="is finer than"):
        bs.array([(0, 0, 1)], bs.month_day_nano_interval()).cast(fields)
    with pytest.raises(bs.errors.TypeMismatchError, match="several fields"):
        nanos.cast(bs.int32())


ZONES = ["UTC", "Europe/Riga", "Asia/Kathmandu", "America/New_York", "+05:30", "-03:00", "+00:00", None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
def test_a_timestamp_as_text_is_the_local_time_and_its_offset(zone: str | None, unit: str) -> None:
    values = [0, -1, None, 1_600_000_000, 1_700_000_000, 1_711_846_800, 1_729_990_800, -1_000_000_000]
    stamps = pa.array(values, pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    text = bs.array(stamps).cast("string")
    assert text.to_pylist() == stamps.cast(pa.string()).to_pylist()
    assert text.cast(bs.array(stamps).type).equals(bs.array(stamps))


def test_an_offset_before_the_year_1_or_after_9999_is_that_of_the_nearest_year() -> None:
    stamps = bs.array([253_402_300_800, -62_135_596_801, None], bs.timestamp("s", "Europe/Riga"))
    assert stamps.cast("string").to_pylist() == ["10000-01-01 02:00:00+0200", "0001-01-01 01:36:33+0136", None]
    with pytest.raises(TypeMismatchError, match="range"):
        bs.array([(1 << 63) - 1], bs.timestamp("ns", "+01:00")).cast("string")
    with pytest.raises(TypeMismatchError, match="no time zone"):
        bs.array([1], bs.timestamp("ns", "Nowhere/Never")).cast("string")


@pytest.mark.parametrize("text", ["1970-01-01T00", "1970-01-01 23", "1970-01-01T23:59"])
def test_a_timestamp_may_have_no_minutes_or_seconds(text: str) -> None:
    assert bs.array([text]).cast("timestamp[s]").equals(bs.array(pa.array([text]).cast(pa.timestamp("s"))))
    for zone in ("Z", "+01", "-01:30", "+0130"):
        expected = pa.array([text + zone]).cast(pa.timestamp("s", "UTC"))
        assert bs.array([text + zone]).cast(bs.timestamp("s", "UTC")).equals(bs.array(expected))
    for invalid in (text + "Z", text + ":", text[:11], text + "+1"):
        with pytest.raises(TypeMismatchError, match="can't parse"):
            bs.array([invalid]).cast("timestamp[s]")


UNITS = ["s", "ms", "us", "ns"]


@pytest.mark.parametrize(("fine", "coarse"), [(fine, coarse) for fine in UNITS for coarse in UNITS])
@pytest.mark.parametrize("type_", [pa.timestamp, pa.duration])
def test_a_coarser_unit_rounds_as_in_pyarrow(type_: Any, fine: str, coarse: str) -> None:
    values = pa.array([-1, -999, -1000, -1001, 86_400_001, -86_400_001, None, 1, 0], type_(fine))
    expected = values.cast(type_(coarse), safe=False)
    assert bs.array(values).cast(expected.type, safe=False).equals(bs.array(expected))


@pytest.mark.parametrize("day", [pa.date32(), pa.date64()])
@pytest.mark.parametrize("source", [*(pa.timestamp(unit) for unit in UNITS), pa.date64()])
def test_the_date_of_a_timestamp_is_its_day_as_in_pyarrow(source: Any, day: Any) -> None:
    values = pa.array([-1, -86_400_000, -86_400_001, 86_400_001, None, 0], source)
    expected = values.cast(day, safe=False)
    if source != day:
        assert bs.array(values).cast(expected.type, safe=False).equals(bs.array(expected))


@pytest.mark.parametrize("safe", [True, False])
def test_ml_vectors_and_matrices_become_lists_of_any_kind_also_within_other_types(safe: bool) -> None:
    vectors = bs.array([(0, 3, [1], [2.5]), None, (1, None, None, [1.0, 2.0, 3.0])], VECTOR_TYPE)
    rows = [[0.0, 2.5, 0.0], None, [1.0, 2.0, 3.0]]
    for target in (bs.list_("float64"), bs.list_("float32"), bs.large_list("float16"), bs.list_("float32", 3)):
        assert vectors.cast(target, safe).to_pylist() == rows
    nested = bs.array(
        [{"n": 1, "v": [(0, 3, [1], [2.5]), None]}], bs.struct({"n": bs.int8(), "v": bs.list_(VECTOR_TYPE)})
    )
    target = bs.struct({"n": bs.int8(), "v": bs.list_(bs.list_("float32"))})
    assert nested.cast(target, safe).to_pylist() == [{"n": 1, "v": [[0.0, 2.5, 0.0], None]}]
    matrices = bs.array([(1, 2, 1, [], [], [1.0, 2.0], False), None], MATRIX_TYPE)
    assert matrices.cast(bs.list_(bs.list_("float32", 1)), safe).to_pylist() == [[[1.0], [2.0]], None]


def test_ml_vectors_with_values_beyond_float32_or_other_sizes_are_not_cast_safely() -> None:
    vectors = bs.array([(0, 3, [1], [1e300])], VECTOR_TYPE)
    with pytest.raises(TypeMismatchError, match="too large for float"):
        vectors.cast(bs.list_("float32"))
    assert vectors.cast(bs.list_("float32"), safe=False).to_pylist() == [[0.0, float("inf"), 0.0]]
    with pytest.raises(TypeMismatchError, match="expected 4 elements"):
        vectors.cast(bs.list_("float64", 4))
    with pytest.raises(TypeMismatchError, match="vector 0: the index 3 is not below 3"):
        bs.array([(0, 3, [3], [1.0])], VECTOR_TYPE).cast(bs.list_("float64"))
    with pytest.raises(TypeMismatchError, match="can't cast struct"):
        bs.array([{"x": 1}]).cast(bs.list_("float64"))
