"""Types that only one library has, imported with their values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest

import bowstring as bs
from bowstring.errors import UnsupportedError

WORDS = "dictionary<values=string_view, indices={}, ordered={}>"
POLARS: list[tuple[pl.Series, str, list[Any]]] = [
    (pl.Series([1, 2, None], dtype=pl.UInt8), "uint8", [1, 2, None]),
    (pl.Series([1.5, None], dtype=pl.Float32), "float", [1.5, None]),
    (pl.Series([None, None]), "null", [None, None]),
    (pl.Series(["x", None], dtype=pl.Enum(["x", "y"])), WORDS.format("uint8", 1), ["x", None]),
    (pl.Series(["x", None], dtype=pl.Categorical), WORDS.format("uint32", 0), ["x", None]),
    (pl.Series([dt.time(1, 2), None]), "time64[ns]", [dt.time(1, 2), None]),
    (pl.Series([dt.timedelta(1), None]), "duration[us]", [dt.timedelta(1), None]),
    (pl.Series([dt.date(2020, 1, 1), None]), "date32[day]", [dt.date(2020, 1, 1), None]),
    (pl.Series([dt.datetime(2020, 1, 1)], dtype=pl.Datetime("ms")), "timestamp[ms]", [dt.datetime(2020, 1, 1)]),
    (pl.Series([[1, 2], None], dtype=pl.Array(pl.Int8, 2)), "fixed_size_list<item: int8>[2]", [[1, 2], None]),
    (pl.Series([[["a"]], None]), "large_list<item: large_list<item: string_view>>", [[["a"]], None]),
    (pl.Series([b"a", None]), "binary_view", [b"a", None]),
    (pl.Series([{"a": 1}, None]), "struct<a: int64>", [{"a": 1}, None]),
    (pl.Series(["1.5", None]).cast(pl.Decimal(10, 2)), "decimal128(10, 2)", [Decimal("1.50"), None]),
]  # fmt: skip
DUCKDB: list[tuple[str, str, Any]] = [
    ("1::tinyint", "int8", 1),
    ("1::hugeint", "decimal128(38, 0)", Decimal(1)),
    ("1.5::decimal(30,2)", "decimal128(30, 2)", Decimal("1.50")),
    ("'a'::blob", "binary", b"a"),
    ("'00000000-0000-0000-0000-000000000001'::uuid", "string", "00000000-0000-0000-0000-000000000001"),
    ("interval 1 month", "month_day_nano_interval", (1, 0, 0)),
    ("time '01:02:03'", "time64[us]", dt.time(1, 2, 3)),
    ("timestamptz '2020-01-01'", "timestamp[us, tz=UTC]", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    ("timestamp_ns '2020-01-01'", "timestamp[ns]", dt.datetime(2020, 1, 1)),
    ("date '2020-01-01'", "date32[day]", dt.date(2020, 1, 1)),
    ("[1, null]", "list<l: int32>", [1, None]),
    ("array_value(1, 2)", "fixed_size_list<: int32>[2]", [1, 2]),
    ("{'a': 1}", "struct<a: int32>", {"a": 1}),
    ("map {'a': 1}", "map<string, int32>", [("a", 1)]),
    ("'x'::enum('x', 'y')", "dictionary<values=string, indices=uint8, ordered=0>", "x"),
    ("union_value(k := 1)", "sparse_union<k: int32=0>", 1),
    ("null", "null", None),
]


@pytest.mark.parametrize(("series", "type_", "values"), POLARS, ids=[name for _, name, _ in POLARS])
def test_polars_types_are_imported(series: pl.Series, type_: str, values: list[Any]) -> None:
    array = bs.array(series)
    array.validate(full=True)
    assert str(array.type) == type_
    assert array.to_pylist() == values
    assert bs.table(series.to_frame("a"))["a"].to_pylist() == values


@pytest.mark.parametrize(("query", "type_", "value"), DUCKDB, ids=[query for query, _, _ in DUCKDB])
def test_duckdb_types_are_imported(query: str, type_: str, value: Any) -> None:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        table = bs.table(connection.sql(f"select {query} as a"))
    table.validate(full=True)
    assert str(table.schema.types[0]) == type_
    assert table["a"].to_pylist() == [value]


def test_duckdb_varints_are_imported_as_opaque_bytes() -> None:
    with duckdb.connect() as connection:
        table = bs.table(connection.sql("select 1::varint as a"))
    assert table.schema.types[0] == bs.datatypes.opaque(bs.binary(), "bignum", "DuckDB")


def test_an_unknown_format_is_rejected_by_name() -> None:
    with pytest.raises(UnsupportedError, match="_pli128"):
        bs.array(pl.Series([1], dtype=pl.Int128))
