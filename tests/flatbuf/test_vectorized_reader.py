"""Reading many tables at once gives the same values as reading them one by one, for any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Flatbuffer, FlatTable
from bowstring.flatbuf.specs import ScalarSlot, String, SubTable, TableSpec, TableVector, UnionSlot, Vector
from bowstring.flatbuf.vectorized_reader import TableArray, VectorizedReader
from bowstring.flatbuf.writer import UnionValue, build_flatbuffer

SPECS = {
    spec.name: spec
    for spec in (
        TableSpec("Root", rows=TableVector("Row")),
        TableSpec(
            "Row",
            flag=ScalarSlot("?", False),
            small=ScalarSlot("h", -1),
            large=ScalarSlot("q", 7),
            text=String(),
            numbers=Vector(np.dtype("<i8")),
            leaf=SubTable("Leaf"),
            value_type=ScalarSlot("B"),
            value=UnionSlot(("NONE", "Leaf", "Root")),
        ),
        TableSpec("Leaf", width=ScalarSlot("i", 32)),
    )
}


def row_record(index: int, is_uniform: bool) -> dict[str, Any]:
    """A row; of rows that are not uniform, some slots are absent."""
    row = {
        "flag": index % 2 > 0,
        "small": -index,
        "large": index << 40,
        "text": f"row {index}",
        "numbers": list(range(index % 4)),
        "leaf": {"width": index},
        "value_type": 1,
        "value": UnionValue("Leaf", {"width": index}),
    }
    return row if is_uniform else {name: value for at, (name, value) in enumerate(row.items()) if (index + at) % 5}


def flatbuffer(raw: bytes) -> Flatbuffer:
    """A flatbuffer of the test's tables."""
    return Flatbuffer(raw, SPECS, "test", 1_000_000)


def row_offsets(raw: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The positions of the offsets of all rows."""
    start, count = flatbuffer(raw).get_root_table("Root").locate_elements("rows")
    return start + 4 * np.arange(count, dtype=np.int64)


def read_slot(table: FlatTable, name: str) -> Any:
    """A slot's value in a form that can be compared; None if reading it raises an error."""
    try:
        value = table[name]
        type_ = table.spec.slots[name].type
        if isinstance(type_, String | Vector):
            start, length = table.locate_elements(name)
            return (start, length) if table.locate_slot(name) else (4, 0)
        if isinstance(type_, SubTable | UnionSlot):
            return None if value is None else value.position
        return int(value)
    except InvalidDataError:
        return None


def compare_readers(raw: bytes) -> tuple[int, int]:
    """Compare both readers; return the number of slots that are valid and that are not."""
    reader, positions = VectorizedReader(flatbuffer(raw)), row_offsets(raw)
    tables = TableArray(reader, SPECS["Row"], *reader.follow_offsets(positions))
    counts = [0, 0]
    for name, slot in SPECS["Row"].slots.items():
        if isinstance(slot.type, ScalarSlot):
            numbers, is_valid = tables.read_numbers(name)
            expected: list[Any] = numbers.tolist()
        elif isinstance(slot.type, String | Vector):
            starts, lengths, is_valid = tables.locate_elements(name)
            expected = list(zip(starts.tolist(), lengths.tolist(), strict=True))
        elif name == "leaf":
            targets, is_valid = tables.follow_offsets(name)
            leaves = TableArray(reader, SPECS["Leaf"], targets, is_valid & (targets > 0))
            is_valid, expected = leaves.is_valid, leaves.positions.tolist()
        else:
            continue
        for index, position in enumerate(positions.tolist()):
            value = None
            try:
                buffer = flatbuffer(raw)
                value = read_slot(FlatTable(buffer, SPECS["Row"], buffer.follow_offset(position, "Root.rows")), name)
            except InvalidDataError:
                pass
            is_text_malformed = name == "text" and value is None and is_valid[index]  # the array does not decode text
            assert is_text_malformed or (value is not None) == bool(is_valid[index]), (name, index)
            if value is not None:
                assert value == expected[index], (name, index)
            counts[value is None] += 1
    return counts[0], counts[1]


@pytest.mark.parametrize("is_uniform", [True, False])
def test_tables_read_at_once_equal_tables_read_one_by_one(is_uniform: bool) -> None:
    raw = build_flatbuffer(SPECS, "Root", {"rows": [row_record(index, is_uniform) for index in range(40)]})
    valid, invalid = compare_readers(raw)
    assert (valid + invalid, invalid) == (280, 0 if is_uniform else 8)  # an absent leaf counts as not valid


@pytest.mark.parametrize("is_uniform", [True, False])
def test_tables_with_changed_bytes_are_valid_at_once_if_they_are_one_by_one(is_uniform: bool) -> None:
    raw = build_flatbuffer(SPECS, "Root", {"rows": [row_record(index, is_uniform) for index in range(12)]})
    random, first = np.random.default_rng(3), int(row_offsets(raw)[0])
    total = np.zeros(2, int)
    for _ in range(150):
        changed = bytearray(raw)
        for at in random.integers(first, len(raw), 6).tolist():
            changed[at] = int(random.choice([0, 1, 2, 4, 7, 8, 127, 255]))
        total += compare_readers(bytes(changed))
    assert total.min() > 300


def test_a_union_of_an_unknown_member_names_table_slot_and_byte() -> None:
    raw = build_flatbuffer(SPECS, "Root", {"rows": [{"value_type": 9, "value": UnionValue("Leaf", {})}]})
    row = flatbuffer(raw).get_root_table("Root")["rows"][0]
    with pytest.raises(InvalidDataError, match=rf"test: byte {row.position} of .*Row.value_type below 3, found 9"):
        _ = row["value"]


def test_a_required_slot_that_is_absent_names_table_slot_and_byte() -> None:
    specs = {"Root": TableSpec("Root", required=("text",), text=String(), number=ScalarSlot("i"))}
    root = Flatbuffer(build_flatbuffer(specs, "Root", {"number": 1}), specs, "test").get_root_table("Root")
    with pytest.raises(InvalidDataError, match=rf"test: byte {root.position} of .*Root.text is required but absent"):
        _ = root["text"]
