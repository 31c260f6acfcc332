"""Record batches: columns of equal length, selected by name or index, sliced without copying."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest

import bowstring as bs
from tests.arrays.recording_columns import RecordingColumns

BATCH = bs.record_batch({"a": [1, None, 3], "b": ["x", "y", None]})


def test_columns_are_selected_by_name_and_index() -> None:
    assert BATCH.shape == (3, 2)
    assert (BATCH.num_rows, BATCH.num_columns, len(BATCH)) == (3, 2, 3)
    assert BATCH.column_names == ["a", "b"]
    assert BATCH.column("b") is BATCH.column(1) is BATCH.column(-1) is BATCH["b"] is BATCH.columns[1]
    for key in ("c", 2, -3):
        with pytest.raises(bs.errors.NotFoundError):
            BATCH.column(key)


def test_values_are_read_by_column_or_by_row() -> None:
    assert BATCH.to_pydict() == {"a": [1, None, 3], "b": ["x", "y", None]}
    assert BATCH.to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}]
    assert bs.RecordBatch(bs.schema([]), 2, []).to_pylist() == [{}, {}]


def test_slices_and_selections_share_memory() -> None:
    part = BATCH.slice(1, 5)
    assert part.num_rows == 2
    assert part.column(0).own_buffers is BATCH.column(0).own_buffers
    chosen = part.select(["b", 0])
    assert chosen.column_names == ["b", "a"]
    assert chosen.to_pydict() == {"b": ["y", None], "a": [None, 3]}
    assert chosen.columns[0].own_buffers is BATCH.column("b").own_buffers
    assert BATCH.slice(7).num_rows == 0
    for offset, length in ((-1, None), (0, -1)):
        with pytest.raises(bs.errors.InvalidArgumentError, match="slice"):
            BATCH.slice(offset, length)


def test_a_column_is_created_only_on_access() -> None:
    columns = RecordingColumns(BATCH.columns)
    batch = bs.RecordBatch(BATCH.schema, 3, columns)
    part = batch.select(["b", "a"]).slice(1)
    assert part.num_rows == 2
    assert columns.indices == []
    assert part.column("b").to_pylist() == ["y", None]
    assert columns.indices == [1]


def test_batches_are_equal_by_schema_and_values() -> None:
    other = bs.record_batch({"a": [1, None, 3], "b": ["x", "y", None]}, metadata={"k": "v"})
    assert other == BATCH
    assert not other.equals(BATCH, check_metadata=True)
    assert BATCH.slice(1) != BATCH
    assert BATCH.select([1, 0]) != BATCH
    assert bs.record_batch({"a": [1, None, 4], "b": ["x", "y", None]}) != BATCH
    nan = bs.record_batch({"a": [float("nan")]})
    assert nan != nan.slice(0)
    assert nan.equals(nan, nans_equal=True)


def test_lengths_and_types_must_match() -> None:
    one, two = bs.array([1]), bs.array([1, 2])
    schema = bs.schema({"a": bs.int8()})
    with pytest.raises(bs.errors.InvalidArgumentError, match="column 'b' has 2 values, the first column has 1"):
        bs.RecordBatch.from_arrays([one, two], names=["a", "b"])
    assert bs.RecordBatch.from_arrays([one], schema=schema).column("a").equals(one.cast("int8"))
    with pytest.raises(bs.errors.TypeMismatchError, match=r"column 'a'.*300"):
        bs.RecordBatch.from_arrays([bs.array([300])], schema=schema)
    with pytest.raises(bs.errors.InvalidArgumentError, match="names, or a schema"):
        bs.RecordBatch.from_arrays([one])
    with pytest.raises(bs.errors.InvalidArgumentError, match="1 fields does not fit 2"):
        bs.RecordBatch.from_arrays([one, two], schema=schema)


def test_custom_metadata_belongs_to_the_message() -> None:
    marked = BATCH.with_metadata(((b"k", b"v"),))
    assert marked.custom_metadata == {b"k": b"v"}
    assert marked.slice(1).custom_metadata == marked.select(["a"]).custom_metadata == {b"k": b"v"}
    assert BATCH.custom_metadata == {}
    assert BATCH.with_metadata({"k": "é"}).custom_metadata == {b"k": "é".encode()}
    assert BATCH.with_metadata([("k", b"v"), ("k", b"w")]).pairs == ((b"k", b"v"), (b"k", b"w"))
    with pytest.raises(bs.errors.InvalidArgumentError, match="custom metadata"):
        BATCH.with_metadata(cast(Any, 3))


def test_batches_can_be_copied_printed_and_measured() -> None:
    copied = pickle.loads(pickle.dumps(BATCH.slice(1).with_metadata(((b"k", b"v"),))))
    assert copied == BATCH.slice(1)
    assert copied.custom_metadata == {b"k": b"v"}
    assert repr(BATCH).startswith("<bowstring.RecordBatch 3 rows × 2 columns>\n┌")
    shown = bs.record_batch({"<b>": ["<script>", None]})._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert bs.record_batch({"a": [1, 2]}).nbytes == 16
