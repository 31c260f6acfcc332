"""The reference transport: two ends in one process, joined by bounded queues; what the others are compared with."""

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
    Received,
    RegionIndexes,
    Transport,
    TransportOptions,
    allocated,
)
from bowstring.transports.regions import RegionTable


@dataclass(frozen=True, slots=True)
class _Parcel:
    tag: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class _Passed:
    index: int
    region: Region


@dataclass(frozen=True, slots=True)
class _Retired:
    index: int


_Item: TypeAlias = _Parcel | _Passed | _Retired


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
        """Append an item, without a deadline at once, however many wait."""
        with self.changed:
            ready = deadline is None or self.changed.wait_for(self._can_take, deadline.remaining_s())
            if self.is_broken:
                raise ConnectionLostError("loopback: the peer is gone")
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
            raise ConnectionLostError("loopback: the peer is gone")

    def end(self, *, discard: bool) -> None:
        """End this direction; what was sent already can still be received, unless its receiver is the one who ends."""
        with self.changed:
            self.is_broken = True
            if discard:
                for item in self.items:
                    if isinstance(item, _Passed):
                        item.region.close()
                self.items.clear()
            self.changed.notify_all()


class LoopbackTransport(Transport):
    """One end of a pair; made by `pair`. The bytes of a message are copied once, as a network would."""

    scheme: ClassVar[str] = "loopback"

    def __init__(self, outbound: _Queue, inbound: _Queue, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(options)
        self._regions = RegionTable(options.max_regions)
        self._passed_regions = RegionIndexes()
        self._outbound = outbound
        self._inbound = inbound
        self._lock = threading.Lock()
        self._is_closed = False

    @classmethod
    def pair(cls, options: TransportOptions = DEFAULT_OPTIONS) -> tuple[LoopbackTransport, LoopbackTransport]:
        """Two connected ends."""
        one, other = _Queue(options.queue_messages), _Queue(options.queue_messages)
        return cls(one, other, options), cls(other, one, options)

    @property
    def regions(self) -> RegionTable:
        """The regions that the peer passed."""
        return self._regions

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""
        return self._is_closed

    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """As `Transport.send`."""
        self._put(_Parcel(tag, b"".join(parts)), self.options.deadline(timeout_s))

    def post(self, parts: Sequence[BytesLike], *, tag: int | None = None) -> None:
        """As `Transport.post`."""
        self._put(_Parcel(tag, b"".join(parts)), None)

    def flush(self, *, timeout_s: float | None = None) -> None:  # noqa: ARG002 - of the contract
        """As `Transport.flush`: nothing waits on this side."""
        self._refuse_closed("flush")

    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """As `Transport.send_region`: passes a duplicate of the descriptor."""
        with self._lock:
            index = self._passed_regions.next()
            passed = region.duplicate()
            try:
                self._put(_Passed(index, passed), self.options.deadline(timeout_s))
            except BowstringError:
                passed.close()
                raise
            self._passed_regions.count += 1
            return index

    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """As `Transport.retire_region`."""
        self._passed_regions.check(index)
        self._put(_Retired(index), self.options.deadline(timeout_s))

    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> Received:
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
                if isinstance(item, _Parcel):
                    return self._deliver(item, allocate)
                if isinstance(item, _Retired):
                    self.regions.forget(item.index)
                else:
                    self._take_region(item)
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

    def _take_region(self, item: _Passed) -> None:
        region = item.region
        with close_on_error(region):
            if not region.is_sealed and not self.options.accept_files:
                raise ProtocolError(f"region {item.index}: expected sealed memory, received an ordinary file")
            self.regions.add(item.index, region)
            if not self.options.keep_descriptors:
                region.release_descriptor()

    def _deliver(self, item: _Parcel, allocate: Allocate | None) -> Received:
        length = len(item.data)
        limit = self.options.max_plain_bytes if item.tag is None else self.options.max_tagged_bytes
        if length > limit:
            raise LimitError(f"loopback: a message of {length} bytes; at most {limit} are received")
        view = allocated(allocate, item.tag, length)
        if view is None:
            return Received(item.tag, memoryview(item.data))
        view[:] = item.data
        return Received(item.tag, view)

    def _refuse_closed(self, what: str) -> None:
        if self._is_closed:
            raise ClosedError(f"loopback: {what} after close")

    def __repr__(self) -> str:
        return f"<LoopbackTransport {'closed' if self._is_closed else 'open'}, {len(self.regions)} regions received>"
