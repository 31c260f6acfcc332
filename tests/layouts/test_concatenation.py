"""Concatenating arrays with different dictionaries, data buffers, children and runs."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.arrays.array import Array
from bowstring.errors import InvalidDataError
from bowstring.kernels.unify_dictionaries import concat_and_unify
from bowstring.layouts import concatenation
from bowstring.layouts.concatenation import MIN_ARRAYS
from bowstring.layouts.equality import arrays_equal
from bowstring.memory import buffer
from bowstring.memory.buffer import Memory

WORDS = bs.dictionary(bs.int8(), bs.string())


def dictionary_array(keys: list[int | None], dictionary: bs.Array, index_type: bs.DataType | None = None) -> bs.Array:
    indices = bs.array(keys, index_type or bs.int8())
    return bs.Array.from_buffers(WORDS, len(keys), indices.own_buffers, dictionary=dictionary)


def concat(*arrays: bs.Array) -> bs.Array:
    array = bs.concat_arrays(arrays)
    array.validate(full=True)
    return array


def distinct_strings(count: int, first: int = 0) -> bs.Array:
    return bs.array([str(first + index) for index in range(count)])


def test_equal_dictionaries_are_kept() -> None:
    dictionary = bs.array(["a", "b"])
    array = concat(
        dictionary_array([0, 1], dictionary),
        dictionary_array([None, 0], dictionary),
        dictionary_array([1], bs.array(["a", "b"])),
    )
    assert array.dictionary is dictionary
    assert array.to_pylist() == ["a", "b", None, "a", "b"]


def test_different_dictionaries_are_concatenated() -> None:
    first, second = bs.array(["a", "b"]), bs.array(["c", None])
    array = concat(
        dictionary_array([0, 1], first), dictionary_array([1, None, 0], second), dictionary_array([1], first)
    )
    assert array.to_pylist() == ["a", "b", None, None, "c", "b"]
    assert array.slice(3, 3).to_pylist() == [None, "c", "b"]


def test_a_concatenated_dictionary_must_fit_the_index_type() -> None:
    array = concat(
        dictionary_array([99], distinct_strings(100)), dictionary_array([27], distinct_strings(28, first=100))
    )
    assert array.to_pylist() == ["99", "127"]
    with pytest.raises(bs.errors.TypeMismatchError, match="200 values is too large"):
        bs.concat_arrays(
            [dictionary_array([0], distinct_strings(100)), dictionary_array([99], distinct_strings(100, first=100))]
        )
    large = distinct_strings(200)
    assert concat(dictionary_array([127], large), dictionary_array([3], large)).to_pylist() == ["127", "3"], (
        "all indices fit"
    )


def test_views_keep_their_data_buffers() -> None:
    long = ["a value that is not short", "another value that is not short"]
    arrays = [bs.array([text, "short", None], bs.string_view()) for text in long]
    array = concat(*arrays)
    assert array.to_pylist() == [long[0], "short", None, long[1], "short", None]
    assert [buffer.address for buffer in array.own_buffers[2:] if buffer] == [
        a.own_buffers[2].address for a in arrays if a.own_buffers[2]
    ]


def test_list_views_keep_their_order() -> None:
    def views(starts: list[int], sizes: list[int], child: list[int]) -> bs.Array:
        buffers = [None, np.array(starts, np.int32), np.array(sizes, np.int32)]
        return bs.Array.from_buffers(bs.list_view(bs.int8()), len(starts), buffers, [bs.array(child, bs.int8())])

    array = concat(views([2, 0], [1, 2], [1, 2, 3]), views([0, 0], [0, 2], [4, 5]))
    assert array.to_pylist() == [[3], [1, 2], [], [4, 5]]
    assert array.take([3, 0, 3]).to_pylist() == [[4, 5], [3], [4, 5]]


def test_concatenated_runs_must_fit_the_run_end_type() -> None:
    runs = bs.run_end_encoded(bs.int16(), bs.int8())
    half = bs.array([7] * 20_000, runs)
    array = concat(half.slice(19_998), bs.array([7, None, 8], runs))
    assert array.to_pylist() == [7, 7, 7, None, 8]
    with pytest.raises(bs.errors.InvalidArgumentError, match="40000 slots are too many for the run ends"):
        bs.concat_arrays([half, half])


@pytest.mark.parametrize("make", [bs.dense_union, bs.sparse_union])
def test_unions_are_concatenated_by_member(make: Any) -> None:
    type_ = make([("i", bs.int8()), ("s", bs.string())], [7, 3])
    array = concat(bs.array([1, "a"], type_), bs.array(["b", None, 2], type_).slice(0, 2), bs.array([], type_))
    assert array.to_pylist() == [1, "a", "b", None]
    assert array.buffer_values(0).tolist() == [7, 3, 3, 7]


def test_offsets_that_do_not_fit_are_rejected() -> None:
    huge = bs.Array.from_buffers(bs.list_(bs.null()), 1, [None, np.array([0, 1 << 30], np.int32)], [_nulls(1 << 30)])
    assert bs.concat_arrays([huge]).length == 1
    with pytest.raises(bs.errors.InvalidArgumentError, match="use the large type"):
        bs.concat_arrays([huge, huge])


def _nulls(length: int) -> bs.Array:
    return bs.Array.from_buffers(bs.null(), length, [])


def test_the_longest_of_growing_dictionaries_is_used() -> None:
    grown = distinct_strings(100)
    array = concat(
        dictionary_array([9], grown.slice(0, 10)),
        dictionary_array([None, 49], distinct_strings(50)),
        dictionary_array([99, 3], grown),
    )
    assert array.to_pylist() == ["9", None, "49", "99", "3"]
    assert array.dictionary is not None
    assert array.dictionary.length == 100


@pytest.mark.parametrize("value_type", [bs.float64(), bs.list_(bs.float32())])
def test_zeros_of_both_signs_stay_different_in_concatenated_dictionaries(value_type: bs.DataType) -> None:
    type_ = bs.dictionary(bs.int8(), value_type)
    zeros = [0.0, -0.0] if value_type == bs.float64() else [[0.0], [-0.0]]
    array = bs.concat_arrays([bs.array([zero], type_) for zero in zeros])
    assert repr(array.to_pylist()) == repr(zeros)


_SLICED_TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int32": (bs.int32(), st.integers(-5, 5)),
    "bool": (bs.bool_(), st.booleans()),
    "string": (bs.string(), st.text(max_size=5)),
    "large_binary": (bs.large_binary(), st.binary(max_size=5)),
    "list": (bs.list_(bs.int8()), st.lists(st.integers(-5, 5), max_size=3)),
}


@st.composite
def _draw_slices(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[tuple[list[Any], int, int]]:
    """Draw lists of values, each with an offset and a length, repeated until they are many."""
    one = st.tuples(st.lists(st.none() | values, max_size=20), st.integers(0, 9), st.integers(0, 20))
    return draw(st.lists(one, min_size=1, max_size=4)) * draw(st.sampled_from([1, 20]))


@pytest.mark.parametrize("name", _SLICED_TYPES)
@settings(max_examples=40)
@given(data=st.data())
def test_concatenated_slices_have_the_values_of_all(name: str, data: st.DataObject) -> None:
    kind, values = _SLICED_TYPES[name]
    wholes: dict[str, Array] = {}
    arrays = []
    expected: list[Any] = []
    for array, offset, length in data.draw(_draw_slices(values)):
        whole = wholes.setdefault(repr(array), bs.array(array, kind))
        arrays.append(whole.slice(min(offset, len(array)), length))
        expected += array[offset : offset + length]
    actual = bs.concat_arrays(arrays)
    actual.validate(full=True)
    assert actual.to_pylist() == expected
    assert actual.null_count == expected.count(None)


def _arrays() -> Sequence[Array]:
    return [bs.array([None, "a", "bc" * (i % 3)], bs.string()).slice(i % 2) for i in range(2 * MIN_ARRAYS)]


def test_concatenation_by_address_and_by_view_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = _arrays()
    gathered = bs.concat_arrays(arrays)
    monkeypatch.setattr(concatenation, "MIN_ARRAYS", len(arrays) + 1)
    assert bs.concat_arrays(arrays).equals(gathered)


@pytest.mark.parametrize(
    "odd",
    [
        np.array([1.5, -2.5]),
        np.array([1, 2], ">i8"),
        np.array(["2020-01-01", "NaT"], "M8[s]"),
        np.arange(4, dtype=np.int32),
        np.arange(2).reshape(1, 2),
        np.arange(4).reshape(2, 2),
        np.ma.array([1, 2], mask=[True, False]),
        np.arange(3),
        bytes(range(16)),
    ],
    ids=lambda it: f"{it.dtype}{it.shape}" if isinstance(it, np.ndarray) else "bytes",
)
@pytest.mark.parametrize("number_type", [bs.int64(), bs.float64()], ids=str)
def test_unusual_numpy_arrays_are_concatenated_by_their_bytes(odd: Any, number_type: bs.DataType) -> None:
    plain = bs.memory.Buffer.of(np.arange(2))
    buffers = [plain, bs.memory.Buffer.of(odd)] * MIN_ARRAYS
    actual = bs.concat_arrays([bs.Array.from_buffers(number_type, 2, [None, buffer]) for buffer in buffers])
    assert actual.buffer_values(1).tobytes() == b"".join(buffer.to_bytes()[:16] for buffer in buffers)


def test_memory_ranges_far_apart_are_concatenated() -> None:
    """Use addresses of a mapping, of the heap and of interpreter objects, with long and short ranges."""
    with mmap.mmap(-1, 1 << 20) as mapped:
        mapped[:4096] = bytes(range(256)) * 16
        owners = [mapped, np.arange(5, dtype=np.int8), bytes(range(9)), b"", mapped]
        buffers = [bs.memory.Buffer.of(owner) for owner in owners * 20]
        sizes = np.array([700, 5, 8, 0, 3] * 20)
        starts = np.array([17, 0, 1, 0, 4090] * 20)
        arrays = [bs.Array.from_buffers(bs.binary(), 0, [None, None, buffer]) for buffer in buffers]
        actual = concatenation.concat_byte_ranges(arrays, 2, starts, sizes).tobytes()
        spans = zip(buffers, starts.tolist(), sizes.tolist(), strict=True)
        assert actual == b"".join(buffer.to_bytes()[start : start + size] for buffer, start, size in spans)
        del arrays, buffers, owners, spans


@pytest.mark.parametrize("count", [2, 3 * MIN_ARRAYS])
def test_offsets_beyond_the_data_are_rejected(count: int) -> None:
    good = bs.array(["abc"])
    bad = bs.Array.from_buffers(bs.string(), 1, [None, good.own_buffers[1], b"abc"])
    bad.own_buffers = (None, good.own_buffers[1], bs.memory.Buffer.of(b"ab"))
    with pytest.raises(InvalidDataError, match="offsets"):
        bs.concat_arrays([good] * (count - 1) + [bad])


@pytest.mark.parametrize("count", [2, 3 * MIN_ARRAYS])
def test_offsets_whose_differences_exceed_64_bits_are_rejected(count: int) -> None:
    good = bs.array(["abc"], bs.large_string())
    offsets = np.array([0, (1 << 63) - 1, -(1 << 63) + 4, 3])  # modulo 2**64, all differences are positive
    bad = bs.Array(good.layout, 3, (None, bs.memory.Buffer.of(offsets), good.own_buffers[2]))
    with pytest.raises(InvalidDataError, match="offsets"):
        bs.concat_arrays([good] * (count - 1) + [bad])


@pytest.mark.parametrize("count", [2, 3 * MIN_ARRAYS])
def test_missing_values_are_rejected(count: int) -> None:
    good = bs.array([1, 2, 3])
    short = good.slice(0)
    short.own_buffers = (None, bs.memory.Buffer.of(bytes(8)))
    with pytest.raises(InvalidDataError, match=r"elements 0 to 3 .* are out of range"):
        bs.concat_arrays([good] * (count - 1) + [short])


@pytest.mark.parametrize("count", [2, 3 * MIN_ARRAYS])
@pytest.mark.parametrize(("offset", "length"), [(0, 1 << 61), (1 << 61, 1)], ids=["length", "offset"])
def test_sizes_that_exceed_64_bits_are_rejected(count: int, offset: int, length: int) -> None:
    good = bs.array([1, 2, 3])
    bad = bs.Array(good.layout, length, (None, good.own_buffers[1]), (), None, 0, offset)
    with pytest.raises(InvalidDataError, match="are out of range"):
        bs.concat_arrays([good] * (count - 1) + [bad])


_WHOLE_TYPES: dict[str, tuple[bs.DataType, st.SearchStrategy[Any]]] = {
    "int32": (bs.int32(), st.integers(-5, 5)),
    "bool": (bs.bool_(), st.booleans()),
    "string": (bs.string(), st.text(max_size=3)),
    "list": (bs.list_(bs.string()), st.lists(st.none() | st.text(max_size=2), max_size=3)),
    "struct": (bs.struct([bs.field("a", bs.int8())]), st.fixed_dictionaries({"a": st.none() | st.integers(0, 3)})),
    "dictionary": (bs.dictionary(bs.int8(), bs.string()), st.sampled_from("abc")),
    "fixed": (bs.list_(bs.int8(), 2), st.lists(st.integers(0, 3), min_size=2, max_size=2)),
    "null": (bs.null(), st.none()),
    "uuid": (bs.datatypes.uuid(), st.uuids()),
}


@pytest.mark.parametrize("name", _WHOLE_TYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_many_whole_arrays_have_the_values_of_all(name: str, data: st.DataObject) -> None:
    type_, values = _WHOLE_TYPES[name]
    rows = data.draw(st.lists(st.lists(st.none() | values, max_size=9), min_size=1, max_size=6)) * 12
    arrays = [bs.array(some, type_) for some in rows]
    concatenated = bs.concat_arrays(arrays)
    concatenated.validate(full=True)
    assert concatenated.to_pylist() == [value for some in rows for value in some]
    assert arrays_equal(concat_and_unify(arrays), concatenated, nans_equal=False)


@pytest.mark.parametrize(
    "odd",
    [
        bs.array([1, 2, 3]).slice(1),
        bs.Array.from_buffers(bs.int64(), 1, [None, bs.memory.Buffer.of(bytes(16)).slice(8)]),
    ],
    ids=["a slice", "a range"],
)
def test_slices_and_ranges_are_concatenated_with_whole_buffers(odd: bs.Array) -> None:
    arrays = [bs.array([1])] * MIN_ARRAYS + [odd]
    assert bs.concat_arrays(arrays).to_pylist() == [1] * MIN_ARRAYS + odd.to_pylist()


def test_views_with_any_number_of_buffers_are_concatenated() -> None:
    arrays = [bs.array([letter * 20, letter], bs.string_view()) for letter in "abc"] * MIN_ARRAYS
    assert bs.concat_arrays(arrays).to_pylist() == ["a" * 20, "a", "b" * 20, "b", "c" * 20, "c"] * MIN_ARRAYS


def test_a_bitmap_that_is_too_short_is_rejected() -> None:
    arrays = [bs.array([1, None] * 8) for _ in range(MIN_ARRAYS)]
    bad = arrays[-1].slice(0)
    bad = bs.Array(bad.layout, bad.length, (bs.memory.Buffer.of(b"\x01"), bad.own_buffers[1]))
    with pytest.raises(InvalidDataError, match="bitmap of 1 bytes"):
        bs.concat_arrays([*arrays, bad])


def test_buffers_longer_than_their_slots_are_truncated() -> None:
    padded = [
        bs.Array.from_buffers(bs.int16(), 1, [None, bs.memory.Buffer.of(bytes([at, 0, 9, 9]))])
        for at in range(MIN_ARRAYS)
    ]
    assert bs.concat_arrays(padded).to_pylist() == list(range(MIN_ARRAYS))
    strings = bs.Array.from_buffers(bs.string(), 1, [None, np.array([1, 3], np.int32), b"xabx"])
    assert bs.concat_arrays([strings] * MIN_ARRAYS).to_pylist() == ["ab"] * MIN_ARRAYS


@pytest.mark.parametrize("count", [MIN_ARRAYS, 5000])
def test_new_arrays_are_concatenated_without_the_addresses_of_their_buffers(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    # To create each takes several times as long as all else.
    arrays = [bs.array([f"row {index}"] * 10) for index in range(count)]
    created = []

    def create(owner: Any) -> Memory:
        created.append(owner)
        return Memory(owner)

    monkeypatch.setattr(buffer, "Memory", create)
    array = bs.concat_arrays(arrays)
    assert len(created) < MIN_ARRAYS
    assert array.to_pylist() == [f"row {index}" for index in range(count) for _ in range(10)]


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_buffers_with_unused_bytes_are_concatenated_on_both_sides_of_the_limit(excess: int) -> None:
    unused = concatenation._MAX_PADDING_BYTES + excess
    arrays = [
        bs.Array.from_buffers(bs.uint8(), 3, [None, np.arange(index, index + 3 + unused).astype(np.uint8)])
        for index in range(MIN_ARRAYS)
    ]
    assert concat(*arrays).to_pylist() == [index + step for index in range(MIN_ARRAYS) for step in range(3)]
