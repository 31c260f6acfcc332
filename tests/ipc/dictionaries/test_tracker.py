"""Writing dictionaries: once, as deltas or as replacements; with shared ids, or unified in advance."""

from __future__ import annotations

import io
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.datatypes.types import Dictionary
from bowstring.ipc.stream import Decoder, Encoder
from tests.ipc.formats import EVERY_WRITER
from tests.ipc.samples import as_file, as_stream

WORDS = bs.dictionary(bs.int8(), bs.string())
LISTS = bs.dictionary(bs.int16(), bs.list_(WORDS))
FORMATS = pytest.mark.parametrize("write", [as_file, as_stream])


def dictionary_array(
    indices: list[int | None], dictionary: bs.Array | list[Any], type_: bs.DataType = WORDS
) -> bs.Array:
    assert isinstance(type_, Dictionary)
    values = dictionary if isinstance(dictionary, bs.Array) else bs.array(dictionary, type_.value_type)
    own = bs.array(indices, type_.index_type)
    return bs.Array.from_buffers(type_, len(indices), own.own_buffers, dictionary=values)


def batch(*columns: bs.Array) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays(list(columns), ["a", "b", "c"][: len(columns)])


def word_batch(*dictionary: str | None) -> bs.RecordBatch:
    """Return a batch whose rows are all values of the dictionary."""
    return batch(dictionary_array(list(range(len(dictionary))), list(dictionary)))


def list_batch(inner: list[str], *outer: list[int]) -> bs.RecordBatch:
    """Return a batch whose rows are all values of a dictionary of lists of indices into another dictionary."""
    child = dictionary_array([index for one in outer for index in one], inner)
    offsets = bs.array([sum(map(len, outer[:row])) for row in range(len(outer) + 1)], bs.int32())
    dictionary = bs.Array.from_buffers(bs.list_(WORDS), len(outer), [None, offsets.own_buffers[1]], [child])
    return batch(dictionary_array(list(range(len(outer))), dictionary, LISTS))


def open_data(data: bytes) -> Any:
    return bs.open_file(data) if data.startswith(b"ARROW1") else bs.open_stream(data)


def read_with_pyarrow(data: bytes) -> list[Any]:
    """Return the validated batches that pyarrow reads."""
    if data.startswith(b"ARROW1"):
        reader: Any = pa.ipc.open_file(data)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    else:
        batches = list(pa.ipc.open_stream(data))
    for one in batches:
        one.validate(full=True)
    return batches


def check_batches(data: bytes, *batches: bs.RecordBatch, peer_reads: bool = True) -> None:
    """Check that Bowstring and pyarrow read these batches."""
    expected = [[repr(column.to_pylist()) for column in one.columns] for one in batches]
    assert [[repr(column.to_pylist()) for column in one.columns] for one in open_data(data)] == expected
    if peer_reads:
        assert [[repr(column.to_pylist()) for column in one.columns] for one in read_with_pyarrow(data)] == expected


def dictionary_counts(data: bytes) -> list[tuple[int, int]]:
    """Return for each dictionary the number of dictionary batches and of deltas among them."""
    return [(entry.batches, entry.deltas) for entry in bs.inspection.inspect(data).dictionaries]


# Nothing, deltas, replacements


@FORMATS
def test_a_dictionary_that_grows_is_written_as_a_delta(write: Any) -> None:
    batches = [word_batch("a", "b"), word_batch("a", "b", "c"), word_batch("a", "b", "c", None, "c")]
    data = write(*batches)
    assert dictionary_counts(data) == [(3, 2)]
    assert bs.inspection.inspect(data).dictionaries[0].values == 5
    check_batches(data, *batches)


@FORMATS
def test_a_prefix_of_the_current_dictionary_is_not_written(write: Any) -> None:
    batches = [word_batch("a", "b", "c"), word_batch("a", "b"), word_batch("a", "b", "c"), word_batch()]
    data = write(*batches)
    assert dictionary_counts(data) == [(1, 0)]
    check_batches(data, *batches)


@FORMATS
def test_a_column_of_nulls_does_not_replace_the_dictionary(write: Any) -> None:
    batches = [word_batch("a"), batch(dictionary_array([None, None], ["x", "y"])), word_batch("a", "b")]
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    check_batches(data, *batches)


@FORMATS
def test_a_column_of_nulls_may_come_first_with_an_empty_dictionary(write: Any) -> None:
    batches = [batch(dictionary_array([None, None], [])), word_batch("a")]
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    check_batches(data, *batches)


def test_another_dictionary_replaces_the_previous_one_in_a_stream() -> None:
    batches = [word_batch("a", "b"), word_batch("b", "a"), word_batch("b", "a", "c"), word_batch("x")]
    data = as_stream(*batches)
    assert dictionary_counts(data) == [(4, 1)]
    check_batches(data, *batches)


def test_a_file_rejects_a_batch_with_another_dictionary_and_accepts_the_next() -> None:
    sink = io.BytesIO()
    other = [dictionary_array([0, 1, 2], ["p", "q", "r"]), dictionary_array([0, 1, 2], ["b", "a", "z"])]
    first = batch(dictionary_array([0, 1], ["p", "q"]), dictionary_array([0, 1], ["a", "b"]))
    last = batch(dictionary_array([0, 1, 3], ["p", "q", "s", "t"]), dictionary_array([0, 1, 0], ["a", "b"]))
    with bs.new_file(sink, first.schema) as writer:
        writer.write(first)
        with pytest.raises(
            errors.InvalidArgumentError, match=r"column 'b': its dictionary changes.*unify_dictionaries"
        ):
            writer.write(batch(*other))
        writer.write(last)
    assert dictionary_counts(sink.getvalue()) == [(2, 1), (1, 0)]
    check_batches(sink.getvalue(), first, last)


def test_without_deltas_a_stream_replaces_the_dictionary_and_a_file_rejects_it() -> None:
    write_options = bs.ipc.IpcWriteOptions(dictionary_deltas="never")
    batches = [word_batch("a"), word_batch("a", "b")]
    data = as_stream(*batches, options=write_options)
    assert dictionary_counts(data) == [(2, 0)]
    check_batches(data, *batches)
    with pytest.raises(errors.InvalidArgumentError, match=r"column 'a': its dictionary grows.*dictionary_deltas"):
        as_file(*batches, options=write_options)


@FORMATS
@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0]])
def test_zeros_of_different_signs_are_different_values(write: Any, zeros: list[float]) -> None:
    type_ = bs.dictionary(bs.int8(), bs.float64())
    batches = [batch(dictionary_array([0], [zero], type_)) for zero in zeros]
    if write is as_file:
        with pytest.raises(errors.InvalidArgumentError, match="column 'a'"):
            write(*batches)
        return
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 0)]
    check_batches(data, *batches)


@FORMATS
def test_nan_is_like_any_other_value(write: Any) -> None:
    type_ = bs.dictionary(bs.int8(), bs.float32())
    nan = float("nan")
    batches = [batch(dictionary_array([0], [nan], type_)), batch(dictionary_array([0, 1], [nan, 1.0], type_))]
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    check_batches(data, *batches)


NESTINGS: dict[str, tuple[bs.DataType, list[Any], list[Any]]] = {
    "list": (bs.list_(WORDS), [["x", None], None, []], [["x", "y"]]),
    "list view": (bs.list_view(WORDS), [["x"], None], [["x", "y"], ["y"]]),
    "fixed list": (bs.list_(WORDS, 2), [["x", "x"], None], [["x", "y"]]),
    "struct": (bs.struct({"p": bs.int8(), "q": WORDS}), [{"p": 1, "q": "x"}, None], [(2, "x"), (3, "y")]),
    "map": (bs.map_(WORDS, WORDS), [[("k", "x")], None], [[("k", "x"), ("l", "y")]]),
    "dense": (bs.dense_union({"i": bs.int32(), "w": WORDS}), [1, "x"], ["x", "y", 2]),
    "sparse": (bs.sparse_union({"i": bs.int32(), "w": WORDS}), ["x", 5], ["x", "y"]),
    "runs": (bs.run_end_encoded(bs.int16(), WORDS), ["x", "x", None], ["x", "y", "y"]),
    "json": (bs.dictionary(bs.int8(), bs.struct({"j": bs.datatypes.json_()})), [{"j": "1"}], [{"j": "1"}, None]),
}


@FORMATS
@pytest.mark.parametrize("name", NESTINGS)
def test_dictionaries_grow_at_every_nesting(write: Any, name: str) -> None:
    type_, first, second = NESTINGS[name]
    batches = [batch(bs.array(values, type_)) for values in (first, second)]
    data = write(*batches)
    assert all(deltas <= 1 for _, deltas in dictionary_counts(data))
    read = list(open_data(data))
    assert [one.column(0).to_pylist() for one in read] == [one.column(0).to_pylist() for one in batches]
    for one, expected in zip(read_with_pyarrow(data), batches, strict=True):
        assert one.column(0).to_pylist() == pa.record_batch(expected).column(0).to_pylist()


# Dictionaries inside dictionaries

GROWING_BATCHES = [
    list_batch(["a", "b"], [0, 1]),
    list_batch(["a", "b", "c"], [0, 1], [2]),
    list_batch(["a", "b", "c"], [0, 1], [2], [1]),
    list_batch(["a", "b", "c", "d"], [0, 1], [2], [1]),
    list_batch(["a", "b", "c", "d"], [0, 1], [2], [1], [3, 0]),
]


def test_inner_and_outer_dictionaries_grow_by_deltas_in_a_file() -> None:
    data = as_file(*GROWING_BATCHES)
    assert dictionary_counts(data) == [(4, 3), (3, 2)]
    check_batches(data, *GROWING_BATCHES, peer_reads=False)


def test_outer_dictionaries_are_replaced_in_a_stream_because_pyarrow_does_not_read_their_deltas() -> None:
    data = as_stream(*GROWING_BATCHES)
    assert dictionary_counts(data) == [(4, 0), (3, 2)]
    check_batches(data, *GROWING_BATCHES)


def test_outer_dictionaries_grow_by_deltas_in_a_stream_on_request() -> None:
    data = as_stream(*GROWING_BATCHES, options=bs.ipc.IpcWriteOptions(dictionary_deltas="always"))
    assert dictionary_counts(data) == [(4, 3), (3, 2)]
    check_batches(data, *GROWING_BATCHES, peer_reads=False)
    with pytest.raises(pa.ArrowNotImplementedError, match="nested dictionary"):
        read_with_pyarrow(data)


def test_an_outer_dictionary_is_rewritten_after_an_inner_one_is_replaced() -> None:
    batches = [list_batch(["a", "b"], [0, 1]), list_batch(["b", "a"], [1, 0], [0])]
    data = as_stream(*batches, options=bs.ipc.IpcWriteOptions(dictionary_deltas="always"))
    assert dictionary_counts(data) == [(2, 0), (2, 0)], (
        "the outer one has grown, but its old indices now refer to other values"
    )
    check_batches(data, *batches)


@FORMATS
def test_an_inner_dictionary_that_changes_without_changing_values_is_not_written(write: Any) -> None:
    batches = [list_batch(["a", "b"], [0, 1]), list_batch(["b", "a", "unused"], [1, 0])]
    data = write(*batches)
    assert dictionary_counts(data) == [(1, 0), (1, 0)]
    check_batches(data, *batches)


def test_a_file_rejects_another_inner_dictionary() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="column 'a'"):
        as_file(list_batch(["a", "b"], [0, 1]), list_batch(["b", "a"], [1, 0], [0]))


OUTER_TYPES: dict[str, tuple[bs.DataType, list[Any]]] = {
    "large list": (bs.large_list(WORDS), [["a"], None, ["b", "a"], [], ["c"]]),
    "list view": (bs.list_view(WORDS), [["a"], None, ["b", "a"], [], ["c"]]),
    "fixed list": (bs.list_(WORDS, 2), [["a", "a"], ["b", None], None, ["c", "b"]]),
    "struct": (
        bs.struct({"p": WORDS, "q": bs.int8()}),
        [{"p": "a", "q": 1}, {"p": "b", "q": None}, {"p": "c", "q": 2}],
    ),
    "map": (bs.map_(WORDS, WORDS), [[("k", "a")], [("k", "b"), ("l", None)], [], [("m", "c")]]),
    "dense": (bs.dense_union({"w": WORDS, "i": bs.int32()}), ["a", 1, "b", 2, "c"]),
    "runs": (bs.run_end_encoded(bs.int16(), WORDS), ["a", "b", "c", "d"]),
    "twice": (
        bs.struct({"p": bs.dictionary(bs.int8(), bs.list_(WORDS))}),
        [{"p": ["a"]}, {"p": ["b"]}, {"p": ["a", "c"]}],
    ),
}


@pytest.mark.parametrize("name", OUTER_TYPES)
@pytest.mark.parametrize(("write", "deltas"), [(as_file, "auto"), (as_stream, "always"), (as_stream, "auto")])
def test_nested_dictionaries_grow_in_every_layout(name: str, write: Any, deltas: Any) -> None:
    value_type, values = OUTER_TYPES[name]
    type_ = bs.dictionary(bs.int16(), value_type)
    counts = range(1, len(values) + 1)
    batches = [batch(dictionary_array([count - 1, 0], values[:count], type_)) for count in counts]
    data = write(*batches, options=bs.ipc.IpcWriteOptions(dictionary_deltas=deltas))
    first, *_ = dictionary_counts(data)
    assert first == (len(values), 0 if deltas == "auto" and write is as_stream else len(values) - 1)
    read = list(open_data(data))
    for one, expected in zip(reversed(read), reversed(batches), strict=True):
        one.validate(full=True)
        assert one.column(0).to_pylist() == expected.column(0).to_pylist()
    if first[1] == 0:
        assert [one.column(0).to_pylist() for one in read_with_pyarrow(data)] == [
            pa.record_batch(expected).column(0).to_pylist() for expected in batches
        ]


# One id for several fields


def batch_sharing_dictionary(*indices: list[int | None], dictionary: bs.Array | None = None) -> bs.RecordBatch:
    values = bs.array(["x", "y", "z"]) if dictionary is None else dictionary
    return batch(*(dictionary_array(own, values) for own in indices))


def dictionary_ids(data: bytes) -> list[int]:
    return [entry.id for entry in bs.inspection.inspect(data).dictionaries]


@FORMATS
def test_fields_with_the_same_dictionary_share_one_id(write: Any) -> None:
    batches = [
        batch_sharing_dictionary([0, 1], [2, None], [1, 1]),
        batch_sharing_dictionary([1], [2], [0], dictionary=bs.array(["x", "y", "z"])),
    ]
    data = write(*batches)
    assert dictionary_counts(data) == [(1, 0)]
    assert dictionary_ids(data) == [0]
    check_batches(data, *batches)
    read = open_data(data).read_next_batch() if write is as_stream else open_data(data)[0]
    assert read.column(0).dictionary is read.column(2).dictionary


@FORMATS
def test_a_shared_id_is_kept_when_a_batch_is_written_again(write: Any) -> None:
    first = list(open_data(write(batch_sharing_dictionary([0, 1], [2, None]))))
    again = write(*first)
    assert dictionary_counts(again) == [(1, 0)]
    check_batches(again, *first)


@FORMATS
def test_slices_and_imported_arrays_of_the_same_memory_share_an_id(write: Any) -> None:
    dictionary = pa.array(["x", "y", "z"])
    columns = [pa.DictionaryArray.from_arrays(pa.array([index], pa.int8()), dictionary) for index in range(3)]
    batch = bs.record_batch(pa.record_batch(columns, ["a", "b", "c"]))
    data = write(batch)
    assert dictionary_counts(data) == [(1, 0)]
    check_batches(data, batch)


@FORMATS
def test_equal_dictionaries_in_other_memory_and_empty_ones_have_their_own_ids(write: Any) -> None:
    data = write(batch(dictionary_array([0], ["x"]), dictionary_array([0], ["x"])))
    assert dictionary_counts(data) == [(1, 0), (1, 0)]
    empty = bs.array([], bs.string())
    later = [
        batch_sharing_dictionary([None], [None], dictionary=empty),
        batch(dictionary_array([0], ["x"]), dictionary_array([0], ["y"])),
    ]
    data = write(*later)
    assert dictionary_counts(data) == [(2, 1), (2, 1)]
    check_batches(data, *later)


def test_fields_of_different_value_types_do_not_share_an_id() -> None:
    text = bs.array(["x"])
    binary = bs.Array.from_buffers(bs.binary(), 1, text.own_buffers)
    record_batch = batch(
        dictionary_array([0], text),
        dictionary_array([0], binary, bs.dictionary(bs.int8(), bs.binary())),
        dictionary_array([0], ["y"]),
    )
    assert dictionary_ids(as_file(record_batch)) == [0, 1, 2]


@FORMATS
def test_fields_of_different_index_types_share_an_id(write: Any) -> None:
    dictionary = bs.array(["x", "y"])
    record_batch = batch(
        dictionary_array([0], dictionary), dictionary_array([1], dictionary, bs.dictionary(bs.uint32(), bs.string()))
    )
    data = write(record_batch)
    assert dictionary_counts(data) == [(1, 0)]
    check_batches(data, record_batch)


@FORMATS
def test_a_shared_dictionary_grows_for_all_its_fields(write: Any) -> None:
    grown = bs.array(["x", "y", "z", "w"])
    batches = [
        batch_sharing_dictionary([0], [1]),
        batch(dictionary_array([1], grown.slice(0, 3)), dictionary_array([3], grown)),
    ]
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    check_batches(data, *batches)


@FORMATS
def test_fields_that_share_an_id_and_differ_later_get_a_combined_dictionary(write: Any) -> None:
    batches = [
        batch_sharing_dictionary([0, 1], [2, None]),
        batch(dictionary_array([1, 0, None], ["q", "x"]), dictionary_array([0, 1, 2], ["z", "y", "q"])),
        batch(dictionary_array([0], ["x"]), dictionary_array([1], ["z", "p"])),
        batch_sharing_dictionary([0, 1, 2], [2, None, 0]),
    ]
    data = write(*batches)
    assert dictionary_ids(data) == [0]
    assert dictionary_counts(data) == [(3, 2) if write is as_file else (4, 0)]
    check_batches(data, *batches)


@FORMATS
def test_fields_that_share_an_id_may_differ_and_be_equal_again(write: Any) -> None:
    first, second = bs.array(["x", "y"]), bs.array(["y", "x"])
    batches = [
        batch_sharing_dictionary([0, 1], [1, 0], dictionary=first),
        batch(dictionary_array([0, 1], first), dictionary_array([0, 1], second)),
        batch_sharing_dictionary([1, 0], [None, 1], dictionary=first),
        batch(dictionary_array([0, 1], first), dictionary_array([0], ["p"]).take([0, 0])),
        batch_sharing_dictionary([1, 0], [None, 1], dictionary=first),
        batch(dictionary_array([0], ["p"]), dictionary_array([0], ["q"])),
        batch_sharing_dictionary([1, 0], [None, 1], dictionary=first),
    ]
    check_batches(write(*batches), *batches)


def test_a_combined_dictionary_extends_the_shared_one_if_a_field_still_has_it() -> None:
    batches = [
        batch_sharing_dictionary([0], [1]),
        batch(dictionary_array([0], ["q"]), dictionary_array([2], ["x", "y", "z"])),
    ]
    data = as_stream(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    check_batches(data, *batches)


def test_a_combined_dictionary_too_large_for_the_indices_names_both_fields() -> None:
    first = batch_sharing_dictionary([0], [0])
    second = batch(*(dictionary_array([99], [f"{side}{number}" for number in range(100)]) for side in "pq"))
    for write in (as_file, as_stream):
        with pytest.raises(errors.InvalidArgumentError, match=r"columns 'a' and 'b':.*share_dictionaries=False"):
            write(first, second)
    data = as_stream(first, second, options=bs.ipc.IpcWriteOptions(share_dictionaries=False))
    assert dictionary_ids(data) == [0, 1]
    check_batches(data, first, second)


@FORMATS
def test_nested_dictionaries_are_shared_with_the_outer_one(write: Any) -> None:
    outer = list_batch(["a", "b"], [0, 1], [1]).column(0).dictionary
    assert outer is not None
    record_batch = batch(dictionary_array([0], outer, LISTS), dictionary_array([1], outer, LISTS))
    data = write(record_batch)
    assert dictionary_counts(data) == [(1, 0), (1, 0)]
    check_batches(data, record_batch)


@FORMATS
def test_nested_fields_share_ids_and_differ(write: Any) -> None:
    dictionary = bs.array(["x", "y"])
    type_ = bs.struct({"p": WORDS, "q": bs.list_(WORDS)})

    def record(p: bs.Array, q: bs.Array) -> bs.RecordBatch:
        offsets = bs.array([0, 1, 2], bs.int32()).own_buffers[1]
        inside = bs.Array.from_buffers(type_.fields[1].type, 2, [None, offsets], [q])
        return batch(bs.Array.from_buffers(type_, 2, [None], [p, inside]))

    batches = [
        record(dictionary_array([0, 1], dictionary), dictionary_array([1, None], dictionary)),
        record(dictionary_array([0, 1], ["s", "x"]), dictionary_array([1, 0], ["y", "t"])),
    ]
    data = write(*batches)
    assert dictionary_ids(data) == [0]
    check_batches(data, *batches)


def test_the_schema_is_delayed_only_if_fields_may_share_an_id() -> None:
    for columns, write_options, waits in (
        ([WORDS, WORDS], bs.ipc.IpcWriteOptions(), True),
        ([WORDS, WORDS], bs.ipc.IpcWriteOptions(share_dictionaries=False), False),
        ([WORDS, bs.dictionary(bs.int8(), bs.binary())], bs.ipc.IpcWriteOptions(), False),
        ([bs.string(), bs.string()], bs.ipc.IpcWriteOptions(), False),
    ):
        schema = bs.schema(list(zip("ab", columns, strict=False)))
        sink = io.BytesIO()
        with bs.new_stream(sink, schema, options=write_options) as writer:
            written = writer._sink.position
        assert (written == 0) == waits
        assert bs.open_stream(sink.getvalue()).read_all().num_rows == 0
        sink = io.BytesIO()
        bs.new_file(sink, schema, options=write_options).close()
        assert bs.open_file(sink.getvalue()).schema == schema


def test_after_a_rejected_first_batch_the_next_one_is_the_first() -> None:
    sink, batch = io.BytesIO(), batch_sharing_dictionary([0], [1])
    with bs.new_stream(sink, batch.schema) as writer:
        with pytest.raises(errors.InvalidArgumentError, match="another schema"):
            writer.write(word_batch("a"))
        writer.write(batch)
    assert dictionary_counts(sink.getvalue()) == [(1, 0)]
    check_batches(sink.getvalue(), batch)


def test_an_encoder_whose_schema_was_requested_first_does_not_share_ids() -> None:
    batch = batch_sharing_dictionary([0, 1], [2, None])
    encoder, decoder = Encoder(batch.schema), Decoder()
    encoded_messages = [encoder.encode_schema_message(), *encoder.encode_batch(batch)]
    assert [message.kind for message in encoded_messages] == ["Schema", *2 * ["DictionaryBatch"], "RecordBatch"]
    for message in encoded_messages:
        body = bs.memory.Buffer.of(b"".join(bytes(part) for part in message.parts))
        read = decoder.decode(message.metadata, body)
    assert read is not None
    assert read.equals(batch)


# Unified in advance


def write_unified(new: Any, *data: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, data[0].schema, options=bs.ipc.IpcWriteOptions(unify_dictionaries=True, **options)) as writer:
        for one in data:
            writer.write(one)
    return sink.getvalue()


@EVERY_WRITER
def test_a_table_is_written_with_one_dictionary_per_field(new: Any) -> None:
    batches = [
        batch_sharing_dictionary([0, 1], [2, None]),
        batch(dictionary_array([0, 1], ["q", "x"]), dictionary_array([1, 0], ["z", "y"])),
    ]
    data = write_unified(new, bs.Table.from_batches(batches))
    assert dictionary_counts(data) == [(1, 0), (1, 0)]
    assert [one.values for one in bs.inspection.inspect(data).dictionaries] == [4, 3]
    check_batches(data, *batches)


@EVERY_WRITER
def test_nested_dictionaries_are_unified(new: Any) -> None:
    batches = [list_batch(["a", "b"], [0, 1], [1]), list_batch(["c", "b"], [0], [1]), list_batch([], [])]
    data = write_unified(new, bs.Table.from_batches(batches))
    assert dictionary_counts(data) == [(1, 0), (1, 0)]
    assert [one.values for one in bs.inspection.inspect(data).dictionaries] == [4, 3]
    check_batches(data, *batches)


@EVERY_WRITER
def test_batches_after_a_unified_table_must_not_add_values(new: Any) -> None:
    sink = io.BytesIO()
    batches = [word_batch("a", "b", "c"), word_batch("c", "a"), word_batch("b", None)]
    with new(sink, batches[0].schema, options=bs.ipc.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write(batches[0])
        writer.write(batches[1])
        with pytest.raises(
            errors.InvalidArgumentError, match=r"column 'a': the written dictionary lacks 1 value,.*write_table"
        ):
            writer.write(batches[2])
        writer.write_table(bs.Table.from_batches([batches[1], word_batch("b", "c")]))
    assert dictionary_counts(sink.getvalue()) == [(1, 0)]
    check_batches(sink.getvalue(), batches[0], batches[1], batches[1], word_batch("b", "c"))


@EVERY_WRITER
def test_a_unified_dictionary_too_large_for_the_indices_names_the_column(new: Any) -> None:
    parts = [batch(dictionary_array([99], [f"{side}{number}" for number in range(100)])) for side in "pq"]
    with pytest.raises(errors.InvalidArgumentError, match=r"column 'a'.*200 values"):
        write_unified(new, bs.Table.from_batches(parts))


@EVERY_WRITER
def test_other_columns_and_metadata_of_a_unified_table_are_unchanged(new: Any) -> None:
    one = word_batch("a", "b").append_column("n", bs.array([1, None])).with_metadata(((b"k", b"v"),))
    other = word_batch("b", "c").append_column("n", bs.array([3, 4]))
    first, second = open_data(write_unified(new, bs.Table.from_batches([one, other])))
    assert first.equals(one)
    assert first.custom_metadata == {b"k": b"v"}
    assert second.equals(other)


# Extensions


UUIDS = bs.dictionary(bs.int8(), bs.datatypes.uuid())
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


@FORMATS
@pytest.mark.parametrize(
    "write_options",
    [bs.ipc.IpcWriteOptions(), bs.ipc.IpcWriteOptions(byte_order="big"), bs.ipc.IpcWriteOptions(compression="lz4")],
)
def test_dictionaries_of_extension_values_are_read_and_grow(write: Any, write_options: bs.ipc.IpcWriteOptions) -> None:
    batches = [
        batch(dictionary_array([0, None], [FIRST], UUIDS), bs.array([[FIRST], []], bs.list_(UUIDS))),
        batch(dictionary_array([1, 0], [FIRST, SECOND], UUIDS), bs.array([[FIRST], [SECOND]], bs.list_(UUIDS))),
    ]
    data = write(*batches, options=write_options)
    read = list(open_data(data))
    assert read[0].schema.equals(batches[0].schema, check_metadata=True)
    for one, expected in zip(read, batches, strict=True):
        one.validate(full=True)
        assert one.equals(expected)
    assert dictionary_counts(data)[0] == (2, 1)


def test_a_dictionary_of_extension_values_that_pyarrow_wrote_is_read() -> None:
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([FIRST.bytes, SECOND.bytes], pa.binary(16)))
    peer_batch = pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), values)], ["a"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, peer_batch.schema) as writer:
        writer.write_batch(peer_batch)
    (read,) = bs.open_stream(sink.getvalue())
    assert read.schema.field("a").type == UUIDS
    assert read.column(0).to_pylist() == [SECOND, FIRST, None]
    assert as_stream(read), "Bowstring writes it like pyarrow, although pyarrow does not read it again"


@bs.datatypes.register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class AnyStorageType(bs.datatypes.ExtensionType):
    """An extension of any storage type."""

    EXTENSION_NAME: ClassVar[str] = "tests.anything"


@FORMATS
def test_extensions_of_dictionaries_are_read_and_grow(write: Any) -> None:
    type_ = AnyStorageType(WORDS)
    batches = [
        batch(word_batch(*dictionary).column(0).with_layout(bs.array([], type_).layout)) for dictionary in ("ab", "abc")
    ]
    data = write(*batches)
    assert dictionary_counts(data) == [(2, 1)]
    read = list(open_data(data))
    assert [one.schema.field("a").type for one in read] == [type_, type_]
    check_batches(data, *batches)


def test_an_ambiguous_extension_of_dictionary_values_is_rejected() -> None:
    record_batch = batch(bs.array(["x"], bs.dictionary(bs.int8(), AnyStorageType(bs.string()))))
    with pytest.raises(errors.UnsupportedTypeError, match=r"column a: .* would be read as extension<tests.anything"):
        as_stream(record_batch)
    both = bs.schema([("a", AnyStorageType(UUIDS))])
    with pytest.raises(errors.UnsupportedTypeError, match="column a: one field can't have two extensions"):
        bs.new_stream(io.BytesIO(), both)


def test_an_unknown_extension_stays_in_the_metadata_of_a_dictionary() -> None:
    field = bs.field("a", WORDS, metadata={"ARROW:extension:name": "nobody.knows", "ARROW:extension:metadata": "x"})
    batch = bs.RecordBatch.from_arrays([dictionary_array([0], ["x"])], schema=bs.schema([field]))
    (read,) = bs.open_stream(as_stream(batch))
    assert read.schema.equals(batch.schema, check_metadata=True)
    assert read_with_pyarrow(as_stream(batch))[0].schema.field("a").metadata[b"ARROW:extension:name"] == b"nobody.knows"


@EVERY_WRITER
@pytest.mark.parametrize("name", NESTINGS)
def test_dictionaries_are_unified_at_every_nesting(new: Any, name: str) -> None:
    type_, first, second = NESTINGS[name]
    batches = [batch(bs.array(values, type_)) for values in (second, first, second)]
    data = write_unified(new, bs.Table.from_batches(batches))
    assert set(dictionary_counts(data)) == {(1, 0)}
    for one, expected in zip(open_data(data), batches, strict=True):
        one.validate(full=True)
        assert one.column(0).to_pylist() == expected.column(0).to_pylist()
    for one, expected in zip(read_with_pyarrow(data), batches, strict=True):
        assert one.column(0).to_pylist() == pa.record_batch(expected).column(0).to_pylist()


@FORMATS
def test_one_of_several_fields_with_a_shared_id_can_be_read_alone(write: Any) -> None:
    batches = [
        batch_sharing_dictionary([0, 1], [2, None]),
        batch_sharing_dictionary([1], [2], dictionary=bs.array(["x", "y", "z", "w"])),
    ]
    data = write(*batches)
    read: Any = bs.open_file(data, columns=["b"]) if write is as_file else bs.open_stream(data, columns=["b"])
    assert [one.to_pydict() for one in read] == [{"b": ["z", None]}, {"b": ["z"]}]
