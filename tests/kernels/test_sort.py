"""Stable sorting of every layout in pyarrow's order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.layouts.sort_keys import ByteStrings, find_extreme_bytes, rank_bytes
from bowstring_testing import strategies
from tests.cases import CASES, FLAT, Case

ORDERED = [case for case in FLAT if "interval" not in str(case.type) or str(case.type) == "month_interval"]
ORDERS = pytest.mark.parametrize("order", ["ascending", "descending"])
PLACEMENTS = pytest.mark.parametrize("null_placement", ["at_start", "at_end"])


UNSORTED_BY_PYARROW = {
    "month_interval", "fixed_size_binary[0]", "halffloat", "decimal32(5, 2)", "decimal64(12, 2)", "binary_view",
    "string_view",
}  # fmt: skip


@ORDERS
@PLACEMENTS
@pytest.mark.parametrize("case", [c for c in ORDERED if str(c.type) not in UNSORTED_BY_PYARROW], ids=str)
def test_the_order_is_that_of_pyarrow(case: Case, order: Any, null_placement: Any) -> None:
    values = case.values * 2
    array = bs.array(values, case.type)
    peer = pa.array(array)
    expected = pc.array_sort_indices(peer, order=order, null_placement=null_placement).to_pylist()
    indices = array.sort_indices(order=order, null_placement=null_placement)
    assert indices.type == bs.uint64()
    assert indices.to_pylist() == expected


@ORDERS
@PLACEMENTS
def test_nan_is_placed_next_to_nulls(order: Any, null_placement: Any) -> None:
    values = [1.0, float("nan"), None, -1.0, float("nan"), 0.0, -0.0, None, float("inf")]
    expected = pc.array_sort_indices(pa.array(values), order=order, null_placement=null_placement).to_pylist()
    assert bs.array(values).sort_indices(order, null_placement).to_pylist() == expected


@settings(max_examples=80)
@given(data=st.data(), case=st.sampled_from(ORDERED))
def test_sorting_sorts_and_is_stable(data: st.DataObject, case: Case) -> None:
    array = data.draw(strategies.arrays(case.type, max_size=30))
    indices = array.sort_indices().to_pylist()
    assert sorted(indices) == list(range(len(array)))
    valid = [i for i in indices if array.is_valid(i)]
    assert indices[len(valid) :] == [i for i in range(len(array)) if not array.is_valid(i)]
    values = array.to_pylist()
    for i, j in pairwise(valid):
        if values[i] == values[i] and values[j] == values[j] and type(values[i]) is type(values[j]):
            assert not values[j] < values[i]
            assert values[i] != values[j] or i < j


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.binary(max_size=3).map(lambda tail: b"x" * 70 + tail)), max_size=40)
)
def test_byte_strings_are_ordered_like_in_python(strings: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, strings)])
    ranks = rank_bytes(np.frombuffer(b"".join(strings), np.uint8), offsets)
    assert ranks.tolist() == [sum(other < one for other in strings) for one in strings]


@pytest.mark.parametrize(
    "encoded", [bs.dictionary(bs.int8(), bs.string()), bs.run_end_encoded(bs.int16(), bs.string())]
)
def test_encoded_arrays_are_ordered_by_their_values(encoded: bs.DataType) -> None:
    values = ["b", "b", None, "a", "c", "a", None]
    array = bs.array(values, encoded)
    assert array.sort_indices().to_pylist() == [3, 5, 0, 1, 4, 2, 6]
    assert array[1:].sort("descending", "at_start").to_pylist() == [None, None, "c", "b", "a", "a"]


@pytest.mark.parametrize("case", [c for c in CASES if str(c.type).startswith(("list<", "struct", "day_time"))], ids=str)
def test_types_without_an_order_are_rejected(case: Case) -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match="have no order"):
        case.array().sort_indices()


@pytest.mark.parametrize(("order", "placement"), [("up", "at_end"), ("ascending", "top")])
def test_unknown_orders_are_rejected(order: Any, placement: Any) -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match=r"found '(up|top)'"):
        bs.array([1]).sort_indices(order, placement)


@ORDERS
@PLACEMENTS
def test_rows_are_sorted_by_several_columns(order: Any, null_placement: Any) -> None:
    rows = {"a": [2, 1, None, 2, 1, 2], "b": ["x", None, "y", "x", "z", "a"], "n": list(range(6))}
    keys = [("a", "ascending"), ("b", order)]
    peer_table = pa.table(rows)
    expected = peer_table.take(
        pc.sort_indices(peer_table, sort_keys=[(*key, null_placement) for key in keys])
    ).to_pydict()
    table = bs.table(rows)
    cut = bs.concat_tables([table.slice(0, 2), table.slice(2)])
    for data in (table, cut, table.to_batches()[0]):
        sorted_rows: Any = data.sort_by(keys, null_placement)
        assert sorted_rows.to_pydict() == expected
    assert cut.sort_by("b").to_pydict() == peer_table.sort_by("b").to_pydict()


def test_sorting_by_no_column_is_rejected() -> None:
    with pytest.raises(bs.errors.InvalidArgumentError, match="at least one column"):
        bs.table({"a": [1]}).sort_by([])
    with pytest.raises(bs.errors.NotFoundError, match="'z'"):
        bs.table({"a": [1]}).sort_by("z")


@pytest.mark.parametrize("low", [-(1 << 63), -70_000, 0, (1 << 63) - 70_000])
@pytest.mark.parametrize("span", [10, (1 << 16) - 1, 1 << 16])
def test_integers_of_a_narrow_range_are_ordered(low: int, span: int) -> None:
    values = np.random.default_rng(span).integers(low, low + span, 500, endpoint=True)
    values[7], values[9] = low + span, low
    assert bs.array(values).sort().to_pylist() == sorted(values.tolist())
    assert bs.array(values).dictionary_encode().to_pylist() == values.tolist()


SIMILAR_BYTES = st.lists(st.binary(max_size=3).flatmap(lambda end: st.integers(0, 80).map(lambda n: b"a" * n + end)))


def concat_bytes(values: list[bytes]) -> tuple[Any, Any]:
    """Return the bytes of the values end to end, and their offsets."""
    return np.frombuffer(b"".join(values), np.uint8), np.cumsum([0, *map(len, values)])


def as_byte_strings(values: list[bytes]) -> ByteStrings:
    """Return the bytes of the values end to end, and their starts and lengths."""
    data, offsets = concat_bytes(values)
    return data, offsets[:-1], np.diff(offsets)


@given(values=SIMILAR_BYTES.filter(len))
def test_the_smallest_and_the_greatest_byte_string_are_those_of_python(values: list[bytes]) -> None:
    least, greatest = find_extreme_bytes(*as_byte_strings(values))
    assert (values[least], values[greatest]) == (min(values), max(values))
