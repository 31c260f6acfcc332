"""Dictionaries of other writers: at any position and in any order that the format allows, and malformed ones."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.encoded_schema import encode_schema
from bowstring.ipc.metadata.header import DictionaryHeader
from bowstring.ipc.stream import EncodedMessage, Encoder
from fuzz.editable_stream import parse_stream
from tests.ipc.dictionaries.test_tracker import (
    GROWING_BATCHES,
    batch,
    dictionary_array,
    list_batch,
    open_data,
    word_batch,
)
from tests.ipc.samples import UnrecordedSink, as_file, as_stream

FORMATS = pytest.mark.parametrize(
    ("kind", "open_"), [(bs.ipc.FileWriter, bs.open_file), (bs.ipc.StreamWriter, bs.open_stream)]
)


def encode_batches(*batches: bs.RecordBatch, **options: Any) -> list[EncodedMessage]:
    """Return the messages of batches without the schema."""
    encoder = Encoder(batches[0].schema, options=bs.ipc.IpcWriteOptions(**options))
    return [message for one in batches for message in encoder.encode_batch(one)]


def dictionary_message(schema: bs.Schema, id_: int, values: bs.Array, is_delta: bool = False) -> EncodedMessage:
    """Return a dictionary batch of these values, regardless of the schema."""
    return Encoder(schema)._encode_message(values.length, [values], (), DictionaryHeader(id_, is_delta))


def write_messages(kind: Any, schema: bs.Schema, messages: list[EncodedMessage], **options: Any) -> bytes:
    """Return a file or stream of the messages in this order, on which readers may disagree."""
    sink = UnrecordedSink()
    writer = kind(sink, Encoder(schema, options=bs.ipc.IpcWriteOptions(**options)))
    writer._write_schema()
    for message in messages:
        writer._write_message(message)
    writer.close()
    return bytes(sink.content)


def column_values(one: bs.RecordBatch) -> list[Any]:
    return one.column(0).to_pylist()


def test_dictionaries_may_be_anywhere_in_a_file() -> None:
    batches = [word_batch("a", "b"), word_batch("a", "b", "c")]
    first, use, delta, again = encode_batches(*batches)
    data = write_messages(bs.ipc.FileWriter, batches[0].schema, [use, again, first, delta])
    assert [column_values(one) for one in bs.open_file(data)] == [["a", "b"], ["a", "b", "c"]]
    assert pa.ipc.open_file(data).read_all().column(0).to_pylist() == ["a", "b", "a", "b", "c"]


def test_a_column_of_nulls_may_come_before_its_dictionary() -> None:
    batches = [batch(dictionary_array([None, None], [])), word_batch("a")]
    _, nulls, _, use = encode_batches(*batches)
    first = dictionary_message(batches[0].schema, 0, bs.array(["a"]))
    data = write_messages(bs.ipc.StreamWriter, batches[0].schema, [nulls, first, use])
    for batches_read in (list(bs.open_stream(data)), bs.open_stream(data).read_all().to_batches()):
        assert [column_values(one) for one in batches_read] == [[None, None], ["a"]]
        batches_read[0].validate(full=True)


@FORMATS
def test_an_inner_dictionary_may_come_after_the_outer_one(kind: Any, open_: Any) -> None:
    batch = list_batch(["a", "b"], [0, 1], [1])
    inner, outer, use = encode_batches(batch)
    data = write_messages(kind, batch.schema, [outer, inner, use])
    assert column_values(next(iter(open_(data)))) == [["a", "b"], ["b"]]
    assert column_values(next(iter(open_(data)))) == pa.table(batch).column(0).to_pylist()


@pytest.mark.parametrize("write_options", [{}, {"byte_order": "big"}, {"compression": "lz4"}])
def test_indices_refer_to_the_dictionary_at_the_batch_s_position(write_options: Any) -> None:
    batches = [list_batch(["a", "b"], [0, 1]), list_batch(["p", "q"], [1, 0])]
    inner, outer, use, inner_2, outer_2, _ = encode_batches(*batches, **write_options)
    for between, expected in (
        ([inner_2, outer_2], ["q", "p"]),
        ([outer_2, inner_2], ["q", "p"]),
        ([inner_2], ["p", "q"]),
        ([outer_2], ["b", "a"]),
        ([], ["a", "b"]),
    ):
        for start in ([inner, outer], [outer, inner]):
            data = write_messages(bs.ipc.StreamWriter, batches[0].schema, [*start, use, *between, use], **write_options)
            first, second = bs.open_stream(data)
            assert (column_values(second), column_values(first)) == ([expected], [["a", "b"]])
            if start[0] is inner:
                assert pa.ipc.open_stream(data).read_all().column(0).to_pylist()[1] == expected


def test_deltas_of_an_outer_dictionary_use_the_inner_one_of_the_batch() -> None:
    batches = [list_batch(["a", "b"], [0, 1]), list_batch(["p", "q", "r"], [0, 1], [2])]
    inner, outer, use, inner_2, _, use_2 = encode_batches(*batches)
    grown = [list_batch(["a", "b"], [0, 1]), list_batch(["a", "b", "c"], [0, 1], [2])]
    _, _, _, inner_delta, outer_delta, _ = encode_batches(*grown, dictionary_deltas="always")
    data = write_messages(
        bs.ipc.StreamWriter,
        batches[0].schema,
        [inner, outer, use, inner_delta, outer_delta, use_2, inner_2, use_2, use],
    )
    read = [column_values(one) for one in bs.open_stream(data)]
    assert read == [[["a", "b"]], [["a", "b"], ["c"]], [["p", "q"], ["r"]], [["p", "q"]]]


@FORMATS
def test_a_missing_inner_dictionary_is_an_error(kind: Any, open_: Any) -> None:
    batch = list_batch(["a", "b"], [0, 1], [1])
    _, outer, use = encode_batches(batch)
    one = next(iter(open_(write_messages(kind, batch.schema, [outer, use]))))
    with pytest.raises(
        errors.InvalidDataError,
        match=r"column 'a': dictionary 1, which is inside dictionary 0, has not|dictionary 1 has not been defined",
    ):
        one.column(0)


@FORMATS
def test_a_delta_of_a_missing_dictionary_is_an_error(kind: Any, open_: Any) -> None:
    batch = word_batch("a")
    _, use = encode_batches(batch)
    data = write_messages(
        kind, batch.schema, [dictionary_message(batch.schema, 0, bs.array(["a"]), is_delta=True), use]
    )
    with pytest.raises(errors.InvalidDataError, match=r"delta.*dictionary 0"):
        [column_values(one) for one in open_(data)]


@FORMATS
def test_a_dictionary_without_a_field_is_an_error(kind: Any, open_: Any) -> None:
    batch = word_batch("a")
    data = write_messages(
        kind, batch.schema, [dictionary_message(batch.schema, 7, bs.array(["a"])), *encode_batches(batch)]
    )
    with pytest.raises(errors.InvalidDataError, match=r"dictionary 7 is not in the schema, which has \[0\]"):
        [column_values(one) for one in open_(data)]


@FORMATS
@pytest.mark.parametrize("is_delta", [False, True])
@pytest.mark.parametrize(
    "values",
    [bs.array([1, 2]), bs.array([["x"]], bs.list_(bs.string())), bs.array([None]), bs.array(["x"], bs.string_view())],
    ids=lambda values: str(values.type),
)
def test_a_dictionary_of_another_type_is_an_error(kind: Any, open_: Any, is_delta: bool, values: bs.Array) -> None:
    batch = word_batch("a")
    first, use = encode_batches(batch)
    odd = dictionary_message(batch.schema, 0, values, is_delta)
    data = write_messages(kind, batch.schema, [*([first] if is_delta else []), odd, use])
    with pytest.raises(errors.InvalidDataError, match=r"dictionary|message"):
        [column_values(one) for one in open_(data)]


def test_a_second_dictionary_in_a_file_is_an_error() -> None:
    batch = word_batch("a")
    first, use = encode_batches(batch)
    data = write_messages(bs.ipc.FileWriter, batch.schema, [first, first, use])
    with pytest.raises(errors.InvalidDataError, match="only one non-delta batch of dictionary 0"):
        column_values(bs.open_file(data)[0])


def test_an_index_beyond_a_replaced_dictionary_is_an_error() -> None:
    batches = [word_batch("a", "b", "c"), word_batch("x")]
    first, use, replacement, _ = encode_batches(*batches)
    data = write_messages(bs.ipc.StreamWriter, batches[0].schema, [first, use, replacement, use])
    good, bad = bs.open_stream(data)
    assert column_values(good) == ["a", "b", "c"]
    with pytest.raises(errors.InvalidDataError, match=r"indices\[1\] = 1 is not within the dictionary of 1 values"):
        column_values(bad)
    with pytest.raises(errors.InvalidDataError, match="column 'a'"):
        bad.validate(full=True)


def test_fields_that_share_an_id_with_different_value_types_are_an_error() -> None:
    schema = bs.schema([("a", bs.dictionary(bs.int8(), bs.string())), ("b", bs.dictionary(bs.int8(), bs.int32()))])
    with pytest.raises(errors.InvalidDataError, match="dictionary 0 is of type"):
        encode_schema(schema, bs.ipc.IpcWriteOptions(), (0, 0))


@pytest.mark.parametrize("convert", [as_stream, as_file])
@pytest.mark.parametrize("id_", [0, 1, 5])
@pytest.mark.parametrize("is_delta", [False, True])
def test_a_dictionary_that_contains_itself_is_an_error(convert: Any, id_: int, is_delta: bool) -> None:
    stream = parse_stream(convert(list_batch(["a", "b"], [0, 1], [1])))
    assert stream is not None
    if stream.footer is not None:
        stream.footer.slots["schema"] = stream.footer.slots["schema"].copy()
    headers = [message.header for message in stream.messages if message.header is not None]
    for node in (node for root in (*headers, *filter(None, [stream.footer])) for node in root.nodes()):
        if node.definition in ("DictionaryEncoding", "DictionaryBatch"):
            node.slots["id"] = id_
        if node.definition == "DictionaryBatch" and node is not headers[1]:
            node.slots["isDelta"] = is_delta
    data = stream.encode()
    message = f"dictionary {id_} is of type list<item: dictionary<.*>> and of type string"
    for read in (
        lambda: [column_values(one) for one in open_data(data)],
        lambda: open_data(data).read_all().to_pydict(),
    ):
        with pytest.raises(errors.InvalidDataError, match=message):
            read()


# A thousand deltas


def growing_batches(count: int) -> list[bs.RecordBatch]:
    """Return batches whose dictionary grows by ten values each."""
    every = bs.array([f"the word number {number}" for number in range(10 * count)])
    type_ = bs.dictionary(bs.int32(), bs.string())
    return [batch(dictionary_array([10 * n, 10 * n + 9], every.slice(0, 10 * n + 10), type_)) for n in range(count)]


@FORMATS
def test_a_thousand_deltas_take_linear_time_and_memory(kind: Any, open_: Any) -> None:
    batches = growing_batches(1000)
    start = time.process_time()
    data = (as_file if kind is bs.ipc.FileWriter else as_stream)(*batches)
    assert bs.inspection.inspect(data).num_delta_batches == 999
    assert len(data) < 1_500_000
    read = list(open_(data))
    columns = [column_values(one) for one in read]
    taken_s = time.process_time() - start
    assert columns == [[f"the word number {10 * n}", f"the word number {10 * n + 9}"] for n in range(1000)]
    assert taken_s < 20
    memories = {
        id(b.memory): b.memory.size for one in read for b in one.column(0).dictionary.own_buffers if b is not None
    }
    assert sum(memories.values()) < 20 * len(data), "each batch has its own dictionary"


def test_a_dictionary_with_a_thousand_deltas_is_written_with_them_again() -> None:
    read = list(bs.open_stream(as_stream(*growing_batches(1000))))
    again = as_stream(*read)
    assert bs.inspection.inspect(again).num_delta_batches == 999
    assert [column_values(one) for one in bs.open_stream(again)] == [column_values(one) for one in read]


def test_many_dictionaries_take_linear_time() -> None:
    names = [f"c{number}" for number in range(3000)]
    batch = bs.RecordBatch.from_arrays([dictionary_array([0], [name]) for name in names], names)
    start = time.process_time()
    (read,) = bs.open_stream(as_stream(batch))
    assert [one.to_pylist() for one in read.columns] == [[name] for name in names]
    assert time.process_time() - start < 20
    assert np.all([one.length == 1 for one in read.columns])


def test_batches_stay_valid_after_later_ones_are_read() -> None:
    read = list(bs.open_stream(as_stream(*GROWING_BATCHES, options=bs.ipc.IpcWriteOptions(dictionary_deltas="always"))))
    for one, expected in zip(reversed(read), reversed(GROWING_BATCHES), strict=True):
        one.validate(full=True)
        assert one.equals(expected)
