"""Channels over UCX: plain messages are active messages, tagged ones are tagged («Requirements»).

A channel has a worker of its own, because libucp reports the tag of a tagged message, but not its sender. A plain
message is an active message with number 0 and no header, as the published reference implementation sends it. libucp
announces active messages in the order in which they were sent, so plain messages are received in that order: none is
taken while the bytes of an earlier one arrive. Plain and tagged messages overtake each other, and so do tagged ones.

Active message 1 is our own: the sender has ended, after this many plain and tagged messages (two 64-bit integers,
little-endian). Other implementations ignore it, and send none: from them, the end of the connection is what libucp
reports.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from bowstring.errors import BowstringError, ClosedError, LimitError, ProtocolError
from bowstring.transports.base import RECEIVE, ChannelTraits, Event, Interest, MessageReceived, TransportOptions
from bowstring_networks.message_channel import (
    MAX_SEND_WAIT_S,
    MessageChannel,
    MessageReceiver,
    MessageSender,
    SubmittedMessage,
)
from bowstring_networks.ucx.ucp import ActiveMessage, Request, TaggedMessage, UcpEndpoint, Worker

# The numbers of active messages, in docs/reference/transports.md.
PLAIN_ID, END_ID = 0, 1
ACTIVE_MESSAGE_IDS = (PLAIN_ID, END_ID)
_END = struct.Struct("<QQ")
_MAX_STARTED = 64
"""The number of messages that libucp sends at the same time."""

UcxMessage: TypeAlias = ActiveMessage | TaggedMessage


class _Sender(MessageSender):
    """Sends messages to an endpoint."""

    def __init__(self, endpoint: UcpEndpoint) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._requests: list[tuple[SubmittedMessage, Request]] = []
        self._counts = [0, 0]
        """The numbers of plain and tagged messages that were started."""

    @property
    def is_connected(self) -> bool:
        """As `MessageSender.is_connected`: libucp queues messages until it has connected."""
        return self._endpoint.handle != 0

    def progress(self) -> None:
        while True:
            while self.queue and len(self.started_messages) < _MAX_STARTED:
                self._start_message(self.queue.popleft())
            requests, self._requests = self._requests, []
            for message, request in requests:
                if not request.is_done:
                    self._requests.append((message, request))
                elif (error := request.error) is not None:
                    raise error
                else:
                    self.bytes_sent += message.length_bytes
                    self.started_messages.remove(message)
            # A message that libucp sends at once leaves space for the next.
            if not self.queue or len(self.started_messages) >= _MAX_STARTED:
                return

    def send_end(self) -> None:
        self._endpoint.send_active_message([_END.pack(*self._counts)], END_ID)

    def _start_message(self, message: SubmittedMessage) -> None:
        self._counts[message.tag is not None] += 1
        if message.tag is None:
            request = self._endpoint.send_active_message(message.parts, PLAIN_ID)
        else:
            request = self._endpoint.send_tagged(message.parts, message.tag)
        self.started_messages.add(message)
        self._requests.append((message, request))


class _IncomingMessage(NamedTuple):
    """A message whose bytes arrive in `destination`; complete if `request` is None."""

    tag: int | None
    destination: memoryview
    request: Request | None


class _Receiver(MessageReceiver[UcxMessage, _IncomingMessage]):
    """Receives the messages of a worker."""

    def __init__(self, name: str, options: TransportOptions, worker: Worker) -> None:
        super().__init__(name, options)
        self._worker = worker

    @property
    def _is_receiving_plain_message(self) -> bool:
        """Whether the bytes of a plain message have not arrived."""
        if any(arrival.tag is None for arrival in self.arrivals):
            return True
        return any(isinstance(message, ActiveMessage) for message in self.offers.values())

    def progress(self, events: list[Event]) -> None:
        while True:
            self._receive_available(events)
            # A plain message that has arrived allows the next to be received.
            if not self._report_arrivals(events) or not self._worker.active_messages:
                return

    def _receive_available(self, events: list[Event]) -> None:
        credit, active_messages = self.credit, self._worker.active_messages
        while active_messages and (
            active_messages[0].id == END_ID or (credit.is_available and not self._is_receiving_plain_message)
        ):
            active_message = active_messages.popleft()
            if active_message.id == END_ID:
                self._receive_end(active_message)
            else:
                self.offer_or_receive(active_message, events)
        while credit.is_available and (tagged_message := self._worker.probe_tagged_message()) is not None:
            self.offer_or_receive(tagged_message, events)

    def _report_arrivals(self, events: list[Event]) -> bool:
        """Report the messages that have arrived; return whether there were any."""
        num_events, incomplete = len(events), []
        for arrival in self.arrivals:
            if arrival.request is not None and not arrival.request.is_done:
                incomplete.append(arrival)
            elif arrival.request is not None and (error := arrival.request.error) is not None:
                raise error
            else:
                self._report_message(arrival.tag, arrival.destination, events)
        self.arrivals = incomplete
        return len(events) > num_events

    def offer_or_receive(self, message: UcxMessage, events: list[Event]) -> None:
        try:
            super().offer_or_receive(message, events)
        except LimitError:
            # libucp would keep the message, which is never received.
            message.discard()
            raise

    def receive_eagerly(self, message: UcxMessage, events: list[Event]) -> None:
        """As `MessageReceiver.receive_eagerly`; one that has arrived is not copied."""
        if isinstance(message, ActiveMessage) and message.payload is not None:
            self._report_message(None, memoryview(message.payload), events)
        else:
            super().receive_eagerly(message, events)

    def receive_into(self, message: UcxMessage, destination: memoryview) -> None:
        request = None
        if isinstance(message, ActiveMessage) and message.payload is not None:
            destination[:] = message.payload
        else:
            request = message.receive_into(destination)
        self.arrivals.append(_IncomingMessage(message.tag, destination, request))

    def _report_message(self, tag: int | None, content: memoryview, events: list[Event]) -> None:
        self.bytes_received += content.nbytes
        events.append(MessageReceived(tag, content))

    def _receive_end(self, message: ActiveMessage) -> None:
        if message.payload is None or len(message.payload) != _END.size:
            message.discard()
            raise ProtocolError(f"ucx: the end of the connection has {message.length_bytes} bytes, not {_END.size}")
        self.num_sent_by_peer = sum(_END.unpack(message.payload))


class UcxChannel(MessageChannel):
    """One end of a connection; created by `UcxTransport.dial` and `UcxListener.accept`. It owns the worker."""

    def __init__(
        self,
        endpoint: UcpEndpoint,
        options: TransportOptions,
        on_close: Callable[[], None],
        *,
        needs_all_lanes: bool = False,
    ) -> None:
        """Use an endpoint. With `needs_all_lanes`, the channel is connected when libucp has connected all its lanes."""
        self.endpoint = endpoint
        self._worker = endpoint.worker
        self._on_close = on_close
        # libucp connects the lane of shared memory over TCP's; a flush ends when all lanes are connected.
        self._lanes_flush = endpoint.flush() if needs_all_lanes else None
        name = f"ucx: {endpoint.name}"
        receiver = _Receiver(name, options, self._worker)
        super().__init__(name, options, ChannelTraits(is_ordered=False), _Sender(endpoint), receiver)
        # libucp connects only during progress, and a driver waits for the descriptor before it calls that.
        self._progress_until_armed(0, [])

    @property
    def is_connected(self) -> bool:  # type: ignore[override]
        flush = self._lanes_flush
        return flush is None or (flush.is_done and flush.error is None)

    @property
    def _progress_count(self) -> int:
        return self._worker.progress_count

    def _progress_library(self) -> None:
        self._worker.progress()

    def _arm(self) -> bool:
        return self._worker.arm()

    @property
    def _connection_error(self) -> BowstringError | None:
        flush_error = None if self._lanes_flush is None else self._lanes_flush.error
        return self.endpoint.error or flush_error

    @property
    def _has_no_more_input(self) -> bool:
        return not self._worker.active_messages and not self._receiver.is_receiving_message

    @property
    def _has_peer_ended(self) -> bool:
        return any(message.id == END_ID for message in self._worker.active_messages)

    def _connection_interests(self) -> list[Interest]:
        return [Interest(self._worker.event_descriptor, RECEIVE)]

    def _connection_descriptors(self) -> list[int]:
        return [self._worker.event_descriptor]

    def _send_end(self) -> None:
        super()._send_end()
        try:
            self._worker.progress()
        except BowstringError:
            pass  # the connection has ended already

    def _shut_down_connection(self) -> None:
        """As `MessageChannel._shut_down_connection`: nothing, because the end of the messages was sent."""

    def _close_connection(self) -> None:
        if self._is_inherited:
            return
        try:
            self._close_after_sends()
            self._worker.close()
        except ClosedError:
            pass
        self._on_close()

    def _close_after_sends(self) -> None:
        """Close the endpoint after its messages are sent, at most `MAX_SEND_WAIT_S` later."""
        # Started messages may wait for a peer that never receives them: closing the worker ends them.
        if self._sender.started_messages or self.endpoint.status < 0:
            return
        request = self.endpoint.close(is_forced=False)
        end = time.monotonic() + MAX_SEND_WAIT_S
        while request is not None and not request.is_done and (remaining_s := end - time.monotonic()) > 0:
            self._worker.progress()
            if not request.is_done:
                self._worker.wait(remaining_s)
