"""The address of a data stream («URI Specification»).

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
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from bowstring.dissociated.wire import UINT64_MODULUS
from bowstring.errors import ProtocolError, UsageError

_MAX_URI_CHARACTERS = 1 << 16
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_DIGITS = re.compile(r"[0-9]{1,20}")
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
_MOST_PARAMETERS = 1000
_MOST_SHOWN = 200
_SAFE_IN_ADDRESS = "/@:[],;=+~"


@dataclass(frozen=True, slots=True)
class StreamURI:
    """Where a stream is, and the tags that its server wants.

    `address` is what stands between the scheme and the query, percent-decoded; what it means is the transport's matter.
    Bytes of it that are no UTF-8, as a path may have, are surrogates, as in Python's own names of files.
    `parameters` are those that the protocol does not name, in their order. Raises `UsageError` for values out of range.
    """

    scheme: str
    address: str
    want_data: int
    free_data: int | None = None
    remote_handle: bytes | None = None
    parameters: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not _SCHEME.fullmatch(self.scheme):
            raise UsageError(f"URI scheme {self.scheme!r}: expected letters, digits, +, - and .")
        for name, value in (("want_data", self.want_data), ("free_data", self.free_data)):
            if value is not None and not 0 <= value < UINT64_MODULUS:
                raise UsageError(f"URI parameter {name}: expected an unsigned integer of 64 bits, found {value}")
        if self.want_data == self.free_data:
            raise UsageError(
                f"URI parameters want_data and free_data: expected different tags, both are {self.want_data}"
            )

    def parameter(self, name: str) -> str | None:
        """The first value of a further parameter, None where there is none."""
        return next((value for key, value in self.parameters if key == name), None)

    def __str__(self) -> str:
        query = [("want_data", str(self.want_data))]
        if self.free_data is not None:
            query.append(("free_data", str(self.free_data)))
        if self.remote_handle is not None:
            query.append(("remote_handle", base64.b64encode(self.remote_handle).decode("ascii")))
        query.extend(self.parameters)
        address = quote(self.address, safe=_SAFE_IN_ADDRESS, errors="surrogateescape")
        return f"{self.scheme}:{address}?{urlencode(query, quote_via=quote)}"


def parse_uri(text: str) -> StreamURI:
    """The parts of a URI. Raises `ProtocolError` that names the part which is missing or wrong."""
    if len(text) > _MAX_URI_CHARACTERS:
        raise ProtocolError(f"URI: expected at most {_MAX_URI_CHARACTERS} characters, found {len(text)}")
    odd = _UNPRINTABLE.search(text)
    if odd:
        raise ProtocolError(f"URI {_shown(text)}: character {odd.start()} ({odd.group()!r}) has to be percent-encoded")
    scheme, colon, rest = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ProtocolError(f"URI {_shown(text)}: expected a scheme such as 'unix:' at its beginning")
    address, _, query = rest.partition("#")[0].partition("?")
    if query.count("&") >= _MOST_PARAMETERS:
        raise ProtocolError(f"URI: expected at most {_MOST_PARAMETERS} parameters, found {query.count('&') + 1}")
    known: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in ("want_data", "free_data", "remote_handle"):
            others.append((key, value))
        elif key in known:
            raise ProtocolError(f"URI {_shown(text)}: parameter {key} is given twice")
        else:
            known[key] = value
    if "want_data" not in known:
        raise ProtocolError(f"URI {_shown(text)}: the required parameter want_data is missing")
    want_data = _tag_value(text, "want_data", known["want_data"])
    free_data = _tag_value(text, "free_data", known["free_data"]) if "free_data" in known else None
    if want_data == free_data:
        raise ProtocolError(f"URI {_shown(text)}: parameters want_data and free_data are the same tag")
    handle = _handle(text, known["remote_handle"]) if "remote_handle" in known else None
    decoded = unquote(address, errors="surrogateescape")
    return StreamURI(scheme.lower(), decoded, want_data, free_data, handle, tuple(others))


def _shown(text: str) -> str:
    """A text for a message, cut where it is long."""
    return repr(text) if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]!r}…"


def _tag_value(text: str, name: str, value: str) -> int:
    if not _DIGITS.fullmatch(value) or int(value) >= UINT64_MODULUS:
        raise ProtocolError(
            f"URI {_shown(text)}: parameter {name}: expected an unsigned integer of 64 bits, found {_shown(value)}"
        )
    return int(value)


def _handle(text: str, value: str) -> bytes:
    # A "+" of base64 that nobody percent-encoded arrives as a space.
    value = value.replace(" ", "+").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError(
            f"URI {_shown(text)}: parameter remote_handle: expected base64, found {_shown(value)}"
        ) from None
