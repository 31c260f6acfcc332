"""Events: the meaning of a received message for the server or the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bowstring.dissociated.messages import Body, BytesLike


@dataclass(frozen=True, slots=True)
class DataRequested:
    """Server: a client requested the data identified by `ticket`, which may be secret."""

    ticket: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AddressesFreed:
    """Server: the client freed `count` addresses; their owners were released."""

    count: int
    outstanding: int


@dataclass(frozen=True, slots=True)
class StreamComplete:
    """Server and client: all messages were delivered and all addresses freed."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamMessage:
    """Client: the next message in order, with its body if it has one. Sequence number 0 is the schema."""

    sequence: int
    header: BytesLike
    body: Body | None

    def __repr__(self) -> str:
        return f"<message {self.sequence}: header of {len(self.header)} bytes, body {self.body!r}>"


@dataclass(frozen=True, slots=True)
class AllMessagesReceived:
    """Client: all messages were delivered. `sequence` is the number of the end; addresses may still be leased."""

    sequence: int


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """Client: the server sent an error, in a message with the tag of the URI's parameter `error_data`."""

    error_data: bytes


ServerEvent: TypeAlias = DataRequested | AddressesFreed | StreamComplete
ClientEvent: TypeAlias = StreamMessage | AllMessagesReceived | StreamComplete | RequestRefused
