"""Byte strings compare like those of Python, many at once and a few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bowstring.layouts.byte_comparison import are_bytes_equal, compare_bytes
from bowstring.layouts.sort_keys import ByteStrings

SIMILAR = st.binary(max_size=3).flatmap(
    lambda end: st.sampled_from([*range(35), 511, 600]).map(lambda n: b"a" * n + end)
)


def as_byte_strings(values: list[bytes]) -> ByteStrings:
    """Return the bytes of the values end to end, and their starts and lengths."""
    offsets = np.cumsum([0, *map(len, values)])
    return np.frombuffer(b"".join(values), np.uint8), offsets[:-1], np.diff(offsets)


def check(lefts: list[bytes], rights: list[bytes]) -> None:
    left, right = as_byte_strings(lefts), as_byte_strings(rights)
    pairs = list(zip(lefts, rights if len(rights) == len(lefts) else rights * len(lefts), strict=True))
    assert np.sign(compare_bytes(left, right)).tolist() == [(a > b) - (a < b) for a, b in pairs]
    assert are_bytes_equal(left, right).tolist() == [a == b for a, b in pairs]


@given(values=st.lists(SIMILAR), bound=SIMILAR)
@pytest.mark.parametrize("repeats", [1, 20])
def test_strings_compare_with_one_as_those_of_python(values: list[bytes], bound: bytes, repeats: int) -> None:
    check([*values, bound, bound + b"\0", bound[:-1]] * repeats, [bound])


@given(pairs=st.lists(st.tuples(SIMILAR, SIMILAR)))
@pytest.mark.parametrize("repeats", [1, 20])
def test_pairs_of_strings_compare_as_those_of_python(pairs: list[tuple[bytes, bytes]], repeats: int) -> None:
    pairs = [*pairs, *((value, value) for value, _ in pairs)] * repeats
    check([left for left, _ in pairs], [right for _, right in pairs])


def test_strings_of_several_blocks_compare_as_those_of_python() -> None:
    lefts = [b"%d" % (number % 1000) * (number % 7) for number in range(20_000)]
    check(lefts, [b"%d" % (number % 999) * (number % 7) for number in range(20_000)])
    check(lefts, [b"55"])
