"""Tables and chunked arrays over batches of one schema."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.layouts.registry import layout_of
from tests.arrays.recording_columns import RecordingColumns

VALUES = [1, None, 3, 4, None, 6]


def chunked_array(*lengths: int) -> bs.ChunkedArray:
    """Return the values in chunks of these lengths."""
    ends = np.cumsum(lengths).tolist()
    return bs.ChunkedArray(
        [bs.array(VALUES[e - n : e], bs.int64()) for e, n in zip(ends, lengths, strict=True)], bs.int64()
    )


CHUNKED = chunked_array(2, 0, 3, 1)
TABLE = bs.Table.from_arrays([CHUNKED, bs.array(list("abcdef"))], names=["n", "s"])


def test_chunks_with_different_dictionaries_are_combined_with_a_unified_one() -> None:
    words, type_ = [f"w{number}" for number in range(100)], bs.dictionary(bs.int8(), bs.string())
    chunks = [bs.array(words[start:] + words[:start], type_) for start in (0, 30, 60)]
    column = bs.ChunkedArray(chunks, type_)
    table = bs.concat_tables([bs.table({"w": chunk}) for chunk in chunks])
    values = column.to_pylist()
    for array in (column.combine_chunks(), bs.concat_arrays(chunks), table.combine_chunks()["w"].combine_chunks()):
        assert array.to_pylist() == values
        assert array.dictionary is not None
        assert array.dictionary.length == 100
    assert column.take([0, 150, 299]).to_pylist() == [values[0], values[150], values[299]]
    assert table.sort_by("w")["w"].to_pylist() == sorted(values)
    filled = bs.array([*map(str, range(128)), None], type_).fill_null("5")
    assert filled.to_pylist()[-1] == "5"
    assert filled.dictionary is not None
    assert filled.dictionary.length == 128


def test_columns_are_iterated_and_selected_by_name() -> None:
    table = bs.table({"a": [1, 2], "b": ["x", None]})
    batch = table.to_batches()[0]
    assert [column.to_pylist() for column in table] == [[1, 2], ["x", None]]
    assert [column.to_pylist() for column in batch] == [[1, 2], ["x", None]]
    for data in (table, batch):
        assert data.column("b") in data
        assert bs.array([1]) not in data
        with pytest.raises(InvalidArgumentError, match="the elements are columns, not names: use 'b' in column_names"):
            _ = "b" in data
    assert "b" in table.schema
    assert "c" not in table.schema
    long = table.rename_columns(["ab", "b"])
    assert long.select("ab").column_names == ["ab"], "one name, not its letters"
    assert long.drop_columns("ab").column_names == ["b"]


def test_the_repr_of_invalid_data_has_the_reason() -> None:
    invalid = bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 9, 1], np.int32), b"a"])
    table = bs.Table(bs.schema({"s": bs.string()}), [bs.RecordBatch(bs.schema({"s": bs.string()}), 2, [invalid])])
    for text in (repr(invalid), repr(table["s"]), table._repr_html_()):
        assert "offsets[2] = 1 is less than offsets[1] = 9" in text


def test_a_column_is_indexed_and_sliced_across_chunks() -> None:
    assert (len(CHUNKED), CHUNKED.num_chunks, CHUNKED.null_count) == (6, 4, 2)
    assert list(CHUNKED) == CHUNKED.to_pylist() == VALUES
    assert [CHUNKED[index] for index in range(-6, 6)] == VALUES * 2
    for index in (6, -7):
        with pytest.raises(IndexError, match="out of range for length 6"):
            CHUNKED[index]
    for start in range(7):
        for stop in range(start, 7):
            part = CHUNKED[start:stop]
            assert part.to_pylist() == VALUES[start:stop]
            assert all(chunk.own_buffers in [c.own_buffers for c in CHUNKED.chunks] for chunk in part.chunks)
    assert CHUNKED[::-2].to_pylist() == VALUES[::-2]
    assert CHUNKED.slice(9).to_pylist() == []
    with pytest.raises(bs.errors.InvalidArgumentError, match="slice"):
        CHUNKED.slice(-1)
    assert CHUNKED.chunk(2).to_pylist() == [3, 4, None]


def test_the_chunks_of_a_column_are_created_on_first_use() -> None:
    schema = bs.schema({"a": bs.int64(), "b": bs.string()})
    sources = [
        RecordingColumns([bs.array([1, 2]), bs.array(["x", "y"])]),
        RecordingColumns([bs.array([3]), bs.array([4])]),
    ]
    table = bs.Table(
        schema, [bs.RecordBatch(schema, rows, source) for rows, source in zip((2, 1), sources, strict=True)]
    )
    a, b = table.columns
    assert (len(a), a.type, [source.indices for source in sources]) == (3, bs.int64(), [[], []])
    assert [a.to_pylist(), a.num_chunks, a[2]] == [[1, 2, 3], 2, 3]
    assert [source.indices for source in sources] == [[0], [0]]
    for _ in range(2):
        with pytest.raises(TypeMismatchError, match="a chunk of int64 does not belong to a column of string"):
            b.to_pylist()


def test_values_and_slices_of_a_column_create_only_their_chunks() -> None:
    schema = bs.schema({"a": bs.int64()})
    sources = [RecordingColumns([bs.array([number])]) for number in range(5)]
    column = bs.Table(schema, [bs.RecordBatch(schema, 1, source) for source in sources])["a"]
    assert [column[2], column[2], column[-1], column.slice(1, 1).to_pylist(), next(iter(column))] == [2, 2, 4, [1], 0]
    assert [len(source.indices) for source in sources] == [1, 1, 1, 0, 1]
    assert column.chunk(-2) is column.chunks[3]
    with pytest.raises(IndexError):
        column.chunk(5)
    assert [len(source.indices) for source in sources] == [1] * 5


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_columns_are_equal_with_any_chunks(left: list[int], right: list[int]) -> None:
    def cut(lengths: list[int]) -> bs.ChunkedArray:
        return chunked_array(
            *(n for i, n in enumerate(lengths) if sum(lengths[: i + 1]) <= 6), max(0, 6 - _count_fitting_rows(lengths))
        )

    a, b = cut(left), cut(right)
    assert a == b
    assert a.combine_chunks().equals(b.combine_chunks())
    assert a != bs.ChunkedArray([bs.array([1, None, 3, 4, None, 7])], bs.int64())


def _count_fitting_rows(lengths: list[int]) -> int:
    return sum(n for i, n in enumerate(lengths) if sum(lengths[: i + 1]) <= 6)


def test_columns_differ_by_type_length_and_values() -> None:
    assert chunked_array(2, 3) != CHUNKED
    assert CHUNKED != VALUES
    assert bs.ChunkedArray([], bs.int8()) != bs.ChunkedArray([], bs.int16())
    with pytest.raises(bs.errors.TypeMismatchError, match="a chunk of int8"):
        bs.ChunkedArray([bs.array([1], bs.int8())], bs.int64())


def test_one_chunk_is_shared_with_numpy_and_several_are_copied() -> None:
    single = bs.ChunkedArray([bs.array([1, 2])], bs.int64())
    buffer = single.chunks[0].own_buffers[1]
    assert buffer is not None
    assert single.to_numpy(zero_copy_only=True).__array_interface__["data"][0] == buffer.address
    assert single.combine_chunks() is single.chunks[0]
    with pytest.raises(bs.errors.WouldCopyError, match="4 chunks"):
        CHUNKED.to_numpy(zero_copy_only=True)
    np.testing.assert_array_equal(CHUNKED.to_numpy(), [1, np.nan, 3, 4, np.nan, 6])
    np.testing.assert_array_equal(np.asarray(CHUNKED), [1, np.nan, 3, 4, np.nan, 6])
    assert bs.ChunkedArray([], bs.int8()).to_numpy().dtype == np.int8
    assert bs.ChunkedArray([], bs.int8()).combine_chunks().length == 0


def test_the_repr_has_the_first_and_last_values() -> None:
    assert repr(CHUNKED) == "<bowstring.ChunkedArray int64[6] in 4 chunks>\n[1, null, 3, 4, null, 6]"
    long = bs.ChunkedArray([bs.array(range(100))] * 2, bs.int64())
    assert repr(long).endswith("[0, 1, 2, 3, 4, …, 95, 96, 97, 98, 99]")


def test_a_table_has_a_batch_for_every_chunk_boundary() -> None:
    assert TABLE.shape == (6, 2)
    assert [batch.num_rows for batch in TABLE.to_batches()] == [2, 3, 1]
    assert TABLE.column("n") == CHUNKED
    assert TABLE["s"].to_pylist() == list("abcdef")
    assert [column.type for column in TABLE.columns] == TABLE.schema.types
    assert TABLE.to_pydict() == {"n": VALUES, "s": list("abcdef")}
    assert TABLE.to_pylist()[5] == {"n": 6, "s": "f"}
    with pytest.raises(bs.errors.NotFoundError):
        TABLE.column("x")


@pytest.mark.parametrize("start", range(8))
def test_rows_are_sliced_without_copying(start: int) -> None:
    for length in (None, 0, 1, 3, 9):
        part = TABLE.slice(start, length)
        stop = 6 if length is None else start + length
        assert part.to_pydict() == {"n": VALUES[start:stop], "s": list("abcdef")[start:stop]}
        assert part.num_rows == len(VALUES[start:stop])
    with pytest.raises(bs.errors.InvalidArgumentError):
        TABLE.slice(-1)


def test_tables_are_selected_concatenated_and_combined() -> None:
    assert TABLE.select(["s"]).to_pydict() == {"s": list("abcdef")}
    whole = TABLE.combine_chunks()
    assert len(whole.to_batches()) == 1
    assert whole == TABLE
    assert whole.combine_chunks() is whole
    twice = bs.concat_tables([TABLE, whole])
    assert twice.column("n").to_pylist() == VALUES * 2
    assert bs.Table.from_batches(TABLE.to_batches()) == TABLE
    with pytest.raises(bs.errors.InvalidArgumentError, match="batch 1 has another schema"):
        bs.Table.from_batches([TABLE.to_batches()[0], bs.record_batch({"n": [1]})])
    for empty in (bs.concat_tables, bs.concat_arrays, bs.Table.from_batches):
        with pytest.raises(bs.errors.InvalidArgumentError):
            empty([])
    with pytest.raises(bs.errors.InvalidArgumentError, match="int8 and string"):
        bs.concat_arrays([bs.array([1], bs.int8()), bs.array(["x"])])


def test_columns_of_a_table_must_match_in_length_and_type() -> None:
    arrays: list[Any] = [bs.array([1]), bs.array([1, 2])]
    with pytest.raises(bs.errors.InvalidArgumentError, match="column 'b' has 2 values"):
        bs.Table.from_arrays(arrays, names=["a", "b"])
    with pytest.raises(bs.errors.InvalidArgumentError, match="names, or a schema"):
        bs.Table.from_arrays(arrays)
    with pytest.raises(bs.errors.InvalidArgumentError, match="does not fit"):
        bs.Table.from_arrays(arrays, schema=bs.schema({"a": bs.int64()}))
    assert bs.Table.from_arrays([bs.array([], bs.int64())], schema=bs.schema({"a": bs.int8()})).schema.types == ["int8"]
    with pytest.raises(bs.errors.TypeMismatchError, match=r"column 'a'.*300"):
        bs.Table.from_arrays([bs.array([300])], schema=bs.schema({"a": bs.int8()}))


def test_a_table_without_batches_equals_one_without_rows() -> None:
    empty = bs.Table(TABLE.schema, [])
    assert empty.shape == (0, 2)
    assert empty.to_pydict() == {"n": [], "s": []}
    assert empty == TABLE.slice(6)
    assert empty.combine_chunks().num_rows == 0
    empty.validate(full=True)


def test_tables_are_equal_with_any_batches() -> None:
    assert TABLE.combine_chunks() == TABLE
    marked = TABLE.replace_schema_metadata({"k": "v"})
    assert marked == TABLE
    assert not marked.equals(TABLE, check_metadata=True)
    assert marked.to_batches()[0].schema.metadata == {b"k": b"v"}
    assert TABLE.slice(1) != TABLE
    assert TABLE.select([1, 0]) != TABLE
    assert TABLE != 1


def test_a_different_value_in_the_last_of_many_batches_is_detected() -> None:
    first, last = (bs.record_batch([bs.array(values)], names=["n"]) for values in ([1, 2], [3]))
    table, same = bs.Table.from_batches([first, last]), bs.Table.from_batches([first, last.slice()])
    other = bs.Table.from_batches([first, bs.record_batch([bs.array([4])], names=["n"])])
    assert table == same
    assert table.column(0) == same.column(0)
    assert table != other
    assert table.column(0) != other.column(0)


def test_tables_can_be_copied_printed_and_measured() -> None:
    assert pickle.loads(pickle.dumps(TABLE)) == TABLE
    assert repr(TABLE).startswith("<bowstring.Table 6 rows × 2 columns in 3 batches>\n┌")
    assert "6 rows × 2 columns" in TABLE._repr_html_()
    assert TABLE.nbytes == sum(batch.nbytes for batch in TABLE.to_batches())
    assert CHUNKED.nbytes == sum(chunk.nbytes for chunk in CHUNKED.chunks)


def test_to_pydict_rejects_or_keeps_duplicate_names() -> None:
    table = bs.table([[1], [2]], names=["a", "a"])
    for data in (table, table.to_batches()[0]):
        for become in (data.to_pydict, data.to_pylist):
            with pytest.raises(InvalidArgumentError, match="2 columns are called 'a'"):
                become()


def test_dictionaries_of_a_table_are_unified() -> None:
    batches = [bs.record_batch({"w": bs.array(words).dictionary_encode()}) for words in (["a", "b"], ["b", "c", None])]
    table = bs.Table.from_batches(batches).unify_dictionaries()
    first, second = table.column("w").chunks
    assert first.dictionary is second.dictionary
    assert first.dictionary is not None
    assert first.dictionary.to_pylist() == ["a", "b", "c"]
    assert table.to_pydict() == {"w": ["a", "b", "b", "c", None]}


def test_dictionaries_are_kept_without_rows() -> None:
    words = bs.array(["x", "y"], bs.dictionary(bs.int8(), bs.string()))
    table = bs.table({"word": words, "n": [1, 2]})
    empty = bs.table({"word": words[:0], "n": bs.array([], bs.int64())})
    for copy in (
        empty,
        table.slice(0, 0),
        table.slice(2),
        table.filter([False, False]),
        bs.Table.from_arrays([words[:0]], ["word"]),
        empty.append_column("word again", words[:0]),
        empty.set_column("n", "m", bs.ChunkedArray([words[:0], words[:0]], words.type)),
        bs.concat_tables([empty, empty]).add_column(0, "m", words[:0]),
        bs.Table.from_pandas(table.to_pandas()[:0]),
    ):
        copy.validate(full=True)
        assert copy.num_rows == 0
        dictionary = copy.column("word").chunk(0).dictionary
        assert dictionary is not None
        assert dictionary.to_pylist() == ["x", "y"]
        assert copy.to_pandas()["word"].cat.categories.tolist() == ["x", "y"]


def test_columns_without_chunks_make_a_table_without_batches() -> None:
    none = bs.ChunkedArray([], bs.int8())
    table = bs.Table.from_arrays([none], ["n"])
    assert table.to_batches() == table.append_column("m", none).to_batches() == table.slice(0, 0).to_batches() == []
    assert table.append_column("m", bs.array([], bs.int8())).to_batches() == []
    assert bs.table({"n": bs.array([], bs.int8())}).append_column("m", none).num_rows == 0


def test_tables_of_another_schema_are_not_concatenated_even_without_rows() -> None:
    table = bs.table({"n": [1, 2]})
    assert bs.concat_tables([table, table.slice(0, 0), table]).to_pydict() == {"n": [1, 2, 1, 2]}
    without_batches = bs.Table.from_batches([], bs.schema({"m": bs.int64()}))
    for other in (bs.table({"n": [None]}), bs.table({"n": []}), without_batches):
        with pytest.raises(bs.errors.InvalidArgumentError, match="table 1 has another schema"):
            bs.concat_tables([table, other, table])


@pytest.mark.parametrize("index_type", [bs.int8(), bs.uint8()], ids=str)
def test_chunks_are_read_even_if_their_unified_dictionary_is_too_large(index_type: Any) -> None:
    type_ = bs.dictionary(index_type, bs.string())
    words = [[f"{number:03}" for number in range(start, start - 100, -1)] for start in (300, 200, 100)]
    chunks = [bs.array([*part, None, part[0]], type_) for part in words]
    column = bs.ChunkedArray(chunks, type_)
    table = bs.Table.from_arrays([column, bs.array(range(306))], ["word", "n"])
    values = column.to_pylist()
    with pytest.raises(bs.errors.TypeMismatchError, match="too large for the indices"):
        column.combine_chunks()

    assert column.to_numpy().tolist() == values
    assert column.unique().to_pylist() == list(dict.fromkeys(values))
    order = column.sort_indices().to_pylist()
    assert [values[at] for at in order] == [*sorted(filter(None, values)), None, None, None]
    assert table.select(["n"]).take(order).column("n").to_pylist() == order
    frame = table.to_pandas()
    assert frame["word"].astype(object).where(frame["word"].notna(), None).tolist() == values
    assert len(frame["word"].cat.categories) == 300


@pytest.mark.parametrize("key", [np.s_[:], np.s_[1:3], np.s_[-2:], np.s_[3:1], np.s_[::-1], np.s_[:9:2]], ids=str)
def test_brackets_slice_the_rows_of_tables_and_batches(key: slice) -> None:
    batch = bs.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
    table = bs.concat_tables([bs.table(batch), bs.table(batch)])
    assert batch[key].to_pylist() == batch.to_pylist()[key]
    assert table[key].to_pylist() == table.to_pylist()[key]
    assert (type(batch[key]), type(table[key])) == (bs.RecordBatch, bs.Table)


def test_a_slice_with_a_step_does_not_materialize_far_more_rows_than_bytes() -> None:
    table = bs.table({"a": bs.Array(layout_of(bs.null()), 1 << 62, (), ())})
    assert table[1:].num_rows == (1 << 62) - 1
    with pytest.raises(bs.errors.LimitError):
        table[::2]
