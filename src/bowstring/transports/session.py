"""A session: one side of the protocol over its channels and its peer's memory.

A `Session` does what all transports and drivers need: it passes messages between channels and a
`ClientStream` or `ServerConnection`, checks lengths before memory is allocated and addresses before they are read,
limits queued bytes and leases, and measures deadlines from the last progress. It does not wait: a driver calls `step`
as `next_wait` says, when the time of `next_deadline` has passed, and after `wake`.

Metadata and bodies may use one channel (`ConnectionRole.BOTH`) or two, from one server or two, in any order of arrival.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import ClientEvent, ServerEvent
from bowstring.dissociated.leases import LeaseTable
from bowstring.dissociated.messages import AddressBody, OutgoingMessage
from bowstring.dissociated.server import ConnectionRole
from bowstring.errors import BowstringError, ConnectionLostError, DeadlineError, ProtocolError
from bowstring.memory.closable import Closable
from bowstring.transports.address_bodies import AddressBodyReader, Lease, ReadEvent
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    RECEIVE,
    SEND,
    Channel,
    DirectionEnded,
    Interest,
    MessageOffered,
    MessageReceived,
    RemoteMemory,
    RemoteMemoryUpdated,
    Wait,
    strip_traceback,
)
from bowstring.transports.observer import ConnectionObserver, EventDirection, ObservedEventKind
from bowstring.transports.total_limits import OutstandingAmounts, TotalLimits

# Globals, as in bowstring.dissociated.client
_METADATA, _BODIES, _METADATA_AND_BODIES = ConnectionRole.METADATA, ConnectionRole.BODIES, ConnectionRole.BOTH
_FIRST_ROUND_ELEMENTS = 1
"""The number of elements of a stream that are sent first, so that the peer reads them while the next are encoded: the
schema and the memory of the first batches. Each round sends twice as many as the one before.
"""
_ELEMENTS_PER_STEP, _BYTES_PER_STEP = 64, 1 << 22
"""The elements of a stream that a step sends: some milliseconds of work, so that the driver can serve other sessions in
between."""
_MAX_COALESCED_ADDRESSES = 1 << 12
"""The number of addresses from which on a message frees no further body."""


class ProtocolCore(Protocol):
    """The methods of a `ClientStream` or `ServerConnection` that a session uses."""

    leases: LeaseTable

    @property
    def expects_input(self) -> bool:
        """Whether the peer has to send something."""

    @property
    def has_unpaired_messages(self) -> bool:
        """Whether received messages wait for their counterpart or for an earlier message."""

    def check_tag_and_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise an error for a message that must not be received."""

    def receive(self, tag: int | None, body: Any) -> Sequence[ClientEvent | ServerEvent]:
        """Process a message."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Deadlines and limits of one session."""

    input_timeout_s: float = math.inf
    """The time without progress in which the peer has to send the messages that the protocol expects."""
    stall_s: float = math.inf
    """The time without progress in the middle of a message, in either direction."""
    max_queued_bytes: int = 1 << 18
    """The bytes that are submitted before the transport accepts them; a longer message is submitted alone."""
    max_leases: int = 1 << 62
    """The leased addresses at which a stream pauses until the peer frees some."""
    max_leased_bytes: int = 1 << 62
    """The bytes at leased addresses at which a stream pauses."""
    total_limits: TotalLimits | None = None
    """The limits of several sessions together, at which a stream pauses."""
    copies_memory: bool = False
    """Whether bodies of addresses are copied, and freed at once."""


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session has ended: the last event. After a `DeadlineError`, it may be continued."""

    error: BowstringError


RequestMessages: TypeAlias = OutgoingMessage | Mapping[ConnectionRole, OutgoingMessage]
"""The <want_data> message for all channels, or for each."""

SessionEvent: TypeAlias = ReadEvent | SessionFailed


class Session(Closable):
    """One side of the protocol over one or two channels; `wake` is set by the driver.

    One thread at a time may call its methods, except `release_lease`, which any thread may call at any time, also in a
    finalizer.
    """

    def __init__(
        self,
        channels: Mapping[ConnectionRole, Channel],
        memory: RemoteMemory | None = None,
        *,
        now: float,
        core: ProtocolCore | None = None,
        options: SessionOptions | None = None,
        observers: Mapping[ConnectionRole, ConnectionObserver] | None = None,
    ) -> None:
        self.channels = dict(channels)
        self.memory = memory
        self.core = core
        self.options = options or SessionOptions()
        self._observers = observers or {}
        """The observer of the channels' messages, if any."""
        self.wake: Callable[[], None] = _ignore_wake
        self.num_submitted = 0
        """The number of messages that were submitted, other than requests."""
        # The server's stream, which may be infinite or larger than memory: elements are taken from it only when
        # `_can_submit` allows one more.
        self._stream: Iterator[Sequence[OutgoingMessage] | None] | None = None
        self._is_draining = False
        self._round_elements = 0
        # Appended to by any thread, also by a finalizer in the middle of `step`. No lock: the append is atomic, and a
        # finalizer that waited for the lock of the thread it interrupts would never return.
        self._released_leases: deque[Lease] = deque()
        self._retirements: deque[Any] = deque()
        self._bodies = AddressBodyReader(memory, self.options.copies_memory, self._released_leases)
        self._bytes_received = self._bytes_sent = 0
        self._received_at = self._sent_at = now
        self._is_failed = False
        self._lost_channels: dict[ConnectionRole, BowstringError] = {}
        """The channels from which nothing more can be received, and why."""

    @property
    def is_streaming(self) -> bool:
        """Whether a stream is being sent."""
        return self._stream is not None

    @property
    def is_sending(self) -> bool:
        """Whether submitted messages have not been sent."""
        return True in [channel.is_sending for channel in self.channels.values()]

    @property
    def is_failed(self) -> bool:
        """Whether the session has ended; not after a `DeadlineError`."""
        return self._is_failed

    @property
    def has_leases_to_free(self) -> bool:
        """Whether leases were released that `step` has not freed."""
        return bool(self._released_leases) and not self._is_failed

    def start_request(self, core: ProtocolCore, request: RequestMessages, now: float) -> None:
        """Begin a stream as a client: `core` receives from now on, and every channel sends its <want_data> message."""
        # The leases of an earlier stream stay with its own core (`Lease.core`): the caller may still use that memory.
        self.core = core
        self._received_at = self._sent_at = now
        for role in self.channels:
            self._submit_to(role, request if isinstance(request, OutgoingMessage) else request[role])

    def start_stream(self, messages: Iterator[Sequence[OutgoingMessage] | None], now: float) -> None:
        """Send these messages as the channels take them; None waits until all before it are sent.

        The messages of one element, such as the metadata and body of a batch, are never held apart by a limit.
        """
        self._stream = messages
        self._round_elements = _FIRST_ROUND_ELEMENTS
        self._sent_at = now

    def send_refusal(self, message: OutgoingMessage) -> None:
        """Send this message, and no more of the stream. The session can still send after it failed to receive."""
        self._stream = None
        self._is_failed = False
        self.submit((message,))

    def submit(self, messages: Sequence[OutgoingMessage]) -> None:
        """Queue messages: tagged ones on the channel for bodies, plain ones on that for metadata."""
        self.num_submitted += len(messages)
        for message in messages:
            role = _METADATA if message.tag is None else _BODIES
            self._submit_to(role if role in self.channels else _METADATA_AND_BODIES, message)

    def _submit_to(self, role: ConnectionRole, message: OutgoingMessage) -> None:
        if role in self._observers:
            self._observers[role].report_submission(message.parts, message.tag)
        self.channels[role].submit(message.parts, message.tag)

    def release_lease(self, lease: Lease) -> None:
        """Free the addresses of a lease at the next `step`, and wake the driver. Thread-safe."""
        # Its addresses are freed although none is leased: a server of another implementation may wait for them.
        self._released_leases.append(lease)
        self.wake()

    def channel_for(self, role: ConnectionRole) -> Channel:
        """Return the channel for the messages of a role."""
        return self.channels[role if role in self.channels else _METADATA_AND_BODIES]

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        """Return what to wait for before the next `step` for these directions."""
        interests: list[Interest] = []
        timeout_s = math.inf
        for channel in self.channels.values():
            channel_wait = channel.next_wait(directions)
            interests += channel_wait.interests
            timeout_s = min(timeout_s, channel_wait.timeout_s)
        can_send = directions & SEND and (self.has_leases_to_free or self._can_submit())
        can_receive = directions & RECEIVE and self._bodies.can_start_copy
        return Wait(interests, 0.0 if can_send or can_receive else timeout_s)

    def next_deadline(self) -> float:
        """The time at which `step` fails unless there is progress before; `math.inf` for never."""
        options, deadline = self.options, math.inf
        if self.core is not None and self.core.expects_input:
            deadline = self._received_at + options.input_timeout_s
        for channel in self.channels.values():
            if channel.is_receiving_message:
                deadline = min(deadline, self._received_at + options.stall_s)
            progress_at = self._sent_at if channel.is_sending else max(self._sent_at, channel.unacknowledged_since)
            deadline = min(deadline, progress_at + options.stall_s)
        return deadline

    def restart_deadlines(self, now: float) -> None:
        """Count deadlines from now on, because the driver did not receive for some time."""
        self._received_at = self._sent_at = now

    def step(self, now: float, directions: int = BOTH_DIRECTIONS) -> list[SessionEvent]:
        """Receive and send without waiting. Return what happened, in order; `SessionFailed` is the last event.

        A step that only receives does not check deadlines: its caller processes the events, then sends.
        """
        events: list[SessionEvent] = []
        if self._is_failed:
            return events
        try:
            if directions & RECEIVE:
                if not self._bodies.can_start_copy:  # else the caller processes these bodies before more are received
                    for role, channel in self.channels.items():
                        self._receive_events(role, channel, events)
                if self._bodies.has_undelivered_events:
                    events += self._bodies.advance(bool(events))
                    self._apply_retirements()
                if self._lost_channels and not self._bodies.can_start_copy:
                    self._check_lost()
            if directions & SEND and (self._released_leases or self._stream is not None or self.is_sending):
                self._submit_and_send()
        except BowstringError as error:
            self._is_failed = True
            events.append(SessionFailed(strip_traceback(error)))
        has_progress = self._record_progress(now)
        if not directions & SEND:
            return events
        # Even after a failure, so that others can use the limits that this session no longer needs.
        if self.options.total_limits is not None:
            wake = None if self._stream is None else self.wake
            self.options.total_limits.update_and_wake_next(self, self._count_outstanding(), wake)
        if self._is_failed:
            return events
        # A driver may have been late: what this step received or sent counts before the deadline does.
        if not has_progress and not events and now >= self.next_deadline():
            channels = list(self.channels.values())
            channel = next((channel for channel in channels if channel.is_sending), channels[0])
            events.append(SessionFailed(self._deadline_error(channel.wait_description)))
        return events

    def _record_progress(self, now: float) -> bool:
        """Restart the deadlines if bytes were received or sent since the last step; return whether there were any."""
        bytes_received = bytes_sent = 0
        for channel in self.channels.values():
            bytes_received += channel.bytes_received
            bytes_sent += channel.bytes_sent
        if bytes_received == self._bytes_received and bytes_sent == self._bytes_sent:
            return False
        if bytes_received != self._bytes_received:
            self._bytes_received, self._received_at = bytes_received, now
        if bytes_sent != self._bytes_sent:
            self._bytes_sent, self._sent_at = bytes_sent, now
        return True

    def close(self) -> None:
        """Close the channels and the memory, which ends all leases. Views of the memory stay valid. Idempotent."""
        self._is_failed = True
        self._stream = None
        self._released_leases.clear()
        for role, channel in self.channels.items():
            if not channel.is_closed and role in self._observers:
                self._observers[role].notify(EventDirection.SENT, ObservedEventKind.CLOSE)
            channel.close()
        if self.options.total_limits is not None:
            self.options.total_limits.update_and_wake_next(self, OutstandingAmounts(), None)
        if self.memory is not None:
            self.memory.close()

    def _receive_events(self, role: ConnectionRole, channel: Channel, events: list[SessionEvent]) -> None:
        channel_events = channel.progress(RECEIVE)
        num_messages = nbytes = 0
        observer = self._observers.get(role)
        for event in channel_events:
            core = self.core
            if observer is not None:
                observer.report_event(event)
            if isinstance(event, MessageReceived):
                num_messages += 1
                nbytes += channel.options.credit_bytes_of(len(event.data))
                if core is None:
                    raise ConnectionLostError(f"the server sent a message of {len(event.data)} bytes without a request")
                # A core raises at the first violation, so no message after it is processed; the events before it are
                # still delivered.
                for protocol_event in core.receive(event.tag, event.data):
                    event_with_body = self._bodies.read(protocol_event, core)
                    if event_with_body is not None:
                        events.append(event_with_body)
                if self._retirements:
                    self._apply_retirements()
            elif isinstance(event, MessageOffered):
                if core is None:
                    length = event.length_bytes
                    raise ConnectionLostError(f"the server sent a message of {length} bytes without a request")
                # Before `accept_offered_message` allocates: the peer chose the length.
                core.check_tag_and_length(event.tag, event.length_bytes)
                channel.accept_offered_message(event.token)
                if not events:  # else the caller processes these events before more is received
                    channel_events.extend(channel.progress(RECEIVE))
            elif isinstance(event, RemoteMemoryUpdated):
                # An export is applied at once, even before retirements that wait: indices are not used again, and
                # addresses are needed as soon as a body has them.
                if self.memory is None:
                    raise ProtocolError("the peer exported memory, which this end can't read")
                if event.is_retirement and self._may_refer_to_retired_memory:
                    self._retirements.append(event.update)
                else:
                    self.memory.apply_update(event.update)
            elif isinstance(event, DirectionEnded):
                self._end_direction(role, event)
        # Credit is returned when the core has the messages, not when the caller takes the events: the drivers do not
        # step while events wait, which is what slows a peer down.
        if num_messages:
            channel.grant_credit(num_messages, nbytes)

    @property
    def _may_refer_to_retired_memory(self) -> bool:
        """Whether a body that is to be copied, or whose metadata is late, may refer to memory that was retired."""
        return self._bodies.has_waiting_copies or (self.core is not None and self.core.has_unpaired_messages)

    def _apply_retirements(self) -> None:
        """Retire memory to which no waiting body refers."""
        while self._retirements and not self._may_refer_to_retired_memory:
            assert self.memory is not None
            self.memory.apply_update(self._retirements.popleft())

    def _end_direction(self, role: ConnectionRole, event: DirectionEnded) -> None:
        """Send no more, because a direction ended. A peer may have sent all before it ended: that arrives first."""
        if event.directions & RECEIVE:
            self._lost_channels[role] = event.error
        else:
            self._stream = None

    def _check_lost(self) -> None:
        """Raise the error of a lost channel, unless the rest of the stream arrives over the other one."""
        for role, error in self._lost_channels.items():
            core = self.core
            # With two servers, the server of the metadata may disconnect while the other sends bodies.
            if not isinstance(core, ClientStream) or not core.expects_input or core.expects_input_for(role):
                raise error

    def _submit_and_send(self) -> None:
        """Submit released addresses and a part of the stream, and send as long as the transport accepts them."""
        # First, so that the server can reuse the memory, and leases that pause its stream end.
        while self._released_leases:
            core, bodies = self._pop_bodies_to_free()
            message = core.free(*bodies)
            if message is not None:
                self.submit((message,))
        num_elements = sent_bytes = 0
        while num_elements < _ELEMENTS_PER_STEP and sent_bytes < _BYTES_PER_STEP:
            num_elements += self._submit_stream(self._round_elements)
            self._round_elements = min(2 * self._round_elements, _ELEMENTS_PER_STEP)
            had_stream = self._stream is not None
            for role, channel in self.channels.items():
                sent_bytes -= channel.bytes_sent
                for event in channel.progress(SEND):
                    if isinstance(event, DirectionEnded):
                        if role in self._observers:
                            self._observers[role].report_event(event)
                        self._end_direction(role, event)
                        self._check_lost()
                sent_bytes += channel.bytes_sent
            if not had_stream or not self._can_submit():
                break

    def _pop_bodies_to_free(self) -> tuple[ClientStream, list[AddressBody]]:
        """Return a protocol core, and bodies that it can free in one message."""
        lease = self._released_leases.popleft()
        bodies, count = [lease.body], lease.body.addresses.size
        while (
            # Only of one core, which checks its own leases.
            self._released_leases and self._released_leases[0].core is lease.core and count < _MAX_COALESCED_ADDRESSES
        ):
            bodies.append(self._released_leases.popleft().body)
            count += bodies[-1].addresses.size
        return lease.core, bodies

    def _submit_stream(self, max_elements: int) -> int:
        """Submit elements of the stream until its limits are reached; return their number."""
        for number in range(max_elements):
            if not self._can_submit():
                return number
            assert self._stream is not None
            try:
                messages = next(self._stream)
            except StopIteration:
                self._stream = None
                return number
            # The next element may open a descriptor: a stream over many files has only one open at a time.
            if messages is None:
                self._is_draining = True
                continue
            self.submit(messages)
        return max_elements

    def _can_submit(self) -> bool:
        if self._stream is None or self._is_failed:
            return False
        if self._is_draining:
            self._is_draining = self.is_sending
            return not self._is_draining
        # A limit is compared before an element, not after: a body longer than the limit is sent, alone.
        outstanding, options = self._count_outstanding(), self.options
        leases, leased_bytes, queued_bytes = outstanding
        if (
            queued_bytes >= options.max_queued_bytes
            or leases >= options.max_leases
            or leased_bytes >= options.max_leased_bytes
        ):
            return False
        return options.total_limits is None or options.total_limits.allows_more(self, outstanding)

    def _count_outstanding(self) -> tuple[int, int, int]:
        """The fields of `OutstandingAmounts`: what the peer has not freed, and not received."""
        queued_bytes = 0
        for channel in self.channels.values():
            queued_bytes += channel.queued_bytes
        if self.core is None:
            return 0, 0, queued_bytes
        leases = self.core.leases
        return leases.outstanding, leases.outstanding_bytes, queued_bytes

    def _deadline_error(self, wait_description: str) -> DeadlineError:
        timeout_s = min(self.options.input_timeout_s, self.options.stall_s)
        return DeadlineError(f"{wait_description}: nothing within {timeout_s:g} s")

    def __repr__(self) -> str:
        return f"<Session over {list(self.channels.values())}>"


def _ignore_wake() -> None:
    pass
