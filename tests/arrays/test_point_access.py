"""Single columns, rows and values of tables in several batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError, NotFoundError
from tests.arrays.recording_columns import RecordingColumns
from tests.cases import CASES, Case

BATCHES = 10
ROWS = 7


def table_of_batches() -> bs.Table:
    schema = bs.schema({"id": bs.int64(), "name": bs.string(), "vector": bs.list_(bs.float32(), 2)})
    batches = [
        bs.RecordBatch.from_arrays(
            [
                bs.array(list(range(first, first + ROWS)), bs.int64()),
                bs.array([f"row {row}" if row % 3 else None for row in range(first, first + ROWS)], bs.string()),
                bs.array([[row, -row] for row in range(first, first + ROWS)], bs.list_(bs.float32(), 2)),
            ],
            schema=schema,
        )
        for first in range(0, BATCHES * ROWS, ROWS)
    ]
    return bs.Table.from_batches(batches)


def write_and_read(table: bs.Table, folder: Path) -> bs.Table:
    """Return the table after writing it to a file and reading it."""
    path = folder / "table.arrow"
    with bs.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return bs.open_file(path).read_all()


def test_a_table_returns_the_same_column_object_by_name_and_by_index(tmp_path: Path) -> None:
    tables = [table_of_batches(), write_and_read(table_of_batches(), tmp_path)]
    tables += [tables[1].slice(3, 40), tables[1].select(["vector", "name", "id"])]
    for table in tables:
        for index, name in enumerate(table.column_names):
            column = table[name]
            assert table.column(name) is column
            assert table.column(index) is table.column(index - 3) is table.columns[index] is column


def test_a_table_accesses_a_column_of_each_batch_once_and_only_on_use() -> None:
    batches = table_of_batches().to_batches()
    counters = [RecordingColumns(batch.columns) for batch in batches]
    table = bs.Table.from_batches(
        [bs.RecordBatch(batch.schema, batch.num_rows, own) for batch, own in zip(batches, counters, strict=True)]
    )
    assert all(counter.indices == [] for counter in counters)
    for row in range(-table.num_rows, table.num_rows):
        assert table["id"][row] == row % table.num_rows
    assert all(counter.indices == [0] for counter in counters)


def test_threads_get_the_same_column_object() -> None:
    for _ in range(20):
        table, start = table_of_batches(), Barrier(8)

        def column(_: int, table: bs.Table = table, start: Barrier = start) -> bs.ChunkedArray:
            start.wait()
            return table["name"]

        with ThreadPoolExecutor(8) as pool:
            assert len(set(map(id, pool.map(column, range(8))))) == 1


def test_the_chunks_of_a_shared_column_cannot_be_changed() -> None:
    column = table_of_batches()["id"]
    with pytest.raises(TypeError, match="does not support item assignment"):
        column.chunks[0] = bs.array([0])  # type: ignore[index]


def test_a_missing_or_ambiguous_name_raises_every_time() -> None:
    schema = bs.schema([("a", bs.int8()), ("b", bs.int8()), ("b", bs.int8())])
    table = bs.Table.from_arrays([bs.array([1], bs.int8())] * 3, schema=schema)
    for _ in range(2):
        assert table["a"][0] == 1
        with pytest.raises(NotFoundError, match="no column is called 'c'"):
            table["c"]
        with pytest.raises(NotFoundError, match="2 columns are called 'b'"):
            table["b"]
        with pytest.raises(NotFoundError, match="column index 3 is out of range"):
            table.column(3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_slot_of_a_chunked_column_is_found_by_its_index(case: Case) -> None:
    whole = case.array()
    parts = [whole, whole.slice(0, 0), whole.slice(1, 1), whole.slice(1), whole.slice(0, 0), whole.slice(0, 2)]
    column = bs.ChunkedArray(parts, case.type)
    values = column.to_pylist()
    assert [column[index] for index in range(len(values))] == values
    assert [column[index] for index in range(-len(values), 0)] == values
    for index in (len(values), -len(values) - 1):
        with pytest.raises(IndexError):
            column[index]
    for part in parts:
        assert [part[index] for index in range(len(part))] == part.to_pylist()
        assert [type(part[index]) for index in range(len(part))] == [type(value) for value in part.to_pylist()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_slices_of_slices_of_a_table_hold_the_rows_of_their_span(case: Case) -> None:
    whole = case.array()
    parts = [whole, whole.slice(0, 0), whole.slice(1), whole]
    table = bs.Table.from_arrays([bs.ChunkedArray(parts, case.type)], names=["x"])
    rows = [{"x": value} for value in [*case.values, *case.values[1:], *case.values]]
    for offset in range(len(rows) + 2):
        for length in (0, 1, 2, len(case.values) + 1):
            part = table.slice(offset, length)
            assert part.to_pylist() == rows[offset : offset + length]
            assert part.slice(1, 1).to_pylist() == rows[offset : offset + length][1:2]
            assert (
                part["x"].slice(1, 3).slice(1).to_pylist() == [row["x"] for row in rows[offset : offset + length]][2:4]
            )


def test_single_rows_of_a_file_are_those_of_the_whole_table(tmp_path: Path) -> None:
    table = table_of_batches()
    read, rows = write_and_read(table, tmp_path), table.to_pylist()
    assert [read.slice(row, 1).to_pylist()[0] for row in range(len(rows))] == rows
    assert [{name: read[name][row] for name in read.column_names} for row in range(len(rows))] == rows
    assert read.slice(len(rows), 1).to_pylist() == []


def _int32(*values: int) -> Any:
    return np.array(values, np.int32)


NUMBERS = bs.array([1, 2, 3], bs.int64())
INVALID_ARRAYS = {
    "a string's offsets fall": (bs.string(), [None, _int32(0, 2, 1, 3), b"abc"], [], None),
    "a string's offset exceeds the data": (bs.string(), [None, _int32(0, 9, 3, 3), b"abc"], [], None),
    "a string is not UTF-8": (bs.string(), [None, _int32(0, 1, 2, 3), b"a\xffc"], [], None),
    "a list's offset exceeds its child": (bs.list_(bs.int64()), [None, _int32(0, 9, 3, 3)], [NUMBERS], None),
    "a list view exceeds its child": (
        bs.list_view(bs.int64()),
        [None, _int32(0, 2, 0), _int32(1, 2, 0)],
        [NUMBERS],
        None,
    ),
    "an index exceeds the dictionary": (
        bs.dictionary(bs.int32(), bs.int64()),
        [None, _int32(0, 3, 1)],
        [],
        NUMBERS,
    ),
    "a view points to no buffer": (
        bs.string_view(),
        [None, _int32(1, ord("a"), 0, 0, 13, 0, 0, 0, 0, 0, 0, 0)],
        [],
        None,
    ),
    "the last run ends early": (
        bs.run_end_encoded(bs.int32(), bs.int64()),
        [],
        [bs.array([1, 2, 2], bs.int32()), NUMBERS],
        None,
    ),
}


@pytest.mark.parametrize("problem", INVALID_ARRAYS)
def test_a_malformed_slot_raises_on_access(problem: str) -> None:
    type_, buffers, children, dictionary = INVALID_ARRAYS[problem]
    array = bs.Array.from_buffers(type_, 3, buffers, children, dictionary)
    column = bs.ChunkedArray([array], type_)
    with pytest.raises(InvalidDataError):
        _ = [column[index] for index in range(3)]
    with pytest.raises(InvalidDataError):
        _ = [row for index in range(3) for row in column.slice(index, 1).to_pylist()]


def with_odd_addresses(array: bs.Array) -> bs.Array:
    """Return the array over buffers that start at odd addresses."""

    def moved(buffer: bs.memory.Buffer | None) -> bs.memory.Buffer | None:
        return (
            None if buffer is None else bs.memory.Buffer.of(b"\xff" + buffer.to_bytes() + b"\xff").slice(1, buffer.size)
        )

    children = tuple(map(with_odd_addresses, array.children))
    dictionary = array.dictionary
    buffers = tuple(map(moved, array.own_buffers))
    return bs.Array(array.layout, array.length, buffers, children, dictionary, array.null_count, array.offset)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_taken_from_many_chunks_in_any_order(case: Case) -> None:
    whole = case.array()
    parts = [
        whole,
        whole.slice(0, 0),
        whole.slice(1),
        with_odd_addresses(whole.slice(1)),
        whole.slice(0, 1),
        case.array(),
    ]
    column = bs.ChunkedArray(parts, case.type)
    values = column.to_pylist()
    random = np.random.default_rng(7)
    for count in (1, 2, 5, 100):
        indices = random.integers(0, len(values), count)
        subset = column.take(indices)
        subset.validate(full=True)
        assert subset.num_chunks == 1
        assert subset.to_pylist() == [values[index] for index in indices.tolist()]
    table = bs.Table.from_arrays([column], names=["x"])
    assert table.take([len(values) - 1, 0, 0])["x"].to_pylist() == [values[-1], values[0], values[0]]
    assert table.take([])["x"].to_pylist() == []


def test_take_ignores_a_bitmap_if_the_null_count_is_zero() -> None:
    bitmap = bs.memory.Buffer.of(b"\x00")
    plain = bs.Array.from_buffers(bs.int8(), 2, [bitmap, b"\x01\x02"], null_count=0)
    column = bs.ChunkedArray([plain, bs.array([None, 4], bs.int8())], bs.int8())
    assert column.take([3, 0, 2, 1]).to_pylist() == [4, 1, None, 2]


@pytest.mark.parametrize("problem", [name for name in INVALID_ARRAYS if "offset" in name])
def test_a_malformed_slot_raises_when_rows_are_taken_from_several_chunks(problem: str) -> None:
    type_, buffers, children, dictionary = INVALID_ARRAYS[problem]
    array = bs.Array.from_buffers(type_, 3, buffers, children, dictionary)
    with pytest.raises(InvalidDataError, match="offsets"):
        bs.ChunkedArray([array, array], type_).take([5, 0, 1, 4])


def test_a_buffer_that_is_too_short_raises_when_rows_are_taken_from_several_chunks() -> None:
    whole = bs.array([1, None, 3], bs.int64())
    for buffers in (
        (whole.own_buffers[0], bs.memory.Buffer.of(bytes(16))),
        (bs.memory.Buffer.of(b""), whole.own_buffers[1]),
    ):
        array = bs.Array(whole.layout, 3, buffers, null_count=1)
        with pytest.raises(InvalidDataError):
            bs.ChunkedArray([whole, array], bs.int64()).take([0, 5])


@pytest.mark.parametrize(
    "type_", [bs.list_(bs.float32(), 8), bs.list_(bs.float32()), bs.list_(bs.string(), 8)], ids=str
)
def test_lists_of_one_size_are_taken_from_one_chunk_and_from_several(type_: Any) -> None:
    make = str if type_.fields[0].type == bs.string() else float
    values = [[make(row * 8 + index) for index in range(8)] for row in range(60)]
    whole = bs.array(values, type_)
    order = np.random.default_rng(3).permutation(60)
    expected = [values[row] for row in order.tolist()]
    assert whole.take(order).to_pylist() == expected
    assert whole.slice(20).take(order[order < 40]).to_pylist() == [
        values[20 + row] for row in order.tolist() if row < 40
    ]
    column = bs.ChunkedArray([whole.slice(0, 11), bs.array(values[11:30], type_), whole.slice(30)], type_)
    assert column.take(order).to_pylist() == expected
