"""A server's session in the test's process, for tests of a client's session and its drivers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import DataRequested
from bowstring.dissociated.messages import Body
from bowstring.dissociated.server import ConnectionRole, ServerConnection
from bowstring.memory.region import Region
from bowstring.transports.base import Channel, Transport, TransportOptions
from bowstring.transports.session import Session, SessionEvent, SessionOptions
from bowstring_testing.transport_conformance import connect_pair
from tests.polling import wait_until

WANT, FREE = 1, 2
OPTIONS = TransportOptions(timeout_s=10)


def client_core(**options: Any) -> ClientStream:
    return ClientStream(WANT, FREE, has_body=lambda header: bytes(header) == b"batch", **options)


class Served:
    """A server's session over the other end of a client's channel; `step` lets it continue."""

    def __init__(self, transport: Transport, role: ConnectionRole, **options: Any) -> None:
        own, self.other = connect_pair(transport, OPTIONS)
        self.client_channel: Channel = own.channel
        self.client_memory = own.memory
        self.keep_alive = own
        self.core = ServerConnection({WANT: role}, FREE)
        channel = self.other.channel
        self.exporter = channel.exporter
        self.session = Session(
            {ConnectionRole.BOTH: channel},
            now=0.0,
            core=self.core,
            options=SessionOptions(**options) if options else None,
        )
        self.events: list[SessionEvent] = []

    def step(self) -> None:
        self.events += self.session.step(time.monotonic())

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Let the server continue until the condition holds."""

        def is_done() -> bool:
            self.step()
            return condition()

        assert wait_until(is_done)

    def stream(self, region: Region | None, bodies: list[Body]) -> None:
        """Send a schema, the region, and batches with these bodies."""
        self.step_until(lambda: DataRequested(b"ticket") in self.events)

        def messages() -> Iterator[Any]:
            if region is not None:
                assert self.exporter is not None
                self.exporter.export(region)
            yield self.core.send(b"schema")
            for body in bodies:
                yield self.core.send(b"batch", body)
            yield self.core.send_end()

        self.session.start_stream(messages(), time.monotonic())
        self.step()


@contextmanager
def served(transport: Transport, role: ConnectionRole = ConnectionRole.BOTH, **options: Any) -> Iterator[Served]:
    server = Served(transport, role, **options)
    try:
        yield server
    finally:
        server.session.close()
        server.keep_alive.close()
        server.other.close()
