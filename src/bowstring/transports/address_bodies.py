"""The bodies of a client's messages that were sent as addresses: located in the peer's memory, or copied from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import ClientEvent, ServerEvent, StreamMessage
from bowstring.dissociated.messages import AddressBody
from bowstring.errors import LimitError, ProtocolError
from bowstring.memory.buffer import ALIGNMENT_BYTES
from bowstring.transports.base import (
    UNKNOWN_BYTES,
    BufferLocations,
    Fetch,
    RemoteMemory,
    Uint64Array,
    allocate_message,
)

_MAX_COPYING_BYTES = 1 << 26
"""Bodies of this size are copied at a time, because the caller may take one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageLocated:
    """Client: the next message in order, whose body was sent as addresses.

    `memory` contains all buffers, at `offsets`. It is the peer's memory, leased until `Session.release_lease(lease)`,
    or a copy, for which `lease` is None.
    """

    message: StreamMessage
    memory: Any
    offsets: Uint64Array
    lease: Lease | None


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """The leased addresses of one body, and the connection that leased them."""

    core: ClientStream
    body: AddressBody


ReadEvent: TypeAlias = ClientEvent | ServerEvent | MessageLocated
"""An event of the protocol, or in place of a message with addresses the message with its memory."""


@dataclass(slots=True, eq=False)
class _PendingCopy:
    """A message whose body has to be copied or fetched. `locations` is None for buffers in several extents."""

    message: StreamMessage
    lease: Lease
    locations: BufferLocations | None
    located: MessageLocated | None = None
    """The message with its copy, once that has started."""
    fetches: list[Fetch] = field(default_factory=list)

    def is_complete(self) -> bool:
        """Whether the copy has ended. Raises the error of a part that failed."""
        for fetch in self.fetches:
            if fetch.error is not None:
                raise fetch.error
        return self.located is not None and all(fetch.is_done for fetch in self.fetches)


class AddressBodyReader:
    """Locates bodies in the peer's memory, or copies them, and keeps the order of all events.

    Leases that need no memory any more are appended to `released_leases`.
    """

    def __init__(self, memory: RemoteMemory | None, copies_memory: bool, released_leases: deque[Lease]) -> None:
        self._memory = memory
        self._copies_memory = copies_memory
        self._released_leases = released_leases
        # Once a body waits for its copy, every later event waits behind it, so the order of the stream is kept.
        self._undelivered: deque[ReadEvent | _PendingCopy] = deque()
        self._waiting_copies: deque[_PendingCopy] = deque()
        """Entries of `_undelivered` whose copies have not started."""
        self._copying_bytes = 0
        """The size of the bodies whose copies have started."""

    @property
    def can_start_copy(self) -> bool:
        """Whether the next call of `advance` starts to copy a body."""
        return bool(self._waiting_copies) and self._copying_bytes < _MAX_COPYING_BYTES

    @property
    def has_waiting_copies(self) -> bool:
        """Whether bodies wait whose addresses are needed later."""
        return bool(self._waiting_copies)

    @property
    def has_undelivered_events(self) -> bool:
        """Whether `advance` has more to return."""
        return bool(self._undelivered)

    def read(self, event: ClientEvent | ServerEvent, core: object) -> ReadEvent | None:
        """Return an event of `core`, a message with addresses once its buffers are located; None if it has to wait."""
        entry: ReadEvent | _PendingCopy = event
        if isinstance(event, StreamMessage) and isinstance(event.body, AddressBody):
            assert isinstance(core, ClientStream)
            entry = self._locate(event, event.body, core)
        if isinstance(entry, _PendingCopy):
            self._waiting_copies.append(entry)
        elif not self._undelivered:
            return entry
        self._undelivered.append(entry)
        return None

    def _locate(self, message: StreamMessage, body: AddressBody, core: ClientStream) -> MessageLocated | _PendingCopy:
        """Check the addresses, once for all transports. Buffers of one extent stay there if it can be viewed."""
        memory, lease = self._memory, Lease(core, body)
        if not body.num_leased:
            self._released_leases.append(lease)
            return MessageLocated(message, b"", np.zeros(body.lengths.size, np.uint64), None)
        if memory is None:
            raise ProtocolError(f"message {message.sequence}: found addresses, but the peer exports no memory")
        try:
            locations = _locate_in_one_extent(memory, body)
        except ProtocolError as error:
            raise ProtocolError(f"message {message.sequence}: {error}") from error
        view = None if locations is None or self._copies_memory else memory.view_extent(locations.extent)
        # Copied or fetched: a view can't span extents, some transports have none, and with `copies_memory` the
        # addresses are to be freed at once.
        if locations is None or view is None:
            return _PendingCopy(message, lease, locations)
        return MessageLocated(message, view, locations.offsets, lease)

    def advance(self, has_events: bool) -> Sequence[ReadEvent]:
        """Copy bodies in order, some at a time, and return the events whose bodies are copied.

        With `has_events`, the caller has others, after which it may not need the bodies, as after the schema: no copy
        is started.
        """
        assert self._memory is not None
        while self.can_start_copy and not has_events:
            copy = self._waiting_copies.popleft()
            self._copying_bytes += copy.lease.body.exact_bytes
            self._start_copy(copy, self._memory)
        events: list[ReadEvent] = []
        while self._undelivered:
            entry = self._undelivered[0]
            if isinstance(entry, _PendingCopy):
                # An error ends the connection, so that no other fetch of the body has to be withdrawn.
                if not entry.is_complete():
                    break
                assert entry.located is not None
                self._copying_bytes -= entry.lease.body.exact_bytes
                self._released_leases.append(entry.lease)
                entry = entry.located
            events.append(entry)
            self._undelivered.popleft()
        return events

    def _start_copy(self, copy: _PendingCopy, memory: RemoteMemory) -> None:
        """Start to copy a body: as a whole if its buffers are close together, otherwise each buffer."""
        body, locations = copy.lease.body, copy.locations
        # Where the size of the peer's memory is unknown, only the buffers are known to be readable, not what is
        # between them.
        span = None if locations is None or memory.size_bytes >= UNKNOWN_BYTES else _find_span(locations, body.lengths)
        if locations is None or span is None:
            self._start_copy_of_buffers(copy, memory)
            return
        start, size_bytes = span
        destination = allocate_message(size_bytes, f"message {copy.message.sequence}")
        # Empty buffers may have any address: their difference would wrap around.
        offsets = np.where(body.lengths > 0, locations.offsets - np.uint64(start), np.uint64(0))
        copy.located = MessageLocated(copy.message, destination, offsets, None)
        whole = locations._replace(offsets=np.array([start], np.uint64))
        copy.fetches += memory.start_fetch(whole, np.array([size_bytes], np.uint64), destination)

    def _start_copy_of_buffers(self, copy: _PendingCopy, memory: RemoteMemory) -> None:
        """Start to copy the buffers of a body one by one, each aligned to 64 bytes."""
        body = copy.lease.body
        if body.exact_bytes > memory.size_bytes:
            raise LimitError(f"{body.exact_bytes} bytes at addresses, more than all regions have")
        # Bounded by the memory of the peer, compared above, so that the sum can't overflow.
        ends = np.cumsum((body.lengths.astype(np.int64) + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES)
        destination = allocate_message(int(ends[-1]), f"message {copy.message.sequence}")
        starts = np.concatenate(([0], ends[:-1]))
        copy.located = MessageLocated(copy.message, destination, starts.astype(np.uint64), None)
        for indices, locations in memory.group_buffers_by_extent(body.addresses, body.lengths):
            for index, offset in zip(indices.tolist(), locations.offsets.tolist(), strict=True):
                start, length = int(starts[index]), int(body.lengths[index])
                target = destination[start : start + length]
                # Pooled memory is not cleared: the padding would have bytes of an earlier body.
                destination[start + length : int(ends[index])] = bytes(int(ends[index]) - start - length)
                location = locations._replace(offsets=np.array([offset], np.uint64))
                copy.fetches += memory.start_fetch(location, body.lengths[index : index + 1], target)


def _locate_in_one_extent(memory: RemoteMemory, body: AddressBody) -> BufferLocations | None:
    """Return the location of a body's buffers; None if they are in several extents."""
    try:
        return memory.locate_buffers(body.addresses, body.lengths)
    except ProtocolError:
        # Only other implementations send bodies of several extents.
        if len(memory.group_buffers_by_extent(body.addresses, body.lengths)) == 1:
            raise
    return None


def _find_span(locations: BufferLocations, lengths: Uint64Array) -> tuple[int, int] | None:
    """Return the offset and size of the range of an extent that contains all buffers; None if most of it is between
    them. The offset is aligned to 64 bytes.
    """
    is_used = lengths > 0
    offsets, ends = locations.offsets[is_used], (locations.offsets + lengths)[is_used]
    start = int(offsets.min()) & -ALIGNMENT_BYTES
    size_bytes = int(ends.max()) - start
    # One copy of a range is faster than one per buffer, but a peer must not make this end allocate and read much more
    # than it sends.
    is_dense = size_bytes <= 2 * int(lengths.sum()) + ALIGNMENT_BYTES * lengths.size
    return (start, size_bytes) if is_dense else None
