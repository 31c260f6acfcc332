"""Properties of arrays of random nested types and of the vectorised functions below them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8_decoding
from bowstring.layouts.gather import copy_ranges, gather_bytes, range_indices
from bowstring_testing import strategies
from tests.layouts.decoding import is_decodable


def is_identical(left: Any, right: Any) -> bool:
    """Return whether Python values are equal, with NaN equal to itself and -0.0 different from 0.0."""
    return repr(left) == repr(right)


def index_lists(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length - 1), max_size=12) if length else st.just([])


@settings(max_examples=60)
@given(data=st.data(), array=strategies.arrays())
def test_slices_copies_and_concatenations_have_the_values_of_their_slots(data: st.DataObject, array: bs.Array) -> None:
    array.validate(full=True)
    values = array.to_pylist()
    assert len(values) == array.length
    start = data.draw(st.integers(0, array.length))
    count = data.draw(st.integers(0, array.length))
    part = array.slice(start, count)
    expected_values = values[start : start + count]
    assert is_identical(part.to_pylist(), expected_values)
    assert [part.is_valid(i) for i in range(part.length)].count(False) == (
        part.null_count if part.layout.has_validity else 0
    )
    chosen = data.draw(index_lists(part.length))
    results = {
        "compact": (part.compact(), expected_values),
        "twice rebased": (part.compact().compact(), expected_values),
        "taken": (part.take(chosen), [expected_values[i] for i in chosen]),
        "joined": (bs.concat_arrays([part, array, part]), expected_values + values + expected_values),
        "sliced in two": (bs.concat_arrays([array.slice(0, start), array.slice(start)]), values),
    }
    for name, (actual, expected) in results.items():
        actual.validate(full=True)
        assert actual.type == array.type
        assert is_identical(actual.to_pylist(), expected), name
    assert part.compact().equals(part, nans_equal=True)
    assert results["sliced in two"][0].equals(array, nans_equal=True)
    assert [part[i] is None for i in range(part.length)] == [value is None for value in expected_values]
    assert repr(part)
    assert part.nbytes <= sum(b.size for b in _buffers(part))


def _buffers(array: bs.Array) -> list[bs.memory.Buffer]:
    inside = [_buffers(part) for part in (*array.children, array.dictionary) if part is not None]
    # 64 bytes for a buffer that a compacted array may have in place of an absent or empty one
    return [b for b in array.own_buffers if b is not None] + list(chain(*inside)) + [bs.memory.Buffer.of(bytes(64))]


@settings(max_examples=80)
@given(data=st.data(), type_=strategies.types())
def test_arrays_are_equal_if_and_only_if_their_values_are(data: st.DataObject, type_: bs.DataType) -> None:
    left = data.draw(strategies.arrays(type_, max_size=3))
    right = data.draw(strategies.arrays(type_, max_size=3))
    assert left.equals(left.compact(), nans_equal=True)
    is_equal = left.equals(right, nans_equal=True)
    assert is_equal == right.equals(left, nans_equal=True)
    if is_identical(left.to_pylist(), right.to_pylist()) and "union" not in str(type_):
        assert is_equal
    if is_equal:
        assert is_identical(_without_zero_signs(left.to_pylist()), _without_zero_signs(right.to_pylist()))


def _without_zero_signs(value: Any) -> Any:
    """Return the value without signs of zeros."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [_without_zero_signs(item) for item in value]
    if type(value) is tuple:
        return tuple(map(_without_zero_signs, value))
    return {key: _without_zero_signs(item) for key, item in value.items()} if isinstance(value, dict) else value


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 14)), max_size=30)


def range_arrays(pairs: list[tuple[int, int]]) -> list[npt.NDArray[np.int64]]:
    return list(np.array(pairs, np.int64).reshape(-1, 2).T)


@given(pairs=RANGES)
def test_concatenated_ranges_equal_python_ranges(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = range_arrays(pairs)
    assert range_indices(starts, lengths).tolist() == [i for s, n in pairs for i in range(s, s + n)]


@given(
    pairs=RANGES, block=st.sampled_from([1, 7, 1 << 16]), long=st.sampled_from([3, 512]), few=st.sampled_from([0, 2])
)
def test_gather_copies_every_range(pairs: list[tuple[int, int]], block: int, long: int, few: int) -> None:
    data = np.arange(64, dtype=np.uint8)
    starts, lengths = range_arrays(pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bowstring.layouts.gather._BLOCK_RANGES", block)
        patch.setattr("bowstring.layouts.gather._LONG_BYTES", long)
        patch.setattr("bowstring.layouts.gather._FEW_RANGES", few)
        assert gather_bytes(data, starts, lengths).tobytes() == b"".join(data[s : s + n].tobytes() for s, n in pairs)
        out, expected = np.zeros(800, np.uint8), np.zeros(800, np.uint8)
        targets = np.arange(len(starts)) * 20
        copy_ranges(out, targets, data, starts, lengths)
    for at, (start, length) in enumerate(pairs):
        expected[at * 20 : at * 20 + length] = data[start : start + length]
    assert out.tobytes() == expected.tobytes()


TEXTS = st.lists(
    st.sampled_from(["a", "é", "€", "😀", "\0"]).map(str.encode)
    | st.binary(min_size=1, max_size=3)
    | st.sampled_from([b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]),
    max_size=8,
).map(b"".join)


def index_in_error_of(attempt: Callable[[], object]) -> int | None:
    """Return the index in the error message, or None without an error."""
    try:
        attempt()
    except InvalidDataError as error:
        return int(str(error).split("[")[1].split("]")[0])
    return None


@settings(max_examples=150)
@given(data=TEXTS, cuts=st.data(), block=st.sampled_from([8, 16, 1 << 18]))
def test_overlapping_text_is_validated_like_each_value(data: bytes, cuts: st.DataObject, block: int) -> None:
    ends = st.integers(0, len(data))
    pairs = [(min(pair), max(pair)) for pair in cuts.draw(st.lists(st.tuples(ends, ends), max_size=5))]
    starts, stops = range_arrays(pairs)
    wrong: list[int | None] = [i for i, (start, stop) in enumerate(pairs) if not is_decodable(data[start:stop])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utf8_decoding, "_BLOCK_BYTES", block)
        index = index_in_error_of(
            lambda: utf8_decoding.check_utf8_ranges(np.frombuffer(data, np.uint8), starts, stops, np.arange(len(pairs)))
        )
    assert index in (wrong or [None])


@settings(max_examples=150)
@given(data=TEXTS, cuts=st.data(), block=st.sampled_from([1, 2, 1 << 18]))
def test_text_with_nulls_is_validated_like_each_value(data: bytes, cuts: st.DataObject, block: int) -> None:
    inner = sorted(cuts.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    offsets = np.array([0, *inner, len(data)], np.int64)
    valid = cuts.draw(st.lists(st.booleans(), min_size=len(offsets) - 1, max_size=len(offsets) - 1))
    values = [data[start:stop] for start, stop in zip(offsets.tolist(), offsets.tolist()[1:], strict=False)]
    wrong: list[int | None] = [
        i for i, (value, keep) in enumerate(zip(values, valid, strict=True)) if keep and not is_decodable(value)
    ]
    array = bs.Array.from_buffers(
        bs.large_string(), len(values), [np.packbits(valid, bitorder="little"), offsets, data]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utf8_decoding, "_BLOCK_VALUES", block)
        assert index_in_error_of(lambda: array.validate(full=True)) in (wrong or [None])
        assert index_in_error_of(array.to_pylist) in (wrong or [None])
    if not wrong:
        assert array.to_pylist() == [v.decode() if keep else None for v, keep in zip(values, valid, strict=True)]
