"""What is written of dictionaries: nothing, a delta or a replacement; under one id, or united up front."""

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
from tests.ipc.samples import as_file, as_stream

WORDS = bs.dictionary(bs.int8(), bs.string())
LISTS = bs.dictionary(bs.int16(), bs.list_(WORDS))
FORMATS = pytest.mark.parametrize("write", [as_file, as_stream])


def coded(indices: list[int | None], dictionary: bs.Array | list[Any], type_: bs.DataType = WORDS) -> bs.Array:
    assert isinstance(type_, Dictionary)
    held = dictionary if isinstance(dictionary, bs.Array) else bs.array(dictionary, type_.value_type)
    own = bs.array(indices, type_.index_type)
    return bs.Array.from_buffers(type_, len(indices), own.buffers, dictionary=held)


def batch(*columns: bs.Array) -> bs.RecordBatch:
    return bs.RecordBatch.from_arrays(list(columns), ["a", "b", "c"][: len(columns)])


def words(*dictionary: str | None) -> bs.RecordBatch:
    """A batch whose rows are all words of the dictionary."""
    return batch(coded(list(range(len(dictionary))), list(dictionary)))


def lists(inner: list[str], *outer: list[int]) -> bs.RecordBatch:
    """A batch whose rows are all words of a dictionary of lists, which are indices into another."""
    child = coded([index for one in outer for index in one], inner)
    offsets = bs.array([sum(map(len, outer[:row])) for row in range(len(outer) + 1)], bs.int32())
    dictionary = bs.Array.from_buffers(bs.list_(WORDS), len(outer), [None, offsets.buffers[1]], [child])
    return batch(coded(list(range(len(outer))), dictionary, LISTS))


def open_(data: bytes) -> Any:
    return bs.open_file(data) if data.startswith(b"ARROW1") else bs.open_stream(data)


def peer_batches(data: bytes) -> list[Any]:
    """What pyarrow reads, validated."""
    if data.startswith(b"ARROW1"):
        reader: Any = pa.ipc.open_file(data)
        found = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    else:
        found = list(pa.ipc.open_stream(data))
    for one in found:
        one.validate(full=True)
    return found


def check(data: bytes, *batches: bs.RecordBatch, peer_reads: bool = True) -> None:
    """The batches come back, from us and from pyarrow."""
    expected = [[repr(column.to_pylist()) for column in one.columns] for one in batches]
    assert [[repr(column.to_pylist()) for column in one.columns] for one in open_(data)] == expected
    if peer_reads:
        assert [[repr(column.to_pylist()) for column in one.columns] for one in peer_batches(data)] == expected


def messages(data: bytes) -> list[tuple[int, int]]:
    """Of each dictionary, how many batches there are, and how many of these are deltas."""
    return [(held.batches, held.deltas) for held in bs.inspect(data).dictionaries]


# Nothing, deltas, replacements


@FORMATS
def test_a_dictionary_that_goes_on_is_written_as_a_delta(write: Any) -> None:
    held = [words("a", "b"), words("a", "b", "c"), words("a", "b", "c", None, "c")]
    data = write(*held)
    assert messages(data) == [(3, 2)]
    assert bs.inspect(data).dictionaries[0].values == 5
    check(data, *held)


@FORMATS
def test_a_dictionary_that_readers_have_the_beginning_of_is_not_written(write: Any) -> None:
    held = [words("a", "b", "c"), words("a", "b"), words("a", "b", "c"), words()]
    data = write(*held)
    assert messages(data) == [(1, 0)]
    check(data, *held)


@FORMATS
def test_a_column_of_nulls_needs_no_other_dictionary(write: Any) -> None:
    held = [words("a"), batch(coded([None, None], ["x", "y"])), words("a", "b")]
    data = write(*held)
    assert messages(data) == [(2, 1)]
    check(data, *held)


@FORMATS
def test_a_column_of_nulls_may_come_first_with_an_empty_dictionary(write: Any) -> None:
    held = [batch(coded([None, None], [])), words("a")]
    data = write(*held)
    assert messages(data) == [(2, 1)]
    check(data, *held)


def test_another_dictionary_replaces_the_one_before_in_a_stream() -> None:
    held = [words("a", "b"), words("b", "a"), words("b", "a", "c"), words("x")]
    data = as_stream(*held)
    assert messages(data) == [(4, 1)]
    check(data, *held)


def test_a_file_refuses_another_dictionary_writes_nothing_of_the_batch_and_goes_on() -> None:
    sink = io.BytesIO()
    other = [coded([0, 1, 2], ["p", "q", "r"]), coded([0, 1, 2], ["b", "a", "z"])]
    first = batch(coded([0, 1], ["p", "q"]), coded([0, 1], ["a", "b"]))
    last = batch(coded([0, 1, 3], ["p", "q", "s", "t"]), coded([0, 1, 0], ["a", "b"]))
    with bs.new_file(sink, first.schema) as writer:
        writer.write(first)
        with pytest.raises(errors.UsageError, match=r"column 'b': its dictionary changes.*unify_dictionaries"):
            writer.write(batch(*other))
        writer.write(last)
    assert messages(sink.getvalue()) == [(2, 1), (1, 0)]
    check(sink.getvalue(), first, last)


def test_without_deltas_a_stream_replaces_and_a_file_refuses() -> None:
    form = bs.IpcWriteOptions(dictionary_deltas="never")
    held = [words("a"), words("a", "b")]
    data = as_stream(*held, options=form)
    assert messages(data) == [(2, 0)]
    check(data, *held)
    with pytest.raises(errors.UsageError, match=r"column 'a': its dictionary grows.*dictionary_deltas"):
        as_file(*held, options=form)


@FORMATS
@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0]])
def test_zeros_of_different_signs_are_different_values(write: Any, zeros: list[float]) -> None:
    type_ = bs.dictionary(bs.int8(), bs.float64())
    held = [batch(coded([0], [zero], type_)) for zero in zeros]
    if write is as_file:
        with pytest.raises(errors.UsageError, match="column 'a'"):
            write(*held)
        return
    data = write(*held)
    assert messages(data) == [(2, 0)]
    check(data, *held)


@FORMATS
def test_nan_is_as_any_other_value(write: Any) -> None:
    type_ = bs.dictionary(bs.int8(), bs.float32())
    nan = float("nan")
    held = [batch(coded([0], [nan], type_)), batch(coded([0, 1], [nan, 1.0], type_))]
    data = write(*held)
    assert messages(data) == [(2, 1)]
    check(data, *held)


CONTAINERS: dict[str, tuple[bs.DataType, list[Any], list[Any]]] = {
    "list": (bs.list_(WORDS), [["x", None], None, []], [["x", "y"]]),
    "list view": (bs.list_view(WORDS), [["x"], None], [["x", "y"], ["y"]]),
    "fixed list": (bs.list_(WORDS, 2), [["x", "x"], None], [["x", "y"]]),
    "struct": (bs.struct({"p": bs.int8(), "q": WORDS}), [{"p": 1, "q": "x"}, None], [(2, "x"), (3, "y")]),
    "map": (bs.map_(WORDS, WORDS), [[("k", "x")], None], [[("k", "x"), ("l", "y")]]),
    "dense": (bs.dense_union({"i": bs.int32(), "w": WORDS}), [1, "x"], ["x", "y", 2]),
    "sparse": (bs.sparse_union({"i": bs.int32(), "w": WORDS}), ["x", 5], ["x", "y"]),
    "runs": (bs.run_end_encoded(bs.int16(), WORDS), ["x", "x", None], ["x", "y", "y"]),
    "json": (bs.dictionary(bs.int8(), bs.struct({"j": bs.json_()})), [{"j": "1"}], [{"j": "1"}, None]),
}


@FORMATS
@pytest.mark.parametrize("name", CONTAINERS)
def test_dictionaries_grow_wherever_they_are(write: Any, name: str) -> None:
    type_, first, second = CONTAINERS[name]
    held = [batch(bs.array(values, type_)) for values in (first, second)]
    data = write(*held)
    assert all(deltas <= 1 for _, deltas in messages(data))
    read = list(open_(data))
    assert [one.column(0).to_pylist() for one in read] == [one.column(0).to_pylist() for one in held]
    for one, made in zip(peer_batches(data), held, strict=True):
        assert one.column(0).to_pylist() == pa.record_batch(made).column(0).to_pylist()


# Dictionaries inside dictionaries

GROWN = [
    lists(["a", "b"], [0, 1]),
    lists(["a", "b", "c"], [0, 1], [2]),
    lists(["a", "b", "c"], [0, 1], [2], [1]),
    lists(["a", "b", "c", "d"], [0, 1], [2], [1]),
    lists(["a", "b", "c", "d"], [0, 1], [2], [1], [3, 0]),
]


def test_inner_and_outer_dictionaries_grow_by_deltas_in_a_file() -> None:
    data = as_file(*GROWN)
    assert messages(data) == [(4, 3), (3, 2)]
    check(data, *GROWN, peer_reads=False)


def test_outer_dictionaries_are_replaced_in_a_stream_as_pyarrow_knows_no_deltas_on_them() -> None:
    data = as_stream(*GROWN)
    assert messages(data) == [(4, 0), (3, 2)]
    check(data, *GROWN)


def test_outer_dictionaries_grow_by_deltas_in_a_stream_where_that_is_asked_for() -> None:
    data = as_stream(*GROWN, options=bs.IpcWriteOptions(dictionary_deltas="always"))
    assert messages(data) == [(4, 3), (3, 2)]
    check(data, *GROWN, peer_reads=False)
    with pytest.raises(pa.ArrowNotImplementedError, match="nested dictionary"):
        peer_batches(data)


def test_an_outer_dictionary_is_written_again_where_an_inner_one_is_replaced() -> None:
    held = [lists(["a", "b"], [0, 1]), lists(["b", "a"], [1, 0], [0])]
    data = as_stream(*held, options=bs.IpcWriteOptions(dictionary_deltas="always"))
    assert messages(data) == [(2, 0), (2, 0)], "the outer one has grown, but its old indices mean something else now"
    check(data, *held)


@FORMATS
def test_an_inner_dictionary_that_changes_under_the_same_values_is_of_no_account(write: Any) -> None:
    held = [lists(["a", "b"], [0, 1]), lists(["b", "a", "unused"], [1, 0])]
    data = write(*held)
    assert messages(data) == [(1, 0), (1, 0)]
    check(data, *held)


def test_a_file_refuses_another_inner_dictionary() -> None:
    with pytest.raises(errors.UsageError, match="column 'a'"):
        as_file(lists(["a", "b"], [0, 1]), lists(["b", "a"], [1, 0], [0]))


OUTER: dict[str, tuple[bs.DataType, list[Any]]] = {
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


@pytest.mark.parametrize("name", OUTER)
@pytest.mark.parametrize(("write", "deltas"), [(as_file, "auto"), (as_stream, "always"), (as_stream, "auto")])
def test_dictionaries_with_others_inside_grow_in_every_layout(name: str, write: Any, deltas: Any) -> None:
    value_type, values = OUTER[name]
    type_ = bs.dictionary(bs.int16(), value_type)
    counts = range(1, len(values) + 1)
    held = [batch(coded([count - 1, 0], values[:count], type_)) for count in counts]
    data = write(*held, options=bs.IpcWriteOptions(dictionary_deltas=deltas))
    first, *_ = messages(data)
    assert first == (len(values), 0 if deltas == "auto" and write is as_stream else len(values) - 1)
    read = list(open_(data))
    for one, made in zip(reversed(read), reversed(held), strict=True):
        one.validate(full=True)
        assert one.column(0).to_pylist() == made.column(0).to_pylist()
    if first[1] == 0:
        assert [one.column(0).to_pylist() for one in peer_batches(data)] == [
            pa.record_batch(made).column(0).to_pylist() for made in held
        ]


# One id for several fields


def shared(*indices: list[int | None], dictionary: bs.Array | None = None) -> bs.RecordBatch:
    held = bs.array(["x", "y", "z"]) if dictionary is None else dictionary
    return batch(*(coded(own, held) for own in indices))


def ids(data: bytes) -> list[int]:
    return [held.id for held in bs.inspect(data).dictionaries]


@FORMATS
def test_fields_with_the_same_dictionary_share_its_id_and_it_is_written_once(write: Any) -> None:
    held = [shared([0, 1], [2, None], [1, 1]), shared([1], [2], [0], dictionary=bs.array(["x", "y", "z"]))]
    data = write(*held)
    assert messages(data) == [(1, 0)]
    assert ids(data) == [0]
    check(data, *held)
    read = open_(data).read_next_batch() if write is as_stream else open_(data)[0]
    assert read.column(0).dictionary is read.column(2).dictionary


@FORMATS
def test_what_was_read_with_one_id_is_written_with_one(write: Any) -> None:
    first = list(open_(write(shared([0, 1], [2, None]))))
    again = write(*first)
    assert messages(again) == [(1, 0)]
    check(again, *first)


@FORMATS
def test_slices_of_the_same_memory_and_what_came_from_another_library_share_too(write: Any) -> None:
    dictionary = pa.array(["x", "y", "z"])
    columns = [pa.DictionaryArray.from_arrays(pa.array([index], pa.int8()), dictionary) for index in range(3)]
    held = bs.record_batch(pa.record_batch(columns, ["a", "b", "c"]))
    data = write(held)
    assert messages(data) == [(1, 0)]
    check(data, held)


@FORMATS
def test_equal_dictionaries_in_other_memory_and_empty_ones_have_ids_of_their_own(write: Any) -> None:
    data = write(batch(coded([0], ["x"]), coded([0], ["x"])))
    assert messages(data) == [(1, 0), (1, 0)]
    empty = bs.array([], bs.string())
    later = [shared([None], [None], dictionary=empty), batch(coded([0], ["x"]), coded([0], ["y"]))]
    data = write(*later)
    assert messages(data) == [(2, 1), (2, 1)]
    check(data, *later)


def test_fields_of_other_value_types_do_not_share() -> None:
    text = bs.array(["x"])
    binary = bs.Array.from_buffers(bs.binary(), 1, text.buffers)
    held = batch(coded([0], text), coded([0], binary, bs.dictionary(bs.int8(), bs.binary())), coded([0], ["y"]))
    assert ids(as_file(held)) == [0, 1, 2]


@FORMATS
def test_fields_of_other_index_types_share(write: Any) -> None:
    dictionary = bs.array(["x", "y"])
    held = batch(coded([0], dictionary), coded([1], dictionary, bs.dictionary(bs.uint32(), bs.string())))
    data = write(held)
    assert messages(data) == [(1, 0)]
    check(data, held)


@FORMATS
def test_a_shared_dictionary_grows_for_all_its_fields(write: Any) -> None:
    grown = bs.array(["x", "y", "z", "w"])
    held = [shared([0], [1]), batch(coded([1], grown.slice(0, 3)), coded([3], grown))]
    data = write(*held)
    assert messages(data) == [(2, 1)]
    check(data, *held)


@FORMATS
def test_fields_that_share_an_id_and_differ_later_get_a_joined_dictionary(write: Any) -> None:
    held = [
        shared([0, 1], [2, None]),
        batch(coded([1, 0, None], ["q", "x"]), coded([0, 1, 2], ["z", "y", "q"])),
        batch(coded([0], ["x"]), coded([1], ["z", "p"])),
        shared([0, 1, 2], [2, None, 0]),
    ]
    data = write(*held)
    assert ids(data) == [0]
    assert messages(data) == [(3, 2) if write is as_file else (4, 0)]
    check(data, *held)


@FORMATS
def test_fields_that_share_an_id_may_differ_and_come_together_again(write: Any) -> None:
    first, second = bs.array(["x", "y"]), bs.array(["y", "x"])
    held = [
        shared([0, 1], [1, 0], dictionary=first),
        batch(coded([0, 1], first), coded([0, 1], second)),
        shared([1, 0], [None, 1], dictionary=first),
        batch(coded([0, 1], first), coded([0], ["p"]).take([0, 0])),
        shared([1, 0], [None, 1], dictionary=first),
        batch(coded([0], ["p"]), coded([0], ["q"])),
        shared([1, 0], [None, 1], dictionary=first),
    ]
    check(write(*held), *held)


def test_a_joined_dictionary_goes_on_where_the_shared_one_ends_if_a_field_has_that_still() -> None:
    held = [shared([0], [1]), batch(coded([0], ["q"]), coded([2], ["x", "y", "z"]))]
    data = as_stream(*held)
    assert messages(data) == [(2, 1)]
    check(data, *held)


def test_a_joined_dictionary_that_outgrows_the_indices_is_refused_with_both_names() -> None:
    first = shared([0], [0])
    second = batch(*(coded([99], [f"{side}{number}" for number in range(100)]) for side in "pq"))
    for write in (as_file, as_stream):
        with pytest.raises(errors.UsageError, match=r"columns 'a' and 'b':.*share_dictionaries=False"):
            write(first, second)
    data = as_stream(first, second, options=bs.IpcWriteOptions(share_dictionaries=False))
    assert ids(data) == [0, 1]
    check(data, first, second)


@FORMATS
def test_nested_dictionaries_go_with_the_one_that_is_shared(write: Any) -> None:
    outer = lists(["a", "b"], [0, 1], [1]).column(0).dictionary
    assert outer is not None
    held = batch(coded([0], outer, LISTS), coded([1], outer, LISTS))
    data = write(held)
    assert messages(data) == [(1, 0), (1, 0)]
    check(data, held)


@FORMATS
def test_fields_inside_others_share_and_differ_as_well(write: Any) -> None:
    dictionary = bs.array(["x", "y"])
    type_ = bs.struct({"p": WORDS, "q": bs.list_(WORDS)})

    def record(p: bs.Array, q: bs.Array) -> bs.RecordBatch:
        offsets = bs.array([0, 1, 2], bs.int32()).buffers[1]
        inside = bs.Array.from_buffers(type_.fields[1].type, 2, [None, offsets], [q])
        return batch(bs.Array.from_buffers(type_, 2, [None], [p, inside]))

    held = [
        record(coded([0, 1], dictionary), coded([1, None], dictionary)),
        record(coded([0, 1], ["s", "x"]), coded([1, 0], ["y", "t"])),
    ]
    data = write(*held)
    assert ids(data) == [0]
    check(data, *held)


def test_the_schema_waits_for_the_first_batch_only_where_fields_may_share() -> None:
    for columns, form, waits in (
        ([WORDS, WORDS], bs.IpcWriteOptions(), True),
        ([WORDS, WORDS], bs.IpcWriteOptions(share_dictionaries=False), False),
        ([WORDS, bs.dictionary(bs.int8(), bs.binary())], bs.IpcWriteOptions(), False),
        ([bs.string(), bs.string()], bs.IpcWriteOptions(), False),
    ):
        schema = bs.schema(list(zip("ab", columns, strict=False)))
        sink = io.BytesIO()
        with bs.new_stream(sink, schema, options=form) as writer:
            written = writer._sink.position
        assert (written == 0) == waits
        assert bs.open_stream(sink.getvalue()).read_all().num_rows == 0
        sink = io.BytesIO()
        bs.new_file(sink, schema, options=form).close()
        assert bs.open_file(sink.getvalue()).schema == schema


def test_a_first_batch_of_another_schema_is_refused_and_the_next_one_is_the_first() -> None:
    sink, held = io.BytesIO(), shared([0], [1])
    with bs.new_stream(sink, held.schema) as writer:
        with pytest.raises(errors.UsageError, match="another schema"):
            writer.write(words("a"))
        writer.write(held)
    assert messages(sink.getvalue()) == [(1, 0)]
    check(sink.getvalue(), held)


def test_an_encoder_that_gave_its_schema_away_first_keeps_ids_apart() -> None:
    held = shared([0, 1], [2, None])
    encoder, decoder = Encoder(held.schema), Decoder()
    made = [encoder.schema_message(), *encoder.encode_batch(held)]
    assert [message.kind for message in made] == ["Schema", *2 * ["DictionaryBatch"], "RecordBatch"]
    for message in made:
        body = bs.Buffer.of(b"".join(bytes(part) for part in message.parts))
        read = decoder.decode(message.metadata, body)
    assert read is not None
    assert read.equals(held)


# Unified up front


def united(new: Any, *data: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, data[0].schema, options=bs.IpcWriteOptions(unify_dictionaries=True, **options)) as writer:
        for one in data:
            writer.write(one)
    return sink.getvalue()


NEW = pytest.mark.parametrize("new", [bs.new_file, bs.new_stream])


@NEW
def test_a_table_is_written_with_one_dictionary_a_field(new: Any) -> None:
    held = [shared([0, 1], [2, None]), batch(coded([0, 1], ["q", "x"]), coded([1, 0], ["z", "y"]))]
    data = united(new, bs.Table.from_batches(held))
    assert messages(data) == [(1, 0), (1, 0)]
    assert [one.values for one in bs.inspect(data).dictionaries] == [4, 3]
    check(data, *held)


@NEW
def test_dictionaries_inside_dictionaries_are_united_too(new: Any) -> None:
    held = [lists(["a", "b"], [0, 1], [1]), lists(["c", "b"], [0], [1]), lists([], [])]
    data = united(new, bs.Table.from_batches(held))
    assert messages(data) == [(1, 0), (1, 0)]
    assert [one.values for one in bs.inspect(data).dictionaries] == [4, 3]
    check(data, *held)


@NEW
def test_what_is_known_already_is_taken_batch_by_batch_and_new_values_are_refused(new: Any) -> None:
    sink = io.BytesIO()
    held = [words("a", "b", "c"), words("c", "a"), words("b", None)]
    with new(sink, held[0].schema, options=bs.IpcWriteOptions(unify_dictionaries=True)) as writer:
        writer.write(held[0])
        writer.write(held[1])
        with pytest.raises(errors.UsageError, match=r"column 'a': 1 values are not in the dictionary.*write_table"):
            writer.write(held[2])
        writer.write_table(bs.Table.from_batches([held[1], words("b", "c")]))
    assert messages(sink.getvalue()) == [(1, 0)]
    check(sink.getvalue(), held[0], held[1], held[1], words("b", "c"))


@NEW
def test_a_union_that_outgrows_the_indices_is_refused_with_the_column(new: Any) -> None:
    parts = [batch(coded([99], [f"{side}{number}" for number in range(100)])) for side in "pq"]
    with pytest.raises(errors.UsageError, match=r"column 'a'.*200 values"):
        united(new, bs.Table.from_batches(parts))


@NEW
def test_other_columns_of_a_united_table_and_its_metadata_are_as_they_were(new: Any) -> None:
    one = words("a", "b").append_column("n", bs.array([1, None])).with_metadata(((b"k", b"v"),))
    other = words("b", "c").append_column("n", bs.array([3, 4]))
    first, second = open_(united(new, bs.Table.from_batches([one, other])))
    assert first.equals(one)
    assert first.custom_metadata == {b"k": b"v"}
    assert second.equals(other)


# Extensions


UUIDS = bs.dictionary(bs.int8(), bs.uuid())
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


@FORMATS
@pytest.mark.parametrize(
    "form", [bs.IpcWriteOptions(), bs.IpcWriteOptions(byte_order="big"), bs.IpcWriteOptions(compression="lz4")]
)
def test_dictionaries_of_extension_values_come_back_and_grow(write: Any, form: bs.IpcWriteOptions) -> None:
    held = [
        batch(coded([0, None], [FIRST], UUIDS), bs.array([[FIRST], []], bs.list_(UUIDS))),
        batch(coded([1, 0], [FIRST, SECOND], UUIDS), bs.array([[FIRST], [SECOND]], bs.list_(UUIDS))),
    ]
    data = write(*held, options=form)
    read = list(open_(data))
    assert read[0].schema.equals(held[0].schema, check_metadata=True)
    for one, made in zip(read, held, strict=True):
        one.validate(full=True)
        assert one.equals(made)
    assert messages(data)[0] == (2, 1)


def test_a_dictionary_of_extension_values_that_pyarrow_wrote_is_read() -> None:
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([FIRST.bytes, SECOND.bytes], pa.binary(16)))
    held = pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), values)], ["a"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, held.schema) as writer:
        writer.write_batch(held)
    (read,) = bs.open_stream(sink.getvalue())
    assert read.schema.field("a").type == UUIDS
    assert read.column(0).to_pylist() == [SECOND, FIRST, None]
    assert as_stream(read), "what pyarrow itself does not read again, we write as it does"


@bs.register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class Anything(bs.ExtensionType):
    """An extension over whatever there is."""

    EXTENSION_NAME: ClassVar[str] = "tests.anything"


@FORMATS
def test_an_extension_over_a_dictionary_comes_back_and_grows(write: Any) -> None:
    type_ = Anything(WORDS)
    held = [batch(words(*dictionary).column(0).with_layout(bs.array([], type_).layout)) for dictionary in ("ab", "abc")]
    data = write(*held)
    assert messages(data) == [(2, 1)]
    read = list(open_(data))
    assert [one.schema.field("a").type for one in read] == [type_, type_]
    check(data, *held)


def test_a_dictionary_whose_values_extension_would_be_taken_for_its_own_is_refused() -> None:
    held = batch(bs.array(["x"], bs.dictionary(bs.int8(), Anything(bs.string()))))
    with pytest.raises(errors.UnsupportedTypeError, match=r"column a: .* would be read as extension<tests.anything"):
        as_stream(held)
    both = bs.schema([("a", Anything(UUIDS))])
    with pytest.raises(errors.UnsupportedTypeError, match="column a: one field can't have two extensions"):
        bs.new_stream(io.BytesIO(), both)


def test_an_extension_that_nobody_knows_stays_in_the_metadata_of_a_dictionary() -> None:
    field = bs.field("a", WORDS, metadata={"ARROW:extension:name": "nobody.knows", "ARROW:extension:metadata": "x"})
    held = bs.RecordBatch.from_arrays([coded([0], ["x"])], schema=bs.schema([field]))
    (read,) = bs.open_stream(as_stream(held))
    assert read.schema.equals(held.schema, check_metadata=True)
    assert peer_batches(as_stream(held))[0].schema.field("a").metadata[b"ARROW:extension:name"] == b"nobody.knows"


@NEW
@pytest.mark.parametrize("name", CONTAINERS)
def test_dictionaries_are_united_wherever_they_are(new: Any, name: str) -> None:
    type_, first, second = CONTAINERS[name]
    held = [batch(bs.array(values, type_)) for values in (second, first, second)]
    data = united(new, bs.Table.from_batches(held))
    assert set(messages(data)) == {(1, 0)}
    for one, made in zip(open_(data), held, strict=True):
        one.validate(full=True)
        assert one.column(0).to_pylist() == made.column(0).to_pylist()
    for one, made in zip(peer_batches(data), held, strict=True):
        assert one.column(0).to_pylist() == pa.record_batch(made).column(0).to_pylist()


@FORMATS
def test_one_of_the_fields_that_share_an_id_can_be_read_alone(write: Any) -> None:
    held = [shared([0, 1], [2, None]), shared([1], [2], dictionary=bs.array(["x", "y", "z", "w"]))]
    data = write(*held)
    read: Any = bs.open_file(data, columns=["b"]) if write is as_file else bs.open_stream(data, columns=["b"])
    assert [one.to_pydict() for one in read] == [{"b": ["z", None]}, {"b": ["z"]}]
