"""The coalescing writer combines small batches into large ones with the same rows in the same order."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.errors import ClosedError, InvalidArgumentError, TypeMismatchError
from bowstring.ipc import coalescing

SCHEMA = bs.schema(
    [
        bs.field("n", bs.int64()),
        bs.field("s", bs.string()),
        bs.field("ok", bs.bool_()),
        bs.field("tags", bs.list_(bs.string())),
        bs.field("kind", bs.dictionary(bs.int8(), bs.string())),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-9, 9),
        "s": st.none() | st.text(max_size=4),
        "ok": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.text(max_size=2), max_size=2),
        "kind": st.none() | st.sampled_from("abc"),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> bs.RecordBatch:
    return bs.record_batch({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=SCHEMA)


def numbers(*values: int) -> bs.RecordBatch:
    return bs.record_batch({"n": list(values)})


def coalesce(batches: list[bs.RecordBatch], **limits: int) -> list[bs.RecordBatch]:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, batches[0].schema), **limits) as writer:
        for batch in batches:
            writer.write(batch)
    return list(bs.open_stream(sink.getvalue()))


@settings(max_examples=40)
@given(st.lists(st.lists(ROWS, max_size=4), min_size=1, max_size=12), st.integers(1, 12), st.sampled_from([1, 8]))
def test_rows_are_unchanged(rows: list[list[dict[str, Any]]], min_rows: int, times: int) -> None:
    batches = [batch_of(rows_of_batch) for rows_of_batch in rows] * times
    batches_read = coalesce(batches, min_rows=min_rows)
    for batch in batches_read:
        batch.validate(full=True)
    assert [row for batch in batches_read for row in batch.to_pylist()] == [
        row for rows_of_batch in rows * times for row in rows_of_batch
    ]
    assert all(max(left.num_rows, right.num_rows) >= min_rows for left, right in pairwise(batches_read))


def test_a_file_gets_one_combined_batch(tmp_path: Path) -> None:
    path = tmp_path / "few.arrow"
    with bs.ipc.CoalescingWriter(bs.new_file(path, numbers(1).schema)) as writer:
        writer.write(bs.Table.from_batches([numbers(1), numbers(2, 3)]))
    with bs.open_file(path) as reader:
        assert [batch.to_pydict() for batch in reader] == [{"n": [1, 2, 3]}]


def test_large_batches_and_batches_with_metadata_are_written_unchanged() -> None:
    marked = bs.RecordBatch(numbers(4).schema, 1, numbers(4).columns, ((b"at", b"noon"),))
    batches = coalesce([numbers(1), numbers(2, 3), marked, numbers(5)], min_rows=2)
    assert [batch["n"].to_pylist() for batch in batches] == [[1], [2, 3], [4], [5]]
    assert [batch.custom_metadata for batch in batches] == [{}, {}, {b"at": b"noon"}, {}]


def test_pending_bytes_are_bounded() -> None:
    long = bs.record_batch({"s": ["x" * 1000]})
    assert [batch.num_rows for batch in coalesce([long] * 5, max_bytes=2000)] == [2, 2, 1]


def test_pending_dictionaries_are_bounded() -> None:
    one, other = (
        bs.record_batch({"w": bs.array([letter * 1000, "x"], bs.dictionary(bs.int8(), bs.string()))}) for letter in "ab"
    )
    assert [batch.num_rows for batch in coalesce([one] * 3 + [other] * 2 + [one] * 2, max_bytes=2000)] == [8, 4, 2]


def test_flush_writes_pending_rows() -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, numbers(1).schema)) as writer:
        writer.write(numbers(1))
        writer.write(numbers(2))
        assert repr(writer) == "<bowstring.ipc.CoalescingWriter: 2 rows of 2 batches gathered>"
        writer.flush()
        writer.write(numbers(3))
    assert [batch["n"].to_pylist() for batch in bs.open_stream(sink.getvalue())] == [[1, 2], [3]]


def test_an_exception_in_the_with_block_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.arrow"
    with (
        pytest.raises(ZeroDivisionError),
        bs.ipc.CoalescingWriter(bs.new_file(path, numbers(1).schema)) as writer,
    ):
        writer.write(numbers(1))
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ClosedError):
        writer.write(numbers(1))


def test_batches_of_another_schema_are_rejected() -> None:
    schema = numbers(1).schema
    other = bs.RecordBatch(schema, 1, [bs.array(["text"])])
    longer = bs.RecordBatch(schema, 1, [bs.array([1, 2])])
    for wrong, problem in (
        (other, "'n' has type string, expected int64"),
        (longer, "'n' has 2 values in a batch of 1"),
    ):
        writer = bs.ipc.CoalescingWriter(bs.new_stream(io.BytesIO(), schema))
        writer.write(numbers(1))
        writer.write(wrong)
        with pytest.raises(InvalidArgumentError, match=problem):
            writer.close()
    words = bs.record_batch({"s": ["a"]}).schema
    with (
        pytest.raises(InvalidArgumentError, match="'s' has type int64, expected string"),
        bs.ipc.CoalescingWriter(bs.new_stream(io.BytesIO(), words)) as writer,
    ):
        writer.write(bs.RecordBatch(words, 1, [bs.array([1])]))
    with bs.new_stream(io.BytesIO(), schema) as stream, bs.ipc.CoalescingWriter(stream) as writer:
        with pytest.raises(InvalidArgumentError, match="another schema"):
            writer.write(bs.record_batch({"m": [1]}))
        with pytest.raises(InvalidArgumentError, match="not 0 and"):
            bs.ipc.CoalescingWriter(stream, min_rows=0)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in SCHEMA.names}


@given(
    st.lists(st.tuples(st.lists(ROWS, max_size=4), st.sampled_from(["values", "batch", "flush"])), max_size=12),
    st.integers(1, 30),
)
def test_rows_and_batches_stay_in_order(pieces: list[tuple[list[dict[str, Any]], str]], min_rows: int) -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, SCHEMA), min_rows=min_rows) as writer:
        for rows, how in pieces:
            if how == "batch":
                writer.write(batch_of(rows))
            else:
                writer.write_pydict(columns_of(rows))
            if how == "flush":
                writer.flush()
    table = bs.open_stream(sink.getvalue()).read_all()
    table.validate(full=True)
    assert table.to_pylist() == [row for rows, _ in pieces for row in rows]


def test_values_are_copied_when_they_are_added() -> None:
    sink, values = io.BytesIO(), [1, 2]
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, numbers(1).schema)) as writer:
        writer.write_pydict({"n": values})
        values[:] = [7, 8, 9]
        writer.write_pydict({"n": (3,), "left out": ["x"]})
        writer.write_pydict({"n": np.array([4, 5])})
        writer.write_pydict({"n": bs.array([6])})
        assert repr(writer) == "<bowstring.ipc.CoalescingWriter: 6 rows of 3 batches gathered>"
    assert bs.open_stream(sink.getvalue()).read_all().to_pydict() == {"n": [1, 2, 3, 4, 5, 6]}


def test_values_of_no_rows_write_no_batch() -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, numbers(1).schema)) as writer:
        writer.write_pydict({"n": []})
        assert writer.num_buffered_rows == 0
    assert list(bs.open_stream(sink.getvalue())) == []


def test_pending_rows_are_bounded() -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, dictionary_batch("a").schema), max_bytes=1 << 20) as writer:
        for _ in range(100):
            writer.write_pydict({"w": ["x"] * 100, "l": [["y"]] * 100})
            assert writer._num_unconverted_rows < 2048 + 100
    with bs.ipc.CoalescingWriter(bs.new_stream(sink := io.BytesIO(), numbers(1).schema), min_rows=5) as writer:
        for _ in range(10):
            writer.write_pydict({"n": [1, 2, 3]})
    assert [batch.num_rows for batch in bs.open_stream(sink.getvalue())] == [6] * 5


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"a": [1]}, "lacks"),
        ({"a": [1], "b": ["x", "y"]}, "2 values"),
        ({"a": [1], "b": "x"}, "a sequence of values, found 'x'"),
        ({"a": [1], "b": None}, "a sequence of values, found None"),
        ([1], "1 columns"),
        (None, "not NoneType"),
    ],
)
def test_invalid_columns_are_rejected_and_nothing_is_added(columns: Any, problem: str) -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, bs.schema({"a": bs.int8(), "b": bs.string()}))) as writer:
        writer.write_pydict({"a": [1], "b": ["x"]})
        with pytest.raises((InvalidArgumentError, TypeMismatchError), match=problem):
            writer.write_pydict(columns)
        writer.write_pydict({"b": ["y"], "a": [2]})
    assert bs.open_stream(sink.getvalue()).read_all().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    with pytest.raises(ClosedError):
        writer.write_pydict({"a": [1], "b": ["x"]})


def test_a_value_of_the_wrong_type_is_named_when_its_array_is_built(tmp_path: Path) -> None:
    path = tmp_path / "none.arrow"
    with (
        pytest.raises(TypeMismatchError, match="column 'n': value 0: 'three' cannot be converted to int64"),
        bs.ipc.CoalescingWriter(bs.new_file(path, numbers(1).schema)) as writer,
    ):
        writer.write_pydict({"n": [1, 2]})
        writer.write_pydict({"n": ["three"]})
    assert list(tmp_path.iterdir()) == []
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, numbers(1).schema)) as writer:
        writer.write_pydict({"n": [1, 2]})
        writer.write_pydict({"n": [3, 1 << 70]})
        writer.write_pydict({"n": ["late"]})
        writer.write_pydict({"n": [4]})
        with pytest.raises(TypeMismatchError, match="column 'n': value 1"):
            writer.flush()
        writer.write_pydict({"n": [5]})
    assert bs.open_stream(sink.getvalue()).read_all().to_pydict() == {"n": [1, 2, 4, 5]}


def dictionary_batch(*words: str | None) -> bs.RecordBatch:
    type_ = bs.dictionary(bs.int8(), bs.string())
    return bs.RecordBatch.from_arrays(
        [bs.array(list(words), type_), bs.array([list(words)], bs.list_(type_)).take([0] * len(words))], ["w", "l"]
    )


def test_dictionaries_of_combined_batches_are_unified() -> None:
    batches = [dictionary_batch("a", "b"), dictionary_batch("b", None, "a"), dictionary_batch("c", "a")] * 40
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, batches[0].schema), min_rows=1 << 20) as writer:
        for batch in batches:
            writer.write(batch)
    (read,) = bs.open_stream(sink.getvalue())
    assert read.to_pydict() == bs.Table.from_batches(batches).to_pydict()
    assert [one.values for one in bs.inspection.inspect(sink.getvalue()).dictionaries] == [3, 3]


def test_batches_are_not_combined_if_their_unified_dictionary_is_too_large() -> None:
    batches = [dictionary_batch(*(f"{part}-{number}" for number in range(100))) for part in range(3)]
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, batches[0].schema), min_rows=1 << 20) as writer:
        for batch in batches:
            writer.write(batch)
    assert [batch.to_pydict() for batch in bs.open_stream(sink.getvalue())] == [batch.to_pydict() for batch in batches]


def test_many_batches_become_one_although_some_are_combined_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "_MAX_UNJOINED_BATCHES", 128)
    count, sink = 3 * coalescing._MAX_UNJOINED_BATCHES + 5, io.BytesIO()
    batches = [dictionary_batch(str(number % 3), None) for number in range(count)]
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, batches[0].schema)) as writer:
        for batch in batches:
            writer.write(batch)
        assert repr(writer) == f"<bowstring.ipc.CoalescingWriter: {2 * count} rows of {3 + 5} batches gathered>"
    (read,) = bs.open_stream(sink.getvalue())
    read.validate(full=True)
    assert read.to_pydict() == bs.Table.from_batches(batches).to_pydict()
    assert [one.values for one in bs.inspection.inspect(sink.getvalue()).dictionaries] == [3, 3]


def test_the_writer_is_abandoned_if_gathered_rows_cannot_be_written(tmp_path: Path) -> None:
    batches = [dictionary_batch(*(f"{part}-{number}" for number in range(100))) for part in range(2)]
    writer = bs.ipc.CoalescingWriter(bs.new_file(tmp_path / "x.arrow", batches[0].schema), min_rows=150)
    writer.write(batches[0])
    with pytest.raises(InvalidArgumentError, match="can only be extended"):
        writer.write(batches[1])
    with pytest.raises(ClosedError):
        writer.write(batches[0])
    writer.close()
    assert not list(tmp_path.iterdir())


def test_batches_with_large_dictionaries_become_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "_MAX_UNJOINED_BATCHES", 128)
    count, sink = 2 * coalescing._MAX_UNJOINED_BATCHES, io.BytesIO()
    batches = [
        dictionary_batch(f"{number // coalescing._MAX_UNJOINED_BATCHES}-{number % 100}") for number in range(count)
    ]
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, batches[0].schema)) as writer:
        for batch in batches:
            writer.write(batch)
    batches_read = list(bs.open_stream(sink.getvalue()))
    assert [batch.num_rows for batch in batches_read] == [coalescing._MAX_UNJOINED_BATCHES] * 2
    assert bs.Table.from_batches(batches_read).to_pydict() == bs.Table.from_batches(batches).to_pydict()


def test_batches_that_cannot_be_combined_keep_their_position() -> None:
    whole = bs.record_batch({"n": list(range(600)), "s": [str(value) for value in range(600)]})
    pieces = [whole.slice(at, 1) for at in range(600)]
    rebuilt = [bs.record_batch(piece.to_pydict(), schema=whole.schema) for piece in pieces]
    mixed = [rebuilt[at] if at // 100 % 2 else pieces[at] for at in range(600)]
    batches_read = coalesce(mixed)
    assert [batch.to_pydict() for batch in batches_read] == [whole.to_pydict()]


def test_a_slice_counts_only_its_own_bytes() -> None:
    whole = bs.record_batch({"n": np.arange(100_000)})
    batches = coalesce([whole.slice(at, 1) for at in range(100)], max_bytes=500_000)
    assert [batch.num_rows for batch in batches] == [100]


def test_suddenly_growing_rows_are_written_early() -> None:
    small, large = (bs.record_batch({"s": ["x" * length]}) for length in (1, 10_000))
    batches = coalesce([small] * 1000 + [large] * 2000, max_bytes=100_000)
    assert batches[0].num_rows < 1000 + 1024, "as many again may be too many"
    assert max(batch.num_rows for batch in batches[1:]) <= 11
