"""Dictionary and run-end encoding, decoding, unification and distinct values, for every layout and like pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import bowstring as bs
from bowstring.datatypes.types import Union
from bowstring_testing import strategies
from tests.cases import CASES, Case

ENCODED = ("dictionary<", "run_end_encoded<", "null")
ENCODABLE = [case for case in CASES if not str(case.type).startswith(ENCODED)]


@pytest.mark.parametrize("case", ENCODABLE, ids=str)
def test_encoding_and_decoding_preserves_values(case: Case) -> None:
    values = [value for value in case.values for _ in range(3)] + case.values
    array = bs.array([None, *values], case.type)[1:]
    for encoded in (array.dictionary_encode(), array.dictionary_encode(bs.uint8())):
        encoded.validate(full=True)
        assert encoded.to_pylist() == values
        assert encoded.dictionary is not None
        distinct = {repr(value) for value in values if value is not None or isinstance(case.type, Union)}
        assert encoded.dictionary.length == len(distinct)
        assert encoded.dictionary_decode().equals(array)
    runs = array.run_end_encode(bs.int16())
    runs.validate(full=True)
    assert runs.to_pylist() == values
    assert runs.run_end_decode().equals(array)
    assert runs.children[0].length <= 2 * len(case.values)
    assert array.unique().to_pylist() == list({repr(value): value for value in values}.values())


@settings(max_examples=40)
@given(array=strategies.arrays(max_size=20))
def test_encodings_preserve_values_and_are_idempotent(array: bs.Array) -> None:
    distinct = array.unique()
    distinct.validate(full=True)
    if "union" not in str(array.type):  # a union may have equal values and nulls in several children
        assert len({repr(value) for value in distinct.to_pylist()}) == distinct.length
    assert distinct.unique().equals(distinct, nans_equal=True)
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
def test_dictionaries_and_runs_equal_pyarrow_s(values: list[Any]) -> None:
    array = bs.array(values)
    peer = pa.array(array)
    encoded, expected = array.dictionary_encode(), peer.dictionary_encode()
    assert encoded.dictionary is not None
    assert (
        encoded.buffer_values(1)[encoded.is_valid().to_numpy(False)].tolist()
        == expected.indices.drop_null().to_pylist()
    )
    assert repr(encoded.dictionary.to_pylist()) == repr(expected.dictionary.to_pylist())
    assert repr(array.unique().to_pylist()) == repr(peer.unique().to_pylist())


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_a_union_keeps_the_child_of_each_value(mode: Any) -> None:
    create = getattr(bs, f"{mode}_union")
    type_ = create([("i", bs.int32()), ("l", bs.int64()), ("when", bs.timestamp("s", "UTC"))])
    members, values = [0, 1, 1, 0, 2, 1], [5, 5, 5, 5, 5, None]
    children = [
        [v if m == k or mode == "sparse" else 0 for m, v in zip(members, values, strict=True)] for k in range(3)
    ]
    buffers: list[Any] = [np.array(members, np.int8), *([np.arange(6, dtype=np.int32)] if mode == "dense" else [])]
    parts = [bs.array(child, f.type) for child, f in zip(children, type_.fields, strict=True)]
    array = bs.Array.from_buffers(type_, 6, buffers, parts)
    for column in (array, bs.Array.from_buffers(bs.struct([("u", type_)]), 6, [None], [array])):
        for encoded in (column.dictionary_encode().dictionary_decode(), column.run_end_encode().run_end_decode()):
            assert encoded.equals(column)
            assert encoded.to_pylist() == column.to_pylist()
        assert column.unique().length == 4


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_a_union_keeps_the_child_of_each_null(mode: Any) -> None:
    union = _nulls_of_two_children(mode)
    structs = bs.Array.from_buffers(bs.struct([("u", union.type)]), 5, [None], [union])
    lists = bs.Array.from_buffers(bs.list_(union.type), 5, [None, np.arange(6, dtype=np.int32)], [union])
    for array in (union, structs, lists):
        words, runs = bs.dictionary(bs.int8(), array.type), bs.run_end_encoded(bs.int32(), array.type)
        for encoded in (
            array.dictionary_encode().dictionary_decode(),
            array.run_end_encode().run_end_decode(),
            array.run_end_encode().dictionary_encode().dictionary_decode().run_end_decode(),
            array.cast(words).cast(array.type),
            array.cast(runs).cast(words).cast(array.type),
        ):
            encoded.validate(full=True)
            assert encoded.equals(array)
        assert array.unique().equals(array.take([0, 1, 2, 3]))
    assert union.dictionary_encode().is_null().to_pylist() == union.is_null().to_pylist()


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_unified_dictionaries_of_unions_keep_the_child_of_each_null(mode: Any) -> None:
    union = _nulls_of_two_children(mode)
    kind = bs.dictionary(bs.int8(), union.type)
    parts = [union.take(order) for order in ([0, 2, 1], [3, 1, 2, 0], [3], [2])]
    chunks = [
        bs.Array.from_buffers(kind, len(part), [None, np.arange(len(part), dtype=np.int8)], [], part) for part in parts
    ]
    column = bs.ChunkedArray(chunks, kind)
    for chunk, part in zip(column.unify_dictionaries().chunks, parts, strict=True):
        assert chunk.dictionary_decode().equals(part)
    whole = bs.concat_arrays(parts)
    assert column.combine_chunks().dictionary_decode().equals(whole)
    assert not chunks[2].equals(chunks[3])
    nested = bs.dictionary(bs.int16(), kind)
    outer = [bs.Array.from_buffers(nested, len(c), [None, np.arange(len(c), dtype=np.int16)], [], c) for c in chunks]
    unified = bs.ChunkedArray(outer, nested).unify_dictionaries()
    assert unified.combine_chunks().dictionary_decode().dictionary_decode().equals(whole)


def _nulls_of_two_children(mode: Any) -> bs.Array:
    type_ = getattr(bs, f"{mode}_union")([("i", bs.int32()), ("s", bs.string())], [5, 9])
    numbers, texts = bs.array([1, None], bs.int32()), bs.array(["a", None, "a"])
    codes, offsets = np.array([5, 9, 5, 9, 9], np.int8), np.array([0, 0, 1, 1, 2], np.int32)
    if mode == "dense":
        return bs.Array.from_buffers(type_, 5, [codes, offsets], [numbers, texts])
    return bs.Array.from_buffers(type_, 5, [codes], [numbers.take(offsets % 2), texts.take(offsets)])


def test_nested_values_are_compared_completely() -> None:
    zeros = bs.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [float("nan")], [float("nan")], [], [None], None])
    assert [repr(value) for value in zeros.unique().to_pylist()] == [
        "[0.0, 1.0]", "[-0.0, 1.0]", "[nan]", "[]", "[None]", "None"
    ]  # fmt: skip
    rows = bs.array([{"a": 1, "b": [1, 2]}, {"a": None, "b": [1, 2]}, {"a": 1, "b": None}, {"a": 1, "b": [1, 2]}])
    assert rows.dictionary_encode().buffer_values(1).tolist() == [0, 1, 2, 0]
    empty = bs.struct([("e", bs.struct([])), ("n", bs.int8())])
    pairs = [{"e": None, "n": 1}, {"e": None, "n": 2}, {"e": {}, "n": 1}]
    assert bs.array(pairs, empty).unique().to_pylist() == pairs
    views = bs.Array.from_buffers(
        bs.list_view(bs.int8()), 3, [None, np.array([1, 0, 1], np.int32), np.array([2, 1, 2], np.int32)],
        [bs.array([7, 8, 9], bs.int8())],
    )  # fmt: skip
    assert views.unique().to_pylist() == [[8, 9], [7]]


def test_encoded_arrays_are_returned_unchanged() -> None:
    words, runs = bs.array(["a"]).dictionary_encode(), bs.array(["a"]).run_end_encode()
    assert words.dictionary_encode() is words
    assert runs.run_end_encode() is runs
    assert bs.array([1]).run_end_decode().to_pylist() == [1]


def test_too_many_distinct_values_are_rejected() -> None:
    assert bs.array(range(128)).dictionary_encode(bs.int8()).to_pylist() == list(range(128))
    with pytest.raises(bs.errors.TypeMismatchError, match="a dictionary of 129 values is too large for the indices of"):
        bs.array(range(129)).dictionary_encode(bs.int8())


@pytest.mark.parametrize(
    "values", [[["a", "b"], ["b", "c", None], ["a"], []], [[[1], [2]], [[2], None, [3]], [[1]], []]]
)
def test_dictionaries_are_unified(values: list[list[Any]]) -> None:
    chunks = [bs.array(part, bs.dictionary(bs.int8(), bs.array(values[0]).type)) for part in values]
    encoded = bs.ChunkedArray(chunks, chunks[0].type).unify_dictionaries()
    encoded.validate(full=True)
    assert [chunk.to_pylist() for chunk in encoded.chunks] == values
    assert all(chunk.dictionary is encoded.chunks[0].dictionary for chunk in encoded.chunks)
    assert encoded.chunks[0].dictionary is not None
    assert encoded.chunks[0].dictionary.length == 3
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
        type_ = bs.datatypes.opaque(type_, "name", "vendor")


def test_casts_encode_and_decode() -> None:
    values = ["1", "1", None, "2"]
    for target in (bs.dictionary(bs.int8(), bs.int32()), bs.run_end_encoded(bs.int16(), bs.int32())):
        encoded = bs.array(values).cast(target)
        encoded.validate(full=True)
        assert encoded.type == target
        assert encoded.cast(bs.string()).to_pylist() == values
