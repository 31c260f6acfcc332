"""Dictionaries and runs: encoded, decoded, unified; and distinct values. For every layout, and as pyarrow does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import bowstring as bs
from bowstring.testing import strategies
from bowstring.testing.cases import CASES, Case

ENCODED = ("dictionary<", "run_end_encoded<", "null")
ENCODABLE = [case for case in CASES if not str(case.type).startswith(ENCODED)]


@pytest.mark.parametrize("case", ENCODABLE, ids=str)
def test_encoding_and_decoding_gives_the_values_back(case: Case) -> None:
    values = [value for value in case.values for _ in range(3)] + case.values
    array = bs.array([None, *values], case.type)[1:]
    for made in (array.dictionary_encode(), array.dictionary_encode(bs.uint8())):
        made.validate(full=True)
        assert made.to_pylist() == values
        assert made.dictionary is not None
        assert made.dictionary.length == len({repr(value) for value in values if value is not None})
        assert made.dictionary_decode().equals(array)
    runs = array.run_end_encode(bs.int16())
    runs.validate(full=True)
    assert runs.to_pylist() == values
    assert runs.run_end_decode().equals(array)
    assert runs.children[0].length <= 2 * len(case.values)
    assert array.unique().to_pylist() == list({repr(value): value for value in values}.values())


@settings(max_examples=80)
@given(array=strategies.arrays(max_size=20))
def test_the_laws_of_encoding(array: bs.Array) -> None:
    distinct = array.unique()
    distinct.validate(full=True)
    assert len({repr(value) for value in distinct.to_pylist()}) == distinct.length
    assert {repr(value) for value in distinct.to_pylist()} == {repr(value) for value in array.to_pylist()}
    if not str(array.type).startswith(ENCODED):
        assert array.dictionary_encode().dictionary_decode().equals(array, nans_equal=True)
        assert array.run_end_encode().run_end_decode().equals(array, nans_equal=True)


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", None, "b", "", None],
        [3, 1, None, 3],
        [1.5, float("nan"), None, float("nan"), 0.0, -0.0],
        [True, False],
    ],
)
def test_dictionaries_and_runs_are_pyarrows(values: list[Any]) -> None:
    array = bs.array(values)
    peer = pa.array(array)
    made, wanted = array.dictionary_encode(), peer.dictionary_encode()
    assert made.dictionary is not None
    assert made.values(1)[made.is_valid().to_numpy(False)].tolist() == wanted.indices.drop_null().to_pylist()
    assert repr(made.dictionary.to_pylist()) == repr(wanted.dictionary.to_pylist())
    assert repr(array.unique().to_pylist()) == repr(peer.unique().to_pylist())


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_a_union_keeps_the_child_of_each_value(mode: Any) -> None:
    type_ = bs.union([("i", bs.int32()), ("l", bs.int64()), ("when", bs.timestamp("s", "UTC"))], mode)
    members, values = [0, 1, 1, 0, 2, 1], [5, 5, 5, 5, 5, None]
    children = [
        [v if m == k or mode == "sparse" else 0 for m, v in zip(members, values, strict=True)] for k in range(3)
    ]
    buffers: list[Any] = [np.array(members, np.int8), *([np.arange(6, dtype=np.int32)] if mode == "dense" else [])]
    parts = [bs.array(child, f.type) for child, f in zip(children, type_.fields, strict=True)]
    array = bs.Array.from_buffers(type_, 6, buffers, parts)
    for held in (array, bs.Array.from_buffers(bs.struct([("u", type_)]), 6, [None], [array])):
        for made in (held.dictionary_encode().dictionary_decode(), held.run_end_encode().run_end_decode()):
            assert made.slice(0, 5).equals(held.slice(0, 5))
            assert made.to_pylist() == held.to_pylist()
        assert held.unique().length == 4


def test_nested_values_are_told_apart_by_all_that_they_hold() -> None:
    zeros = bs.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [float("nan")], [float("nan")], [], [None], None])
    assert [repr(value) for value in zeros.unique().to_pylist()] == [
        "[0.0, 1.0]", "[-0.0, 1.0]", "[nan]", "[]", "[None]", "None"
    ]  # fmt: skip
    rows = bs.array([{"a": 1, "b": [1, 2]}, {"a": None, "b": [1, 2]}, {"a": 1, "b": None}, {"a": 1, "b": [1, 2]}])
    assert rows.dictionary_encode().values(1).tolist() == [0, 1, 2, 0]
    empty = bs.struct([("e", bs.struct([])), ("n", bs.int8())])
    pairs = [{"e": None, "n": 1}, {"e": None, "n": 2}, {"e": {}, "n": 1}]
    assert bs.array(pairs, empty).unique().to_pylist() == pairs
    views = bs.Array.from_buffers(
        bs.list_view(bs.int8()), 3, [None, np.array([1, 0, 1], np.int32), np.array([2, 1, 2], np.int32)],
        [bs.array([7, 8, 9], bs.int8())],
    )  # fmt: skip
    assert views.unique().to_pylist() == [[8, 9], [7]]


def test_what_is_encoded_stays_as_it_is() -> None:
    words, runs = bs.array(["a"]).dictionary_encode(), bs.array(["a"]).run_end_encode()
    assert words.dictionary_encode() is words
    assert runs.run_end_encode() is runs
    assert bs.array([1]).run_end_decode().to_pylist() == [1]


def test_too_many_distinct_values_are_refused() -> None:
    assert bs.array(range(128)).dictionary_encode(bs.int8()).to_pylist() == list(range(128))
    with pytest.raises(bs.errors.DataTypeError, match="129 distinct values are too many for indices of int8"):
        bs.array(range(129)).dictionary_encode(bs.int8())


@pytest.mark.parametrize(
    "values", [[["a", "b"], ["b", "c", None], ["a"], []], [[[1], [2]], [[2], None, [3]], [[1]], []]]
)
def test_dictionaries_are_unified(values: list[list[Any]]) -> None:
    chunks = [bs.array(part, bs.dictionary(bs.int8(), bs.array(values[0]).type)) for part in values]
    made = bs.ChunkedArray(chunks, chunks[0].type).unify_dictionaries()
    made.validate(full=True)
    assert [chunk.to_pylist() for chunk in made.chunks] == values
    assert all(chunk.dictionary is made.chunks[0].dictionary for chunk in made.chunks)
    assert made.chunks[0].dictionary is not None
    assert made.chunks[0].dictionary.length == 3
    table = bs.concat_tables([bs.table({"d": chunk, "n": np.arange(len(chunk))}) for chunk in chunks])
    unified = table.unify_dictionaries()
    assert unified.equals(table)
    assert len({id(batch["d"].dictionary) for batch in unified.to_batches()}) == 1


def test_dictionaries_are_unified_below_any_number_of_extensions() -> None:
    type_: bs.DataType = bs.dictionary(bs.int8(), bs.string())
    for _ in range(3):
        chunks = [bs.array(words, type_) for words in (["a", "b"], ["c", "a"])]
        column = bs.ChunkedArray(chunks, type_)
        assert column.unify_dictionaries().to_pylist() == ["a", "b", "c", "a"]
        assert column.combine_chunks().to_pylist() == ["a", "b", "c", "a"]
        type_ = bs.opaque(type_, "name", "vendor")


def test_casts_encode_and_decode() -> None:
    values = ["1", "1", None, "2"]
    for target in (bs.dictionary(bs.int8(), bs.int32()), bs.run_end_encoded(bs.int16(), bs.int32())):
        made = bs.array(values).cast(target)
        made.validate(full=True)
        assert made.type == target
        assert made.cast(bs.string()).to_pylist() == values
