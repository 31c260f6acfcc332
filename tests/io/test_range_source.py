"""Files read by ranges: web servers, stores of fsspec's, file objects; few questions, and the same answers as from
memory.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring import errors
from bowstring.io import range_source
from bowstring.io.byte_ranges import FetchedRanges, merge_spans
from bowstring.io.range_source import RangeSource
from bowstring.ipc.api import open_any
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring_testing import strategies
from fuzz.editable_stream import parse_stream
from tests.ipc import samples
from tests.ipc.remote_stores import CountingFile, Site, SlowFileSystem, serve_files


def wide_file(columns: int, batches: int, rows: int = 3, compression: str | None = None) -> bytes:
    arrays = [pa.array(np.arange(rows) + i) if i % 2 else pa.array(["a", None, "b"][:rows]) for i in range(columns)]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(columns)])
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


def open_counting_file(data: bytes, **options: Any) -> RemoteFileReader:
    reader = bs.open_file(CountingFile(data), **options)
    assert isinstance(reader, RemoteFileReader)
    return reader


# How much is asked


def test_one_column_of_many_batches_takes_four_requests(upload: Callable[[bytes], str]) -> None:
    data = wide_file(10_000, 12)
    url = upload(data)
    with bs.open_file(url, columns=["c5001"]) as reader:
        column = reader.read_all().column("c5001")
    assert column.to_pylist() == [5001, 5002, 5003] * 12
    assert SlowFileSystem.requests <= 4
    assert SlowFileSystem.sent_bytes < len(data) // 4


@pytest.mark.parametrize("ask", ["column", "columns", "one batch"])
def test_each_method_to_read_a_column_takes_at_most_five_requests(upload: Callable[[bytes], str], ask: str) -> None:
    url = upload(wide_file(10_000, 3))
    if ask == "column":
        values = bs.open_file(url).column("c5000").to_pylist()
    elif ask == "columns":
        table = bs.open_file(url, columns=["c5000", "c9999", "c3"]).read_all()
        values = table["c5000"].to_pylist()
        assert table["c9999"].to_pylist() == [9999, 10000, 10001] * 3
        assert table["c3"].to_pylist() == [3, 4, 5] * 3
    else:
        values = bs.open_file(url, columns=["c5000"])[1]["c5000"].to_pylist() * 3
    assert values == ["a", None, "b"] * 3
    assert SlowFileSystem.requests <= 4 + 1  # of a file this small, so few batches, the footer is a larger part


def test_one_column_from_a_web_server_takes_four_rounds() -> None:
    data = wide_file(10_000, 5)
    with serve_files(wide=data) as site:
        reader = bs.open_file(f"{site.url}/wide", columns=["c7001"])
        assert isinstance(reader, RemoteFileReader)
        assert reader.column("c7001").to_pylist() == [7001, 7002, 7003] * 5
        assert reader.messages.source.num_rounds <= 4
    assert all(range_header for command, _, range_header in site.requests if command == "GET")
    assert len(site.requests) <= 3 + 2 + 5 * 5 + 5


def test_a_small_file_takes_one_request() -> None:
    with serve_files(small=samples.as_file(samples.batch(), samples.batch())) as site:
        reader = bs.open_file(f"{site.url}/small")
        assert [batch.equals(samples.batch()) for batch in reader] == [True, True]
        assert sorted(command for command, _, _ in site.requests) == ["GET", "GET", "HEAD"]


def test_only_the_needed_ranges_of_a_file_object_are_read() -> None:
    rows = 200_000
    table = bs.table({name: np.arange(rows) for name in "abcdefgh"})
    file = CountingFile(samples.as_file(*table.to_batches(), *table.to_batches()))
    column = bs.open_file(file).column("c")
    assert column.to_numpy().sum() == 2 * np.arange(rows).sum()
    assert file.read_bytes < 3 * 8 * rows
    assert file.reads < 12


def test_the_bytes_between_ranges_are_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_source, "_MIN_EDGE_BYTES", 256)
    table = bs.table({name: np.arange(500) for name in "abcd"})
    file = CountingFile(samples.as_file(*table.to_batches() * 50))
    column = bs.open_file(file).column("b")
    assert column.to_numpy().sum() == 50 * np.arange(500).sum()
    assert file.reads < 10
    memory_sizes = {id(chunk.own_buffers[1].memory): chunk.own_buffers[1].memory.size for chunk in column.chunks}  # type: ignore[union-attr]
    assert sum(memory_sizes.values()) < 50 * (500 * 8 + 128) + (1 << 14)  # what was read at the end is larger


def test_columns_accessed_in_order_are_fetched_in_growing_groups() -> None:
    reader = open_counting_file(wide_file(300, 15, compression="zstd"))
    table = reader.read_all()
    before = reader.messages.source.num_rounds
    assert [table.column(i).to_pylist()[:1] for i in range(300)][:2] == [["a"], [1]]
    assert reader.messages.source.num_rounds - before < 26


def test_a_column_selected_twice_is_in_the_table_twice() -> None:
    reader = open_counting_file(wide_file(600, 8), columns=["c1", "c4", "c1"])
    assert [batch.columns[2].to_pylist() for batch in reader] == [[1, 2, 3]] * 8
    table = open_counting_file(wide_file(600, 8), columns=["c1", "c4", "c1"]).read_all()
    assert table.column(0).equals(table.column(2))
    assert table.column(1).to_pylist() == ["a", None, "b"] * 8


def test_the_work_to_read_all_columns_grows_linearly_with_their_number() -> None:
    reader = open_counting_file(wide_file(5000, 2))
    start = time.perf_counter()
    assert len(reader.read_all().columns) == 5000
    assert time.perf_counter() - start < 20


def test_iterating_fetches_many_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_source, "_MIN_EDGE_BYTES", 256)
    reader = open_counting_file(wide_file(30, 100), columns=["c1"])
    assert [batch["c1"].to_pylist() for batch in reader] == [[1, 2, 3]] * 100
    assert reader.messages.source.num_rounds <= 6


def numbered_batches(rows: int, batches: int) -> list[bs.RecordBatch]:
    """Batches of the columns c0 to c3, whose values are 10 times the number of the row, plus that of the column."""
    table = bs.table({f"c{i}": np.arange(rows * batches) * 10 + i for i in range(4)})
    return [table.slice(start, rows).to_batches()[0] for start in range(0, rows * batches, rows)]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("columns", [None, ["c3", "c0"]])
def test_filters_are_evaluated_for_many_batches_in_a_few_rounds(
    monkeypatch: pytest.MonkeyPatch, compression: str | None, columns: list[str] | None
) -> None:
    monkeypatch.setattr(range_source, "_MIN_EDGE_BYTES", 256)
    data = samples.as_file(*numbered_batches(10, 300), compression=compression)
    filters: Any = [[("c1", ">", 150), ("c2", "<", 420)], [("c1", "in", [31, 29_991])]]
    reader = open_counting_file(data, columns=columns)
    table = reader.read_all(filters)
    assert table.equals(bs.open_file(data, columns=columns).read_all(filters))
    assert [batch.num_rows for batch in table.to_batches()] == [1, 5, 10, 10, 2, 1]
    assert reader.messages.source.num_rounds <= 6


def test_only_the_columns_of_filters_are_fetched_of_batches_without_matches() -> None:
    data = samples.as_file(*numbered_batches(20_000, 10))
    file = CountingFile(data)
    assert bs.open_file(file).read_all([("c2", "==", 400_002)])["c0"].to_pylist() == [400_000]
    assert file.read_bytes < 0.5 * len(data)


def test_a_large_body_is_fetched_in_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_source, "MAX_ROUND_BYTES", 1 << 17)
    monkeypatch.setattr(range_source, "_MAX_REQUEST_BYTES", 1 << 15)
    numbers = bs.table({"x": np.arange(100_000)})
    reader = open_counting_file(samples.as_file(*numbers.to_batches()))
    assert (reader.column("x").to_numpy() == np.arange(100_000)).all()
    assert reader.messages.source.num_rounds >= 5


# The same as from memory


@pytest.fixture
def no_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is read at the beginning and the end, and headers are fetched in part however small they are."""
    monkeypatch.setattr(range_source, "_MIN_EDGE_BYTES", 16)
    monkeypatch.setattr(range_source, "_MAX_WHOLE_HEADER_BYTES", 64)
    monkeypatch.setattr("bowstring.ipc.remote_file._MAX_WHOLE_HEADER_BYTES", 64)
    monkeypatch.setattr("bowstring.ipc.remote_file._SMALL_BODY_BYTES", 64)
    monkeypatch.setattr(range_source, "MAX_GAP_BYTES", 0)


@pytest.mark.usefixtures("no_edges")
def test_a_header_that_is_fetched_in_part_has_the_length_of_its_block() -> None:
    stream = parse_stream(samples.as_file(bs.record_batch({"n": range(40), "m": range(40)})))
    assert stream is not None

    def edit(blocks: Any) -> Any:
        blocks = blocks.copy()
        blocks["metaDataLength"] += 8
        return blocks

    stream.block_edits = {"recordBatches": edit}
    with pytest.raises(errors.InvalidDataError, match="as in the footer"):
        open_counting_file(stream.encode()).column("n")


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize(
    "form",
    [
        bs.ipc.IpcWriteOptions(),
        bs.ipc.IpcWriteOptions(byte_order="big"),
        bs.ipc.IpcWriteOptions(is_legacy_framing=True),
    ],
)
@pytest.mark.usefixtures("no_edges")
def test_every_encoding_reads_the_same_from_ranges_and_from_memory(
    form: bs.ipc.IpcWriteOptions, compression: str | None
) -> None:
    whole = samples.batch()
    data = samples.as_file(whole, whole.slice(1), whole, options=form, compression=compression)
    local, reader = bs.open_file(data), open_counting_file(data)
    assert reader.read_all().equals(local.read_all())
    assert [batch.equals(other) for batch, other in zip(open_counting_file(data), local, strict=True)] == [True] * 3
    for name in local.schema.names:
        assert open_counting_file(data, columns=[name]).read_all().column(0).equals(local.column(name)), name
        assert open_counting_file(data)[2][name].equals(local[2][name])


@given(st.data())
@settings(max_examples=30)
def test_every_type_reads_the_same_from_ranges_and_from_memory(data: st.DataObject) -> None:
    batch = data.draw(strategies.batches())
    raw = samples.as_file(batch, batch.slice(batch.num_rows // 2))
    reader = open_counting_file(raw)
    assert reader[1].equals(batch.slice(batch.num_rows // 2), nans_equal=True)
    reader[0].validate(full=True)
    assert reader.read_all().equals(bs.open_file(raw).read_all(), nans_equal=True)


@pytest.mark.usefixtures("no_edges")
def test_views_with_variadic_buffers_read_the_same_from_ranges_and_from_memory() -> None:
    words = bs.array(["short", "longer than twelve bytes", None, "and another long one"] * 5, bs.string_view())
    batch = bs.RecordBatch.from_arrays([words, bs.array(range(20)), words], ["a", "b", "c"])
    reader = open_counting_file(samples.as_file(batch, batch, batch))
    assert reader.column("c").to_pylist() == words.to_pylist() * 3
    assert reader.read_all().equals(bs.Table.from_batches([batch] * 3))


@pytest.mark.usefixtures("no_edges")
def test_dictionaries_are_fetched_for_the_columns_that_need_them() -> None:
    words = bs.array(["x" * 50_000, "b", None] * 2, bs.dictionary(bs.int8(), bs.string()))
    other = bs.array(["y" * 90_000, None] * 3, bs.dictionary(bs.int8(), bs.string()))
    batch = bs.RecordBatch.from_arrays([words, bs.array(range(6)), other], ["w", "n", "o"])
    file = CountingFile(samples.as_file(batch, batch))
    reader = bs.open_file(file)
    assert reader.column("n").to_pylist() == [*range(6)] * 2
    assert file.read_bytes < 10_000
    assert reader.column("o").to_pylist() == other.to_pylist() * 2
    assert file.read_bytes < 160_000
    assert reader.read_all().equals(bs.Table.from_batches([batch] * 2))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_dictionaries_of_columns_are_fetched_with_few_requests(
    upload: Callable[[bytes], str], compression: str | None
) -> None:
    words = bs.array([f"word {i}" for i in range(40_000)] * 2, bs.dictionary(bs.int32(), bs.string()))
    batch = bs.RecordBatch.from_arrays([words, bs.array(np.arange(80_000))], ["w", "n"])
    url = upload(samples.as_file(*[batch] * 4, compression=compression))
    assert bs.open_file(url, columns=["w"]).read_all()["w"].chunks[3].equals(words)
    assert SlowFileSystem.requests <= 7


@pytest.mark.usefixtures("no_edges")
def test_every_golden_file_reads_the_same_from_ranges_and_from_memory(shared_folder: Path) -> None:
    corpus = shared_folder / "corpus"
    files = [*sorted(corpus.glob("golden/**/*.arrow_file")), *sorted(corpus.glob("fuzz/file/*"))]
    assert len(files) > 20
    for path in files:
        raw = path.read_bytes()
        if len(raw) < 1 << 20:
            assert values_or_error(partial(open_counting_file, raw)) == values_or_error(partial(bs.open_file, raw)), (
                path
            )


def test_remote_batches_are_written_completely(tmp_path: Path) -> None:
    data = wide_file(40, 3)
    reader = open_counting_file(data)
    with bs.new_file(tmp_path / "copy.arrow", reader.schema) as writer:
        for batch in reader:
            writer.write(batch)
    assert bs.open_file(tmp_path / "copy.arrow").read_all().equals(bs.open_file(data).read_all())


def test_one_remote_batch_and_its_message_are_available() -> None:
    data = wide_file(20, 3)
    local, reader = bs.open_file(data), open_counting_file(data)
    header, body = reader.read_batch_message(-1)
    expected, there = local.read_batch_message(2)
    assert (header.length, body.to_bytes()) == (expected.length, there.to_bytes())
    assert reader.num_record_batches == 3
    with pytest.raises(errors.NotFoundError, match="batch 3"):
        reader[3]
    with pytest.raises(errors.NotFoundError, match="'nope'"):
        reader.column("nope")
    with pytest.raises(errors.InvalidArgumentError, match="by ranges"):
        _ = reader.memory


def test_arrays_outlive_the_reader_but_unfetched_columns_do_not() -> None:
    rows = 50_000
    table = bs.table({name: np.arange(rows) for name in "ab"})
    with open_counting_file(samples.as_file(*table.to_batches())) as reader:
        batch = reader[0]
        column = batch["a"]
    assert column.to_numpy()[-1] == rows - 1
    with pytest.raises(errors.ClosedError):
        _ = batch["b"]
    with pytest.raises(errors.ClosedError):
        reader.get_batch(0)


def test_several_threads_may_read_columns() -> None:
    data = wide_file(60, 20, compression="lz4")
    expected = bs.open_file(data).read_all()
    for _ in range(5):
        table = open_counting_file(data).read_all()
        with ThreadPoolExecutor(8) as pool:
            columns = list(pool.map(table.column, [*range(60)] * 2))
        assert all(column.equals(expected.column(i % 60)) for i, column in enumerate(columns))


def test_members_of_an_archive_are_read(tmp_path: Path) -> None:
    data = samples.as_file(samples.batch())
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("stored", data)
        archive.writestr("deflated", data, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        for name in ("stored", "deflated"):
            with archive.open(name) as member:
                assert bs.open_file(member)[0].equals(samples.batch())


# Stores


def test_urls_of_every_kind_are_opened(tmp_path: Path) -> None:
    data = samples.as_file(samples.batch())
    path = tmp_path / "x.arrow"
    path.write_bytes(data)
    fsspec.filesystem("memory").pipe_file("/kinds.arrow", data)
    with serve_files(kinds=data) as site:
        options = {"cache_storage": str(tmp_path / "cache")}
        opened = fsspec.open(f"simplecache::{site.url}/kinds", simplecache=options)
        urls = [f"file://{path}", "memory://kinds.arrow", f"{site.url}/kinds", opened, fsspec.open(f"{site.url}/kinds")]
        for url in urls:
            with bs.open_file(url) as reader:
                assert reader[0].equals(samples.batch()), url
        with fsspec.open(f"{site.url}/kinds") as file, bs.open_file(file) as reader:
            assert reader[0].equals(samples.batch())
            assert isinstance(reader, RemoteFileReader)


def test_a_file_that_fsspec_decompresses_is_read_completely() -> None:
    batch = samples.batch()
    for name, data in (("file", samples.as_file(batch)), ("stream", samples.as_stream(batch))):
        fsspec.filesystem("memory").pipe_file(f"/{name}.gz", gzip.compress(data))
        lazy = fsspec.open(f"memory://{name}.gz", compression="gzip")
        opened = bs.open_file(lazy) if name == "file" else bs.open_stream(lazy)
        assert next(iter(opened)).equals(batch)
        opened.close()


def test_without_the_packages_for_a_url_the_error_names_the_extra() -> None:
    code = (
        "import sys\n"
        "import bowstring as bs\n"
        "bs.open_file\n"
        "assert not {'fsspec', 'asyncio', 'aiohttp'} & set(sys.modules), 'imported before they are needed'\n"
        "for package, url in (('aiohttp', 'http://localhost/x'), ('fsspec', 'memory://x')):\n"
        "    sys.modules[package] = None\n"
        "    if package == 'fsspec':\n"
        "        sys.modules['fsspec.core'] = None\n"
        "    for use in (bs.open_file, bs.open_stream, lambda url: bs.new_file(url, bs.schema({'a': bs.int8()}))):\n"
        "        try:\n            use(url)\n"
        "        except bs.errors.MissingExtraError as error:\n            print(error)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("pip install 'bowstring[fsspec]', or in a clone '.[fsspec]'") == 3
    assert process.stdout.count("aiohttp") == 3


def test_streams_are_read_from_urls() -> None:
    batch = samples.batch()
    data = samples.as_stream(*[batch] * 3)
    fsspec.filesystem("memory").pipe_file("/stream", data)
    with serve_files(stream=data) as site:
        for url in ("memory://stream", f"{site.url}/stream"):
            with bs.open_stream(url) as reader:
                assert [stream_batch.equals(batch) for stream_batch in reader] == [True] * 3


def test_the_format_of_a_url_is_detected_from_its_bytes() -> None:
    batch = samples.batch()
    with serve_files(
        file=samples.as_file(batch), stream=samples.as_stream(*[batch] * 4000), other=b"a,b\n1,2\n"
    ) as site:
        with open_any(f"{site.url}/file") as reader:
            assert isinstance(reader, RemoteFileReader)
            assert next(iter(reader)).equals(batch)
        site.requests.clear()
        with open_any(f"{site.url}/stream") as reader:
            assert sum(part.num_rows for part in reader) == 12_000
        assert len(site.requests) < 30
        with pytest.raises(errors.FormatMismatchError):
            open_any(f"{site.url}/other")


def test_a_file_from_a_server_without_ranges_is_read_completely() -> None:
    data = wide_file(40, 300)
    with serve_files(whole=data) as site:
        site.supports_ranges = False
        assert bs.open_file(f"{site.url}/whole").column("c1").to_pylist() == [1, 2, 3] * 300


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"fails_with": 500}, errors.ResourceError),
        ({"fails_with": 403}, errors.ResourceError),
        ({"missing_bytes": 7}, errors.ConnectionLostError),
    ],
)
def test_an_invalid_response_of_a_server_is_a_bowstring_error(change: dict[str, Any], error: type[Exception]) -> None:
    with serve_files(data=wide_file(40, 300)) as site:
        for name, value in change.items():
            setattr(site, name, value)
        with pytest.raises(error, match=r"127\.0\.0\.1"):
            bs.open_file(f"{site.url}/data").column("c1")


def test_a_server_that_stops_responding_is_a_deadline_error() -> None:
    import aiohttp

    with serve_files(data=wide_file(40, 300)) as site:
        site.gets_before_hanging = 2
        options = {"timeout": aiohttp.ClientTimeout(total=0.5)}
        reader = bs.open_file(fsspec.open(f"{site.url}/data", client_kwargs=options, skip_instance_cache=True))
        with pytest.raises(errors.DeadlineError):
            reader.column("c1")


def test_a_server_that_disconnects_is_a_connection_lost_error() -> None:
    with serve_files(data=wide_file(40, 300)) as site:
        reader = bs.open_file(f"{site.url}/data")
        site.is_down = True
        with pytest.raises(errors.ConnectionLostError):
            reader.column("c1")


def replace_file(site: Site, data: bytes) -> None:
    site.files["/data"] = data
    if site.etags:
        site.etags["/data"] = '"two"'


@pytest.mark.parametrize("marks", [{}, {"/data": '"one"'}], ids=["no marks", "marks"])
def test_a_file_replaced_by_a_shorter_one_is_an_error(marks: dict[str, str]) -> None:
    data = wide_file(40, 300)
    with serve_files(data=data) as site:
        site.etags = marks
        reader = bs.open_file(f"{site.url}/data")
        replace_file(site, data[: len(data) // 3])
        with pytest.raises((errors.TruncatedError, errors.ResourceError), match=r"replaced|shorter|changed"):
            reader.column("c1")


def test_a_file_replaced_by_one_of_the_same_size_is_detected_by_its_etag() -> None:
    data = wide_file(40, 300)
    with serve_files(data=data) as site:
        site.etags["/data"] = '"one"'
        reader = bs.open_file(f"{site.url}/data")
        replace_file(site, bytes(len(data)))
        with pytest.raises(errors.ResourceError, match="replaced"):
            reader.column("c1")


def test_a_missing_url_and_a_directory_are_errors() -> None:
    with serve_files(data=b"") as site:
        with pytest.raises(errors.NotFoundError):
            bs.open_file(f"{site.url}/nowhere")
        with pytest.raises(errors.TruncatedError):
            bs.open_file(f"{site.url}/data")
    fsspec.filesystem("memory").pipe_file("/folder/inside", b"ARROW1")
    with pytest.raises(errors.NotFoundError, match="memory://nowhere"):
        bs.open_file("memory://nowhere")
    with pytest.raises(errors.InvalidArgumentError, match="directory"):
        bs.open_file("memory://folder")
    with pytest.raises(errors.InvalidArgumentError, match="nonsense"):
        bs.open_file("nonsense://nowhere")


class FaultyFile(CountingFile):
    """Raises, or returns fewer or other bytes than requested, from the given read on."""

    def __init__(self, data: bytes, from_read: int, answer: Any) -> None:
        super().__init__(data)
        self._from_read, self._bad = from_read, answer

    def read(self, size_bytes: int = -1) -> Any:
        self.reads += 1
        if self.reads < self._from_read:
            return self._data.read(size_bytes)
        if isinstance(self._bad, Exception):
            raise self._bad
        return self._bad(self._data.read(size_bytes))


@pytest.mark.parametrize("from_read", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (TimeoutError(), errors.DeadlineError),
        (ConnectionResetError("gone"), errors.ConnectionLostError),
        (PermissionError("no"), errors.ResourceError),
        (RuntimeError("odd"), errors.ResourceError),
        (lambda held: b"", errors.TruncatedError),
        (lambda held: held + b"more", errors.InvalidArgumentError),
        (lambda held: None, errors.DeadlineError),
        (lambda held: "text", errors.InvalidArgumentError),
    ],
    ids=["timeout", "reset", "denied", "odd", "short", "long", "none", "text"],
)
def test_a_faulty_file_object_is_a_bowstring_error(answer: Any, error: type[Exception], from_read: int) -> None:
    with pytest.raises(error):
        bs.open_file(FaultyFile(wide_file(40, 300), from_read, answer)).column("c1")


# Writing


def test_files_and_streams_are_written_to_urls(tmp_path: Path) -> None:
    batch = samples.batch()
    for url in ("memory://made/x.arrow", f"file://{tmp_path}/x.arrow", fsspec.open("memory://made/y.arrow", "wb")):
        with bs.new_file(url, batch.schema) as writer:
            writer.write(batch)
        assert bs.open_file(url).read_all().equals(bs.Table.from_batches([batch]))
        with bs.new_stream(url, batch.schema) as writer:
            writer.write(batch)
        assert next(iter(bs.open_stream(url))).equals(batch)


@pytest.mark.parametrize("url", ["memory://kept.arrow", "file://{}/kept.arrow", "parts://kept.arrow"])
def test_a_file_in_a_store_appears_only_when_it_is_complete(url: str, tmp_path: Path) -> None:
    fsspec.register_implementation("parts", TransactionalFileSystem, clobber=True)
    url = url.format(tmp_path)
    files, path = fsspec.core.url_to_fs(url)
    MemoryFileSystem.store.pop(path, None)
    with files.open(path, "wb", autocommit=False) as file:
        file.write(b"what was there before")
    file.commit()
    with pytest.raises(ZeroDivisionError), bs.new_file(url, samples.batch().schema) as writer:
        writer.write(samples.batch())
        _ = 1 // 0
    assert files.cat_file(path) == b"what was there before"
    with bs.new_file(url, samples.batch().schema) as writer:
        writer.write(samples.batch())
        assert files.cat_file(path) == b"what was there before"
    assert bs.open_file(url)[0].equals(samples.batch())


class TransactionalFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store whose uploads are dropped or committed as a whole."""

    protocol = "parts"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("parts://")))

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **options: Any) -> Any:
        if mode == "rb":
            return super()._open(path, mode)
        assert not autocommit
        return MemoryFile(self, path)


def test_the_error_for_a_read_only_store_mentions_writing() -> None:
    with serve_files() as site, pytest.raises(errors.InvalidArgumentError, match="writing"):
        bs.new_file(f"{site.url}/new", samples.batch().schema)


# Hostile files


@pytest.mark.thorough
@given(st.data())
@settings(max_examples=150)
def test_a_damaged_file_reads_the_same_from_ranges_and_from_memory_or_is_an_error(data: st.DataObject) -> None:
    raw = bytearray(TWO_BATCHES)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert values_or_error(lambda: open_counting_file(bytes(raw))) == values_or_error(lambda: bs.open_file(bytes(raw)))


def values_or_error(open_: Callable[[], Any]) -> Any:
    try:
        reader = open_()
        texts: list[Any] = [repr(reader.schema)]
        for index in range(reader.num_record_batches):
            batch = reader[index]
            batch.validate(full=True)
            texts += [repr(column.to_pylist()) for column in batch.columns]
    except errors.InvalidDataError:  # which of them it is depends on what was met before, as schemas are kept
        return errors.InvalidDataError
    return texts


TWO_BATCHES = samples.as_file(samples.batch(), samples.batch())


@pytest.mark.usefixtures("no_edges")
def test_headers_with_a_different_layout_than_the_first_are_read_individually() -> None:
    whole = samples.batch()
    marked = bs.RecordBatch(whole.schema, whole.num_rows, whole.columns, ((b"key", b"value"),))
    reader = open_counting_file(samples.as_file(whole, marked, whole, marked))
    batches = list(reader)
    assert [batch.custom_metadata for batch in batches] == [{}, {b"key": b"value"}] * 2
    assert all(batch.equals(whole) for batch in batches)


def test_blocks_that_claim_bytes_beyond_the_file_are_rejected() -> None:
    data = bytearray(wide_file(4, 2))
    local = bs.open_file(bytes(data))
    at = data.rfind(local.blocks[1].tobytes())
    data[at + 16 : at + 24] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(errors.InvalidDataError, match=r"blocks|record batch 1"):
        open_counting_file(bytes(data)).read_all()


def test_a_body_above_the_limit_is_rejected() -> None:
    with pytest.raises(errors.LimitError, match="body"):
        open_counting_file(wide_file(4, 2), limits=bs.ipc.ReadLimits(max_body_bytes=8)).read_all()


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60))), st.integers(0, 40))
def test_merged_ranges_cover_all_requests_and_do_not_overlap(spans: list[tuple[int, int]], gap: int) -> None:
    out = merge_spans(spans, gap)
    requested = {at for start, length in spans for at in range(start, start + length)}
    covered = [at for start, length in out for at in range(start, start + length)]
    assert len(set(covered)) == len(covered)
    assert requested <= set(covered)
    assert all(b[0] - (a[0] + a[1]) > gap for a, b in pairwise(out))


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100)), max_size=12), st.integers(0, 64))
def test_fetched_ranges_have_the_bytes_of_the_file(spans: list[tuple[int, int]], gap: int) -> None:
    data = os.urandom(1000)
    source = RangeSource(range_source.FileObjectRangeReader(CountingFile(data), "file"))
    source._cached_ranges = FetchedRanges()
    ranges = source.fetch(spans, gap)
    for start, length in spans:
        content = ranges.find(start, length)
        assert content is not None
        assert content.to_bytes() == data[start : start + length]
        assert not length or content.address % 64 == start % 64
