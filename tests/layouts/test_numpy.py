"""Conversion to and from NumPy: without a copy if the layout allows, refused if a copy is not allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bowstring as bs
from tests.addresses import address, data_address
from tests.cases import CASES, Case

SHARED_DTYPES: dict[str, Any] = {
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4",
    "uint64": "u8", "halffloat": "f2", "float": "f4", "double": "f8", "date64[ms]": "M8[ms]", "time64[us]": "m8[us]",
    "time64[ns]": "m8[ns]", "timestamp[s]": "M8[s]", "timestamp[ms]": "M8[ms]", "timestamp[us]": "M8[us]",
    "timestamp[ns]": "M8[ns]", "timestamp[us, tz=UTC]": "M8[us]", "timestamp[ns, tz=Europe/Paris]": "M8[ns]",
    "timestamp[s, tz=+02:00]": "M8[s]", "duration[s]": "m8[s]", "duration[ms]": "m8[ms]", "duration[us]": "m8[us]",
    "duration[ns]": "m8[ns]", "month_interval": "i4", "fixed_size_binary[3]": "V3", "fixed_size_binary[0]": "V0",
    "day_time_interval": [("days", "<i4"), ("milliseconds", "<i4")],
    "month_day_nano_interval": [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")],
}  # fmt: skip
"""The types that NumPy reads without conversion, with the names of their dtypes."""


RECORD = bs.struct({"a": bs.int16(), "b": bs.float64()})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_memory_is_shared_if_the_layout_allows_and_rejected_otherwise(case: Case) -> None:
    full = bs.array([value for value in case.values if value is not None] * 3, case.type)
    if str(case.type) in SHARED_DTYPES:
        values = full.to_numpy()
        assert values.dtype == np.dtype(SHARED_DTYPES[str(case.type)])
        assert not values.flags.writeable
        if values.dtype.itemsize:
            assert address(values) == data_address(full)
            part = full.slice(1).to_numpy()
            assert address(part) == data_address(full) + values.dtype.itemsize
        assert bs.array(values, case.type).equals(full)
    elif not str(case.type).startswith("fixed_size_list"):
        with pytest.raises(bs.errors.WouldCopyError, match="copy"):
            full.to_numpy(zero_copy_only=True)
        with pytest.raises(bs.errors.WouldCopyError):
            full.__array__(copy=False)
    if None in case.values:
        with pytest.raises(bs.errors.WouldCopyError):
            case.array().to_numpy()


def test_nulls_become_nan_nat_or_none_in_a_copy() -> None:
    def copied(values: list[Any], type_: bs.DataType) -> npt.NDArray[Any]:
        return bs.array(values, type_).to_numpy(zero_copy_only=False)

    floats = copied([1, None], bs.int32())
    assert floats.dtype == np.float64
    assert floats[0] == 1.0
    assert np.isnan(floats[1])
    halves = copied([1.5, None], bs.float16())
    assert halves.dtype == np.float16
    assert np.isnan(halves[1])
    days = copied([5, None], bs.date32())
    assert (days.dtype, days[0]) == (np.dtype("M8[D]"), np.datetime64("1970-01-06"))
    assert np.isnat(days[1])
    assert copied([True, None], bs.bool_()).tolist() == [True, None]
    assert copied(["a", None], bs.string()).tolist() == ["a", None]
    assert copied([(1, 2), None, (3, 4)], bs.day_time_interval()).tolist() == [(1, 2), None, (3, 4)]


@pytest.mark.parametrize("create_type", [bs.list_, bs.large_list, bs.list_view, bs.large_list_view])
def test_lists_become_numpy_arrays_that_share_memory(create_type: Any) -> None:
    array = bs.array([[0], [1, 2], [3, 4], None, []], create_type(bs.int16())).slice(1)
    with pytest.raises(bs.errors.WouldCopyError):
        array.to_numpy()
    first, second, null, empty = array.to_numpy(zero_copy_only=False)
    assert [values.tolist() for values in (first, second, empty)] == [[1, 2], [3, 4], []]
    assert (null, empty.dtype) == (None, np.dtype("i2"))
    assert [address(first), address(second)] == [data_address(array.children[0]) + 2 * slot for slot in (1, 3)]
    assert not first.flags.writeable
    nested = bs.array([[[1], None]], create_type(bs.list_(bs.int8()))).to_numpy(zero_copy_only=False)
    assert [type(value) for value in nested[0]] == [np.ndarray, type(None)]


def test_fixed_size_lists_become_rows_that_share_memory() -> None:
    array = bs.array(np.arange(12, dtype=np.int16).reshape(3, 2, 2))
    assert array.type == bs.list_(bs.list_(bs.int16(), 2), 2)
    values = array.slice(1).to_numpy()
    assert values.tolist() == [[[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert address(values) == data_address(array.children[0].children[0]) + 8
    with_null = bs.array([[1, 2], [3, None]], bs.list_(bs.int8(), 2))
    with pytest.raises(bs.errors.WouldCopyError, match="with nulls"):
        with_null.to_numpy()
    assert repr([row.tolist() for row in with_null.to_numpy(zero_copy_only=False)]) == "[[1.0, 2.0], [3.0, nan]]"


def test_encoded_layouts_are_decoded_for_numpy() -> None:
    words = bs.array(["a", "b", "a"], bs.dictionary(bs.int8(), bs.string()))
    assert words.to_numpy(zero_copy_only=False).tolist() == ["a", "b", "a"]
    with_null = bs.array([1.5, None, 1.5], bs.dictionary(bs.int8(), bs.float64()))
    np.testing.assert_array_equal(with_null.to_numpy(zero_copy_only=False), [1.5, np.nan, 1.5])
    runs = bs.array([1, 1, 2], bs.run_end_encoded(bs.int16(), bs.int32()))
    assert runs.slice(1).to_numpy(zero_copy_only=False).tolist() == [1, 2]


@pytest.mark.parametrize("name", [name for name in SHARED_DTYPES.values() if isinstance(name, str) and name != "V0"])
def test_numpy_arrays_are_imported_without_copying(name: str) -> None:
    values = np.arange(12, dtype=np.int8).view(np.uint8).repeat(np.dtype(name).itemsize).view(name)
    array = bs.array(values)
    assert data_address(array) == address(values)
    array.validate()
    if name != "V3":
        assert array.to_numpy().dtype == values.dtype
    assert array.to_numpy().tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        (np.array([True, False]), bs.bool_(), [True, False]),
        (np.array(["a", "ü"]), bs.string(), ["a", "ü"]),
        (np.array([b"a", b"bc"]), bs.binary(), [b"a", b"bc"]),
        (np.array([1, None, 3], object), bs.int64(), [1, None, 3]),
        (np.array([[1, 2], [3, 4]], "i1"), bs.list_(bs.int8(), 2), [[1, 2], [3, 4]]),
        (np.array([(1, 2.5)], [("a", "i2"), ("b", "f8")]), RECORD, [{"a": 1, "b": 2.5}]),
        (np.array([1, 2], ">i4"), bs.int32(), [1, 2]),
        (np.arange(6, dtype="i4")[::2], bs.int32(), [0, 2, 4]),
        (np.zeros((0, 3), "f4"), bs.list_(bs.float32(), 3), []),
        (np.ma.MaskedArray([1, 2, 3], [False, True, False]), bs.int64(), [1, None, 3]),
    ],
    ids=lambda it: str(it).replace("\n", " ")[:40],
)  # fmt: skip
def test_the_type_of_numpy_arrays_is_inferred(values: Any, type_: bs.DataType, expected: list[Any]) -> None:
    array = bs.array(values)
    array.validate(full=True)
    assert array.type == type_
    assert array.to_pylist() == expected


VECTORS = [np.array([1, 2, 3], "f4"), None, np.array([4, np.nan, 6], "f4")]
LIST_TYPES = (bs.list_, bs.large_list, bs.list_view, lambda element: bs.list_(element, 3))


@pytest.mark.parametrize("create_type", LIST_TYPES)
@pytest.mark.parametrize("element", [bs.float32(), bs.float64(), bs.float16()], ids=str)
def test_numpy_arrays_are_elements_of_lists(create_type: Any, element: bs.DataType) -> None:
    array = bs.array(VECTORS, create_type(element))
    array.validate(full=True)
    assert repr(array.to_pylist()) == "[[1.0, 2.0, 3.0], None, [4.0, nan, 6.0]]"
    assert repr(array.slice(2).to_pylist()) == "[[4.0, nan, 6.0]]"


@pytest.mark.parametrize("create_type", LIST_TYPES)
def test_an_element_that_does_not_fit_a_list_is_named(create_type: Any) -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match=r"value 2: np.int32\(300\) cannot be converted to int8"):
        bs.array([np.array([1, 0, 300], "i4")], create_type(bs.int8()))
    for values in (np.array([True] * 3), np.array([1] * 3, "M8[s]"), np.array([1] * 3, "m8[ns]")):
        with pytest.raises(bs.errors.TypeMismatchError, match=r"value 0: .* is not a number type"):
            bs.array([values], create_type(bs.float64()))


def test_days_of_numpy_become_dates_and_nat_becomes_null() -> None:
    array = bs.array(np.array(["2020-01-01", "NaT"], "M8[D]"))
    assert array.type == bs.date32()
    assert (array.null_count, str(array[0])) == (1, "2020-01-01")


def test_a_mask_marks_nulls() -> None:
    assert bs.array(np.array([1, 2]), mask=[True, False]).to_pylist() == [None, 2]
    assert bs.array(np.array([[1, 2], [3, 4]]), mask=[True, False]).to_pylist() == [None, [3, 4]]
    assert bs.array(np.array(["a", "b"]), mask=np.array([False, True])).to_pylist() == ["a", None]
    with pytest.raises(bs.errors.InvalidArgumentError, match="mask"):
        bs.array(np.array([1, 2]), mask=[True])


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (np.array([300]), bs.int8()),
        (np.array([-1]), bs.uint64()),
        (np.array([1.5]), bs.int64()),
        (np.array([np.nan]), bs.int64()),
        (np.array([2.0**63]), bs.int64()),
        (np.array([2.0**64]), bs.uint64()),
        (np.array([-1.0]), bs.uint64()),
        (np.array([np.inf], np.float16), bs.int64()),
        (np.array([True]), bs.int8()),
        (np.array([(1 << 53) + 1]), bs.float64()),
        (np.array(["2020-01-01T01"], "M8[h]"), bs.date32()),
        (np.array([1], "M8[ns]"), bs.timestamp("us")),
        (np.array(["9999-01-01"], "M8[s]"), bs.timestamp("ns")),
        (np.array([1 << 40], "m8[s]"), bs.time32("s")),
        (np.array(["a"]), bs.int8()),
        (np.array(1), None),
        (np.array([1 + 2j]), None),
        (np.array([1], "M8[h]"), None),
        (np.array([1.0], np.longdouble), None),
    ],
    ids=str,
)
def test_numpy_values_that_would_be_changed_are_rejected(values: Any, type_: bs.DataType | None) -> None:
    with pytest.raises(bs.errors.TypeMismatchError):
        bs.array(values, type_)


def test_lists_of_numpy_arrays_are_lists() -> None:
    assert bs.array([np.array([1, 2]), np.array([3])]).to_pylist() == [[1, 2], [3]]
    assert bs.array([np.array([1.5, 2]), None], bs.list_(bs.float32())).to_pylist() == [[1.5, 2.0], None]


def test_array_protocol_copies_only_when_it_may() -> None:
    array = bs.array([1, 2, 3], bs.int32())
    assert address(np.asarray(array)) == data_address(array)
    assert address(np.array(array, copy=True)) != data_address(array)
    assert np.asarray(array, np.float64).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=r"without copying|avoid copy"):  # the latter since NumPy 2.5
        np.array(array, np.float64, copy=False)
