"""Delta dictionaries: the values equal the concatenated deltas, and arrays share the growing memory."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.dictionaries.delta import DeltaDictionary
from bowstring.ipc.dictionaries.reader import DictionarySnapshot

CASES: dict[str, tuple[bs.DataType, list[Any]]] = {
    "int": (bs.int32(), [1, None, 3, -7]),
    "bool": (bs.bool_(), [True, None, False]),
    "text": (bs.string(), ["a", "", None, "a longer one"]),
    "bytes": (bs.large_binary(), [b"x", None, b"yz"]),
    "fixed bytes": (bs.binary(3), [b"abc", None]),
    "null": (bs.null(), [None]),
    "view": (bs.string_view(), ["short", None, "a string of more than twelve bytes"]),
    "list": (bs.list_(bs.string()), [["a", None], [], None, ["b"]]),
    "fixed list": (bs.list_(bs.int16(), 2), [[1, 2], None, [None, 3]]),
    "struct": (bs.struct({"p": bs.int8(), "q": bs.string()}), [{"p": 1, "q": "x"}, None, {"p": None, "q": "y"}]),
    "map": (bs.map_(bs.string(), bs.int64()), [[("k", 1)], [], None]),
    "runs": (bs.run_end_encoded(bs.int16(), bs.int32()), [7, 7, None, 8]),
    "union": (bs.dense_union({"i": bs.int32(), "s": bs.string()}), [1, "s", 2]),
    "uuid": (bs.datatypes.uuid(), [b"0123456789abcdef", None]),
}


@pytest.mark.parametrize("name", CASES)
def test_deltas_of_every_layout_are_concatenated_and_earlier_arrays_do_not_change(name: str) -> None:
    type_, values = CASES[name]
    random.seed(name)
    parts = []
    for _ in range(40):
        part = bs.array(random.choices(values, k=random.randrange(12)), type_)
        parts.append(part.slice(random.randrange(3)))
    chain, concatenated = DeltaDictionary([[parts[0]]]), []
    for count, part in enumerate(parts[1:], 2):
        chain.parts.append([part])
        concatenated.append(chain.concat(count))
    shown = [value for part in parts for value in part.to_pylist()]
    for array in [*concatenated, chain.concat(7)]:
        array.validate(full=True)
        assert array.to_pylist() == shown[: array.length]
    assert concatenated[-1].length == len(shown)


@pytest.mark.parametrize("null_at", [None, 0, 500])
def test_arrays_share_the_growing_memory(null_at: int | None) -> None:
    values = [None if number == null_at else str(number) for number in range(1000)]
    chain = DeltaDictionary([[bs.array([value], bs.string())] for value in values])
    arrays = [chain.concat(count) for count in range(2, 1001)]
    assert arrays[-1].to_pylist() == values
    assert [one.length for one in arrays] == list(range(2, 1001))
    # Each has a validity bitmap of its own.
    memories = {
        id(buffer.memory): buffer.memory.size for one in arrays for buffer in one.own_buffers[1:] if buffer is not None
    }
    last = sum(buffer.size for buffer in arrays[-1].own_buffers[1:] if buffer is not None)
    assert sum(memories.values()) <= 6 * last


def test_several_threads_may_concatenate() -> None:
    chain = DeltaDictionary([[bs.array([number, None])] for number in range(200)])
    arrays: list[bs.Array] = []
    threads = [
        threading.Thread(target=lambda: arrays.extend(map(chain.concat, random.sample(range(2, 201), 150))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(arrays) == 600
    for array in arrays:
        assert array.to_pylist() == [value for number in range(array.length // 2) for value in (number, None)]


def test_a_malformed_delta_always_raises_and_earlier_deltas_stay_valid() -> None:
    bad = bs.Array.from_buffers(bs.string(), 2, [None, bs.array([0, 9, 3], bs.int32()).own_buffers[1], b"abc"])
    chain = DeltaDictionary([[bs.array(["a"])], [bs.array(["b"])], [bad]])
    assert chain.concat(2).to_pylist() == ["a", "b"]
    for _ in range(2):
        with pytest.raises(errors.InvalidDataError, match="offsets"):
            chain.concat(3)
    assert chain.concat(2).to_pylist() == ["a", "b"]


def test_a_delta_with_too_short_children_is_rejected() -> None:
    type_ = bs.struct({"p": bs.int8()})
    whole = bs.array([{"p": 1}, {"p": 2}], type_)
    short = bs.Array(whole.layout, 5, whole.own_buffers, whole.children)
    with pytest.raises(errors.InvalidDataError, match="child 'p' has 2 values"):
        DeltaDictionary([[whole], [short]]).concat(2)


def test_a_dictionary_may_grow_in_two_ways() -> None:
    start = DictionarySnapshot(DeltaDictionary([[bs.array(["a"])]]), 1)
    left, right = start.extend([bs.array(["b"])]), start.extend([bs.array(["c", "d"])])
    assert [snapshot.to_array().to_pylist() for snapshot in (left, right, start)] == [
        ["a", "b"],
        ["a", "c", "d"],
        ["a"],
    ]


@pytest.mark.parametrize(
    "type_", [bs.struct({}), bs.list_(bs.int8(), 0), bs.null(), bs.run_end_encoded(bs.int64(), bs.int8())]
)
def test_values_without_bytes_are_not_concatenated_without_limit(type_: bs.DataType) -> None:
    small = bs.array([None], type_)
    if small.layout.has_validity:
        huge = bs.Array(small.layout, 1 << 40, (None,), tuple(child.slice(0, 0) for child in small.children), None, 0)
    else:
        huge = bs.Array(small.layout, 1 << 40, (), small.children)
    if small.children and not small.layout.buffers:
        ends = bs.array([1 << 40], bs.int64())
        huge = bs.Array(small.layout, 1 << 40, (), (ends, bs.array([1], bs.int8())))
    for parts in ([huge, small], [small, huge, huge]):
        with pytest.raises(errors.LimitError, match="materializing"):
            DeltaDictionary([[part] for part in parts]).concat(len(parts))


def test_nested_values_are_not_concatenated_without_limit() -> None:
    type_ = bs.large_list(bs.struct({}))
    parts = [bs.array([[None]], type_), bs.array([[{}]], type_)]
    empty = bs.Array(parts[1].children[0].layout, 1 << 40, (None,), (), None, 0)
    offsets = bs.array([0, 1 << 40], bs.int64()).own_buffers[1]
    parts.append(bs.Array(parts[1].layout, 1, (None, offsets), (empty,)))
    with pytest.raises(errors.LimitError, match="materializing"):
        DeltaDictionary([[part] for part in parts]).concat(3)
