"""Metadata from one server and bodies from another, in two processes («Data Stream Sequence»)."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import AccessDeniedError, ConnectionLostError, InvalidArgumentError, NotFoundError, ProtocolError
from bowstring.redaction import redact
from bowstring.sharing import ServerOptions
from bowstring.transports.tls import TlsOptions
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.sharing.python_process import PythonProcess
from tests.transports.certificates import Authority

SERVER = """
import bowstring as bs
from bowstring.dissociated.server import ConnectionRole
from bowstring.sharing import ServerOptions

cities = bs.array(["Oslo", None, "Lima"]).dictionary_encode()
batches = [bs.record_batch({"n": [i, None, i], "s": ["x" * i, "é", None], "c": cities}) for i in range(50)]
table = bs.Table.from_batches(batches)
options = ServerOptions(inline_bytes=0)
servers = [bs.serve({"t": table, name: table}, options=options, scheme=scheme) for scheme in ("unix", "tcp")]
send({(s.uri("t").split(":")[0], role.value): s.uri("t", role=role) for s in servers for role in ConnectionRole})
while (request := receive()) != "end":
    send([s.num_clients for s in servers])
"""


class RunningServer:
    """A process with a server for unix sockets and one for TCP."""

    def __init__(self, name: str) -> None:
        self.other = PythonProcess(SERVER, name=name)
        self.uris: dict[tuple[str, str], str] = self.other.receive()

    def num_clients(self) -> list[int]:
        self.other.send("clients")
        counts: list[int] = self.other.receive()
        return counts


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RunningServer, RunningServer]]:
    first, second = RunningServer("first"), RunningServer("second")
    with first.other, second.other:
        yield first, second


def expected() -> list[dict[str, object]]:
    return [{"n": i, "s": "x" * i, "c": "Oslo"} for i in range(50)]


def uri_of_two_servers(metadata: str, bodies: str) -> str:
    return f"{metadata}&bodies={quote(bodies, safe='')}"


def check_table(table: bs.Table) -> None:
    assert table.num_rows == 150
    assert [batch.slice(0, 1).to_pylist()[0] for batch in table.to_batches()] == expected()
    table.validate(full=True)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("schemes", [("tcp", "unix"), ("unix", "tcp"), ("unix", "unix"), ("tcp", "tcp")], ids="-".join)
def test_metadata_and_bodies_come_from_two_processes(
    servers: tuple[RunningServer, RunningServer], schemes: tuple[str, str], copy: bool
) -> None:
    first, second = servers
    metadata, bodies = first.uris[schemes[0], "metadata"], second.uris[schemes[1], "bodies"]
    with assert_descriptors_closed():
        with bs.connect(uri_of_two_servers(metadata, bodies), copy=copy) as data:
            for _ in range(2):  # the second time over the same connections
                check_table(data.read_all())
            assert sum(first.num_clients()) == sum(second.num_clients()) == 1
            table = data.read_all()
            (connection,) = data._connections
            is_shared = schemes[1] == "unix" and not copy
            assert bool(connection._leased_memories) is is_shared
            check_table(table)
        check_table(table)
        del table, data, connection
        gc.collect()


def test_one_server_may_send_both_over_two_connections(servers: tuple[RunningServer, RunningServer]) -> None:
    uris = servers[0].uris
    with bs.connect(uri_of_two_servers(uris["tcp", "metadata"], uris["unix", "bodies"])) as data:
        check_table(data.read_all())


def test_the_server_of_the_bodies_reports_its_own_errors(servers: tuple[RunningServer, RunningServer]) -> None:
    first, second = servers
    metadata = first.uris["unix", "metadata"]
    bodies = second.uris["unix", "bodies"].replace("ticket=t", "ticket=nothing")
    for uri in (metadata, re.sub("error_data=[0-9]*&", "", metadata)):
        with pytest.raises(NotFoundError, match="'nothing'"):
            bs.connect(uri_of_two_servers(uri, bodies)).read_all()
    bodies = second.uris["unix", "bodies"].replace("ticket=t", "ticket=second")
    with bs.connect(uri_of_two_servers(metadata, bodies)) as data:
        check_table(data.read_all())


def test_several_data_sets_of_two_servers_are_read_in_order(servers: tuple[RunningServer, RunningServer]) -> None:
    first, second = servers
    uri = uri_of_two_servers(first.uris["unix", "metadata"], second.uris["unix", "bodies"])
    with bs.connect([uri, first.uris["unix", "metadata and bodies"], uri]) as data:
        assert data.read_all().num_rows == 450


def test_a_uri_with_malformed_bodies_is_an_error(servers: tuple[RunningServer, RunningServer]) -> None:
    metadata = servers[0].uris["unix", "metadata"]
    with pytest.raises(ProtocolError, match="want_data is missing"):
        bs.connect(uri_of_two_servers(metadata, "unix:@x?ticket=t"))
    with pytest.raises(InvalidArgumentError, match="expected a ticket"):
        bs.connect(uri_of_two_servers(metadata, "unix:@x?want_data=1"))
    with pytest.raises(ConnectionLostError, match="nothing is listening"):
        bs.connect(uri_of_two_servers(metadata, "unix:@bowstring-nobody?want_data=1&ticket=t"))


def test_each_server_verifies_its_own_ticket_and_messages_hide_both() -> None:
    table = bs.table({"n": [1, 2, 3]})
    first, second = (bs.serve({"t": table}, options=ServerOptions(ticket_key=bytes([n]) * 32)) for n in (1, 2))
    with first, second:
        metadata, bodies = first.uri("t", role=ConnectionRole.METADATA), second.uri("t", role=ConnectionRole.BODIES)
        with bs.connect(uri_of_two_servers(metadata, bodies)) as data:
            assert data.read_all() == table
        with pytest.raises(AccessDeniedError):
            wrong = first.uri("t", role=ConnectionRole.BODIES).replace(first.address, second.address)
            bs.connect(uri_of_two_servers(metadata, wrong)).read_all()
        for encoded in (bodies, bodies.replace("~", "%7E")):
            text = redact(str(parse_uri(uri_of_two_servers(metadata, encoded))))
            assert not any(uri.rpartition("~")[2] in text for uri in (metadata, bodies))


@pytest.mark.parametrize("encrypted", [ConnectionRole.METADATA, ConnectionRole.BODIES], ids=lambda role: role.value)
def test_a_server_without_tls_next_to_one_with_tls_is_refused_by_name(
    authority: Authority, encrypted: ConnectionRole
) -> None:
    table = bs.table({"n": [1, 2, 3]})
    with (
        bs.serve({"t": table}, options=ServerOptions(tls=authority.server()), scheme="tcp+tls") as first,
        bs.serve({"t": table}, addresses={"tcp": None, "unix": None}) as second,
    ):
        (plain,) = {ConnectionRole.METADATA, ConnectionRole.BODIES} - {encrypted}
        tcp, unix = second.locations("t", role=plain).uris
        elsewhere = re.sub("scope=[0-9a-f]*&", "", tcp)

        def read(other: str, tls: TlsOptions) -> bs.Table:
            uris = {encrypted: first.uri("t", role=encrypted), plain: other}
            with bs.connect(
                uri_of_two_servers(uris[ConnectionRole.METADATA], uris[ConnectionRole.BODIES]), tls=tls
            ) as data:
                return data.read_all()

        for local in (tcp, unix):
            assert read(local, authority.client()) == table
        for other in (elsewhere, tcp.replace("scope=", "scope=0")):
            with pytest.raises(
                InvalidArgumentError, match=f"^tcp: the connection to the server of the {plain.value} is not enc"
            ):
                read(other, authority.client())
        assert read(elsewhere, replace(authority.client(), allow_unencrypted=True)) == table


@pytest.mark.parametrize("killed", [0, 1], ids=["metadata", "bodies"])
def test_a_killed_server_is_a_lost_connection_and_received_tables_stay_valid(killed: int) -> None:
    first, second = RunningServer("first"), RunningServer("second")
    with first.other, second.other:
        with bs.connect(uri_of_two_servers(first.uris["tcp", "metadata"], second.uris["unix", "bodies"])) as data:
            table = data.read_all()
            (first, second)[killed].other.kill()
            with pytest.raises(ConnectionLostError):
                data.read_all()
        check_table(table)
