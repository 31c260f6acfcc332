"""Random frames of pandas and Polars become the tables that pyarrow creates, and convert back to the same frames."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import BowstringError, TypeMismatchError

MAX_ROWS = 6
_ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=15)
_TEXT = st.one_of(st.sampled_from(["", "a", "b", "a text of more than twelve bytes"]), _ANY_TEXT)
_SECONDS = st.integers(-8_000_000_000, 8_000_000_000)  # years 1716 to 2223
_MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
_ZONES = st.sampled_from(["UTC", "Europe/Paris", "+05:30", "America/New_York"])
_UNITS = st.sampled_from(["s", "ms", "us", "ns"])
_UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6)
_SPANS = st.timedeltas(dt.timedelta(-10_000), dt.timedelta(10_000))
_MISSING: list[Any] = [None, float("nan"), pd.NaT, pd.NA]

Draw = st.DrawFn


def _values(draw: Draw, values: st.SearchStrategy[Any], length: int, missing: list[Any] | None = None) -> list[Any]:
    """Draw values, some of them missing unless there are no missing values."""
    if missing and draw(st.booleans()):
        values = st.one_of(values, st.sampled_from(missing))
    return draw(st.lists(values, min_size=length, max_size=length))


# pandas


def _numpy_integers(draw: Draw, length: int) -> Any:
    dtype: np.dtype[Any] = np.dtype(draw(st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])))
    limits: np.iinfo[Any] = np.iinfo(dtype)
    return pd.Series(np.array(_values(draw, st.integers(int(limits.min), int(limits.max)), length), dtype))


def _numpy_floats(draw: Draw, length: int) -> Any:
    width: Any = draw(st.sampled_from([16, 32, 64]))
    return pd.Series(np.array(_values(draw, st.floats(width=width), length), f"f{width // 8}"))


def _numpy_booleans(draw: Draw, length: int) -> Any:
    return pd.Series(np.array(_values(draw, st.booleans(), length), bool))


def _numpy_times(draw: Draw, length: int) -> Any:
    kind, unit = draw(st.sampled_from("mM")), draw(_UNITS)
    counts = [value * _UNITS_PER_SECOND[unit] + value % 7 for value in _values(draw, _SECONDS, length)]
    values = np.array(counts, np.int64).view(f"{kind}8[{unit}]")
    values[np.array(_values(draw, st.booleans(), length), bool)] = "NaT"
    return pd.Series(values)


def _zoned_times(draw: Draw, length: int) -> Any:
    unit, zone = draw(_UNITS), draw(_ZONES)
    counts = [value * _UNITS_PER_SECOND[unit] for value in _values(draw, _SECONDS, length)]
    values = pd.Series(np.array(counts, np.int64).view(f"M8[{unit}]"))
    values[np.array(_values(draw, st.booleans(), length), bool)] = pd.NaT
    return values.dt.tz_localize("UTC").dt.tz_convert(zone)


def _masked_numbers(draw: Draw, length: int) -> Any:
    name: Any = draw(st.sampled_from(["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt64", "Float32", "Float64"]))
    if name.startswith("F"):
        width: Any = int(name[-2:])
        values: st.SearchStrategy[Any] = st.floats(width=width, allow_nan=False)
    else:
        limits: np.iinfo[Any] = np.iinfo(name.lower())
        values = st.integers(int(limits.min), int(limits.max))
    return pd.Series(pd.array(_values(draw, values, length, [pd.NA]), dtype=name))


def _masked_booleans(draw: Draw, length: int) -> Any:
    return pd.Series(pd.array(_values(draw, st.booleans(), length, [pd.NA]), dtype="boolean"))


def _strings(draw: Draw, length: int) -> Any:
    dtype = draw(st.sampled_from(["str", "string[python]", "string[pyarrow]"]))
    return pd.Series(_values(draw, _TEXT, length, [None]), dtype=dtype)


def _categories(draw: Draw, length: int) -> Any:
    values: list[st.SearchStrategy[Any]] = [
        _TEXT, st.integers(-5, 5), st.booleans(), st.sampled_from([0.5, -1.5, 1e300]), _MOMENTS.map(pd.Timestamp),
        st.dates(), _DECIMALS, st.binary(max_size=3), _SPANS.map(pd.Timedelta),
    ]  # fmt: skip
    labels = draw(st.lists(draw(st.sampled_from(values)), unique=True, max_size=5))
    codes = _values(draw, st.integers(-1, len(labels) - 1), length)
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(labels), ordered=draw(st.booleans())))


_OBJECTS: dict[str, st.SearchStrategy[Any]] = {
    "text": _TEXT,
    "bytes": st.binary(max_size=15),
    "integers": st.integers(-(1 << 63), (1 << 63) - 1),
    "large integers": st.integers(-(1 << 65), 1 << 65),
    "floats": st.floats(),
    "integers and floats": st.one_of(st.integers(-(1 << 60), 1 << 60), st.floats()),
    "booleans": st.booleans(),
    "booleans and integers": st.one_of(st.booleans(), st.integers(0, 3)),
    "text and integers": st.one_of(_TEXT, st.integers(0, 3)),
    "text and bytes": st.one_of(_TEXT, st.binary(max_size=3)),
    "decimals": _DECIMALS,
    "decimals of any scale": st.decimals(allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000),
    "dates": st.dates(),
    "times": st.times(),
    "moments": _MOMENTS,
    "zoned moments": _MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    "pandas moments": _MOMENTS.map(pd.Timestamp),
    "spans": _SPANS,
    "NumPy numbers": st.one_of(st.integers(-128, 127).map(np.int8), st.integers(0, 9).map(np.int64)),
    "NumPy floats": st.floats(width=32).map(np.float32),
    "NumPy booleans": st.booleans().map(np.bool_),
    "NumPy moments": _SECONDS.map(lambda second: np.datetime64(second, "s")),
    "UUIDs": st.uuids(),
    "offsets": st.builds(pd.DateOffset, months=st.integers(-9, 9), days=st.integers(-9, 9)),
    "lists": st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3),
    "lists of text": st.lists(st.one_of(st.none(), _TEXT), max_size=3),
    "lists of lists": st.lists(st.lists(st.floats(allow_nan=False), max_size=2), max_size=2),
    "tuples": st.tuples(st.integers(0, 3), st.integers(0, 3)),
    "arrays": st.lists(st.integers(-9, 9), max_size=3).map(lambda values: np.array(values, np.int16)),
    "arrays of floats": st.lists(st.floats(width=32), max_size=3).map(lambda values: np.array(values, np.float32)),
    "arrays of objects": st.lists(st.one_of(_TEXT, st.none()), max_size=3).map(lambda v: np.array(v, object)),
    "arrays of moments": st.lists(_SECONDS, max_size=3).map(lambda values: np.array(values, "M8[s]")),
    "dictionaries": st.fixed_dictionaries({"a": st.integers(0, 9)}, optional={"b": st.one_of(st.none(), _TEXT)}),
    "nested dictionaries": st.fixed_dictionaries({"x": st.dictionaries(st.sampled_from("pq"), st.booleans())}),
    "lists of dictionaries": st.lists(st.fixed_dictionaries({"a": st.integers(0, 9)}), max_size=2),
}


def _objects(draw: Draw, length: int) -> Any:
    values = _values(draw, _OBJECTS[draw(st.sampled_from(sorted(_OBJECTS)))], length, _MISSING)
    series = pd.Series([None] * length, dtype=object)
    for i, value in enumerate(values):
        series.iat[i] = value
    return series


_ARROW_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-9, 9)),
    (pa.string(), _TEXT),
    (pa.large_string(), _TEXT),
    (pa.decimal128(12, 2), _DECIMALS),
    (pa.date32(), st.dates()),
    (pa.timestamp("ms", "UTC"), _MOMENTS),
]
"""Types whose dtype pyarrow restores from its name, unlike nested ones."""


def _arrow_columns(draw: Draw, length: int) -> Any:
    type_, values = draw(st.sampled_from(_ARROW_TYPES))
    chunks = [pa.array(_values(draw, values, length, [None]), type_)]
    if length > 1 and draw(st.booleans()):
        chunks = [chunks[0][:1], chunks[0][1:]]
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array(chunks, type_)))


_PANDAS_COLUMNS: list[Callable[[Draw, int], Any]] = [
    _numpy_integers, _numpy_floats, _numpy_booleans, _numpy_times, _zoned_times, _masked_numbers, _masked_booleans,
    _strings, _categories, _objects, _objects, _objects, _arrow_columns,
]  # fmt: skip
_LABELS = st.one_of(_TEXT.filter(lambda text: "\0" not in text), st.integers(0, 3))
"""Labels without a NUL, which C strings can't have."""
_INDEXES: list[Callable[[Draw, int], Any]] = [_numpy_integers, _numpy_times, _zoned_times, _categories]
"""Not text: pyarrow loses the dtype `string` of an index."""


@st.composite
def pandas_frames(draw: Draw) -> pd.DataFrame:
    """Frames with columns of any dtypes, and an index of one or two levels."""
    length = draw(st.integers(0, MAX_ROWS))
    labels = draw(st.lists(_LABELS, max_size=3, unique_by=str))
    columns = [draw(st.sampled_from(_PANDAS_COLUMNS))(draw, length) for _ in labels]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=pd.RangeIndex(length))
    frame.columns = pd.Index(labels, dtype=object) if labels else frame.columns
    levels = [draw(st.sampled_from(_INDEXES))(draw, length) for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))]
    if len(levels) == 1:
        frame.index = pd.Index(levels[0], name=draw(st.sampled_from([None, "key", "a"])))
    elif levels:
        frame.index = pd.MultiIndex.from_arrays(levels, names=["first", None])
    return frame


def without_versions(schema: pa.Schema) -> dict[bytes, Any]:
    """Return the metadata of a schema without the names and versions of libraries."""
    pairs = dict(schema.metadata or {})
    description = json.loads(pairs[b"pandas"])
    del description["creator"], description["pandas_version"]
    return {**pairs, b"pandas": description}


def attempt(function: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return what a function returns, or its error."""
    try:
        return function()
    except errors as error:
        return error


@pytest.mark.filterwarnings("ignore:The DataFrame has column names of mixed type", "ignore:.*rounds")
@settings(max_examples=150)
@given(frame=pandas_frames())
def test_a_pandas_frame_becomes_the_table_of_pyarrow_and_back(frame: pd.DataFrame) -> None:
    expected = attempt(lambda: pa.Table.from_pandas(frame), pa.ArrowException, ValueError, TypeError, OverflowError)
    table = attempt(lambda: bs.Table.from_pandas(frame), BowstringError)
    if isinstance(expected, Exception) or isinstance(table, Exception):
        assert isinstance(expected, Exception), (expected, table)
        assert isinstance(table, Exception), (expected, table)
        return
    table.validate(full=True)
    actual = pa.table(table)
    assert actual.schema == expected.schema
    assert without_versions(actual.schema) == without_versions(expected.schema)
    assert actual.equals(expected)
    pd.testing.assert_frame_equal(table.to_pandas(), expected.to_pandas())


def test_integer_labels_among_python_objects_stay_integers() -> None:
    frame = pd.DataFrame([[1, 2]])
    frame.columns = pd.Index([0, 1], dtype=object)
    restored = bs.Table.from_pandas(frame).to_pandas()
    assert restored.columns.tolist() == [0, 1]
    pd.testing.assert_frame_equal(restored, pa.Table.from_pandas(frame).to_pandas())


@pytest.mark.parametrize("value", [np.array(5), np.array("2020-01-01", "M8[s]"), np.array("x")])
def test_a_numpy_array_without_dimensions_is_not_a_list(value: Any) -> None:
    for rows in ([value, None], [[1], value]):
        with pytest.raises(TypeMismatchError, match="without dimensions"):
            bs.array(rows)
        with pytest.raises(TypeMismatchError, match="without dimensions"):
            bs.Array.from_pandas(pd.Series(rows, dtype=object))


# Polars

_POLARS_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    *((pl_type, st.integers(-100, 100)) for pl_type in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)),
    *((pl_type, st.integers(0, 200)) for pl_type in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)),
    (pl.Float32, st.floats(width=32)),
    (pl.Float64, st.floats()),
    (pl.Boolean, st.booleans()),
    (pl.String, _TEXT),
    (pl.Binary, st.binary(max_size=15)),
    (pl.Categorical, _TEXT),
    (pl.Enum(["a", "b", "long enough for a view"]), st.sampled_from(["a", "b", "long enough for a view"])),
    (pl.Date, st.dates()),
    (pl.Time, st.times()),
    *((pl.Datetime(unit, zone), _MOMENTS) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Europe/Paris")),
    *((pl.Duration(unit), _SPANS) for unit in ("ms", "us", "ns")),
    (pl.Decimal(12, 2), _DECIMALS),
    (pl.Null, st.none()),
]


@st.composite
def _polars_columns(draw: Draw, length: int) -> pl.Series:
    dtype, values = draw(st.sampled_from(_POLARS_TYPES))
    nullable = st.one_of(values, st.none())
    shape = draw(st.sampled_from(["flat", "flat", "list", "array", "struct"]))
    if shape == "list":
        dtype, values = pl.List(dtype), st.lists(nullable, max_size=3)
    elif shape == "array":
        dtype, values = pl.Array(dtype, 2), st.lists(nullable, min_size=2, max_size=2)
    elif shape == "struct":
        dtype, values = pl.Struct({"a": dtype, "b": pl.Int8}), st.fixed_dictionaries({"a": nullable, "b": st.just(1)})
    return pl.Series(_values(draw, values, length, [None]), dtype=dtype)


@st.composite
def polars_frames(draw: Draw) -> pl.DataFrame:
    """Frames with columns of any dtypes, also slices of others, and frames of several chunks."""
    length = draw(st.integers(0, MAX_ROWS))
    names = draw(st.lists(_LABELS.filter(lambda label: isinstance(label, str)), max_size=3, unique=True))
    frame = pl.DataFrame({name: draw(_polars_columns(length)) for name in names})
    if draw(st.booleans()):
        frame = pl.concat([frame, frame], rechunk=False)
    return frame.slice(draw(st.integers(0, 2))) if draw(st.booleans()) else frame


@settings(max_examples=150)
@given(frame=polars_frames())
def test_a_polars_frame_becomes_the_table_of_pyarrow_and_back(frame: pl.DataFrame) -> None:
    table = bs.table(frame)
    table.validate(full=True)
    expected = pa.table(frame)
    assert pa.schema(table.schema) == expected.schema
    for actual_column, expected_column in zip(pa.table(table).columns, expected.columns, strict=True):
        assert repr(actual_column.to_pylist()) == repr(expected_column.to_pylist())
    assert bs.table(expected).equals(table, nans_equal=True)
    returned = pl.DataFrame(table)
    assert returned.schema == frame.schema
    assert returned.equals(frame)
