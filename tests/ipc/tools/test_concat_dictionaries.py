"""Concatenating files with different dictionaries: dictionaries are merged and the columns that use them rewritten."""

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
from bowstring.ipc.codecs import CODECS
from tests.cases import CASES, Case
from tests.ipc.samples import as_file, as_stream, batch

WORDS = [f"word {number}" for number in range(40)]


def mixed_batch(seed: int, rows: int = 6) -> bs.RecordBatch:
    """Return a batch of all kinds of columns, some of them with random dictionaries."""
    rng = random.Random(seed)
    words = bs.dictionary(bs.int16(), bs.string())
    pool = rng.sample(WORDS, 8)
    texts = [rng.choice([*pool, None]) for _ in range(rows)]
    columns = {
        "n": bs.array([rng.randint(0, 9) for _ in range(rows)], bs.int64()),
        "w": bs.array(texts, words),
        "view": bs.array([f"a text that is long enough for a buffer {n}" for n in range(rows)], bs.string_view()),
        "l": bs.array([[text, pool[0]] for text in texts], bs.list_(words)),
        "s": bs.array([{"v": text or "", "w": text} for text in texts], bs.struct({"v": bs.string_view(), "w": words})),
        "u": bs.array([1 if text is None else text for text in texts], bs.sparse_union({"i": bs.int8(), "w": words})),
        "x": bs.array(
            [rng.choice([0.5, -0.0, 0.0, None]) for _ in range(rows)], bs.dictionary(bs.uint8(), bs.float64())
        ),
        "last": bs.array([text == pool[0] for text in texts]),
    }
    return bs.RecordBatch.from_arrays(list(columns.values()), list(columns))


def concat(*sources: Any) -> bytes:
    """Return the file of the concatenated sources."""
    sink = io.BytesIO()
    bs.ipc.concat_files(sources, sink)
    return sink.getvalue()


def check_rows(data: bytes, expected: list[bs.RecordBatch]) -> None:
    """Check that the file has these values, also when read as a stream and by pyarrow."""
    rows = [row for record_batch in expected for row in record_batch.to_pylist()]
    for reader in (bs.open_file(data), bs.open_stream(data[8:])):
        batches = list(reader)
        for record_batch in batches:
            record_batch.validate(full=True)
        assert repr([row for record_batch in batches for row in record_batch.to_pylist()]) == repr(rows)


@pytest.mark.parametrize("byte_order", ["little", "big"])
@pytest.mark.parametrize("compression", [None, *CODECS])
def test_values_are_preserved_in_every_encoding(byte_order: Any, compression: Any) -> None:
    write_options = bs.ipc.IpcWriteOptions(byte_order=byte_order, compression=compression)
    sources = [mixed_batch(seed) for seed in range(5)]
    check_rows(concat(*[as_file(one, options=write_options) for one in sources]), sources)
    check_rows(
        concat(*[as_stream(one, options=write_options) for one in sources], as_file(sources[0], options=write_options)),
        [*sources, sources[0]],
    )


def test_values_are_preserved_in_metadata_version_4() -> None:
    write_options = bs.ipc.IpcWriteOptions(metadata_version="V4")
    sources = [mixed_batch(seed) for seed in range(3)]
    check_rows(concat(*[as_file(one, options=write_options) for one in sources]), sources)


def test_pyarrow_reads_merged_dictionaries() -> None:
    sources = [mixed_batch(seed) for seed in range(4)]
    peer = pa.ipc.open_file(concat(*[as_file(one, compression="zstd") for one in sources])).read_all()
    peer.validate(full=True)
    for name in ("n", "w", "view", "l", "last"):
        assert peer[name].to_pylist() == [value for one in sources for value in one[name].to_pylist()], name


def test_a_stream_whose_dictionaries_change_becomes_a_file() -> None:
    sources = [mixed_batch(seed) for seed in range(6)]
    check_rows(concat(as_stream(*sources), as_stream(*reversed(sources))), [*sources, *reversed(sources)])


def test_merged_values_are_unique_and_only_changed_columns_are_decoded() -> None:
    first, second = (
        bs.record_batch({"w": dictionary_encode(list(words)), "n": np.arange(2)}) for words in ("ab", "cb")
    )
    data = concat(as_file(first), as_file(second), as_file(first))
    reader = bs.open_file(data)
    (dictionary,) = bs.inspection.inspect(data).dictionaries
    assert (dictionary.batches, dictionary.deltas, dictionary.values) == (2, 1, 3)
    assert [batch["w"].buffer_values(1).tolist() for batch in reader] == [[0, 1], [2, 1], [0, 1]]
    check_rows(data, [first, second, first])


def dictionary_encode(values: list[Any], ordered: bool = False) -> bs.Array:
    """Encode values with a dictionary in order of first occurrence."""
    return bs.array(values, bs.dictionary(bs.int8(), bs.string(), ordered))


def test_a_damaged_column_whose_dictionary_does_not_change_is_copied_unread() -> None:
    texts = bs.Array.from_buffers(bs.string(), 2, [None, np.array([0, 1, 2], np.int32), b"a\xff"])
    parts = [bs.RecordBatch.from_arrays([dictionary_encode(list(words)), texts], ["w", "t"]) for words in ("ab", "ba")]
    reader = bs.open_file(concat(*map(as_file, parts)))
    assert reader[1]["w"].to_pylist() == ["b", "a"]
    with pytest.raises(errors.InvalidDataError, match="UTF-8"):
        reader[1]["t"].validate(full=True)


def test_batch_metadata_and_statistics_are_preserved() -> None:
    parts = [
        bs.record_batch({"w": dictionary_encode(list(words))}).with_metadata(((b"of", words.encode()),))
        for words in ("ab", "cb")
    ]
    sources = []
    for part in parts:
        sink = io.BytesIO()
        with bs.new_file(sink, part.schema) as writer:
            writer.enable_statistics()
            writer.write(part)
        sources.append(sink.getvalue())
    reader = bs.open_file(concat(*sources))
    assert [batch.custom_metadata for batch in reader] == [{b"of": b"ab"}, {b"of": b"cb"}]
    assert reader.find_batches("w", "a", "a") == [0]
    reader.check_statistics()


def test_a_source_without_its_dictionary_does_not_use_another_source_s_indices() -> None:
    parts = [bs.record_batch({"w": dictionary_encode(list(words))}) for words in ("ab", "cb")]
    nulls = bs.record_batch({"w": dictionary_encode([None, None, None])})
    check_rows(concat(*map(as_file, [*parts, nulls, parts[1]])), [*parts, nulls, parts[1]])


@pytest.mark.parametrize("case", [case for case in CASES if "dictionary" not in str(case.type)], ids=str)
def test_dictionaries_of_every_type_are_merged(case: Case) -> None:
    values = list(case.values)
    kind = bs.dictionary(bs.int16(), case.type)
    parts = [bs.RecordBatch.from_arrays([bs.array(part, kind)], ["d"]) for part in (values, [*values[::-1], *values])]
    check_rows(concat(*map(as_file, parts)), parts)


# Dictionaries that cannot be merged


def check_only_as_stream(parts: list[bs.RecordBatch], message: str, tmp_path: Path) -> None:
    """Check that the two cannot become a file but can become a stream."""
    first, second = parts
    with pytest.raises(errors.InvalidArgumentError, match=message):
        bs.ipc.concat_files([as_file(first), as_file(second)], tmp_path / "never.arrow")
    assert os.listdir(tmp_path) == []
    sink = io.BytesIO()
    bs.ipc.concat_files([as_file(first), as_file(second)], sink, as_stream=True)
    assert [batch.to_pylist() for batch in bs.open_stream(sink.getvalue())] == [first.to_pylist(), second.to_pylist()]


def test_more_values_than_the_index_type_allows_are_rejected(tmp_path: Path) -> None:
    parts = [bs.record_batch({"w": dictionary_encode([f"{which}{n}" for n in range(100)])}) for which in "ab"]
    check_only_as_stream(
        parts, r"column 'w': .*200 values is too large for the indices .*as_stream=True, --to stream", tmp_path
    )


def test_ordered_dictionaries_are_rejected_unless_one_extends_the_other(tmp_path: Path) -> None:
    parts = [bs.record_batch({"w": dictionary_encode(list(words), ordered=True)}) for words in ("ab", "ba", "abc")]
    check_only_as_stream(
        parts[:2], r"column 'w': its ordered dictionary differs .*as_stream=True, --to stream", tmp_path
    )
    check_rows(concat(as_file(parts[0]), as_file(parts[2])), [parts[0], parts[2]])


def test_nested_dictionaries_are_rejected(tmp_path: Path) -> None:
    kind = bs.dictionary(bs.int8(), bs.list_(bs.dictionary(bs.int8(), bs.string())))
    parts = [bs.record_batch({"d": bs.array([[word] for word in words], kind)}) for words in ("ab", "ba")]
    check_only_as_stream(parts, "column 'd': its nested dictionary differs", tmp_path)


# Hostile sources


def test_indices_out_of_range_are_rejected_and_nothing_is_written(tmp_path: Path) -> None:
    good = bs.record_batch({"n": [1, 2], "w": dictionary_encode(["a", "b"])})
    keys = bs.array(["b", "a"], bs.string())
    bad = bs.Array.from_buffers(
        bs.dictionary(bs.int8(), bs.string()), 2, [None, np.array([0, 7], np.int8)], dictionary=keys
    )
    invalid_batch = bs.RecordBatch.from_arrays([good["n"], bad], schema=good.schema)
    with pytest.raises(errors.InvalidDataError, match=r"record batch 0, column 'w': indices\[1\] = 7 is not within"):
        bs.ipc.concat_files([as_file(good), as_file(invalid_batch)], tmp_path / "never.arrow")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("offset", "size", "message"), [(1 << 40, 8, "in a body|of a body"), (0, 2000, "overlap")])
def test_misplaced_or_overlapping_buffers_are_rejected(offset: int, size: int, message: str) -> None:
    names = ["a", "b", "c", "d"]
    first, second = (
        bs.RecordBatch.from_arrays([*[bs.array(np.arange(100))] * 4, dictionary_encode([word] * 100)], [*names, "w"])
        for word in "xy"
    )
    data = bytearray(as_file(second))
    header, _ = bs.open_file(bytes(data)).read_batch_message(0)
    at = int(bs.open_file(bytes(data)).blocks["offset"][0]) + header.template.buffers_at
    for number in (1, 3, 5, 7):
        data[at + 16 * number : at + 16 * number + 16] = np.array([offset, size], np.int64).tobytes()
    with pytest.raises(errors.InvalidDataError, match=message):
        concat(as_file(first), bytes(data))


# Pipes and other sinks


@contextmanager
def open_pipe(data: bytes) -> Iterator[int]:
    """Yield the read end of a pipe with only these bytes."""
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


def write_to_pipe(write: Callable[[int], object]) -> bytes:
    """Return what `write` sends through a pipe."""
    reading, writing = os.pipe()
    sink = io.BytesIO()

    def read() -> None:
        with os.fdopen(reading, "rb") as source:
            sink.write(source.read())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        write(writing)
    finally:
        os.close(writing)
        thread.join(10)
    return sink.getvalue()


def source_combinations() -> list[list[bytes]]:
    """Return compatible sources that differ in format, compression and dictionaries."""
    plain, packed = as_file(batch("int", "text")), as_file(batch("int", "text"), compression="lz4")
    stream, last = as_stream(batch("int", "text")), as_stream(batch("int", "text"), compression="zstd")
    words = [bs.record_batch({"w": dictionary_encode(list(words))}) for words in ("ab", "ba")]
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
@pytest.mark.parametrize("sources", source_combinations())
def test_every_sink_gets_the_same_bytes(sources: list[bytes], as_stream_: bool, tmp_path: Path) -> None:
    bs.ipc.concat_files(sources, tmp_path / "path", as_stream_)
    with (tmp_path / "object").open("wb") as out:
        bs.ipc.concat_files((source for source in sources), out, as_stream_)
    descriptor = os.open(tmp_path / "descriptor", os.O_WRONLY | os.O_CREAT)
    bs.ipc.concat_files(sources, descriptor, as_stream_)
    os.close(descriptor)
    (tmp_path / "pipe").write_bytes(write_to_pipe(lambda pipe: bs.ipc.concat_files(sources, pipe, as_stream_)))
    bs.ipc.concat_files(sources, "memory://concat-sinks", as_stream_)
    (tmp_path / "store").write_bytes(fsspec.filesystem("memory").cat_file("/concat-sinks"))
    sink = io.BytesIO(b"before")
    sink.seek(0, io.SEEK_END)
    bs.ipc.concat_files(sources, sink, as_stream_)
    (tmp_path / "memory").write_bytes(sink.getvalue().removeprefix(b"before"))
    for name in ("object", "descriptor", "pipe", "store", "memory"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "path").read_bytes(), name


@pytest.mark.parametrize("make", [as_file, as_stream])
def test_a_piped_source_is_checked_before_it_is_copied(make: Any) -> None:
    plain = as_file(batch("int"))
    table = pa.table({"int": pa.array([1, 2], pa.int32())})
    sink = io.BytesIO()
    kind = pa.ipc.new_file if make is as_file else pa.ipc.new_stream
    with kind(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
        writer.write_table(table)
    with open_pipe(sink.getvalue()) as source:
        written = write_to_pipe(lambda pipe: bs.ipc.concat_files([plain, source, plain], pipe))
    assert bs.open_file(written).read_all()["int"].to_pylist() == [1, None, 3, 1, 2, 1, 2, 1, None, 3]


def test_an_empty_stream_in_a_pipe_is_awaited_once() -> None:
    empty = io.BytesIO()
    bs.new_stream(empty, batch("int").schema).close()
    reading, writing = os.pipe()
    os.write(writing, empty.getvalue())  # without the end: the pipe stays open
    written = write_to_pipe(lambda pipe: bs.ipc.concat_files([reading, as_file(batch("int"))], pipe))
    os.close(writing)
    os.close(reading)
    assert bs.open_file(written).read_all().num_rows == 3


def test_nothing_is_written_to_a_pipe_if_sources_are_incompatible(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, pytest.raises(errors.InvalidArgumentError, match="expected"):
        bs.ipc.concat_files([as_file(batch("int")), as_file(batch("text"))], out)
    assert (tmp_path / "out").read_bytes() == b""
    with (
        (tmp_path / "out").open("wb") as out,
        pytest.raises(errors.InvalidArgumentError, match="nothing to concatenate"),
    ):
        bs.ipc.concat_files([], out)
    named = tmp_path / "pipe"
    os.mkfifo(named)
    raw = as_stream(batch("int"))
    thread = threading.Thread(target=lambda: named.write_bytes(raw))
    thread.start()
    gc.collect()  # objects of other tests may be finalised in between
    before = len(os.listdir("/proc/self/fd"))
    with (tmp_path / "out").open("wb") as out, pytest.raises(errors.InvalidArgumentError, match="expected"):
        bs.ipc.concat_files([named, as_file(batch("text"))], out)
    thread.join(10)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_missing_first_source_leaves_no_output(tmp_path: Path) -> None:
    named, nowhere = tmp_path / "pipe", tmp_path / "nowhere"
    os.mkfifo(named)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.NotFoundError):
        bs.ipc.concat_files([nowhere], tmp_path / "out.arrow")
    reading = os.open(named, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(errors.NotFoundError):
        bs.ipc.concat_files([nowhere], named)
    os.close(reading)
    assert os.listdir(tmp_path) == ["pipe"]
    assert len(os.listdir("/proc/self/fd")) <= before
