"""Byte strings compare with a bound like those of Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from bowstring.layouts.sort_keys import ByteStrings, compare_bytes

SIMILAR = st.binary(max_size=3).flatmap(
    lambda end: st.sampled_from([*range(35), 511, 600]).map(lambda n: b"a" * n + end)
)


def as_byte_strings(values: list[bytes]) -> ByteStrings:
    """Return the bytes of the values end to end, and their starts and lengths."""
    offsets = np.cumsum([0, *map(len, values)])
    return np.frombuffer(b"".join(values), np.uint8), offsets[:-1], np.diff(offsets)


@given(values=st.lists(SIMILAR), bound=SIMILAR)
def test_strings_compare_with_a_bound_as_those_of_python(values: list[bytes], bound: bytes) -> None:
    values = [*values, bound, bound + b"\0", bound[:-1]]
    signs = np.sign(compare_bytes(as_byte_strings(values), bound)).tolist()
    assert signs == [(value > bound) - (value < bound) for value in values]
