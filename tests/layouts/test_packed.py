"""Arrays that are packed are what they were, one by one and joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.compute.unify_dictionaries import concat_unified
from bowstring.errors import InvalidDataError
from bowstring.layouts.array_batcher import MIN_ARRAYS, ArrayBatcher, append_arrays, batch_arrays
from bowstring.layouts.registry import layout_of

_TYPES: dict[str, tuple[bs.DataType, st.SearchStrategy[Any]]] = {
    "int32": (bs.int32(), st.integers(-5, 5)),
    "bool": (bs.bool_(), st.booleans()),
    "string": (bs.string(), st.text(max_size=3)),
    "list": (bs.list_(bs.string()), st.lists(st.none() | st.text(max_size=2), max_size=3)),
    "struct": (bs.struct([bs.field("a", bs.int8())]), st.fixed_dictionaries({"a": st.none() | st.integers(0, 3)})),
    "dictionary": (bs.dictionary(bs.int8(), bs.string()), st.sampled_from("abc")),
    "fixed": (bs.list_(bs.int8(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
    "null": (bs.null(), st.none()),
    "uuid": (bs.uuid(), st.uuids()),
}


@pytest.mark.parametrize("name", _TYPES)
@given(data=st.data())
def test_packed_arrays_are_what_they_were(name: str, data: st.DataObject) -> None:
    type_, values = _TYPES[name]
    rows = data.draw(st.lists(st.lists(st.none() | values, max_size=9), min_size=1, max_size=6)) * 12
    arrays = [bs.array(some, type_) for some in rows]
    columns = [ArrayBatcher(layout_of(type_))]
    half = len(arrays) // 2
    assert append_arrays(columns, arrays[:half]) is not None
    assert append_arrays(columns, arrays[half:]) is not None
    assert [array.to_pylist() for array in columns[0]] == rows
    assert columns[0][-1].to_pylist() == rows[-1]
    joined = bs.concat_arrays(arrays)
    joined.validate(full=True)
    assert joined.to_pylist() == [value for some in rows for value in some]
    assert concat_unified(columns[0]).equals(joined)


def test_how_many_bytes_were_packed_is_told_and_a_dictionary_counts_once() -> None:
    words = bs.dictionary(bs.int32(), bs.string())
    one = bs.array(["abc"], words)
    columns = [ArrayBatcher(layout_of(words))]
    assert append_arrays(columns, [one, one]) == 2 * 4 + 2 * 4 + 3
    assert append_arrays(columns, [one]) == 4
    assert columns[0].dictionary_indices == [0, 0, 0]


@pytest.mark.parametrize(
    "odd",
    [
        bs.array([1, 2, 3]).slice(1),
        bs.Array.from_buffers(bs.int64(), 1, [None, bs.Buffer.of(bytes(16)).slice(8)]),
    ],
    ids=["a slice", "a stretch"],
)
def test_what_is_no_whole_is_not_packed_and_nothing_is_taken(odd: bs.Array) -> None:
    columns = [ArrayBatcher(layout_of(bs.int64())), ArrayBatcher(layout_of(bs.int64()))]
    good = bs.array([1])
    assert append_arrays(columns, [good, good, good, odd]) is None
    assert [len(column) for column in columns] == [0, 0]
    arrays = [good] * MIN_ARRAYS + [odd]
    assert batch_arrays(arrays) is arrays
    assert bs.concat_arrays(arrays).to_pylist() == [1] * MIN_ARRAYS + odd.to_pylist()


@pytest.mark.parametrize("buffers", [(None,), (None, bs.Buffer.of(bytes(8)), bs.Buffer.of(bytes(8)))])
def test_arrays_without_the_declared_buffers_are_not_packed(buffers: tuple[Any, ...]) -> None:
    odd = bs.array([1]).slice(0)
    odd.buffers = buffers
    assert append_arrays([ArrayBatcher(layout_of(bs.int64()))], [bs.array([1]), odd]) is None


def test_views_with_any_number_of_buffers_are_joined_all_the_same() -> None:
    arrays = [bs.array([letter * 20, letter], bs.string_view()) for letter in "abc"] * MIN_ARRAYS
    assert isinstance(batch_arrays(arrays), list)
    assert bs.concat_arrays(arrays).to_pylist() == ["a" * 20, "a", "b" * 20, "b", "c" * 20, "c"] * MIN_ARRAYS


def test_a_bitmap_that_is_too_short_is_refused() -> None:
    arrays = [bs.array([1, None] * 8) for _ in range(MIN_ARRAYS)]
    bad = arrays[-1].slice(0)
    bad = bs.Array(bad.layout, bad.length, (bs.Buffer.of(b"\x01"), bad.buffers[1]))
    with pytest.raises(InvalidDataError, match="bitmap of 1 bytes"):
        bs.concat_arrays([*arrays, bad])


def test_buffers_longer_than_their_slots_are_cut() -> None:
    padded = [
        bs.Array.from_buffers(bs.int16(), 1, [None, bs.Buffer.of(bytes([at, 0, 9, 9]))]) for at in range(MIN_ARRAYS)
    ]
    assert bs.concat_arrays(padded).to_pylist() == list(range(MIN_ARRAYS))
    strings = bs.Array.from_buffers(bs.string(), 1, [None, np.array([1, 3], np.int32), b"xabx"])
    assert bs.concat_arrays([strings] * MIN_ARRAYS).to_pylist() == ["ab"] * MIN_ARRAYS
