"""Concatenate files and streams without decoding their bodies."""

from __future__ import annotations

import io
import os
import random
import socket
import sys
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
from bowstring.ipc import codecs
from bowstring.ipc.metadata import schema as metadata
from tests.ipc.samples import as_file, as_stream, batch, dictionary_batch


def concat(*sources: Any, **options: Any) -> bs.Table:
    """Return the table of the concatenated sources."""
    sink = io.BytesIO()
    bs.ipc.concat_files(sources, sink, **options)
    return bs.open_file(sink.getvalue()).read_all()


def test_columns_of_every_type_are_copied_from_files_and_streams(tmp_path: Path) -> None:
    source = batch()
    (tmp_path / "a.arrow").write_bytes(as_file(source, source.slice(1)))
    (tmp_path / "b.arrows").write_bytes(as_stream(source.slice(2)))
    target = tmp_path / "all.arrow"
    report = bs.ipc.concat_files([tmp_path / "a.arrow", tmp_path / "b.arrows", as_file(source)], target)
    assert (report.sources, report.record_batches, report.rows) == (3, 4, 9)
    assert report.size_bytes == target.stat().st_size
    expected = bs.Table.from_batches([source, source.slice(1), source.slice(2), source])
    with bs.open_file(target) as reader:
        assert [len(part) for part in reader] == [3, 2, 1, 3]
        assert reader.read_all().equals(expected)
    assert bs.open_stream(target.read_bytes()[8:]).read_all().equals(expected), "a file contains a stream"


def test_pyarrow_reads_concatenated_files(tmp_path: Path) -> None:
    tables = [pa.table({"n": pa.array([1, None, part]), "s": [str(part), "", "x"]}) for part in range(3)]
    for part, table in enumerate(tables):
        with pa.ipc.new_file(str(tmp_path / f"{part}"), table.schema) as writer:
            writer.write_table(table)
    bs.ipc.concat_files([tmp_path / f"{part}" for part in range(3)], tmp_path / "all")
    with pa.memory_map(str(tmp_path / "all")) as source:
        assert pa.ipc.open_file(source).read_all().equals(pa.concat_tables(tables))


def test_compressed_bodies_are_copied_without_their_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = as_file(bs.record_batch({"n": [1, 2]}), compression="lz4")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lz4.frame", None)
        patch.setitem(sys.modules, "lz4", None)
        codecs.import_lz4_frame.cache_clear()
        sink = io.BytesIO()
        bs.ipc.concat_files([compressed] * 2, sink)
        with pytest.raises(errors.MissingExtraError, match="lz4"):
            bs.read_table(sink.getvalue())
    assert bs.read_table(sink.getvalue()).to_pydict() == {"n": [1, 2, 1, 2]}


def test_large_bodies_stay_aligned(tmp_path: Path) -> None:
    parts = [bs.record_batch({"n": np.arange(number, number + 1_500_000)}) for number in range(3)]
    for number, part in enumerate(parts):
        (tmp_path / str(number)).write_bytes(as_file(part, part.slice(7)))
    bs.ipc.concat_files([tmp_path / str(number) for number in range(3)], tmp_path / "all")
    reader = bs.open_file(tmp_path / "all")
    assert all(int(at) % 64 == 0 for at in reader.blocks["offset"] + reader.blocks["metaDataLength"])
    expected = [piece for part in parts for piece in (part, part.slice(7))]
    assert all(actual.equals(piece) for actual, piece in zip(reader, expected, strict=True))


def test_sources_may_differ_in_compression() -> None:
    source = batch("int", "text")
    table = concat(as_file(source), as_file(source, compression="lz4"), as_stream(source, compression="zstd"))
    assert table.equals(bs.Table.from_batches([source] * 3))


@pytest.mark.parametrize(
    "write_options", [bs.ipc.IpcWriteOptions(byte_order="big"), bs.ipc.IpcWriteOptions(metadata_version="V4")]
)
def test_the_encoding_of_the_sources_is_kept(write_options: bs.ipc.IpcWriteOptions) -> None:
    source = batch("int", "text", "dense", "dictionary")
    assert concat(as_file(source, options=write_options), as_file(source, options=write_options)).equals(
        bs.Table.from_batches([source, source])
    )


def test_legacy_framing_becomes_current_framing() -> None:
    source = batch("int", "text")
    write_options = bs.ipc.IpcWriteOptions(is_legacy_framing=True)
    sink = io.BytesIO()
    bs.ipc.concat_files([as_stream(source, options=write_options), as_file(source, options=write_options)], sink)
    assert bs.inspection.inspect(sink.getvalue()).encoding.legacy_framing is False
    assert bs.open_file(sink.getvalue()).read_all().equals(bs.Table.from_batches([source, source]))


def test_empty_batches_and_sources_without_batches_are_accepted() -> None:
    source = batch("int", "text")
    sink = io.BytesIO()
    with bs.new_file(sink, source.schema):
        pass
    assert concat(sink.getvalue(), as_file(source.slice(3)), as_file(source)).num_rows == 3


def test_the_output_may_be_a_stream() -> None:
    sink = io.BytesIO()
    source = batch()
    bs.ipc.concat_files([as_file(source), as_stream(source)], sink, as_stream=True)
    assert bs.open_stream(sink.getvalue()).read_all().equals(bs.Table.from_batches([source, source]))


def test_streams_are_read_from_a_socket() -> None:
    source = batch("int", "text")
    left, right = socket.socketpair()
    with left, right:
        right.settimeout(10)
        sender = threading.Thread(target=lambda: left.sendall(as_stream(source, source)))
        sender.start()
        assert concat(right, as_file(source)).num_rows == 9
        sender.join()


def test_sources_may_be_urls(tmp_path: Path) -> None:
    small, large = batch(), bs.record_batch({"n": np.arange(200_000)})
    for sources in (
        [as_file(small, small.slice(1)), as_stream(small), as_file(small)],
        [as_file(large, large, large)] * 2,
    ):
        urls = [f"memory://concat-{number}" for number in range(len(sources))]
        for url, data in zip(urls, sources, strict=True):
            fsspec.filesystem("memory").pipe_file(url.removeprefix("memory:/"), data)
        bs.ipc.concat_files(urls, tmp_path / "remote", max_piped_bytes=0)
        bs.ipc.concat_files(sources, tmp_path / "local")
        remote, local = bs.open_file(tmp_path / "remote"), bs.open_file(tmp_path / "local")
        assert remote.read_all().equals(local.read_all())
        assert [len(part) for part in remote] == [len(part) for part in local]
        with pytest.raises(errors.LimitError, match="max_body_bytes"):
            bs.ipc.concat_files(urls, tmp_path / "never", limits=bs.ipc.ReadLimits(max_body_bytes=8))
    MemoryFileSystem.store.clear()


def test_a_remote_file_cannot_be_source_and_sink() -> None:
    content, store = as_file(batch("int")), fsspec.filesystem("memory")
    store.pipe_file("/itself.arrow", content)
    for source in ("memory://itself.arrow", fsspec.open("memory://itself.arrow")):
        with pytest.raises(
            errors.InvalidArgumentError, match=r"itself.arrow.* is both input and output: choose another output"
        ):
            bs.ipc.concat_files([content, source], "memory://itself.arrow")
    assert store.cat_file("/itself.arrow") == content
    store.rm_file("/itself.arrow")


# Dictionaries


def test_equal_dictionaries_are_written_once() -> None:
    sink = io.BytesIO()
    keys = ["a", "b"]
    bs.ipc.concat_files(
        [as_file(dictionary_batch("a", "b", keys=keys)), as_file(dictionary_batch("b", None, keys=keys))] * 3, sink
    )
    reader = bs.open_file(sink.getvalue())
    assert reader.num_dictionary_batches == 1
    assert reader.read_all()["w"].to_pylist() == ["a", "b", "b", None] * 3


def test_a_longer_dictionary_becomes_a_delta_and_a_prefix_is_not_written() -> None:
    sink = io.BytesIO()
    bs.ipc.concat_files(
        [
            as_file(dictionary_batch("a", keys=["a"])),
            as_file(dictionary_batch("c", keys=["a", "b", "c"])),
            as_stream(dictionary_batch("b", keys=["a", "b"])),
        ],
        sink,
    )
    reader = bs.open_file(sink.getvalue())
    assert reader.num_dictionary_batches == 2
    assert reader.read_all()["w"].to_pylist() == ["a", "c", "b"]
    with pa.ipc.open_file(sink.getvalue()) as peer:
        assert peer.get_batch(2).column(0).to_pylist() == ["b"]


def test_different_dictionaries_are_replaced_in_a_stream() -> None:
    sources = [as_file(dictionary_batch("a", "b", keys=["a", "b"])), as_file(dictionary_batch("b", keys=["b", "a"]))]
    sink = io.BytesIO()
    bs.ipc.concat_files(sources, sink, as_stream=True)
    assert bs.open_stream(sink.getvalue()).read_all()["w"].to_pylist() == ["a", "b", "b"]


def test_dictionaries_are_matched_by_column_not_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    first = as_file(_two_columns("p", "q"), _two_columns("p", "q"))
    monkeypatch.setattr(metadata, "count", lambda: iter((1, 0)))
    other = as_file(_two_columns("p", "q"))
    monkeypatch.undo()
    assert [bs.inspection.inspect(stream).dictionaries[0].columns for stream in (first, other)] == [(0,), (1,)]
    assert concat(first, other).to_pydict() == {"x": ["p"] * 3, "y": ["q"] * 3}
    assert concat(other, first, other).to_pydict() == {"x": ["p"] * 4, "y": ["q"] * 4}


def _two_columns(x: str, y: str) -> bs.RecordBatch:
    type_ = bs.dictionary(bs.int8(), bs.string())
    return bs.record_batch({"x": bs.array([x], type_), "y": bs.array([y], type_)})


def test_a_source_without_its_dictionary_does_not_use_another_source_s() -> None:
    whole = as_stream(dictionary_batch("a", "b", keys=["a", "b"]))
    scan = bs.inspection.inspect(whole)
    assert scan.dictionaries[0].batches == 1
    reader = pa.ipc.MessageReader.open_stream(whole)
    messages = [reader.read_next_message() for _ in range(3)]
    without_dictionary = (
        b"".join(message.serialize().to_pybytes() for message in messages if message.type != "dictionary")
        + b"\xff\xff\xff\xff\0\0\0\0"
    )
    with pytest.raises(errors.InvalidDataError, match="dictionary 0 has not been defined"):
        concat(whole, without_dictionary)


def test_growing_changing_and_nested_dictionaries_are_concatenated_in_any_order() -> None:
    rng = random.Random(3)
    inner = bs.dictionary(bs.int8(), bs.string())
    schema = bs.schema({"w": inner, "l": bs.list_(inner), "d": bs.dictionary(bs.int16(), bs.list_(inner))})
    alphabet = [f"word {number}" for number in range(6)]
    as_files = 0
    for _ in range(50):
        sources, expected = [], []
        grows = rng.random() < 0.6
        for _ in range(rng.randint(1, 4)):
            is_file, inputs = rng.random() < 0.5, []
            for _ in range(rng.randint(1, 3)):
                pool = alphabet[: rng.randint(1, 6)] if grows else rng.sample(alphabet, rng.randint(1, 4))
                rows = [rng.choice([*pool, None]) for _ in range(rng.randint(0, 4))]
                dictionary_values = list(pool) if grows else rows
                lists = [[row, pool[0]] for row in [*dictionary_values, *rows]]
                columns = [dictionary_values + rows, lists, lists]
                inputs.append(
                    bs.RecordBatch.from_arrays(
                        [bs.array(values, type_) for values, type_ in zip(columns, schema.types, strict=True)],
                        schema=schema,
                    )
                )
            try:
                sources.append(as_file(*inputs) if is_file else as_stream(*inputs))
            except errors.InvalidArgumentError:
                sources.append(as_stream(*inputs))
            expected += [row for held_batch in inputs for row in held_batch.to_pylist()]
        sink = io.BytesIO()
        bs.ipc.concat_files(sources, sink, as_stream=True)
        assert rows_of(bs.open_stream(sink.getvalue())) == expected
        assert pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist() == expected
        sink = io.BytesIO()
        try:
            bs.ipc.concat_files(sources, sink)
        except errors.InvalidArgumentError:
            continue  # a file has no replacements
        as_files += 1
        assert rows_of(bs.open_file(sink.getvalue())) == expected
        assert rows_of(bs.open_stream(sink.getvalue()[8:])) == expected
    assert as_files > 5


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """Return the rows of batches, read one after the other."""
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("version", ["0.14.1", "1.0.0-bigendian", "1.0.0-littleendian", "cpp-21.0.0"])
def test_files_and_streams_of_other_writers_are_concatenated(shared_folder: Path, version: str) -> None:
    folder = shared_folder / "corpus" / "golden" / version
    num_concatenated = 0
    for path in sorted(folder.glob("*.arrow_file")):
        with bs.open_file(path) as reader:
            if "map_non_canonical" in path.name or len(set(reader.schema.names)) != len(reader.schema.names):
                continue  # the file and the stream have different names, and rows need unique names
            expected = [batch.to_pydict() for batch in reader] * 2
        for is_stream, new in ((False, bs.open_file), (True, bs.open_stream)):
            sink = io.BytesIO()
            bs.ipc.concat_files([path, path.with_suffix(".stream")], sink, is_stream)
            assert repr([batch.to_pydict() for batch in new(sink.getvalue())]) == repr(expected), path.name
            num_concatenated += 1
    assert num_concatenated >= 10


# Incompatible sources


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (as_file(batch("int", "bool")), "expected 1 columns as in .*, found 2"),
        (as_file(bs.record_batch({"int": bs.array([1], bs.int64())})), "column 0 as 'int: int32'.*'int: int64'"),
        (as_file(bs.record_batch({"other": bs.array([1], bs.int32())})), "column 0 as 'int: int32'.*'other: int32'"),
        (as_file(batch("int"), options=bs.ipc.IpcWriteOptions(byte_order="big")), "little-endian .*, found big-endian"),
        (
            as_file(batch("int"), options=bs.ipc.IpcWriteOptions(metadata_version="V4")),
            "metadata version V5 .*, found V4",
        ),
    ],
)
def test_the_difference_between_schemas_is_named(second: bytes, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        concat(as_file(batch("int")), second)


def test_field_metadata_must_be_equal_and_schema_metadata_is_that_of_the_first_source() -> None:
    plain = batch("int")
    noted = bs.schema([plain.schema[0]], metadata={"from": "first"})
    first = bs.RecordBatch.from_arrays([plain.column(0)], schema=noted)
    assert concat(as_file(first), as_file(plain)).schema.metadata == {b"from": b"first"}
    other = bs.RecordBatch.from_arrays([plain.column(0)], schema=bs.schema([plain.schema[0].with_metadata({"u": "m"})]))
    with pytest.raises(errors.InvalidArgumentError, match="metadata"):
        concat(as_file(plain), as_file(other))


def test_footer_metadata_is_merged_and_the_first_value_of_a_key_wins() -> None:
    source = batch("int")
    sources = [as_file(source, metadata={"a": "1"}), as_file(source, metadata={"a": "2", "b": "3"})]
    sink = io.BytesIO()
    bs.ipc.concat_files(sources, sink)
    assert bs.open_file(sink.getvalue()).metadata == {b"a": b"1", b"b": b"3"}
    sink = io.BytesIO()
    bs.ipc.concat_files(sources, sink, metadata={"c": "4"})
    assert bs.open_file(sink.getvalue()).metadata == {b"c": b"4"}


@pytest.mark.parametrize("cut", [0, 5, 100, -1, -9, -40])
def test_a_truncated_source_leaves_no_output(tmp_path: Path, cut: int) -> None:
    good, target = as_file(batch()), tmp_path / "all.arrow"
    target.write_bytes(b"as it was")
    with pytest.raises(errors.InvalidDataError):
        bs.ipc.concat_files([good, good[:cut]], target)
    assert target.read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == ["all.arrow"]


def test_overlapping_blocks_do_not_fill_the_disk() -> None:
    large, small = bs.record_batch({"n": np.arange(10_000)}), bs.record_batch({"n": np.arange(1)})
    raw = bytearray(as_file(large, *[small] * 39))
    blocks = bs.open_file(bytes(raw)).blocks.tobytes()
    at = raw.rindex(blocks)
    raw[at : at + len(blocks)] = blocks[:24] * 40
    with pytest.raises(errors.InvalidDataError, match="overlap"):
        concat(bytes(raw))


def test_no_sources_are_rejected() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="nothing to concatenate"):
        bs.ipc.concat_files([], io.BytesIO())


def test_tables_and_json_are_rejected_as_sources() -> None:
    with pytest.raises(errors.FormatMismatchError, match="JSON"):
        concat(as_file(batch("int")), b'{"a": 1, "b": 2, "c": 3}')


def test_dictionaries_that_differ_in_the_sign_of_a_zero_are_different() -> None:
    type_ = bs.dictionary(bs.int8(), bs.float64())
    parts = [as_file(bs.RecordBatch.from_arrays([bs.array([zero], type_)], ["z"])) for zero in (0.0, -0.0)]
    for is_stream, new in ((False, bs.open_file), (True, bs.open_stream)):
        sink = io.BytesIO()
        bs.ipc.concat_files(parts, sink, is_stream)
        assert [repr(batch.column(0).to_pylist()) for batch in new(sink.getvalue())] == ["[0.0]", "[-0.0]"]


def test_a_single_path_is_rejected_as_a_list_of_sources() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="a list of files and streams"):
        bs.ipc.concat_files("week.arrow", io.BytesIO())
