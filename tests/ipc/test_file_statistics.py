"""Column statistics in the footer: written, read, used to skip batches, merged and verified."""

from __future__ import annotations

import base64
import datetime as dt
import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import bowstring as bs
from bowstring import errors
from bowstring.ipc.file_statistics import METADATA_KEY
from bowstring.kernels.list_lengths import NO_LISTS
from tests.ipc.samples import as_stream, batch


def file_with_statistics(*batches: bs.RecordBatch, columns: Sequence[str | int] | None = None, **options: Any) -> bytes:
    """Return a file with statistics."""
    sink = io.BytesIO()
    with bs.new_file(sink, batches[0].schema) as writer:
        writer.enable_statistics(columns, **options)
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def array_statistics(values: Sequence[Any], type_: bs.DataType, **options: Any) -> tuple[Any, Any, int]:
    """Return the minimum, maximum and null count in the statistics of one batch with these values."""
    raw = file_with_statistics(bs.record_batch({"c": bs.array(values, type_)}), **options)
    with bs.open_file(raw) as reader:
        reader.check_statistics()
        statistics = reader.statistics
        assert statistics is not None
        column = statistics.columns[0]
        assert column.minima is not None
        assert column.maxima is not None
        return column.minima.to_pylist()[0], column.maxima.to_pylist()[0], int(column.null_counts[0])


NUMBERS = [
    bs.record_batch({"n": np.arange(start, start + 10), "s": [f"{start:03}"] * 10}) for start in range(0, 100, 10)
]


def test_statistics_have_rows_nulls_bounds_and_distinct_counts_of_every_batch() -> None:
    first = bs.record_batch({"n": [3, None, 1, 3], "s": ["b", "a", None, "b"]})
    reader = bs.open_file(file_with_statistics(first, first.slice(1, 1), first.slice(4), distinct=True))
    statistics = reader.statistics
    assert statistics is not None
    assert statistics.row_counts.tolist() == [4, 1, 0]
    numbers, text = statistics.columns[0], statistics.columns[1]
    assert numbers.null_counts.tolist() == [1, 1, 0]
    assert numbers.minima is not None
    assert numbers.minima.to_pylist() == [1, None, None]
    assert numbers.maxima is not None
    assert numbers.maxima.to_pylist() == [3, None, None]
    assert text.minima is not None
    assert text.minima.to_pylist() == ["a", "a", None]
    assert numbers.distinct_counts is not None
    assert numbers.distinct_counts.tolist() == [2, 0, 0]
    reader.check_statistics()


def test_batches_without_a_value_are_skipped_unread() -> None:
    reader = bs.open_file(file_with_statistics(*NUMBERS))
    assert reader.find_batches("n", 25, 44) == [2, 3, 4]
    assert reader.find_batches("n", low=85) == [8, 9]
    assert reader.find_batches("n", high=-1) == []
    assert reader.find_batches("n", 50, 40) == []
    assert reader.find_batches("s", "02", "03") == [2]
    assert reader.find_batches(0) == list(range(10))
    rows = [
        row for index in reader.find_batches("n", 39, 40) for row in reader[index]["n"].to_pylist() if 39 <= row <= 40
    ]
    assert rows == [39, 40]


def test_an_unselected_column_can_be_used_to_skip_batches() -> None:
    reader = bs.open_file(file_with_statistics(*NUMBERS), columns=["s"])
    assert reader.find_batches("n", 25, 44) == [2, 3, 4]
    reader.check_statistics()


def test_without_statistics_no_batch_is_skipped() -> None:
    assert bs.open_file(file_with_statistics(*NUMBERS, columns=["s"])).find_batches("n", 1000) == list(range(10))
    sink = io.BytesIO()
    with bs.new_file(sink, NUMBERS[0].schema) as writer:
        writer.write(NUMBERS[0])
    reader = bs.open_file(sink.getvalue())
    assert reader.statistics is None
    assert reader.find_batches("n", 1000) == [0]
    assert reader.num_rows == 10


def test_filters_read_only_batches_with_matching_rows_and_select_their_rows(batches_read: list[int]) -> None:
    raw = file_with_statistics(*NUMBERS)
    filters: list[list[tuple[Any, ...]]] = [[("n", ">", 38), ("n", "<=", 40)], [("n", "==", 71), ("s", "!=", "x")]]
    assert bs.open_file(raw).read_all(filters).to_pydict() == {"n": [39, 40, 71], "s": ["030", "040", "070"]}
    assert batches_read == [3, 4, 7]
    assert [batch.num_rows for batch in bs.open_file(raw).filter_batches(filters)] == [1, 1, 1]
    table = bs.open_file(raw).read_all([("n", "<", 0)])
    assert (table.num_rows, table.column_names, len(batches_read)) == (0, ["n", "s"], 6)


def test_filters_may_name_columns_that_are_not_selected(tmp_path: Path) -> None:
    (tmp_path / "file.arrow").write_bytes(file_with_statistics(*NUMBERS))
    (tmp_path / "stream.arrows").write_bytes(as_stream(*NUMBERS))
    MemoryFileSystem().pipe("/numbers.arrow", file_with_statistics(*NUMBERS))
    filters: list[tuple[Any, ...]] = [("n", "in", [12, 25, 99, 100])]
    for source in (tmp_path / "file.arrow", str(tmp_path / "stream.arrows"), "memory://numbers.arrow"):
        assert bs.read_table(source, ["s"], filters).to_pydict() == {"s": ["010", "020", "090"]}
        assert bs.read_table(source, filters=filters)["n"].to_pylist() == [12, 25, 99]
        assert bs.read_table(source, ["s"]).num_rows == 100
        with pytest.raises(errors.NotFoundError, match="no column is called 'm'"):
            bs.read_table(source, filters=[("m", "==", 1)])


def test_row_counts_alone_give_num_rows() -> None:
    reader = bs.open_file(file_with_statistics(*NUMBERS, columns=[]))
    assert reader.statistics is not None
    assert not reader.statistics.columns
    assert reader.num_rows == 100
    assert reader.row_counts.tolist() == [10] * 10


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([1.5, float("nan"), -2.0, None], bs.float64(), (-2.0, 1.5, 1)),
        ([float("nan")] * 2, bs.float32(), (None, None, 0)),
        ([float("inf"), float("-inf")], bs.float64(), (float("-inf"), float("inf"), 0)),
        ([True, None], bs.bool_(), (True, True, 1)),
        ([2**64 - 1, 0], bs.uint64(), (0, 2**64 - 1, 0)),
        ([dt.date(2020, 1, 2), dt.date(1969, 1, 1)], bs.date32(), (dt.date(1969, 1, 1), dt.date(2020, 1, 2), 0)),
        ([Decimal("1.10"), Decimal("-99.99")], bs.decimal128(4, 2), (Decimal("-99.99"), Decimal("1.10"), 0)),
        ([Decimal(10) ** 60, Decimal(-1)], bs.decimal256(70, 0), (Decimal(-1), Decimal(10) ** 60, 0)),
        (["b", "", "ab", None], bs.string(), ("", "b", 1)),
        (["\U0001f600", "\uffff"], bs.string_view(), ("\uffff", "\U0001f600", 0)),
        (["12345678b", "12345678a", "12345678"], bs.large_string(), ("12345678", "12345678b", 0)),
        ([b"\xff", b"\x00", b""], bs.binary(), (b"", b"\xff", 0)),
        (["x", None, "a", "x"], bs.dictionary(bs.int8(), bs.string()), ("a", "x", 1)),
        ([7, 7, None, 3], bs.run_end_encoded(bs.int16(), bs.int32()), (3, 7, 1)),
        ([None, None], bs.int8(), (None, None, 2)),
        ([], bs.string(), (None, None, 0)),
    ],
)
def test_bounds_are_those_of_the_values(values: list[Any], type_: bs.DataType, expected: tuple[Any, Any, int]) -> None:
    assert array_statistics(values, type_, distinct=True) == expected


def test_negative_zero_is_found_as_zero() -> None:
    raw = file_with_statistics(bs.record_batch({"f": [-0.0, -1.0]}), bs.record_batch({"f": [0.0, 1.0]}))
    assert bs.open_file(raw).find_batches("f", 0.0, 0.0) == [0, 1]
    assert bs.open_file(raw).find_batches("f", -0.0, -0.0) == [0, 1]


@pytest.mark.parametrize(
    ("value", "least", "greatest"),
    [
        ("a" * 100, "a" * 64, "a" * 63 + "b"),
        ("é" * 50, "é" * 32, "é" * 31 + "ê"),
        ("a" * 63 + "é" * 9, "a" * 63, "a" * 62 + "b"),
        ("a" + "\U0010ffff" * 30, "a" + "\U0010ffff" * 15, "b"),
        ("\ud7ff" * 30, "\ud7ff" * 21, "\ud7ff" * 20 + "\ue000"),
        ("\U0010ffff" * 30, "\U0010ffff" * 16, "\U0010ffff" * 30),
        (b"\x01" + b"\xff" * 99, b"\x01" + b"\xff" * 63, b"\x02"),
        (b"\xff" * 99, b"\xff" * 64, b"\xff" * 99),
    ],
)
def test_bounds_of_long_values_are_truncated_and_still_valid(value: Any, least: Any, greatest: Any) -> None:
    type_ = bs.string() if isinstance(value, str) else bs.binary()
    assert array_statistics([value], type_) == (least, greatest, 0)
    assert least <= value <= greatest
    raw = file_with_statistics(bs.record_batch({"c": bs.array([value], type_)}))
    assert bs.open_file(raw).find_batches("c", value, value) == [0]


def test_columns_of_every_type_can_be_searched() -> None:
    source = batch()
    reader = bs.open_file(file_with_statistics(source, source.slice(1), distinct=True))
    assert reader.statistics is not None
    reader.check_statistics()
    assert reader.find_batches("list", [1]) == [0, 1], "a list has no order, so nothing is skipped"
    assert reader.read_all().equals(bs.Table.from_batches([source, source.slice(1)]))


def test_batches_of_a_remote_file_are_skipped_without_reading_bodies() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/statistics/n.arrow", file_with_statistics(*NUMBERS))
    with bs.open_file("memory://statistics/n.arrow") as reader:
        assert reader.find_batches("n", 25, 44) == [2, 3, 4]
        assert reader.num_rows == 100
        assert reader[2]["n"].to_pylist()[0] == 20
        reader.check_statistics()


def test_bounds_of_another_type_and_nan_are_rejected() -> None:
    reader = bs.open_file(file_with_statistics(bs.record_batch({"f": [1.0], "s": ["a"]})))
    with pytest.raises(errors.TypeMismatchError):
        reader.find_batches("s", 5)
    with pytest.raises(errors.InvalidArgumentError, match="nan"):
        reader.find_batches("f", float("nan"))
    with pytest.raises(errors.NotFoundError):
        reader.find_batches("none", 1)


def test_batches_of_other_libraries_are_counted() -> None:
    sink = io.BytesIO()
    with bs.new_file(sink, {"n": "int64"}) as writer:
        writer.enable_statistics()
        writer.write_batch(pa.record_batch({"n": [1, 2, None]}))
        writer.write_batch(bs.record_batch({"n": [7]}))
    statistics = bs.open_file(sink.getvalue()).statistics
    assert statistics is not None
    assert statistics.row_counts.tolist() == [3, 1]
    assert statistics.columns[0].null_counts.tolist() == [1, 0]


def test_pyarrow_reads_the_file_and_its_statistics() -> None:
    raw = file_with_statistics(*NUMBERS)
    reader = pa.ipc.open_file(raw)
    assert reader.read_all().num_rows == 100
    stream = base64.b64decode(
        reader.metadata[METADATA_KEY] if hasattr(reader, "metadata") else bs.open_file(raw).metadata[METADATA_KEY]
    )
    table = pa.ipc.open_stream(stream).read_all()
    assert table.column_names == ["rows", "offset", "length", "0", "1"]
    assert table["0"].to_pylist()[3] == {"nulls": 0, "min": 30, "max": 39}
    assert bs.open_file(raw).metadata[METADATA_KEY].decode().isascii(), "footer metadata is text"


# Appending and concatenating


def test_an_append_extends_the_statistics_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n.arrow"
    path.write_bytes(file_with_statistics(*NUMBERS[:3], columns=["n"], distinct=True))
    with bs.ipc.append_to_file(path) as writer:
        for batch in NUMBERS[3:]:
            writer.write(batch)
    reader = bs.open_file(path)
    assert reader.num_rows == 100
    assert reader.find_batches("n", 25, 44) == [2, 3, 4]
    reader.check_statistics()
    assert len([key for key in reader.metadata if key == METADATA_KEY]) == 1


def test_statistics_are_merged_if_all_sources_have_them() -> None:
    sink = io.BytesIO()
    bs.ipc.concat_files([file_with_statistics(*NUMBERS[:4]), file_with_statistics(*NUMBERS[4:], columns=["n"])], sink)
    reader = bs.open_file(sink.getvalue())
    assert reader.find_batches("n", 25, 44) == [2, 3, 4]
    assert reader.statistics is not None
    assert list(reader.statistics.columns) == [0]
    reader.check_statistics()
    sink = io.BytesIO()
    bs.ipc.concat_files([file_with_statistics(*NUMBERS[:4]), as_stream(NUMBERS[4])], sink)
    assert bs.open_file(sink.getvalue()).statistics is None
    assert METADATA_KEY not in bs.open_file(sink.getvalue()).metadata


# Lists

LIST_TYPES: list[Any] = [bs.list_, bs.large_list, bs.list_view, bs.large_list_view, lambda values: bs.list_(values, 2)]
PAIRS = bs.record_batch({"n": [1, 2, 3], "pairs": [[[1, 2], [3]], None, [[], None]]})
SINGLES = bs.record_batch({"n": [4], "pairs": [[[1] * 5]]})


@pytest.mark.parametrize("create_type", LIST_TYPES)
def test_statistics_of_lists_have_the_lengths_of_each_batch(create_type: Any) -> None:
    rows: list[list[Any]] = [[[["a"], ["b", "c"]]], [None], [[[], None], None, [None, ["d"]]]]
    batches = [bs.record_batch({"c": bs.array(values, create_type(bs.list_("string")))}) for values in rows]
    with bs.open_file(file_with_statistics(*batches)) as reader:
        assert reader.statistics is not None
        column = reader.statistics.columns[0]
        assert column.list_lengths is not None
        none = list(NO_LISTS)
        assert column.list_lengths.tolist() == [[[2, 2], [1, 2]], [none, none], [[2, 2], [0, 1]]]
        assert column.null_counts.tolist() == [0, 1, 1]
        assert column.minima is None
        assert reader.statistics.list_lengths == ((0, ((2, 2), (0, 2))),)
        reader.check_statistics()


def test_appended_and_merged_files_have_the_lengths_of_all_lists(tmp_path: Path) -> None:
    path = tmp_path / "n.arrow"
    path.write_bytes(file_with_statistics(PAIRS))
    with bs.ipc.append_to_file(path) as writer:
        writer.write(SINGLES)
    sink = io.BytesIO()
    bs.ipc.concat_files([file_with_statistics(PAIRS), file_with_statistics(SINGLES)], sink)
    for file in (path, sink.getvalue()):
        with bs.open_file(file) as reader:
            assert reader.statistics is not None
            assert reader.statistics.list_lengths == ((1, ((1, 2), (0, 5))),)
            reader.check_statistics()


def test_a_file_without_batches_has_no_lists() -> None:
    with bs.open_file(file_with_statistics(PAIRS.slice(3))) as reader:
        assert reader.statistics is not None
        assert reader.statistics.list_lengths == ((1, (NO_LISTS, NO_LISTS)),)
    sink = io.BytesIO()
    with bs.new_file(sink, PAIRS.schema) as writer:
        writer.enable_statistics()
    with bs.open_file(sink.getvalue()) as reader:
        assert reader.statistics is not None
        assert reader.statistics.list_lengths == ((1, (NO_LISTS, NO_LISTS)),)


def with_lengths(raw: bytes, lengths: list[Any]) -> bytes:
    """Return the file with other lengths of the lists in its second column."""

    def change(table: Any) -> Any:
        column = table["1"].combine_chunks()
        parts = [column.field("nulls"), pa.array(lengths, column.type.field("lengths").type)]
        return table.set_column(4, table.schema.field(4), pa.StructArray.from_arrays(parts, fields=list(column.type)))

    return replace_statistics(raw, change)


@pytest.mark.parametrize("lengths", [[[[2, 1], [0, 2]]], [[[-1, 1], [0, 2]]], [[list(NO_LISTS), [-5, -1]]]])
def test_impossible_lengths_are_an_error(lengths: list[Any]) -> None:
    reader = bs.open_file(with_lengths(file_with_statistics(PAIRS), lengths))
    with pytest.raises(errors.InvalidDataError, match="lengths of lists are negative, or the shortest"):
        _ = reader.statistics


@pytest.mark.parametrize("other", [[1], [[1]]])
def test_lengths_of_a_type_with_other_lists_are_an_error(other: list[Any]) -> None:
    raw = file_with_statistics(bs.record_batch({"other": other, "pairs": [[[1]]]}), columns=["pairs"])
    raw = replace_statistics(raw, lambda table: table.rename_columns([*table.column_names[:3], "0"]))
    with pytest.raises(errors.InvalidDataError, match=r"lengths of type fixed_size_list.* for a column of type"):
        _ = bs.open_file(raw).statistics


def test_check_statistics_finds_wrong_lengths() -> None:
    reader = bs.open_file(with_lengths(file_with_statistics(PAIRS), [[[2, 2], [0, 3]]]))
    with pytest.raises(
        errors.InvalidDataError, match=r"column 1: by the statistics, expected lists of .* found \(\(2, 2\)"
    ):
        reader.check_statistics()


def test_recovered_files_have_no_statistics() -> None:
    sink = io.BytesIO()
    bs.ipc.recover(file_with_statistics(*NUMBERS), sink)
    assert bs.open_file(sink.getvalue()).statistics is None


def test_statistics_copied_from_another_file_are_ignored() -> None:
    metadata = bs.open_file(file_with_statistics(*NUMBERS)).metadata
    sink = io.BytesIO()
    with bs.new_file(sink, NUMBERS[0].schema, metadata=metadata) as writer:
        for batch in reversed(NUMBERS):
            writer.write(batch)
    with bs.new_file(io.BytesIO(), NUMBERS[0].schema) as other:
        other.write(NUMBERS[0])
    shorter = io.BytesIO()
    with bs.new_file(shorter, NUMBERS[0].schema, metadata=metadata) as writer:
        writer.write(NUMBERS[5])
    assert bs.open_file(shorter.getvalue()).statistics is None
    assert bs.open_file(shorter.getvalue()).find_batches("n", 55) == [0]


# Malformed statistics


def replace_statistics(raw: bytes, change: Any) -> bytes:
    """Return the file with other statistics of the same length: `change` maps the old table to the new one."""
    old = bs.open_file(raw).metadata[METADATA_KEY]
    stream = pa.ipc.open_stream(base64.b64decode(old)).read_all()
    table = change(stream)
    sink = io.BytesIO()
    bs_table = bs.table(table)
    with bs.new_stream(sink, bs_table.schema, alignment=8) as writer:
        writer.write(bs_table)
    new = base64.b64encode(sink.getvalue())
    assert len(new) == len(old)
    return raw.replace(old, new)


def replace_column(table: Any, name: str, values: list[int]) -> Any:
    """Return the table with another column of numbers."""
    index = table.column_names.index(name)
    return table.set_column(index, table.schema.field(index), pa.array(values, pa.int64()))


def test_row_counts_that_contradict_the_header_raise_when_the_batch_is_read() -> None:
    raw = replace_statistics(
        file_with_statistics(*NUMBERS), lambda table: replace_column(table, "rows", [10] * 9 + [11])
    )
    reader = bs.open_file(raw)
    assert reader[9].num_rows == 10, "the statistics have not been read yet"
    assert reader.num_rows == 101
    with pytest.raises(
        errors.InvalidDataError, match="record batch 9: has 10 rows, expected 11 by the file's statistics"
    ):
        reader.read_all()


@pytest.mark.parametrize("rows", [[-1] + [10] * 9, [0] + [10] * 9])
def test_impossible_counts_are_an_error(rows: list[int]) -> None:
    raw = replace_statistics(file_with_statistics(*NUMBERS), lambda table: replace_column(table, "rows", rows))
    reader = bs.open_file(raw)
    with pytest.raises(
        errors.InvalidDataError, match=r"bowstring:statistics: (rows is negative|bounds without values)"
    ):
        _ = reader.statistics
    assert sum(map(len, reader)) == 100, "the batches can still be read"


@pytest.mark.parametrize("value", [b"", b"not base64!", base64.b64encode(b"no stream"), base64.b64encode(b"\xff" * 80)])
def test_data_that_is_not_statistics_is_an_error(value: bytes) -> None:
    sink = io.BytesIO()
    with bs.new_file(sink, NUMBERS[0].schema, metadata={METADATA_KEY: value}) as writer:
        writer.write(NUMBERS[0])
    reader = bs.open_file(sink.getvalue())
    with pytest.raises(errors.InvalidDataError, match="bowstring:statistics"):
        reader.find_batches("n", 1)
    assert reader[0].num_rows == 10


def test_statistics_with_flipped_bits_are_rejected_or_harmless() -> None:
    raw = file_with_statistics(*NUMBERS, NUMBERS[0])
    old = bs.open_file(raw).metadata[METADATA_KEY]
    stream = base64.b64decode(old)
    random = np.random.default_rng(5)
    num_errors = 0
    for _ in range(300):
        damaged = bytearray(stream)
        damaged[random.integers(len(stream))] ^= 1 << random.integers(8)
        reader = bs.open_file(raw.replace(old, base64.b64encode(damaged)))
        try:
            reader.find_batches("n", 25, 44)
            reader.check_statistics()
        except errors.InvalidDataError:
            num_errors += 1
    assert num_errors > 50


def test_check_statistics_finds_wrong_bounds() -> None:
    def swapped(table: Any) -> Any:
        column = table["0"].combine_chunks()
        parts = [column.field("nulls"), pa.array([5] * 10), pa.array([6] * 10)]
        batch_statistics = pa.StructArray.from_arrays(parts, fields=list(column.type))
        return table.set_column(3, table.schema.field(3), batch_statistics)

    reader = bs.open_file(replace_statistics(file_with_statistics(*NUMBERS), swapped))
    assert reader.find_batches("n", 50) == [], "bounds are not verified here"
    with pytest.raises(
        errors.InvalidDataError, match="record batch 0, column 0: by the statistics, expected values from 5 to 6"
    ):
        reader.check_statistics()


# Wrong use


def test_statistics_must_be_requested_before_the_first_batch() -> None:
    with bs.new_file(io.BytesIO(), NUMBERS[0].schema) as writer:
        with pytest.raises(errors.NotFoundError):
            writer.enable_statistics(["none"])
        with pytest.raises(errors.InvalidArgumentError, match="a list of names"):
            writer.enable_statistics("n")
        writer.write(NUMBERS[0])
        with pytest.raises(errors.InvalidArgumentError, match="before the first batch"):
            writer.enable_statistics()


def test_a_rejected_batch_is_not_counted() -> None:
    sink = io.BytesIO()
    with bs.new_file(sink, NUMBERS[0].schema) as writer:
        writer.enable_statistics()
        with pytest.raises(errors.InvalidArgumentError):
            writer.write(batch("int"))
        writer.write(NUMBERS[0])
    assert bs.open_file(sink.getvalue()).num_rows == 10
