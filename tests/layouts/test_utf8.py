"""UTF-8 is validated by block: errors at block boundaries are found and named correctly."""

from __future__ import annotations

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError

BLOCK = 1 << 15
"""So many values are checked at once."""


def string_array(words: list[bytes], valid: np.ndarray | None = None) -> bs.Array:
    cuts = np.cumsum([0, *map(len, words)], dtype=np.int32)
    bits = None if valid is None else np.packbits(valid, bitorder="little").tobytes()
    return bs.Array.from_buffers(bs.string(), len(words), [bits, cuts, b"".join(words)])


@pytest.mark.parametrize("at", [0, 1, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK])
def test_a_split_character_is_found_at_block_boundaries(at: int) -> None:
    words = [b"\xc3\xa9"] * (2 * BLOCK + 3)
    string_array(words).validate(full=True)
    words[at], words[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8: b'\\xc3'"):
        string_array(words).validate(full=True)


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, BLOCK + 5])
def test_a_stray_byte_is_found_among_ascii(at: int) -> None:
    words = [b"plain"] * (BLOCK + 6)
    words[at] = b"\xff"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\]"):
        string_array(words).validate(full=True)
    valid = np.arange(len(words)) != at
    string_array(words, valid).validate(full=True)


def test_blocks_of_empty_strings_are_valid() -> None:
    string_array([b""] * (BLOCK + 1)).validate(full=True)
    string_array([b"\xc3\xa9"] + [b""] * (2 * BLOCK) + [b"\xc3\xa9"]).validate(full=True)


def test_bytes_before_and_after_the_strings_are_ignored() -> None:
    inside = "grün".encode()
    cuts = np.array([2, 2 + len(inside)], np.int32)
    bs.Array.from_buffers(bs.string(), 1, [None, cuts, b"\xff\xff" + inside + b"\xff"]).validate(full=True)


BLOCK_LENGTH = 1 << 13
"""So many values are cut up at once."""
LENGTHS = [0, 1, 2, BLOCK_LENGTH - 1, BLOCK_LENGTH, BLOCK_LENGTH + 1, 2 * BLOCK_LENGTH + 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_strings_are_preserved_across_blocks(length: int) -> None:
    words = [["", "plain", "größer", "天地玄黃", "👍🏽", "a\0b", "\n"][index % 7] for index in range(length)]
    assert bs.array(words, bs.string()).to_pylist() == words
    assert bs.array(words, bs.string_view()).to_pylist() == words
    assert bs.array(words, bs.large_string()).slice(length // 2).to_pylist() == words[length // 2 :]
    raw = [word.encode() for word in words]
    assert bs.array(raw, bs.binary()).to_pylist() == raw


@pytest.mark.parametrize("length", LENGTHS)
def test_nulls_are_preserved_across_blocks(length: int) -> None:
    words = [None if index % 3 == 1 or index >= BLOCK_LENGTH - 1 else str(index) for index in range(length)]
    assert bs.array(words, bs.string()).to_pylist() == words
    numbers = [None if word is None else int(word) for word in words]
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
    words = [b"\xc3\xa9"] * (BLOCK_LENGTH + 3)
    words[at], words[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8"):
        string_array(words).to_pylist()
    valid = ~np.isin(np.arange(len(words)), [at, at + 1])
    assert string_array(words, valid).to_pylist() == ["é"] * at + [None, None] + ["é"] * (len(words) - at - 2)


def test_invalid_text_is_named_by_its_index_among_all_list_elements() -> None:
    words = [b"ok"] * 9000
    words[8999] = b"\xff"
    lists = bs.Array.from_buffers(
        bs.list_(bs.string()), 4500, [None, np.arange(0, 9001, 2, dtype=np.int32)], [string_array(words)]
    )
    with pytest.raises(InvalidDataError, match=r"values\[8999\]"):
        lists.to_pylist()
