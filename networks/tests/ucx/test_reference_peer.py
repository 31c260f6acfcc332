"""Streams between Bowstring and a peer that behaves like the reference implementation, in both directions.

Metadata and bodies have a connection each, the role of which follows from the tag of the request.
"""

from __future__ import annotations

import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import DataRequested, StreamMessage
from bowstring.dissociated.messages import PackedBody
from bowstring.dissociated.server import ConnectionRole, ServerConnection
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import InvalidDataError, ProtocolError
from bowstring.transports.base import Channel, DirectionEnded, MessageReceived
from bowstring.transports.session import Session, SessionFailed
from bowstring_networks.ucx.transport import UcxListener, UcxTransport
from networks.tests.ucx.ucp_processes import TIMEOUT_S, require_libucp

pa = pytest.importorskip("pyarrow")
require_libucp()

from networks.tests.ucx import reference_peer  # noqa: E402 - needs pyarrow and libucp
from networks.tests.ucx.reference_peer import WANT_CTRL_TAG, WANT_DATA_TAG, body_length  # noqa: E402

PROGRAM = [sys.executable, "-m", reference_peer.__name__]
TICKETS = [("example", 300_000), ("tiny", 9)]
UCX = UcxTransport()
ROLES = (ConnectionRole.METADATA, ConnectionRole.BODIES)


@pytest.fixture(scope="module")
def uris() -> Iterator[list[str]]:
    """The URIs of the reference's server for metadata and bodies, in another process."""
    with subprocess.Popen([*PROGRAM, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield server.stdout.readline().decode().split()
        server.communicate(timeout=TIMEOUT_S)


@pytest.mark.thorough
@pytest.mark.parametrize(("ticket", "num_rows"), TICKETS)
def test_the_client_of_the_reference_reads_what_its_server_sends(uris: list[str], ticket: str, num_rows: int) -> None:
    assert fetch_with_reference_client(uris, ticket).equals(reference_peer.example_table(num_rows))


@pytest.mark.parametrize(("ticket", "num_rows"), TICKETS)
def test_a_session_reads_what_the_server_of_the_reference_sends(uris: list[str], ticket: str, num_rows: int) -> None:
    metadata_uri, body_uri = map(parse_uri, uris)
    channels = {
        ConnectionRole.METADATA: UCX.dial(metadata_uri.address),
        ConnectionRole.BODIES: UCX.dial(body_uri.address),
    }
    tags = {ConnectionRole.METADATA: metadata_uri.want_data, ConnectionRole.BODIES: body_uri.want_data}
    core = ClientStream(tags, has_body=lambda header: body_length(bytes(header)) > 0)
    with Session(channels, now=time.monotonic()) as session:
        session.start_request(core, {role: core.request(ticket.encode(), role) for role in tags}, time.monotonic())
        messages: list[tuple[bytes, bytes]] = []
        while not core.has_all_messages:
            for event in session.step(time.monotonic()):
                assert not isinstance(event, SessionFailed), event.error
                if isinstance(event, StreamMessage):
                    body = event.body
                    assert body is None or isinstance(body, PackedBody)
                    messages.append((bytes(event.header), b"" if body is None else b"".join(body.parts)))
            if not core.has_all_messages:
                descriptors = [interest.descriptor for interest in session.next_wait().interests]
                assert select.select(descriptors, [], [], TIMEOUT_S)[0]
    stream = b"".join(encapsulate(header) + body for header, body in messages)
    assert pa.ipc.open_stream(stream).read_all().equals(reference_peer.example_table(num_rows))


def test_connect_reads_from_the_server_of_the_reference(uris: list[str]) -> None:
    metadata, bodies = (f"{uri}&ticket=example" for uri in uris)
    with bs.connect(f"{metadata}&bodies={quote(bodies, safe='')}") as data:
        for _ in range(2):
            assert pa.table(data.read_all()).equals(reference_peer.example_table())


@pytest.mark.parametrize(
    ("ticket", "error_type", "message"),
    [
        (
            "reused-payload",
            InvalidDataError,
            "record batch 1: expected 2 nodes and 5 buffers for its schema, found 4 and 10",
        ),
        ("type-1", ProtocolError, "expected zeros in the reserved bits 32 to 55"),
    ],
)
def test_faults_of_the_server_of_the_reference_are_errors(
    uris: list[str], ticket: str, error_type: type[bs.BowstringError], message: str
) -> None:
    metadata, bodies = (f"{uri}&ticket={ticket}" for uri in uris)
    with pytest.raises(error_type, match=message), bs.connect(f"{metadata}&bodies={quote(bodies, safe='')}") as data:
        assert all(column.to_pylist() for batch in data for column in batch.columns)


@pytest.mark.thorough
def test_clients_of_the_reference_that_crash_leave_the_server_working() -> None:
    table = reference_peer.example_table(9)
    words = pa.table({"word": pa.array(["a", "b"]).dictionary_encode()})
    with bs.serve({"tiny": table, "words": words}, scheme="ucx") as server:
        for command, ticket, error in (
            ("fetch", "words", b"the reference can't read dictionaries"),
            ("fetch-and-crash", "tiny", b""),
        ):
            uris = [server.uri(ticket, role=role) for role in ROLES]
            client = subprocess.run([*PROGRAM, command, *uris, ticket], capture_output=True, timeout=60, check=False)
            assert client.returncode
            assert error in client.stderr
            assert fetch_with_reference_client([server.uri("tiny", role=role) for role in ROLES], "tiny").equals(table)


def test_the_client_of_the_reference_reads_from_serve() -> None:
    table = reference_peer.example_table()
    with bs.serve({"example": table}, scheme="ucx") as server:
        uris = [server.uri("example", role=role) for role in ROLES]
        assert fetch_with_reference_client(uris, "example").equals(table)


@pytest.mark.parametrize(("ticket", "num_rows"), TICKETS)
def test_the_client_of_the_reference_reads_what_we_send(ticket: str, num_rows: int) -> None:
    with UCX.listen() as endpoint:
        address = endpoint.address
        uris = [f"ucx:{address}?want_data={tag}" for tag in (WANT_CTRL_TAG, WANT_DATA_TAG)]
        command = [*PROGRAM, "fetch", *uris, ticket]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
            serve_reference_client(endpoint, {b"example": 300_000, b"tiny": 9}, client)
            stream, errors = client.communicate(timeout=TIMEOUT_S)
    assert not errors
    assert pa.ipc.open_stream(stream).read_all().equals(reference_peer.example_table(num_rows))


def serve_reference_client(endpoint: UcxListener, num_rows: dict[bytes, int], client: subprocess.Popen[bytes]) -> None:
    """Serve tables to a client with one connection for metadata and one for bodies, until its output begins."""
    assert client.stdout is not None
    output = client.stdout.fileno()
    channels: list[Channel] = []
    while True:
        channels += endpoint.accept()
        for channel in channels:
            for event in channel.progress():
                assert not isinstance(event, DirectionEnded), event.error
                if isinstance(event, MessageReceived):
                    submit_table(channel, event, num_rows)
        interests = [
            *endpoint.interests(),
            *(interest for channel in channels for interest in channel.next_wait().interests),
        ]
        ready, _, _ = select.select([output, *(interest.descriptor for interest in interests)], [], [], TIMEOUT_S)
        assert ready
        if output in ready:
            break
    for channel in channels:
        channel.close()


def submit_table(channel: Channel, request: MessageReceived, num_rows: dict[bytes, int]) -> None:
    """Submit the messages of a table that the role of a connection carries: it follows from the tag."""
    connection = ServerConnection({WANT_CTRL_TAG: ConnectionRole.METADATA, WANT_DATA_TAG: ConnectionRole.BODIES})
    (event,) = connection.receive(request.tag, request.data)
    assert isinstance(event, DataRequested)
    table = reference_peer.example_table(num_rows[event.ticket])
    for index, message in enumerate(reference_peer.messages_of(table)):
        body = PackedBody.from_parts(message.body) if index else None
        for outgoing in connection.send(message.metadata, body):
            channel.submit(outgoing.parts, outgoing.tag)
    for outgoing in connection.send_end():
        channel.submit(outgoing.parts, outgoing.tag)


def fetch_with_reference_client(uris: list[str], ticket: str) -> Any:
    """Read a table with the client of the reference, in another process."""
    stream = subprocess.run([*PROGRAM, "fetch", *uris, ticket], capture_output=True, timeout=60, check=True).stdout
    return pa.ipc.open_stream(stream).read_all()


def encapsulate(header: bytes) -> bytes:
    """Return a message's metadata as an Arrow stream has it."""
    padded = header + bytes(-len(header) % 8)
    return struct.pack("<Ii", 0xFFFF_FFFF, len(padded)) + padded
