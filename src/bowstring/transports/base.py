"""The contract of a transport («Requirements»): delimited messages, plain and tagged, and memory that both sides reach.

A transport is one connection. One thread may send while another receives; several may call either, one after the
other. Every call that can block has a deadline: it ends when nothing was sent or received for `timeout_s`, or else the
transport's default, however long a whole message takes; `math.inf` waits as long as it takes.

What an implementation promises, and `bowstring.testing.transport_conformance` tests:

* messages arrive whole, once, and in the order in which they were sent (or else `is_ordered` is false);
* a body is not joined, copied or looked at on the sending side;
* a received message takes memory in proportion to what the limits allow, and only as its bytes arrive;
* a peer that is gone is a `ConnectionLostError`, one that is silent a `DeadlineError`; after a `DeadlineError` of
  `receive` the transport goes on where it was, after one of `send` it is closed if a part of the message was on its
  way;
* bytes that break the transport's own format are a `ProtocolError`, and the connection is closed;
* a region that was passed is there when a message sent after it arrives; descriptors never leak;
* `close` may be called from any thread, any number of times; calls that are blocked end with an error of
  `bowstring.errors`.
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
"""Called with tag and length before a message's bytes arrive: a writable buffer of that length to receive them in, or
None. It raises an error of `bowstring.errors` to refuse the message, which ends the connection.
"""


class Received(NamedTuple):
    """A message that arrived: its tag, None for a plain one, and its bytes."""

    tag: int | None
    data: memoryview


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Deadlines and limits of one connection."""

    timeout_s: float = 30.0
    """For every call that gives no deadline of its own."""
    max_plain_bytes: int = 1 << 28
    """The longest plain message that is received."""
    max_tagged_bytes: int = 1 << 28
    """The longest tagged message that is received."""
    max_regions: int = 16384
    """How many regions a peer may pass and not retire; Linux maps some 65,000 pieces in a process."""
    accept_files: bool = True
    """Whether a peer may pass ordinary files, whose owner can truncate them, or only sealed memory."""
    keep_descriptors: bool = False
    """Whether received regions keep their descriptors, so that they can be passed on; they are mapped on first use
    then.
    """
    allow_other_users: bool = False
    """Whether the peer may be a process of another user (other than root)."""
    queue_messages: int = 1024
    """Loopback: how many messages wait at the most before `send` blocks."""

    def deadline(self, timeout_s: float | None) -> Deadline:
        """The deadline of a call that begins now and may have brought its own."""
        return Deadline(self.timeout_s if timeout_s is None else timeout_s)


DEFAULT_OPTIONS = TransportOptions()
_LONGEST_WAIT_S = 1e6


class Deadline:
    """The moment until which a call may block without progress."""

    __slots__ = ("_end", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.restart()

    def restart(self) -> None:
        """Begin anew, because there was progress."""
        self._end = time.monotonic() + self.timeout_s

    def remaining_s(self) -> float:
        """The seconds left: not less than 0, and not more than the system's calls can count."""
        return min(max(self._end - time.monotonic(), 0.0), _LONGEST_WAIT_S)

    def error(self, what: str) -> DeadlineError:
        """The error for whoever waited for `what`."""
        return DeadlineError(f"{what}: nothing within {self.timeout_s:g} s")


class RegionIndexes:
    """The indexes of the regions that one end of a connection passes, counted from 0."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """The index of the next region. Raises `UsageError` where there are no more."""
        self.check_room(1)
        return self.count

    def check_room(self, number: int) -> None:
        """Raise `UsageError` unless there are indexes for so many more regions."""
        if self.count + number > MAX_REGIONS:
            raise UsageError(f"this connection passed {self.count} regions already: open another one")

    def check(self, index: int) -> None:
        """Raise `UsageError` unless a region with this index was passed."""
        if not 0 <= index < self.count:
            raise UsageError(f"region {index}: this end passed {self.count} regions")


class Transport(Closable, ABC):
    """One end of a connection; see the module for what it promises."""

    scheme: ClassVar[str]
    is_ordered: ClassVar[bool] = True

    def __init__(self, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        self.options = options

    @property
    @abstractmethod
    def regions(self) -> RegionTable:
        """The regions that the peer passed."""

    @abstractmethod
    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """Send one message: the bytes of `parts` one after the other, plain or with a tag; they may change afterwards.

        Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`.
        """

    @abstractmethod
    def post(self, parts: Sequence[BytesLike], *, tag: int | None = None) -> None:
        """Queue one message, and send what the peer takes now; later calls of `flush` and `send` send the rest.

        The bytes are copied. It does not wait for the peer. Raises `ConnectionLostError`, `ClosedError`.
        """

    @abstractmethod
    def flush(self, *, timeout_s: float | None = None) -> None:
        """Send what was posted. Raises as `send`; after a `DeadlineError` the rest is still queued."""

    @abstractmethod
    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> Received:
        """The next message. Regions that arrive before it are put into `regions`.

        Raises `ConnectionLostError`, `DeadlineError`, `ProtocolError`, `LimitError`, `ResourceError`, `ClosedError`.
        """

    @abstractmethod
    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """Let the peer reach a region; its index, from which `regions.address_of` makes addresses.

        Our own region may be closed afterwards: the peer holds the memory by itself. Raises as `send`.
        """

    @abstractmethod
    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """Tell the peer that no message will refer to this region any more, so that it lets go of it. Raises as
        `send`.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection and let go of the received regions. Idempotent."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""

    def send_message(self, message: Message, *, timeout_s: float | None = None) -> None:
        """Send what a `ServerConnection` or `ClientConnection` gave."""
        self.send(message.parts, tag=message.tag, timeout_s=timeout_s)


def allocated(allocate: Allocate | None, tag: int | None, length_bytes: int) -> memoryview | None:
    """Where the caller of `receive` wants a message; None where it leaves that to the transport.

    Raises `UsageError` where the place that it gives is no writable one of that length.
    """
    given = None if allocate is None else allocate(tag, length_bytes)
    if given is None:
        return None
    view = memoryview(given).cast("B")
    if view.readonly or view.nbytes != length_bytes:
        what = "read-only" if view.readonly else "writable"
        raise UsageError(f"allocate: expected {length_bytes} writable bytes, found {view.nbytes} {what} ones")
    return view
