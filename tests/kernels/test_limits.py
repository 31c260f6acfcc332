"""Functions refuse arrays with far more values than bytes before materialising them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bowstring as bs
from bowstring.layouts import expansion_limits

NULLS = bs.Array.from_buffers(bs.null(), 1 << 62, [])
ENDS, WORDS = bs.array([1 << 62]), bs.array(["a"])
LONG_RUN = bs.Array.from_buffers(bs.run_end_encoded(bs.int64(), bs.string()), 1 << 62, [], [ENDS, WORDS])
METHODS: dict[str, Callable[[bs.Array], Any]] = {
    "is_null": lambda a: a.is_null(),
    "is_valid": lambda a: a.is_valid(),
    "drop_null": lambda a: a.drop_null(),
    "fill_null": lambda a: a.fill_null(None),
    "sort_indices": lambda a: a.sort_indices(),
    "unique": lambda a: a.unique(),
    "dictionary_encode": lambda a: a.dictionary_encode(),
    "cast": lambda a: a.cast(bs.int8()),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("array", [NULLS, LONG_RUN], ids=["nulls", "one run"])
def test_a_function_on_more_values_than_memory_is_rejected(array: bs.Array, method: str) -> None:
    with pytest.raises(bs.errors.LimitError, match="materializing"):
        METHODS[method](array)


@pytest.mark.parametrize("child", [NULLS, LONG_RUN], ids=["nulls", "one run"])
def test_nested_arrays_are_not_materialised(child: bs.Array) -> None:
    lists = bs.Array.from_buffers(bs.list_(child.type, (1 << 31) - 1), 1, [None], [child])
    words = bs.Array.from_buffers(bs.dictionary(bs.int8(), NULLS.type), 1, [None, bytes(1)], dictionary=NULLS)
    for method in (lists.unique, lists.to_pylist, lambda: lists.to_numpy(False), words.is_null, words.unique):
        with pytest.raises(bs.errors.LimitError, match="materializing"):
            method()


def test_one_long_run_is_not_decoded() -> None:
    with pytest.raises(bs.errors.LimitError, match="materializing"):
        LONG_RUN.run_end_decode()


def test_the_limit_for_values_of_the_caller_is_the_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion_limits, "MAX_BYTES", 1 << 10)
    monkeypatch.setattr(expansion_limits, "MAX_VALUES", 1 << 6)
    text = "x" * 1024
    assert bs.repeat(text, 30)[29] == text
    assert bs.array([None] * 30, "string").fill_null(text)[29] == text
    assert bs.chunked_array([[None] * 30], "string").fill_null(text)[29] == text
    assert len(bs.repeat([1] * 100, 30)) == 30
    with pytest.raises(bs.errors.LimitError, match="MAX_BYTES"):
        bs.array([text]).take([0] * 30)
    monkeypatch.setattr(expansion_limits, "available_memory_bytes", lambda: 1 << 14)
    with pytest.raises(bs.errors.LimitError, match="MAX_BYTES"):
        bs.repeat(text, 30)
    with pytest.raises(bs.errors.LimitError, match="MAX_BYTES"):
        bs.array([None] * 30, "string").fill_null(text)
