"""Valid arrays that a library rejects or misinterprets unless they are exported in another form."""

from __future__ import annotations

from random import Random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from tests.cases import CASES, Case
from tests.layouts.random_arrays import random_array


def map_over_entries_at_an_offset() -> bs.Array:
    """[[("c", 3), ("d", 4)], [("e", 5)]], as a map over a child whose first two entries are skipped."""
    type_ = bs.map_(bs.string(), bs.int64())
    pairs = [bs.array(["a", "b", "c", "d", "e"]), bs.array([1, 2, 3, 4, 5])]
    entries = bs.Array.from_buffers(type_.entries_field.type, 3, [None], pairs, offset=2)
    return bs.Array.from_buffers(type_, 2, [None, np.array([0, 2, 3], np.int32)], [entries])


def test_a_map_whose_entries_have_an_offset_is_read_correctly() -> None:
    array = map_over_entries_at_an_offset()
    values = [[("c", 3), ("d", 4)], [("e", 5)]]
    assert array.to_pylist() == values
    assert pa.array(array).to_pylist() == values
    nested = bs.Array.from_buffers(bs.struct([("m", array.type)]), 2, [None], [array])
    assert pa.array(nested).to_pylist() == [{"m": value} for value in values]
    table = bs.table({"m": array})
    assert pl.DataFrame(table)["m"].to_list() == [dict(pairs) for pairs in values]
    with duckdb.connect() as connection:
        connection.register("ours", table)
        assert [row[0] for row in connection.sql("select m from ours").fetchall()] == [dict(pairs) for pairs in values]


@pytest.mark.parametrize("case", [c for c in CASES if "month_interval" not in str(c.type)], ids=str)
def test_pyarrow_accepts_an_empty_array_with_any_offset(case: Case) -> None:
    if "day_time" in str(case.type):
        pytest.skip("pyarrow does not support day_time_interval")
    for array in (case.array()[2:2], random_array(Random(7), case.type, 0)):
        peer = pa.array(array)
        peer.validate(full=True)
        assert peer.to_pylist() == []
        assert bs.array(peer).equals(array)
