"""The functions of `bowstring.compute`: types, values and errors are those of pyarrow.compute."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from random import Random
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.compute.rounding import RoundMode
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.kernels.comparison import compare
from bowstring.layouts.base import ArrayData
from bowstring.memory.bitmap import Mask

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

NAN, INFINITY = math.nan, math.inf
ARRAYS = {
    "int8": pa.array([1, -128, None, 127, 0], pa.int8()),
    "int16": pa.array([-7, 3, 2, None, 1], pa.int16()),
    "int32": pa.array([5, None, -2, 127, -1], pa.int32()),
    "int64": pa.array([-(1 << 63), (1 << 63) - 1, None, 2, -1], pa.int64()),
    "uint8": pa.array([255, 0, 3, None, 1], pa.uint8()),
    "uint32": pa.array([(1 << 32) - 1, 0, None, 7, 1], pa.uint32()),
    "uint64": pa.array([(1 << 62) + 1, 0, None, 7, 1], pa.uint64()),
    "float32": pa.array([1.5, NAN, None, -0.0, INFINITY], pa.float32()),
    "float64": pa.array([0.1, NAN, -INFINITY, None, 0.0], pa.float64()),
    "bool": pa.array([True, False, None, True, False]),
    "decimal128": pa.array([Decimal("1.25"), Decimal("-99.99"), None, Decimal("0.00"), Decimal("2.00")]),
    "decimal128, scale 5": pa.array([Decimal("1.25000"), None, Decimal("-0.00001"), Decimal(0), Decimal(3)]),
    "decimal256": pa.array([Decimal("1.5"), None, Decimal("2.5"), Decimal(0), Decimal(10)], pa.decimal256(40, 1)),
    "string": pa.array(["a", "Ähre", None, "", "more than twelve bytes"]),
    "large_string": pa.array(["a", "z", "b", None, "more than twelve characters"], pa.large_string()),
    "string_view": pa.array(["a", None, "b", "", "more than twelve bytes"], pa.string_view()),
    "binary": pa.array([b"a", b"\xff", None, b"", b"more than twelve bytes"]),
    "fixed_size_binary": pa.array([b"ab", b"\0\xff", None, b"ab", b"zz"], pa.binary(2)),
    "date32": pa.array([dt.date(2020, 1, 1), None, dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(1970, 1, 1)]),
    "date64": pa.array([dt.date(2020, 1, 1), None, dt.date(1969, 12, 31), dt.date(1970, 1, 1), None], pa.date64()),
    "timestamp[s]": pa.array([1, -1, None, 1_577_836_800, 0], pa.timestamp("s")),
    "timestamp[ns]": pa.array([10**9, -1, 5, None, 0], pa.timestamp("ns")),
    "timestamp[ms, UTC]": pa.array([1000, -1, 5, None, 0], pa.timestamp("ms", "UTC")),
    "time32[s]": pa.array([1, 86_399, None, 0, 3600], pa.time32("s")),
    "time64[us]": pa.array([10**6, None, 7, 3_600_000_000, 5], pa.time64("us")),
    "duration[ms]": pa.array([1000, -1, None, 0, 86_400_000], pa.duration("ms")),
    "duration[us]": pa.array([10**6, None, 7, 3, -5], pa.duration("us")),
    "null": pa.nulls(5),
    "dictionary": pa.array(["a", "b", None, "a", "Ähre"]).dictionary_encode(),
    "dictionary of numbers": pa.array([1, 2, None, 1, 2]).dictionary_encode(),
    "list": pa.array([[1], [], None, [2, 3], [1]]),
}
NUMBERS = {"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64", "bool", "null"} | {
    name for name in ARRAYS if "decimal" in name
}


def as_pyarrow(value: Any) -> Any:
    if isinstance(value, bs.Scalar):
        return pa.array(value.to_array())[0]
    return pa.chunked_array(value) if isinstance(value, bs.ChunkedArray) else pa.array(value)


def as_bowstring(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return bs.Scalar(bs.array(as_array(value)))
    if isinstance(value, pa.ChunkedArray):
        return bs.chunked_array(value.chunks, bs.field("", value.type).type)
    return bs.array(value) if isinstance(value, pa.Array) else value


def as_floats(array: Any) -> list[float]:
    """The values of an array of floats, with an improbable number for null."""
    return [1.25e300 if value is None else value for value in array.to_pylist()]


def as_array(value: Any) -> Any:
    if not isinstance(value, pa.Scalar):
        return value
    if pa.types.is_nested(value.type):
        return pa.array([value.as_py()], value.type)
    return pa.array([value]) if value.is_valid else pa.nulls(1, value.type)


def check(function: str, *arguments: Any, **options: Any) -> bool:
    """Compare a function's result or error with pyarrow's; return whether pyarrow supports the types.

    Of functions and types that pyarrow does not support, Bowstring may support some.
    """
    expected: Any = None
    unsupported, error = False, None
    try:
        expected = getattr(pc, function)(*arguments, **options)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        unsupported = True
    except pa.ArrowInvalid as invalid:
        error = invalid
    where = f"{function} of {[str(getattr(each, 'type', each)) for each in arguments]}"
    try:
        value = getattr(bs.compute, function)(*map(as_bowstring, arguments), **options)
    except InvalidArgumentError as own_error:
        if unsupported or error is not None:
            return not unsupported
        pytest.fail(f"{where}: {own_error}")
    is_null_slot_invalid = "within the acceptable range" in str(error)  # pyarrow checks null slots, too
    assert error is None or is_null_slot_invalid, f"{where}: expected {error}"
    if isinstance(value, bs.Array | bs.ChunkedArray):
        value.validate(full=True)
    if expected is not None:
        found = as_pyarrow(value)
        assert type(found) is type(expected), where
        assert found.type == expected.type, where
        found, expected = as_array(found), as_array(expected)
        if pa.types.is_floating(found.type) and any("decimal" in str(getattr(each, "type", "")) for each in arguments):
            approximation = pytest.approx(as_floats(expected), rel=1e-12, nan_ok=True)  # pyarrow's last digits are off
            assert as_floats(found) == approximation, where
        else:
            assert bs.array(found).equals(bs.array(expected), nans_equal=True), f"{where}: {found} {expected}"
    return not unsupported


def pairs_of(names: list[str]) -> list[tuple[Any, Any]]:
    return [(ARRAYS[left], ARRAYS[right]) for left in names for right in names]


@pytest.mark.parametrize("function", ["equal", "less"])
def test_comparisons_of_all_types_are_those_of_pyarrow(function: str) -> None:
    supported = [(left, right) for left, right in pairs_of(list(ARRAYS)) if check(function, left, right)]
    assert len(supported) > 150
    for left, right in supported:
        check(function, left, right[4])
        check(function, left[0], right)


@pytest.mark.parametrize("function", ["not_equal", "less_equal", "greater", "greater_equal"])
def test_all_comparisons_are_those_of_pyarrow(function: str) -> None:
    for array in ARRAYS.values():
        check(function, array, array)
        check(function, array[:4], array[1:])
        check(function, array, array[4])
        check(function, array[4], array)


@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide"])
def test_arithmetic_is_that_of_pyarrow(function: str) -> None:
    names = [name for name in ARRAYS if name != "null" or function != "divide"]  # a decimal by null has no scale
    supported = [(left, right) for left, right in pairs_of(names) if check(function, left, right)]
    assert len(supported) > 100
    for left, right in supported:
        check(function, left, right[4])
        check(function, left[3:], right[:2])
        check(function, left[0], right[4])
    checked = ["int8", "int64", "uint64", "float64", "decimal128", "duration[us]", "timestamp[s]"]
    assert sum(check(f"{function}_checked", left, right[4]) for left, right in pairs_of(checked)) > 10


@pytest.mark.parametrize(
    "function", ["negate", "negate_checked", "abs", "abs_checked", "is_nan", "is_finite", "is_inf"]
)
def test_functions_of_one_number_are_those_of_pyarrow(function: str) -> None:
    for array in ARRAYS.values():
        for part in (array, array[2:], array[3], array[:0]):
            check(function, part)


@pytest.mark.parametrize("function", ["sign", "sqrt", "floor", "ceil", "trunc"])
def test_signs_roots_and_whole_numbers_are_those_of_pyarrow(function: str) -> None:
    supported = 0
    for name, array in ARRAYS.items():
        # pyarrow returns 0 for -99.99, whose rounded value does not fit, if another value follows.
        for part in (array[2:] if "decimal" in name else array, array[3], array[:0]):
            supported += check(function, part)
    assert supported > 30


@pytest.mark.parametrize("mode", get_args(RoundMode))
def test_numbers_are_rounded_as_by_pyarrow(mode: str) -> None:
    quarters = pa.array([number / 4 for number in range(-12, 13)] + [NAN, INFINITY, None, 1e300, -0.0, 1e-300])
    integers = pa.array([*range(-31, 32), None, 45, 50, 55, -45, -50, -55, 100, -100])
    arrays = [array[2:] if "decimal" in name else array for name, array in ARRAYS.items()]
    numbers = [*arrays, quarters, quarters.cast("float32", safe=False), integers, integers.cast("int8")]
    numbers += [integers.filter(pc.greater(integers, 0)).cast("uint8"), pa.array([(1 << 64) - 1, 1 << 63], pa.uint64())]
    decimals = [None if value is None else Decimal(value).scaleb(-2) for value in integers.to_pylist()]
    numbers += [pa.array(decimals, pa.decimal128(9, 2)), pa.array(decimals, pa.decimal256(50, 2))]
    for array in numbers:
        is_float = pa.types.is_floating(array.type)  # pyarrow's 1e18 is not exact
        for ndigits in (0, 1, 2, 5, -1, -2, -3) if is_float else (0, 1, 2, 5, -1, -2, -3, -18, -20):
            for part in (array, array[:4], array[-1]):
                check("round", part, ndigits=ndigits, round_mode=mode)


def test_powers_are_those_of_pyarrow() -> None:
    supported = 0
    for base_name, base in ARRAYS.items():
        for name, exponent in ARRAYS.items():
            if "decimal" in base_name + name or "float32" in (base_name, name):
                continue  # the last digits differ
            if name.startswith(("int", "dictionary of")):
                continue  # pyarrow raises for negative exponents of null
            for part in (exponent, exponent[4], exponent[:0]):
                supported += check("power", base[: len(part)] if isinstance(part, pa.Array) else base, part)
    assert supported > 30
    assert check("power", pa.array([2, -3, 0, None], pa.int8()), pa.array([5, 3, 0, 1], pa.int8()))
    assert bs.compute.power([Decimal("1.5")], 2).to_pylist() == [2.25]


def test_cumulative_sums_are_those_of_pyarrow() -> None:
    for name, array in ARRAYS.items():
        if name.startswith("dictionary"):  # pyarrow's are of other values
            continue
        for skip_nulls in (False, True):
            for part in (array, array[3:], array[:0], pa.chunked_array([array[:2], array[:0], array[2:]])):
                check("cumulative_sum", part, skip_nulls=skip_nulls)
    assert check("cumulative_sum", pa.array([1, None, 3]), start=10, skip_nulls=True)


def test_nulls_are_filled_from_neighbours_as_by_pyarrow() -> None:
    for array in ARRAYS.values():
        chunks = pa.chunked_array([array[:3], pa.nulls(2, array.type), array[:0], array])
        for part in (array, array[2:], array[2:3], array[:0], chunks):
            check("fill_null_forward", part)
            check("fill_null_backward", part)


def test_parts_of_lists_and_structs_are_those_of_pyarrow() -> None:
    lists = [[1, 2], None, [], [3, None]]
    nested = pa.array([[[1], [2, 3]], None, [], [None, []]])
    for array in (*(pa.array(lists, kind(pa.int8())) for kind in (pa.list_, pa.large_list, pa.list_view)), nested):
        for part in (array, array[1:], array[:0], pa.chunked_array([array[3:], array])):
            assert check("list_value_length", part)
            assert check("list_flatten", part)
            assert check("list_flatten", part, recursive=True)
        assert check("list_value_length", array[0])
        assert check("list_flatten", array[3])
    assert check("list_flatten", pa.array([[1, 2], None], pa.list_(pa.int8(), 2)))
    assert not check("list_flatten", pa.array([1]))
    structs = pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}])
    for indices in ("a", 0, ["b", "c"], [1, 0], ["b"], []):
        for part in (structs, structs[1:], structs[0], pa.chunked_array([structs, structs[2:]])):
            assert check("struct_field", part, indices)
    assert not check("struct_field", pa.array([1]), "a")


@pytest.mark.parametrize("function", ["year", "month", "day", "day_of_week", "hour", "minute", "second"])
def test_parts_of_dates_and_times_are_those_of_pyarrow(function: str) -> None:
    seconds = [
        0,
        -1,
        951_782_400,
        951_868_799,
        4_107_542_399,
        -2_208_988_801,
        None,
        86_399,
        1_709_164_800,
        -62_135_596_800,
    ]
    extremes = pa.array([*seconds, -(1 << 39), 1 << 39], pa.timestamp("s"))
    days = pa.array([None if second is None else second // 86_400 for second in seconds], pa.int32()).cast("date32")
    supported = sum(
        check(function, array) for array in (*ARRAYS.values(), extremes, days, days.cast("date64"), days[2])
    )
    assert supported > 3


@pytest.mark.parametrize("function", ["and_", "or_", "xor", "and_not", "and_kleene", "or_kleene", "and_not_kleene"])
def test_boolean_logic_is_that_of_pyarrow(function: str) -> None:
    left = pa.array([True, True, True, False, False, False, None, None, None])
    right = pa.array([True, False, None] * 3)
    assert check(function, left, right)
    for value in (True, False, None):
        assert check(function, left, pa.scalar(value, pa.bool_()))
        assert check(function, pa.scalar(value, pa.bool_()), right)
    assert check(function, pa.chunked_array([left[:4], left[4:]]), right)
    assert not check(function, left, pa.array(range(9)))


@pytest.mark.parametrize("function", ["sum", "product", "mean", "min", "max", "min_max", "variance", "stddev"])
@pytest.mark.parametrize("options", [{}, {"skip_nulls": False}, {"min_count": 4}, {"min_count": 5}, {"min_count": 0}])
def test_aggregations_are_those_of_pyarrow(function: str, options: dict[str, Any]) -> None:
    for name, array in ARRAYS.items():
        if function == "product" and "decimal" in name:
            continue  # pyarrow's loses digits
        chunks = pa.chunked_array([array[:1], array[:0], array[1:]])
        for part in (array, array[:2], array[3:], array[:0], array[2:3], array[0], chunks):
            if function == "mean" and options.get("min_count") == 0 and ("decimal" in name or name == "null"):
                continue  # pyarrow divides by zero
            check_approximately(function, part, options) if function in ("variance", "stddev", "mean") else check(
                function, part, **options
            )


def check_approximately(function: str, values: Any, options: dict[str, Any]) -> None:
    """Compare floats whose last digits depend on the order of additions."""
    try:
        expected = getattr(pc, function)(values, **options)
    except pa.ArrowNotImplementedError:
        return
    found = getattr(bs.compute, function)(as_bowstring(values), **options)
    assert as_pyarrow(found).type == expected.type
    if expected.as_py() is None or isinstance(expected.as_py(), Decimal):
        assert found.as_py() == expected.as_py()
    else:
        assert found.as_py() == pytest.approx(expected.as_py(), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("ddof", [0, 1, 4, 5])
def test_the_divisor_of_a_variance_is_that_of_pyarrow(ddof: int) -> None:
    for name in ("int16", "float64", "decimal128"):
        check_approximately("variance", ARRAYS[name], {"ddof": ddof})
        check_approximately("stddev", ARRAYS[name][:2], {"ddof": ddof})


@pytest.mark.parametrize("skip_nulls", [True, False])
def test_any_and_all_are_those_of_pyarrow(skip_nulls: bool) -> None:
    for values in ([True, False, None], [None], [], [True, None], [False, None], [True], [False]):
        for function in ("any", "all"):
            for min_count in (0, 1, 2):
                assert check(function, pa.array(values, pa.bool_()), skip_nulls=skip_nulls, min_count=min_count)
    assert not check("any", pa.array([1]))


@pytest.mark.parametrize("mode", ["only_valid", "only_null", "all"])
def test_counts_are_those_of_pyarrow(mode: str) -> None:
    for array in ARRAYS.values():
        for part in (array, array[:2], array[:0], array[4], pa.chunked_array([array, array[3:]])):
            check("count", part, mode=mode)
            check("count_distinct", part, mode=mode)
    assert check("count_distinct", pa.array([NAN, NAN, 0.0, -0.0, None, None]), mode=mode)


@pytest.mark.parametrize("function", ["value_counts", "unique"])
def test_distinct_values_are_those_of_pyarrow(function: str) -> None:
    for name, array in ARRAYS.items():
        if name != "string_view":  # pyarrow's counts null as an empty string
            check(function, pa.concat_arrays([array, array[::-1] if "view" not in name else array]))
            check(function, array[:0])
    assert check(function, pa.chunked_array([["a", "b"], ["b", None]]))


@pytest.mark.parametrize("function", ["is_in", "index_in"])
@pytest.mark.parametrize("skip_nulls", [False, True])
def test_membership_is_that_of_pyarrow(function: str, skip_nulls: bool) -> None:
    for name, array in ARRAYS.items():
        for other_name, other in ARRAYS.items():
            if name != "large_string" and other_name != "large_string" and comparable(name, other_name):
                check(function, array, value_set=other[1:4], skip_nulls=skip_nulls)
                check(function, array[0], value_set=other[:0], skip_nulls=skip_nulls)
    assert bs.compute.is_in(bs.array(ARRAYS["string"]), bs.array(ARRAYS["large_string"])).to_pylist() == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_members_with_equal_hashes_are_told_apart() -> None:
    """The hash is that of the first, the middle and the last eight bytes."""
    alike = ["a" * 10 + letter + "a" * 100 for letter in "abcdefgh"]
    for values, members in (
        (alike, alike[2:4]),
        ([*alike[:2], "x"], alike),
        (["x", *alike], ["y", alike[1], alike[1]]),
    ):
        assert check("is_in", pa.array([*values, None]), value_set=pa.array(members))
        assert check("index_in", pa.array([*values, None]), value_set=pa.array([*members[:1], None, *members[1:]]))
    numbers = [str(number) for number in range(5000)]
    assert check("index_in", pa.array(numbers), value_set=pa.array(numbers[::-3] + ["x"] * 3))


def comparable(name: str, other: str) -> bool:
    """Whether pyarrow casts the values of a set to a common type; it casts others to the type of the values."""
    return name == other or {name, other} <= {"int8", "int32", "int64"} or {name, other} <= {"int8", "float64"}


@pytest.mark.parametrize("name", ARRAYS)
def test_choices_are_those_of_pyarrow(name: str) -> None:
    array, condition = ARRAYS[name], ARRAYS["bool"]
    other = pa.concat_arrays([array[3:], array[:3]])
    check("if_else", condition, array, other)
    check("if_else", condition, array[0], other)
    check("if_else", condition, array[0], array[1])
    check("if_else", pa.scalar(True), array, other[1])
    check("if_else", pa.scalar(None, pa.bool_()), array, other)
    check("coalesce", array, other)
    check("coalesce", array, other[1], other)
    check("coalesce", array[2], other)
    for filler in (array[0], other):
        if name != "null":
            check("fill_null", array, filler)
    check("is_null", array)
    check("is_null", array, nan_is_null=True)
    check("is_valid", array[2])


def test_choices_cast_to_a_common_type_as_pyarrow() -> None:
    for left in NUMBERS:
        for right in NUMBERS:
            check("if_else", ARRAYS["bool"], ARRAYS[left], ARRAYS[right])
            check("coalesce", ARRAYS[left], ARRAYS[right])


STRINGS = pa.array(["", "a", "aä", "banana", None, "Straße ÄÖ", "nan" * 50, "日本語", "naNA", "an"])
ENCODINGS: dict[str, Callable[[Any], Any]] = {
    "strings": lambda array: array,
    "large": lambda array: array.cast("large_string"),
    "views": lambda array: array.cast("string_view"),
    "dictionary": lambda array: array.dictionary_encode(),
    "runs": lambda array: bs.array(array).run_end_encode(),
    "slice": lambda array: pa.concat_arrays([array, array])[len(array) :],
    "bytes": lambda array: array.cast("binary"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("function", ["starts_with", "ends_with", "match_substring"])
def test_patterns_match_as_in_pyarrow(function: str, ignore_case: bool, encoding: str) -> None:
    if encoding == "bytes" and ignore_case:
        return
    strings = bs.array(ENCODINGS[encoding](STRINGS))
    for pattern in ("", "a", "an", "na", "nan" * 10, "ä", "NA", "ße", "z" * 1000, "日本語", "語"):
        expected = getattr(pc, function)(STRINGS, pattern, ignore_case=ignore_case)
        found = getattr(bs.compute, function)(strings, pattern, ignore_case=ignore_case)
        assert found.to_pylist() == expected.to_pylist(), pattern


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_lengths_and_cases_are_those_of_pyarrow(encoding: str) -> None:
    strings = bs.array(ENCODINGS[encoding](STRINGS))
    functions = ["binary_length"] + ["utf8_length", "utf8_upper", "utf8_lower"] * (encoding != "bytes")
    for function in functions:
        values = getattr(bs.compute, function)(strings)
        values.validate(full=True)
        expected = getattr(pc, function)(STRINGS).to_pylist()
        if function == "utf8_upper":
            expected = [value and value.replace("ẞ", "ß") for value in expected]  # Python has no single upper-case ß
        assert values.to_pylist() == expected


def test_cases_may_have_other_lengths_in_utf8() -> None:
    for values in (["aɐb", "ⱥ", None, "Å"], ["xȺ", "ä", "K"], ["äöü", "ÄÖÜ"]):  # "ⱥ" and "Ⱥ" have 3 and 2 bytes
        for function in ("utf8_upper", "utf8_lower"):
            assert check(function, pa.array(values))


def test_bytes_of_null_slots_do_not_matter_to_cases() -> None:
    for valid_bytes, text in ((b"ab", "AB"), ("ä".encode(), "Ä")):
        data = valid_bytes + b"\xff\xfe"
        strings = bs.Array.from_buffers("string", 2, [b"\1", np.array([0, 2, 4], np.int32), data])
        assert bs.compute.utf8_upper(strings).to_pylist() == [text, None]
        with pytest.raises(bs.errors.InvalidDataError, match="UTF-8"):
            bs.compute.utf8_upper(bs.Array.from_buffers("string", 2, [None, *strings.own_buffers[1:]]))


@settings(max_examples=100)
@given(
    values=st.lists(st.none() | st.text("abä", max_size=6), max_size=8),
    pattern=st.text("abä", max_size=3),
    start=st.integers(0, 3),
)
def test_strings_match_as_in_python(values: list[str | None], pattern: str, start: int) -> None:
    tests: dict[str, Callable[[str], bool]] = {
        "starts_with": lambda value: value.startswith(pattern),
        "ends_with": lambda value: value.endswith(pattern),
        "match_substring": lambda value: pattern in value,
    }
    for array in (bs.array(values, "string"), bs.array(values, "string_view")):
        for function, test in tests.items():
            found = getattr(bs.compute, function)(array.slice(start), pattern)
            assert found.to_pylist() == [None if value is None else test(value) for value in values[start:]]


@settings(max_examples=30)
@given(
    values=st.lists(
        st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 9)] * 2), min_size=1, max_size=5
    )
)
@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide"])
def test_overflow_is_that_of_pyarrow(function: str, values: list[tuple[int, int]]) -> None:
    for type_ in (pa.int64(), pa.int8(), pa.uint64()):
        bits, lowest = type_.bit_width, 0 if "u" in str(type_) else -(1 << type_.bit_width - 1)
        left, right = (
            pa.array([(pair[side] - lowest) % (1 << bits) + lowest for pair in values], type_) for side in (0, 1)
        )
        check(function, left, right)
        for pair in range(len(values)):
            check(f"{function}_checked", left[pair : pair + 1], right[pair : pair + 1])


def random_decimals(precision: int, scale: int, type_: Callable[[int, int], Any]) -> Any:
    """Decimals of one to all digits of a precision, some null, none zero."""
    random = Random(precision)
    digits = [random.choice([1, -1]) * random.randrange(1, 10 ** random.randint(1, precision)) for _ in range(300)]
    values = [None if digit % 17 == 0 else Decimal(digit).scaleb(-scale, Context(prec=76)) for digit in digits]
    return pa.array(values, type_(precision, scale))


def test_decimals_of_all_lengths_are_calculated_as_by_pyarrow() -> None:
    for type_, pairs in (
        (pa.decimal128, [((34, 5), (33, 3)), ((18, 4), (19, 6)), ((20, 2), (8, 3)), ((30, 0), (3, 3))]),
        (pa.decimal256, [((70, 5), (71, 3)), ((37, 4), (38, 6)), ((40, 2), (20, 3)), ((65, 0), (5, 3))]),
    ):
        for (left_digits, right_digits), functions in zip(
            pairs, (["add", "subtract"], ["add", "multiply"], ["divide"], ["divide", "subtract"]), strict=True
        ):
            left, right = random_decimals(*left_digits, type_), random_decimals(*right_digits, type_)
            for function in functions:
                assert check(function, left, right)
                assert check(function, left, right[0])
                assert check(function, left[0], right)
            for function in ("negate", "abs", "sum"):
                assert check(function, left)


@pytest.mark.parametrize("length", [(1 << 13) - 1, 1 << 13, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, (1 << 15) + 1])
def test_values_of_several_blocks_are_calculated_and_compared_as_by_pyarrow(length: int) -> None:
    left = pa.array([Decimal(number << 64) for number in range(1, length + 1)], pa.decimal128(26, 1))
    right = pa.array(range(length, 0, -1), pa.int32()).cast(pa.decimal128(10, 0))
    for function in ("add", "multiply", "divide"):
        assert check(function, left, right)
    assert check("sum", left)
    strings = pa.array([f"key {number % 5000:05}" * (number % 3) for number in range(length)])
    others = pa.array([f"key {number % 4999:05}" * (number % 3) for number in range(length)])
    for function in ("equal", "less"):
        assert check(function, strings, others)
        assert check(function, strings, strings[length // 2])
    for function in ("is_in", "index_in"):
        assert check(function, strings, value_set=others[: length // 3])


def test_chunked_arrays_are_split_at_the_chunks_of_all_arguments() -> None:
    left = bs.chunked_array([[1, 2], [3, None, 5]])
    right = bs.chunked_array([[1], [], [0, 3, 4], [6]])
    total = bs.compute.add(left, right)
    assert [chunk.to_pylist() for chunk in total.chunks] == [[2], [2], [6, None], [11]]
    assert bs.compute.equal(left, 3).to_pylist() == [False, False, True, None, False]
    assert bs.compute.add(left, bs.array([1] * 5)).num_chunks == 2
    empty = bs.compute.equal(bs.chunked_array([], "int8"), 1)
    assert (empty.type, len(empty)) == (bs.bool_(), 0)
    assert bs.compute.sum(left).as_py() == 11
    assert bs.compute.min_max(bs.chunked_array([["b"], ["a"]])).as_py() == {"min": "a", "max": "b"}
    dictionaries = bs.chunked_array([bs.array(["a"]).dictionary_encode(), bs.array(["b"]).dictionary_encode()])
    assert bs.compute.equal(dictionaries, "b").to_pylist() == [False, True]


def test_sums_extremes_and_counts_do_not_concatenate_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("bowstring.compute.operands.combine_with_wider_indices")
    chunks = bs.chunked_array([[1, None], [], [5]])
    results = {name: getattr(bs.compute, name)(chunks).as_py() for name in ("sum", "mean", "count", "min", "variance")}
    assert results == {"sum": 6, "mean": 3, "count": 2, "min": 1, "variance": 4}
    assert bs.compute.max(bs.chunked_array([[NAN], [NAN, 1.5]])) == 1.5
    with pytest.raises(NameError):
        bs.compute.count_distinct(chunks)


def test_arguments_are_arrays_scalars_and_python_values() -> None:
    compute = bs.compute
    assert compute.equal([1, 2], np.array([1, 3])).to_pylist() == [True, False]
    assert compute.equal(pa.array([1, 2]), pa.scalar(2)).to_pylist() == [False, True]
    assert compute.equal(pa.chunked_array([[1], [2]]), 2).num_chunks == 2
    assert compute.add(np.int8(1), 2.5).as_py() == 3.5
    assert compute.sum(bs.table({"a": [1, 2]})["a"]) == 3
    assert compute.sum([1, 2]) == bs.scalar(3)
    assert compute.is_in("a", {"a", "b"}).as_py() is True
    assert bs.array([1, 2, 3]).filter(compute.greater([1, 2, 3], 1)).to_pylist() == [2, 3]


def test_functions_that_are_methods_take_batches_and_tables() -> None:
    compute, table = bs.compute, bs.table({"a": [3, None, 1]})
    assert compute.filter(table, [True, False, True])["a"].to_pylist() == [3, 1]
    assert compute.take(table.to_batches()[0], [2])["a"].to_pylist() == [1]
    assert compute.drop_null(table).num_rows == 2
    assert compute.sort_indices(table["a"], order="descending").to_pylist() == [0, 2, 1]
    assert compute.cast([1, 2], "string").to_pylist() == ["1", "2"]
    assert compute.cast(1, "string").as_py() == "1"
    assert compute.dictionary_encode(["a", "a"]).dictionary.to_pylist() == ["a"]


def test_values_of_runs_and_dictionaries_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def count_values(array: ArrayData, symbol: str, other: ArrayData) -> Mask:
        lengths.append(array.length)
        return compare(array, symbol, other)

    monkeypatch.setattr("bowstring.compute.comparisons.compare", count_values)
    dictionary = bs.array(["a", "b", None] * 1000).dictionary_encode()
    assert bs.compute.equal(dictionary, "b").to_pylist() == [False, True, None] * 1000
    runs = bs.array(["a"] * 1000 + ["b"] * 1000 + [None]).run_end_encode()
    assert bs.compute.equal(runs.slice(999), "b").to_pylist() == [False] + [True] * 1000 + [None]
    assert lengths == [2, 3]


def wrong_calls() -> Iterator[tuple[str, type[Exception], Callable[[], object]]]:
    compute = bs.compute
    yield "expected arguments of one length, found 1 and 2", InvalidArgumentError, lambda: compute.add([1], [1, 2])
    yield "int64 and string have no common type", TypeMismatchError, lambda: compute.equal([1], "a")
    yield "have no order and can't be compared", TypeMismatchError, lambda: compute.equal([[1]], [[1]])
    yield "divide: division by zero at index 1", InvalidArgumentError, lambda: compute.divide([1, 2], [1, 0])
    yield "add: overflow at index 0", InvalidArgumentError, lambda: compute.add_checked([(1 << 63) - 1], [1])
    one_hour, late = bs.scalar(3600, "duration[s]"), bs.scalar(dt.time(23, 30), "time32[s]")
    yield "add: a time outside of the day", InvalidArgumentError, lambda: compute.add(late, one_hour)
    yield (
        "subtract: timestamp",
        TypeMismatchError,
        lambda: compute.subtract(bs.scalar(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), bs.scalar(dt.datetime(2020, 1, 1))),
    )
    yield "sum: expected numbers or booleans, found string", TypeMismatchError, lambda: compute.sum(["a"])
    yield "and_: expected booleans, found int64", TypeMismatchError, lambda: compute.and_([True], [1])
    yield "count: expected one of only_valid", InvalidArgumentError, lambda: compute.count([1], mode="x")  # type: ignore[arg-type]
    yield "starts_with: expected strings, found int64", TypeMismatchError, lambda: compute.starts_with([1], "a")
    yield "starts_with: expected a string as pattern", TypeMismatchError, lambda: compute.starts_with(["a"], 1)  # type: ignore[arg-type]
    yield "expected a sequence of values as value_set", TypeMismatchError, lambda: compute.is_in(["a"], "a")
    yield "fill_null: ", TypeMismatchError, lambda: compute.fill_null([1, None], "a")
    yield "coalesce: expected at least one", InvalidArgumentError, compute.coalesce
    yield "min_max: values of list", TypeMismatchError, lambda: compute.min_max([[1]])
    yield "round: expected one of down", InvalidArgumentError, lambda: compute.round([1.5], 0, "x")  # type: ignore[arg-type]
    yield "are out of range for int64", InvalidArgumentError, lambda: compute.round([1], -(10**9))
    yield "round: overflow at index 1", InvalidArgumentError, lambda: compute.round([1, (1 << 63) - 1], -1)
    yield "power: a negative power of an integer at index 1", InvalidArgumentError, lambda: compute.power(2, [1, -1])
    yield "list_flatten: expected lists, found int64", TypeMismatchError, lambda: compute.list_flatten([1])
    yield "struct_field: expected structs, found int64", TypeMismatchError, lambda: compute.struct_field([1], "a")
    yield "children named 'b'", bs.errors.NotFoundError, lambda: compute.struct_field([{"a": 1}], "b")
    riga = bs.array([0], bs.timestamp("s", "Europe/Riga"))
    yield "year: expected timestamps in UTC", TypeMismatchError, lambda: compute.year(riga)
    yield "hour: date32", TypeMismatchError, lambda: compute.hour(bs.array([1], "date32"))
    yield "cumulative_sum: expected integers or floats", TypeMismatchError, lambda: compute.cumulative_sum(["a"])
    yield "add: string and string are not supported", TypeMismatchError, lambda: compute.add("a", "b")


@pytest.mark.parametrize(("message", "kind", "call"), list(wrong_calls()))
def test_a_wrong_argument_is_named(message: str, kind: type[Exception], call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=message):
        call()
