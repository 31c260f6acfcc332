"""Arrays that claim far more values than they have bytes are refused before anything is spelled out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bowstring as bs

NULLS = bs.Array.from_buffers(bs.null(), 1 << 62, [])
ENDS, WORDS = bs.array([1 << 62]), bs.array(["a"])
RUN = bs.Array.from_buffers(bs.run_end_encoded(bs.int64(), bs.string()), 1 << 62, [], [ENDS, WORDS])
VERBS: dict[str, Callable[[bs.Array], Any]] = {
    "is_null": lambda a: a.is_null(),
    "is_valid": lambda a: a.is_valid(),
    "drop_null": lambda a: a.drop_null(),
    "fill_null": lambda a: a.fill_null(None),
    "sort_indices": lambda a: a.sort_indices(),
    "unique": lambda a: a.unique(),
    "dictionary_encode": lambda a: a.dictionary_encode(),
    "cast": lambda a: a.cast(bs.int8()),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("array", [NULLS, RUN], ids=["nulls", "one run"])
def test_a_verb_on_more_values_than_memory_is_refused(array: bs.Array, verb: str) -> None:
    with pytest.raises(bs.errors.LimitError, match="materializing"):
        VERBS[verb](array)


@pytest.mark.parametrize("child", [NULLS, RUN], ids=["nulls", "one run"])
def test_what_is_nested_is_not_spelled_out_either(child: bs.Array) -> None:
    lists = bs.Array.from_buffers(bs.list_(child.type, (1 << 31) - 1), 1, [None], [child])
    words = bs.Array.from_buffers(bs.dictionary(bs.int8(), NULLS.type), 1, [None, bytes(1)], dictionary=NULLS)
    for verb in (lists.unique, lists.to_pylist, lambda: lists.to_numpy(False), words.is_null, words.unique):
        with pytest.raises(bs.errors.LimitError, match="materializing"):
            verb()


def test_one_long_run_is_not_decoded() -> None:
    with pytest.raises(bs.errors.LimitError, match="materializing"):
        RUN.run_end_decode()
