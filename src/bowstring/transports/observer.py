"""Observe the messages that a session submits and receives, and the memory and the end of its channels.

Each `ObservedEvent` is passed to a function: a message before it is submitted, or when it is complete and before it is
processed. `bowstring.sharing.recording.recorder` writes the events to a file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import (
    RECEIVE,
    SEND,
    DirectionEnded,
    Event,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
)
from bowstring.transports.regions import RegionUpdate, encode_region_address


class EventDirection(StrEnum):
    """The direction of an event, for the process that is observed."""

    SENT = "sent"
    RECEIVED = "received"


class ObservedEventKind(StrEnum):
    """The kinds of observed events."""

    CONNECTION = "connection"
    """A connection was dialed (sent) or accepted (received); `text` is the URI of the server."""
    MESSAGE = "message"
    """A message was submitted, and nothing of it has left this process; or it was received, and is not processed."""
    OFFER = "offer"
    """The peer sends a long message, of which no byte is received yet."""
    REGION = "region"
    """Memory was exported; `text` is "sealed memory" or "file"."""
    RETIREMENT = "retirement"
    """No later message refers to the memory at this address."""
    LOSS = "loss"
    """A direction ended; `text` is the error."""
    CLOSE = "close"
    """This end was closed."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedEvent:
    """What happened on a channel."""

    time_ns: int
    """The time of a monotonic clock; in a recording, since its beginning."""
    connection: int
    """The index of the connection, in the order in which they were made."""
    direction: EventDirection
    kind: ObservedEventKind
    index: int
    """The number of earlier events of this connection, direction and kind."""
    tag: int | None = None
    """The tag of a message; None for a plain one."""
    address: int | None = None
    """The address of the first byte of a region."""
    length_bytes: int = 0
    """The length of a message or region."""
    parts: tuple[Any, ...] = ()
    """The bytes, not copied: `BytesLike` objects and `FileRange`. They are valid only during the call."""
    text: str = ""

    def view(self) -> memoryview:
        """Return the bytes of a message or region; several parts are copied. Raises as `Region.check_backing_file`."""
        views = [_view(part) for part in self.parts]
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def to_bytes(self) -> bytes:
        """Return a copy of the bytes. Raises as `view`."""
        return bytes(self.view())


Observer: TypeAlias = Callable[[ObservedEvent], None]
"""Called in the thread that sends or receives, which may be two at a time for one connection. An error that it raises
is raised by the method of the channel.
"""


class ConnectionObserver:
    """Reports the messages of one channel to an observer. Any thread may call it."""

    def __init__(self, observer: Observer, connection: int) -> None:
        self._observer = observer
        self._connection = connection
        self._num_events: Counter[tuple[EventDirection, ObservedEventKind]] = Counter()

    def notify(self, direction: EventDirection, kind: ObservedEventKind, **fields: Any) -> None:
        """Pass an event, with these fields of an `ObservedEvent`, to the observer. Raises its errors."""
        index = self._num_events[direction, kind]
        self._num_events[direction, kind] += 1
        self._observer(ObservedEvent(time.monotonic_ns(), self._connection, direction, kind, index, **fields))

    def report_submission(self, parts: Sequence[Any], tag: int | None) -> None:
        """Report a message that is going to be submitted."""
        # Before it is submitted: an observer that fails, or ends the process, has seen all that may have left it.
        length_bytes = sum(map(_length_bytes, parts))
        self.notify(
            EventDirection.SENT, ObservedEventKind.MESSAGE, tag=tag, length_bytes=length_bytes, parts=tuple(parts)
        )

    def report_export(self, direction: EventDirection, address: int, region: Region) -> None:
        """Report the export of a region."""
        parts = () if region.is_on_device else (FileRange(region, 0, region.size_bytes),)
        text = "memory of a device" if region.is_on_device else "sealed memory" if region.is_sealed else "file"
        size_bytes = region.size_bytes
        self.notify(
            direction, ObservedEventKind.REGION, address=address, length_bytes=size_bytes, parts=parts, text=text
        )

    def report_retirement(self, direction: EventDirection, address: int) -> None:
        """Report the retirement of a region."""
        self.notify(direction, ObservedEventKind.RETIREMENT, address=address)

    def report_event(self, event: Event) -> None:
        """Report an event of the channel, before it is processed."""
        direction = EventDirection.RECEIVED
        if isinstance(event, MessageReceived):
            parts, length_bytes = (event.data,), _length_bytes(event.data)
            self.notify(direction, ObservedEventKind.MESSAGE, tag=event.tag, length_bytes=length_bytes, parts=parts)
        elif isinstance(event, MessageOffered):
            self.notify(direction, ObservedEventKind.OFFER, tag=event.tag, length_bytes=event.length_bytes)
        elif isinstance(event, RemoteMemoryUpdated):
            if isinstance(event.update, RegionUpdate):
                address = encode_region_address(event.update.index, 0)
                if event.update.region is None:
                    self.report_retirement(direction, address)
                else:
                    self.report_export(direction, address, event.update.region)
        elif isinstance(event, DirectionEnded):
            text = f"{type(event.error).__name__}: {event.error}"
            for lost_direction, flag in ((EventDirection.RECEIVED, RECEIVE), (EventDirection.SENT, SEND)):
                if event.directions & flag:
                    self.notify(lost_direction, ObservedEventKind.LOSS, text=text)


def _view(part: Any) -> memoryview:
    if isinstance(part, FileRange):
        part.region.check_backing_file()
        return part.region.view(part.offset_bytes, part.nbytes)
    return memoryview(part).cast("B")


def _length_bytes(part: Any) -> int:
    length_bytes: int = part.nbytes if hasattr(part, "nbytes") else len(part)
    return length_bytes
