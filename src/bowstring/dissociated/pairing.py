"""Metadata meets its body («Client Sequence»): by sequence number, in any order of arrival, given out in order.

A sequence number is 32 bits wide and rolls over; it is understood as the distance from the first message that has not
been given out. What is not inside the window of `max_unpaired_messages` from there is either a duplicate or too far
ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.wire import SEQUENCE_MASK, SEQUENCE_MODULUS, Body, sequence_distance
from bowstring.errors import LimitError, ProtocolError


@dataclass(frozen=True, slots=True, eq=False)
class StreamMessage:
    """One message of the stream with its body, or None where its header has none."""

    sequence: int
    header: Any
    body: Body | None

    def __repr__(self) -> str:
        return f"<message {self.sequence}: header of {len(self.header)} bytes, body {self.body!r}>"


@dataclass(slots=True, eq=False)
class _Slot:
    """The halves of a message that have arrived."""

    header: Any = None
    needs_body: bool = False
    body: Body | None = None
    held_bytes: int = 0


class MessageAssembler:
    """The messages of one stream between their arrival and the moment when they are complete and in order.

    `start` is the sequence number of the first one: 0 in the protocol. What arrives twice, after the end, or as a
    body of a header without one is a `ProtocolError`; what runs too far ahead, or would keep too much waiting, a
    `LimitError`.
    """

    __slots__ = ("_end_distance", "_held_bytes", "_limits", "_next", "_slots", "_stream")

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, start: int = 0, stream: str = "stream") -> None:
        self._limits = limits
        self._stream = stream
        self._next = start & SEQUENCE_MASK
        self._slots: dict[int, _Slot] = {}
        self._end_distance: int | None = None
        self._held_bytes = 0

    @property
    def next_sequence(self) -> int:
        """The sequence number of the first message that has not been given out."""
        return self._next

    @property
    def is_complete(self) -> bool:
        """Whether the end is known and everything before it was given out."""
        return self._end_distance == 0

    @property
    def unpaired(self) -> int:
        """How many messages wait for their other half or for an earlier message."""
        return len(self._slots)

    @property
    def held_bytes(self) -> int:
        """The metadata and bodies that wait."""
        return self._held_bytes

    def add_metadata(self, sequence: int, header: Any, needs_body: bool) -> list[StreamMessage]:
        """Take a metadata message; the messages that are complete and in order with it."""
        if needs_body or sequence != self._next or sequence in self._slots or self._end_distance is not None:
            slot = self._slot(sequence, "metadata message")
            if slot.header is not None:
                raise ProtocolError(f"{self._stream}: metadata message {sequence} came twice")
            if slot.body is not None and not needs_body:
                raise ProtocolError(f"{self._stream}: a body came for message {sequence}, whose header has none")
            slot.header, slot.needs_body = header, needs_body
            self._hold(slot, len(header))
            return self._complete_ones()
        self._next = (sequence + 1) & SEQUENCE_MASK
        return [StreamMessage(sequence, header, None), *self._complete_ones()]

    def add_body(self, sequence: int, body: Body) -> list[StreamMessage]:
        """Take a body; the messages that are complete and in order with it."""
        slot = self._slot(sequence, "body")
        if slot.body is not None:
            raise ProtocolError(f"{self._stream}: body {sequence} came twice")
        if slot.header is not None and not slot.needs_body:
            raise ProtocolError(f"{self._stream}: a body came for message {sequence}, whose header has none")
        slot.body = body
        # Addresses cost 16 bytes a buffer here, not what they refer to.
        self._hold(slot, body.addresses.nbytes * 2 if hasattr(body, "addresses") else body.length_bytes)
        return self._complete_ones()

    def add_end(self, sequence: int) -> None:
        """Take the end of the stream, whose number is one more than the last message's."""
        if self._end_distance is not None:
            raise ProtocolError(f"{self._stream}: the end of stream came twice")
        distance = sequence_distance(self._next, sequence)
        if distance > self._limits.max_unpaired_messages:
            raise ProtocolError(
                f"{self._stream}: the end of stream has number {sequence}, but message {self._next} is the next one"
            )
        beyond = [number for number in self._slots if sequence_distance(self._next, number) >= distance]
        if beyond:
            raise ProtocolError(
                f"{self._stream}: message {beyond[0]} came, but the end of stream has number {sequence}"
            )
        self._end_distance = distance

    def missing(self) -> str:
        """What has not arrived, in words: for the error when a connection ends too early."""
        first = f"message {self._next}"
        slot = self._slots.get(self._next)
        if slot is not None and slot.header is not None:
            first = f"the body of message {self._next}"
        elif slot is not None:
            first = f"the metadata of message {self._next}"
        if self._end_distance is None:
            return f"{first} and the end of stream"
        ready = sum(
            1 for slot in self._slots.values() if slot.header is not None and bool(slot.body) == slot.needs_body
        )
        return f"{first} (of {self._end_distance - ready} incomplete ones before the end of stream)"

    def _slot(self, sequence: int, what: str) -> _Slot:
        slot = self._slots.get(sequence)
        if slot is not None:
            return slot
        distance = sequence_distance(self._next, sequence)
        if self._end_distance is not None and self._end_distance <= distance < SEQUENCE_MODULUS // 2:
            raise ProtocolError(f"{self._stream}: {what} {sequence} lies after the end of stream")
        if distance >= SEQUENCE_MODULUS // 2:
            raise ProtocolError(f"{self._stream}: {what} {sequence} came again: message {self._next} is the next one")
        if distance >= self._limits.max_unpaired_messages:
            raise LimitError(
                f"{self._stream}: {what} {sequence} is {distance} messages ahead of message {self._next}, "
                f"max_unpaired_messages = {self._limits.max_unpaired_messages}"
            )
        slot = self._slots[sequence] = _Slot()
        return slot

    def _hold(self, slot: _Slot, length_bytes: int) -> None:
        slot.held_bytes += length_bytes
        self._held_bytes += length_bytes

    def _complete_ones(self) -> list[StreamMessage]:
        complete: list[StreamMessage] = []
        while True:
            slot = self._slots.get(self._next)
            if slot is None or slot.header is None or (slot.needs_body and slot.body is None):
                break
            del self._slots[self._next]
            self._held_bytes -= slot.held_bytes
            complete.append(StreamMessage(self._next, slot.header, slot.body))
            self._next = (self._next + 1) & SEQUENCE_MASK
            if self._end_distance is not None:
                self._end_distance -= 1
        if self._held_bytes > self._limits.max_unpaired_bytes:
            raise LimitError(
                f"{self._stream}: {self._held_bytes} bytes wait for their other half, "
                f"max_unpaired_bytes = {self._limits.max_unpaired_bytes}"
            )
        return complete
