"""What happens on a connection, as values: what a received message means to the server or the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bowstring.dissociated.pairing import StreamMessage


@dataclass(frozen=True, slots=True)
class DataRequested:
    """Server: a client asked for the data that `ticket` stands for."""

    ticket: bytes


@dataclass(frozen=True, slots=True)
class AddressesFreed:
    """Server: the client needs `count` addresses no longer; what they kept alive has been let go."""

    count: int
    outstanding: int


@dataclass(frozen=True, slots=True)
class StreamComplete:
    """Either side: everything was delivered and no address is out any more: the work for this stream is done."""


@dataclass(frozen=True, slots=True)
class MessageReady:
    """Client: the next message in order, with its body. Sequence number 0 is the schema."""

    message: StreamMessage


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Client: all messages were given out. Addresses may still be held; `sequence` is the number of the end."""

    sequence: int


ServerEvent: TypeAlias = DataRequested | AddressesFreed | StreamComplete
ClientEvent: TypeAlias = MessageReady | StreamEnded | StreamComplete
