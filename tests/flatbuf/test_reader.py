"""The reader and the writer of flatbuffers: round trips, and errors that name the table, the slot and the byte."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from bowstring import errors
from bowstring.flatbuf.definitions import ScalarSlot, String, StructSlot, TableDefinition, TableVector, Vector
from bowstring.flatbuf.reader import Flatbuffer, FlatTable
from bowstring.flatbuf.tables import BUFFER, DEFINITIONS
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer

PAIR = np.dtype([("a", "<i8"), ("b", "<i4"), ("pad", "<i4")])
TREE = {
    "Tree": TableDefinition(
        "Tree",
        flag=ScalarSlot("?", False),
        small=ScalarSlot("h", -1),
        large=ScalarSlot("q", 7),
        text=String(),
        raw=String(is_utf8=False),
        numbers=Vector(np.dtype("<i8")),
        pairs=Vector(PAIR),
        children=TableVector("Tree"),
        inline=StructSlot(BUFFER),
    )
}


def root(data: bytes, **options: Any) -> FlatTable:
    return Flatbuffer(data, TREE, "tree", **options).get_root_table("Tree")


TREES = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "flag": st.booleans(),
            "small": st.integers(-(1 << 15), (1 << 15) - 1),
            "large": st.integers(-(1 << 63), (1 << 63) - 1),
            "text": st.text(st.characters(codec="utf-8"), max_size=9),
            "raw": st.binary(max_size=9),
            "numbers": st.lists(st.integers(-9, 9), max_size=3),
        },
    ),
    lambda inner: st.fixed_dictionaries({"children": st.lists(inner, max_size=3)}),
    max_leaves=6,
)


def is_equal(table: FlatTable, record: dict[str, Any]) -> bool:
    for name, slot in table.definition.slots.items():
        actual = table[name]
        expected: Any = record.get(name, slot.type.default)
        if name == "children":
            if len(actual) != len(expected) or not all(is_equal(t, r) for t, r in zip(actual, expected, strict=True)):
                return False
        elif name in ("numbers", "pairs"):
            if actual.tolist() != list(expected):
                return False
        elif actual != expected:
            return False
    return True


@given(record=TREES)
def test_written_tables_are_read(record: dict[str, Any]) -> None:
    data = build_flatbuffer(TREE, "Tree", record)
    assert len(data) % 8 == 0
    assert is_equal(root(data), record)


def test_vectors_of_structs_are_one_view_and_aligned() -> None:
    pairs = np.array([(1, 2, 0), (3, 4, 0)], PAIR)
    data = build_flatbuffer(TREE, "Tree", {"text": "odd", "pairs": pairs, "inline": (5, 6), "flag": True})
    table = root(data)
    assert table["pairs"].tolist() == pairs.tolist()
    assert table["inline"]["length"] == 6
    at, count = table.locate_elements("pairs")
    assert (at % 8, count) == (0, 2)
    assert table.locate_elements("large") == (0, 0)


@given(data=st.binary(max_size=120))
def test_random_bytes_are_read_or_rejected(data: bytes) -> None:
    with contextlib.suppress(errors.InvalidDataError):
        is_equal(root(data), {})


@given(record=TREES, at=st.integers(0, 400), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_rejected(record: dict[str, Any], at: int, value: int) -> None:
    data = bytearray(build_flatbuffer(TREE, "Tree", record))
    data[at % len(data)] = value
    with contextlib.suppress(errors.InvalidDataError):
        is_equal(root(bytes(data)), record)


def test_an_offset_beyond_the_end_names_the_byte() -> None:
    data = bytearray(build_flatbuffer(TREE, "Tree", {"text": "abc"}))
    struct.pack_into("<I", data, 0, 1 << 20)
    with pytest.raises(errors.InvalidDataError, match=r"tree: byte 0 of .*1048576"):
        root(bytes(data))


def test_text_that_is_not_utf8_names_the_byte() -> None:
    data = build_flatbuffer(TREE, "Tree", {"text": "abc"}).replace(b"abc", b"a\xffc")
    with pytest.raises(errors.InvalidDataError, match=f"byte {data.index(255)} .*text is not valid UTF-8"):
        _ = root(data)["text"]


@pytest.mark.parametrize("slot", ["text", "raw"])
@pytest.mark.parametrize("length", [0, 2, 4])
def test_text_of_another_length_is_rejected(slot: str, length: int) -> None:
    data = bytearray(build_flatbuffer(TREE, "Tree", {slot: "abc" if slot == "text" else b"abc", "large": -1}))
    data += b"xyz"
    at = data.index(b"abc")
    data[at + 4] = 1  # after the zero byte
    struct.pack_into("<I", data, at - 4, length)
    with pytest.raises(errors.InvalidDataError, match=rf"Tree\.{slot} is not followed by a zero byte"):
        _ = root(bytes(data))[slot]


def test_text_at_the_end_without_a_zero_byte_is_rejected() -> None:
    data = build_flatbuffer(TREE, "Tree", {"text": "abc"})
    with pytest.raises(errors.InvalidDataError, match="is not followed by a zero byte"):
        _ = root(data[: data.index(b"abc") + 3])["text"]


def count_tables(table: FlatTable) -> int:
    return 1 + sum(count_tables(child) for child in table["children"])


def test_shared_children_are_limited_by_the_size_of_the_message() -> None:
    record: dict[str, Any] = {}
    for _ in range(30):
        record = {"children": [record, {}]}
    data = bytearray(build_flatbuffer(TREE, "Tree", record))
    table = root(bytes(data))
    assert count_tables(table) == 61
    for _ in range(30):
        slot = table.locate_slot("children")
        first = slot + int.from_bytes(data[slot : slot + 4], "little") + 4
        # The second child refers to the first one again: 2**30 paths to walk.
        struct.pack_into("<I", data, first + 4, int.from_bytes(data[first : first + 4], "little") - 4)
        table = table["children"][0]
    with pytest.raises(errors.LimitError, match="tables or more, beyond the limit"):
        count_tables(root(bytes(data)))


def test_an_option_limits_the_tables() -> None:
    data = build_flatbuffer(TREE, "Tree", {"children": [{}] * 10})
    assert count_tables(root(data, max_tables=11)) == 11
    with pytest.raises(errors.LimitError, match="limit of 10 "):
        count_tables(root(data, max_tables=10))


def test_shared_text_is_limited_by_the_size_of_the_message() -> None:
    children = [*({"text": "y"} for _ in range(40)), {"text": "x" * 5000}]
    data = bytearray(build_flatbuffer(TREE, "Tree", {"children": children}))
    slots = [child.locate_slot("text") for child in root(bytes(data))["children"]]
    target = slots[-1] + int.from_bytes(data[slots[-1] : slots[-1] + 4], "little")
    for slot in slots:
        struct.pack_into("<I", data, slot, target - slot)
    with pytest.raises(errors.LimitError, match="text of more than"):
        _ = [child["text"] for child in root(bytes(data))["children"]]


def test_the_verifier_of_another_library_accepts_written_tables() -> None:
    fields = [
        {
            "name": f"f{i}",
            "nullable": bool(i % 2),
            "type_type": 2,
            "type": UnionValue("Int", {"bitWidth": 16, "is_signed": True}),
        }
        for i in range(9)
    ]
    record = {"version": 4, "header_type": 1, "header": UnionValue("Schema", {"fields": fields})}
    data = build_flatbuffer(DEFINITIONS, "Message", record)
    framed = b"\xff\xff\xff\xff" + struct.pack("<i", len(data)) + data
    schema = pa.ipc.read_schema(pa.py_buffer(framed))
    assert schema == pa.schema([pa.field(f"f{i}", pa.int16(), bool(i % 2)) for i in range(9)])


def test_vtables_are_shared_and_stored_after_the_offset_to_their_table() -> None:
    leaf = {"small": 1}
    twig = {"small": 2, "large": 3}
    raw = build_flatbuffer(
        TREE, "Tree", {"large": 1, "children": [twig | {"children": [leaf, leaf, twig]}, twig, twig]}
    )
    vtables: list[int] = []

    def visit(table: FlatTable, slot: int) -> None:
        assert slot <= table.vtable, "Polars does not read before the slot"
        vtables.append(table.vtable)
        start, count = table.locate_elements("children")
        for index in range(count):
            visit(table.get_element_table("children", index), start + 4 * index)

    visit(root(raw), 0)
    assert len(set(vtables)) < len(vtables)
