"""Dictionaries that differ, put together in one file: united, with the columns that use them written anew."""

from __future__ import annotations

import gc
import io
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.metadata.header import CODECS
from bowstring.testing.cases import CASES, Case
from tests.ipc.samples import as_file, as_stream, batch

ALPHABET = [f"word {number}" for number in range(40)]


def made(seed: int, rows: int = 6) -> bs.RecordBatch:
    """A batch of every kind of column and some dictionary-encoded ones, whose dictionaries come by chance."""
    chance = random.Random(seed)
    words = bs.dictionary(bs.int16(), bs.string())
    pool = chance.sample(ALPHABET, 8)
    texts = [chance.choice([*pool, None]) for _ in range(rows)]
    columns = {
        "n": bs.array([chance.randint(0, 9) for _ in range(rows)], bs.int64()),
        "w": bs.array(texts, words),
        "view": bs.array([f"a text that is long enough for a buffer {n}" for n in range(rows)], bs.string_view()),
        "l": bs.array([[text, pool[0]] for text in texts], bs.list_(words)),
        "s": bs.array([{"v": text or "", "w": text} for text in texts], bs.struct({"v": bs.string_view(), "w": words})),
        "u": bs.array([1 if text is None else text for text in texts], bs.sparse_union({"i": bs.int8(), "w": words})),
        "x": bs.array(
            [chance.choice([0.5, -0.0, 0.0, None]) for _ in range(rows)], bs.dictionary(bs.uint8(), bs.float64())
        ),
        "last": bs.array([text == pool[0] for text in texts]),
    }
    return bs.RecordBatch.from_arrays(list(columns.values()), list(columns))


def united(*sources: Any) -> bytes:
    """The file that sources make."""
    sink = io.BytesIO()
    bs.concat_files(sources, sink)
    return sink.getvalue()


def check(data: bytes, expected: list[bs.RecordBatch]) -> None:
    """The file holds these values; as a stream, and for pyarrow, too."""
    rows = [row for held in expected for row in held.to_pylist()]
    for reader in (bs.open_file(data), bs.open_stream(data[8:])):
        found = list(reader)
        for held in found:
            held.validate(full=True)
        assert repr([row for held in found for row in held.to_pylist()]) == repr(rows)


@pytest.mark.parametrize("byte_order", ["little", "big"])
@pytest.mark.parametrize("compression", [None, *CODECS])
def test_values_are_those_of_the_sources_in_every_form(byte_order: Any, compression: str | None) -> None:
    form = bs.IpcWriteOptions(byte_order=byte_order, compression=compression)
    held = [made(seed) for seed in range(5)]
    check(united(*[as_file(one, options=form) for one in held]), held)
    check(united(*[as_stream(one, options=form) for one in held], as_file(held[0], options=form)), [*held, held[0]])


def test_values_are_those_of_the_sources_under_metadata_v4() -> None:
    form = bs.IpcWriteOptions(metadata_version="V4")
    held = [made(seed) for seed in range(3)]
    check(united(*[as_file(one, options=form) for one in held]), held)


def test_pyarrow_reads_what_was_united() -> None:
    held = [made(seed) for seed in range(4)]
    peer = pa.ipc.open_file(united(*[as_file(one, compression="zstd") for one in held])).read_all()
    peer.validate(full=True)
    for name in ("n", "w", "view", "l", "last"):
        assert peer[name].to_pylist() == [value for one in held for value in one[name].to_pylist()], name


def test_a_stream_whose_dictionaries_change_becomes_a_file() -> None:
    held = [made(seed) for seed in range(6)]
    check(united(as_stream(*held), as_stream(*reversed(held))), [*held, *reversed(held)])


def test_each_value_is_there_once_and_only_columns_that_changed_are_decoded() -> None:
    first, second = (bs.record_batch({"w": encoded(list(words)), "n": np.arange(2)}) for words in ("ab", "cb"))
    data = united(as_file(first), as_file(second), as_file(first))
    reader = bs.open_file(data)
    (dictionary,) = bs.inspect(data).dictionaries
    assert (dictionary.batches, dictionary.deltas, dictionary.values) == (2, 1, 3)
    assert [held["w"].values(1).tolist() for held in reader] == [[0, 1], [2, 1], [0, 1]]
    check(data, [first, second, first])


def encoded(values: list[Any], ordered: bool = False) -> bs.Array:
    """Values with a dictionary of those that occur, in their order."""
    return bs.array(values, bs.dictionary(bs.int8(), bs.string(), ordered))


def test_a_column_that_is_damaged_but_keeps_its_dictionary_is_passed_on_as_it_is() -> None:
    texts = bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 1, 2], np.int32), b"a\xff"])
    parts = [bs.RecordBatch.from_arrays([encoded(list(words)), texts], ["w", "t"]) for words in ("ab", "ba")]
    reader = bs.open_file(united(*map(as_file, parts)))
    assert reader[1]["w"].to_pylist() == ["b", "a"]
    with pytest.raises(errors.InvalidDataError, match="UTF-8"):
        reader[1]["t"].validate(full=True)


def test_metadata_of_batches_and_statistics_stay() -> None:
    parts = [
        bs.record_batch({"w": encoded(list(words))}).with_metadata(((b"of", words.encode()),)) for words in ("ab", "cb")
    ]
    sources = []
    for part in parts:
        sink = io.BytesIO()
        with bs.new_file(sink, part.schema) as writer:
            writer.collect_statistics()
            writer.write(part)
        sources.append(sink.getvalue())
    reader = bs.open_file(united(*sources))
    assert [held.custom_metadata for held in reader] == [{b"of": b"ab"}, {b"of": b"cb"}]
    assert reader.find_batches("w", "a", "a") == [0]
    reader.check_statistics()


def test_a_source_without_the_dictionary_does_not_use_the_places_of_another() -> None:
    parts = [bs.record_batch({"w": encoded(list(words))}) for words in ("ab", "cb")]
    nulls = bs.record_batch({"w": encoded([None, None, None])})
    check(united(*map(as_file, [*parts, nulls, parts[1]])), [*parts, nulls, parts[1]])


@pytest.mark.parametrize("case", [case for case in CASES if "dictionary" not in str(case.type)], ids=str)
def test_dictionaries_of_every_type_are_united(case: Case) -> None:
    values = list(case.values)
    kind = bs.dictionary(bs.int16(), case.type)
    parts = [bs.RecordBatch.from_arrays([bs.array(held, kind)], ["d"]) for held in (values, [*values[::-1], *values])]
    check(united(*map(as_file, parts)), parts)


# What can't be united


def refused(parts: list[bs.RecordBatch], message: str, tmp_path: Path) -> None:
    """No file comes of the two, and a stream does."""
    first, second = parts
    with pytest.raises(errors.UsageError, match=message):
        bs.concat_files([as_file(first), as_file(second)], tmp_path / "never.arrow")
    assert os.listdir(tmp_path) == []
    sink = io.BytesIO()
    bs.concat_files([as_file(first), as_file(second)], sink, as_stream=True)
    assert [held.to_pylist() for held in bs.open_stream(sink.getvalue())] == [first.to_pylist(), second.to_pylist()]


def test_more_values_than_the_indices_have_room_for_are_refused(tmp_path: Path) -> None:
    parts = [bs.record_batch({"w": encoded([f"{which}{n}" for n in range(100)])}) for which in "ab"]
    refused(parts, r"column 'w': .*200 values is too large for the indices .*as_stream=True, --to stream", tmp_path)


def test_ordered_dictionaries_are_refused_unless_one_goes_on(tmp_path: Path) -> None:
    parts = [bs.record_batch({"w": encoded(list(words), ordered=True)}) for words in ("ab", "ba", "abc")]
    refused(parts[:2], r"column 'w': its ordered dictionary differs.*value 0 is 'b', expected 'a'", tmp_path)
    check(united(as_file(parts[0]), as_file(parts[2])), [parts[0], parts[2]])


def test_nested_dictionaries_are_refused(tmp_path: Path) -> None:
    kind = bs.dictionary(bs.int8(), bs.list_(bs.dictionary(bs.int8(), bs.string())))
    parts = [bs.record_batch({"d": bs.array([[word] for word in words], kind)}) for words in ("ab", "ba")]
    refused(parts, "column 'd': its dictionary is nested and differs", tmp_path)


# Hostile sources


def test_indices_without_a_value_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    good = bs.record_batch({"n": [1, 2], "w": encoded(["a", "b"])})
    keys = bs.array(["b", "a"], bs.string())
    bad = bs.Array.from_buffers(
        bs.dictionary(bs.int8(), bs.string()), 2, [None, np.array([0, 7], np.int8)], dictionary=keys
    )
    broken = bs.RecordBatch.from_arrays([good["n"], bad], schema=good.schema)
    with pytest.raises(errors.InvalidDataError, match=r"record batch 0, column 'w': indices\[1\] = 7 is not within"):
        bs.concat_files([as_file(good), as_file(broken)], tmp_path / "never.arrow")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("offset", "size", "message"), [(1 << 40, 8, "in a body|of a body"), (0, 2000, "overlap")])
def test_buffers_that_are_elsewhere_or_overlap_are_told(offset: int, size: int, message: str) -> None:
    names = ["a", "b", "c", "d"]
    first, second = (
        bs.RecordBatch.from_arrays([*[bs.array(np.arange(100))] * 4, encoded([word] * 100)], [*names, "w"])
        for word in "xy"
    )
    data = bytearray(as_file(second))
    header, _ = bs.open_file(bytes(data)).read_batch_message(0)
    at = int(bs.open_file(bytes(data)).blocks["offset"][0]) + header.template.buffers_at
    for number in (1, 3, 5, 7):
        data[at + 16 * number : at + 16 * number + 16] = np.array([offset, size], np.int64).tobytes()
    with pytest.raises(errors.InvalidDataError, match=message):
        united(as_file(first), bytes(data))


# Features


@pytest.mark.parametrize("as_stream_", [False, True])
def test_the_schema_says_that_bodies_are_compressed_where_any_is(tmp_path: Path, as_stream_: bool) -> None:
    plain, packed = as_file(batch("int", "text")), as_file(batch("int", "text"), compression="lz4")
    empty = io.BytesIO()
    bs.new_file(empty, batch("int", "text").schema, compression="lz4").close()
    said = empty.getvalue()
    assert bs.inspect(said).encoding.features == ("COMPRESSED_BODY",)
    for number, (sources, features) in enumerate(
        [
            ([plain, packed], ("COMPRESSED_BODY",)),
            ([packed, plain], ("COMPRESSED_BODY",)),
            ([plain, plain], ()),
            ([said, plain], ()),
        ]
    ):
        path = tmp_path / str(number)
        bs.concat_files(sources, path, as_stream_)
        sink = io.BytesIO(b"before")
        sink.seek(0, io.SEEK_END)
        bs.concat_files(sources, sink, as_stream_)
        assert sink.getvalue() == b"before" + path.read_bytes()
        found = bs.inspect(path).encoding
        assert found.features == features
        if not as_stream_:
            assert bs.inspect(path.read_bytes()[8:]).encoding.features == found.features


def test_the_schema_says_that_dictionaries_are_replaced(tmp_path: Path) -> None:
    parts = [as_file(bs.record_batch({"w": encoded(list(words))})) for words in ("ab", "ba")]
    bs.concat_files(parts, tmp_path / "replaced.arrows", as_stream=True)
    assert bs.inspect(tmp_path / "replaced.arrows").encoding.features == ("DICTIONARY_REPLACEMENT",)
    bs.concat_files([parts[0], parts[0]], tmp_path / "same.arrows", as_stream=True)
    assert bs.inspect(tmp_path / "same.arrows").encoding.features == ()


def test_pyarrow_s_compressed_files_say_so_afterwards(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(1000)})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    assert bs.inspect(sink.getvalue()).encoding.features == ()
    bs.concat_files([sink.getvalue()] * 2, tmp_path / "all.arrow")
    assert bs.inspect(tmp_path / "all.arrow").encoding.features == ("COMPRESSED_BODY",)
    assert pa.ipc.open_file(tmp_path / "all.arrow").read_all().equals(pa.concat_tables([table] * 2))


@contextmanager
def piped(data: bytes) -> Iterator[int]:
    """The reading end of a pipe that brings these bytes, and no more."""
    reading, writing = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as out:
            out.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join(10)


def through_a_pipe(write: Callable[[int], object]) -> bytes:
    """What comes out of a pipe that somebody writes into."""
    reading, writing = os.pipe()
    held = io.BytesIO()

    def read() -> None:
        with os.fdopen(reading, "rb") as source:
            held.write(source.read())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        write(writing)
    finally:
        os.close(writing)
        thread.join(10)
    return held.getvalue()


def different_sources() -> list[list[bytes]]:
    """Sources that go together and whose features are not all those of the first one."""
    plain, packed = as_file(batch("int", "text")), as_file(batch("int", "text"), compression="lz4")
    stream, last = as_stream(batch("int", "text")), as_stream(batch("int", "text"), compression="zstd")
    words = [bs.record_batch({"w": encoded(list(words))}) for words in ("ab", "ba")]
    return [
        [plain, packed],
        [packed, plain],
        [stream, plain, last],
        [stream, stream],
        [as_file(words[0]), as_file(words[1])],
        [as_stream(*words), as_file(words[0])],
        [as_file(words[0]), as_file(words[0], compression="lz4")],
    ]


@pytest.mark.parametrize("as_stream_", [False, True])
@pytest.mark.parametrize("sources", different_sources())
def test_what_goes_through_a_pipe_says_the_same_features_as_a_path(
    sources: list[bytes], as_stream_: bool, tmp_path: Path
) -> None:
    open_it: Any = bs.open_stream if as_stream_ else bs.open_file
    bs.concat_files(sources, tmp_path / "path", as_stream_)
    expected = bs.inspect(tmp_path / "path")
    with (tmp_path / "object").open("wb") as out:
        bs.concat_files((source for source in sources), out, as_stream_)
    descriptor = os.open(tmp_path / "descriptor", os.O_WRONLY | os.O_CREAT)
    bs.concat_files(sources, descriptor, as_stream_)
    os.close(descriptor)
    (tmp_path / "pipe").write_bytes(through_a_pipe(lambda pipe: bs.concat_files(sources, pipe, as_stream_)))
    bs.concat_files(sources, "memory://concat-features", as_stream_)
    (tmp_path / "store").write_bytes(fsspec.filesystem("memory").cat_file("/concat-features"))
    for name in ("object", "descriptor", "pipe", "store"):
        found = bs.inspect(tmp_path / name)
        assert found.encoding.features == expected.encoding.features, name
        assert (found.rows, found.dictionaries) == (expected.rows, expected.dictionaries)
        with open_it(tmp_path / "path") as right, open_it(tmp_path / name) as reader:
            assert reader.read_all().equals(right.read_all())


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_a_source_that_comes_through_a_pipe_is_looked_at_before_it_is_passed_on(make: Any) -> None:
    plain = as_file(batch("int"))
    table = pa.table({"int": pa.array([1, 2], pa.int32())})
    held = io.BytesIO()
    kind = pa.ipc.new_file if make is as_file else pa.ipc.new_stream
    with kind(held, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
        writer.write_table(table)
    with piped(held.getvalue()) as source:
        written = through_a_pipe(lambda pipe: bs.concat_files([plain, source, plain], pipe))
    assert bs.inspect(written).encoding.features == ("COMPRESSED_BODY",)
    assert bs.open_file(written).read_all()["int"].to_pylist() == [1, None, 3, 1, 2, 1, 2, 1, None, 3]


def test_an_empty_stream_through_a_pipe_is_not_waited_for_twice() -> None:
    empty = io.BytesIO()
    bs.new_stream(empty, batch("int").schema).close()
    reading, writing = os.pipe()
    os.write(writing, empty.getvalue())  # and no end: the pipe stays open
    written = through_a_pipe(lambda pipe: bs.concat_files([reading, as_file(batch("int"))], pipe))
    os.close(writing)
    os.close(reading)
    assert bs.open_file(written).read_all().num_rows == 3


def test_nothing_goes_into_a_pipe_where_sources_do_not_go_together(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, pytest.raises(errors.UsageError, match="expected"):
        bs.concat_files([as_file(batch("int")), as_file(batch("text"))], out)
    assert (tmp_path / "out").read_bytes() == b""
    with (tmp_path / "out").open("wb") as out, pytest.raises(errors.UsageError, match="nothing to concatenate"):
        bs.concat_files([], out)
    named = tmp_path / "pipe"
    os.mkfifo(named)
    raw = as_stream(batch("int"))
    thread = threading.Thread(target=lambda: named.write_bytes(raw))
    thread.start()
    gc.collect()  # what other tests left may go in between
    before = len(os.listdir("/proc/self/fd"))
    with (tmp_path / "out").open("wb") as out, pytest.raises(errors.UsageError, match="expected"):
        bs.concat_files([named, as_file(batch("text"))], out)
    thread.join(10)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_first_source_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    named, nowhere = tmp_path / "pipe", tmp_path / "nowhere"
    os.mkfifo(named)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.NotFoundError):
        bs.concat_files([nowhere], tmp_path / "out.arrow")
    reading = os.open(named, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(errors.NotFoundError):
        bs.concat_files([nowhere], named)
    os.close(reading)
    assert os.listdir(tmp_path) == ["pipe"]
    assert len(os.listdir("/proc/self/fd")) <= before
