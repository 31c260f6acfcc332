from __future__ import annotations

import pytest

import bowstring as bs
from bowstring.layouts import interleave


def test_runs_that_exceed_a_numpy_element_are_copied_slot_by_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "_MAX_RUN_BYTES", 3 * 16)
    for list_size in (3, 4):
        width_16 = bs.array([bytes([value]) * 16 for value in range(5 * list_size)], bs.binary(16))
        lists = bs.FixedSizeListArray.from_arrays(width_16, list_size)
        chunks = bs.chunked_array([lists.slice(0, 2), lists.slice(2)])
        assert lists.take([3, 0]).to_pylist() == [lists[3], lists[0]]
        assert chunks.take([3, 0, 4]).to_pylist() == [lists[3], lists[0], lists[4]]


def test_lists_of_elements_without_bytes_are_taken() -> None:
    lists = bs.array([[b"", b""], [], [b""], None, [b""] * 3], bs.list_(bs.binary(0)))
    for taken in (lists.take([4, 0, 2, 1, 3]), bs.chunked_array([lists, lists]).take([4, 5, 7, 1, 3])):
        taken.validate(full=True)
        assert taken.to_pylist() == [[b""] * 3, [b""] * 2, [b""], [], None]
