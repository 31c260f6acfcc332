"""Series and frames equal those that pyarrow creates, without pyarrow, in both directions."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError, WouldCopyError
from tests.addresses import address, data_address
from tests.interop.samples import ARRAYS, LONG

PYARROW_HAS_NO_PANDAS_FORM = ("union", "dictionary_of_lists", "time_ns")
PYARROW_DIFFERS = {
    "run_end_encoded, empty": "pyarrow 26 returns dtype object for an empty column, str for others",
    "run_end_encoded, empty at the end": "pyarrow 26 returns dtype object for an empty column, str for others",
}
PYARROW_IS_NONDETERMINISTIC = ("list_view, sliced", "large_list_view, sliced")
"""Pyarrow 26 converts an empty list in a list view with an offset sometimes to [], sometimes to None."""
COMPARED = {name: array for name, array in ARRAYS.items() if not name.startswith("time_ns") and "union" not in name}
COMPARED = {
    name: array
    for name, array in COMPARED.items()
    if "dictionary_of_lists" not in name and name not in PYARROW_IS_NONDETERMINISTIC
}


def assert_same(actual: Any, expected: Any) -> None:
    compare = pd.testing.assert_series_equal if isinstance(expected, pd.Series) else pd.testing.assert_frame_equal
    compare(actual, expected)


# Columns


@pytest.mark.parametrize("name", COMPARED)
def test_a_column_becomes_the_same_series_as_with_pyarrow(name: str, request: pytest.FixtureRequest) -> None:
    if name in PYARROW_DIFFERS:
        request.applymarker(pytest.mark.xfail(reason=PYARROW_DIFFERS[name], strict=True))
    pa_array = COMPARED[name]
    expected = pa_array.to_pandas()
    assert_same(bs.array(pa_array).to_pandas(), expected)
    two = bs.ChunkedArray([bs.array(pa_array), bs.array(pa_array)], bs.array(pa_array).type)
    assert_same(two.to_pandas(), pa.chunked_array([pa_array, pa_array]).to_pandas())


def test_types_that_pyarrow_rejects_become_python_objects() -> None:
    for name in PYARROW_HAS_NO_PANDAS_FORM:
        for key in (key for key in ARRAYS if name in key):
            array = bs.array(ARRAYS[key])
            converted = array.to_pandas()
            assert converted.dtype == object or converted.dtype == "category"
            assert [v if not isinstance(v, np.ndarray) else v.tolist() for v in converted] == array.to_pylist()


def test_canonical_extensions_become_their_values() -> None:
    assert bs.array([True, None], bs.datatypes.bool8()).to_pandas().tolist() == [True, None]
    assert bs.array([True, False], bs.datatypes.bool8()).to_pandas().dtype == bool
    tensors = bs.array(
        np.arange(8.0).reshape(2, 2, 2), bs.datatypes.fixed_shape_tensor(bs.float64(), [2, 2])
    ).to_pandas()
    assert tensors[1].tolist() == [[4, 5], [6, 7]]


def _list_of_dictionary_values() -> pa.Array:
    return pa.ListArray.from_arrays([0, 3, 3, 4], pa.array(["a", None, "b", "a"]).dictionary_encode())


NESTED: dict[str, Any] = {
    "struct of list": pa.array([{"l": [1, None], "n": 5}, {"l": None, "n": 7}, None, {"l": [], "n": 1}]),
    "struct of list of strings": pa.array([{"l": ["x", None]}, None]),
    "struct of struct of list": pa.array([{"s": {"l": [1, 2]}}, {"s": None}, None]),
    "struct of fixed-size list": pa.array([{"l": [1, 2]}], pa.struct({"l": pa.list_(pa.int8(), 2)})),
    "list of struct of list": pa.array([[{"l": [1]}, None], None, []]),
    "map of lists": pa.array([[("k", [1, 2]), ("l", None)], None, []], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "map of structs of lists": pa.array(
        [[("k", {"l": [1]})]], pa.map_("string", pa.struct({"l": pa.list_(pa.int8())}))
    ),
    "list of maps of lists": pa.array([[[("k", [1.5])]]], pa.list_(pa.map_(pa.string(), pa.list_(pa.float64())))),
    "list of dictionary values": _list_of_dictionary_values(),
    "struct of list of dictionary values": pa.StructArray.from_arrays([_list_of_dictionary_values()], ["l"]),
    "list of dictionary-encoded integers": pa.ListArray.from_arrays(
        [0, 3, 4], pa.array([1, None, 2, 1]).dictionary_encode()
    ),
}


def _describe(value: Any) -> Any:
    """Return a value with its type, comparable: NaN, arrays and nested values included."""
    if isinstance(value, np.ndarray):
        return "ndarray", str(value.dtype), [_describe(element) for element in value]
    if isinstance(value, dict):
        return {key: _describe(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [_describe(element) for element in value]
    return type(value), repr(value)


@pytest.mark.parametrize("name", NESTED)
def test_nested_values_have_the_same_python_types_as_with_pyarrow(name: str) -> None:
    array = NESTED[name]
    for part in (array, array[1:], array[:1], array[:0]):
        expected, series = part.to_pandas(), bs.array(part).to_pandas()
        assert series.dtype == expected.dtype
        assert _describe(series.tolist()) == _describe(expected.tolist())


def test_json_becomes_text_as_with_pyarrow() -> None:
    array = pa.array(['{"a":1}', None], pa.json_())
    pd.testing.assert_series_equal(bs.array(array).to_pandas(), array.to_pandas())


def test_dates_may_become_datetimes() -> None:
    days = [dt.date(2020, 1, 1), None]
    for type_, pa_type in ((bs.date32(), pa.date32()), (bs.date64(), pa.date64())):
        converted = bs.array(days, type_).to_pandas(date_as_object=False)
        assert_same(converted, pa.array(days, pa_type).to_pandas(date_as_object=False))


def test_integers_with_nulls_may_stay_integers() -> None:
    converted = bs.array([2**63 - 1, None]).to_pandas(integer_object_nulls=True)
    assert converted.tolist() == [2**63 - 1, None]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
def test_rounding_an_integer_warns(value: int) -> None:
    with pytest.warns(UserWarning, match=f"rounds {value}"):
        assert bs.array([value, None]).to_pandas()[0] == float(value)
    with pytest.warns(UserWarning, match="uint64"):
        bs.array([2**64 - 1, None], bs.uint64()).to_pandas()
    assert bs.array([2**53, 2**60, None]).to_pandas().tolist()[:2] == [2**53, 2**60]
    assert bs.array([2**53 + 1]).to_pandas().tolist() == [2**53 + 1]


SHARED_TYPES = [bs.int8(), bs.uint64(), bs.float32(), bs.timestamp("ns"), bs.duration("s")]


@pytest.mark.parametrize("options", [{"copy": False}, {"zero_copy_only": True}], ids=str)
@pytest.mark.parametrize("type_", SHARED_TYPES, ids=str)
def test_memory_is_shared_in_both_directions_on_request(type_: bs.DataType, options: Any) -> None:
    array = bs.array([1, 2, 3], type_)
    series = array.to_pandas(**options)
    assert address(series.to_numpy()) == data_address(array)
    assert data_address(bs.Array.from_pandas(series)) == data_address(array)
    frame = bs.table({"a": array, "b": array}).to_pandas(**options)
    assert address(frame["b"].to_numpy()) == data_address(array)
    with pytest.raises(ValueError, match=r"read-only|Incompatible"):  # pandas raises the latter for timestamps
        frame.iloc[0, 0] = pd.NaT if type_ in SHARED_TYPES[3:] else 9


VALUES = {
    "int": (bs.array([1, 2, 3]), 9),
    "int with nulls": (bs.array([1, None, 3]), 9.0),
    "float": (bs.array([0.5, 1.5, None]), 9.5),
    "half": (bs.array([0.5, 1.5, 2.5], bs.float16()), np.float16(9.5)),
    "bool": (bs.array([True, False, True]), False),
    "moment": (bs.array([1, 2, None], bs.timestamp("us")), pd.Timestamp("2020-01-01").as_unit("us")),
    "zoned": (bs.array([1, 2, 3], bs.timestamp("us", "UTC")), pd.Timestamp("2020-01-01", tz="UTC").as_unit("us")),
    "span": (bs.array([1, 2, 3], bs.duration("ms")), pd.Timedelta(9, "ms").as_unit("ms")),
    "date": (bs.array([1, 2, 3], bs.date64()), dt.date(2020, 1, 1)),
    "text": (bs.array(["a", None, "c"]), "new"),
    "category": (bs.array(["b", "a", "b"]).dictionary_encode(), "a"),
    "list": (bs.array([[1], None, [2, 3]]), "anything"),
    "runs": (bs.array([1, 1, 2]).run_end_encode(), 9),
    "extension": (bs.array([True, False, True], bs.datatypes.bool8()), False),
}
"""Columns, and a value to store in the first row."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in VALUES),
        *((name, {"dtype_backend": "numpy_nullable"}) for name in VALUES),
        *((name, {"dtype_backend": "pyarrow"}) for name in ("int", "int with nulls", "float", "moment", "text")),
    ],
    ids=str,
)
def test_series_and_frames_can_be_edited_without_changing_the_table(name: str, options: Any) -> None:
    array, value = VALUES[name]
    table = bs.attach(bs.share(bs.table({"a": array, "b": array})))
    before = table.to_pydict()
    two = bs.ChunkedArray([array, array], array.type)
    for series in (table["a"].chunk(0).to_pandas(**options), two.to_pandas(**options)):
        series.iloc[0] = value
        assert series.iloc[0] == value
    frame = table.to_pandas(**options)
    frame.loc[0, "a"] = value
    assert frame.loc[0, "a"] == value
    assert table.to_pydict() == before
    pd.testing.assert_series_equal(frame["b"], table.to_pandas(**options)["b"])


def test_lists_in_frames_are_copies() -> None:
    table = bs.attach(bs.share(bs.table({"l": [[1, 2], [3]]})))
    frame = table.to_pandas()
    frame["l"][0][0] = 9
    assert frame["l"][0].tolist() == [9, 2]
    assert table["l"].to_pylist() == [[1, 2], [3]]


def test_columns_of_one_dtype_are_one_block_as_in_pyarrows_frames() -> None:
    table = bs.table({f"{kind}{n}": bs.array([1, 2], kind) for n in range(60) for kind in (bs.int64(), bs.float32())})
    frame = table.to_pandas()
    frame["new"] = 1  # pandas warns of columns in more than 100 blocks
    assert frame.shape == (2, 121)
    pd.testing.assert_frame_equal(frame.drop(columns="new"), pa.table(table).to_pandas())


def test_frames_without_rows_columns_or_batches_are_editable_too() -> None:
    schema = bs.schema({"a": bs.int64(), "s": bs.string(), "t": bs.timestamp("us")})
    empty = bs.Table.from_batches([], schema).to_pandas()
    pd.testing.assert_frame_equal(empty, pa.schema(schema).empty_table().to_pandas())
    assert bs.table({"a": [1, 2]}).select([]).to_pandas().shape == (2, 0)


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (bs.array([1, None]), {}),
        (bs.array(["a"]), {}),
        (bs.array([True]), {}),
        (bs.array([0], bs.date32()), {}),
        (bs.array(["a"]).dictionary_encode(), {}),
        (bs.array([[1, 2]], bs.list_(bs.int64(), 2)), {}),
        (bs.ChunkedArray([bs.array([1]), bs.array([2])], bs.int64()), {}),
        (bs.array([1]), {"dtype_backend": "numpy_nullable"}),
        (bs.array([1]), {"types_mapper": lambda _: np.dtype(np.int8)}),
    ],
)
def test_zero_copy_only_rejects_columns_that_need_a_copy(column: Any, options: Any) -> None:
    with pytest.raises(WouldCopyError):
        column.to_pandas(zero_copy_only=True, **options)
    with pytest.raises(WouldCopyError, match="column 'a': "):
        bs.table({"a": column}).to_pandas(zero_copy_only=True, **options)


def test_copies_contradict_zero_copy_only() -> None:
    with pytest.raises(InvalidArgumentError, match="copy=True contradicts zero_copy_only=True"):
        bs.array([1]).to_pandas(copy=True, zero_copy_only=True)


def test_timestamps_with_a_time_zone_and_category_codes_are_shared() -> None:
    zoned = bs.array([1, 2], bs.timestamp("us", "Europe/Paris"))
    assert data_address(bs.Array.from_pandas(zoned.to_pandas(copy=False))) == data_address(zoned)
    assert data_address(bs.Array.from_pandas(zoned.to_pandas(zero_copy_only=True))) == data_address(zoned)
    categories = pd.Series(["a", "b", None], dtype="category")
    array = bs.Array.from_pandas(categories)
    assert data_address(array) == address(categories.array.codes)
    assert array.to_pylist() == ["a", "b", None]
    array.validate(full=True)


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (bs.int8(), "Int8"), (bs.uint64(), "UInt64"), (bs.float32(), "Float32"), (bs.bool_(), "boolean"),
        (bs.float16(), "float16"), (bs.date32(), "object"),
    ],
    ids=str,
)  # fmt: skip
def test_nullable_dtypes_have_the_same_values(type_: bs.DataType, shown: str) -> None:
    array = bs.array([1, 0, None], type_) if type_ != bs.bool_() else bs.array([True, False, None])
    converted = array.to_pandas(dtype_backend="numpy_nullable")
    assert str(converted.dtype) == shown
    if shown not in ("float16", "object"):
        assert converted.isna().tolist() == [False, False, True]
        assert bs.Array.from_pandas(converted) == array
        assert_same(converted, pa.array(array).to_pandas(types_mapper=lambda _: converted.dtype))


def test_large_integers_are_exact_in_nullable_dtypes() -> None:
    converted = bs.array([2**63 - 1, None]).to_pandas(dtype_backend="numpy_nullable")
    assert converted[0] == 2**63 - 1
    assert bs.Array.from_pandas(converted).to_pylist() == [2**63 - 1, None]


def test_nan_is_not_null_in_nullable_dtypes() -> None:
    converted = bs.array([float("nan"), None]).to_pandas(dtype_backend="numpy_nullable")
    assert converted.isna().tolist()[1]
    assert np.isnan(converted.array._data[0])


def test_text_of_the_nullable_backend_has_na() -> None:
    converted = bs.array(["a", None, LONG], bs.string_view()).to_pandas(dtype_backend="numpy_nullable")
    assert str(converted.dtype) == "string"
    assert converted[1] is pd.NA
    assert converted.tolist()[::2] == ["a", LONG]


@pytest.mark.parametrize("name", ["int64", "string", "list", "decimal128", "timestamp_ns_tz", "struct", "dictionary"])
def test_the_arrow_backend_keeps_the_type(name: str) -> None:
    pa_array = ARRAYS[name]
    converted = bs.array(pa_array).to_pandas(dtype_backend="pyarrow")
    assert converted.dtype == pd.ArrowDtype(pa_array.type)
    back = bs.Array.from_pandas(converted)
    assert pa.array(back).equals(pa_array)
    frame = bs.table({"a": bs.array(pa_array)}).to_pandas(dtype_backend="pyarrow")
    assert_same(frame, pa.table({"a": pa_array}).to_pandas(types_mapper=pd.ArrowDtype))


def test_a_types_mapper_selects_dtypes() -> None:
    table = bs.table({"a": [1, None], "s": ["x", None], "d": [Decimal("1.5"), None], "f": [1.0, 2.0]})
    chosen: dict[bs.DataType, Any] = {
        bs.int64(): pd.Int64Dtype(), bs.string(): pd.StringDtype("python"), bs.float64(): np.dtype("float32"),
    }  # fmt: skip
    converted = table.to_pandas(types_mapper=chosen.get)
    assert [str(d) for d in converted.dtypes] == ["Int64", "string", "object", "float32"]
    small = bs.array([1, None]).to_pandas(types_mapper=lambda _: pd.Int8Dtype())
    assert str(small.dtype) == "Int8"
    assert bs.array([1, 2]).to_pandas(types_mapper=lambda _: pd.CategoricalDtype([1, 2])).dtype == "category"


@pytest.mark.parametrize("options", [{"unknown": 1}, {"dtype_backend": "numpyy"}])
def test_options_that_do_not_exist_are_rejected(options: Any) -> None:
    for source in (bs.array([1]), bs.table({"a": [1]})):
        with pytest.raises(InvalidArgumentError, match=r"option|dtype_backend"):
            source.to_pandas(**options)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [(["a", "b"], "str"), (["a", None, "b"], None), (["a", "b", "a"], None), ([1.5, float("nan")], None)],
    ids=str,
)
def test_dictionaries_that_pandas_rejects_are_rebuilt(values: list[Any], dtype: str | None) -> None:
    value_type = bs.string() if isinstance(values[0], str) else bs.float64()
    dictionary = bs.array(values, value_type)
    kind = bs.dictionary(bs.int8(), value_type, ordered=True)
    indices = bs.array([1, 0, len(values) - 1, None], bs.int8())
    array = bs.Array.from_buffers(kind, 4, indices.own_buffers, dictionary=dictionary)
    converted = array.to_pandas()
    assert converted.dtype == "category" or value_type == bs.float64()
    shown = [None if pd.isna(v) else v for v in converted]
    assert shown == [None if v is None or v != v else v for v in array.to_pylist()]


def test_an_extension_type_with_storage_values_converts_like_its_storage() -> None:
    for storage, value in ((bs.timestamp("us", "Europe/Paris"), 5), (bs.date32(), 7), (bs.list_(bs.int8()), [1])):
        plain = bs.array([value, None], storage)
        series = bs.array([value, None], bs.datatypes.opaque(storage, "a", "b")).to_pandas()
        assert series.dtype == plain.to_pandas().dtype
        assert repr(series.tolist()) == repr(plain.to_pandas().tolist())


def test_dictionary_values_without_a_pandas_index_do_not_become_categories() -> None:
    halves = bs.array([0.5, None, 0.5], bs.dictionary(bs.int8(), bs.float16()))
    assert str(halves.to_pandas().dtype) == "float16"
    assert halves.fill_null(1.5).to_pandas().tolist() == [0.5, 1.5, 0.5]
    assert bs.array([[0.5]], bs.list_(halves.type)).to_pandas()[0].tolist() == [0.5]


def test_chunks_of_different_dictionaries_are_one_category() -> None:
    kind = bs.dictionary(bs.int8(), bs.string())
    column = bs.ChunkedArray([bs.array(["a", "b"], kind), bs.array(["c", None, "a"], kind)], kind)
    converted = column.to_pandas()
    assert converted.cat.categories.tolist() == ["a", "b", "c"]
    assert converted.tolist()[:3] == ["a", "b", "c"]


# Series

TIMES = pd.DatetimeIndex(["2020-01-01", "NaT"])
SERIES: list[Callable[[], pd.Series[Any]]] = [
    lambda: pd.Series([1, 2], dtype="int8"),
    lambda: pd.Series([1.5, np.nan, 2.0]),
    lambda: pd.Series([1.5, np.nan], dtype="float32"),
    lambda: pd.Series([True, False]),
    lambda: pd.Series(["a", None, LONG]),
    lambda: pd.Series(["a", None], dtype=pd.StringDtype("python")),
    lambda: pd.Series(["a", None], dtype=object),
    lambda: pd.Series([b"a", None]),
    lambda: pd.Series([1, None], dtype="Int64"),
    lambda: pd.Series([1.5, None], dtype="Float32"),
    lambda: pd.Series([True, None], dtype="boolean"),
    lambda: pd.Series(TIMES),
    *(lambda unit=unit: pd.Series(np.array([0, 1], f"M8[{unit}]")) for unit in ("s", "ms", "us", "ns")),
    *(lambda unit=unit: pd.Series(np.array([0, 1], f"m8[{unit}]")) for unit in ("s", "ms", "us", "ns")),
    lambda: pd.Series(TIMES.tz_localize("Europe/Paris")),
    lambda: pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("UTC")),
    lambda: pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize(dt.timezone(dt.timedelta(hours=2)))),
    lambda: pd.Series([dt.datetime(2020, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))]),
    lambda: pd.Series(["x", "y", None, "x"], dtype="category"),
    lambda: pd.Series(pd.Categorical([3, 1, None], [1, 2, 3], ordered=True)),
    lambda: pd.Series([Decimal("1.50"), None, Decimal("-2.25")]),
    lambda: pd.Series([dt.date(2020, 1, 1), None]),
    lambda: pd.Series([dt.time(1, 2, 3), None]),
    lambda: pd.Series([[1, 2], None, []]),
    lambda: pd.Series([np.array([1.5]), None]),
    lambda: pd.Series([np.array([1.5, np.nan]), None, np.array([], "f8")]),
    lambda: pd.Series([np.array([0, 1], "M8[s]"), None]),
    lambda: pd.Series([np.array([True, False]), np.array([True])]),
    lambda: pd.Series([np.array(["a", None], object), None]),
    lambda: pd.Series([np.array([1], "i1"), [2, 3]]),
    lambda: pd.Series([[1.5, np.nan], None, [pd.NA]]),
    lambda: pd.Series([[pd.NaT, dt.datetime(2020, 1, 1)]]),
    lambda: pd.Series([{"a": np.nan, "b": [None, 1.5, np.nan]}, None]),
    lambda: pd.Series([{"a": 1, "b": "x"}, None]),
    lambda: pd.Series([None, None]),
    lambda: pd.Series([1, pd.NA, None], dtype=object),
    lambda: pd.Series([pd.NaT, dt.timedelta(seconds=1)], dtype=object),
    lambda: pd.Series([True, None]),
    lambda: pd.Series([], dtype="float64"),
    lambda: pd.Series([], dtype=object),
    lambda: pd.Series([1, None], dtype=pd.ArrowDtype(pa.int8())),
    lambda: pd.Series([["a"], None], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
    lambda: pd.Series([1, 2, 3, 4])[::2],
    lambda: pd.Series([pd.DateOffset(months=1, days=2, nanoseconds=3), None]),
]  # fmt: skip


@pytest.mark.parametrize("make", SERIES, ids=range(len(SERIES)))
def test_a_series_becomes_the_same_array_as_with_pyarrow(make: Callable[[], pd.Series[Any]]) -> None:
    series = make()
    array = bs.Array.from_pandas(series)
    array.validate(full=True)
    pa_array = pa.Array.from_pandas(series)
    pa_array = pa_array.combine_chunks() if isinstance(pa_array, pa.ChunkedArray) else pa_array
    if isinstance(series.dtype, pd.StringDtype) and series.dtype.storage == "python":
        pa_array = pa_array.cast(pa.string())
    assert pa.array(array).type == pa_array.type
    assert pa.array(array).equals(pa_array)
    assert bs.array(series) == array
    assert bs.ChunkedArray.from_pandas(series).combine_chunks() == array


def test_an_index_and_pandas_arrays_are_columns_too() -> None:
    assert bs.array(pd.RangeIndex(3)).to_pylist() == [0, 1, 2]
    assert bs.array(pd.CategoricalIndex(["a", "b"])).type == bs.dictionary(bs.int8(), bs.large_string())
    assert bs.array(pd.array([1, None], dtype="Int8")) == bs.array([1, None], bs.int8())
    assert bs.Array.from_pandas([1, None]).to_pylist() == [1.0, None]


def test_an_arrow_backed_series_keeps_its_chunks() -> None:
    series = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([[1], [2, None]])))
    chunked = bs.ChunkedArray.from_pandas(series)
    assert (chunked.num_chunks, chunked.to_pylist()) == (2, [1, 2, None])


def test_from_pandas_accepts_a_type() -> None:
    assert bs.Array.from_pandas(pd.Series([1.0, np.nan]), bs.int8()).to_pylist() == [1, None]
    assert bs.Array.from_pandas(pd.Series(["a"]), bs.string_view()).type == bs.string_view()
    pairs = pd.Series([[("a", 1)], None])
    assert bs.Array.from_pandas(pairs, bs.map_(bs.string(), bs.int8())).to_pylist() == [[("a", 1)], None]
    with pytest.raises(TypeMismatchError):
        bs.Array.from_pandas(pd.Series([1.5]), bs.int8())


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(pd.period_range("2020", periods=2, freq="D")),
        pd.Series(pd.interval_range(0, 2)),
        pd.Series(pd.arrays.SparseArray([0, 1])),
        pd.Series([1j]),
        pd.Series([1, "a"], dtype=object),
        pd.Series([object()]),
        pd.Series([pd.DateOffset(hour=1)]),
    ],
    ids=lambda s: str(s.dtype),
)
def test_objects_without_an_arrow_type_are_rejected_with_their_column(series: pd.Series[Any]) -> None:
    with pytest.raises(TypeMismatchError):
        bs.Array.from_pandas(series)
    with pytest.raises(TypeMismatchError, match="bad"):
        bs.Table.from_pandas(pd.DataFrame({"good": [1] * len(series), "bad": series}))


# Frames


def frame_of_dtypes() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "i": [1, 2],
            "s": ["a", None],
            "f": [1.5, np.nan],
            "c": pd.Categorical(["x", "y"], ordered=True),
            "t": TIMES,
            "tz": TIMES.tz_localize("Europe/Paris"),
            "I": pd.array([1, None], "Int64"),
            "st": pd.array(["a", None], "string"),
            "o": [b"x", None],
            "l": [[1], [2]],
            "b": [True, False],
            "ar": pd.array([1, None], "int8[pyarrow]"),
            "td": pd.to_timedelta([1, 2]),
            "bo": pd.array([True, None], "boolean"),
            "d": [Decimal("1.5"), None],
            "da": [dt.date(2020, 1, 1), None],
        },
        index=pd.Index([5, 6], name="k"),
    )


def frame_with_attrs() -> pd.DataFrame:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["source"] = {"file": "x"}
    return frame


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "kinds": frame_of_dtypes,
    "plain": lambda: pd.DataFrame({"a": [1]}),
    "nothing": pd.DataFrame,
    "no columns": lambda: pd.DataFrame(index=range(3)),
    "no rows": lambda: pd.DataFrame({"a": [], "b": pd.Series([], dtype="int8")}),
    "numbers as labels": lambda: pd.DataFrame({0: [1], 1: [2]}),
    "floats as labels": lambda: pd.DataFrame({1.5: [1]}),
    "bytes as labels": lambda: pd.DataFrame({b"by": [1]}),
    "days as labels": lambda: pd.DataFrame([[1]], columns=pd.to_datetime(["2020"])),
    "moments as labels": lambda: pd.DataFrame([[1]], columns=pd.date_range("2020", periods=1, tz="Europe/Paris")),
    "labels with a name": lambda: pd.DataFrame({"a": [1]}).rename_axis(columns="cols"),
    "labels of two levels": lambda: pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["u", "v"])
    ),
    "named range": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 9, 2, name="r")),
    "text as index": lambda: pd.DataFrame({"a": [1]}, index=["x"]),
    "moments as index": lambda: pd.DataFrame({"a": [1]}, index=pd.date_range("2020", periods=1, tz="UTC", name="a")),
    "categories as index": lambda: pd.DataFrame({"a": [1]}, index=pd.CategoricalIndex(["x"], name="c")),
    "two levels": lambda: pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, "x")], names=["p", None])),
    "index and column of one name": lambda: pd.DataFrame({"a": [1]}, index=pd.Index([7], name="a")),
    "attributes": frame_with_attrs,
    "one block": lambda: pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["x", "y"]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_survives_the_same_round_trip_as_with_pyarrow(name: str) -> None:
    frame = FRAMES[name]()
    pa_table = pa.Table.from_pandas(frame)
    table = bs.Table.from_pandas(frame)
    table.validate(full=True)
    assert pa.table(table).equals(pa_table)
    metadata, expected = (json.loads(t.schema.metadata[b"pandas"]) for t in (table, pa_table))
    assert metadata.pop("creator")["library"] == "bowstring"
    del expected["creator"]
    assert metadata == expected
    expected_frame = pa_table.to_pandas()
    for back in (table.to_pandas(), bs.table(pa_table).to_pandas(), pa.table(table).to_pandas()):
        assert_same(back, expected_frame)
        assert back.attrs == expected_frame.attrs
    assert_same(bs.table(frame).to_pandas(), expected_frame)
    assert_same(bs.record_batch(frame).to_pandas(), expected_frame)
    assert_same(bs.RecordBatch.from_pandas(frame).to_pandas(), expected_frame)


@pytest.mark.parametrize("labels", [["a", None], [1.0, float("nan")], [pd.Timestamp("2020"), pd.NaT]], ids=str)
def test_a_missing_label_survives_a_round_trip(labels: list[Any]) -> None:
    frame = pd.DataFrame([[1, 2]], columns=labels)
    table = bs.Table.from_pandas(frame)
    assert b"NaN" not in table.schema.metadata[b"pandas"], "NaN is not valid JSON, although pyarrow writes it"
    assert frame.columns.isna().tolist() == [False, True]
    for back in (table.to_pandas(), bs.table(pa.Table.from_pandas(frame)).to_pandas(), pa.table(table).to_pandas()):
        assert_same(back, frame)


@pytest.mark.parametrize("preserve", [None, True, False])
@pytest.mark.parametrize("name", ["plain", "text as index", "named range", "no columns"])
def test_preserve_index_keeps_or_drops_the_index(name: str, preserve: bool | None) -> None:
    frame = FRAMES[name]()
    pa_table = pa.Table.from_pandas(frame, preserve_index=preserve)
    table = bs.Table.from_pandas(frame, preserve_index=preserve)
    assert table.column_names == pa_table.column_names
    if name != "no columns":
        assert_same(table.to_pandas(), pa_table.to_pandas())


def test_columns_with_the_same_name_are_kept() -> None:
    frame = pd.DataFrame([[1, "x"], [2, "y"]], columns=["a", "a"])
    table = bs.Table.from_pandas(frame)
    assert table.column_names == ["a", "a"]
    assert_same(table.to_pandas(), frame.infer_objects())
    assert bs.Table.from_batches(table.to_batches()).to_pandas(ignore_metadata=True).columns.tolist() == ["a", "a"]


def test_a_schema_selects_columns_and_types() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [1.0, np.nan], "c": ["x", None]}, index=pd.Index([5, 6], name="k"))
    schema = bs.schema([("c", bs.string()), ("b", bs.int8()), ("k", bs.int16())]).with_metadata({"own": "1"})
    table = bs.Table.from_pandas(frame, schema)
    assert table.to_pydict() == {"c": ["x", None], "b": [1, None], "k": [5, 6]}
    assert table.schema.types == schema.types
    assert table.schema.metadata[b"own"] == b"1"
    assert table.to_pandas().index.name == "k"
    assert bs.table(frame, schema) == table
    with pytest.raises(InvalidArgumentError, match="'z'"):
        bs.Table.from_pandas(frame, bs.schema([("z", bs.int8())]))
    with pytest.raises(TypeMismatchError, match=r"column 'c'.*1 nulls"):
        bs.Table.from_pandas(frame, bs.schema([bs.field("c", bs.string(), nullable=False)]))
    with pytest.raises(TypeMismatchError, match="column 'a'"):
        bs.Table.from_pandas(frame, bs.schema([("a", bs.list_(bs.int8()))]))


def test_the_index_survives_selection_and_files(tmp_path: Any) -> None:
    table = bs.Table.from_pandas(frame_of_dtypes())
    with bs.new_file(tmp_path / "f.arrow", table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    with bs.open_file(tmp_path / "f.arrow") as reader:
        assert_same(bs.Table.from_batches(list(reader), reader.schema).to_pandas(), frame_of_dtypes())
    without_index = table.select(["i", "s"]).to_pandas()
    assert without_index.index.tolist() == [0, 1]
    assert_same(table.slice(1).to_pandas(), pa.table(table).slice(1).to_pandas())
    ranged = bs.Table.from_pandas(pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(5, 8)))
    assert ranged.slice(1).to_pandas().index.tolist() == [0, 1]


def test_an_option_ignores_the_metadata_of_pandas() -> None:
    converted = bs.Table.from_pandas(frame_of_dtypes()).to_pandas(ignore_metadata=True)
    assert_same(converted, pa.Table.from_pandas(frame_of_dtypes()).to_pandas(ignore_metadata=True))
    assert "k" in converted.columns


@pytest.mark.parametrize("offsets", [[0, 500, 2], [0, -1, 2], [2, 1, 2], [0, 1, 2]])
def test_invalid_utf_8_is_an_error_before_the_conversion(offsets: list[int]) -> None:
    invalid = bs.Array.from_buffers(bs.string(), 2, [None, np.array(offsets, np.int32), b"\xff\xfe"])
    for source in (invalid, bs.ChunkedArray([invalid, invalid], invalid.type), bs.table({"a": invalid})):
        with pytest.raises(InvalidDataError):
            source.to_pandas()


@pytest.mark.parametrize("type_", [bs.list_(bs.int8()), bs.large_list(bs.int8()), bs.list_view(bs.int8())], ids=str)
def test_list_offsets_beyond_the_child_are_an_error(type_: bs.DataType) -> None:
    whole = bs.array([[1, 2], [3]], type_)
    wild = np.array([0, 99, 3], np.int64 if type_ == bs.large_list(bs.int8()) else np.int32)
    buffers: list[Any] = [None, wild, *whole.own_buffers[2:]]
    invalid = bs.Array.from_buffers(type_, 2, buffers, whole.children)
    with pytest.raises(InvalidDataError):
        invalid.to_pandas()


def test_indices_beyond_the_dictionary_are_an_error() -> None:
    kind = bs.dictionary(bs.int8(), bs.string())
    invalid = bs.Array.from_buffers(kind, 2, [None, np.array([0, 7], np.int8)], dictionary=bs.array(["x"]))
    with pytest.raises(InvalidDataError):
        invalid.to_pandas()


def test_too_many_values_are_rejected() -> None:
    values = bs.array([None], bs.null())
    many = bs.Array.from_buffers(bs.null(), 1 << 50, [])
    runs = bs.Array.from_buffers(bs.run_end_encoded(bs.int64(), bs.null()), 1 << 50, [], [bs.array([1 << 50]), values])
    for source in (many, runs):
        with pytest.raises(InvalidDataError):
            source.to_pandas()


VALID_METADATA = json.loads(bs.Table.from_pandas(pd.DataFrame({"a": [1]})).schema.metadata[b"pandas"])
INVALID_METADATA: list[bytes] = [
    b"",
    b"\xff",
    b"[]",
    b"{}",
    b"7",
    b"[" * 100_000,
    json.dumps(VALID_METADATA | {"index_columns": [7]}).encode(),
    json.dumps(VALID_METADATA | {"index_columns": [{"kind": "other"}]}).encode(),
    json.dumps(VALID_METADATA | {"index_columns": [{"kind": "range", "start": 0, "stop": 1, "step": 0}]}).encode(),
    json.dumps(VALID_METADATA | {"index_columns": [{"kind": "range", "start": "0", "stop": 1, "step": 1}]}).encode(),
    json.dumps(VALID_METADATA | {"columns": [7]}).encode(),
    json.dumps(VALID_METADATA | {"columns": [{"name": "a", "field_name": "a", "numpy_type": 7}]}).encode(),
    json.dumps(VALID_METADATA | {"columns": 7}).encode(),
    json.dumps(VALID_METADATA | {"column_indexes": [7]}).encode(),
    json.dumps(VALID_METADATA | {"attributes": [7]}).encode(),
    json.dumps(VALID_METADATA | {"column_indexes": [{"name": "u"}, {"name": "v"}]}).encode(),
]


@pytest.mark.parametrize(
    "metadata_value", INVALID_METADATA, ids=lambda metadata_value: metadata_value[:40].decode("ascii", "replace")
)
def test_invalid_pandas_metadata_is_an_error(metadata_value: bytes) -> None:
    table = bs.table({"a": [1]}).replace_schema_metadata({b"pandas": metadata_value})
    with pytest.raises(InvalidDataError):
        table.to_pandas()
    assert table.to_pandas(ignore_metadata=True)["a"].tolist() == [1]


INCONSISTENT_METADATA: list[dict[str, Any]] = [
    {"index_columns": [{"kind": "range", "start": 0, "stop": 2**70, "step": 1}]},
    {"index_columns": ["gone"]},
    {"columns": []},
    {"columns": [{"name": "a", "field_name": "a", "numpy_type": "nonsense[x]", "pandas_type": "nonsense"}]},
    {"columns": [{"name": "a", "field_name": "a", "numpy_type": "nonsense[pyarrow]", "pandas_type": "nonsense"}]},
    {"columns": [{"name": ["x"], "field_name": "a", "numpy_type": "int64"}]},
    {"column_indexes": [{"name": None, "pandas_type": "int64", "numpy_type": "int64"}]},
    {"column_indexes": [{"name": None, "pandas_type": "datetimetz", "numpy_type": "M8", "metadata": {}}]},
    {"column_indexes": [{"name": None, "pandas_type": 7, "numpy_type": "nonsense"}]},
]  # fmt: skip


@pytest.mark.parametrize("change", INCONSISTENT_METADATA, ids=str)
def test_pandas_metadata_that_does_not_match_the_columns_changes_no_values(change: dict[str, Any]) -> None:
    table = bs.table({"a": [1]}).replace_schema_metadata({b"pandas": json.dumps(VALID_METADATA | change)})
    try:
        converted = table.to_pandas()
    except InvalidDataError:
        return
    assert converted.iloc[:, 0].tolist() == [1]
    assert converted.index.tolist() == [0]


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import numpy as np, pandas as pd, bowstring as bs
frame = pd.DataFrame({"i": [1, 2], "f": [1.5, np.nan], "s": ["a", None], "t": pd.to_datetime(["2020", None]),
                      "c": pd.Categorical(["x", None]), "I": pd.array([1, None], "Int64")}, index=["p", "q"])
table = bs.table(frame)
pd.testing.assert_frame_equal(table.to_pandas(), frame)
assert bs.array(frame["s"]).to_pylist() == ["a", None]
try:
    table.to_pandas(dtype_backend="pyarrow")
except ImportError as error:
    assert "pyarrow" in str(error)
    print("done")
"""
WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
import bowstring as bs
for attempt in (bs.array([1]).to_pandas, bs.table({"a": [1]}).to_pandas, lambda: bs.Array.from_pandas([1])):
    try:
        attempt()
    except bs.errors.MissingExtraError as error:
        assert "bowstring[pandas]" in str(error), error
print("done")
"""


@pytest.mark.parametrize("program", [WITHOUT_PYARROW, WITHOUT_PANDAS], ids=["pyarrow", "pandas"])
def test_the_error_for_a_missing_package_names_the_extra(program: str) -> None:
    process = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert (process.stdout, process.stderr) == ("done\n", "")


@pytest.mark.parametrize(("size", "fits"), [(9_980, True), (10_000, False)])
def test_multi_level_labels_are_parsed_up_to_a_length(size: int, fits: bool) -> None:
    frame = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("x" * size, "y")]))
    converted = bs.table(frame)
    if fits:
        pd.testing.assert_frame_equal(converted.to_pandas(), frame)
    else:
        with pytest.raises(InvalidDataError, match="expected a column label of 2 levels"):
            converted.to_pandas()
