"""Every layout and every peer: they take our tables and show their values, and we take theirs back.

What a peer refuses is declared below with its own words, so that the day it no longer does is noticed.
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


def plain(value: Any) -> Any:
    """A peer's value in the words of ours, as far as both say the same."""
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value.to_pytimedelta()
    if isinstance(value, pd.DateOffset):
        words = value.kwds
        return words.get("months", 0), words.get("days", 0), words.get("nanoseconds", 0)
    if isinstance(value, bs.Array | np.ndarray):
        return [plain(item) for item in value.tolist()] if isinstance(value, np.ndarray) else value.to_pylist()
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def in_pyarrow(table: bs.Table) -> tuple[list[Any], bs.Table]:
    theirs = pa.table(table)
    theirs.validate(full=True)
    return theirs["a"].to_pylist(), bs.table(theirs)


def in_polars(table: bs.Table) -> tuple[list[Any], bs.Table]:
    theirs = pl.DataFrame(table)
    return theirs["a"].to_list(), bs.table(theirs)


def in_duckdb(table: bs.Table) -> tuple[list[Any], bs.Table]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'Europe/Paris'")
        connection.register("ours", table)
        values = [row[0] for row in connection.sql("select a from ours").fetchall()]
        return values, bs.table(connection.sql("select a from ours"))


def in_pandas(table: bs.Table) -> tuple[list[Any], bs.Table]:
    theirs = pd.DataFrame.from_arrow(table)  # type: ignore[attr-defined]
    type_ = table.schema.types[0]
    wanted = None if type_ in RESTATED else bs.schema([("a", FLOATED.get(type_, type_))])
    return theirs["a"].tolist(), bs.Table.from_pandas(theirs, wanted)


RESTATED = [
    LAYOUTS[name].type
    for name in LAYOUTS
    if "list" in name or name == "struct"  # their values say themselves of which type they are
]
FLOATED: dict[bs.DataType, bs.DataType] = {LAYOUTS["map"].type: bs.map_(bs.string(), bs.float64())}
"""Integers beside nulls are floats in what pyarrow makes for pandas."""


def in_nanoarrow(table: bs.Table) -> tuple[list[Any], bs.Table]:
    column = table["a"]
    type_ = str(column.type)
    is_shown = type_ not in NOT_SHOWN and not (type_ in SHOWN_FROM_0 and any(chunk.offset for chunk in column.chunks))
    back = bs.ChunkedArray([bs.array(nanoarrow.c_array(chunk)) for chunk in column.chunks], column.type)
    values = nanoarrow.Array(column).to_pylist() if is_shown else back.to_pylist()
    return values, bs.Table.from_arrays([back], ["a"])


def types_of(*names: str) -> set[str]:
    return {str(LAYOUTS[name].type) for name in names}


NOT_SHOWN = types_of(
    "map", "run_end_encoded", "sparse_union", "dense_union", "list_view", "large_list_view"
) | types_of("decimal32", "decimal64", "decimal128", "decimal256")
"""Nanoarrow 0.9 has no Python values for these; to decimals it gives the wrong sign. Their memory comes and goes."""
SHOWN_FROM_0 = types_of("float16", "day_time_interval", "month_day_nano_interval", "fixed_size_binary")
"""Nanoarrow 0.9 shows the first values of the buffer, where an array of these begins at an offset."""

PEERS: dict[str, Callable[[bs.Table], tuple[list[Any], bs.Table]]] = {
    "pyarrow": in_pyarrow,
    "polars": in_polars,
    "duckdb": in_duckdb,
    "pandas": in_pandas,
    "nanoarrow": in_nanoarrow,
}

REFUSED: dict[tuple[str, str], str] = {
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
"""What a peer does not take or show, and its words for it."""

ABORTS = {
    **dict.fromkeys(
        [("polars", "decimal32"), ("polars", "decimal64")], "import polars as p; bs.table(p.DataFrame(table))"
    ),
    **dict.fromkeys(
        [("nanoarrow", "binary_view"), ("nanoarrow", "string_view")],
        "import nanoarrow as p; import pyarrow as pa; pa.array(p.c_array(pa.table(table)['a'].chunk(0)))",
    ),
}
"""What polars 2.1 and nanoarrow 0.9 take, but end the process when they have to hand it out again, and how to see it
(the latter without us).
"""

WRONG = {
    ("duckdb", "day_time_interval"): "duckdb 2.0 reads the two halves of a value as one number of milliseconds",
}
"""What a peer takes for something else."""

UNSTEADY = {("pandas", "list_view"), ("pandas", "large_list_view")}
"""What pyarrow 26 makes for pandas of list views with an offset is now right, now wrong: None for an empty list."""


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


SHOWN: dict[tuple[str, str], Callable[[list[Any]], list[Any]]] = {
    ("polars", "date64"): as_datetimes,
    ("polars", "map"): as_dicts,
    ("duckdb", "map"): as_dicts,
    ("duckdb", "fixed_size_list"): as_tuples,
    ("duckdb", "month_interval"): as_days,
    ("duckdb", "month_day_nano_interval"): as_days,
    ("pandas", "month_day_nano_interval"): list,
}
"""How a peer shows values that it has another word for."""

RETURNED: dict[tuple[str, str], Callable[[list[Any]], list[Any]]] = {
    ("polars", "date64"): as_datetimes,
    ("duckdb", "month_interval"): as_months,
    **{("duckdb", f"duration_{unit}"): as_intervals for unit in ("s", "ms", "us", "ns")},
}
"""What comes back from a peer that keeps values as another type."""


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_takes_our_table_and_we_take_it_back(
    peer: str, name: str, cut: str, request: pytest.FixtureRequest
) -> None:
    key = peer, name
    table = table_of(name, cut)
    if key in ABORTS:
        pytest.skip("the process would end: see the test of that")
    if key in REFUSED:
        if cut == "whole":
            with pytest.raises(BaseException, match=REFUSED[key]):
                PEERS[peer](table)
        return
    if key in UNSTEADY and cut in ("sliced", "in two batches"):
        pytest.skip("pyarrow's lists are now right, now wrong")
    if key in WRONG and cut != "empty":
        request.applymarker(pytest.mark.xfail(reason=WRONG[key], strict=True))
    shown, back = PEERS[peer](table)
    expected = table["a"].to_pylist()
    assert plain(list(shown)) == plain(SHOWN.get(key, list)(expected))
    back.validate(full=True)
    assert plain(back["a"].to_pylist()) == plain(RETURNED.get(key, list)(expected))


@pytest.mark.parametrize("peer", ["pyarrow", "nanoarrow"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_type_comes_back_as_it_went(peer: str, name: str) -> None:
    if (peer, name) in ABORTS:
        pytest.skip("the process would end: see the test of that")
    if (peer, name) in REFUSED:
        theirs: Any = pa.table(table_of(name, "whole"))
        assert bs.table(theirs) == table_of(name, "whole")
        return
    assert PEERS[peer](table_of(name, "whole"))[1].schema.types == [LAYOUTS[name].type]


@pytest.mark.parametrize(("peer", "name"), ABORTS)
def test_a_peer_still_ends_the_process_where_we_say_so(peer: str, name: str) -> None:
    program = f"import bowstring as bs; from tests.interop.layouts import table_of; table = table_of('{name}', 'whole')"
    taken = subprocess.run([sys.executable, "-c", f"{program}; import {peer} as p"], check=False, timeout=120)
    assert taken.returncode == 0
    program += f"; {ABORTS[peer, name]}"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=120)
    assert ended.returncode != 0


def test_every_peer_takes_a_table_of_everything_that_it_knows() -> None:
    known = {"string", "int64", "float64", "bool", "date32", "timestamp_us", "list", "struct", "binary", "dictionary"}
    columns = {name: LAYOUTS[name].slice(0, 3) for name in sorted(known)}
    everything = bs.table(columns)
    assert bs.table(pa.table(everything)) == everything
    assert bs.table(pl.DataFrame(everything)).to_pydict() == everything.to_pydict()
    with duckdb.connect() as connection:
        assert bs.table(connection.sql("select * from everything")).to_pydict() == everything.to_pydict()
    assert bs.table(everything.to_pandas()).schema.names == everything.schema.names
    stream = nanoarrow.ArrayStream(everything)
    assert bs.table(stream) == everything
