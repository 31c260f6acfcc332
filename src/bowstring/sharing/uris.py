"""What our URIs and tickets say beyond the protocol («URI Specification»): parameters of ours, and why a server
refused.

A URI of `bowstring.serve` looks like `unix:@bowstring-…?want_data=1&free_data=2&error_data=1099511627779&ticket=NAME`:

* `ticket`: the bytes of the <want_data> message, as text. Another protocol may carry them instead.
* `error_data`: a tag with a type in bits 56 to 63 that no body has, and the highest sequence number, which no client
  waits for. A server that can't serve a ticket sends one message with this tag before it closes the connection: a line
  with the kind of error, then the text. A client that does not know the parameter sees the connection close.
* `max_tickets`: how many data sets of one schema a request may ask for; one stream has all of their batches.

A ticket is the name of a data set; with a zero byte and "packed" behind it, bodies come as bytes (type 0) rather than
as addresses. A ticket for several is a zero byte, and each name with a zero byte behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeGuard

from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.dissociated.wire import BODY_TYPE_SHIFT, SEQUENCE_MASK, UINT64_MODULUS, decode_tag
from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
    UsageError,
)

WANT_DATA = 1
FREE_DATA = 2
MAX_TICKETS = 256
"""How many data sets one request may ask for."""
ERROR_DATA = 0xFF << BODY_TYPE_SHIFT | SEQUENCE_MASK

_PACKED = b"\0packed"
_KINDS: dict[str, type[BowstringError]] = {
    "not-found": NotFoundError,
    "invalid": InvalidDataError,
    "resource": ResourceError,
    "usage": UsageError,
    "busy": ConnectionLostError,
}
_MAX_TEXT = 4000
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a client asks for: data sets, most often one, and whether their bodies come as bytes."""

    names: tuple[str, ...]
    packed: bool = False

    def encode(self) -> bytes:
        """The bytes of the <want_data> message."""
        text = self.names[0] if len(self.names) == 1 else "\0".join(("", *self.names, ""))
        return text.encode() + (_PACKED if self.packed else b"")

    @classmethod
    def decode(cls, data: bytes) -> Ticket:
        """What the bytes ask for; any bytes ask for something."""
        packed = data.endswith(_PACKED)
        text = (data[: -len(_PACKED)] if packed else data).decode("utf-8", "backslashreplace")
        names = text[1:].removesuffix("\0").split("\0") if text.startswith("\0") else [text]
        return cls(tuple(names), packed)

    def __str__(self) -> str:
        first, last = self.names[0], self.names[-1]
        return f"data set {first!r}" if len(self.names) == 1 else f"data sets {first!r} to {last!r}"


def uri_for(address: str, name: object) -> str:
    """The URI of the data set `name` of the server at a unix address."""
    if not _is_text(name) or "\0" in name:
        raise UsageError(f"the name of a data set is text that is not empty and has no zero byte, not {name!r}")
    parameters = (("error_data", str(ERROR_DATA)), ("max_tickets", str(MAX_TICKETS)), ("ticket", name))
    return str(StreamURI("unix", address, WANT_DATA, FREE_DATA, parameters=parameters))


def error_tag(uri: StreamURI) -> int | None:
    """The tag of messages that say why a server refused; None if the URI has none, or one that a body may have."""
    value = uri.parameter("error_data")
    if value is None or not _TAG.fullmatch(value) or int(value) >= UINT64_MODULUS:
        return None
    try:
        decode_tag(int(value))
    except ProtocolError:
        return int(value)
    return None


def max_tickets(uri: StreamURI) -> int:
    """How many data sets one request to this server may ask for."""
    value = uri.parameter("max_tickets")
    return min(int(value), MAX_TICKETS) if value is not None and _TAG.fullmatch(value) else 1


def server_of(uri: StreamURI) -> StreamURI:
    """The URI without its ticket: equal for data sets that one connection can be asked for."""
    return replace(uri, parameters=tuple(entry for entry in uri.parameters if entry[0] != "ticket"))


def encode_error(error: BowstringError) -> bytes:
    """The body of a message with the tag `error_data`."""
    kind = next((kind for kind, type_ in _KINDS.items() if isinstance(error, type_)), "invalid")
    return f"{kind}\n{str(error)[:_MAX_TEXT]}".encode("utf-8", "backslashreplace")


def decode_error(data: bytes | memoryview, where: str) -> BowstringError:
    """The error that a server told of."""
    kind, _, text = bytes(data[: 2 * _MAX_TEXT]).decode("utf-8", "replace").partition("\n")
    return _KINDS.get(kind, ProtocolError)(f"{where}: {text or 'the server gives no reason'}")


def parse(text: str, ticket: str | None = None) -> tuple[StreamURI, str]:
    """A unix URI and the ticket, the given one rather than the URI's. Raises `UsageError`, and `ProtocolError` as
    `parse_uri`.
    """
    if not isinstance(text, str):
        raise UsageError(f"expected a URI, not {type(text).__name__}")
    scheme = text.partition(":")[0]
    if scheme.lower() != "unix" and scheme.isalnum():
        raise UsageError(f"URI {text!r}: expected the scheme unix, found {scheme}")
    uri = parse_uri(text)
    ticket = uri.parameter("ticket") if ticket is None else ticket
    if not ticket:
        raise UsageError(f"URI {text!r} names no data set: give a ticket")
    if not _is_text(ticket):
        raise UsageError(f"ticket: expected text, found {ticket!r}")
    return uri, ticket


def _is_text(value: object) -> TypeGuard[str]:
    """Whether it is text, not empty, that bytes can be made of: a surrogate can't."""
    return isinstance(value, str) and value != "" and not _SURROGATE.search(value)
