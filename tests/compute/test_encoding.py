"""Dictionaries and runs: encoded, decoded, unified; and distinct values. For every layout, and as pyarrow does it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import bowstring as bs
from bowstring.testing import strategies
from bowstring.testing.cases import CASES, Case

ENCODED = ("dictionary<", "run_end_encoded<", "sparse_union<", "dense_union<", "null")
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
    table = bs.concat_tables([bs.table({"d": chunk, "n": range(len(chunk))}) for chunk in chunks])
    unified = table.unify_dictionaries()
    assert unified.equals(table)
    assert len({id(batch["d"].dictionary) for batch in unified.to_batches()}) == 1


def test_casts_encode_and_decode() -> None:
    values = ["1", "1", None, "2"]
    for target in (bs.dictionary(bs.int8(), bs.int32()), bs.run_end_encoded(bs.int16(), bs.int32())):
        made = bs.array(values).cast(target)
        made.validate(full=True)
        assert made.type == target
        assert made.cast(bs.string()).to_pylist() == values
