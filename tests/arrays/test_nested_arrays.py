"""Parts of nested and encoded arrays, and arrays of such parts: types and values are those of pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, LimitError, TypeMismatchError

pa = pytest.importorskip("pyarrow")

LISTS: list[list[int | None] | None] = [[1, 2], None, [3, None], [], [4, 5]]
PAIRS: list[list[int | None] | None] = [[1, 2], None, [3, None], [4, 5], [6, 7]]
NESTED: dict[str, Callable[[], Any]] = {
    "list": lambda: pa.array(LISTS),
    "large_list": lambda: pa.array(LISTS, pa.large_list(pa.int64())),
    "list_view": lambda: pa.array(LISTS, pa.list_view(pa.int64())),
    "large_list_view": lambda: pa.array(LISTS, pa.large_list_view(pa.int64())),
    "fixed_size_list": lambda: pa.array(PAIRS, pa.list_(pa.int64(), 2)),
    "map": lambda: pa.array(
        [None if pair is None else [(f"k{value}", value) for value in pair] for pair in LISTS],
        pa.map_(pa.string(), pa.int64()),
    ),
    "struct": lambda: pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}]),
    "dictionary": lambda: pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "run_end_encoded": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), ["a", None, "b"]),
    "sparse_union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3])] * 2),
    "dense_union": lambda: pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["x"])]
    ),
    "int64": lambda: pa.array([1]),
}
PARTS = ["values", "offsets", "sizes", "indices", "dictionary", "run_ends", "keys", "items", "type_codes"]


def as_pyarrow(value: Any) -> Any:
    return [pa.array(each) for each in value] if isinstance(value, list) else pa.array(value)


def find_part(array: Any, name: str) -> Any:
    """A part of an array of pyarrow; None if it has no such attribute. Methods are called."""
    if str(array.type).startswith("map") and name in ("flatten", "value_lengths"):
        array = pa.array(array.to_pylist(), pa.list_(array.type.field(0)))  # pyarrow's maps don't have these
    try:
        part = getattr(array, name, None)
    except pa.ArrowTypeError:  # the offsets of a sparse union
        return None
    return part() if callable(part) else part


@pytest.mark.parametrize("kind", NESTED)
def test_the_parts_of_an_array_are_those_of_pyarrow(kind: str) -> None:
    for array in (NESTED[kind](), NESTED[kind]()[1:]):
        ours = bs.array(array)
        for name in [*PARTS, "flatten", "value_lengths"]:
            expected = find_part(array, name)
            if "union" in kind and array.offset:
                continue  # pyarrow ignores that the array is a slice
            if expected is None:
                if name != "dictionary":
                    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
                        getattr(ours, name)() if name in ("flatten", "value_lengths") else getattr(ours, name)
                continue
            part = getattr(ours, name)() if name in ("flatten", "value_lengths") else getattr(ours, name)
            for each in part if isinstance(part, list) else [part]:
                each.validate(full=True)
            assert as_pyarrow(part) == expected, name


@pytest.mark.parametrize("name", ["values", "offsets", "indices", "keys"])
def test_parts_share_the_memory(name: str) -> None:
    kind = {"indices": "dictionary", "keys": "map"}.get(name, "list")
    array = bs.array(NESTED[kind]())
    part = getattr(array, name)
    own_buffers = [*array.own_buffers, *(b for child in array.children for b in child.own_buffers)]
    own_buffers += [b for child in array.children for grandchild in child.children for b in grandchild.own_buffers]
    addresses = [buffer.bytes.__array_interface__["data"][0] for buffer in own_buffers if buffer is not None]
    assert part.own_buffers[1].bytes.__array_interface__["data"][0] in addresses


def test_lists_that_share_elements_are_flattened_within_limits() -> None:
    shared = bs.ListViewArray.from_arrays(np.zeros(100_000, np.int32), np.full(100_000, 100_000), np.arange(100_000))
    with pytest.raises(LimitError):
        shared.flatten()
    assert bs.ListViewArray.from_arrays([1, 0], [1, 2], ["a", "b"]).flatten().to_pylist() == ["b", "a", "b"]


STRINGS = ["a", "b", "c", None]
CONSTRUCTORS: dict[str, Callable[[Any], Any]] = {
    "list": lambda m: m.ListArray.from_arrays([0, 2, 2, 4], m.array(STRINGS)),
    "list, null offset": lambda m: m.ListArray.from_arrays(m.array([0, None, None, 2, 4]), m.array(STRINGS)),
    "list, mask": lambda m: m.ListArray.from_arrays(
        m.array([0, 1, 3], m.int32()), m.array(STRINGS), mask=m.array([True, False])
    ),
    "list, type": lambda m: m.ListArray.from_arrays(
        [0, 4], m.array(STRINGS), type=m.list_(m.field("x", m.string(), nullable=True))
    ),
    "list, NumPy": lambda m: m.ListArray.from_arrays(np.array([1, 3], np.int32), m.array(np.arange(3))),
    "list, no lists": lambda m: m.ListArray.from_arrays([0], m.array(STRINGS)),
    "large list": lambda m: m.LargeListArray.from_arrays([0, 2, 4], m.array(STRINGS)),
    "list view": lambda m: m.ListViewArray.from_arrays([3, 0], [1, 3], m.array(STRINGS)),
    "large list view": lambda m: m.LargeListViewArray.from_arrays(
        [3, 0], [1, 3], m.array(STRINGS), mask=m.array([False, True])
    ),
    "fixed-size list": lambda m: m.FixedSizeListArray.from_arrays(m.array(STRINGS), 2),
    "fixed-size list, type": lambda m: m.FixedSizeListArray.from_arrays(
        m.array(STRINGS), type=m.list_(m.string(), 4), mask=m.array([True])
    ),
    "map": lambda m: m.MapArray.from_arrays([0, 2, 3], m.array(STRINGS[:3]), m.array([1, None, 3])),
    "map, null": lambda m: m.MapArray.from_arrays([0, None, 3], m.array(STRINGS[:3]), m.array([1, None, 3])),
    "map, type": lambda m: m.MapArray.from_arrays(
        [0, 3], m.array(STRINGS[:3]), m.array([1, 2, 3]), type=m.map_(m.string(), m.int64(), True)
    ),
    "struct": lambda m: m.StructArray.from_arrays([m.array([1, None]), m.array(["x", "y"])], ["a", "b"]),
    "struct, fields": lambda m: m.StructArray.from_arrays([m.array([1])], fields=[m.field("a", m.int64(), False)]),
    "struct, mask": lambda m: m.StructArray.from_arrays([m.array([1, 2])], ["a"], mask=m.array([True, False])),
    "struct, type": lambda m: m.StructArray.from_arrays([m.array([1])], type=m.struct([("z", m.int64())])),
    "dictionary": lambda m: m.DictionaryArray.from_arrays(m.array([0, 3, None], m.int8()), m.array(STRINGS)),
    "dictionary, ordered": lambda m: m.DictionaryArray.from_arrays([0, 1], STRINGS, ordered=True),
    "dictionary, mask": lambda m: m.DictionaryArray.from_arrays(
        np.array([0, 1]), m.array(STRINGS), mask=np.array([True, False])
    ),
    "run-end encoded": lambda m: m.RunEndEncodedArray.from_arrays([2, 3, 7, 9], m.array(STRINGS)),
    "run-end encoded, type": lambda m: m.RunEndEncodedArray.from_arrays(
        m.array([1, 2], m.int16()), m.array([1, 2]), m.run_end_encoded(m.int16(), m.int64())
    ),
    "run-end encoded, no runs": lambda m: m.RunEndEncodedArray.from_arrays(m.array([], m.int32()), m.array([])),
    "dense union": lambda m: m.UnionArray.from_dense(
        m.array([0, 1, 0], m.int8()), m.array([0, 0, 1], m.int32()), [m.array([1, None]), m.array(STRINGS)]
    ),
    "dense union, codes": lambda m: m.UnionArray.from_dense(
        m.array([5, 7], m.int8()), m.array([0, 0], m.int32()), [m.array([1]), m.array(STRINGS)], ["i", "s"], [5, 7]
    ),
    "sparse union": lambda m: m.UnionArray.from_sparse(m.array([0, 1], m.int8()), [m.array([1, 2]), m.array(["", ""])]),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_arrays_of_parts_are_those_of_pyarrow(name: str) -> None:
    ours, expected = CONSTRUCTORS[name](bs), CONSTRUCTORS[name](pa)
    ours.validate(full=True)
    found = pa.array(ours)
    assert found.type == expected.type
    assert found.to_pylist() == expected.to_pylist()
    kind = next(kind for kind in vars(bs) if kind.endswith("Array") and isinstance(ours, getattr(bs, kind)) and
                kind not in ("Array", "ChunkedArray"))  # fmt: skip
    assert isinstance(expected, getattr(pa, kind))


def test_arrays_of_extension_types_share_the_storage() -> None:
    storage = bs.array([b"0123456789abcdef"], bs.binary(16))
    uuids = bs.ExtensionArray.from_storage(bs.datatypes.uuid(), storage)
    assert isinstance(uuids, bs.ExtensionArray)
    assert not isinstance(storage, bs.ExtensionArray)
    assert uuids.storage == storage
    with pytest.raises(TypeMismatchError, match="expected fixed_size_binary"):
        bs.ExtensionArray.from_storage(bs.datatypes.uuid(), bs.array([b"0"]))


WRONG: dict[str, Callable[[], object]] = {
    "offsets\\[2\\] = 5 exceeds the child's length of 1": lambda: bs.ListArray.from_arrays([0, 1, 5], [1]),
    "offsets\\[1\\] = 0 is less than offsets\\[0\\] = 1": lambda: bs.ListArray.from_arrays([1, 0], [1]),
    "the last offset is null": lambda: bs.ListArray.from_arrays([0, None], [1]),
    "expected one offset more than lists": lambda: bs.ListArray.from_arrays([], [1]),
    "expected either null offsets or a mask": lambda: bs.ListArray.from_arrays([None, 1], [1], mask=[True]),
    "offsets: expected integers, found double": lambda: bs.ListArray.from_arrays([0.5, 1], [1]),
    "offsets: expected integers of 32 bits": lambda: bs.ListArray.from_arrays([0, 1 << 40], [1]),
    "expected a type such as list<item: int64>, found int8": lambda: bs.ListArray.from_arrays([0, 1], [1], "int8"),
    "field 'item': expected string, found int64": lambda: bs.ListArray.from_arrays([0, 1], [1], bs.list_("string")),
    "expected a mask of booleans of shape": lambda: bs.ListArray.from_arrays([0, 1], [1], mask=[True, False]),
    "sizes\\[0\\] = 9 exceed": lambda: bs.ListViewArray.from_arrays([0], [9], [1]),
    "as many offsets as sizes": lambda: bs.ListViewArray.from_arrays([0], [1, 1], [1]),
    "expected either list_size or type": lambda: bs.FixedSizeListArray.from_arrays([1]),
    "3 values are not a multiple of 2": lambda: bs.FixedSizeListArray.from_arrays([1, 2, 3], 2),
    "a list size of 1 or more, not 0": lambda: bs.FixedSizeListArray.from_arrays([1], 0),
    "null keys": lambda: bs.MapArray.from_arrays([0, 1], bs.array([None], "string"), [1]),
    "column 'b' has 2 values, the first column has 1": lambda: bs.StructArray.from_arrays([[1], [1, 2]], ["a", "b"]),
    "2 columns need as many names": lambda: bs.StructArray.from_arrays([[1], [1]], ["a"]),
    "expected one of names, fields and type": lambda: bs.StructArray.from_arrays([[1]]),
    "indices\\[0\\] = 3 is not within the dictionary": lambda: bs.DictionaryArray.from_arrays([3], ["a"]),
    "expected integers as indices, found string": lambda: bs.DictionaryArray.from_arrays(["a"], ["a"]),
    "run_ends\\[1\\] = 1 is not greater": lambda: bs.RunEndEncodedArray.from_arrays([2, 1], ["a", "b"]),
    "1 values for at least 2 runs": lambda: bs.RunEndEncodedArray.from_arrays([1, 2], ["a"]),
    "2 types and 1 value_offsets": lambda: bs.UnionArray.from_dense([0, 0], [0], [[1]]),
    "type_ids\\[0\\] = 3 is not one of": lambda: bs.UnionArray.from_sparse([3], [[1]]),
    "1 field_names for 2 children": lambda: bs.UnionArray.from_sparse([0], [[1], [1]], ["a"]),
    "use ListArray.from_arrays": lambda: bs.ListArray([[1]]),  # type: ignore[call-arg]
    "use ExtensionArray.from_storage": bs.ExtensionArray,
}


@pytest.mark.parametrize("message", WRONG)
def test_parts_that_do_not_fit_are_an_error(message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        WRONG[message]()
