"""Tickets of any bytes, for the servers of other implementations, whose URIs have no parameters of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, NotFoundError
from tests.sharing.python_process import PythonProcess

TICKET = bytes(range(256)) * 2 + b"\0packed\0"
COLUMNS: dict[str, list[Any]] = {"n": [1, None, 3], "s": ["one", "two", None]}

FOREIGN_SERVER = """
import bowstring as bs
from bowstring.dissociated.events import StreamComplete
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.messages import PackedBody
from bowstring.errors import ConnectionLostError
from bowstring.sharing.stored_parts import index_part, store_in_region
from bowstring.transports.sockets.unix import UNIX
from tests.transports.blocking import BlockingListener, send_message

listener = BlockingListener.listen(UNIX)
send(listener.address)
table = bs.Table.from_batches([bs.record_batch(columns)] * 3)
with listener.accept(timeout_s=60) as end, store_in_region(table)[0] as region:
    dataset = index_part(region)
    server = ServerConnection(41, 42 if has_addresses else None)
    (request,) = server.receive(*end.receive())
    exported = end.export(region)
    messages = server.send(dataset.schema)
    for message in dataset.messages:
        body = PackedBody.from_parts(region.view(message.body_offset, message.body_bytes))
        messages += server.send(message.metadata, message.to_address_body(exported.address) if has_addresses else body)
    for message in messages + server.send_end():
        send_message(end, message)
    events = []
    while server.leases:
        events += server.receive(*end.receive(timeout_s=60))
    send((request.ticket, [type(event).__name__ for event in events]))
    receive()
"""


@pytest.fixture(params=[True, False], ids=["addresses", "bytes"])
def foreign_server(request: pytest.FixtureRequest) -> Iterator[tuple[PythonProcess, str]]:
    """A server in another process, and the URI of its stream; without `free_data` it sends bodies as bytes."""
    with PythonProcess(FOREIGN_SERVER, has_addresses=request.param, columns=COLUMNS) as server:
        free_data = "&free_data=42" if request.param else ""
        yield server, f"unix:{server.receive()}?want_data=41{free_data}"


@pytest.mark.parametrize("is_in_uri", [True, False])
def test_a_ticket_of_any_bytes_arrives_unchanged(foreign_server: tuple[PythonProcess, str], is_in_uri: bool) -> None:
    server, uri = foreign_server
    if is_in_uri:
        data = bs.connect(f"{uri}&ticket={quote_from_bytes(TICKET)}")
    else:
        data = bs.connect(uri, ticket=TICKET)
    with data:
        assert data.read_all().to_pydict() == {name: values * 3 for name, values in COLUMNS.items()}
        assert server.receive()[0] == TICKET
    server.send("end")


def test_a_copy_frees_the_memory_of_any_server_at_once(foreign_server: tuple[PythonProcess, str]) -> None:
    server, uri = foreign_server
    with bs.connect(uri, ticket=TICKET, copy=True) as data:
        table = data.read_all()
        ticket, events = server.receive()
        assert ticket == TICKET
        assert not events or events[-1] == "StreamComplete"
        assert [len(connection._leased_memories) for connection in data._connections] == [0]
    server.send("end")
    assert table.to_pydict() == {name: values * 3 for name, values in COLUMNS.items()}


@pytest.mark.parametrize(
    "ticket", [b"\xff", b"", b"\0", b"a\0b", b"\0\xff\0a\0", b"\0packed", b"\xff\0packed", bytes(range(256))]
)
def test_bytes_that_are_not_the_name_of_a_data_set_are_not_found(ticket: bytes) -> None:
    with bs.serve({"t": bs.table(COLUMNS), "\\xff": bs.table(COLUMNS)}) as server:
        with pytest.raises(NotFoundError, match="the server has no data set"):
            bs.connect(server.uri("t"), ticket=ticket)
        with bs.connect([server.uri("t")] * 2, ticket=b"t") as data:
            assert data.read_all().num_rows == 6
        with pytest.raises(InvalidArgumentError, match="expected bytes or text"):
            bs.connect(server.uri("t"), ticket="")
