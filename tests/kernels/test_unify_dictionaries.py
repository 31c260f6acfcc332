"""Arrays with different dictionaries are concatenated with one unified dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.kernels.unify_dictionaries import concat_and_unify
from bowstring.layouts.validation import validate

DICTIONARY_TYPE = bs.dictionary(bs.int8(), bs.string())
WORDS = st.lists(st.none() | st.sampled_from(["a", "b", "", "ä", "longer"]), max_size=6)


@pytest.mark.parametrize("nest", [lambda kind: kind, bs.list_, lambda kind: bs.dictionary(bs.int8(), bs.list_(kind))])
@given(pieces=st.lists(st.tuples(WORDS, st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=5), data=st.data())
def test_the_unified_dictionary_has_each_value_once(
    nest: Any, pieces: list[tuple[list[str | None], int, int]], data: st.DataObject
) -> None:
    times, is_nested = data.draw(st.sampled_from([1, 20])), nest(DICTIONARY_TYPE) != DICTIONARY_TYPE
    arrays: list[bs.Array] = []
    expected: list[Any] = []
    for words, offset, length in pieces:
        values = [words, None, words[::-1]] if is_nested else words
        arrays.append(bs.array(values, nest(DICTIONARY_TYPE)).slice(offset, length))
        expected += values[offset : offset + length]
    unified = concat_and_unify(arrays * times)
    validate(unified, full=True)
    assert unified.to_pylist() == expected * times
    if not is_nested:
        words = unified.require_dictionary().to_pylist()
        assert len(set(words)) == len(words)


def test_a_shared_dictionary_is_not_copied() -> None:
    whole = bs.array(["a", None, "b", "a"], DICTIONARY_TYPE)
    unified = concat_and_unify([whole.slice(2), whole.slice(0, 2)])
    assert unified.dictionary is whole.dictionary
    assert unified.to_pylist() == ["b", "a", "a", None]


@pytest.mark.parametrize("count", [2, 100])
def test_an_index_out_of_range_raises_an_error(count: int) -> None:
    good = bs.array(["a", "b"], DICTIONARY_TYPE)
    for keys, valid in (([0, 2], None), ([-1, 0], None), ([0, 2], b"\x02")):
        bad = bs.Array.from_buffers(DICTIONARY_TYPE, 2, [valid, np.array(keys, np.int8)], dictionary=good.dictionary)
        with pytest.raises(InvalidDataError, match="is not within the dictionary of 2 values"):
            concat_and_unify([good] * count + [bad])
    under_null = bs.Array.from_buffers(
        DICTIONARY_TYPE, 2, [b"\x01", np.array([1, 9], np.int8)], dictionary=good.dictionary
    )
    assert concat_and_unify([good] * count + [under_null]).to_pylist() == ["a", "b"] * count + ["b", None]


@pytest.mark.parametrize("count", [2, 100])
def test_a_missing_dictionary_raises_an_error(count: int) -> None:
    good = bs.array(["a"], DICTIONARY_TYPE)
    bare = good.slice(0, 1).take([0])
    bare.dictionary = None
    with pytest.raises(InvalidDataError, match="no dictionary"):
        concat_and_unify([good] * count + [bare])


def test_too_many_values_for_the_index_type_raise_an_error() -> None:
    arrays = [bs.array([f"{part}-{number}" for number in range(100)], DICTIONARY_TYPE) for part in range(2)]
    with pytest.raises(TypeMismatchError, match="a dictionary of 200 values is too large for the indices of"):
        concat_and_unify(arrays)
