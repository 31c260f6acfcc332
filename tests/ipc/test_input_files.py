"""Sources as binary file objects, and streams of web servers that know no ranges."""

from __future__ import annotations

import gzip
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, LimitError, MissingFileError
from bowstring.ipc.format_detection import open_any
from bowstring.ipc.input_files import open_input_file, open_input_stream
from tests.ipc.remote import Site, serving

_TEXT = b"".join(b"line %d\n" % number for number in range(100_000))
_LARGE_BYTES = 6 << 20  # more than fsspec's block of 5 MiB


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(x=_TEXT, z=gzip.compress(_TEXT, 1)) as site:
        site.knows_ranges = False
        yield site


def _sources(tmp_path: Path, site: Site) -> list[Any]:
    path = tmp_path / "x.txt"
    path.write_bytes(_TEXT)
    return [path, str(path), f"file://{path}", f"{site.url}/x", fsspec.open(f"{site.url}/x"), _TEXT, io.BytesIO(_TEXT)]


def test_any_source_is_read_in_order(tmp_path: Path, site: Site) -> None:
    packed = fsspec.open(f"{site.url}/z", compression="gzip")
    for source in (*_sources(tmp_path, site), packed):
        with open_input_stream(source) as file:
            assert file.readline() == b"line 0\n"
            assert file.read() == _TEXT[7:], source
            assert file.read() == b""


def test_any_source_is_read_at_random(tmp_path: Path, site: Site) -> None:
    for source in _sources(tmp_path, site):
        with open_input_file(source) as file:
            assert file.seek(-10, os.SEEK_END) == len(_TEXT) - 10
            assert file.read() == _TEXT[-10:]
            assert file.seek(500_000) == 500_000
            assert file.read(20) == _TEXT[500_000:500_020]
            assert file.tell() == 500_020
            assert file.seekable()


def test_a_parquet_file_of_a_web_server_is_read_by_pyarrow(site: Site) -> None:
    sink = io.BytesIO()
    table = pa.table({"a": list(range(1000))})
    pq.write_table(table, sink)
    site.files["/p"] = sink.getvalue()
    for site.knows_ranges in (True, False):
        with open_input_file(f"{site.url}/p") as file:
            assert pq.read_table(file) == table


def test_a_pipe_is_kept_in_memory_for_random_access_up_to_a_limit() -> None:
    for limit in (5, 4):
        reader, writer = os.pipe()
        os.write(writer, b"12345")
        os.close(writer)
        try:
            if limit == 5:
                with open_input_file(reader, limit) as file:
                    assert (file.seek(3), file.read()) == (3, b"45")
            else:
                with pytest.raises(LimitError, match="max_piped_bytes"):
                    open_input_file(reader, limit)
        finally:
            os.close(reader)


def test_a_socket_and_a_file_object_stay_open() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"abc")
        with open_input_stream(other) as file:
            assert file.read(3) == b"abc"
            assert not file.seekable()
        one.sendall(b"d")
        assert other.recv(1) == b"d"
    source = io.BytesIO(b"abc")
    open_input_stream(source).close()
    assert source.read() == b"abc"


def test_a_missing_source_is_told_at_once(tmp_path: Path, site: Site) -> None:
    for source in (tmp_path / "missing", f"{site.url}/missing"):
        for function in (open_input_stream, open_input_file):
            with pytest.raises(MissingFileError):
                function(source)


def test_a_connection_that_breaks_is_told_while_reading(site: Site) -> None:
    site.is_gone = True
    with pytest.raises(ConnectionLostError):
        open_input_stream(f"{site.url}/x").read()


def test_a_stream_is_read_from_a_web_server_without_ranges_by_one_request(site: Site) -> None:
    batch = bs.record_batch({"a": bs.array(list(range(_LARGE_BYTES // 8)))})
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    site.files["/s"], site.files["/t"] = sink.getvalue(), gzip.compress(sink.getvalue(), 1)
    packed = fsspec.open(f"{site.url}/t", compression="gzip")
    for source in (f"{site.url}/s", fsspec.open(f"{site.url}/s"), packed):
        site.requests.clear()
        reader = bs.open_stream(source)
        assert [batch.num_rows for batch in reader] == [_LARGE_BYTES // 8]
        reader.close()
        assert [(verb, span) for verb, _, span in site.requests] == [("GET", None)]


def test_files_and_streams_of_a_web_server_that_sends_no_lengths_are_read_in_order(tmp_path: Path) -> None:
    table = bs.table({"a": [1, 2, 3]})
    written = {"file": io.BytesIO(), "stream": io.BytesIO()}
    for kind, make in (("file", bs.new_file), ("stream", bs.new_stream)):
        with make(written[kind], table.schema) as writer:
            writer.write(table)
    with serving(**{kind: sink.getvalue() for kind, sink in written.items()}) as site:
        site.knows_ranges = site.has_lengths = False
        assert bs.open_file(site.url + "/file").read_all().equals(table)
        with pytest.raises(LimitError, match="max_piped_bytes"):
            bs.open_file(site.url + "/file", max_piped_bytes=100)
        for kind in written:
            url = f"{site.url}/{kind}"
            assert open_any(url).read_all().equals(table)
            assert bs.inspect(url).format == kind
            assert bs.recover(url, tmp_path / kind).rows == 3
            assert bs.concat_files([url, url], tmp_path / kind).rows == 6
            assert "int64" in bs.anatomy_page(url)
