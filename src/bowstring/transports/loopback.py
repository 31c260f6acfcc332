"""The reference transport: two ends in one process, connected by bounded queues."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import BowstringError, ClosedError, ConnectionLostError, LimitError, ProtocolError
from bowstring.memory.closable import close_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Allocate,
    Deadline,
    ReceivedMessage,
    RegionCounter,
    Transport,
    TransportOptions,
    call_allocate,
)
from bowstring.transports.regions import RegionTable


@dataclass(frozen=True, slots=True)
class _QueuedMessage:
    tag: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class _QueuedRegion:
    index: int
    region: Region


@dataclass(frozen=True, slots=True)
class _QueuedRetirement:
    index: int


_Item: TypeAlias = _QueuedMessage | _QueuedRegion | _QueuedRetirement


class _Queue:
    """One direction."""

    __slots__ = ("changed", "is_broken", "items", "limit")

    def __init__(self, limit: int) -> None:
        self.changed = threading.Condition()
        self.items: deque[_Item] = deque()
        self.limit = limit
        self.is_broken = False

    def _can_take(self) -> bool:
        return self.is_broken or len(self.items) < self.limit

    def put(self, item: _Item, deadline: Deadline | None) -> None:
        """Append an item; without a deadline, ignore the limit."""
        with self.changed:
            ready = deadline is None or self.changed.wait_for(self._can_take, deadline.remaining_s())
            if self.is_broken:
                raise ConnectionLostError("loopback: the peer disconnected")
            if deadline is not None and not ready:
                raise deadline.error(f"loopback: sending while {self.limit} messages wait")
            self.items.append(item)
            self.changed.notify_all()

    def get(self, deadline: Deadline) -> _Item:
        with self.changed:
            ready = self.changed.wait_for(lambda: self.is_broken or bool(self.items), deadline.remaining_s())
            if self.items:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            if not ready:
                raise deadline.error("loopback: receiving")
            raise ConnectionLostError("loopback: the peer disconnected")

    def end(self, *, discard: bool) -> None:
        """End this direction. Queued items can still be received unless `discard` is set."""
        with self.changed:
            self.is_broken = True
            if discard:
                for item in self.items:
                    if isinstance(item, _QueuedRegion):
                        item.region.close()
                self.items.clear()
            self.changed.notify_all()


class LoopbackTransport(Transport):
    """One end of a pair, created by `pair`. The bytes of a message are copied once."""

    scheme: ClassVar[str] = "loopback"

    def __init__(self, outbound: _Queue, inbound: _Queue, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(options)
        self._regions = RegionTable(options.max_regions)
        self._sent_regions = RegionCounter()
        self._outbound = outbound
        self._inbound = inbound
        self._lock = threading.Lock()
        self._is_closed = False

    @classmethod
    def pair(cls, options: TransportOptions = DEFAULT_OPTIONS) -> tuple[LoopbackTransport, LoopbackTransport]:
        """Two connected ends."""
        forward, backward = _Queue(options.queue_messages), _Queue(options.queue_messages)
        return cls(forward, backward, options), cls(backward, forward, options)

    @property
    def regions(self) -> RegionTable:
        """The received regions."""
        return self._regions

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""
        return self._is_closed

    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """As `Transport.send`."""
        self._put(_QueuedMessage(tag, b"".join(parts)), self.options.deadline(timeout_s))

    def post(self, parts: Sequence[BytesLike], *, tag: int | None = None) -> None:
        """As `Transport.post`."""
        self._put(_QueuedMessage(tag, b"".join(parts)), None)

    def flush(self, *, timeout_s: float | None = None) -> None:  # noqa: ARG002 - of the contract
        """As `Transport.flush`; there is nothing to send."""
        self._refuse_closed("flush")

    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """As `Transport.send_region`: passes a duplicate of the descriptor."""
        with self._lock:
            index = self._sent_regions.next()
            duplicate = region.duplicate()
            try:
                self._put(_QueuedRegion(index, duplicate), self.options.deadline(timeout_s))
            except BowstringError:
                duplicate.close()
                raise
            self._sent_regions.count += 1
            return index

    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """As `Transport.retire_region`."""
        self._sent_regions.check(index)
        self._put(_QueuedRetirement(index), self.options.deadline(timeout_s))

    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> ReceivedMessage:
        """As `Transport.receive`."""
        deadline = self.options.deadline(timeout_s)
        while True:
            self._refuse_closed("receive")
            try:
                item = self._inbound.get(deadline)
            except ConnectionLostError:
                self._refuse_closed("receive")
                raise
            try:
                if isinstance(item, _QueuedMessage):
                    return self._deliver(item, allocate)
                if isinstance(item, _QueuedRetirement):
                    self.regions.forget(item.index)
                else:
                    self._receive_region(item)
            except BowstringError:
                self.close()
                raise

    def close(self) -> None:
        """As `Transport.close`."""
        self._is_closed = True
        self._outbound.end(discard=False)
        self._inbound.end(discard=True)
        self.regions.close()

    def _put(self, item: _Item, deadline: Deadline | None) -> None:
        self._refuse_closed("send")
        try:
            self._outbound.put(item, deadline)
        except ConnectionLostError:
            self._refuse_closed("send")
            raise

    def _receive_region(self, item: _QueuedRegion) -> None:
        region = item.region
        with close_on_error(region):
            if not region.is_sealed and not self.options.accept_files:
                raise ProtocolError(f"region {item.index}: expected sealed memory, received an ordinary file")
            self.regions.add(item.index, region)
            if not self.options.keep_descriptors:
                region.release_descriptor()

    def _deliver(self, item: _QueuedMessage, allocate: Allocate | None) -> ReceivedMessage:
        length = len(item.data)
        limit = self.options.max_plain_bytes if item.tag is None else self.options.max_tagged_bytes
        if length > limit:
            raise LimitError(f"loopback: a message of {length} bytes; at most {limit} are received")
        view = call_allocate(allocate, item.tag, length)
        if view is None:
            return ReceivedMessage(item.tag, memoryview(item.data))
        view[:] = item.data
        return ReceivedMessage(item.tag, view)

    def _refuse_closed(self, what: str) -> None:
        if self._is_closed:
            raise ClosedError(f"loopback: {what} after close")

    def __repr__(self) -> str:
        return f"<LoopbackTransport {'closed' if self._is_closed else 'open'}, {len(self.regions)} regions received>"
