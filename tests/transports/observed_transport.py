"""Observe the channels of any transport: an `ObservedTransport` wraps another one, and reports what passes.

A test can stop a process, or kill it, at a certain step of the protocol. `TRANSPORTS["unix"] = ObservedTransport(UNIX,
…)` does so for all servers and clients of a process (`bowstring.serve`, `bowstring.connect`) that are created later. A
session submits several messages before it sends them; with `is_stepwise`, each one is sent before the next is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from bowstring.dissociated.messages import BytesLike
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    SEND,
    Channel,
    Event,
    ExportedRegion,
    Interest,
    Listener,
    MemoryExporter,
    RemoteMemory,
    Transport,
    TransportOptions,
    Wait,
)
from bowstring.transports.observer import ConnectionObserver, EventDirection, ObservedEventKind, Observer
from bowstring.transports.tls import TlsOptions


class ObservedTransport(Transport):
    """A transport that reports what passes the channels of another one.

    `format_uri` returns the text of a connection's event for an address, by default the scheme and address. Several
    transports with one observer can share `connection_indices`. With `is_stepwise`, earlier messages are sent before a
    message is reported, as far as the transport takes them at once: a process that is killed then has sent exactly
    those.
    """

    def __init__(
        self,
        transport: Transport,
        observer: Observer,
        *,
        format_uri: Callable[[str], str] | None = None,
        connection_indices: Iterator[int] | None = None,
        is_stepwise: bool = False,
    ) -> None:
        self.is_stepwise = is_stepwise
        self._transport = transport
        self._observer = observer
        self._uri_of = format_uri
        self._connection_indices = count() if connection_indices is None else connection_indices
        for name in Transport.__annotations__:  # the scheme and other properties of the transport's class
            setattr(self, name, getattr(transport, name))

    def check_options(self, options: TransportOptions) -> None:
        self._transport.check_options(options)

    def check_tls(self, tls: TlsOptions | None) -> None:
        self._transport.check_tls(tls)

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> Listener:
        return _ObservedListener(self, self._transport.listen(address, options))

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> Channel:
        return self.wrap_channel(self._transport.dial(address, options), EventDirection.SENT, address)

    def address_scope(self, address: str) -> str | None:
        return self._transport.address_scope(address)

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory | None:
        assert isinstance(channel, _ObservedChannel)
        return self._transport.open_remote_memory(channel.channel, remote_handle)

    def wrap_channel(self, channel: Channel, direction: EventDirection, address: str) -> Channel:
        """Wrap a new channel that was dialed (sent) or accepted (received)."""
        wrapper = _ObservedChannel(channel, self._observer, next(self._connection_indices), self.is_stepwise)
        uri = f"{self.scheme}:{address}" if self._uri_of is None else self._uri_of(address)
        with call_on_error(channel.close):
            wrapper.observer.notify(direction, ObservedEventKind.CONNECTION, text=uri)
        return wrapper


class _ObservedListener(Listener):
    """A listener whose channels are observed."""

    def __init__(self, transport: ObservedTransport, listener: Listener) -> None:
        self._transport = transport
        self._listener = listener
        self.address = listener.address
        self.remote_handle = listener.remote_handle
        self.address_scope = listener.address_scope
        self.is_local = listener.is_local

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def accept(self, limit: int = 16) -> list[Channel]:
        channels = self._listener.accept(limit)
        return [self._transport.wrap_channel(channel, EventDirection.RECEIVED, self.address) for channel in channels]

    def interests(self) -> list[Interest]:
        return self._listener.interests()

    def descriptors(self) -> list[int]:
        return self._listener.descriptors()

    def shut_down(self) -> None:
        self._listener.shut_down()

    def close(self) -> None:
        self._listener.close()


class _ObservedChannel(Channel):
    """A channel that reports what passes it. Other attributes are those of `channel`."""

    def __init__(self, channel: Channel, observer: Observer, connection: int, is_stepwise: bool) -> None:
        self.channel = channel
        self._is_stepwise = is_stepwise
        # Events of sending in `submit`, which reports none: the next `progress` returns them, in order.
        self._early_events: list[Event] = []
        self.observer = ConnectionObserver(observer, connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)

    @property
    def is_connected(self) -> bool:  # type: ignore[override]
        return self.channel.is_connected

    @property
    def exporter(self) -> MemoryExporter | None:  # type: ignore[override]
        exporter = self.channel.exporter
        return None if exporter is None else _ObservedExporter(exporter, self)

    @property
    def is_sending(self) -> bool:
        return bool(self._early_events) or self.channel.is_sending

    @property
    def queued_bytes(self) -> int:
        return self.channel.queued_bytes

    @property
    def is_receiving_message(self) -> bool:
        return self.channel.is_receiving_message

    @property
    def unacknowledged_since(self) -> float:
        return self.channel.unacknowledged_since

    @property
    def wait_description(self) -> str:
        return self.channel.wait_description

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> None:
        if self._is_stepwise:
            self._early_events += self._progress(SEND)
        self.observer.report_submission(parts, tag)
        self.channel.submit(parts, tag)

    def accept_offered_message(self, token: int, destination: Any = None) -> None:
        self.channel.accept_offered_message(token, destination)

    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        self.channel.grant_credit(num_messages, nbytes)

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events: list[Event] = []
        if directions & SEND:
            events, self._early_events = self._early_events, events
        return events + self._progress(directions)

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        wait = self.channel.next_wait(directions)
        return wait._replace(timeout_s=0.0) if directions & SEND and self._early_events else wait

    def descriptors(self) -> list[int]:
        return self.channel.descriptors()

    def wake(self) -> None:
        self.channel.wake()

    def shut_down(self) -> None:
        self.channel.shut_down()

    def close(self) -> None:
        try:
            if not self.is_closed:
                self.observer.notify(EventDirection.SENT, ObservedEventKind.CLOSE)
        finally:
            self.channel.close()

    def _progress(self, directions: int) -> list[Event]:
        events = self.channel.progress(directions)
        for event in events:
            self.observer.report_event(event)
        return events

    def __repr__(self) -> str:
        return f"<observed {self.channel!r}>"


class _ObservedExporter(MemoryExporter):
    """An exporter that reports the regions that it exports."""

    __slots__ = ("_channel", "_exporter")

    def __init__(self, exporter: MemoryExporter, channel: _ObservedChannel) -> None:
        self._exporter = exporter
        self._channel = channel

    @property
    def keeps_exports(self) -> bool:  # type: ignore[override]
        return self._exporter.keeps_exports

    def can_export(self, region: Region) -> bool:
        return self._exporter.can_export(region)

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> BytesLike:
        return self._exporter.read(region, offset_bytes, size_bytes)

    def export(self, region: Region) -> ExportedRegion:
        exported_region = self._exporter.export(region)
        self._channel.observer.report_export(EventDirection.SENT, exported_region.address, region)
        return exported_region

    def retire(self, exported_region: ExportedRegion) -> None:
        self._exporter.retire(exported_region)
        self._channel.observer.report_retirement(EventDirection.SENT, exported_region.address)

    def reclaim(self) -> None:
        self._exporter.reclaim()

    def check_capacity(self, num_regions: int) -> None:
        self._exporter.check_capacity(num_regions)
