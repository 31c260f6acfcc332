"""Flight as the control plane, with pyarrow's client and server in other processes."""

from __future__ import annotations

import pickle
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import bowstring as bs
from bowstring.errors import (
    AccessDeniedError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    MissingExtraError,
    NotFoundError,
)
from bowstring.sharing import DatasetLocations, Server
from bowstring.sharing.server.options import ServerOptions
from bowstring.transports.tls import TlsOptions
from bowstring_networks.flight.server import FlightServer
from networks.tests.ucx.ucp_processes import require_libucp
from tests.ipc.remote_stores import serve_files
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python
from tests.transports.certificates import Authority

SERVE_FLIGHT = """
import bowstring as bs
from bowstring_networks.flight.server import FlightServer
batch = bs.record_batch({"a": list(range(1000)), "s": ["text", None, "", "more"] * 250})
server = bs.serve({"t/1": bs.Table.from_batches([batch] * 3)}, addresses={"unix": None, "tcp": None})
flight = FlightServer(server)
send((flight.uri("t/1"), flight.location))
receive()
"""
READ_WITH_PLAIN_CLIENT = """
import pyarrow as pa, pyarrow.flight as flight
client = flight.FlightClient(location)
info, = client.list_flights()
same = client.get_flight_info(flight.FlightDescriptor.for_path("t/1"))
command = client.get_flight_info(flight.FlightDescriptor.for_command("t/1"))
assert command.descriptor == flight.FlightDescriptor.for_command("t/1")
assert client.get_schema(command.descriptor).schema == info.schema
endpoint, = info.endpoints
table = client.do_get(endpoint.ticket).read_all()
table.validate(full=True)
send((
    same.endpoints == info.endpoints == command.endpoints,
    [uri.uri.decode().partition(":")[0] for uri in endpoint.locations],
    endpoint.ticket.ticket, info.total_records, info.schema.names, client.get_schema(info.descriptor).schema.names,
    [len(chunk) for chunk in table["a"].chunks], table["a"].to_pylist()[-1], table["s"].to_pylist()[:4],
))
"""
SERVE_PLAIN_FLIGHT = """
import time, pyarrow as pa, pyarrow.flight as flight
batch = pa.record_batch({"a": list(range(1000))})
class Plain(flight.FlightServerBase):
    def get_flight_info(self, context, descriptor):
        name = descriptor.path[0].decode()
        if name == "missing": raise KeyError("no such flight")
        if name == "denied": raise flight.FlightUnauthorizedError("not you")
        if name == "silent": time.sleep(2)
        if name == "redirect":
            uris = [uri.decode() for uri in descriptor.path[2:]]
            flights[name] = [(bytes.fromhex(descriptor.path[1].decode()), uris)]
        endpoints = [flight.FlightEndpoint(*endpoint) for endpoint in flights[name]]
        return flight.FlightInfo(batch.schema, descriptor, endpoints, -1, -1)
    def do_get(self, context, ticket):
        if ticket.ticket == b"malformed":
            stream = pa.BufferOutputStream()
            strings = pa.record_batch({"a": ["abc"]})
            with pa.ipc.new_stream(stream, strings.schema) as writer: writer.write(strings)
            head, _, tail = stream.getvalue().to_pybytes().rpartition(bytes([0, 0, 0, 0, 3, 0, 0, 0]))  # offsets
            raw = head + bytes([0, 0, 0, 0, 3, 0, 0, 127]) + tail
            return flight.RecordBatchStream(pa.ipc.open_stream(raw))
        def batches():
            for n in range(3):
                yield batch
                if ticket.ticket == b"stalled": send("stalled"); time.sleep(600)
                if ticket.ticket == b"broken": raise flight.FlightInternalError("the disk is broken")
        return flight.GeneratorStream(batch.schema, batches())
plain = Plain("grpc://127.0.0.1:0")
send(plain.port)
receive()
"""
SERVE_LIKE_THE_REFERENCE = """
# As the published reference implementation: commands only; the servers of metadata and bodies are one endpoint.
import pyarrow as pa, pyarrow.flight as flight
import bowstring as bs
table = bs.Table.from_batches([bs.record_batch({"a": list(range(n, n + 20_000))}) for n in range(5)])
servers = [bs.serve({"train.parquet": table, "other": table}, scheme=scheme) for _ in range(num_servers)]
addresses = [server.uri("other").partition("?")[0] for server in servers]
locations = [f"{addresses[0]}?want_data=3", f"{addresses[-1]}?want_data=4"]
class Reference(flight.FlightServerBase):
    def get_flight_info(self, context, descriptor):
        if descriptor.command != b"train.parquet":
            raise pa.ArrowInvalid(f"could not find schema for {descriptor.command}")
        endpoint = flight.FlightEndpoint(descriptor.command, locations)
        return flight.FlightInfo(pa.schema(table.schema), descriptor, [endpoint], -1, -1)
reference = Reference("grpc://127.0.0.1:0")
send(reference.port)
receive()
"""
SERVE_LARGE_TABLE = """
import bowstring as bs, bowstring_networks.flight.server, numpy as np
bowstring_networks.flight.server._CLOSE_TIMEOUT_S = 0.3
table = bs.table({"a": np.zeros(1 << 21)})
server = bs.serve({"t": bs.Table.from_batches(table.to_batches() * 8)})
served = bowstring_networks.flight.server.FlightServer(server)
send(served.location)
receive()
"""
UNREACHABLE = "unix:@bowstring-nobody?want_data=1&free_data=2&ticket=t"
FLIGHTS: dict[str, list[tuple[bytes, list[str]]]] = {
    "plain": [(b"t", [])],
    "two-parts": [(b"t", []), (b"t", [])],
    "empty": [],
    "nobody": [(b"t", [UNREACHABLE, "tcp://127.0.0.1:1?want_data=1", "a:b", "unix:?want_data=x", "ucx:"])],
    "elsewhere": [(b"t", ["grpc://127.0.0.1:1"])],
    "many-locations": [(b"t", [UNREACHABLE] * 65)],
    "malformed": [(b"malformed", [])],
    "broken": [(b"broken", [])],
    "stalled": [(b"stalled", [])],
    "silent": [(b"t", [])],
}
TABLE = bs.table({"a": list(range(1000))})


@pytest.fixture(scope="module")
def ours() -> Iterator[tuple[str, str]]:
    """The URI of a data set of our server in another process, and the server's location."""
    with PythonProcess(SERVE_FLIGHT) as other:
        yield other.receive()


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    """The location of an ordinary Flight server in another process."""
    with PythonProcess(SERVE_PLAIN_FLIGHT, flights=FLIGHTS) as other:
        yield f"grpc://127.0.0.1:{other.receive()}"


@pytest.fixture
def flight_server() -> Iterator[FlightServer]:
    """A server in this process, whose locations are those of another host."""
    with bs.serve({"t": TABLE}) as server, FlightServer(server) as served:
        server._acceptors[0].listener.address_scope = "another host"
        yield served


def num_flight_threads() -> int:
    return sum(thread.name == "bowstring-flight" for thread in threading.enumerate())


def test_an_ordinary_flight_client_lists_describes_and_reads_the_data(ours: tuple[str, str]) -> None:
    is_same, schemes, ticket, num_rows, names, same_names, lengths, last, text = run_python(
        READ_WITH_PLAIN_CLIENT, location=ours[1]
    )
    assert is_same
    assert schemes == ["unix", "tcp", "arrow-flight-reuse-connection", "grpc"]
    assert ticket == b"t/1", "the body of <want_data>"
    assert num_rows == 3000
    assert names == same_names == ["a", "s"]
    assert (lengths, last, text) == ([1000] * 3, 999, ["text", None, "", "more"])


def test_our_client_follows_the_locations_to_shared_memory(ours: tuple[str, str]) -> None:
    uri, location = ours
    assert uri == f"{location}/t%2F1"
    for target, ticket in ((uri, None), (f"{location}?ticket=t%2F1", None), (location, "t/1")):
        with bs.connect(target, ticket) as dataset:
            assert str(dataset.location).startswith("unix:@")
            assert dataset.unusable_locations == {}
            assert dataset.read_all().num_rows == 3000
    with pytest.raises(NotFoundError, match="the server has no data set 'missing'"):
        bs.connect(f"{location}/missing")


def test_our_client_reads_by_doget_where_no_location_works(flight_server: FlightServer) -> None:
    with bs.connect(flight_server.uri("t")) as dataset:
        assert dataset.location == flight_server.location
        ((uri, reason),) = dataset.unusable_locations.items()
        assert uri.startswith("unix:@")
        assert "an address of another host" in reason
        assert repr(dataset).startswith("<bowstring.sharing.DatasetReader 1 part over grpc, not unix>")
        with pytest.raises(InvalidArgumentError, match="the rows of some parts are not known"):
            next(dataset.locate_batches())
        for _ in range(2):
            assert dataset.read_all() == TABLE
        with pickle.loads(pickle.dumps(dataset)) as copy:
            assert copy.read_all() == TABLE
    assert repr(dataset).startswith("<bowstring.sharing.DatasetReader closed>")
    with pytest.raises(ClosedError):
        dataset.read_all()
    assert wait_until(lambda: num_flight_threads() == 0)


@pytest.mark.parametrize(
    ("name", "num_rows"), [("plain", 3000), ("two-parts", 6000), ("elsewhere", 3000), ("empty", 0)]
)
def test_our_client_reads_from_an_ordinary_flight_server(foreign: str, name: str, num_rows: int) -> None:
    with bs.connect(f"{foreign}/{name}") as dataset:
        assert dataset.unusable_locations == {}
        table = dataset.read_all()
        assert (table.num_rows, table.schema.names) == (num_rows, ["a"])
        assert num_rows == 0 or table["a"].to_pylist()[-1] == 999


def test_locations_that_do_not_work_are_skipped_with_their_reasons(foreign: str) -> None:
    with bs.connect(f"{foreign}/nobody", timeout_s=20) as dataset:
        assert dataset.location == foreign
        assert dataset.read_all().num_rows == 3000
        assert set(dataset.unusable_locations) == set(FLIGHTS["nobody"][0][1])
        assert "nothing is listening there" in dataset.unusable_locations[UNREACHABLE]


def test_the_ticket_of_the_flight_info_is_requested_from_its_locations(foreign: str) -> None:
    with bs.serve({"t": TABLE, "other": bs.table({"b": [1]})}) as server:
        uri = quote(server.uri("other"), safe="")
        with bs.connect(f"{foreign}/redirect/{b't'.hex()}/{uri}") as dataset:
            assert str(dataset.location).startswith("unix:")
            assert dataset.read_all() == TABLE
        opaque = b"\xffopaque"
        with bs.connect(f"{foreign}/redirect/{opaque.hex()}/{uri}") as dataset:  # a ticket of the Flight server only
            (reason,) = dataset.unusable_locations.values()
            assert "no data set '\\udcffopaque'" in reason
            assert dataset.read_all().num_rows == 3000


@pytest.mark.parametrize(("scheme", "num_servers"), [("tcp", 1), ("tcp", 2), ("ucx", 1), ("ucx", 2)])
def test_the_servers_of_metadata_and_bodies_may_be_two_locations_of_one_endpoint(scheme: str, num_servers: int) -> None:
    if scheme == "ucx":
        require_libucp()
    with PythonProcess(SERVE_LIKE_THE_REFERENCE, scheme=scheme, num_servers=num_servers) as other:
        location = f"grpc://127.0.0.1:{other.receive()}"
        with bs.connect(f"{location}/train.parquet", timeout_s=20) as dataset:
            assert str(dataset.location).startswith(f"{scheme}://")
            assert dataset.unusable_locations == {}
            for data in (dataset, pickle.loads(pickle.dumps(dataset))):
                for _ in range(2):
                    batches = data.to_batches()
                    assert [batch["a"].to_numpy()[-1] for batch in batches] == [n + 19_999 for n in range(5)]
                data.close()
        with pytest.raises(InvalidDataError, match="could not find schema for"):
            bs.connect(f"{location}/missing")


@contextmanager
def listed_locations(locations: list[str], **options: Any) -> Iterator[str]:
    """Run a Flight server that lists these locations, and sends one row itself; return the URI of the data set."""
    batch = pa.record_batch({"a": [7]})

    class Listing(flight.FlightServerBase):  # type: ignore[misc]
        def get_flight_info(self, context: Any, descriptor: Any) -> Any:
            endpoint = flight.FlightEndpoint(b"t", [*locations, "arrow-flight-reuse-connection://?"])
            return flight.FlightInfo(batch.schema, descriptor, [endpoint], -1, -1)

        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(pa.Table.from_batches([batch]))

    scheme = "grpc+tls" if options else "grpc"
    with Listing(f"{scheme}://127.0.0.1:0", **options) as server:
        yield f"{scheme}://localhost:{server.port}/t"


@pytest.mark.parametrize("scheme", ["file:", "file://", "http", "memory", "simplecache::http"])
def test_files_and_urls_that_a_server_lists_are_read_only_by_an_option(scheme: str, tmp_path: Path) -> None:
    bs.write_table(bs.table({"a": [1, 2]}), tmp_path / "t.arrow")
    content = (tmp_path / "t.arrow").read_bytes()
    fsspec.filesystem("memory").pipe_file("/listed.arrow", content)
    with serve_files(listed=content) as site:
        url = {"memory": "memory://listed.arrow", "http": f"{site.url}/listed"}.get(
            scheme, f"{scheme}{tmp_path}/t.arrow"
        )
        url = f"simplecache::{site.url}/listed" if "::" in scheme else url
        with listed_locations([url]) as uri:
            with bs.connect(uri) as dataset:
                assert dataset.read_all()["a"].to_pylist() == [7]
                assert "only with allow_file_locations=True" in dataset.unusable_locations[url]
            assert site.requests == []
            with bs.connect(uri, allow_file_locations=True) as dataset:
                assert dataset.read_all()["a"].to_pylist() == [1, 2]
        with bs.connect(DatasetLocations((url,))) as dataset:  # passed by the caller
            assert dataset.read_all()["a"].to_pylist() == [1, 2]


def test_locations_that_came_over_tls_are_encrypted_or_of_this_host(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    certificate = authority.server("localhost")
    pair = (certificate.read_pem("certificate"), certificate.read_pem("key"))
    bs.write_table(bs.table({"a": [1, 2]}), tmp_path / "t.arrow")
    with (
        serve_files(listed=(tmp_path / "t.arrow").read_bytes()) as site,
        bs.serve({"t": TABLE}, scheme="tcp") as server,
    ):
        tcp = re.sub("scope=[0-9a-f]{32}", "scope=" + "0" * 32, server.uri("t"))
        unscoped = re.sub("&scope=[0-9a-f]{32}", "", server.uri("t"))
        pair_uri = server.uri("t") + "&bodies=" + quote(unscoped, safe="")
        plain = [
            f"{site.url}/listed",
            f"simplecache::{site.url}/listed",
            tcp,
            unscoped,
            pair_uri,
            "ucx://h:1?want_data=1",
        ]
        with listed_locations([*plain, "grpc://127.0.0.1:1"], tls_certificates=[pair]) as uri:
            with bs.connect(uri, tls=authority.client(), allow_file_locations=True) as dataset:
                assert str(dataset.location).startswith("grpc+tls:")
                assert dataset.unusable_locations.keys() == set(plain)
                assert dataset.read_all()["a"].to_pylist() == [7]
            assert site.requests == []
        with (
            listed_locations([f"file://{tmp_path}/t.arrow"], tls_certificates=[pair]) as uri,
            bs.connect(uri, tls=authority.client(), allow_file_locations=True) as dataset,
        ):
            assert dataset.read_all()["a"].to_pylist() == [1, 2]


def test_two_locations_with_different_tags_may_also_be_replicas(foreign: str) -> None:
    with bs.serve({"t": TABLE}) as server:
        replica = quote("unix:@bowstring-nobody?want_data=7&ticket=t", safe="")
        name = f"redirect/{b't'.hex()}/{replica}/{quote(server.uri('t'), safe='')}"
        with bs.connect(f"{foreign}/{name}") as dataset:
            assert dataset.location == server.uri("t")
            assert dataset.read_all() == TABLE
            assert len(dataset.unusable_locations) == 2


def test_a_server_with_a_key_describes_data_sets_only_for_signed_tickets() -> None:
    with Server(options=ServerOptions(ticket_key=bytes(range(32)))) as server, FlightServer(server) as served:
        server.add("t", TABLE)
        uri = served.uri("t", lifetime_s=1000)
        with bs.connect(uri) as dataset:
            assert str(dataset.location).startswith("unix:")
            assert dataset.read_all() == TABLE
        server._acceptors[0].listener.address_scope = "another host"
        with bs.connect(uri) as dataset:
            assert dataset.location == served.location
            assert dataset.read_all() == TABLE
        for ticket in ("t", "t~~abc"):
            with pytest.raises(AccessDeniedError) as caught:
                bs.connect(served.location, ticket)
            assert "abc" not in str(caught.value)
        with flight.FlightClient(served.location) as client:
            with pytest.raises(flight.FlightServerError, match="access denied"):
                client.do_get(flight.Ticket("t"))
            with pytest.raises(flight.FlightServerError, match="does not list its data sets"):
                list(client.list_flights())


def test_a_call_of_doget_is_not_recorded(flight_server: FlightServer, tmp_path: Path) -> None:
    with pytest.raises(ConnectionLostError, match="another host"):
        bs.connect(flight_server.uri("t"), record=tmp_path / "session")


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("missing", NotFoundError, "no such flight"),
        ("denied", AccessDeniedError, "not you"),
        ("many-locations", LimitError, "at most 64 locations"),
        ("malformed", InvalidDataError, "larger than values array"),
        ("broken", ConnectionLostError, "the disk is broken"),
    ],
)
def test_errors_of_a_flight_server_are_ours(foreign: str, name: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught, bs.connect(f"{foreign}/{name}") as dataset:
        dataset.read_all()
    assert "Traceback" not in str(caught.value)


def test_a_silent_server_is_an_error_after_the_timeout(foreign: str) -> None:
    with pytest.raises(DeadlineError):
        bs.connect(f"{foreign}/silent", timeout_s=0.1)
    with bs.connect(f"{foreign}/stalled", timeout_s=1) as dataset:
        batches = iter(dataset)
        next(batches)
        with pytest.raises(DeadlineError, match="sends nothing for 1 s"):
            next(batches)
    assert wait_until(lambda: num_flight_threads() == 0)


def test_a_server_that_is_killed_in_the_middle_is_a_lost_connection() -> None:
    with PythonProcess(SERVE_PLAIN_FLIGHT, flights=FLIGHTS) as other:
        location = f"grpc://127.0.0.1:{other.receive()}"
        with bs.connect(f"{location}/stalled") as dataset:
            batches = iter(dataset)
            next(batches)
            other.kill()
            with pytest.raises(ConnectionLostError):
                next(batches)
        with pytest.raises(ConnectionLostError):
            bs.connect(f"{location}/plain")
    assert wait_until(lambda: num_flight_threads() == 0)


def test_a_data_set_that_is_dropped_or_closed_ends_its_call(foreign: str) -> None:
    dropped = bs.connect(f"{foreign}/plain")
    closed = bs.connect(f"{foreign}/plain")
    batches = iter(closed)
    next(batches)
    assert num_flight_threads() > 0
    del dropped
    closed.close()
    with pytest.raises(ClosedError):
        next(batches)
    assert wait_until(lambda: num_flight_threads() == 0)


def test_dictionaries_large_batches_and_files_are_sent_by_doget(
    flight_server: FlightServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = flight_server._server
    batches = [pa.record_batch({"d": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["c", "d", "c"])]
    server.add("dictionaries", pa.Table.from_batches(batches))
    server.add("empty", bs.table({"a": bs.array([], bs.int64())}))
    with bs.new_file(tmp_path / "file.arrow", TABLE.schema) as writer:
        writer.write(TABLE)
    server.add("file", tmp_path / "file.arrow")
    monkeypatch.setattr("bowstring_networks.flight.server._MAX_MESSAGE_BYTES", 3000)
    client = flight.FlightClient(flight_server.location)
    assert client.do_get(flight.Ticket("dictionaries")).read_all()["d"].to_pylist() == ["a", "b", "c", "d", "c"]
    assert client.do_get(flight.Ticket("empty")).read_all().num_rows == 0
    chunks = client.do_get(flight.Ticket("t")).read_all()["a"].chunks
    assert [len(chunk) for chunk in chunks] == [334, 334, 332]
    for part in server.find_parts("file"):
        part.region.release_descriptor()
    assert client.do_get(flight.Ticket(b"\0t\0file\0")).read_all()["a"].to_pylist() == 2 * TABLE["a"].to_pylist()
    (tmp_path / "file.arrow").unlink()
    with pytest.raises(flight.FlightServerError, match=r"file\.arrow"):
        client.do_get(flight.Ticket("file"))
    with pytest.raises(flight.FlightServerError, match="their schemas differ"):
        client.do_get(flight.Ticket(b"\0t\0dictionaries\0"))
    client.close()


def test_an_error_in_the_middle_of_a_stream_names_the_column(flight_server: FlightServer, tmp_path: Path) -> None:
    table = bs.table({"a": [5, 6, 7]})
    with bs.new_file(tmp_path / "file.arrow", table.schema) as writer:
        writer.write(table)
        writer.write(table)
    content = (tmp_path / "file.arrow").read_bytes()
    node = struct.pack("<qq", 3, 0)
    assert content.count(node) == 2
    second = content.rindex(node)
    (tmp_path / "file.arrow").write_bytes(content[:second] + struct.pack("<qq", 4, 0) + content[second + 16 :])
    flight_server._server.add("malformed", tmp_path / "file.arrow")
    with flight.FlightClient(flight_server.location) as client:
        reader = client.do_get(flight.Ticket("malformed"))
        assert reader.read_chunk().data.num_rows == 3
        with pytest.raises(
            flight.FlightServerError, match="column 'a': expected 3 slots, the rows of the batch, found 4"
        ):
            reader.read_all()


def upload(client: Any, descriptor: Any) -> None:
    writer, _ = client.do_put(descriptor, pa.schema({"a": pa.int64()}))
    writer.close()


def exchange(client: Any, descriptor: Any) -> None:
    _, reader = client.do_exchange(descriptor)
    reader.read_chunk()


@pytest.mark.parametrize(
    "call",
    [
        lambda client, descriptor: client.get_flight_info(descriptor),
        lambda client, descriptor: client.get_schema(descriptor),
        lambda client, descriptor: list(client.list_flights(descriptor.path[0])),
        lambda client, descriptor: client.do_get(flight.Ticket(descriptor.path[0])).read_all(),
        lambda client, descriptor: list(client.do_action(flight.Action(descriptor.path[0].decode(), b""))),
        upload,
        exchange,
    ],
)
def test_an_error_of_any_call_is_a_text_without_a_traceback(
    call: Callable[[Any, Any], None], flight_server: FlightServer, tmp_path: Path
) -> None:
    table = bs.table({"a": ["abc"]})
    with bs.new_file(tmp_path / "file.arrow", table.schema) as writer:
        writer.write(table)
    head, _, tail = (tmp_path / "file.arrow").read_bytes().rpartition(struct.pack("<ii", 0, 3))  # offsets
    (tmp_path / "file.arrow").write_bytes(head + struct.pack("<ii", 0, 1 << 30) + tail)
    flight_server._server.add("malformed", tmp_path / "file.arrow")
    with flight.FlightClient(flight_server.location) as client:
        assert list(client.list_actions()) == []
        for name in ("malformed", "unknown"):
            try:
                call(client, flight.FlightDescriptor.for_path(name))
            except (flight.FlightError, pa.ArrowException) as error:
                text = str(error)
                assert not any(word in text for word in ("Traceback", ".py", "raise ")), text
            else:
                assert name == "malformed", "its metadata is valid"


def test_streams_and_tickets_are_limited() -> None:
    table = bs.table({"a": np.zeros(1 << 21)})  # more than a client's buffer
    batches = bs.Table.from_batches(table.to_batches() * 8)
    with Server(options=ServerOptions(max_clients=1)) as server, FlightServer(server) as served:
        server.add("t", batches)
        with flight.FlightClient(served.location) as client:
            first = client.do_get(flight.Ticket("t"))
            first.read_chunk()
            with pytest.raises(flight.FlightServerError, match="the server has 1 clients already, its limit"):
                client.do_get(flight.Ticket("t"))
            first.cancel()
            assert wait_until(lambda: num_rows_or_none(client) == 8 << 21)
            with pytest.raises(flight.FlightServerError, match="at most 65536 bytes"):
                client.do_get(flight.Ticket(b"x" * ((1 << 16) + 1)))
            with pytest.raises(flight.FlightServerError, match="the maximum is 256"):
                client.do_get(flight.Ticket(b"\0" + b"t\0" * 257))
            with pytest.raises(flight.FlightServerError, match="criteria are not supported"):
                list(client.list_flights(b"criteria"))
            for descriptor in (flight.FlightDescriptor.for_path("a", "b"), flight.FlightDescriptor.for_path()):
                with pytest.raises(flight.FlightServerError, match="expected a path with one name"):
                    client.get_flight_info(descriptor)


def test_a_client_that_stops_reading_loses_its_place_to_another() -> None:
    batches = bs.table({"a": np.zeros(1 << 21)}).to_batches() * 8  # more than a client's buffer
    options = ServerOptions(max_clients=1, stall_s=0.2)
    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    with Server(options=options) as server, FlightServer(server) as served:
        server.add("t", bs.Table.from_batches(batches))
        with (
            flight.FlightClient(served.location, generic_options=own_connection) as silent,
            flight.FlightClient(served.location, generic_options=own_connection) as client,
        ):
            first = silent.do_get(flight.Ticket("t"))
            first.read_chunk()
            assert wait_until(lambda: num_rows_or_none(client) == 8 << 21)
            with pytest.raises(flight.FlightError):
                first.read_all()


def num_rows_or_none(client: Any) -> int | None:
    try:
        num_rows: int = client.do_get(flight.Ticket("t")).read_all().num_rows
    except flight.FlightServerError:
        return None
    return num_rows


def test_a_client_that_does_not_read_does_not_stop_the_server_from_closing() -> None:
    with PythonProcess(SERVE_LARGE_TABLE) as other, flight.FlightClient(other.receive()) as client:
        reader = client.do_get(flight.Ticket("t"))
        reader.read_chunk()
        other.send(None)
        assert other.process.wait(60) == 0
        with pytest.raises(flight.FlightError):
            reader.read_all()


def test_tls_with_certificates_of_both_ends(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    with (
        Server(scheme="tcp") as server,
        FlightServer(server, tls=authority.server("localhost", checks_clients=True), address="localhost:0") as served,
    ):
        server.add("t", TABLE)
        uri = served.uri("t")
        assert uri.startswith("grpc+tls://localhost:")
        tls = authority.client("alice")
        with bs.connect(uri, tls=tls) as dataset:
            assert str(dataset.location).startswith("tcp://127.0.0.1:"), "not encrypted, but of this host"
        server._acceptors[0].listener.address_scope = None
        with bs.connect(uri, tls=tls) as dataset:
            assert dataset.location == served.location
            assert list(dataset.unusable_locations.values()) == [
                "tcp: a connection to another host that is not encrypted"
            ]
            assert dataset.read_all() == TABLE
        for other in (None, authority.client()):
            with pytest.raises(ConnectionLostError):
                bs.connect(uri, tls=other)
        with pytest.raises(InvalidArgumentError, match="grpc: the option tls is not supported: use grpc\\+tls"):
            bs.connect(uri.replace("grpc+tls", "grpc"), tls=tls)


def test_a_server_without_tls_listens_only_at_loopback_addresses(flight_server: FlightServer) -> None:
    server = flight_server._server
    with pytest.raises(InvalidArgumentError, match="not a loopback address: use tls there"):
        FlightServer(server, "0.0.0.0:0")
    with pytest.raises(InvalidArgumentError, match="can't listen there"):
        FlightServer(server, flight_server.location.removeprefix("grpc:"))
    with pytest.raises(InvalidArgumentError, match="a server needs the option certificate"):
        FlightServer(server, tls=TlsOptions())
    flight_server.close()
    flight_server.close()
    assert "closed" in repr(flight_server)


@pytest.mark.parametrize(
    "uri",
    [
        "grpc://127.0.0.1:1",
        "grpc://127.0.0.1:1/",
        "grpc://[::1/t",
        "grpc://h:1/t?x=1",
        "grpc://h:1/a//b",
        "grpc://h:1/%FF",
    ],
)
def test_a_malformed_uri_of_a_flight_server_is_rejected(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^URI 'grpc:"):
        bs.connect(uri)


def test_pyarrow_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
    with pytest.raises(MissingExtraError, match=r"bowstring-networks\[flight\]"):
        bs.connect("grpc://127.0.0.1:1/t")
    with Server() as server, pytest.raises(MissingExtraError, match=r"bowstring-networks\[flight\]"):
        FlightServer(server)


def test_a_process_ends_without_closing_the_server_and_the_data_set() -> None:
    code = SERVE_FLIGHT.replace("receive()", "dataset = bs.connect(flight.uri('t/1')); batch = next(iter(dataset))")
    code = code.replace(
        "send(",
        'server._acceptors[0].listener.address_scope = server._acceptors[1].listener.address_scope = "0"; send(',
    )
    with PythonProcess(code) as other:
        other.receive()
        assert other.process.wait(30) == 0
