"""UTF-8 is checked a block at a time: nothing may slip through, or be named wrongly, where blocks meet."""

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
def test_a_character_cut_in_two_is_found_wherever_blocks_meet(at: int) -> None:
    words = [b"\xc3\xa9"] * (2 * BLOCK + 3)
    strings(words).validate(full=True)
    words[at], words[at + 1] = b"\xc3", b"\xa9"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\] is no UTF-8: b'\\xc3'"):
        strings(words).validate(full=True)


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, BLOCK + 5])
def test_a_stray_byte_is_found_among_ascii(at: int) -> None:
    words = [b"plain"] * (BLOCK + 6)
    words[at] = b"\xff"
    with pytest.raises(InvalidDataError, match=rf"values\[{at}\]"):
        strings(words).validate(full=True)
    valid = np.arange(len(words)) != at
    strings(words, valid).validate(full=True)


def test_blocks_of_nothing_but_empty_strings_are_text() -> None:
    strings([b""] * (BLOCK + 1)).validate(full=True)
    strings([b"\xc3\xa9"] + [b""] * (2 * BLOCK) + [b"\xc3\xa9"]).validate(full=True)


def test_bytes_before_and_behind_the_strings_do_not_count() -> None:
    inside = "grün".encode()
    cuts = np.array([2, 2 + len(inside)], np.int32)
    bs.Array.from_buffers(bs.string(), 1, [None, cuts, b"\xff\xff" + inside + b"\xff"]).validate(full=True)
