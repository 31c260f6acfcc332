"""Random frames of Polars become the tables that pyarrow creates, and convert back to the same frames."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given, settings, strategies as st

import bowstring as bs

MAX_ROWS = 6
_ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=15)
_TEXT = st.one_of(st.sampled_from(["", "a", "b", "a text of more than twelve bytes"]), _ANY_TEXT)
_MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6)
_SPANS = st.timedeltas(dt.timedelta(-10_000), dt.timedelta(10_000))

Draw = st.DrawFn


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
    column = st.one_of(values, st.none()) if draw(st.booleans()) else values
    return pl.Series(draw(st.lists(column, min_size=length, max_size=length)), dtype=dtype)


@st.composite
def polars_frames(draw: Draw) -> pl.DataFrame:
    """Frames with columns of any dtypes, also slices of others, and frames of several chunks."""
    length = draw(st.integers(0, MAX_ROWS))
    names = draw(st.lists(_TEXT.filter(lambda text: "\0" not in text), max_size=3, unique=True))
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
