"""Many bytes are told to be UTF-8 exactly where Python decodes them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8_validation
from tests.layouts.decoding import decodes

EDGES = bytes.fromhex("0041 7f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f8ff")
"""Bytes on both sides of every rule."""


def is_utf8(data: bytes) -> bool:
    return utf8_validation.is_utf8(np.frombuffer(data, np.uint8))


def test_every_pair_of_bytes_is_judged_as_python_does() -> None:
    wrong = [pair for pair in map(bytes, product(range(256), repeat=2)) if is_utf8(pair) != decodes(pair)]
    assert wrong == []


def test_three_bytes_on_the_edges_are_judged_as_python_does() -> None:
    wrong = [some for some in map(bytes, product(EDGES, repeat=3)) if is_utf8(some) != decodes(some)]
    assert wrong == []


@given(st.text(max_size=30), st.integers(0, 60), st.sampled_from(EDGES), st.sampled_from([1, 3, 7, 64]))
def test_a_byte_that_is_changed_counts_wherever_blocks_end(text: str, place: int, byte: int, block_bytes: int) -> None:
    whole = text.encode()
    changed = whole[:place] + bytes([byte]) + whole[place + 1 :]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(utf8_validation, "_BLOCK_BYTES", block_bytes)
        for data in (whole, changed, whole[:place], whole[place:]):
            assert is_utf8(data) == decodes(data)


@pytest.mark.parametrize("end", [b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8"])
def test_a_fault_in_much_text_is_named_by_its_value(end: bytes) -> None:
    words = ["größer", "天地玄黃", "ok 👍🏽"] * 5000
    data = "".join(words).encode() + end
    cuts = np.cumsum([0, *(len(word.encode()) for word in words), len(end)], dtype=np.int32)
    array = bs.Array.from_buffers(bs.string(), len(words) + 1, [None, cuts, data])
    array[:-1].validate(full=True)
    with pytest.raises(InvalidDataError, match=r"values\[15000\] is not valid UTF-8"):
        array.validate(full=True)
