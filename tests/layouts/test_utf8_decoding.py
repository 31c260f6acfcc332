"""UTF-8 is validated by block, and exactly what Python decodes is valid; errors name the value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8_decoding
from tests.layouts.decoding import is_decodable

BLOCK_VALUES = 1 << 15
"""The number of values that are checked at once."""


def string_array(strings: list[bytes], valid: np.ndarray | None = None) -> bs.Array:
    offsets = np.cumsum([0, *map(len, strings)], dtype=np.int32)
    bits = None if valid is None else np.packbits(valid, bitorder="little").tobytes()
    return bs.Array.from_buffers(bs.string(), len(strings), [bits, offsets, b"".join(strings)])


@pytest.mark.parametrize(
    "at", [0, 1, BLOCK_VALUES - 2, BLOCK_VALUES - 1, BLOCK_VALUES, 2 * BLOCK_VALUES - 1, 2 * BLOCK_VALUES]
)
def test_a_split_character_is_found_at_block_boundaries(at: int) -> None:
    strings = [b"\xc3\xa9"] * (2 * BLOCK_VALUES + 3)
    string_array(strings).validate(full=True)
    strings[at], strings[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8: b'\\xc3'"):
        string_array(strings).validate(full=True)


@pytest.mark.parametrize("at", [0, BLOCK_VALUES - 1, BLOCK_VALUES, BLOCK_VALUES + 5])
def test_a_stray_byte_is_found_among_ascii(at: int) -> None:
    strings = [b"plain"] * (BLOCK_VALUES + 6)
    strings[at] = b"\xff"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\]"):
        string_array(strings).validate(full=True)
    valid = np.arange(len(strings)) != at
    string_array(strings, valid).validate(full=True)


def test_blocks_of_empty_strings_are_valid() -> None:
    string_array([b""] * (BLOCK_VALUES + 1)).validate(full=True)
    string_array([b"\xc3\xa9"] + [b""] * (2 * BLOCK_VALUES) + [b"\xc3\xa9"]).validate(full=True)


def test_bytes_before_and_after_the_strings_are_ignored() -> None:
    inside = "grün".encode()
    offsets = np.array([2, 2 + len(inside)], np.int32)
    bs.Array.from_buffers(bs.string(), 1, [None, offsets, b"\xff\xff" + inside + b"\xff"]).validate(full=True)


BLOCK_LENGTH = 1 << 13
"""So many values are cut up at once."""
LENGTHS = [0, 1, 2, BLOCK_LENGTH - 1, BLOCK_LENGTH, BLOCK_LENGTH + 1, 2 * BLOCK_LENGTH + 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_strings_are_preserved_across_blocks(length: int) -> None:
    strings = [["", "plain", "größer", "天地玄黃", "👍🏽", "a\0b", "\n"][index % 7] for index in range(length)]
    assert bs.array(strings, bs.string()).to_pylist() == strings
    assert bs.array(strings, bs.string_view()).to_pylist() == strings
    assert bs.array(strings, bs.large_string()).slice(length // 2).to_pylist() == strings[length // 2 :]
    raw = [word.encode() for word in strings]
    assert bs.array(raw, bs.binary()).to_pylist() == raw


@pytest.mark.parametrize("length", LENGTHS)
def test_nulls_are_preserved_across_blocks(length: int) -> None:
    strings = [None if index % 3 == 1 or index >= BLOCK_LENGTH - 1 else str(index) for index in range(length)]
    assert bs.array(strings, bs.string()).to_pylist() == strings
    numbers = [None if word is None else int(word) for word in strings]
    assert bs.array(numbers, bs.int32()).to_pylist() == numbers
    assert bs.array(numbers, bs.date32()).cast(bs.int32()).to_pylist() == numbers


@pytest.mark.parametrize("is_text", [True, False])
def test_values_with_every_control_character_are_preserved(is_text: bool) -> None:
    every = bytes(range(33))
    raw = [every, b"", every[:5], b"\x00", b"x" * 3000, every[::-1]]
    values = [value.decode() for value in raw] if is_text else raw
    assert bs.array(values).to_pylist() == values


@pytest.mark.parametrize("at", [0, BLOCK_LENGTH - 2, BLOCK_LENGTH - 1, BLOCK_LENGTH, BLOCK_LENGTH + 1])
def test_invalid_text_is_named_at_block_boundaries(at: int) -> None:
    strings = [b"\xc3\xa9"] * (BLOCK_LENGTH + 3)
    strings[at], strings[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8"):
        string_array(strings).to_pylist()
    valid = ~np.isin(np.arange(len(strings)), [at, at + 1])
    assert string_array(strings, valid).to_pylist() == ["é"] * at + [None, None] + ["é"] * (len(strings) - at - 2)


def test_invalid_text_is_named_by_its_index_among_all_list_elements() -> None:
    strings = [b"ok"] * 9000
    strings[8999] = b"\xff"
    lists = bs.Array.from_buffers(
        bs.list_(bs.string()), 4500, [None, np.arange(0, 9001, 2, dtype=np.int32)], [string_array(strings)]
    )
    with pytest.raises(InvalidDataError, match=r"values\[8999\]"):
        lists.to_pylist()


BYTES = bytes.fromhex("0041 7f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f8ff")
"""Bytes on both sides of every rule."""


def is_utf8(data: bytes) -> bool:
    return utf8_decoding.find_invalid_byte(np.frombuffer(data, np.uint8)) is None


@given(st.text(max_size=30), st.integers(0, 60), st.sampled_from(BYTES), st.sampled_from([4, 7, 64]))
def test_a_changed_byte_is_detected_at_every_block_boundary(text: str, index: int, byte: int, block_bytes: int) -> None:
    whole = text.encode()
    changed = whole[:index] + bytes([byte]) + whole[index + 1 :]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(utf8_decoding, "_BLOCK_BYTES", block_bytes)
        for data in (whole, changed, whole[:index], whole[index:]):
            assert is_utf8(data) == is_decodable(data)


@pytest.mark.parametrize("end", [b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8"])
def test_an_error_in_long_text_is_named_by_the_index_of_its_value(end: bytes) -> None:
    strings = ["größer", "天地玄黃", "ok 👍🏽"] * 5000
    data = "".join(strings).encode() + end
    offsets = np.cumsum([0, *(len(word.encode()) for word in strings), len(end)], dtype=np.int32)
    array = bs.Array.from_buffers(bs.string(), len(strings) + 1, [None, offsets, data])
    array[:-1].validate(full=True)
    with pytest.raises(InvalidDataError, match=r"values\[15000\] is not valid UTF-8"):
        array.validate(full=True)
