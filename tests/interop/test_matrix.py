"""Round trips of every layout through every library: it imports our table, converts its values, and exports it again.

Tables below list the layouts that a library rejects, with its error message, so that a test fails once it supports one.
"""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from tests.interop.layouts import CUTS, LAYOUTS, table_of


def to_python(value: Any) -> Any:
    """Convert a value of another library to the equivalent Python value."""
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value.to_pytimedelta()
    if isinstance(value, pd.DateOffset):
        offset = value.kwds
        return offset.get("months", 0), offset.get("days", 0), offset.get("nanoseconds", 0)
    if isinstance(value, bs.Array | np.ndarray):
        return (
            [to_python(element) for element in value.tolist()] if isinstance(value, np.ndarray) else value.to_pylist()
        )
    if isinstance(value, tuple):
        return tuple(map(to_python, value))
    if isinstance(value, dict):
        return {key: to_python(entry) for key, entry in value.items()}
    return [to_python(element) for element in value] if isinstance(value, list) else value


def in_pyarrow(table: bs.Table) -> tuple[list[Any], bs.Table]:
    pa_table = pa.table(table)
    pa_table.validate(full=True)
    return pa_table["a"].to_pylist(), bs.table(pa_table)


def in_polars(table: bs.Table) -> tuple[list[Any], bs.Table]:
    frame = pl.DataFrame(table)
    return frame["a"].to_list(), bs.table(frame)


def in_duckdb(table: bs.Table) -> tuple[list[Any], bs.Table]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'Europe/Paris'")
        connection.register("ours", table)
        values = [row[0] for row in connection.sql("select a from ours").fetchall()]
        return values, bs.table(connection.sql("select a from ours"))


def in_pandas(table: bs.Table) -> tuple[list[Any], bs.Table]:
    frame = pd.DataFrame.from_arrow(table)  # type: ignore[attr-defined]
    type_ = table.schema.types[0]
    schema = None if type_ in TYPES_FROM_VALUES else bs.schema([("a", CONVERTED_TO_FLOAT.get(type_, type_))])
    return frame["a"].tolist(), bs.Table.from_pandas(frame, schema)


TYPES_FROM_VALUES = [
    LAYOUTS[name].type
    for name in LAYOUTS
    if "list" in name or name == "struct"  # the type follows from the values
]
CONVERTED_TO_FLOAT: dict[bs.DataType, bs.DataType] = {LAYOUTS["map"].type: bs.map_(bs.string(), bs.float64())}
"""Pyarrow converts integers with nulls to floats for pandas."""


def in_nanoarrow(table: bs.Table) -> tuple[list[Any], bs.Table]:
    column = table["a"]
    type_ = str(column.type)
    has_values = type_ not in WITHOUT_PYTHON_VALUES and not (
        type_ in OFFSET_IGNORED and any(chunk.offset for chunk in column.chunks)
    )
    back = bs.ChunkedArray([bs.array(nanoarrow.c_array(chunk)) for chunk in column.chunks], column.type)
    values = nanoarrow.Array(column).to_pylist() if has_values else back.to_pylist()
    return values, bs.Table.from_arrays([back], ["a"])


def type_names(*names: str) -> set[str]:
    return {str(LAYOUTS[name].type) for name in names}


WITHOUT_PYTHON_VALUES = type_names(
    "map", "run_end_encoded", "sparse_union", "dense_union", "list_view", "large_list_view"
) | type_names("decimal32", "decimal64", "decimal128", "decimal256")
"""Nanoarrow 0.9 does not convert these to Python values, or decimals with the wrong sign; only memory is compared."""
OFFSET_IGNORED = type_names("float16", "day_time_interval", "month_day_nano_interval", "fixed_size_binary")
"""Nanoarrow 0.9 ignores the offset of arrays of these types when it converts them to Python values."""

PEERS: dict[str, Callable[[bs.Table], tuple[list[Any], bs.Table]]] = {
    "pyarrow": in_pyarrow,
    "polars": in_polars,
    "duckdb": in_duckdb,
    "pandas": in_pandas,
    "nanoarrow": in_nanoarrow,
}

REJECTED: dict[tuple[str, str], str] = {
    ("pyarrow", "month_interval"): "21",
    ("pyarrow", "day_time_interval"): "22",
    ("polars", "decimal256"): "Int256",
    ("polars", "month_interval"): "Interval",
    ("polars", "day_time_interval"): "DaysMs",
    ("polars", "month_day_nano_interval"): "month_day_nano_interval",
    ("polars", "list_view"): r'"\+vl" is still not supported',
    ("polars", "large_list_view"): r'"\+vL" is still not supported',
    ("polars", "sparse_union"): "Union",
    ("polars", "dense_union"): "Union",
    ("polars", "run_end_encoded"): r'"\+r" is still not supported',
    ("duckdb", "float16"): "Unsupported Internal Arrow Type e",
    ("duckdb", "decimal256"): "Unsupported Internal Arrow Type for Decimal",
    ("duckdb", "dense_union"): "Unsupported Internal Arrow Type",
    ("pandas", "month_interval"): "No known equivalent Pandas block",
    ("pandas", "day_time_interval"): "No known equivalent Pandas block",
    ("pandas", "sparse_union"): "No known equivalent Pandas block",
    ("pandas", "dense_union"): "No known equivalent Pandas block",
}
"""The layouts that a library rejects, with a pattern of its error message."""

CRASHES = {
    **dict.fromkeys(
        [("polars", "decimal32"), ("polars", "decimal64")], "import polars as p; bs.table(p.DataFrame(table))"
    ),
    **dict.fromkeys(
        [("nanoarrow", "binary_view"), ("nanoarrow", "string_view")],
        "import nanoarrow as p; import pyarrow as pa; pa.array(p.c_array(pa.table(table)['a'].chunk(0)))",
    ),
}
"""The layouts that Polars 2.1 and nanoarrow 0.9 import, but whose export crashes the process, each with code that
reproduces the crash (for nanoarrow without Bowstring).
"""

MISINTERPRETED = {
    ("duckdb", "day_time_interval"): "duckdb 2.0 reads days and milliseconds as one number of milliseconds",
}
"""The layouts that a library misinterprets, with the reason."""

NONDETERMINISTIC = {("pandas", "list_view"), ("pandas", "large_list_view")}
"""Pyarrow 26 sometimes converts an empty list in a list view with an offset to None for pandas."""


def as_datetimes(values: list[Any]) -> list[Any]:
    return [None if v is None else dt.datetime(v.year, v.month, v.day) for v in values]


def as_intervals(values: list[Any]) -> list[Any]:
    return [None if v is None else (0, 0, round(v / dt.timedelta(microseconds=1)) * 1000) for v in values]


def as_months(values: list[Any]) -> list[Any]:
    return [None if v is None else (v, 0, 0) for v in values]


def as_dicts(values: list[Any]) -> list[Any]:
    return [None if v is None else dict(v) for v in values]


def as_days(values: list[Any]) -> list[Any]:
    parts = [v if v is None or isinstance(v, tuple) else (v, 0, 0) for v in values]
    return [None if p is None else dt.timedelta(p[0] * 30 + p[1], microseconds=p[2] / 1000) for p in parts]


def as_tuples(values: list[Any]) -> list[Any]:
    return [None if v is None else tuple(v) for v in values]


PYTHON_CONVERSIONS: dict[tuple[str, str], Callable[[list[Any]], list[Any]]] = {
    ("polars", "date64"): as_datetimes,
    ("polars", "map"): as_dicts,
    ("duckdb", "map"): as_dicts,
    ("duckdb", "fixed_size_list"): as_tuples,
    ("duckdb", "month_interval"): as_days,
    ("duckdb", "month_day_nano_interval"): as_days,
    ("pandas", "month_day_nano_interval"): list,
}
"""Conversions from our Python values to those of a library, where they differ."""

EXPORT_CONVERSIONS: dict[tuple[str, str], Callable[[list[Any]], list[Any]]] = {
    ("polars", "date64"): as_datetimes,
    ("duckdb", "month_interval"): as_months,
    **{("duckdb", f"duration_{unit}"): as_intervals for unit in ("s", "ms", "us", "ns")},
}
"""Conversions from our Python values to those of the type that a library exports, where it differs."""


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("peer", PEERS)
def test_a_table_survives_a_round_trip_through_every_library(
    peer: str, name: str, cut: str, request: pytest.FixtureRequest
) -> None:
    key = peer, name
    table = table_of(name, cut)
    if key in CRASHES:
        pytest.skip("this library crashes on export; test_the_listed_crashes_of_other_libraries_still_happen checks it")
    if key in REJECTED:
        if cut == "whole":
            with pytest.raises(BaseException, match=REJECTED[key]):
                PEERS[peer](table)
        return
    if key in NONDETERMINISTIC and cut in ("sliced", "in two batches"):
        pytest.skip("pyarrow converts empty lists of sliced list views inconsistently")
    if key in MISINTERPRETED and cut != "empty":
        request.applymarker(pytest.mark.xfail(reason=MISINTERPRETED[key], strict=True))
    values, back = PEERS[peer](table)
    expected = table["a"].to_pylist()
    assert to_python(list(values)) == to_python(PYTHON_CONVERSIONS.get(key, list)(expected))
    back.validate(full=True)
    assert to_python(back["a"].to_pylist()) == to_python(EXPORT_CONVERSIONS.get(key, list)(expected))


@pytest.mark.parametrize("peer", ["pyarrow", "nanoarrow"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_types_survive_a_round_trip_through_pyarrow(peer: str, name: str) -> None:
    if (peer, name) in CRASHES:
        pytest.skip("this library crashes on export; test_the_listed_crashes_of_other_libraries_still_happen checks it")
    if (peer, name) in REJECTED:
        pa_table: Any = pa.table(table_of(name, "whole"))
        assert bs.table(pa_table) == table_of(name, "whole")
        return
    assert PEERS[peer](table_of(name, "whole"))[1].schema.types == [LAYOUTS[name].type]


@pytest.mark.thorough
@pytest.mark.parametrize(("peer", "name"), CRASHES)
def test_the_listed_crashes_of_other_libraries_still_happen(peer: str, name: str) -> None:
    program = f"import bowstring as bs; from tests.interop.layouts import table_of; table = table_of('{name}', 'whole')"
    process = subprocess.run([sys.executable, "-c", f"{program}; import {peer} as p"], check=False, timeout=120)
    assert process.returncode == 0
    program += f"; {CRASHES[peer, name]}"
    crashed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=120)
    assert crashed.returncode != 0


def test_every_library_imports_a_table_of_all_types_that_it_supports() -> None:
    names = {"string", "int64", "float64", "bool", "date32", "timestamp_us", "list", "struct", "binary", "dictionary"}
    columns = {name: LAYOUTS[name].slice(0, 3) for name in sorted(names)}
    everything = bs.table(columns)
    assert bs.table(pa.table(everything)) == everything
    assert bs.table(pl.DataFrame(everything)).to_pydict() == everything.to_pydict()
    with duckdb.connect() as connection:
        assert bs.table(connection.sql("select * from everything")).to_pydict() == everything.to_pydict()
    assert bs.table(everything.to_pandas()).schema.names == everything.schema.names
    stream = nanoarrow.ArrayStream(everything)
    assert bs.table(stream) == everything
