"""The URI of a data stream («URI Specification»).

>>> uri = parse_uri("unix:@bowstring-1f?want_data=1&free_data=2")
>>> uri.address, uri.want_data, uri.free_data
('@bowstring-1f', 1, 2)
>>> str(uri)
'unix:@bowstring-1f?want_data=1&free_data=2'
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

from bowstring.dissociated.messages import UINT64_MODULUS
from bowstring.errors import InvalidArgumentError, ProtocolError

# A ticket and a remote handle of some KiB fit, percent-encoded; parsing text from outside stays cheap.
_MAX_URI_CHARACTERS = 1 << 16
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_DIGITS = re.compile(r"[0-9]{1,20}")  # 2**64 - 1 has 20 digits
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
_MAX_PARAMETERS = 1000  # bounds the work of `parse_qsl`
# A text from a peer may have any length; an error shows its beginning.
_MAX_SHOWN_CHARACTERS = 200
_SAFE_IN_ADDRESS = "/@:[],;=+~"


@dataclass(frozen=True, slots=True)
class StreamURI:
    """The address of a stream, and the tags of the messages to its server.

    `address` is the percent-decoded part between the scheme and the query; the transport defines its meaning.
    `parameters` are the others, in order; `repr` hides them, because a ticket may be secret. In both, bytes that are
    not valid UTF-8 are surrogates, as in Python's file names. Raises `InvalidArgumentError` for values out of range.
    """

    scheme: str
    address: str
    want_data: int
    free_data: int | None = None
    remote_handle: bytes | None = None
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not _SCHEME.fullmatch(self.scheme):
            raise InvalidArgumentError(f"URI scheme {self.scheme!r}: expected letters, digits, +, - and .")
        for name, value in (("want_data", self.want_data), ("free_data", self.free_data)):
            if value is not None and not 0 <= value < UINT64_MODULUS:
                raise InvalidArgumentError(
                    f"URI parameter {name}: expected an unsigned integer of 64 bits, found {value}"
                )
        if self.want_data == self.free_data:
            raise InvalidArgumentError(
                f"URI parameters want_data and free_data: expected different tags, both are {self.want_data}"
            )

    def get_parameter(self, name: str) -> str | None:
        """The first value of another parameter, if any."""
        return next((value for key, value in self.parameters if key == name), None)

    def __str__(self) -> str:
        query = [("want_data", str(self.want_data))]
        if self.free_data is not None:
            query.append(("free_data", str(self.free_data)))
        if self.remote_handle is not None:
            query.append(("remote_handle", base64.b64encode(self.remote_handle).decode("ascii")))
        query.extend(self.parameters)
        address = quote(self.address, safe=_SAFE_IN_ADDRESS, errors="surrogateescape")
        return f"{self.scheme}:{address}?{urlencode(query, errors='surrogateescape', quote_via=quote)}"


def parse_uri(text: str) -> StreamURI:
    """Parse a URI. Raises `ProtocolError` that names the missing or malformed part."""
    if len(text) > _MAX_URI_CHARACTERS:
        raise ProtocolError(f"URI: expected at most {_MAX_URI_CHARACTERS} characters, found {len(text)}")
    invalid = _UNPRINTABLE.search(text)
    if invalid:
        raise ProtocolError(
            f"URI {_quote_address(text)}: character {invalid.start()} ({invalid.group()!r}) has to be percent-encoded"
        )
    scheme, colon, rest = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ProtocolError(f"URI {_quote_address(text)}: expected a scheme such as 'unix:' at its beginning")
    address, _, query = rest.partition("#")[0].partition("?")
    if query.count("&") >= _MAX_PARAMETERS:
        raise ProtocolError(f"URI: expected at most {_MAX_PARAMETERS} parameters, found {query.count('&') + 1}")
    values: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for key, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape"):
        if key not in ("want_data", "free_data", "remote_handle"):
            others.append((key, value))
        elif key in values:
            raise ProtocolError(f"URI {_quote_address(text)}: parameter {key} is given twice")
        else:
            values[key] = value
    if "want_data" not in values:
        raise ProtocolError(f"URI {_quote_address(text)}: the required parameter want_data is missing")
    want_data = _parse_tag(text, "want_data", values["want_data"])
    free_data = _parse_tag(text, "free_data", values["free_data"]) if "free_data" in values else None
    if want_data == free_data:
        raise ProtocolError(f"URI {_quote_address(text)}: parameters want_data and free_data are the same tag")
    handle = _parse_remote_handle(text, values["remote_handle"]) if "remote_handle" in values else None
    decoded = unquote(address, errors="surrogateescape")
    return StreamURI(scheme.lower(), decoded, want_data, free_data, handle, tuple(others))


def _quote_address(text: str) -> str:
    """The `repr` of a URI for an error message, without its parameters, which may be secret."""
    address, mark, _ = text.partition("?")
    return _truncated_repr(address + mark + ("…" if mark else ""))


def _truncated_repr(text: str) -> str:
    """The `repr` of a text for an error message, truncated if it is long."""
    return repr(text) if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]!r}…"


def _parse_tag(text: str, name: str, value: str) -> int:
    if not _DIGITS.fullmatch(value) or int(value) >= UINT64_MODULUS:
        raise ProtocolError(
            f"URI {_quote_address(text)}: parameter {name}: expected an unsigned integer of 64 bits, "
            f"found {_truncated_repr(value)}"
        )
    return int(value)


def _parse_remote_handle(text: str, value: str) -> bytes:
    # A base64 "+" that was not percent-encoded arrives as a space.
    value = value.replace(" ", "+").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError(
            f"URI {_quote_address(text)}: parameter remote_handle: expected base64, found {_truncated_repr(value)}"
        ) from None
