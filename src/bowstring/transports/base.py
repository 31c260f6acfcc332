"""The interface of a transport («Requirements»): plain and tagged messages, and shared memory.

A transport is one connection. One thread may send while another receives; other threads take turns. Every blocking call
has a deadline: it fails if nothing is sent or received for `timeout_s`, by default the transport's own, however long a
whole message takes. `math.inf` waits without a deadline.

An implementation guarantees the following, which `bowstring.testing.transport_conformance` tests:

* messages arrive complete, once, and in the order in which they were sent (unless `is_ordered` is false);
* the sender does not join, copy or read bodies;
* a received message takes memory only as its bytes arrive, and within the limits;
* a lost peer is a `ConnectionLostError`, a silent one a `DeadlineError`. After a `DeadlineError`, `receive` can be
  called again; `send` has closed the transport if part of the message was sent;
* bytes that violate the transport's own format are a `ProtocolError`, and the connection is closed;
* a region is available before the messages that are sent after it; descriptors never leak;
* `close` may be called from any thread, any number of times; blocked calls end with an error of `bowstring.errors`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from bowstring.dissociated.wire import BytesLike, Message
from bowstring.errors import DeadlineError, UsageError
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.transports.regions import MAX_REGIONS, RegionTable

Allocate: TypeAlias = Callable[[int | None, int], Any]
"""Called with the tag and length of a message before its bytes arrive. Returns a writable buffer of that length or None
for a new one. Raises an error of `bowstring.errors` to refuse the message, which ends the connection.
"""


class ReceivedMessage(NamedTuple):
    """A received message: its tag (None for a plain message) and its bytes."""

    tag: int | None
    data: memoryview


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Deadlines and limits of one connection."""

    timeout_s: float = 30.0
    """The default of all calls."""
    max_plain_bytes: int = 1 << 28
    """The maximum length of a received plain message."""
    max_tagged_bytes: int = 1 << 28
    """The maximum length of a received tagged message."""
    max_regions: int = 16384
    """The number of regions that a peer may send without retiring them; Linux allows some 65,000 mappings."""
    accept_files: bool = True
    """Whether a peer may send ordinary files, which can be truncated, besides sealed memory."""
    keep_descriptors: bool = False
    """Whether received regions keep their descriptors, to be sent on; they are then mapped on first use."""
    allow_other_users: bool = False
    """Whether the peer may be a process of another user (other than root)."""
    queue_messages: int = 1024
    """Loopback: the number of queued messages at which `send` blocks."""

    def deadline(self, timeout_s: float | None) -> Deadline:
        """The deadline of a call that begins now."""
        return Deadline(self.timeout_s if timeout_s is None else timeout_s)


DEFAULT_OPTIONS = TransportOptions()
_MAX_WAIT_S = 1e6


class Deadline:
    """The time until which a call may block without progress."""

    __slots__ = ("_end", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.restart()

    def restart(self) -> None:
        """Restart after progress."""
        self._end = time.monotonic() + self.timeout_s

    def remaining_s(self) -> float:
        """The remaining seconds, from 0 to the maximum of system calls."""
        return min(max(self._end - time.monotonic(), 0.0), _MAX_WAIT_S)

    def error(self, what: str) -> DeadlineError:
        """Create the error for a call that waited for `what`."""
        return DeadlineError(f"{what}: nothing within {self.timeout_s:g} s")


class RegionCounter:
    """Counts the regions that one end of a connection sends."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """Return the index of the next region. Raises `UsageError` if all indices are used."""
        self.check_capacity(1)
        return self.count

    def check_capacity(self, number: int) -> None:
        """Raise `UsageError` unless there are indices for this number of regions."""
        if self.count + number > MAX_REGIONS:
            raise UsageError(f"this connection has sent {self.count} regions: open another one")

    def check(self, index: int) -> None:
        """Raise `UsageError` unless a region with this index was sent."""
        if not 0 <= index < self.count:
            raise UsageError(f"region {index}: this end has sent {self.count} regions")


class Transport(Closable, ABC):
    """One end of a connection; the module's docstring has its guarantees."""

    scheme: ClassVar[str]
    is_ordered: ClassVar[bool] = True

    def __init__(self, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        self.options = options

    @property
    @abstractmethod
    def regions(self) -> RegionTable:
        """The received regions."""

    @abstractmethod
    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """Send one message, the bytes of `parts` in order, plain or tagged. They may change afterwards.

        Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`.
        """

    @abstractmethod
    def post(self, parts: Sequence[BytesLike], *, tag: int | None = None) -> None:
        """Queue one message and send without blocking; later calls of `flush` and `send` send the rest.

        The bytes are copied. Raises `ConnectionLostError`, `ClosedError`.
        """

    @abstractmethod
    def flush(self, *, timeout_s: float | None = None) -> None:
        """Send queued messages. Raises as `send`; after a `DeadlineError` the rest is still queued."""

    @abstractmethod
    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> ReceivedMessage:
        """Receive the next message. Regions that arrive before it are added to `regions`.

        Raises `ConnectionLostError`, `DeadlineError`, `ProtocolError`, `LimitError`, `ResourceError`, `ClosedError`.
        """

    @abstractmethod
    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """Send a region; return its index, the first argument of `regions.address_of`.

        The region may be closed afterwards, because the peer has its own descriptor. Raises as `send`.
        """

    @abstractmethod
    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """Tell the peer to close a region, because no later message refers to it. Raises as `send`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection and the received regions. Idempotent."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""

    def send_message(self, message: Message, *, timeout_s: float | None = None) -> None:
        """Send a message of a `ServerConnection` or `ClientConnection`."""
        self.send(message.parts, tag=message.tag, timeout_s=timeout_s)


def call_allocate(allocate: Allocate | None, tag: int | None, length_bytes: int) -> memoryview | None:
    """Return the buffer that `allocate` chooses for a message, or None.

    Raises `UsageError` if the buffer is read-only or has another length.
    """
    buffer = None if allocate is None else allocate(tag, length_bytes)
    if buffer is None:
        return None
    view = memoryview(buffer).cast("B")
    if view.readonly or view.nbytes != length_bytes:
        what = "read-only" if view.readonly else "writable"
        raise UsageError(f"allocate: expected {length_bytes} writable bytes, found {view.nbytes} {what} bytes")
    return view
