"""Conversion by pyarrow, and labels of all kinds, which are compared with those of the frame itself."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import (
    InvalidArgumentError,
    InvalidDataError,
    TypeMismatchError,
    UnsupportedTypeError,
    WouldCopyError,
)
from tests.addresses import address, data_address

# Columns


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None]),
        pa.array(["a", None, "a text of more than twelve bytes"]),
        pa.array(["a", None, "a text of more than twelve bytes"], pa.string_view()),
        pa.array([[1, 2], None, []]),
        pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("ms", "Europe/Paris")),
    ],
    ids=lambda array: str(array.type),
)
def test_series_and_columns_are_those_of_pyarrow(array: pa.Array) -> None:
    expected = array.to_pandas()
    pd.testing.assert_series_equal(bs.array(array).to_pandas(), expected)
    two_chunks = pa.chunked_array([array, array])
    pd.testing.assert_series_equal(bs.chunked_array([array, array]).to_pandas(), two_chunks.to_pandas())
    pd.testing.assert_frame_equal(bs.table({"a": array}).to_pandas(), expected.to_frame("a"))
    for source, pa_array in ((expected, pa.array(expected)), (pd.Index(expected), pa.array(pd.Index(expected)))):
        assert pa.chunked_array(bs.ChunkedArray.from_pandas(source)).equals(pa.chunked_array(pa_array))
        assert bs.array(source).to_pylist() == pa_array.to_pylist()


def test_memory_is_shared_in_both_directions() -> None:
    array = bs.array([1, 2, 3])
    series = array.to_pandas(zero_copy_only=True)
    assert address(series.to_numpy()) == data_address(array)
    assert data_address(bs.Array.from_pandas(series)) == data_address(array)
    with pytest.raises(ValueError, match="read-only"):
        series.iloc[0] = 9
    del array
    assert series.tolist() == [1, 2, 3]


def test_zero_copy_only_is_an_error_if_a_copy_is_needed() -> None:
    for source in (bs.array([1, None]), bs.array([True]), bs.chunked_array([[1], [2]]), bs.table({"a": [True]})):
        with pytest.raises(WouldCopyError):
            source.to_pandas(zero_copy_only=True)


def test_all_options_of_pyarrow_are_accepted() -> None:
    table = bs.table({"a": [1, None], "day": [dt.date(2020, 1, 1), None], "s": ["x", "x"]})
    options: dict[str, Any] = {"types_mapper": pd.ArrowDtype, "split_blocks": True, "use_threads": False}
    pd.testing.assert_frame_equal(table.to_pandas(**options), pa.table(table).to_pandas(**options))
    options = {"integer_object_nulls": True, "date_as_object": False, "categories": ["s"]}
    pd.testing.assert_frame_equal(table.to_pandas(**options), pa.table(table).to_pandas(**options))
    frame = pd.DataFrame({"a": [1.5], "b": [2]})
    assert bs.Table.from_pandas(frame, columns=["b"], nthreads=1).to_pydict() == {"b": [2]}
    assert bs.Table.from_pandas(frame[["a"]], {"a": "int8"}, safe=False).to_pydict() == {"a": [1]}
    assert bs.Array.from_pandas(frame["a"], "int8", safe=False).to_pylist() == [1]
    for convert in (table.to_pandas, lambda **kw: bs.Table.from_pandas(frame, **kw)):
        with pytest.raises(TypeMismatchError, match="unknown"):
            convert(unknown=1)


def test_columns_may_have_several_chunks_or_no_rows() -> None:
    arrow = pd.arrays.ArrowExtensionArray(pa.chunked_array([[1], [2, None]]))
    assert bs.ChunkedArray.from_pandas(pd.Series(arrow)).num_chunks == 2
    frame = pd.DataFrame({"arrow": arrow, "plain": [1, 2, 3]})
    assert bs.Table.from_pandas(frame).to_pydict() == {"arrow": [1, 2, None], "plain": [1, 2, 3]}
    assert bs.RecordBatch.from_pandas(frame).to_pydict() == {"arrow": [1, 2, None], "plain": [1, 2, 3]}
    empty = pd.DataFrame({"c": pd.Categorical([], ["x", "y"])})
    for source in (bs.Table.from_pandas(empty), bs.RecordBatch.from_pandas(empty)):
        pd.testing.assert_frame_equal(source.to_pandas(), empty)
    for frame in (pd.DataFrame(), pd.DataFrame(index=range(3))):
        for source in (bs.table(frame), bs.record_batch(frame)):
            assert source.num_rows == len(frame)
            assert source.to_pandas().shape == frame.shape


def test_a_schema_selects_columns_and_types() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [1.0, np.nan], "c": ["x", None]}, index=pd.Index([5, 6], name="k"))
    schema = bs.schema([("c", bs.string()), ("b", bs.int8()), ("k", bs.int16())]).with_metadata({"own": "1"})
    table = bs.table(frame, schema)
    assert table.to_pydict() == {"c": ["x", None], "b": [1, None], "k": [5, 6]}
    assert table.schema.types == schema.types
    assert table.schema.metadata[b"own"] == b"1"
    assert table.to_pandas().index.name == "k"
    with pytest.raises(InvalidArgumentError, match="'z'"):
        bs.Table.from_pandas(frame, {"z": "int8"})
    with pytest.raises(InvalidArgumentError, match="non-nullable but pandas column had 1 null"):
        bs.Table.from_pandas(frame, bs.schema([bs.field("c", bs.string(), nullable=False)]))
    with pytest.raises(TypeMismatchError, match="column a"):
        bs.Table.from_pandas(frame, {"a": bs.list_(bs.int8())})


def test_values_without_an_arrow_type_are_errors() -> None:
    for values in (pd.arrays.SparseArray([0, 1]), [object(), 1], [1, "a"]):
        with pytest.raises(TypeMismatchError):
            bs.array(pd.Series(values))
        with pytest.raises(TypeMismatchError, match="bad"):
            bs.table(pd.DataFrame({"good": [1, 2], "bad": values}))
    with pytest.raises(InvalidArgumentError, match="expected one column, found a DataFrame"):
        bs.array(pd.DataFrame({"a": [1]}))
    with pytest.raises(InvalidArgumentError):
        bs.Table.from_pandas([1])


# Values that pyarrow does not check


@pytest.mark.parametrize(
    "invalid",
    [
        bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 500, 2], np.int32), b"ab"]),
        bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 1, 2], np.int32), b"\xff\xfe"]),
        bs.Array.from_buffers(
            bs.list_(bs.int8()), 2, [None, np.array([0, 99, 3], np.int32)], [bs.array([1, 2, 3], bs.int8())]
        ),
        bs.Array.from_buffers(
            bs.dictionary(bs.int8(), bs.string()), 2, [None, np.array([0, 7], np.int8)], dictionary=bs.array(["x"])
        ),
        bs.Array.from_buffers(bs.null(), 1 << 50, []),
    ],
    ids=lambda array: str(array.type),
)
def test_invalid_values_are_errors_before_the_conversion(invalid: bs.Array) -> None:
    for source in (invalid, bs.ChunkedArray([invalid, invalid], invalid.type), bs.table({"a": invalid})):
        with pytest.raises(InvalidDataError):
            source.to_pandas()


@pytest.mark.parametrize("make", [bs.list_view, bs.large_list_view])
@pytest.mark.parametrize(
    ("wrap", "wrap_value"),
    [
        (lambda type_: type_, lambda value: value),
        (bs.list_, lambda value: [value]),
        (lambda type_: bs.struct({"x": type_}), lambda value: {"x": value}),
        (lambda type_: bs.map_("string", type_), lambda value: [("k", value)]),
    ],
)
def test_list_views_become_lists_with_their_nulls(make: Any, wrap: Any, wrap_value: Any) -> None:
    values = [wrap_value(value) for value in ([1, 2], None, [], [3, None], None, [4])] * 5
    lists, views = (bs.array(values, wrap(kind("int64"))) for kind in (bs.list_, make))
    for start in (0, 1, 9):
        expected, found = lists.slice(start), views.slice(start)
        assert repr(found.to_pandas().tolist()) == repr(expected.to_pandas().tolist())
        columns = [
            bs.table({"a": bs.chunked_array([each, each])}).to_pandas()["a"].tolist() for each in (found, expected)
        ]
        assert repr(columns[0]) == repr(columns[1])
    expected_nulls = [value is None for value in values]
    assert views.to_pandas().isna().tolist() == expected_nulls


@pytest.mark.parametrize("type_", [bs.timestamp("ns", "Europe/Paris"), bs.int64(), bs.string(), bs.list_view("int8")])
def test_runs_become_their_values(type_: bs.DataType) -> None:
    values: list[Any] = [None, None, 1, 1, 1, 5]
    if type_ == bs.string():
        values = [None if value is None else str(value) for value in values]
    elif isinstance(type_, bs.datatypes.ListView):
        values = [None if value is None else [value] for value in values]
    elif isinstance(type_, bs.datatypes.Timestamp):
        values = bs.array(values).cast(type_).to_pylist()
    plain = bs.array(values, type_)
    runs = plain.cast(bs.run_end_encoded("int16", type_))
    for expected, found in ((plain, runs), (plain.slice(1, 3), runs.slice(1, 3)), (plain.slice(6), runs.slice(6))):
        pd.testing.assert_series_equal(found.to_pandas(), expected.to_pandas())
        pd.testing.assert_frame_equal(*(bs.table({"n": each, "m": each}).to_pandas() for each in (found, expected)))


def test_types_that_pandas_cannot_have_are_errors() -> None:
    union = bs.array([1], bs.dense_union([bs.field("a", bs.int64())]))
    with pytest.raises(UnsupportedTypeError, match="union"):
        union.to_pandas()


# Labels

MULTI_INDEX = pd.MultiIndex.from_tuples([("p", 10), ("q", 20)])
DATE, TIME = dt.date(2020, 1, 1), pd.Timestamp("2020-01-01")
LABELS: dict[str, Any] = {
    "text": ["a", "b"],
    "integers": [1, 2],
    "positions, exchanged": [1, 0],
    "booleans": [True, False],
    "booleans, exchanged": [False, True],
    "floats": [1.0, 0.0],
    "fractions": [0.5, 1.5],
    "integers of NumPy": [np.int64(1), np.int64(0)],
    "booleans of NumPy": [np.True_, np.False_],
    "a range": pd.RangeIndex(1, -1, -1),
    "objects that are integers": pd.Index([1, 0], dtype=object),
    "objects that are booleans": pd.Index([True, False], dtype=object),
    "nullable booleans": pd.Index([True, False], dtype="boolean"),
    "nullable integers": pd.Index([1, 0], dtype="Int64"),
    "categories": pd.CategoricalIndex([True, False]),
    "decimals": [Decimal(1), Decimal(0)],
    "complex": [1 + 0j, 0j],
    "bytes": [b"a", b"b"],
    "moments": [TIME, TIME + pd.Timedelta(1, "D")],
    "zoned": [TIME.tz_localize("Europe/Paris"), (TIME + pd.Timedelta(1, "D")).tz_localize("Europe/Paris")],
    "dates": [DATE, DATE.replace(year=2021)],
    "spans": [pd.Timedelta(1, "s"), pd.Timedelta(2, "s")],
    "periods": [pd.Period("2020"), pd.Period("2021")],
    "UUIDs": [uuid.UUID(int=1), uuid.UUID(int=0)],
    "tuples": [(1, 0), (0, 1)],
    "None": [None, "a"],
    "None and its text": [None, "None"],
    "NaN": [float("nan"), 1.5],
    "NA": [pd.NA, 1],
    "NaN and its text": [float("nan"), "nan"],
    "integer and text": ["a", 1],
    "integer and its text": [1, "1"],
    "boolean and integer": [True, 2],
    "boolean and its text": [True, "True"],
    "bytes and their text": [b"a", "a"],
    "generated names": ["__index_level_1__", "__index_level_0__"],
}
VALUES = [[1, 2], [3, 4]]
FRAMES: dict[str, Callable[[Any], pd.DataFrame]] = {
    "columns": lambda labels: pd.DataFrame(VALUES, columns=as_index(labels)),
    "names of levels": lambda labels: pd.DataFrame(
        VALUES, columns=["c", "d"], index=MULTI_INDEX.set_names(list(labels))
    ),
    "name of the index": lambda labels: pd.DataFrame(
        VALUES, columns=["c", "d"], index=pd.Index([7, 8], name=labels[0])
    ),
    "name of a range": lambda labels: pd.DataFrame(
        VALUES, columns=["c", "d"], index=pd.RangeIndex(7, 9, name=labels[0])
    ),
    "first level of columns": lambda labels: pd.DataFrame(VALUES, columns=pd.MultiIndex.from_arrays([labels, [1, 0]])),
    "last level of columns": lambda labels: pd.DataFrame(
        VALUES, columns=pd.MultiIndex.from_arrays([["u", "v"], labels])
    ),
    "names of levels of columns": lambda labels: pd.DataFrame(VALUES, columns=MULTI_INDEX.set_names(list(labels))),
    "columns and index": lambda labels: pd.DataFrame(
        VALUES, columns=as_index(labels), index=MULTI_INDEX.set_names(list(labels))
    ),
    "columns and their text": lambda labels: pd.DataFrame(
        VALUES, columns=as_index(labels), index=MULTI_INDEX.set_names(list(map(str, labels)))
    ),
    "text and columns": lambda labels: pd.DataFrame(
        VALUES, columns=list(map(str, labels)), index=MULTI_INDEX.set_names(list(labels))
    ),
}


def as_index(labels: Any) -> Any:
    return labels if isinstance(labels, pd.Index) else pd.Index(labels, tupleize_cols=False)


def describe(label: Any) -> str:
    """Return the text of a label. Missing labels, bytes and text, and generated and missing names are the same."""
    if isinstance(label, tuple):
        return str(tuple(map(describe, label)))
    if pd.isna(label) or str(label) == "<NA>" or str(label).startswith("__index_level"):
        return "missing"
    return label.decode() if isinstance(label, bytes) else str(label).removeprefix("b'").removesuffix("'")


@pytest.mark.filterwarnings("ignore:The DataFrame has column names of mixed type")
@pytest.mark.parametrize("place", FRAMES)
@pytest.mark.parametrize("labels", LABELS)
def test_labels_of_all_kinds_keep_their_values_or_are_errors(labels: str, place: str) -> None:
    try:
        frame = FRAMES[place](LABELS[labels])
    except TypeError:
        pytest.skip("pandas does not allow these labels here")
    for convert in (bs.Table.from_pandas, bs.RecordBatch.from_pandas):
        try:
            returned = convert(frame).to_pandas()
        except (InvalidArgumentError, InvalidDataError) as error:
            assert labels not in ("text", "integers", "positions, exchanged", "booleans", "floats"), error  # noqa: PT017
            continue
        assert returned.to_numpy().tolist() == VALUES
        assert list(returned.index) == list(frame.index)
        for actual, expected in (
            (returned.columns, frame.columns),
            (returned.columns.names, frame.columns.names),
            (returned.index.names, frame.index.names),
        ):
            assert list(map(describe, actual)) == list(map(describe, expected))


@pytest.mark.parametrize("name", [1, True, 0.5, None], ids=str)
def test_numbers_as_names_of_levels_stay_numbers(name: Any) -> None:
    for index in (
        pd.MultiIndex.from_tuples([("p", 10), ("q", 20)], names=[name, "other"]),
        pd.Index([7, 8], name=name),
        pd.RangeIndex(7, 9, name=name),
    ):
        frame = pd.DataFrame({"a": [1, 2]}, index=index)
        table = bs.Table.from_pandas(frame)
        assert frame.index.names[0] is name, "the frame is not changed"
        for returned in (table.to_pandas(), pa.table(table).to_pandas()):
            pd.testing.assert_frame_equal(returned, frame)
            assert type(returned.index.names[0]) is type(name)


@pytest.mark.parametrize("dtype", [bool, object, "boolean"], ids=str)
def test_boolean_labels_stay_booleans_also_those_that_pyarrow_wrote(dtype: Any) -> None:
    booleans = pd.Index([True, False], dtype=dtype)
    for columns in (booleans, pd.MultiIndex.from_arrays([["x", "y"], booleans, [1, 0]], names=["u", None, 5])):
        frame = pd.DataFrame(VALUES, columns=columns, index=pd.Index([3, 4], name="True"))
        for table in (bs.table(frame), bs.table(pa.Table.from_pandas(frame))):
            pd.testing.assert_frame_equal(table.to_pandas(), frame)
            if frame.columns.nlevels == 1:
                longer = table.append_column("later", [5, 6]).to_pandas()
                assert longer.columns.tolist() == [True, False, "later"]


def test_labels_are_restored_from_files_and_selections(tmp_path: Any) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2020", periods=2, tz="UTC", name="day"))
    frame = frame.assign(c=pd.Categorical(["u", None]), i=pd.array([1, None], "Int64"))
    frame.attrs["source"] = "x"
    bs.write_table(frame, tmp_path / "f.arrow")
    returned = bs.read_table(tmp_path / "f.arrow").to_pandas()
    pd.testing.assert_frame_equal(returned, frame, check_freq=False)
    assert returned.attrs == frame.attrs
    assert bs.read_table(tmp_path / "f.arrow", columns=["a"]).to_pandas().index.tolist() == [0, 1]
    plain = bs.read_table(tmp_path / "f.arrow").to_pandas(ignore_metadata=True)
    assert plain.columns.tolist() == ["a", "c", "i", "day"]
    assert bs.Table.from_pandas(frame, preserve_index=False).column_names == ["a", "c", "i"]


VALID = json.loads(pa.Table.from_pandas(pd.DataFrame({"a": [1]})).schema.metadata[b"pandas"])
BOOLEAN_LEVEL = {"name": None, "pandas_type": "bool", "numpy_type": "bool"}
MALFORMED = [
    b"", b"\xff", b"[]", b"{}", b"7", b"[" * 100_000,
    *(json.dumps(VALID | change).encode() for change in (
        {"index_columns": [7]}, {"index_columns": [{"kind": "other"}]}, {"columns": [7]}, {"columns": 7},
        {"index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 1, "step": 0}]},
        {"index_columns": [{"kind": "range", "name": None, "start": "0", "stop": 2**70, "step": 1}]},
        {"columns": [{"name": "a", "field_name": "a", "numpy_type": "nonsense[x]", "pandas_type": "nonsense"}]},
        {"column_indexes": [7]}, {"column_indexes": [BOOLEAN_LEVEL, BOOLEAN_LEVEL]},
        {"column_indexes": [BOOLEAN_LEVEL] * 2,
         "columns": [{"name": "(" * 9000, "field_name": "a", "numpy_type": "int64", "pandas_type": "int64"}]},
    )),
]  # fmt: skip


@pytest.mark.parametrize("metadata", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_metadata_is_an_error_that_names_the_option_to_ignore_it(metadata: bytes) -> None:
    table = bs.table({"a": [1]}).replace_schema_metadata({b"pandas": metadata})
    with pytest.raises(InvalidDataError, match="ignore_metadata=True"):
        table.to_pandas()
    assert table.to_pandas(ignore_metadata=True)["a"].tolist() == [1]


def test_labels_of_several_levels_are_parsed_up_to_a_length() -> None:
    for size, is_read in ((9_970, True), (10_000, False)):
        frame = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([(True, "x" * size)]))
        table = bs.table(frame)
        if is_read:
            pd.testing.assert_frame_equal(table.to_pandas(), frame)
        else:
            with pytest.raises(InvalidDataError, match="exceeds the limit of 10000"):
                table.to_pandas()


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_the_error_for_a_missing_package_names_the_extra(package: str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
import bowstring as bs
for attempt in (bs.array([1]).to_pandas, bs.table({{"a": [1]}}).to_pandas, lambda: bs.Array.from_pandas([1]),
                lambda: bs.Table.from_pandas([1])):
    try:
        attempt()
    except bs.errors.MissingExtraError as error:
        assert str(error) == "{package} is not installed: pip install 'bowstring[pandas]', or in a clone '.[pandas]'"
    else:
        raise AssertionError(attempt)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
