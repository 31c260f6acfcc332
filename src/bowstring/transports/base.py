"""The interface of a transport («Requirements»): channels for messages, and access to remote memory.

A transport has a scheme (`Transport`). It listens (`Listener`) or dials, and both make channels (`Channel`): one end of
a connection, for plain and tagged messages. Memory is separate: a server exports it (`MemoryExporter`), and a client
locates or fetches the buffers at the addresses in a body (`RemoteMemory`).

Nothing here blocks. A driver waits as `next_wait` says, then calls `progress`: `bowstring.transports.blocking` with
`poll`, and `bowstring.transports.event_loop` for many channels.

Every channel guarantees the following, which `bowstring_testing.transport_conformance` tests:

* messages arrive complete and once, and in the order in which they were sent if `traits.is_ordered`;
* the sender does not join, copy or read bodies; it keeps their parts alive until they are sent;
* a received message takes memory only as its bytes arrive, within the limits and the credit;
* the end of a connection is one `DirectionEnded` event per direction, after everything that arrived before it;
* bytes that violate the transport's own format are a `DirectionEnded` event with a `ProtocolError`;
* exported memory is announced before the messages that refer to it; descriptors never leak.

Threads: one thread may call `progress(RECEIVE)` while another calls `submit` and `progress(SEND)`. All other calls take
turns, except `shut_down` and `wake`, which are thread-safe.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.display.objects import repr_options
from bowstring.dissociated.messages import BytesLike
from bowstring.errors import (
    BowstringError,
    DeadlineError,
    InvalidArgumentError,
    LimitError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.available_memory import check_available_memory
from bowstring.memory.buffer import allocate
from bowstring.memory.closable import Closable
from bowstring.memory.mapping_pool import MAPPING_POOL, POOLED_BYTES
from bowstring.memory.region import Region
from bowstring.transports.tls import TlsOptions

RECEIVE, SEND = selectors.EVENT_READ, selectors.EVENT_WRITE
BOTH_DIRECTIONS = RECEIVE | SEND
"""The directions of a channel; also what to wait for."""

Uint64Array: TypeAlias = npt.NDArray[np.uint64]
"""Addresses, offsets or lengths in bytes."""

UNKNOWN_BYTES = 1 << 64
"""The size of memory of a peer that does not tell it: more than any address allows."""
_MAX_WAIT_S = 1e6  # eleven days: `math.inf` and more would overflow the timeouts of system calls


class Interest(NamedTuple):
    """A descriptor to wait for, and for what: `RECEIVE` (readable), `SEND` (writable) or `BOTH_DIRECTIONS`."""

    descriptor: int
    events: int


class Wait(NamedTuple):
    """What to wait for: until one of the descriptors is ready, at most for the timeout."""

    interests: list[Interest]
    timeout_s: float = math.inf
    """0 to continue at once, because received bytes or other work remain for which no descriptor becomes ready."""


class MessageOffered(NamedTuple):
    """The peer sends a message longer than `TransportOptions.eager_bytes`.

    None of its bytes are received until `Channel.accept_offered_message(token, …)`. An ordered channel delivers no
    later message before.
    """

    token: int
    tag: int | None
    length_bytes: int


class MessageReceived(NamedTuple):
    """A complete message: its tag (None for a plain message) and its bytes, or the destination that they are in."""

    tag: int | None
    data: Any


class RemoteMemoryUpdated(NamedTuple):
    """The peer exported or retired memory; the argument of `RemoteMemory.apply_update`, in order with the messages."""

    update: Any
    is_retirement: bool = False
    """Whether no later message refers to the memory; earlier bodies may still wait for their metadata."""


class DirectionEnded(NamedTuple):
    """A direction ended, or both: a `ConnectionLostError`, or the reason for which this end gives up.

    A peer that closes its end can still be received from until `DirectionEnded` for `RECEIVE`.
    """

    error: BowstringError
    directions: int


Event: TypeAlias = MessageOffered | MessageReceived | RemoteMemoryUpdated | DirectionEnded


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The authenticated identity of the other end."""

    user_id: int | None = None
    """The user of the peer's process when it connected or began to listen, according to the kernel."""
    process_id: int | None = None
    name: str | None = None
    """The subject of a certificate, such as `commonName=alice`, with the escapes of RFC 4514."""

    def __str__(self) -> str:
        return self.name or f"process {self.process_id} of user {self.user_id}"


@dataclass(frozen=True, slots=True)
class ChannelTraits:
    """Properties of a channel that its users take into account."""

    is_ordered: bool = True
    """Whether messages arrive in the order in which they were sent."""
    min_file_bytes: float = math.inf
    """The length from which bytes of a file are sent as `FileRange`; shorter ones are read, which takes less time."""
    peer: PeerIdentity | None = None
    """None if the transport does not authenticate peers."""
    peer_address: str | None = None
    """The address of the peer's end, if the transport has one. It proves nothing."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Deadlines and limits of one connection."""

    timeout_s: float = 30.0
    """The default deadline of blocking calls, from the last progress."""
    max_plain_bytes: int = 1 << 28
    """The maximum length of a received plain message."""
    max_tagged_bytes: int = 1 << 28
    """The maximum length of a received tagged message."""
    eager_bytes: int = 1 << 15
    """The maximum length of a message that is received without being offered first."""
    credit_messages: int = 1 << 10
    """The number of messages that may be received before the first `Channel.grant_credit`."""
    credit_bytes: int = 1 << 20
    """The total length of the messages that may be received before the first `Channel.grant_credit`."""
    max_regions: int = 16384
    """The number of regions that a peer may send without retiring them; Linux allows about 65,000 mappings."""
    accept_files: bool = True
    """Whether a peer may send ordinary files, which can be truncated, besides sealed memory."""
    keep_descriptors: bool = False
    """Whether received regions keep their descriptors, to be sent on; they are then mapped on first use."""
    allow_other_users: bool = False
    """Whether the peer may be a process of another user (other than root)."""
    allow_other_hosts: bool = False
    """Plain TCP: whether other hosts may reach a listener; its user must then authorize requests."""
    advertised_host: str | None = None
    """TCP: the host in a listener's address, if it differs from the host at which it listens."""
    tls: TlsOptions | None = None
    """The certificates, for transports with TLS."""

    __repr__ = repr_options

    def start_deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that starts now."""
        return Deadline(self.timeout_s if timeout_s is None else timeout_s)

    def credit_bytes_of(self, length_bytes: int) -> int:
        """Return the bytes of credit that a message of this length takes: none if it is offered."""
        return length_bytes if length_bytes <= self.eager_bytes else 0


DEFAULT_OPTIONS = TransportOptions()


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

    def deadline_error(self, wait_description: str) -> DeadlineError:
        """Return the error of a call whose deadline has passed."""
        return DeadlineError(f"{wait_description}: nothing within {self.timeout_s:g} s")


class Credit:
    """The messages and bytes that a channel may still receive (`Channel.grant_credit`), and the limits of a message."""

    __slots__ = ("_messages", "_name", "_nbytes", "_options")

    def __init__(self, name: str, options: TransportOptions) -> None:
        self._name = name
        self._options = options
        self._messages = options.credit_messages
        self._nbytes = options.credit_bytes

    @property
    def is_available(self) -> bool:
        """Whether another message may be received."""
        return self._messages > 0 and self._nbytes > 0

    def grant(self, num_messages: int, nbytes: int) -> None:
        """As `Channel.grant_credit`."""
        self._messages += num_messages
        self._nbytes += nbytes

    def consume(self, tag: int | None, length_bytes: int) -> bool:
        """Use the credit of a message; return whether it has to be offered before it is received.

        Call it before memory is allocated: the peer chose the length. Raises `LimitError` if the message is too long.
        """
        options = self._options
        max_bytes = options.max_plain_bytes if tag is None else options.max_tagged_bytes
        check_message_length(length_bytes, max_bytes, self._name)
        self._messages -= 1
        self._nbytes -= options.credit_bytes_of(length_bytes)
        return length_bytes > options.eager_bytes


def check_message_length(length_bytes: int, max_bytes: float, name: str) -> None:
    """Raise `LimitError` if a message, received by the channel or call `name`, is too long."""
    if length_bytes > max_bytes:
        raise LimitError(f"{name}: a message of {length_bytes} bytes; at most {max_bytes} are received")


class Channel(Closable, ABC):
    """One end of a connection. No method blocks. The module's docstring has its guarantees.

    Errors of the connection are `DirectionEnded` events; the methods raise only `InvalidArgumentError` for wrong
    arguments.
    """

    traits: ChannelTraits
    options: TransportOptions
    bytes_received: int
    """The number of bytes that have arrived: if it has changed, there was progress."""
    bytes_sent: int
    """The number of bytes that have left this process."""
    is_closed: bool
    """Whether `close` was called."""
    is_connected: bool = True
    """False while a dialed channel connects. Messages can be submitted meanwhile."""
    exporter: MemoryExporter | None = None
    """Exports memory to the peer; None if bodies have to be sent as bytes."""

    @abstractmethod
    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> None:
        """Queue a message, the bytes of `parts` in order, plain or tagged. `progress` sends it.

        Nothing is copied: the parts must not change while `is_sending`.
        """

    @abstractmethod
    def accept_offered_message(self, token: int, destination: Any = None) -> None:
        """Receive an offered message into `destination`, a writable buffer of its length; None allocates one.

        Raises `InvalidArgumentError` if the buffer is read-only or has another length.
        """

    @abstractmethod
    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        """Allow this many more messages and bytes to be received; the rest waits in the transport or at the peer.

        An offered message takes the credit of a message, and none of bytes (`TransportOptions.credit_bytes_of`). A
        message that exceeds the remaining bytes is received if any remain.
        """

    @abstractmethod
    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        """Send and receive without waiting, a limited amount. Return what happened, in order."""

    @abstractmethod
    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        """Return what to wait for before the next `progress` for these directions.

        A descriptor is constant while the channel is open. There are none for a direction that has nothing to do: no
        credit, nothing submitted, or lost.
        """

    @property
    @abstractmethod
    def is_sending(self) -> bool:
        """Whether a submitted message, or an export of memory, has not been sent."""

    @property
    def unacknowledged_since(self) -> float:
        """The time, by `time.monotonic`, of the last sign of the peer's host, if it has not received all bytes that
        have left this process; else `math.inf`, also if the transport does not report it.
        """
        return math.inf

    @property
    @abstractmethod
    def queued_bytes(self) -> int:
        """The number of submitted bytes that have not been sent."""

    @property
    @abstractmethod
    def is_receiving_message(self) -> bool:
        """Whether a part of a message has arrived."""

    @property
    @abstractmethod
    def wait_description(self) -> str:
        """What `progress` waits for, for the message of a `DeadlineError`."""

    @abstractmethod
    def descriptors(self) -> list[int]:
        """Return all open descriptors, which a forked child has to close."""

    def wake(self) -> None:
        """Make a thread that waits return. Thread-safe.

        Needed only by transports whose directions share one descriptor, so that a thread that sends can take what
        another waits for.
        """

    @abstractmethod
    def shut_down(self) -> None:
        """End both directions, which wakes threads that wait. Descriptors stay open until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; queued messages are discarded. Idempotent."""


class Listener(Closable, ABC):
    """A listener, with the resources that its channels share: a socket, an event queue, registered memory."""

    address: str
    """The address for a URI: clients dial it."""
    is_closed: bool
    remote_handle: bytes | None = None
    """The parameter `remote_handle` of URIs, if clients need it for access to exported memory."""
    address_scope: str | None = None
    """The `Transport.address_scope` of an address that may be another listener's elsewhere; None for others."""
    is_local: bool = True
    """Whether only processes of this host can connect."""

    @abstractmethod
    def accept(self, limit: int = 16) -> list[Channel]:
        """Return new connections, at most `limit`, without waiting. Unacceptable peers are refused, some in each call.

        Raises `ClosedError`, and `ResourceError` if memory or descriptors are short.
        """

    @abstractmethod
    def interests(self) -> list[Interest]:
        """Return the descriptors to wait for before the next `accept`."""

    @abstractmethod
    def descriptors(self) -> list[int]:
        """Return all open descriptors, which a forked child has to close."""

    @abstractmethod
    def shut_down(self) -> None:
        """Stop listening, which wakes threads that wait for `interests`. Descriptors stay open until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening; accepted channels stay open. Idempotent."""


class Extent(NamedTuple):
    """A range of addresses that a peer exported, and its memory."""

    start: int
    size_bytes: int
    name: str
    memory: Any


class BufferLocations(NamedTuple):
    """The extent of some buffers, and their offsets in it."""

    extent: Extent
    offsets: Uint64Array


class Fetch(Protocol):
    """A copy of a peer's memory that was started; the progress of the channel advances it."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""

    @property
    def error(self) -> BowstringError | None:
        """The error with which it ended, or None."""


class RemoteMemory(Closable, ABC):
    """The memory that a peer exported, as far as this end may read it.

    The check of addresses is here, once for all transports: `locate_buffers` returns extents that contain the buffers.
    """

    __slots__ = ()

    outlives_connection: ClassVar[bool] = True
    """Whether views stay valid after the connection ends; otherwise it is kept until no view is left."""

    @abstractmethod
    def find_extent(self, address: int) -> Extent:
        """Return the exported range of an address. Raises `ProtocolError` if there is none."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The size of all extents; `UNKNOWN_BYTES` if it is not known."""

    @abstractmethod
    def view_extent(self, extent: Extent) -> Any | None:
        """Return an extent's memory without a copy, None if it has to be fetched. Raises as `check_backing_file`."""

    @property
    def can_copy_locally(self) -> bool:
        """Whether this process can copy it without messages of the peer, and no truncation of it is a SIGBUS.

        A client that copies then requests addresses; otherwise it requests bytes.
        """
        return False

    @abstractmethod
    def start_fetch(self, locations: BufferLocations, lengths: Uint64Array, destination: Any) -> Sequence[Fetch]:
        """Start to copy buffers, one after the other, to `destination`; return the copies that `progress` advances.

        What is copied at once is not among them.
        """

    def call_after_reads(self, call: Callable[[], None]) -> None:
        """Make a call when nothing that this process has started reads the memory: at once, unless it is a device's.

        Finalizers use it: it does not wait.
        """
        call()

    def apply_update(self, update: Any) -> None:
        """Process an `RemoteMemoryUpdated` event. Raises `ProtocolError`, `LimitError`."""
        raise ProtocolError(f"this transport has no announcements of memory, found {update!r}")

    def locate_buffers(self, addresses: Uint64Array, lengths: Uint64Array) -> BufferLocations:
        """Return the extent of these buffers and their offsets in it; `addresses` must not be empty.

        An empty buffer may have any address; its offset is inside the extent. Raises `ProtocolError` if a buffer is not
        inside the extent of the longest one.
        """
        longest = int(lengths.argmax())
        extent = self.find_extent(int(addresses[longest]))
        # An address before the extent wraps to a huge offset.
        offsets = addresses - np.uint64(extent.start)
        if int(np.maximum.reduce(offsets)) + int(lengths[longest]) <= extent.size_bytes:  # so all buffers are inside
            return BufferLocations(extent, offsets)
        offsets, size = np.where(lengths > 0, offsets, np.uint64(0)), np.uint64(extent.size_bytes)
        is_outside = (offsets > size) | (lengths > size - np.minimum(offsets, size))
        if bool(is_outside.any()):
            index = int(is_outside.argmax())
            raise ProtocolError(
                f"buffer {index}: address 0x{int(addresses[index]):016x} with {lengths[index]} bytes is not inside "
                f"{extent.name}, which has {extent.size_bytes} bytes"
            )
        return BufferLocations(extent, offsets)

    def group_buffers_by_extent(
        self, addresses: Uint64Array, lengths: Uint64Array
    ) -> list[tuple[npt.NDArray[np.intp], BufferLocations]]:
        """Return the indices of the buffers in each extent, and their location. Empty buffers are left out.

        Raises `ProtocolError` if a buffer is not inside an extent.
        """
        groups: list[tuple[npt.NDArray[np.intp], BufferLocations]] = []
        remaining = np.flatnonzero(lengths)
        while remaining.size:
            extent = self.find_extent(int(addresses[remaining[0]]))
            is_inside = addresses[remaining] - np.uint64(extent.start) < np.uint64(max(extent.size_bytes, 1))
            is_inside[0] = True
            indices, remaining = remaining[is_inside], remaining[~is_inside]
            groups.append((indices, self.locate_buffers(addresses[indices], lengths[indices])))
        return groups

    @abstractmethod
    def close(self) -> None:
        """Release the memory; views stay valid. Idempotent."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ExportedRegion:
    """An exported region: its address in bodies of addresses, and its index on the channel, if any.

    A server refers to it as long as the peer may read the memory; see `MemoryExporter.reclaim`.
    """

    address: int
    index: int = 0


class MemoryExporter(ABC):
    """Makes memory of this process accessible to the peer of one channel."""

    __slots__ = ()

    keeps_exports: ClassVar[bool] = True
    """Whether a peer that requests a region again saves time if it was not retired."""

    def can_export(self, region: Region) -> bool:
        """Whether a server exports this region; otherwise it sends the bytes. By default, memory of the CPU."""
        return not region.is_on_device

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> BytesLike:
        """Return bytes of a region that it can export, to be sent because there is no space for an export."""
        return region.view(offset_bytes, size_bytes)

    @abstractmethod
    def export(self, region: Region) -> ExportedRegion:
        """Export a region; the caller keeps it open until it is sent. Bodies submitted later may have its addresses.

        Raises `InvalidArgumentError` if the channel can't export more, and `ResourceError` if there is no space for a
        copy: the region can be sent as bytes.
        """

    @abstractmethod
    def retire(self, exported_region: ExportedRegion) -> None:
        """Tell the peer that no later message refers to the memory.

        Raises `InvalidArgumentError` if it was not exported.
        """

    def reclaim(self) -> None:
        """Use memory again that was retired, if nothing refers to its `ExportedRegion`: the peer has freed all of its
        addresses. For transports that copy exported regions; otherwise nothing.
        """

    @abstractmethod
    def check_capacity(self, num_regions: int) -> None:
        """Raise `InvalidArgumentError` unless this number of regions can be exported."""


class Transport(ABC):
    """A kind of connection, which a URI selects by its scheme; `bowstring.transports.registry` lists them."""

    scheme: ClassVar[str]
    supports_tls: ClassVar[bool] = False
    """Whether it takes `TransportOptions.tls`."""
    identifies_users: ClassVar[bool] = False
    """Whether channels authenticate the peer's user, and refuse others unless `TransportOptions.allow_other_users`."""
    unsupported_options: ClassVar[tuple[str, ...]] = ()
    """The `TransportOptions` that have to be false."""
    is_local: ClassVar[bool] = False
    """Whether both ends are on one host, whatever the address."""
    distance: ClassVar[float] = math.inf
    """Of several locations of the same data, a client tries those with the smallest number first: 10 for memory of the
    same host, from 30 on for networks.
    """

    @abstractmethod
    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> Listener:
        """Listen at an address, by default a new one.

        Raises `UnavailableAddressError`, `InvalidArgumentError` for an address that is not valid, `ResourceError`.
        """

    @abstractmethod
    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> Channel:
        """Return a channel to a listener. Messages can be submitted at once; connecting may take some `progress`.

        Raises `ConnectionLostError` if there is no listener, `InvalidArgumentError` for an address that is not valid,
        `AccessDeniedError`, `ResourceError`; or the channel reports them as `DirectionEnded`.
        """

    @abstractmethod
    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory | None:
        """Return the memory that a channel's peer exports; None if there is none.

        `remote_handle` comes from the URI. Raises `ProtocolError` if it is malformed or missing.
        """

    def address_scope(self, address: str) -> str | None:  # noqa: ARG002 - for transports that need it
        """Return the scope of an address in this process (see `bowstring.transports.address_scope`).

        It is compared with the scope of a listener, if it has one. None if there can't be a listener.
        """
        return None

    def check_options(self, options: TransportOptions) -> None:
        """Raise `InvalidArgumentError` for options that this transport does not support."""
        self.check_tls(options.tls)
        for name in self.unsupported_options:
            if getattr(options, name):
                raise InvalidArgumentError(f"{self.scheme}: the option {name} is not supported")

    def check_tls(self, tls: TlsOptions | None) -> None:
        """Raise `InvalidArgumentError` for the option tls, unless this transport has TLS."""
        if tls is not None and not self.supports_tls:
            raise InvalidArgumentError(f"{self.scheme}: the option tls is not supported: use tcp+tls")


def strip_traceback(error: BowstringError) -> BowstringError:
    """Return an error to be put into an event: a traceback would keep the frames of all callers alive."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error


def allocate_message(length_bytes: int, name: str) -> memoryview:
    """Return memory for bytes that a peer has announced. Pages are taken as they arrive. Raises `ResourceError`."""
    check_available_memory(length_bytes, name)
    try:
        memory = MAPPING_POOL.allocate(length_bytes) if length_bytes >= POOLED_BYTES else allocate(length_bytes)
    except (MemoryError, OverflowError, ValueError) as error:
        cause = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        raise ResourceError(f"{name}: no memory for {length_bytes} bytes: {error}", cause) from error
    return memory.data


def as_writable_bytes(destination: Any, length_bytes: int) -> memoryview:
    """Return the bytes of a host buffer for `Channel.accept_offered_message`.

    Raises `InvalidArgumentError` if it is unsuitable.
    """
    view = memoryview(destination).cast("B")
    if view.readonly or view.nbytes != length_bytes:
        access = "read-only" if view.readonly else "writable"
        raise InvalidArgumentError(
            f"destination: expected {length_bytes} writable bytes, found {view.nbytes} {access} bytes"
        )
    return view
