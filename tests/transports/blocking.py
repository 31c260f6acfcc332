"""Channels and listeners with blocking calls: what only tests need, besides `bowstring.transports.blocking`."""

from __future__ import annotations

from collections import deque

from bowstring.dissociated.messages import OutgoingMessage
from bowstring.memory.closable import Closable
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    RECEIVE,
    Channel,
    Deadline,
    ExportedRegion,
    Listener,
    Transport,
    TransportOptions,
)
from bowstring.transports.blocking import BlockingChannel, wait_for_interests


def has_input(channel: BlockingChannel) -> bool:
    """Whether there is anything to receive: bytes, or the end of the connection."""
    return bool(channel._inbox) or channel._wait(RECEIVE, Deadline(0.0))


def send_message(channel: BlockingChannel, message: OutgoingMessage) -> None:
    """Send a message of a `ServerConnection` or `ClientStream`."""
    channel.send(message.parts, tag=message.tag)


def flush(channel: BlockingChannel) -> None:
    """Send queued messages."""
    with channel._lock(channel._send_lock, None, "flush") as deadline:
        channel._send_queued(deadline)


def retire(channel: BlockingChannel, exported_region: ExportedRegion) -> None:
    """Tell the peer that no later message refers to exported memory."""
    assert channel.exporter is not None
    channel.exporter.retire(exported_region)
    flush(channel)


class BlockingListener(Closable):
    """Accepts connections of a listener with blocking calls."""

    def __init__(self, transport: Transport, listener: Listener, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        self._transport = transport
        self._options = options
        self._accepted: deque[Channel] = deque()
        self.listener = listener

    @classmethod
    def listen(
        cls, transport: Transport, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS
    ) -> BlockingListener:
        """Listen at an address. Raises as `Transport.listen`."""
        return cls(transport, transport.listen(address, options), options)

    @property
    def address(self) -> str:
        """The address to dial."""
        return self.listener.address

    def accept(self, *, timeout_s: float | None = None) -> BlockingChannel:
        """Wait for the next connection. Raises `DeadlineError`, `ClosedError`, `ResourceError`."""
        deadline = self._options.start_deadline(timeout_s)
        while not self._accepted:
            self._accepted.extend(self.listener.accept())
            if not self._accepted and not wait_for_interests(self.listener.interests(), deadline.remaining_s()):
                raise deadline.deadline_error(f"{self._transport.scheme} {self.address!r}: waiting for a connection")
        return BlockingChannel(self._transport, self._accepted.popleft())

    def close(self) -> None:
        """Stop listening; accepted channels stay open. A blocked `accept` raises `ClosedError`. Idempotent."""
        self.listener.close()
        while self._accepted:
            self._accepted.popleft().close()
