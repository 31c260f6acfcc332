"""Pair metadata with bodies by sequence number («Client Sequence»), in any order of arrival.

A sequence number has 32 bits and rolls over. It is interpreted as a distance from the next message to deliver; outside
the window of `max_pending_messages` it is a duplicate or too far ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.dissociated.events import StreamMessage
from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.messages import SEQUENCE_MASK, SEQUENCE_MODULUS, Body, BytesLike, sequence_distance
from bowstring.errors import LimitError, ProtocolError


@dataclass(slots=True, eq=False)
class _PendingMessage:
    """The parts of a message that have arrived."""

    header: BytesLike | None = None
    needs_body: bool = False
    body: Body | None = None
    pending_bytes: int = 0


class MessageAssembler:
    """Assembles metadata and bodies into messages, and delivers these in the order of their sequence numbers.

    `start` is the first sequence number, 0 in the protocol. A duplicate, a message after the end, or a body of a header
    without one is a `ProtocolError`. Too many or too large pending messages are a `LimitError`.
    """

    __slots__ = ("_end_distance", "_limits", "_next", "_pending", "_pending_bytes")

    def __init__(self, limits: ProtocolLimits = DEFAULT_LIMITS, *, start: int = 0) -> None:
        self._limits = limits
        self._next = start & SEQUENCE_MASK
        self._pending: dict[int, _PendingMessage] = {}
        self._end_distance: int | None = None
        self._pending_bytes = 0

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next message to deliver."""
        return self._next

    @property
    def is_complete(self) -> bool:
        """Whether the end and all messages before it were received."""
        return self._end_distance == 0

    @property
    def has_all_metadata(self) -> bool:
        """Whether the end and all metadata messages before it were received."""
        headers = sum(pending.header is not None for pending in self._pending.values())
        return self._end_distance is not None and headers == self._end_distance

    @property
    def has_missing_body(self) -> bool:
        """Whether a metadata message was received whose body was not."""
        return any(pending.needs_body and pending.body is None for pending in self._pending.values())

    @property
    def num_pending(self) -> int:
        """The number of messages that wait for their counterpart or for an earlier message."""
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """The bytes of pending metadata and bodies."""
        return self._pending_bytes

    def add_metadata(self, sequence: int, header: BytesLike, needs_body: bool) -> list[StreamMessage]:
        """Add a metadata message. Return the messages that can now be delivered."""
        # Otherwise it is the next message and complete, and needs no entry.
        if needs_body or sequence != self._next or sequence in self._pending or self._end_distance is not None:
            pending = self._get_or_add_pending(sequence, "metadata message")
            if pending.header is not None:
                raise ProtocolError(f"client stream: metadata message {sequence} was received twice")
            if pending.body is not None and not needs_body:
                raise ProtocolError(f"client stream: received a body for message {sequence}, whose header has none")
            pending.header, pending.needs_body = header, needs_body
            self._count_bytes(pending, len(header))
            return self._take_complete_messages()
        self._next = (sequence + 1) & SEQUENCE_MASK
        message = StreamMessage(sequence, header, None)
        return [message, *self._take_complete_messages()] if self._pending else [message]

    def add_body(self, sequence: int, body: Body) -> list[StreamMessage]:
        """Add a body. Return the messages that can now be delivered."""
        pending = self._get_or_add_pending(sequence, "body")
        if pending.body is not None:
            raise ProtocolError(f"client stream: body {sequence} was received twice")
        if pending.header is not None and not pending.needs_body:
            raise ProtocolError(f"client stream: received a body for message {sequence}, whose header has none")
        pending.body = body
        # A body of addresses takes 16 bytes per buffer here, whatever the size of the buffers.
        self._count_bytes(pending, body.addresses.nbytes * 2 if hasattr(body, "addresses") else body.length_bytes)
        return self._take_complete_messages()

    def add_end(self, sequence: int) -> None:
        """Add the end of the stream, whose number is one more than the last message's."""
        if self._end_distance is not None:
            raise ProtocolError("client stream: the end of stream was received twice")
        distance = sequence_distance(self._next, sequence)
        if distance > self._limits.max_pending_messages:
            raise ProtocolError(
                f"client stream: the end of stream has number {sequence}, but message {self._next} is the next one"
            )
        # From now on `_get_or_add_pending` rejects messages after the end; these arrived before it.
        late_sequences = [number for number in self._pending if sequence_distance(self._next, number) >= distance]
        if late_sequences:
            raise ProtocolError(
                f"client stream: message {late_sequences[0]} came, but the end of stream has number {sequence}"
            )
        self._end_distance = distance

    def describe_missing_messages(self) -> str:
        """Describe the missing messages, for the error when a connection ends too early."""
        first = f"message {self._next}"
        pending = self._pending.get(self._next)
        if pending is not None and pending.header is not None:
            first = f"the body of message {self._next}"
        elif pending is not None:
            first = f"the metadata of message {self._next}"
        if self._end_distance is None:
            return f"{first} and the end of stream"
        ready = sum(
            1
            for pending in self._pending.values()
            if pending.header is not None and bool(pending.body) == pending.needs_body
        )
        return f"{first} (of {self._end_distance - ready} incomplete ones before the end of stream)"

    def _get_or_add_pending(self, sequence: int, kind: str) -> _PendingMessage:
        pending = self._pending.get(sequence)
        if pending is not None:
            return pending
        distance = sequence_distance(self._next, sequence)
        # Half of the numbers are ahead of the next message, the other half behind it, as in RFC 1982.
        if self._end_distance is not None and self._end_distance <= distance < SEQUENCE_MODULUS // 2:
            raise ProtocolError(f"client stream: {kind} {sequence} is after the end of the stream")
        if distance >= SEQUENCE_MODULUS // 2:
            raise ProtocolError(f"client stream: {kind} {sequence} was received again, expected message {self._next}")
        if distance >= self._limits.max_pending_messages:
            raise LimitError(
                f"client stream: {kind} {sequence} is {distance} messages ahead of message {self._next}, "
                f"max_pending_messages = {self._limits.max_pending_messages}"
            )
        pending = self._pending[sequence] = _PendingMessage()
        return pending

    def _count_bytes(self, pending: _PendingMessage, length_bytes: int) -> None:
        pending.pending_bytes += length_bytes
        self._pending_bytes += length_bytes

    def _take_complete_messages(self) -> list[StreamMessage]:
        complete: list[StreamMessage] = []
        while True:
            pending = self._pending.get(self._next)
            if pending is None or pending.header is None or (pending.needs_body and pending.body is None):
                break
            del self._pending[self._next]
            self._pending_bytes -= pending.pending_bytes
            complete.append(StreamMessage(self._next, pending.header, pending.body))
            self._next = (self._next + 1) & SEQUENCE_MASK
            if self._end_distance is not None:
                self._end_distance -= 1
        # After the delivery: the last part of a message may have any length within its own limit, and waits for
        # nothing.
        if self._pending_bytes > self._limits.max_pending_bytes:
            raise LimitError(
                f"client stream: {self._pending_bytes} bytes of pending messages, "
                f"max_pending_bytes = {self._limits.max_pending_bytes}"
            )
        return complete
