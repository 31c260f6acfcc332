"""Equality compares type, length, nulls and values, but not offsets or buffer contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bowstring as bs

NAN = float("nan")


def test_values_under_nulls_are_ignored() -> None:
    def under(data: list[int]) -> bs.Array:
        return bs.Array.from_buffers(bs.int32(), 3, [bytes([0b101]), np.array(data, np.int32)])

    assert under([1, 7, 3]).equals(under([1, -9, 3]))
    assert not under([1, 7, 3]).equals(under([1, 7, 4]))
    words = [
        bs.Array.from_buffers(bs.string(), 2, [bytes([0b10]), np.array(offsets, np.int32), data])
        for offsets, data in (([0, 0, 2], b"ab"), ([0, 3, 5], b"\xff\xffxab"))
    ]
    assert words[0].equals(words[1])
    assert words[1].to_pylist() == [None, "ab"]


def test_absent_and_full_bitmaps_are_equal() -> None:
    assert bs.Array.from_buffers(bs.int8(), 2, [b"\x03", b"\1\2"]).equals(bs.array([1, 2], bs.int8()))


@pytest.mark.parametrize("type_", [bs.float16(), bs.float32(), bs.float64()], ids=str)
def test_nan_equals_nan_only_on_request(type_: bs.DataType) -> None:
    array = bs.array([1.5, NAN, None], type_)
    assert not array.equals(array)
    assert array.equals(array, nans_equal=True)
    nested = bs.array([[1.5, NAN], None], bs.list_(type_))
    assert not nested.equals(nested)
    assert nested.equals(nested, nans_equal=True)
    assert not array.equals(bs.array([1.5, 2.0, None], type_), nans_equal=True)


def test_minus_zero_equals_zero() -> None:
    assert bs.array([-0.0]).equals(bs.array([0.0]))


NUM_VALUES = 3_000_000
"""So many 8-byte values are looked at by several threads."""


@pytest.mark.parametrize("type_", [bs.int64(), bs.float64(), bs.duration("s"), bs.binary(8)], ids=str)
@pytest.mark.parametrize("index", [0, 1, NUM_VALUES // 2, NUM_VALUES - 1])
@pytest.mark.parametrize("has_nulls", [False, True])
def test_one_different_slot_among_many_is_detected(type_: bs.DataType, index: int, has_nulls: bool) -> None:
    mask = np.full(NUM_VALUES + 1, 0xFF, np.uint8)
    mask[0] = 0xFF if not has_nulls else 0xF7
    slots = np.arange(NUM_VALUES + 3, dtype=np.float64)
    others = slots.copy()
    left, right = (bs.Array.from_buffers(type_, NUM_VALUES + 3, [mask, values]).slice(3) for values in (slots, others))
    assert left.null_count == has_nulls
    assert left.equals(right)
    others[3 + index] = -1
    assert left.equals(right) == (has_nulls and index == 0)


def test_nan_and_zero_compare_the_same_in_long_and_short_arrays() -> None:
    slots = np.zeros(NUM_VALUES)
    others = slots.copy()
    others[NUM_VALUES // 2] = -0.0
    assert bs.array(slots).equals(bs.array(others))
    slots[-1] = others[-1] = NAN
    array, other = bs.array(slots), bs.array(others)
    assert not array.equals(other)
    assert not array.equals(array)
    assert array.equals(other, nans_equal=True)


@pytest.mark.parametrize("offsets", [[0, 2, 4], [0, 3, 1], [-1, 2, 3], [0, 2, 9]])
def test_strings_with_invalid_offsets_are_not_compared(offsets: list[int]) -> None:
    whole = bs.array(["ab", "cd"])
    invalid = bs.Array(
        whole.layout, 2, (None, bs.memory.Buffer.of(np.array(offsets, np.int32)), bs.memory.Buffer.of(b"abc"))
    )
    for left, right in ((whole, invalid), (invalid, whole)):
        with pytest.raises(bs.errors.InvalidDataError):
            left.equals(right)


def test_unaligned_slots_are_compared() -> None:
    raw = bytes(range(256)) * 64
    left, right = (bs.memory.Buffer.of(b"x" * skip + raw).slice(skip) for skip in (1, 3))
    arrays = [bs.Array.from_buffers(bs.int64(), len(raw) // 8, [None, content]) for content in (left, right)]
    assert arrays[0].equals(arrays[1])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (bs.array([1], bs.int8()), bs.array([1], bs.int16())),
        (bs.array([0], bs.timestamp("s")), bs.array([0], bs.timestamp("s", "UTC"))),
        (bs.array([[1]], bs.list_(bs.int8())), bs.array([[1]], bs.large_list(bs.int8()))),
        (bs.array([None]), bs.array([None], bs.int8())),
        (bs.array([None, 1]), bs.array([1, None])),
        (bs.array(["ab", "c"]), bs.array(["a", "bc"])),
        (bs.array([[1], [2, 3]]), bs.array([[1, 2], [3]])),
        (bs.array([b"ab"], bs.binary(2)), bs.array([b"ac"], bs.binary(2))),
        (bs.array([(1, 2)], bs.day_time_interval()), bs.array([(2, 1)], bs.day_time_interval())),
        (bs.array(["x" * 20], bs.string_view()), bs.array(["x" * 19 + "y"], bs.string_view())),
        (bs.array([[1, 2], [3]], bs.list_view(bs.int8())), bs.array([[1], [2, 3]], bs.list_view(bs.int8()))),
        (bs.array([{"a": None}]), bs.array([None], bs.struct({"a": bs.null()}))),
    ],
    ids=lambda it: repr(it)[17:50],
)
def test_different_arrays_are_not_equal(left: bs.Array, right: bs.Array) -> None:
    assert not left.equals(right)
    assert not right.equals(left)


def test_equal_values_of_different_union_members_differ() -> None:
    type_ = bs.dense_union([("a", bs.int32()), ("b", bs.int32())])
    children = [bs.array([1], bs.int32())] * 2
    zero = np.zeros(1, np.int32)
    first, second = (bs.Array.from_buffers(type_, 1, [bytes([i]), zero], children) for i in (0, 1))
    assert not first.equals(second)


def dictionary_array(keys: list[int | None], words: list[Any]) -> bs.Array:
    type_ = bs.dictionary(bs.int8(), bs.array(words).type)
    own = bs.array(keys, bs.int8())
    return bs.Array.from_buffers(type_, len(keys), own.own_buffers, dictionary=bs.array(words))


def test_equal_values_with_different_dictionaries_are_equal() -> None:
    array = dictionary_array([0, 1, None, 0], ["a", "b"])
    assert array.equals(dictionary_array([1, 0, None, 2], ["b", "a", "a"]))
    assert not array.equals(dictionary_array([1, 1, None, 1], ["b", "a"]))
    assert not dictionary_array([0, 1, 0], ["a", "b"]).equals(dictionary_array([0, 0, 1], ["a", "b"]))
    assert dictionary_array([0], [None, "x"]).equals(dictionary_array([1], ["x", None]))
    assert dictionary_array([0, None, 1], ["a", None]).equals(dictionary_array([1, 0, None], [None, "a"]))
    assert not dictionary_array([0, 1], ["a", None]).equals(dictionary_array([1, 0], ["a", None]))
    assert dictionary_array([1], ["a", None]).equals(dictionary_array([None], ["a"]))
    assert not dictionary_array([0], [NAN, 1.0]).equals(dictionary_array([0], [NAN, 1.0]))


def run_end_array(ends: list[int], values: list[Any], length: int, offset: int = 0) -> bs.Array:
    runs = bs.array(values, bs.int8())
    type_ = bs.run_end_encoded(bs.int16(), bs.int8())
    return bs.Array.from_buffers(type_, length, [], [bs.array(ends, bs.int16()), runs], offset=offset)


def test_equal_values_in_different_runs_are_equal() -> None:
    array = run_end_array([2, 4, 5], [1, None, 2], 5)
    assert array.equals(run_end_array([1, 2, 3, 5], [1, 1, None, None], 4).compact()) is False
    assert array.equals(run_end_array([1, 2, 3, 4, 9], [1, 1, None, None, 2], 5))
    assert array.slice(1, 3).equals(run_end_array([3, 4, 7], [9, 1, None], 3, offset=3))
    assert not array.equals(run_end_array([2, 4, 5], [1, 3, 2], 5))


def test_null_structs_hide_their_fields() -> None:
    type_ = bs.struct({"a": bs.int8()})
    one, other = (bs.Array.from_buffers(type_, 2, [b"\x01"], [bs.array([1, x], bs.int8())]) for x in (2, None))
    assert one.equals(other)


def test_custom_metadata_of_fields_is_ignored() -> None:
    plain = bs.array([[1]], bs.list_(bs.field("item", bs.int8())))
    marked = bs.array([[1]], bs.list_(bs.field("item", bs.int8(), metadata={"k": "v"})))
    assert plain.equals(marked)
    assert marked.type.fields[0].metadata == {b"k": b"v"}
    assert plain.type.fields[0].metadata == {}


BLOCK_BYTES = 1 << 20


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64])
@pytest.mark.parametrize("more", [-1, 0, 1, 9])
def test_a_difference_is_detected_on_both_sides_of_a_block_boundary(dtype: type[Any], more: int) -> None:
    size = BLOCK_BYTES // np.dtype(dtype).itemsize
    values = np.arange(size + more).astype(dtype)
    array = bs.array(values)
    assert array.equals(bs.array(values.copy()))
    for at in {0, size - 2, min(size, len(values) - 1), len(values) - 1}:
        other = values.copy()
        other[at] += 1
        assert not array.equals(bs.array(other)), at


@pytest.mark.parametrize("more", [-1, 0, 1, 9])
@pytest.mark.parametrize("offset", [0, 3])
def test_values_under_nulls_are_ignored_in_every_block(more: int, offset: int) -> None:
    size = BLOCK_BYTES // 8 + more
    null_at = {0, size // 2, BLOCK_BYTES // 8 - 2, size - 1}
    valid = np.ones(size, np.bool_)
    valid[list(null_at)] = False
    values = np.arange(size)
    array = bs.array(values, mask=~valid).slice(offset)
    assert array.equals(bs.array(np.where(valid, values, -1), mask=~valid).slice(offset))
    for at in null_at:
        if at >= offset:
            assert not array.equals(bs.array(values, mask=~valid & (np.arange(size) != at)).slice(offset))
            changed = values.copy()
            changed[at - 4 if at > 4 else 3] = -5
            assert not array.equals(bs.array(changed, mask=~valid).slice(offset))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("offset", [0, 1, 5, 8])
def test_validity_bits_outside_the_array_are_ignored(length: int, offset: int) -> None:
    def at(before: int, after: int) -> bs.Array:
        bits = np.array([before] * offset + [1, 0] * length + [after] * 9, np.bool_)[: offset + length + 9]
        bits[offset + length :] = after
        packed = np.packbits(bits, bitorder="little").tobytes()
        return bs.Array.from_buffers(bs.int8(), length, [packed, bytes(offset + length + 9)], offset=offset)

    assert at(0, 0).equals(at(1, 1))
    assert not at(0, 0).equals(bs.array([0] * length, bs.int8())) or length == 1


def test_strings_under_nulls_are_ignored() -> None:
    left = bs.Array.from_buffers(bs.string(), 3, [b"\x05", np.array([0, 1, 3, 4], np.int32), b"axyb"])
    right = bs.Array.from_buffers(bs.string(), 3, [b"\x05", np.array([1, 2, 2, 3], np.int32), b"-ab"])
    assert left.equals(right)
    assert not left.equals(bs.array(["a", None, "c"]))
    assert bs.array(["a", None, "b"]).equals(right)


def test_strings_of_equal_lengths_are_equal_at_any_offset() -> None:
    size = BLOCK_BYTES // 4 + 2
    offsets = np.arange(size + 1, dtype=np.int32)
    letters = np.full(size + 1, ord("a"), np.uint8)
    first = bs.Array.from_buffers(bs.string(), size, [None, offsets, letters])
    second = bs.Array.from_buffers(bs.string(), size, [None, offsets + 1, letters])
    assert first.equals(second)
    moved = offsets + 1
    moved[-2] = moved[-1]
    assert not first.equals(bs.Array.from_buffers(bs.string(), size, [None, moved, letters]))
