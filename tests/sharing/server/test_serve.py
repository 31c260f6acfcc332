"""Serving and connecting: two processes, one memory."""

from __future__ import annotations

import errno
import gc
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    MissingExtraError,
    NotFoundError,
    ProtocolError,
    TruncatedError,
    UnavailableAddressError,
    UnmetRequirementError,
)
from bowstring.memory import region
from bowstring.memory.region import Region
from bowstring.sharing import stored_parts
from bowstring.sharing.client.connection import Connection, ConnectionOptions
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.stored_parts import store_in_region
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, WANT_DATA, Ticket, parse_error_tag
from bowstring.transports import regions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.descriptors import count_open_descriptors
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

READ = "import bowstring as bs\nwith bs.connect(uri) as data: send(data.read_all().to_pydict())"
SERVE = """
import bowstring as bs
server = bs.serve({"t": bs.table({"a": list(range(1000))})})
send(server.uri("t"))
receive()
"""
READ_AND_DROP = """
import bowstring as bs
table = bs.connect(uri).read_all()
send("read")
receive()
del table
send("dropped")
receive()
"""


NEVER_INLINE = ServerOptions(inline_bytes=0)  # small tables are shared, too


def example_table() -> bs.Table:
    batches = [
        bs.record_batch({"n": [1, None, 3], "s": ["x", "yy", None], "l": [[1], None, []]}),
        bs.record_batch({"n": [4, 5, 6], "s": ["", "é", "zz"], "l": [[1, 2], [3], [None]]}),
    ]
    return bs.Table.from_batches(batches)


@pytest.fixture
def server() -> Iterator[bs.sharing.Server]:
    with bs.serve({"t": example_table()}, options=NEVER_INLINE) as server_of_example:
        yield server_of_example


def count_leases(data: bs.sharing.DatasetReader) -> int:
    return sum(len(connection._leased_memories) for connection in data._connections)


def test_another_process_reads_a_table(server: bs.sharing.Server) -> None:
    assert run_python(READ, uri=server.uri("t")) == example_table().to_pydict()


@pytest.mark.parametrize("copy", [False, True])
def test_batches_keep_their_lengths_types_and_nulls(server: bs.sharing.Server, copy: bool) -> None:
    with bs.connect(server.uri("t"), copy=copy) as data:
        batches = list(data)
    assert [batch.num_rows for batch in batches] == [3, 3]
    assert bs.Table.from_batches(batches) == example_table()
    for batch in batches:
        batch.validate(full=True)


def test_a_data_set_can_be_read_again_and_again(server: bs.sharing.Server) -> None:
    with bs.connect(server.uri("t")) as data:
        assert [data.read_all().num_rows for _ in range(3)] == [6, 6, 6]
        assert len(data._connections) == 1


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_a_data_set_is_read_again_from_a_server_that_was_restarted(scheme: str) -> None:
    with bs.serve({"t": example_table()}, scheme=scheme) as server:
        uri, address = server.uri("t"), server.address
        data = bs.connect(uri)
        assert data.read_all() == example_table()
    with data:
        with pytest.raises(ConnectionLostError):
            data.read_all()
        with bs.serve({"t": example_table()}, address, scheme=scheme):
            assert data.read_all() == example_table()
        with bs.serve({"t": example_table()}, address, scheme=scheme):
            assert data.read_all() == example_table()


def test_reading_continues_over_a_new_connection_without_region_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "MAX_REGIONS", 3)  # it is 65,536: one for each region and reading
    options = ServerOptions(inline_bytes=0, max_kept_regions=0)
    with bs.serve({"t": example_table()}, options=options) as server, bs.connect(server.uri("t")) as data:
        assert [data.read_all().num_rows for _ in range(8)] == [6] * 8
        assert len(data._connections) == 1


def test_an_abandoned_iteration_starts_again(server: bs.sharing.Server) -> None:
    with bs.connect(server.uri("t")) as data:
        for _ in data:
            break
        assert data.read_all() == example_table()


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_an_abandoned_iteration_ends_the_stream_and_its_leases_but_not_its_arrays(scheme: str) -> None:
    rows, batches = 1 << 20, 4  # 32 MB, more than the buffers of the sockets
    table = bs.Table.from_batches([bs.record_batch({"a": np.arange(rows) + n}) for n in range(batches)])
    with bs.serve({"t": table}, scheme=scheme) as server, bs.connect(server.uri("t")) as data:
        batch = next(iter(data))
        assert wait_until(lambda: server.num_clients == 0)
        assert wait_until(lambda: server.stats().queued_bytes == 0)  # a connection is counted until it starts to close
        stats = server.stats()
        assert stats.leased_addresses == stats.leased_bytes == stats.queued_bytes == 0
        assert stats.num_lost_clients == 0
        assert int(batch.column(0).to_numpy().sum()) == int(np.arange(rows).sum())
        assert data.read_all() == table


def test_two_threads_read_one_data_set_concurrently(server: bs.sharing.Server) -> None:
    tables = []
    with bs.connect(server.uri("t")) as data:
        threads = [threading.Thread(target=lambda: tables.append(data.read_all())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert tables == [example_table()] * 4


def test_several_parts_are_one_data_set(server: bs.sharing.Server) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i, i + 10]})) for i in range(3)]
    with bs.connect(uris) as data:
        assert data.read_all().to_pydict() == {"a": [0, 10, 1, 11, 2, 12]}
        assert len(data._connections) == 1


def test_many_parts_are_requested_together(server: bs.sharing.Server) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(600)]
    uris.insert(300, server.uri("part 7"))
    with bs.connect(uris) as data:
        assert data.read_all()["a"].to_pylist() == [*range(300), 7, *range(300, 600)]
        assert [len(request.uris) for request in data._requests] == [256, 256, 89]
        assert data.uris == tuple(uris)
    with bs.connect(uris, copy=True) as data:
        assert data.read_all()["a"].to_pylist() == [*range(300), 7, *range(300, 600)]


def test_parts_of_several_servers_and_of_older_versions_are_one_data_set(server: bs.sharing.Server) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(6)]
    old = [re.sub("max_tickets=[0-9]+&", "", uri) for uri in uris]
    with (
        bs.serve({"b": bs.table({"a": [6]})}) as other,
        bs.connect([uris[0], uris[1], other.uri("b"), uris[2], *old[3:]]) as data,
    ):
        assert data.read_all()["a"].to_pylist() == [0, 1, 6, 2, 3, 4, 5]
        assert [len(request.uris) for request in data._requests] == [2, 1, 1, 1, 1, 1]
        assert len(data._connections) == 3


def test_a_missing_part_is_named_after_those_before_it_are_read(server: bs.sharing.Server) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(6)]
    server.remove("part 4")
    with bs.connect(uris) as data:
        batches = iter(data)
        assert [next(batches)["a"].to_pylist() for _ in range(4)] == [[0], [1], [2], [3]]
        with pytest.raises(NotFoundError, match="part 4"):
            next(batches)
    with pytest.raises(NotFoundError, match="part 4"):
        bs.connect(uris[4:])


def test_parts_whose_equal_schemas_are_encoded_differently_are_one_data_set(
    server: bs.sharing.Server, tmp_path: Path
) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(3)]
    with (
        pa.OSFile(str(tmp_path / "stream.arrows"), "wb") as file,
        pa.ipc.new_stream(file, pa.schema({"a": pa.int64()})) as writer,
    ):
        writer.write(pa.record_batch({"a": [3]}))
    uris.insert(1, server.add("of pyarrow", tmp_path / "stream.arrows"))
    assert server.find_parts("of pyarrow")[0].schema != server.find_parts("part 0")[0].schema
    with bs.connect(uris) as data:
        assert data.read_all()["a"].to_pylist() == [0, 3, 1, 2]


def test_a_request_for_more_than_max_tickets_is_an_error(server: bs.sharing.Server) -> None:
    connection = Connection.dial(parse_uri(server.uri("t")), ConnectionOptions(timeout_s=10))
    with pytest.raises(InvalidArgumentError, match="maximum is 256"):
        connection.request_stream(Ticket(("t",) * 257))


def test_parts_with_different_schemas_are_an_error(server: bs.sharing.Server) -> None:
    uris = [server.uri("t"), server.add("other", bs.table({"a": [1]}))]
    with bs.connect(uris) as data, pytest.raises(bs.errors.InvalidDataError, match="expected"):
        data.read_all()


def test_arrays_refer_to_the_servers_memory_and_are_read_only() -> None:
    table = bs.table({"a": np.arange(100_000)})
    with bs.serve({"t": table}) as server, bs.connect(server.uri("t")) as data:
        values = data.read_all().column("a").chunks[0].to_numpy()
        assert not values.flags.writeable
        address = values.__array_interface__["data"][0]
        where = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:bowstring" in line]
        ranges = [[int(edge, 16) for edge in line.split()[0].split("-")] for line in where]
        assert any(start <= address < end for start, end in ranges)


def test_tables_keep_no_descriptor(server: bs.sharing.Server) -> None:
    uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(20)]
    before = count_open_descriptors()
    with bs.connect(uris) as data:
        table = data.read_all()
        assert wait_until(lambda: count_open_descriptors() == before + 2)  # both ends of the connection
    assert table["a"].to_pylist() == list(range(20))


def test_a_copy_is_private_memory() -> None:
    with bs.serve({"t": bs.table({"a": np.arange(10)})}) as server:
        with bs.connect(server.uri("t"), copy=True) as data:
            table = data.read_all()
            assert count_leases(data) == 0
        assert table.to_pydict() == {"a": list(range(10))}


def test_a_copy_is_made_without_sending_the_bytes(tmp_path: Path) -> None:
    memory = bs.table({"a": np.arange(100_000)})
    with bs.new_file(tmp_path / "file", memory.schema) as writer:
        writer.write(memory)
    parts: dict[str, Any] = {f"part {number}": bs.table({"a": np.arange(5000) + number * 5000}) for number in range(20)}
    with bs.serve({"memory": memory, "file": tmp_path / "file", **parts}) as server:
        for names in (["memory"], ["file"], list(parts)):  # the server retires some of the many regions at once
            with bs.connect([server.uri(name) for name in names], copy=True) as data:
                table = data.read_all()
                (connection,) = data._connections
                (channel,) = connection.driver.session.channels.values()
                assert channel.bytes_received < 50_000
                assert count_leases(data) == 0
            assert table["a"].to_pylist() == list(range(100_000))


def test_a_copy_of_a_file_that_is_truncated_is_an_error(tmp_path: Path) -> None:
    table = bs.Table.from_batches([bs.record_batch({"a": np.arange(10_000)})] * 3)
    with bs.new_file(tmp_path / "file", table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    with bs.serve({"t": tmp_path / "file"}) as server, bs.connect(server.uri("t"), copy=True) as data:
        os.truncate(tmp_path / "file", 100_000)
        with pytest.raises(TruncatedError, match="region 0"):
            data.read_all()


def test_an_arrow_file_is_served_by_its_own_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, example_table().schema) as writer:
        writer.write(example_table())
    with bs.serve({"f": path}) as server, bs.connect(server.uri("f")) as data:
        table = data.read_all()
        assert table == example_table()
        assert str(path) in Path("/proc/self/maps").read_text()


SERVE_FILES = """
import resource
import bowstring as bs
resource.setrlimit(resource.RLIMIT_NOFILE, (640, 640))
server = bs.serve({f"file {number}": path for number, path in enumerate(paths)})
send([server.uri(f"file {number}") for number in range(len(paths))])
receive()
"""
READ_FILES = """
import resource
import bowstring as bs
resource.setrlimit(resource.RLIMIT_NOFILE, (640, 640))
with bs.connect(uris) as data:
    table = data.read_all()
    send(table["a"].to_pylist())
"""


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EIO])
def test_a_file_that_can_not_be_opened_again_for_a_client_is_sent_as_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "file.arrow"
    with bs.new_file(path, example_table().schema) as writer:
        writer.write_table(example_table())
    monkeypatch.setattr(region, "reopen_read_only", fail)
    with bs.serve({"t": path}, options=ServerOptions(inline_bytes=0)) as server, bs.connect(server.uri("t")) as reader:
        assert reader.read_all() == example_table()
        assert server.stats().leased_addresses == 0


@pytest.mark.thorough
def test_more_files_are_served_and_read_than_there_are_descriptors(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.arrow" for number in range(1000)]
    for number, path in enumerate(paths):
        with bs.new_file(path, bs.schema([("a", bs.int64())])) as writer:
            writer.write(bs.record_batch({"a": [number]}))
    with PythonProcess(SERVE_FILES, paths=paths) as server:
        uris = server.receive()
        assert run_python(READ_FILES, uris=uris) == list(range(1000))
        paths[2].rename(tmp_path / "moved")  # whose descriptor the server has
        paths[998].rename(tmp_path / "elsewhere")
        paths[998].hardlink_to(paths[0])
        assert run_python(READ_FILES, uris=uris[:3]) == [0, 1, 2]
        for number, kind in ((998, InvalidDataError), (999, NotFoundError)):
            paths[999].unlink(missing_ok=True)
            with pytest.raises(kind, match=f"{number}.arrow"):
                bs.connect(uris[number])


def test_an_arrow_stream_in_a_file_is_served_too(tmp_path: Path) -> None:
    path = tmp_path / "file.arrows"
    with bs.new_stream(path, example_table().schema) as writer:
        writer.write(example_table())
    with bs.serve({"f": path}) as server:
        assert run_python(READ, uri=server.uri("f")) == example_table().to_pydict()


def test_a_file_is_served_with_the_schema_in_its_footer(tmp_path: Path) -> None:
    path, batch = tmp_path / "table.arrow", bs.record_batch({"weight": [1, 2]})
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
    path.write_bytes(path.read_bytes().replace(b"weight", b"height", 1))  # in the schema message
    with bs.serve({"t": path}) as server, bs.connect(server.uri("t")) as dataset:
        assert dataset.to_batches() == [batch]


def test_files_of_polars_are_served_and_shared(tmp_path: Path) -> None:
    """Polars 2.1 writes the schema message without a prefix."""
    path = tmp_path / "frame.arrow"
    frame = pl.DataFrame({"a": range(10), "b": ["x"] * 10})
    frame.write_ipc(path, record_batch_size=3)
    with bs.serve({"f": path}) as server, bs.connect(server.uri("f")) as dataset:
        assert pl.DataFrame(dataset.read_all()).equals(frame)
    with bs.share(path) as handle:
        assert pl.DataFrame(bs.attach(handle)).equals(frame)


def test_regions_handles_readers_and_batches_are_served(tmp_path: Path) -> None:
    region, _ = store_in_region(example_table())
    path = tmp_path / "file.arrow"
    with bs.new_file(path, example_table().schema) as writer:
        writer.write(example_table())
    with region, bs.share(example_table()) as handle, bs.open_file(path) as reader:
        sources: dict[str, Any] = {
            "region": region,
            "handle": handle,
            "reader": reader,
            "batch": example_table().to_batches()[0],
        }
        with bs.serve(sources) as server:
            rows = {name: bs.connect(uri).read_all().num_rows for name, uri in server.uris.items()}
    assert rows == {"region": 6, "handle": 6, "reader": 6, "batch": 3}


def test_dictionaries_that_change_between_batches_are_served() -> None:
    kind = bs.dictionary(bs.int8(), bs.string())
    table = bs.Table.from_batches(
        [bs.RecordBatch.from_arrays([bs.array(values, kind)], ["d"]) for values in (["a", "b"], ["c"], ["c", None])]
    )
    with bs.serve({"t": table}) as server:
        for copy in (False, True):
            assert bs.connect(server.uri("t"), copy=copy).read_all().to_pydict() == table.to_pydict()


def test_tables_without_rows_or_columns_are_served() -> None:
    empty = bs.table({"a": [1]}).slice(0, 0)
    bare = bs.Table(bs.schema([]), [bs.RecordBatch(bs.schema([]), 5, [])])
    with bs.serve({"empty": empty, "bare": bare}) as server:
        for copy in (False, True):
            assert bs.connect(server.uri("empty"), copy=copy).read_all().schema == empty.schema
            assert bs.connect(server.uri("bare"), copy=copy).read_all().num_rows == 5


def test_batches_are_leased_until_their_last_array_is_dropped(server: bs.sharing.Server) -> None:
    with bs.connect(server.uri("t")) as data:
        batches = list(data)
        assert count_leases(data) == 2
        view = batches[0].column("n").own_buffers[-1]
        del batches
        gc.collect()
        assert count_leases(data) == 1
        del view
        gc.collect()
        assert count_leases(data) == 0


def test_dictionaries_are_leased_while_the_stream_or_a_batch_may_refer_to_them() -> None:
    kind = bs.dictionary(bs.int8(), bs.string())
    columns = [bs.array(values, kind) for values in (["a"], ["a", "b"], ["c"], ["c"])]
    table = bs.Table.from_batches([bs.RecordBatch.from_arrays([column], ["d"]) for column in columns])
    with bs.serve({"t": table}, options=NEVER_INLINE) as server, bs.connect(server.uri("t")) as data:
        stream = iter(data)
        for num_leased in (2, 3, 2, 2):  # the last batch, and the dictionary with its delta or the one that replaced it
            next(stream)
            gc.collect()
            assert count_leases(data) == num_leased
        assert list(stream) == []
        gc.collect()
        assert count_leases(data) == 0
        table = data.read_all()
        batch = table.to_batches()[0]
        del table, stream
        gc.collect()
        assert count_leases(data) == 3  # a batch, and its dictionary with the delta
        assert batch.column("d").to_pylist() == ["a"]
        del batch
        gc.collect()
        assert count_leases(data) == 0
        assert wait_until(lambda: not server.stats().leased_addresses)


def test_the_memory_of_a_removed_data_set_is_freed_after_its_clients() -> None:
    def mappings() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "bowstring:leased" in line]

    with bs.serve({"leased": bs.table({"a": np.arange(1000)})}, options=NEVER_INLINE) as server:
        with PythonProcess(READ_AND_DROP, uri=server.uri("leased")) as other:
            other.receive()
            server.remove("leased")
            gc.collect()
            assert mappings()
            other.send(1)
            other.receive()
            assert wait_until(lambda: not mappings())
        with pytest.raises(NotFoundError):
            server.uri("leased")


def test_a_dropped_data_set_keeps_its_connection_only_during_leases(server: bs.sharing.Server) -> None:
    table = bs.connect(server.uri("t")).read_all()
    gc.collect()
    assert wait_until(lambda: server.num_clients == 1)
    assert table == example_table()
    del table
    gc.collect()
    assert wait_until(lambda: server.num_clients == 0)


def test_a_wrong_ticket_is_named(server: bs.sharing.Server) -> None:
    with pytest.raises(NotFoundError, match="no data set 'wrong'"):
        bs.connect(server.uri("t"), ticket="wrong")
    assert bs.connect(server.uri("t")).read_all() == example_table()


@pytest.mark.parametrize("uri", ["unix:@nobody?want_data=1", "unix:@nobody-listens-here?want_data=1&ticket=t"])
def test_a_uri_without_a_server_is_an_error(uri: str) -> None:
    with pytest.raises((InvalidArgumentError, ConnectionLostError)):
        bs.connect(uri)


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_the_address_of_a_server_is_not_a_uri_but_the_error_has_one(tmp_path: Path, scheme: str) -> None:
    address = str(tmp_path / "x.sock") if scheme == "unix" else None
    with bs.serve({"t": example_table()}, address, scheme=scheme) as server:
        for text in {server.address, server.address.removeprefix("//")}:
            with pytest.raises(InvalidArgumentError, match="expected the URI of a data set") as raised:
                bs.connect(text)
            (uri,) = re.findall(f"'({scheme}:[^']*)'", str(raised.value))
            with bs.connect(uri.replace("NAME", "t")) as data:
                assert data.read_all() == example_table()


@pytest.mark.parametrize("text", ["nonsense", "not a URI", "people.arrow", "", "@nobody", "./people.arrow"])
def test_text_without_a_scheme_is_an_error_that_shows_a_uri(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"server\.uri\(NAME\).*unix:.*open_file"):
        bs.connect(text)


@pytest.mark.parametrize("address", ["127.0.0.1:5000", "localhost:0", "[::1]:5000", "//127.0.0.1:5000"])
def test_a_host_and_port_without_a_scheme_are_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="use the scheme tcp"):
        bs.serve({}, address)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["unix", "tcp", "ucx", "fabric"])
def test_an_address_in_use_is_also_an_os_error(scheme: str) -> None:
    try:
        server = bs.serve({}, scheme=scheme)
    except (MissingExtraError, UnmetRequirementError) as error:
        pytest.skip(str(error))
    with server, pytest.raises(UnavailableAddressError) as raised:
        bs.serve({}, server.address, scheme=scheme)
    assert isinstance(raised.value, OSError)
    assert isinstance(raised.value, InvalidArgumentError)
    assert raised.value.errno == errno.EADDRINUSE


def test_a_path_at_which_no_socket_can_be_is_also_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="can't listen there"):
        bs.serve({}, str(tmp_path / "missing" / "socket"))


def test_text_that_is_not_a_uri_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="want_data"):
        bs.connect("unix:@x")
    with pytest.raises(InvalidArgumentError, match="scheme"):
        bs.connect("smtp:host?want_data=1&ticket=t")
    wrong: list[Any] = [[], None, 3, b"unix:@x", {"t": "unix:@x"}]
    for target in wrong:
        with pytest.raises(InvalidArgumentError):
            bs.connect(target)
    tickets: list[Any] = [3, "", "\udc80"]
    for ticket in tickets:
        with pytest.raises(InvalidArgumentError, match="ticket"):
            bs.connect("unix:@x?want_data=1", ticket=ticket)


def test_no_parts_are_an_empty_data_set_of_the_given_schema(server: bs.sharing.Server) -> None:
    schema = example_table().schema
    with bs.connect([], schema=schema) as data:
        assert (data.uris, data.read_all()) == ((), bs.Table(schema, []))
    with pytest.raises(InvalidArgumentError, match="no URIs, so no schema: pass schema="):
        bs.connect([])
    uri = server.uri("t")
    for target in (uri, [uri], [uri, uri], server.locations("t")):
        with bs.connect(target, schema=schema) as data:
            assert data.schema == schema
        with pytest.raises(InvalidDataError, match=r"connect: expected .*other.*, found .*n: int64"):
            bs.connect(target, schema={"other": "int8"})


@pytest.mark.parametrize("tag", ["9" * 5000, 1 << 40 | 3, 1 << 56 | 3])
def test_an_invalid_error_tag_is_ignored(server: bs.sharing.Server, tag: object) -> None:
    uri = server.uri("t").replace(f"error_data={ERROR_DATA}", f"error_data={tag}")
    with bs.connect(uri) as data:
        assert data.read_all() == example_table()
    assert parse_error_tag(parse_uri(uri)) is None


def test_a_connection_is_reused_only_for_the_same_tags(server: bs.sharing.Server) -> None:
    other = server.add("other", example_table())
    wrong = other.replace("want_data=1", "want_data=9").replace("free_data=2", "free_data=8")
    with bs.connect([server.uri("t"), other]) as data:
        assert data.read_all().num_rows == 12
        assert len(data._connections) == 1
    with bs.connect([server.uri("t"), wrong]) as data, pytest.raises(bs.BowstringError, match="found 9"):
        data.read_all()


def test_the_addresses_of_empty_buffers_are_at_the_end_of_their_region(server: bs.sharing.Server) -> None:
    """A client in as few lines as a reader of the protocol would write, which frees what it read."""
    with BlockingChannel.dial(UNIX, server.address) as client:
        client.send((b"t",), tag=WANT_DATA)
        freed: list[int] = []
        while (received := client.receive(timeout_s=10)).tag is not None or received.data[0] != 0:
            if received.tag is not None:
                words = np.frombuffer(received.data, "<u8")
                pairs = zip(words[2::2].tolist(), words[3::2].tolist(), strict=True)
                for address, length in pairs:
                    assert len(client.memory[address >> 48].memory[address % (1 << 48) :][:length]) == length
                    freed += [address] * (length > 0)
        client.send((struct.pack(f"<{len(freed)}Q", *freed),), tag=FREE_DATA)
        (session,) = server._clients.accepted.active
        assert wait_until(lambda: not session._connection.leases), "the server takes something for lent"
        server.remove("t")
        with pytest.raises(DeadlineError):
            client.receive(timeout_s=0.3)
        assert not len(client.memory), "the region of a removed data set is not retired"


def test_a_connection_with_an_unrequested_message_is_not_reused(server: bs.sharing.Server) -> None:
    with bs.connect(server.uri("t")) as data:
        data.read_all()
        (handler,) = server._clients.accepted.active
        is_sent = threading.Event()

        def send_message() -> None:
            handler.channel.submit((b"unrequested",))
            server._loop.notify_handler(handler, 0)
            is_sent.set()

        server._loop.call_soon_threadsafe(send_message)
        assert is_sent.wait(15)
        (connection,) = data._connections
        assert data.read_all() == example_table()
        assert connection not in data._connections


def test_connecting_to_a_closed_server_is_an_error(server: bs.sharing.Server, tmp_path: Path) -> None:
    uri = server.uri("t")
    server.close()
    with pytest.raises(ConnectionRefusedError, match="nothing is listening there") as caught:
        bs.connect(uri)
    assert isinstance(caught.value, ConnectionLostError)
    with pytest.raises(ConnectionLostError, match="nothing is listening there"):
        bs.connect(f"unix:{tmp_path}/missing?want_data=1&ticket=t")


def test_a_timeout_that_is_not_positive_is_an_error(server: bs.sharing.Server) -> None:
    for timeout_s in (0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError, match="timeout_s"):
            bs.connect(server.uri("t"), timeout_s=timeout_s)


def test_servers_and_data_sets_have_a_repr(server: bs.sharing.Server) -> None:
    assert repr(server) == f"<bowstring.sharing.Server at {server.address}: {', '.join(map(repr, server.names))}>"
    with bs.connect(server.uri("t")) as data:
        assert repr(data).startswith("<bowstring.sharing.DatasetReader 1 part over unix>")
    with bs.serve({}) as empty:
        assert "nothing yet" in repr(empty)
    assert repr(empty) == "<bowstring.sharing.Server closed>"


def test_invalid_sources_and_names_are_an_error_and_leave_no_server(tmp_path: Path) -> None:
    threads = threading.active_count()
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"PAR1" * 100)
    with pytest.raises(NotFoundError, match=r"nothing\.arrow"):
        bs.serve({"f": tmp_path / "nothing.arrow"})
    with pytest.raises(FormatMismatchError, match="Parquet"):
        bs.serve({"f": garbage})
    with pytest.raises(InvalidArgumentError, match="table"):
        bs.serve({"f": 7})  # type: ignore[dict-item]
    for name in ("", "a\0b", "\udc80"):
        with pytest.raises(InvalidArgumentError, match="name"):
            bs.serve({name: example_table()})
    addresses: list[Any] = ["", "@", "a\0b", "\ud800", b"@x", 3]
    for address in addresses:
        with pytest.raises(InvalidArgumentError, match="address"):
            bs.serve({}, address)
    odd: list[Any] = [{3: example_table()}, [example_table()], example_table()]
    for sources in odd:
        with pytest.raises(InvalidArgumentError):
            bs.serve(sources)
    with bs.serve({"t": example_table()}) as server, pytest.raises(InvalidArgumentError, match="already"):
        server.add("t", example_table())
    assert wait_until(lambda: threading.active_count() == threads)


def test_use_after_close_is_an_error(server: bs.sharing.Server) -> None:
    data = bs.connect(server.uri("t"))
    data.close()
    with pytest.raises(ClosedError):
        data.read_all()
    uri = server.uri("t")
    server.close()
    with pytest.raises(ClosedError):
        server.uri("t")
    with pytest.raises(ClosedError):
        server.add("u", example_table())
    with pytest.raises(ConnectionLostError):
        bs.connect(uri)


def test_closing_ends_all_threads_and_connections() -> None:
    threads = threading.active_count()
    with bs.serve({"t": example_table()}) as server:
        clients = [bs.connect(server.uri("t")) for _ in range(5)]
        assert server.num_clients == 5
    assert threading.active_count() == threads
    assert clients[0].read_all() == example_table()  # it was on its way already
    with pytest.raises(ConnectionLostError):
        clients[0].read_all()


def test_a_killed_server_is_a_lost_connection_and_tables_stay_valid() -> None:
    with PythonProcess(SERVE) as other:
        uri = other.receive()
        data = bs.connect(uri)
        table = data.read_all()
        waiting = bs.connect(uri)
        other.kill()
        assert table.to_pydict() == {"a": list(range(1000))}
        with pytest.raises(ConnectionLostError):
            data.read_all()
        waiting.close()
        with pytest.raises(ConnectionLostError):
            bs.connect(uri)


def test_leases_of_a_killed_client_end(server: bs.sharing.Server) -> None:
    hold = "import bowstring as bs; data = bs.connect(uri); table = data.read_all(); send(1); receive()"
    with PythonProcess(hold, uri=server.uri("t")) as other:
        other.receive()
        assert server.num_clients == 1
        other.kill()
        assert wait_until(lambda: server.num_clients == 0)


def test_a_stopped_server_is_a_deadline_error() -> None:
    import signal

    with PythonProcess(SERVE) as other:
        uri = other.receive()
        os.kill(other.process.pid, signal.SIGSTOP)
        assert wait_until(lambda: " T " in Path(f"/proc/{other.process.pid}/stat").read_text())
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            bs.connect(uri, timeout_s=0.5)
        assert time.monotonic() - began < 5


def test_a_client_beyond_the_limit_gets_an_error() -> None:
    with bs.serve({"t": example_table()}, options=ServerOptions(max_clients=2)) as server:
        datasets = [bs.connect(server.uri("t")) for _ in range(2)]
        with pytest.raises(ConnectionLostError, match="2 clients"):
            bs.connect(server.uri("t"))
        datasets[0].close()
        assert wait_until(lambda: server.num_clients == 1)
        assert bs.connect(server.uri("t")).read_all() == example_table()


def test_the_path_of_a_socket_need_not_be_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with bs.serve({"t": example_table()}, path) as server:
        assert bs.connect(server.uri("t")).read_all() == example_table()


def test_the_address_may_be_a_path(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    with bs.serve({"t": example_table()}, address=address) as server:
        assert run_python(READ, uri=server.uri("t")) == example_table().to_pydict()
    assert not Path(address).exists()


def test_a_reader_that_drops_each_batch_leases_one_at_a_time() -> None:
    batch = bs.record_batch({"a": [1, 2, 3], "s": ["x", "y", "z"]})
    options = ServerOptions(inline_bytes=0)
    with (
        bs.serve({"t": bs.Table.from_batches([batch] * 3000)}, options=options) as server,
        bs.connect(server.uri("t")) as data,
    ):
        assert sum(part.num_rows for part in data) == 9000
        assert count_leases(data) <= 1
        everything = data.read_all()
        assert everything.num_rows == 9000
        del everything
        gc.collect()
        assert count_leases(data) == 0


def test_a_slow_reader_of_bytes_receives_all_rows() -> None:
    batch = bs.record_batch({"a": np.arange(100_000)})
    with bs.serve({"t": bs.Table.from_batches([batch] * 30)}) as server, bs.connect(server.uri("t"), copy=True) as data:
        rows = 0
        for part in data:
            rows += part.num_rows
            time.sleep(0.01)
        assert rows == 3_000_000


def test_a_forked_child_does_not_hold_the_address() -> None:
    code = """
import os, time, warnings
import bowstring as bs
warnings.simplefilter("ignore")
server = bs.serve({"t": bs.table({"a": [1]})})
if not (pid := os.fork()):
    time.sleep(60)
    os._exit(0)
send((server.uri("t"), pid))
receive()
"""
    with PythonProcess(code) as other:
        uri, child = other.receive()
        assert bs.connect(uri).read_all().num_rows == 1
        try:
            other.kill()
            with pytest.raises(ConnectionLostError):
                bs.connect(uri, timeout_s=5)
        finally:
            os.kill(child, 9)


def test_batches_dropped_by_a_forked_child_stay_leased_to_its_parent(server: bs.sharing.Server) -> None:
    code = """
import gc, os, warnings
import bowstring as bs
warnings.simplefilter("ignore")
data = bs.connect(uri)
table = data.read_all()
if not (pid := os.fork()):
    before = table.num_rows
    del table
    gc.collect()
    again = data.read_all().num_rows
    data.close()
    os._exit(0 if (before, again) == (6, 6) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
send((code, sum(len(link._leased_memories) for link in data._connections), data.read_all().num_rows, table.num_rows))
"""
    assert run_python(code, uri=server.uri("t")) == (0, 2, 6, 6)


def test_a_process_that_ends_with_open_connections_prints_nothing(server: bs.sharing.Server) -> None:
    code = (
        "import sys, bowstring as bs; data = bs.connect(sys.argv[1]); all = data.read_all(); it = iter(data); next(it)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, server.uri("t")], capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stderr == ""
    assert wait_until(lambda: server.num_clients == 0)


def test_regions_of_unsealed_memory_are_served_as_files(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, example_table().schema) as writer:
        writer.write(example_table())
    with Region.from_file(path) as region, bs.serve({"t": region}) as server:
        path.write_bytes(b"short")
        with pytest.raises(bs.BowstringError, match=r"bytes|short"):
            bs.connect(server.uri("t")).read_all()


@pytest.mark.parametrize("copy", [False, True])
def test_a_large_table_is_served_from_the_regions_that_two_threads_wrote(
    monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    monkeypatch.setattr(stored_parts, "_PART_BYTES", 1 << 12)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    table = bs.Table.from_batches([bs.record_batch({"a": np.arange(i * 1000, (i + 1) * 1000)}) for i in range(4)])
    with bs.share(table) as handle, bs.serve({"table": table, "handle": handle}) as server:
        for name in server.names:
            with bs.connect(server.uri(name), copy=copy) as data:
                assert [batch.num_rows for batch in data] == [1000] * 4
                assert data.read_all() == data.read_all() == table


def test_regions_with_different_schemas_are_an_error() -> None:
    parts = [stored_parts.index_part(stored_parts.store_in_region(bs.table({name: [1]}))[0]) for name in "ab"]
    with bs.serve({}) as server, pytest.raises(InvalidDataError, match="different schemas"):
        server.add_parts("t", *parts)


def test_small_data_sets_are_sent_as_bytes_and_larger_ones_shared() -> None:
    small, large = bs.table({"a": np.arange(100)}), bs.table({"a": np.arange(10_000)})
    with bs.serve({"small": small, "large": large}) as server:
        with bs.connect(server.uri("small")) as data:
            table = data.read_all()
            assert (table, count_leases(data)) == (small, 0)
        with bs.connect(server.uri("large")) as data:
            table = data.read_all()
            assert (table, count_leases(data)) == (large, 1)
        with bs.connect([server.uri("small"), server.uri("large")], copy=True) as data:
            assert (data.read_all().num_rows, count_leases(data)) == (10_100, 0)


def test_a_small_data_set_is_sent_as_it_is_when_it_is_requested(tmp_path: Path) -> None:
    old, new = bs.table({"a": [1, 2, 3]}), bs.table({"a": [4, 5, 6]})
    for path, table in ((tmp_path / "old", old), (tmp_path / "new", new)):
        with bs.new_file(path, table.schema) as writer:
            writer.write(table)
    with (
        bs.serve({"file": tmp_path / "old", "memory": old}) as server,
        bs.connect(server.uri("file")) as file,
        bs.connect(server.uri("memory")) as memory,
    ):
        for data in (file, memory, file, memory):
            assert data.read_all() == old
        with open(tmp_path / "old", "r+b") as written:  # the same file: clients see its bytes as they are now
            written.write((tmp_path / "new").read_bytes())
        server.remove("memory")
        server.add("memory", new)
        for data in (file, memory):
            assert data.read_all() == new


def test_regions_stay_mapped_between_reads_until_their_data_set_is_removed(server: bs.sharing.Server) -> None:
    def received_regions() -> list[int]:
        (connection,) = data._connections
        memory: Any = connection.driver.session.memory
        connection.driver.session.step(time.monotonic())
        return list(memory)

    with bs.connect(server.uri("t")) as data:
        for _ in range(5):
            assert data.read_all() == example_table()
        assert received_regions() == [0]
        server.remove("t")
        gc.collect()
        assert wait_until(lambda: received_regions() == [])


def test_a_client_keeps_a_limited_number_of_regions() -> None:
    options = ServerOptions(inline_bytes=0, max_kept_regions=3)
    with bs.serve({}, options=options) as server:
        uris = [server.add(f"part {i}", bs.table({"a": [i]})) for i in range(10)]
        with bs.connect(uris) as data:
            for _ in range(3):
                assert data.read_all()["a"].to_pylist() == list(range(10))
            (connection,) = data._connections
            memory: Any = connection.driver.session.memory

            def has_kept_three_regions() -> bool:
                connection.driver.session.step(time.monotonic())
                return len(memory) == 3

            assert wait_until(has_kept_three_regions)


@pytest.mark.parametrize(
    "options",
    [ServerOptions(inline_bytes=0, max_leases=3), ServerOptions(inline_bytes=0, max_leased_bytes=3 * 8000)],
    ids=["addresses", "bytes"],
)
def test_a_stream_pauses_at_the_leases_of_its_client_and_continues_when_it_frees_some(options: ServerOptions) -> None:
    batch = bs.record_batch({"a": np.arange(1000)})
    with (
        bs.serve({"t": bs.Table.from_batches([batch] * 50)}, options=options) as server,
        bs.connect(server.uri("t")) as data,
    ):
        rows = 0
        for part in data:
            rows += part.num_rows
            (client,) = server._clients.accepted.active
            leases = client._connection.leases
            assert leases.outstanding <= 4
            assert leases.outstanding_bytes <= 4 * batch.nbytes
            del part
        assert rows == 50_000


def test_short_bodies_are_sent_as_bytes_and_others_as_addresses() -> None:
    lengths = [1016, 1024] * 8  # bodies of 8,128 and 8,192 bytes
    table = bs.Table.from_batches([bs.record_batch({"n": [index] * count}) for index, count in enumerate(lengths)])
    with bs.serve({"t": table}) as server, bs.connect(server.uri("t")) as data:
        batches = list(data)
        assert bs.Table.from_batches(batches) == table
        assert server.stats().leased_addresses == 8
        del batches
        assert wait_until(lambda: not server.stats().leased_addresses)
