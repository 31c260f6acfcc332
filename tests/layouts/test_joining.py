"""Joining arrays that do not share what they point to: dictionaries, data buffers, children, runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bowstring as bs

WORDS = bs.dictionary(bs.int8(), bs.string())


def words(keys: list[int | None], dictionary: bs.Array, index_type: bs.DataType | None = None) -> bs.Array:
    indices = bs.array(keys, index_type or bs.int8())
    return bs.Array.from_buffers(WORDS, len(keys), indices.buffers, dictionary=dictionary)


def joined(*arrays: bs.Array) -> bs.Array:
    made = bs.concat_arrays(arrays)
    made.validate(full=True)
    return made


def distinct(count: int, first: int = 0) -> bs.Array:
    return bs.array([str(first + index) for index in range(count)])


def test_one_dictionary_stays_one() -> None:
    dictionary = bs.array(["a", "b"])
    made = joined(words([0, 1], dictionary), words([None, 0], dictionary), words([1], bs.array(["a", "b"])))
    assert made.dictionary is dictionary
    assert made.to_pylist() == ["a", "b", None, "a", "b"]


def test_different_dictionaries_are_put_end_to_end() -> None:
    first, second = bs.array(["a", "b"]), bs.array(["c", None])
    made = joined(words([0, 1], first), words([1, None, 0], second), words([1], first))
    assert made.to_pylist() == ["a", "b", None, None, "c", "b"]
    assert made.slice(3, 3).to_pylist() == [None, "c", "b"]


def test_a_joined_dictionary_has_to_fit_the_indices() -> None:
    made = joined(words([99], distinct(100)), words([27], distinct(28, first=100)))
    assert made.to_pylist() == ["99", "127"]
    with pytest.raises(bs.errors.DataTypeError, match="200 values is too large"):
        bs.concat_arrays([words([0], distinct(100)), words([99], distinct(100, first=100))])
    large = distinct(200)
    assert joined(words([127], large), words([3], large)).to_pylist() == ["127", "3"], "no index is out of reach"


def test_views_keep_their_own_data_buffers() -> None:
    long = ["a value that is no short one", "another value that is not short"]
    arrays = [bs.array([text, "short", None], bs.string_view()) for text in long]
    made = joined(*arrays)
    assert made.to_pylist() == [long[0], "short", None, long[1], "short", None]
    assert [held.address for held in made.buffers[2:] if held] == [a.buffers[2].address for a in arrays if a.buffers[2]]


def test_list_views_keep_their_order() -> None:
    def views(starts: list[int], sizes: list[int], child: list[int]) -> bs.Array:
        held = [None, np.array(starts, np.int32), np.array(sizes, np.int32)]
        return bs.Array.from_buffers(bs.list_view(bs.int8()), len(starts), held, [bs.array(child, bs.int8())])

    made = joined(views([2, 0], [1, 2], [1, 2, 3]), views([0, 0], [0, 2], [4, 5]))
    assert made.to_pylist() == [[3], [1, 2], [], [4, 5]]
    assert made.take([3, 0, 3]).to_pylist() == [[4, 5], [3], [4, 5]]


def test_runs_are_joined_and_have_to_fit_their_ends() -> None:
    runs = bs.run_end_encoded(bs.int16(), bs.int8())
    half = bs.array([7] * 20_000, runs)
    made = joined(half.slice(19_998), bs.array([7, None, 8], runs))
    assert made.to_pylist() == [7, 7, 7, None, 8]
    with pytest.raises(bs.errors.UsageError, match="40000 slots are too many for the run ends"):
        bs.concat_arrays([half, half])


@pytest.mark.parametrize("make", [bs.dense_union, bs.sparse_union])
def test_unions_are_joined_member_by_member(make: Any) -> None:
    type_ = make([("i", bs.int8()), ("s", bs.string())], [7, 3])
    made = joined(bs.array([1, "a"], type_), bs.array(["b", None, 2], type_).slice(0, 2), bs.array([], type_))
    assert made.to_pylist() == [1, "a", "b", None]
    assert made.values(0).tolist() == [7, 3, 3, 7]


def test_offsets_that_do_not_fit_are_refused() -> None:
    huge = bs.Array.from_buffers(bs.list_(bs.null()), 1, [None, np.array([0, 1 << 30], np.int32)], [_nulls(1 << 30)])
    assert bs.concat_arrays([huge]).length == 1
    with pytest.raises(bs.errors.UsageError, match="use the large type"):
        bs.concat_arrays([huge, huge])


def _nulls(length: int) -> bs.Array:
    return bs.Array.from_buffers(bs.null(), length, [])


def test_of_dictionaries_that_grow_the_longest_is_taken() -> None:
    grown = distinct(100)
    made = joined(words([9], grown.slice(0, 10)), words([None, 49], distinct(50)), words([99, 3], grown))
    assert made.to_pylist() == ["9", None, "49", "99", "3"]
    assert made.dictionary is not None
    assert made.dictionary.length == 100


@pytest.mark.parametrize("value_type", [bs.float64(), bs.list_(bs.float32())])
def test_zeros_of_both_signs_stay_apart_in_joined_dictionaries(value_type: bs.DataType) -> None:
    type_ = bs.dictionary(bs.int8(), value_type)
    zeros = [0.0, -0.0] if value_type == bs.float64() else [[0.0], [-0.0]]
    made = bs.concat_arrays([bs.array([zero], type_) for zero in zeros])
    assert repr(made.to_pylist()) == repr(zeros)
