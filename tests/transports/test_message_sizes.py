"""Messages of sizes around each limit and buffer, for every driver of a session and every transport.

The conformance suite has the same test for blocking channels; those of the host agent are in its own tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import AllMessagesReceived, StreamMessage
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import MissingExtraError, NotFoundError, UnmetRequirementError
from bowstring.ipc.stream import Decoder
from bowstring.sharing.server.clients import LIMITS as LIMITS_OF_CLIENTS
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import FREE_DATA, WANT_DATA, Ticket
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingSession, dial
from bowstring.transports.registry import find_transport
from bowstring.transports.session import Session, SessionFailed
from bowstring.transports.tls import TlsOptions
from tests.polling import wait_until
from tests.transports.certificates import Authority

LIMITS = (1 << 14, 1 << 15, 3 << 14, 1 << 16, 1 << 18, 1 << 20)
"""The lengths of TLS records and messages that are not offered first, buffers, and the credit in bytes."""
SIZES = [limit + step for limit in LIMITS for step in (-64, -24, -1, 0, 1, 24, 64)]
WAIT_S = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["unix", "tcp", "tcp+tls", "ucx", "fabric"])
def server(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Server]:
    """A server of batches whose bodies have these sizes: one by one, and all together."""
    tls = authority.server() if request.param == "tcp+tls" else None
    try:
        server = bs.serve({}, scheme=request.param, options=ServerOptions(tls=tls))
    except (MissingExtraError, UnmetRequirementError) as error:
        pytest.skip(str(error))
    with server:
        batches = [bs.record_batch({"byte": np.zeros(size, np.uint8)}) for size in SIZES]
        for size, batch in zip(SIZES, batches, strict=True):
            server.add(str(size), bs.Table(batch.schema, [batch]))
        server.add("all", bs.Table(batches[0].schema, batches))
        yield server


@pytest.fixture
def client_tls(server: Server, authority: Authority) -> TlsOptions | None:
    return authority.client() if server.options.tls is not None else None


@pytest.fixture
def session(server: Server, client_tls: TlsOptions | None) -> Iterator[Session]:
    uri = parse_uri(server.uri("all"))
    transport = find_transport(uri.scheme, uri)
    channel = dial(transport, uri.address, TransportOptions(timeout_s=WAIT_S, tls=client_tls))
    memory = transport.open_remote_memory(channel, uri.remote_handle)
    with Session({ConnectionRole.BOTH: channel}, memory, now=time.monotonic()) as session:
        yield session


def read_blocking(session: Session, tickets: list[bytes]) -> list[Any]:
    driver, events = BlockingSession(session), list[Any]()
    for ticket in tickets:
        core = create_core()
        driver.start_request(core, core.request(ticket))
        while not events or not isinstance(events[-1], AllMessagesReceived | SessionFailed):
            events.append(driver.next_event())
        events.pop()
    return events


def create_core() -> ClientStream:
    decoder = Decoder()
    return ClientStream(WANT_DATA, FREE_DATA, has_body=lambda header: decoder.has_body(bytes(header)), in_order=False)


@pytest.mark.parametrize("is_together", [True, False], ids=["together", "one by one"])
def test_bodies_of_all_sizes_arrive(session: Session, is_together: bool) -> None:
    names = ["all"] if is_together else [str(size) for size in SIZES]
    events = read_blocking(session, [Ticket((name,), is_packed=True).encode() for name in names])
    bodies = [
        event.body.length_bytes for event in events if isinstance(event, StreamMessage) and event.body is not None
    ]
    assert bodies == [-(-size // 64) * 64 for size in SIZES]


@pytest.mark.parametrize("limit", [1 << 14, 1 << 15, 3 << 14, 1 << 16])
def test_an_event_loop_answers_requests_of_all_sizes(server: Server, client_tls: TlsOptions | None, limit: int) -> None:
    for size_bytes in range(limit - 64, min(limit + 65, LIMITS_OF_CLIENTS.max_ticket_bytes + 1), 16):
        with pytest.raises(NotFoundError):
            bs.connect(server.uri("all"), ticket="x" * size_bytes, tls=client_tls)


@pytest.mark.thorough
def test_an_event_loop_receives_freed_addresses_of_all_sizes() -> None:
    limits = (1 << 11, 3 << 10, 1 << 12)  # of two addresses with 8 bytes each
    with bs.serve({}, options=ServerOptions(inline_bytes=0)) as server:
        for num_columns in [limit + step for limit in limits for step in (-3, -2, -1, 0, 1)]:
            uri = server.add(str(num_columns), bs.table({str(index): [index] for index in range(num_columns)}))
            with bs.connect(uri) as dataset:
                assert [batch.num_columns for batch in dataset] == [num_columns]
                assert wait_until(lambda: not server.stats().leased_addresses)
