"""One thread serves all clients: its work for one is limited in each turn, so that others do not wait for all of it.

The tests let several clients send while the thread is stopped, and examine the order of what it does then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.uri import parse_uri
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import FREE_DATA, WANT_DATA
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind
from bowstring.transports.registry import TRANSPORTS
from bowstring.transports.sockets.unix import UNIX
from tests.polling import wait_until
from tests.transports.observed_transport import ObservedTransport

LONG_BATCHES, WIDE_COLUMNS, CLIENTS = 2000, 2000, 60
MAX_MESSAGES, MAX_CONNECTIONS = 300, 40
"""More than two turns have, and less than is waiting."""
CONNECTION, MESSAGE = ObservedEventKind.CONNECTION, ObservedEventKind.MESSAGE


@pytest.fixture
def events() -> list[ObservedEvent]:
    """What happens on the server's connections, which are numbered in the order in which they were made."""
    return []


@pytest.fixture
def server(events: list[ObservedEvent], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setitem(TRANSPORTS, "unix", ObservedTransport(UNIX, events.append))
    batch = bs.record_batch({"a": [1]})
    long = bs.Table(batch.schema, [batch] * LONG_BATCHES)
    wide = bs.table({str(index): [index] for index in range(WIDE_COLUMNS)})
    options = ServerOptions(inline_bytes=0)
    with bs.serve({"small": batch, "long": long, "wide": wide}, options=options) as server:
        yield server


def connect(server: Server) -> BlockingChannel:
    return BlockingChannel.dial(UNIX, parse_uri(server.uri("small")).address)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop the server's thread in the block."""
    is_stopped, may_continue = threading.Event(), threading.Event()

    def stop() -> None:
        is_stopped.set()
        may_continue.wait(30)

    server._loop.call_soon_threadsafe(stop)
    assert is_stopped.wait(30)
    try:
        yield
    finally:
        may_continue.set()


def receive_addresses(client: BlockingChannel) -> np.ndarray:
    """Receive a stream; return the addresses in its bodies."""
    addresses = []
    while (message := client.receive()).tag is not None or message.data[0] != 0:
        if message.tag is not None:
            words = np.frombuffer(message.data, "<u8")
            addresses.append(words[2::2][words[3::2] > 0])
    return np.concatenate(addresses)


def count_before_request(events: list[ObservedEvent], is_counted: Callable[[ObservedEvent], bool]) -> int:
    """The number of events before the request of the first client."""
    requests = (
        position
        for position, event in enumerate(events)
        if event.connection == 0 and event.kind is MESSAGE and event.direction is EventDirection.RECEIVED
    )
    return sum(map(is_counted, events[: next(requests)]))


def test_a_request_does_not_wait_until_another_client_has_freed_all_addresses(
    server: Server, events: list[ObservedEvent]
) -> None:
    with connect(server) as other, connect(server) as client:
        client.send((b"wide",), tag=WANT_DATA)
        addresses = receive_addresses(client)
        assert len(addresses) == WIDE_COLUMNS
        events.clear()
        with stopped(server):
            for address in addresses:
                client.send((address.tobytes(),), tag=FREE_DATA)
            other.send((b"small",), tag=WANT_DATA)
        assert other.receive()
        assert count_before_request(events, lambda event: event.kind is MESSAGE) < MAX_MESSAGES
        assert wait_until(lambda: server.stats().freed_addresses == WIDE_COLUMNS)


def test_a_request_does_not_wait_until_another_client_is_sent_a_long_stream(
    server: Server, events: list[ObservedEvent]
) -> None:
    with connect(server) as other, connect(server) as client:
        assert wait_until(lambda: len(events) == 2)
        with stopped(server):
            client.send((b"long",), tag=WANT_DATA)
            other.send((b"small",), tag=WANT_DATA)
        assert other.receive()
        assert count_before_request(events, lambda event: event.kind is MESSAGE) < MAX_MESSAGES
        assert len(receive_addresses(client)) == LONG_BATCHES


def test_a_request_does_not_wait_until_all_others_are_accepted(server: Server, events: list[ObservedEvent]) -> None:
    with connect(server) as other, ExitStack() as stack:
        assert wait_until(lambda: len(events) == 1)
        with stopped(server):
            for _ in range(CLIENTS):
                stack.enter_context(connect(server)).send((b"small",), tag=WANT_DATA)
            other.send((b"small",), tag=WANT_DATA)
        assert other.receive()
        assert count_before_request(events, lambda event: event.kind is CONNECTION) < MAX_CONNECTIONS
        assert wait_until(lambda: server.stats().num_clients == CLIENTS + 1)
