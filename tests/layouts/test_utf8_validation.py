"""Validation of UTF-8 by block accepts exactly what Python decodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8
from tests.layouts.decoding import is_decodable

BYTES = bytes.fromhex("0041 7f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f8ff")
"""Bytes on both sides of every rule."""


def is_utf8(data: bytes) -> bool:
    return utf8.find_invalid_byte(np.frombuffer(data, np.uint8)) is None


@given(st.text(max_size=30), st.integers(0, 60), st.sampled_from(BYTES), st.sampled_from([4, 7, 64]))
def test_a_changed_byte_is_detected_at_every_block_boundary(text: str, index: int, byte: int, block_bytes: int) -> None:
    whole = text.encode()
    changed = whole[:index] + bytes([byte]) + whole[index + 1 :]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(utf8, "_BLOCK_BYTES", block_bytes)
        for data in (whole, changed, whole[:index], whole[index:]):
            assert is_utf8(data) == is_decodable(data)


@pytest.mark.parametrize("end", [b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8"])
def test_an_error_in_long_text_is_named_by_the_index_of_its_value(end: bytes) -> None:
    words = ["größer", "天地玄黃", "ok 👍🏽"] * 5000
    data = "".join(words).encode() + end
    cuts = np.cumsum([0, *(len(word.encode()) for word in words), len(end)], dtype=np.int32)
    array = bs.Array.from_buffers(bs.string(), len(words) + 1, [None, cuts, data])
    array[:-1].validate(full=True)
    with pytest.raises(InvalidDataError, match=r"values\[15000\] is not valid UTF-8"):
        array.validate(full=True)
