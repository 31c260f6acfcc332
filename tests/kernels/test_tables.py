"""Functions on chunked arrays, record batches and tables: selecting rows and changing columns like pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs

ROWS: dict[str, list[Any]] = {
    "n": [3, None, 1, 2, None, 3],
    "s": ["c", "a", None, "b", "a", "d"],
    "d": ["x", "y", "x", None, "y", "x"],
}
TYPES = {"n": bs.int32(), "s": bs.string_view(), "d": bs.dictionary(bs.int8(), bs.string())}
BATCH_RANGES = [(0, 2), (2, 2), (2, 5), (5, 6)]


def batches() -> list[bs.RecordBatch]:
    """Return batches with different dictionaries."""
    return [
        bs.record_batch({name: bs.array(values[a:b], TYPES[name]) for name, values in ROWS.items()})
        for a, b in BATCH_RANGES
    ]


def table() -> bs.Table:
    return bs.Table.from_batches(batches())


def single_batch() -> bs.RecordBatch:
    return bs.record_batch({name: bs.array(values, TYPES[name]) for name, values in ROWS.items()})


TABLE_AND_BATCH = pytest.mark.parametrize("make", [table, single_batch])
Maker = Callable[[], Any]


def pyarrow_table() -> Any:
    return pa.table(ROWS)


def validated_columns(data: Any) -> Any:
    data.validate(full=True)
    return data.to_pydict()


@TABLE_AND_BATCH
@given(indices=st.lists(st.integers(0, 5), max_size=9))
@settings(max_examples=30)
def test_take_selects_rows(make: Maker, indices: list[int]) -> None:
    expected = pyarrow_table().take(pa.array(indices, pa.int64())).to_pydict()
    assert validated_columns(make().take(indices)) == expected
    assert validated_columns(make().take(np.array(indices, np.uint8))) == expected
    assert table()["d"].take(indices).to_pylist() == expected["d"]


@TABLE_AND_BATCH
@given(mask=st.lists(st.sampled_from([True, False, None]), min_size=6, max_size=6))
@settings(max_examples=30)
def test_filter_selects_rows(make: Maker, mask: list[bool | None]) -> None:
    expected = pyarrow_table().filter(pa.array(mask, pa.bool_())).to_pydict()
    assert validated_columns(make().filter(mask)) == expected
    chunked = bs.ChunkedArray([bs.array(mask[:1], bs.bool_()), bs.array(mask[1:], bs.bool_())], bs.bool_())
    assert validated_columns(make().filter(chunked)) == expected
    assert table()["s"].filter(chunked).to_pylist() == expected["s"]
    for other in (pa.array(mask, pa.bool_()), pa.chunked_array([mask], pa.bool_()), np.array(mask, object)):
        assert validated_columns(make().filter(other)) == expected


@TABLE_AND_BATCH
def test_columns_are_renamed(make: Maker) -> None:
    assert make().rename_columns(["a", "b", "c"]).to_pydict() == dict(zip("abc", ROWS.values(), strict=True))
    assert make().rename_columns({"s": "t"}).column_names == ["n", "t", "d"]


@TABLE_AND_BATCH
def test_columns_are_added_and_removed(make: Maker) -> None:
    extra = [0.5, None, 2.0, 1.0, 1.0, 7.0]
    chunked = bs.ChunkedArray([bs.array(extra[:3]), bs.array(extra[3:])], bs.float64())
    for column in (extra, bs.array(extra), chunked):
        assert validated_columns(make().add_column(1, "x", column)) == {
            "n": ROWS["n"],
            "x": extra,
            "s": ROWS["s"],
            "d": ROWS["d"],
        }
        assert list(validated_columns(make().append_column(bs.field("x", bs.float64(), False), column))) == [
            "n",
            "s",
            "d",
            "x",
        ]
        assert validated_columns(make().set_column(0, "x", column)) == {"x": extra, "s": ROWS["s"], "d": ROWS["d"]}
        assert list(validated_columns(make().set_column("d", "x", column))) == ["n", "s", "x"]
    assert make().add_column(-1, "x", extra).column_names == ["n", "s", "x", "d"]
    assert validated_columns(make().select(["n"]).set_column(0, "x", extra)) == {"x": extra}
    assert validated_columns(make().select([]).append_column("x", extra)) == {"x": extra}
    assert (
        list(validated_columns(make().remove_column(1)))
        == list(validated_columns(make().remove_column("s")))
        == ["n", "d"]
    )
    assert list(validated_columns(make().drop_columns(["n", "d"]))) == ["s"]
    assert list(validated_columns(make().drop_columns("s"))) == ["n", "d"]


@TABLE_AND_BATCH
def test_the_schema_keeps_its_metadata(make: Maker) -> None:
    batch = bs.RecordBatch(bs.schema({"a": bs.int64()}, {"k": "v"}), 1, [bs.array([1])])
    edited = batch.append_column("b", ["x"]).rename_columns({"a": "c"}).remove_column("b")
    assert edited.schema.equals(bs.schema({"c": bs.int64()}, {"k": "v"}), check_metadata=True)


@TABLE_AND_BATCH
@pytest.mark.parametrize(
    ("change", "error", "pattern"),
    [
        (lambda t: t.append_column("x", [1]), bs.errors.InvalidArgumentError, "'x' has 1 values for 6 rows"),
        (
            lambda t: t.append_column(bs.field("x", bs.int8()), bs.array([1] * 6)),
            bs.errors.InvalidArgumentError,
            "type int64, expected int8",
        ),
        (lambda t: t.append_column(7, [1] * 6), bs.errors.InvalidArgumentError, "name is a string, not 7"),
        (lambda t: t.add_column(4, "x", [1] * 6), bs.errors.NotFoundError, "index 4 is out of range for 3 columns"),
        (lambda t: t.set_column(3, "x", [1] * 6), bs.errors.NotFoundError, "column index 3 is out of range"),
        (lambda t: t.drop_columns(["z"]), bs.errors.NotFoundError, "no column is called 'z'"),
        (lambda t: t.rename_columns(["a"]), bs.errors.InvalidArgumentError, "1 names for 3 columns"),
        (lambda t: t.rename_columns({"z": "y"}), bs.errors.NotFoundError, "'z'"),
        (lambda t: t.take([6]), bs.errors.InvalidArgumentError, "array of length 6"),
        (lambda t: t.filter([True]), bs.errors.InvalidArgumentError, "does not fit 6"),
    ],
)
def test_invalid_changes_are_rejected(make: Maker, change: Callable[[Any], Any], error: Any, pattern: str) -> None:
    with pytest.raises(error, match=pattern):
        change(make())


def test_an_empty_table_accepts_its_first_column() -> None:
    nothing = bs.Table(bs.schema({}), [])
    assert validated_columns(nothing.append_column("x", [1, 2])) == {"x": [1, 2]}


def test_nulls_of_a_chunked_column_are_counted_dropped_and_filled() -> None:
    column = table()["n"]
    assert column.is_null().to_pylist() == [value is None for value in ROWS["n"]]
    assert column.is_valid().to_pylist() == [value is not None for value in ROWS["n"]]
    assert column.drop_null().to_pylist() == [3, 1, 2, 3]
    assert column.fill_null(0).to_pylist() == [3, 0, 1, 2, 0, 3]


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("null_placement", ["at_end", "at_start"])
def test_a_chunked_column_is_sorted_like_one_array(order: Any, null_placement: Any) -> None:
    for name, values in ROWS.items():
        column, whole = table()[name], bs.array(values, TYPES[name])
        assert column.sort_indices(order, null_placement).equals(whole.sort_indices(order, null_placement))
        assert column.sort(order, null_placement).to_pylist() == whole.sort(order, null_placement).to_pylist()


def test_the_chunks_of_a_column_are_encoded_with_one_dictionary() -> None:
    column = table()["s"]
    encoded = column.dictionary_encode(bs.int16())
    assert encoded.type == bs.dictionary(bs.int16(), bs.string_view())
    assert encoded.to_pylist() == ROWS["s"]
    assert [chunk.length for chunk in encoded.chunks] == [chunk.length for chunk in column.chunks]
    assert len({id(chunk.dictionary) for chunk in encoded.chunks}) == 1
    words = encoded.chunks[0].dictionary
    assert words is not None
    assert words.to_pylist() == ["c", "a", "b", "d"]
    assert encoded.dictionary_decode() == column
    assert column.dictionary_decode() == column


def test_a_dictionary_of_all_chunks_that_is_too_large_is_rejected() -> None:
    half = bs.array([f"a{n}" for n in range(100)]), bs.array([f"b{n}" for n in range(100)])
    column = bs.ChunkedArray(half, bs.string())
    assert column.dictionary_encode(bs.uint8()).to_pylist() == column.to_pylist()
    with pytest.raises(bs.errors.TypeMismatchError):
        column.dictionary_encode(bs.int8())


def test_the_chunks_of_a_column_are_run_end_encoded_and_decoded() -> None:
    for name, values in ROWS.items():
        runs = table()[name].run_end_encode(bs.int16())
        assert runs.type == bs.run_end_encoded(bs.int16(), TYPES[name])
        assert runs.to_pylist() == values
        assert runs.run_end_decode() == table()[name]


def test_a_column_without_chunks_can_be_cast() -> None:
    none = bs.ChunkedArray([], bs.string())
    assert none.dictionary_encode().type == bs.dictionary(bs.int32(), bs.string())
    assert none.dictionary_encode().dictionary_decode().type == bs.string()
    assert none.run_end_encode().run_end_decode().type == bs.string()
    assert none.sort_indices().length == none.sort().null_count == 0
