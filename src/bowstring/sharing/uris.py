"""URIs and tickets of `bowstring.serve` («URI Specification»), and its error messages.

A URI of `bowstring.serve` looks like `unix:@bowstring-…?want_data=1&free_data=2&error_data=…&ticket=NAME`:

* `ticket`: the bytes of the <want_data> message, percent-encoded.
* `error_data`: a tag with a body type that does not exist, and the highest sequence number. A server that can't serve a
  ticket sends one message with this tag before it closes the connection: a line with the kind of error, then the text.
  Clients that do not support the parameter only see a closed connection.
* `max_tickets`: the maximum number of data sets, with one schema, in a request; one stream has all batches.
* `scope`: the host, network or folder in which the address is valid, if not everywhere; see
  `bowstring.transports.address_scope`. Only clients with several locations compare it.
* `bodies`: the URI of the server of the bodies, if another one sends the metadata; it has its own `ticket`.

A ticket is the name of a data set, signed if the server has a key. Followed by a zero byte and "packed", it requests
bodies as bytes (type 0). A ticket for several data sets is a zero byte, then each name followed by a zero byte. The
tickets of servers whose URIs have no `max_tickets` are opaque bytes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from bowstring.dissociated.messages import BODY_TYPE_SHIFT, SEQUENCE_MASK, is_error_tag
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
)
from bowstring.redaction import redact
from bowstring.transports.registry import find_transport
from bowstring.transports.sockets.tcp_address import is_host_and_port

# The tags of requests in our URIs. The specification leaves their choice to the server.
WANT_DATA = 1
FREE_DATA = 2
WANT_METADATA = 3
WANT_BODIES = 4
ROLES = {WANT_DATA: ConnectionRole.BOTH, WANT_METADATA: ConnectionRole.METADATA, WANT_BODIES: ConnectionRole.BODIES}
"""What a server sends, by the tag of the request."""
MAX_TICKETS = 256
"""The maximum number of data sets in a request."""
PUBLISHED_ADDRESS_PREFIX = "@bowstring-published-"
"""The beginning of the address of a host agent's server, whose data ends with the agent."""
ERROR_DATA = 0xFF << BODY_TYPE_SHIFT | SEQUENCE_MASK

_PACKED = b"\0packed"
_ERROR_TYPES: dict[str, type[BowstringError]] = {
    "not-found": NotFoundError,
    "invalid": InvalidDataError,
    "denied": AccessDeniedError,
    "resource": ResourceError,
    "usage": InvalidArgumentError,
    "busy": ConnectionLostError,
}
# Limits on the texts of errors and logs, of which a peer or a caller chose the length.
_MAX_TEXT = 4000
_MAX_ABBREVIATION = 8
_MAX_ADDRESS = 200
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request for one or more data sets. `is_packed` requests bodies as bytes.

    Names are text. An opaque ticket is one name, in which bytes that are not valid UTF-8 are surrogates. Signed names
    are secret: `str` and `repr` hide the signatures.
    """

    names: tuple[str, ...] = field(repr=False)
    is_packed: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the <want_data> message."""
        text = self.names[0] if len(self.names) == 1 else "\0".join(("", *self.names, ""))
        return text.encode(errors="surrogateescape") + (_PACKED if self.is_packed else b"")

    @classmethod
    def decode(cls, data: bytes) -> Ticket:
        """Decode the bytes of a <want_data> message; any bytes are a ticket."""
        is_packed = data.endswith(_PACKED)
        text = (data[: -len(_PACKED)] if is_packed else data).decode(errors="surrogateescape")
        names = text[1:].removesuffix("\0").split("\0") if text.startswith("\0") else [text]
        return cls(tuple(names), is_packed)

    @property
    def redacted_label(self) -> str:
        """The beginning of the first name, for logs: a name without a signature may be a secret."""
        first = self.names[0]
        beginning = redact(first)
        if beginning == first:
            beginning = f"{first[: min(len(first) // 2, _MAX_ABBREVIATION)]}…"
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"data set {beginning!r}{more}"

    def __str__(self) -> str:
        first, last = redact(self.names[0]), redact(self.names[-1])
        return f"data set {first!r}" if len(self.names) == 1 else f"data sets {first!r} to {last!r}"


def format_dataset_uri(server: StreamURI, name: object) -> str:
    """Return the URI of the data set `name` of a server.

    Raises `InvalidArgumentError` for invalid names.
    """
    if not _is_utf8_text(name) or "\0" in name:
        raise InvalidArgumentError(f"name of a data set: expected non-empty text without zero bytes, found {name!r}")
    return str(replace(server, parameters=(*server.parameters, ("ticket", name))))


def create_server_uri(
    address: str,
    scheme: str = "unix",
    remote_handle: bytes | None = None,
    scope: str | None = None,
    role: ConnectionRole = ConnectionRole.BOTH,
) -> StreamURI:
    """Return the URI of a server, without a ticket."""
    parameters = [("error_data", str(ERROR_DATA)), ("max_tickets", str(MAX_TICKETS))]
    if scope is not None:
        parameters.append(("scope", scope))
    want_data = next(tag for tag, each in ROLES.items() if each is role)
    return StreamURI(scheme, address, want_data, FREE_DATA, remote_handle, tuple(parameters))


def parse_error_tag(uri: StreamURI) -> int | None:
    """Return the tag of error messages; None if the URI has none, or an invalid one."""
    value = uri.get_parameter("error_data")
    return int(value) if value is not None and _TAG.fullmatch(value) and is_error_tag(int(value)) else None


def parse_max_tickets(uri: StreamURI) -> int:
    """Return the maximum number of data sets in a request to this server."""
    value = uri.get_parameter("max_tickets")
    if uri.get_parameter("bodies") is not None:
        return 1
    return max(min(int(value), MAX_TICKETS), 1) if value is not None and _TAG.fullmatch(value) else 1


def without_ticket(uri: StreamURI) -> StreamURI:
    """Return the URI without its ticket; it is equal for data sets that one connection can request."""
    return replace(uri, parameters=tuple(entry for entry in uri.parameters if entry[0] != "ticket"))


def shorten_uri(text: str) -> str:
    """Return a URI for people, without the parameters that only improve errors, and requests for several data sets or
    with several locations.
    """
    uri = parse_uri(text)
    others = tuple(each for each in uri.parameters if each[0] not in ("error_data", "max_tickets", "scope"))
    return str(replace(uri, parameters=others))


def encode_error_message(error: BowstringError) -> bytes:
    """Encode an error as the body of a message with the tag `error_data`."""
    kind = next((kind for kind, type_ in _ERROR_TYPES.items() if isinstance(error, type_)), "invalid")
    return f"{kind}\n{str(error)[:_MAX_TEXT]}".encode("utf-8", "backslashreplace")


def decode_error_message(data: bytes | memoryview, prefix: str) -> BowstringError:
    """Decode the error of a message with the tag `error_data`; `prefix` is the prefix of its text."""
    kind, _, text = bytes(data[: 2 * _MAX_TEXT]).decode("utf-8", "replace").partition("\n")
    return _ERROR_TYPES.get(kind, ProtocolError)(f"{prefix}: {text or 'the server gives no reason'}")


def parse_scheme(uri: str) -> str:
    """Return the scheme of a URI, in lower case."""
    return uri.partition(":")[0].lower()


def servers_by_role(uri: StreamURI) -> dict[ConnectionRole, StreamURI]:
    """Return the URI of the server for each role: one for both, or with the parameter `bodies` one for each.

    Raises `InvalidArgumentError`, `ProtocolError` for a malformed URI of the bodies.
    """
    text = uri.get_parameter("bodies")
    return (
        {ConnectionRole.BOTH: uri}
        if text is None
        else {ConnectionRole.METADATA: uri, ConnectionRole.BODIES: parse_dataset_uri(text)[0]}
    )


def join_role_uris(metadata: StreamURI, bodies: StreamURI, ticket: bytes) -> str:
    """Return the URI of the server of the metadata with the URI of the bodies, which takes the same ticket."""
    others = tuple(parameter for parameter in bodies.parameters if parameter[0] != "ticket")
    text = str(replace(bodies, parameters=(*others, ("ticket", ticket.decode("utf-8", "surrogateescape")))))
    return str(replace(metadata, parameters=(*metadata.parameters, ("bodies", text))))


def requests_packed_bodies(uri: StreamURI, copy: bool) -> bool:
    """Return whether a ticket requests bodies as bytes: for a copy, or because their addresses could not be freed.

    Only servers of Bowstring support it.
    """
    *_, server = servers_by_role(uri).values()  # of two, the server of the bodies
    return server.get_parameter("max_tickets") is not None and (copy or server.free_data is None)


def parse_dataset_uri(text: str, ticket: str | bytes | None = None) -> tuple[StreamURI, str]:
    """Parse the URI of a data set; return it and its ticket, which `ticket` overrides, as a name of `Ticket`.

    Raises `InvalidArgumentError`, and `ProtocolError` as `parse_uri`.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"expected a URI, not {type(text).__name__}")
    scheme, colon, _ = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme) or is_host_and_port(text):
        raise InvalidArgumentError(_describe_missing_scheme(text))
    find_transport(scheme.lower(), text)
    uri = parse_uri(text)
    if isinstance(ticket, bytes | bytearray | memoryview):
        return uri, bytes(ticket).decode(errors="surrogateescape")
    if ticket is not None and not _is_utf8_text(ticket):
        raise InvalidArgumentError(f"ticket: expected bytes or text, found {ticket!r}")
    ticket = uri.get_parameter("ticket") if ticket is None else ticket
    if not ticket:
        raise InvalidArgumentError(f"URI {text!r}: expected a ticket: add the parameter ticket, or pass it to connect")
    return uri, ticket


def _describe_missing_scheme(text: str) -> str:
    """The message for text that is not a URI, such as the address of a server."""
    address = text.partition("?")[0]
    problem = f"expected the URI of a data set, found {address[:_MAX_ADDRESS]!r}"
    tags = f"want_data={WANT_DATA}&free_data={FREE_DATA}"
    if is_host_and_port(address):
        return f"{problem}: use server.uri(NAME), or 'tcp://{address.removeprefix('//')}?{tags}&ticket=NAME'"
    if address.startswith("@") or os.sep in address:
        return (
            f"{problem}: use server.uri(NAME), or 'unix:{address}?{tags}&ticket=NAME'; for a file, bowstring.open_file"
        )
    return (
        f"{problem}: use server.uri(NAME), such as 'unix:@ADDRESS?{tags}&ticket=NAME'; for a name that was published, "
        "bowstring.open_published; for a file, bowstring.open_file"
    )


def _is_utf8_text(value: object) -> TypeGuard[str]:
    """Whether `value` is text that is not empty and can be encoded as UTF-8, without surrogates."""
    return isinstance(value, str) and value != "" and not _SURROGATE.search(value)
