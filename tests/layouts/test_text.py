"""UTF-8 is validated by block: errors at block boundaries are found and named correctly."""

from __future__ import annotations

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError

BLOCK = 1 << 15
"""So many values are checked at once."""


def strings(words: list[bytes], valid: np.ndarray | None = None) -> bs.Array:
    cuts = np.cumsum([0, *map(len, words)], dtype=np.int32)
    bits = None if valid is None else np.packbits(valid, bitorder="little").tobytes()
    return bs.Array.from_buffers(bs.string(), len(words), [bits, cuts, b"".join(words)])


@pytest.mark.parametrize("at", [0, 1, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK])
def test_a_split_character_is_found_at_block_boundaries(at: int) -> None:
    words = [b"\xc3\xa9"] * (2 * BLOCK + 3)
    strings(words).validate(full=True)
    words[at], words[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8: b'\\xc3'"):
        strings(words).validate(full=True)


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, BLOCK + 5])
def test_a_stray_byte_is_found_among_ascii(at: int) -> None:
    words = [b"plain"] * (BLOCK + 6)
    words[at] = b"\xff"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\]"):
        strings(words).validate(full=True)
    valid = np.arange(len(words)) != at
    strings(words, valid).validate(full=True)


def test_blocks_of_empty_strings_are_valid() -> None:
    strings([b""] * (BLOCK + 1)).validate(full=True)
    strings([b"\xc3\xa9"] + [b""] * (2 * BLOCK) + [b"\xc3\xa9"]).validate(full=True)


def test_bytes_before_and_after_the_strings_are_ignored() -> None:
    inside = "grün".encode()
    cuts = np.array([2, 2 + len(inside)], np.int32)
    bs.Array.from_buffers(bs.string(), 1, [None, cuts, b"\xff\xff" + inside + b"\xff"]).validate(full=True)


CUT = 1 << 13
"""So many values are cut up at once."""
LENGTHS = [0, 1, 2, CUT - 1, CUT, CUT + 1, 2 * CUT + 1]


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
    words = [None if index % 3 == 1 or index >= CUT - 1 else str(index) for index in range(length)]
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


@pytest.mark.parametrize("at", [0, CUT - 2, CUT - 1, CUT, CUT + 1])
def test_invalid_text_is_named_at_block_boundaries(at: int) -> None:
    words = [b"\xc3\xa9"] * (CUT + 3)
    words[at], words[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is not valid UTF-8"):
        strings(words).to_pylist()
    valid = ~np.isin(np.arange(len(words)), [at, at + 1])
    assert strings(words, valid).to_pylist() == ["é"] * at + [None, None] + ["é"] * (len(words) - at - 2)


def test_invalid_text_is_named_by_its_index_among_all_list_elements() -> None:
    words = [b"ok"] * 9000
    words[8999] = b"\xff"
    lists = bs.Array.from_buffers(
        bs.list_(bs.string()), 4500, [None, np.arange(0, 9001, 2, dtype=np.int32)], [strings(words)]
    )
    with pytest.raises(InvalidDataError, match=r"values\[8999\]"):
        lists.to_pylist()
