"""Groups, joins and filters by expressions, which pyarrow evaluates on the batches of tables."""

from __future__ import annotations

import pytest

import bowstring as bs

pa = pytest.importorskip("pyarrow")

SALES = bs.concat_tables(
    [
        bs.table({"city": ["Riga", "Lima"], "amount": [5, 7]}, metadata={"key": "value"}),
        bs.table({"city": ["Riga", None], "amount": [1, None]}, metadata={"key": "value"}),
    ]
)
FIELD = bs.compute.field


def test_rows_are_grouped_by_the_values_of_columns() -> None:
    by_city = SALES.group_by("city", use_threads=False)
    assert by_city.aggregate([("amount", "sum"), ([], "count_all")]).to_pydict() == {
        "city": ["Riga", "Lima", None],
        "amount_sum": [6, 7, None],
        "count_all": [2, 1, 1],
    }
    options = bs.compute.CountOptions(mode="all")
    assert by_city.aggregate([("amount", "count", options)])["amount_count"].to_pylist() == [2, 1, 1]
    assert SALES.group_by(["city", "amount"]).aggregate([]).num_rows == 4


def test_tables_are_joined_by_keys() -> None:
    countries = bs.table({"name": ["Riga", "Oslo"], "country": ["LV", "NO"]})
    joined = SALES.join(countries, "city", "name", "inner")
    assert joined.sort_by("amount").to_pydict() == {
        "city": ["Riga"] * 2,
        "amount": [1, 5],
        "country": ["LV"] * 2,
    }
    outer = SALES.join(countries, ["city"], right_keys=["name"], use_threads=False)
    assert sorted(outer["country"].drop_null().to_pylist()) == ["LV", "LV"]
    assert SALES.join(pa.table(countries), "city", "name", "inner").num_rows == 2


def test_tables_are_joined_by_the_nearest_value() -> None:
    prices = bs.table({"at": [4, 6], "town": ["Riga", "Lima"], "price": [1, 2]})
    sales = bs.table({"time": [5, 7], "city": ["Riga", "Lima"]})
    joined = sales.join_asof(prices, "time", "city", -1, right_on="at", right_by="town")
    assert joined["price"].to_pylist() == [1, 2]


def test_rows_are_filtered_by_an_expression() -> None:
    big = SALES.filter((FIELD("amount") > 4) & FIELD("city").isin(["Riga", "Oslo"]))
    assert big.to_pydict() == {"city": ["Riga"], "amount": [5]}
    assert big.schema.metadata == {b"key": b"value"}
    assert SALES.filter(FIELD("amount").is_null()).num_rows == 1
    assert SALES.filter(FIELD("amount") > 100).num_rows == 0
    with pytest.raises(pa.ArrowInvalid, match="none"):
        SALES.filter(FIELD("none") > 1)


def test_the_rows_of_a_batch_are_filtered_by_an_expression() -> None:
    batch = bs.record_batch({"n": [1, 2, None]}).with_metadata({"part": "1"})
    filtered = batch.filter(FIELD("n") > 1)
    assert isinstance(filtered, bs.RecordBatch)
    assert filtered.to_pydict() == {"n": [2]}
    assert filtered.custom_metadata == batch.custom_metadata
