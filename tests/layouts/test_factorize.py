"""Equal byte strings get the same number, even if hashes of different strings collide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.layouts import factorize as factorize_module

WORDS = st.one_of(
    st.binary(max_size=3),
    st.builds(
        lambda length, at: bytes(length)[:at] + b"\1" + bytes(length)[at + 1 :],
        st.integers(1, 40),
        st.integers(0, 40),
    ),
    st.sampled_from([b"", b"x" * 127, b"x" * 128, b"x" * 129, b"x" * 600, b"x" * 599 + b"y", b"y" + b"x" * 599]),
)


def factorize(values: list[bytes]) -> list[int]:
    offsets = np.cumsum([0, *map(len, values)])
    return list(factorize_module.byte_string_codes(np.frombuffer(b"".join(values), np.uint8), offsets).tolist())


def check_numbers(values: list[bytes]) -> None:
    numbers = factorize(values)
    first = {value: index for index, value in reversed(list(enumerate(values)))}
    first_indices = {number: index for index, number in reversed(list(enumerate(numbers)))}
    assert [first_indices[number] for number in numbers] == [first[value] for value in values]
    assert all(0 <= number < len(values) for number in numbers)


@settings(max_examples=100)
@given(st.lists(WORDS, max_size=30))
def test_equal_strings_have_the_same_number(values: list[bytes]) -> None:
    check_numbers(values)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 24, 25, 100])
def test_strings_that_differ_in_one_byte_have_different_numbers(length: int) -> None:
    zeros = bytes(length)
    values = [zeros[:at] + bytes((value,)) + zeros[at + 1 :] for at in range(length) for value in (0, 1, 255)]
    check_numbers([*values, zeros[1:], zeros, *values])


@pytest.mark.parametrize("distinct", [1, 3, 5_000, 70_000])
def test_few_and_many_distinct_strings_are_numbered(distinct: int) -> None:
    random = np.random.default_rng(7)
    check_numbers([b"word %d" % number for number in random.integers(0, distinct, 70_000).tolist()])


@pytest.mark.parametrize("bits", [0, 2])
def test_strings_with_colliding_hashes_have_different_numbers(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorize_module, "_MULTIPLIER", np.uint64(0))
    check_numbers([b"word %d" % (number % 40) for number in range(400)])
    monkeypatch.undo()
    whole = factorize_module._hash_strings
    monkeypatch.setattr(factorize_module, "_hash_strings", lambda *args: whole(*args) & np.uint64((1 << bits) - 1))
    check_numbers([b"word %d" % (number % 40) for number in range(400)])


@pytest.mark.parametrize("rounds", [0, 1])
def test_strings_left_over_by_the_hash_table_are_sorted(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorize_module, "_ROUNDS", rounds)
    check_numbers([b"word %d" % (number * number % 5_003) for number in range(20_000)])


@pytest.mark.parametrize("type_", [bs.string(), bs.large_binary(), bs.string_view(), bs.binary_view(), bs.binary(9)])
def test_all_layouts_of_strings_are_encoded_like_in_pyarrow(type_: bs.DataType) -> None:
    pa = pytest.importorskip("pyarrow")
    words = [f"word {number % 13:4}" for number in range(300)]
    values = [None if number % 7 == 0 else word for number, word in enumerate(words)]
    if "binary" in str(type_):
        values = [value and value.encode() for value in values]  # type: ignore[misc]
    array = bs.array([values[0], *values], type_)[1:]
    encoded, peer = (
        array.dictionary_encode(),
        pa.array(array).cast(pa.string() if values[1] == words[1] else pa.binary()),
    )
    expected = peer.dictionary_encode()
    assert encoded.to_pylist() == values
    assert encoded.dictionary is not None
    assert encoded.dictionary.to_pylist() == expected.dictionary.to_pylist()
    assert array.unique().to_pylist() == peer.unique().to_pylist()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
def test_the_whole_range_of_integers_is_encoded(dtype: str) -> None:
    limits = np.iinfo(dtype)
    near = [limits.max, limits.max - 1, limits.max, limits.max - 100]
    for values in (near, [limits.min, *near, limits.min], [limits.min + 1, limits.min, limits.min + 90, limits.min]):
        array = bs.array(np.array(values, dtype))
        assert array.unique().to_pylist() == list(dict.fromkeys(values))
        with_nulls = bs.array([None, *values, None], array.type)
        assert with_nulls.unique().to_pylist() == [None, *dict.fromkeys(values)]
        assert with_nulls.dictionary_encode().to_pylist() == [None, *values, None]
