"""Putting files and streams together without decoding their bodies."""

from __future__ import annotations

import io
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import bowstring as bs
from bowstring import errors
from bowstring.ipc.metadata import schema as metadata
from tests.ipc.samples import as_file, as_stream, batch


def joined(*sources: Any, **options: Any) -> bs.Table:
    """The table in the file that the sources make."""
    sink = io.BytesIO()
    bs.concat_files(sources, sink, **options)
    return bs.open_file(sink.getvalue()).read_all()


def words(*values: str | None, keys: list[str]) -> bs.RecordBatch:
    """A batch of one dictionary-encoded column with this dictionary."""
    indices = [None if value is None else keys.index(value) for value in values]
    column = bs.Array.from_buffers(
        bs.dictionary(bs.int8(), bs.string()),
        len(values),
        [
            np.packbits([index is not None for index in indices], bitorder="little"),
            np.array([index or 0 for index in indices], np.int8),
        ],
        dictionary=bs.array(keys, bs.string()),
    )
    return bs.record_batch({"w": column})


def test_every_type_of_column_comes_through_files_and_streams_alike(tmp_path: Path) -> None:
    held = batch()
    (tmp_path / "a.arrow").write_bytes(as_file(held, held.slice(1)))
    (tmp_path / "b.arrows").write_bytes(as_stream(held.slice(2)))
    target = tmp_path / "all.arrow"
    done = bs.concat_files([tmp_path / "a.arrow", tmp_path / "b.arrows", as_file(held)], target)
    assert (done.sources, done.record_batches, done.rows) == (3, 4, 9)
    assert done.size_bytes == target.stat().st_size
    expected = bs.Table.from_batches([held, held.slice(1), held.slice(2), held])
    with bs.open_file(target) as reader:
        assert [len(part) for part in reader] == [3, 2, 1, 3]
        assert reader.read_all().equals(expected)
    assert bs.open_stream(target.read_bytes()[8:]).read_all().equals(expected), "a file is a stream inside"


def test_pyarrow_reads_what_is_put_together(tmp_path: Path) -> None:
    tables = [pa.table({"n": pa.array([1, None, part]), "s": [str(part), "", "x"]}) for part in range(3)]
    for part, table in enumerate(tables):
        with pa.ipc.new_file(str(tmp_path / f"{part}"), table.schema) as writer:
            writer.write_table(table)
    bs.concat_files([tmp_path / f"{part}" for part in range(3)], tmp_path / "all")
    with pa.memory_map(str(tmp_path / "all")) as source:
        assert pa.ipc.open_file(source).read_all().equals(pa.concat_tables(tables))


def test_large_bodies_are_copied_between_files_and_stay_aligned(tmp_path: Path) -> None:
    parts = [bs.record_batch({"n": np.arange(number, number + 1_500_000)}) for number in range(3)]
    for number, part in enumerate(parts):
        (tmp_path / str(number)).write_bytes(as_file(part, part.slice(7)))
    bs.concat_files([tmp_path / str(number) for number in range(3)], tmp_path / "all")
    reader = bs.open_file(tmp_path / "all")
    assert all(int(at) % 64 == 0 for at in reader.blocks["offset"] + reader.blocks["metaDataLength"])
    expected = [piece for part in parts for piece in (part, part.slice(7))]
    assert all(found.equals(piece) for found, piece in zip(reader, expected, strict=True))


def test_sources_of_different_compression_go_together() -> None:
    held = batch("int", "text")
    table = joined(as_file(held), as_file(held, compression="lz4"), as_stream(held, compression="zstd"))
    assert table.equals(bs.Table.from_batches([held] * 3))


@pytest.mark.parametrize("form", [bs.IpcWriteOptions(byte_order="big"), bs.IpcWriteOptions(metadata_version="V4")])
def test_other_forms_stay_what_they_are(form: bs.IpcWriteOptions) -> None:
    held = batch("int", "text", "dense", "dictionary")
    assert joined(as_file(held, options=form), as_file(held, options=form)).equals(bs.Table.from_batches([held, held]))


def test_legacy_framing_becomes_today_s() -> None:
    held = batch("int", "text")
    form = bs.IpcWriteOptions(is_legacy_framing=True)
    sink = io.BytesIO()
    bs.concat_files([as_stream(held, options=form), as_file(held, options=form)], sink)
    assert bs.inspect(sink.getvalue()).encoding.legacy_framing is False
    assert bs.open_file(sink.getvalue()).read_all().equals(bs.Table.from_batches([held, held]))


def test_batches_of_no_rows_and_sources_of_no_batches_are_no_trouble() -> None:
    held = batch("int", "text")
    sink = io.BytesIO()
    with bs.new_file(sink, held.schema):
        pass
    assert joined(sink.getvalue(), as_file(held.slice(3)), as_file(held)).num_rows == 3


def test_a_stream_comes_out_where_it_is_asked_for() -> None:
    sink = io.BytesIO()
    held = batch()
    bs.concat_files([as_file(held), as_stream(held)], sink, as_stream=True)
    assert bs.open_stream(sink.getvalue()).read_all().equals(bs.Table.from_batches([held, held]))


def test_streams_are_taken_from_a_socket_as_they_come() -> None:
    held = batch("int", "text")
    left, right = socket.socketpair()
    with left, right:
        right.settimeout(10)
        sender = threading.Thread(target=lambda: left.sendall(as_stream(held, held)))
        sender.start()
        assert joined(right, as_file(held)).num_rows == 9
        sender.join()


def test_files_and_streams_come_from_urls(tmp_path: Path) -> None:
    held, large = batch(), bs.record_batch({"n": np.arange(200_000)})
    for sources in ([as_file(held, held.slice(1)), as_stream(held), as_file(held)], [as_file(large, large, large)] * 2):
        urls = [f"memory://concat-{number}" for number in range(len(sources))]
        for url, data in zip(urls, sources, strict=True):
            fsspec.filesystem("memory").pipe_file(url.removeprefix("memory:/"), data)
        bs.concat_files(urls, tmp_path / "far", max_piped_bytes=0)
        bs.concat_files(sources, tmp_path / "near")
        far, near = bs.open_file(tmp_path / "far"), bs.open_file(tmp_path / "near")
        assert far.read_all().equals(near.read_all())
        assert [len(part) for part in far] == [len(part) for part in near]
        with pytest.raises(errors.LimitError, match="max_body_bytes"):
            bs.concat_files(urls, tmp_path / "never", limits=bs.ReadLimits(max_body_bytes=8))
    MemoryFileSystem.store.clear()


def test_a_file_in_a_store_is_no_source_of_itself_and_stays_as_it_was() -> None:
    held, store = as_file(batch("int")), fsspec.filesystem("memory")
    store.pipe_file("/itself.arrow", held)
    for source in ("memory://itself.arrow", fsspec.open("memory://itself.arrow")):
        with pytest.raises(errors.UsageError, match=r"itself.arrow.* is the file to read as well.*another name"):
            bs.concat_files([held, source], "memory://itself.arrow")
    assert store.cat_file("/itself.arrow") == held
    store.rm_file("/itself.arrow")


# Dictionaries


def test_equal_dictionaries_are_written_once() -> None:
    sink = io.BytesIO()
    keys = ["a", "b"]
    bs.concat_files([as_file(words("a", "b", keys=keys)), as_file(words("b", None, keys=keys))] * 3, sink)
    reader = bs.open_file(sink.getvalue())
    assert reader.num_dictionary_batches == 1
    assert reader.read_all()["w"].to_pylist() == ["a", "b", "b", None] * 3


def test_a_dictionary_that_goes_on_becomes_a_delta_and_a_shorter_one_is_there_already() -> None:
    sink = io.BytesIO()
    bs.concat_files(
        [
            as_file(words("a", keys=["a"])),
            as_file(words("c", keys=["a", "b", "c"])),
            as_stream(words("b", keys=["a", "b"])),
        ],
        sink,
    )
    reader = bs.open_file(sink.getvalue())
    assert reader.num_dictionary_batches == 2
    assert reader.read_all()["w"].to_pylist() == ["a", "c", "b"]
    with pa.ipc.open_file(sink.getvalue()) as peer:
        assert peer.get_batch(2).column(0).to_pylist() == ["b"]


def test_dictionaries_that_differ_are_replaced_in_a_stream() -> None:
    sources = [as_file(words("a", "b", keys=["a", "b"])), as_file(words("b", keys=["b", "a"]))]
    sink = io.BytesIO()
    bs.concat_files(sources, sink, as_stream=True)
    assert bs.open_stream(sink.getvalue()).read_all()["w"].to_pylist() == ["a", "b", "b"]


def test_dictionaries_are_told_apart_by_their_columns_not_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    first = as_file(_two_columns("p", "q"), _two_columns("p", "q"))
    monkeypatch.setattr(metadata, "count", lambda: iter((1, 0)))
    other = as_file(_two_columns("p", "q"))
    monkeypatch.undo()
    assert [bs.inspect(held).dictionaries[0].columns for held in (first, other)] == [(0,), (1,)]
    assert joined(first, other).to_pydict() == {"x": ["p"] * 3, "y": ["q"] * 3}
    assert joined(other, first, other).to_pydict() == {"x": ["p"] * 4, "y": ["q"] * 4}


def _two_columns(x: str, y: str) -> bs.RecordBatch:
    type_ = bs.dictionary(bs.int8(), bs.string())
    return bs.record_batch({"x": bs.array([x], type_), "y": bs.array([y], type_)})


def test_a_source_that_lost_its_dictionary_does_not_get_that_of_another() -> None:
    whole = as_stream(words("a", "b", keys=["a", "b"]))
    scan = bs.inspect(whole)
    assert scan.dictionaries[0].batches == 1
    reader = pa.ipc.MessageReader.open_stream(whole)
    messages = [reader.read_next_message() for _ in range(3)]
    broken = (
        b"".join(message.serialize().to_pybytes() for message in messages if message.type != "dictionary")
        + b"\xff\xff\xff\xff\0\0\0\0"
    )
    with pytest.raises(errors.InvalidDataError, match="dictionary 0 has not been defined"):
        joined(whole, broken)


def test_dictionaries_that_grow_change_and_nest_come_through_in_any_order() -> None:
    chance = random.Random(3)
    inner = bs.dictionary(bs.int8(), bs.string())
    schema = bs.schema({"w": inner, "l": bs.list_(inner), "d": bs.dictionary(bs.int16(), bs.list_(inner))})
    alphabet = [f"word {number}" for number in range(6)]
    as_files = 0
    for _ in range(120):
        sources, expected = [], []
        grows = chance.random() < 0.6
        for _ in range(chance.randint(1, 4)):
            is_file, made = chance.random() < 0.5, []
            for _ in range(chance.randint(1, 3)):
                pool = alphabet[: chance.randint(1, 6)] if grows else chance.sample(alphabet, chance.randint(1, 4))
                rows = [chance.choice([*pool, None]) for _ in range(chance.randint(0, 4))]
                held = list(pool) if grows else rows
                lists = [[row, pool[0]] for row in [*held, *rows]]
                columns = [held + rows, lists, lists]
                made.append(
                    bs.RecordBatch.from_arrays(
                        [bs.array(values, type_) for values, type_ in zip(columns, schema.types, strict=True)],
                        schema=schema,
                    )
                )
            try:
                sources.append(as_file(*made) if is_file else as_stream(*made))
            except errors.UsageError:
                sources.append(as_stream(*made))
            expected += [row for held_batch in made for row in held_batch.to_pylist()]
        sink = io.BytesIO()
        bs.concat_files(sources, sink, as_stream=True)
        assert rows_of(bs.open_stream(sink.getvalue())) == expected
        assert pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == expected
        sink = io.BytesIO()
        try:
            bs.concat_files(sources, sink)
        except errors.UsageError:
            continue  # a file holds no replacements
        as_files += 1
        assert rows_of(bs.open_file(sink.getvalue())) == expected
        assert rows_of(bs.open_stream(sink.getvalue()[8:])) == expected
    assert as_files > 10


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """The rows of batches as they are read, one after the other."""
    return [row for held in batches for row in held.to_pylist()]


@pytest.mark.parametrize("version", ["0.14.1", "1.0.0-bigendian", "1.0.0-littleendian", "cpp-21.0.0"])
def test_files_and_streams_of_other_writers_go_together(shared_folder: Path, version: str) -> None:
    folder = shared_folder / "corpus" / "golden" / version
    done = 0
    for path in sorted(folder.glob("*.arrow_file")):
        with bs.open_file(path) as reader:
            if "map_non_canonical" in path.name or len(set(reader.schema.names)) != len(reader.schema.names):
                continue  # there the file and the stream say other names inside; and rows need names that differ
            expected = [held.to_pydict() for held in reader] * 2
        for is_stream, new in ((False, bs.open_file), (True, bs.open_stream)):
            sink = io.BytesIO()
            bs.concat_files([path, path.with_suffix(".stream")], sink, is_stream)
            assert repr([held.to_pydict() for held in new(sink.getvalue())]) == repr(expected), path.name
            done += 1
    assert done >= 10


# What does not go together


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (as_file(batch("int", "bool")), "expected 1 columns as in .*, found 2"),
        (as_file(bs.record_batch({"int": bs.array([1], bs.int64())})), "column 0 as 'int: int32'.*'int: int64'"),
        (as_file(bs.record_batch({"other": bs.array([1], bs.int32())})), "column 0 as 'int: int32'.*'other: int32'"),
        (as_file(batch("int"), options=bs.IpcWriteOptions(byte_order="big")), "little-endian .*, found big-endian"),
        (as_file(batch("int"), options=bs.IpcWriteOptions(metadata_version="V4")), "metadata version V5 .*, found V4"),
    ],
)
def test_what_differs_is_named(second: bytes, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        joined(as_file(batch("int")), second)


def test_metadata_of_fields_has_to_be_the_same_and_that_of_the_schema_is_the_first_one_s() -> None:
    plain = batch("int")
    noted = bs.schema([plain.schema[0]], metadata={"from": "first"})
    first = bs.RecordBatch.from_arrays([plain.column(0)], schema=noted)
    assert joined(as_file(first), as_file(plain)).schema.metadata == {b"from": b"first"}
    other = bs.RecordBatch.from_arrays([plain.column(0)], schema=bs.schema([plain.schema[0].with_metadata({"u": "m"})]))
    with pytest.raises(errors.UsageError, match="metadata"):
        joined(as_file(plain), as_file(other))


def test_metadata_of_footers_is_put_together_the_first_value_of_a_key_counts() -> None:
    held = batch("int")
    sources = [as_file(held, metadata={"a": "1"}), as_file(held, metadata={"a": "2", "b": "3"})]
    sink = io.BytesIO()
    bs.concat_files(sources, sink)
    assert bs.open_file(sink.getvalue()).metadata == {b"a": b"1", b"b": b"3"}
    sink = io.BytesIO()
    bs.concat_files(sources, sink, metadata={"c": "4"})
    assert bs.open_file(sink.getvalue()).metadata == {b"c": b"4"}


@pytest.mark.parametrize("cut", [0, 5, 100, -1, -9, -40])
def test_a_source_that_is_cut_off_leaves_nothing(tmp_path: Path, cut: int) -> None:
    good, target = as_file(batch()), tmp_path / "all.arrow"
    target.write_bytes(b"as it was")
    with pytest.raises(errors.InvalidDataError):
        bs.concat_files([good, good[:cut]], target)
    assert target.read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == ["all.arrow"]


def test_a_footer_whose_blocks_overlap_fills_no_disk() -> None:
    large, small = bs.record_batch({"n": np.arange(10_000)}), bs.record_batch({"n": np.arange(1)})
    raw = bytearray(as_file(large, *[small] * 39))
    blocks = bs.open_file(bytes(raw)).blocks.tobytes()
    at = raw.rindex(blocks)
    raw[at : at + len(blocks)] = blocks[:24] * 40
    with pytest.raises(errors.InvalidDataError, match="overlap"):
        joined(bytes(raw))


def test_nothing_is_nothing_to_concatenate() -> None:
    with pytest.raises(errors.UsageError, match="nothing to concatenate"):
        bs.concat_files([], io.BytesIO())


def test_a_table_or_json_is_no_source() -> None:
    with pytest.raises(errors.FormatMismatchError, match="JSON"):
        joined(as_file(batch("int")), b'{"a": 1, "b": 2, "c": 3}')


def test_dictionaries_that_differ_in_the_sign_of_a_zero_are_not_the_same() -> None:
    type_ = bs.dictionary(bs.int8(), bs.float64())
    parts = [as_file(bs.RecordBatch.from_arrays([bs.array([zero], type_)], ["z"])) for zero in (0.0, -0.0)]
    for is_stream, new in ((False, bs.open_file), (True, bs.open_stream)):
        sink = io.BytesIO()
        bs.concat_files(parts, sink, is_stream)
        assert [repr(batch.column(0).to_pylist()) for batch in new(sink.getvalue())] == ["[0.0]", "[-0.0]"]


def test_one_path_is_no_list_of_sources() -> None:
    with pytest.raises(errors.UsageError, match="a list of files and streams"):
        bs.concat_files("week.arrow", io.BytesIO())
