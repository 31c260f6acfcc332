"""Many arrays are joined by addresses, few by views: both give what the values say."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidDataError
from bowstring.layouts import array_batcher, concatenation
from bowstring.layouts.array import Array

_VALUES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int32": (bs.int32(), st.integers(-5, 5)),
    "bool": (bs.bool_(), st.booleans()),
    "string": (bs.string(), st.text(max_size=5)),
    "large_binary": (bs.large_binary(), st.binary(max_size=5)),
    "list": (bs.list_(bs.int8()), st.lists(st.integers(-5, 5), max_size=3)),
}


@st.composite
def _pieces(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[tuple[list[Any], int, int]]:
    """Some lists of values, each with a place to cut it, repeated until they are many."""
    one = st.tuples(st.lists(st.none() | values, max_size=20), st.integers(0, 9), st.integers(0, 20))
    return draw(st.lists(one, min_size=1, max_size=4)) * draw(st.sampled_from([1, 20]))


@pytest.mark.parametrize("name", _VALUES)
@given(data=st.data())
def test_slices_joined_have_the_values_of_all(name: str, data: st.DataObject) -> None:
    kind, values = _VALUES[name]
    made: dict[str, Array] = {}
    arrays = []
    expected: list[Any] = []
    for held, offset, length in data.draw(_pieces(values)):
        whole = made.setdefault(repr(held), bs.array(held, kind))
        arrays.append(whole.slice(min(offset, len(held)), length))
        expected += held[offset : offset + length]
    joined = bs.concat_arrays(arrays)
    joined.validate(full=True)
    assert joined.to_pylist() == expected
    assert joined.null_count == expected.count(None)


def _arrays() -> Sequence[Array]:
    return [
        bs.array([None, "a", "bc" * (i % 3)], bs.string()).slice(i % 2) for i in range(2 * array_batcher.MIN_ARRAYS)
    ]


def test_addresses_and_views_join_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = _arrays()
    gathered = bs.concat_arrays(arrays)
    monkeypatch.setattr(array_batcher, "MIN_ARRAYS", len(arrays) + 1)
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
def test_arrays_of_another_kind_are_joined_by_their_bytes(odd: Any, number_type: bs.DataType) -> None:
    plain = bs.Buffer.of(np.arange(2))
    buffers = [plain, bs.Buffer.of(odd)] * array_batcher.MIN_ARRAYS
    joined = bs.concat_arrays([bs.Array.from_buffers(number_type, 2, [None, buffer]) for buffer in buffers])
    assert joined.values(1).tobytes() == b"".join(buffer.to_bytes()[:16] for buffer in buffers)


def test_memories_far_from_each_other_are_joined() -> None:
    """Addresses of a mapping, of the heap and of the interpreter's own objects, long and short stretches among them."""
    with mmap.mmap(-1, 1 << 20) as mapped:
        mapped[:4096] = bytes(range(256)) * 16
        owners = [mapped, np.arange(5, dtype=np.int8), bytes(range(9)), b"", mapped]
        held = [bs.Buffer.of(owner) for owner in owners * 20]
        sizes = np.array([700, 5, 8, 0, 3] * 20)
        starts = np.array([17, 0, 1, 0, 4090] * 20)
        arrays = [bs.Array.from_buffers(bs.binary(), 0, [None, None, buffer]) for buffer in held]
        joined = concatenation.concat_bytes(arrays, 2, starts, sizes).tobytes()
        spans = zip(held, starts.tolist(), sizes.tolist(), strict=True)
        assert joined == b"".join(buffer.to_bytes()[start : start + size] for buffer, start, size in spans)
        del arrays, held, owners, spans


@pytest.mark.parametrize("count", [2, 3 * array_batcher.MIN_ARRAYS])
def test_offsets_beyond_the_data_are_refused(count: int) -> None:
    good = bs.array(["abc"])
    bad = bs.Array.from_buffers(bs.string(), 1, [None, good.buffers[1], b"abc"])
    bad.buffers = (None, good.buffers[1], bs.Buffer.of(b"ab"))
    with pytest.raises(InvalidDataError, match="offsets"):
        bs.concat_arrays([good] * (count - 1) + [bad])


@pytest.mark.parametrize("count", [2, 3 * array_batcher.MIN_ARRAYS])
def test_values_that_are_not_there_are_refused(count: int) -> None:
    good = bs.array([1, 2, 3])
    short = good.slice(0)
    short.buffers = (None, bs.Buffer.of(bytes(8)))
    with pytest.raises(InvalidDataError, match=r"elements 0 to 3 .* are out of range"):
        bs.concat_arrays([good] * (count - 1) + [short])
