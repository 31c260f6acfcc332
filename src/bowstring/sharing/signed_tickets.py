"""Signed tickets of `bowstring.serve`: without one, a client can't request a data set.

A signed ticket is `NAME~EXPIRY~SIGNATURE`:

* `NAME` is the name of the data set;
* `EXPIRY` is the last second in which a request may arrive, in Unix time; empty if the ticket does not expire;
* `SIGNATURE` is the HMAC-SHA256 of «bowstring ticket 1», EXPIRY, NAME and the scheme and first address of the server,
  each followed by a zero byte; in URL-safe base64 without padding.

So a ticket is valid for one data set of one server, and can't be guessed without the key. Anyone who reads a ticket can
use it: messages and `repr` show only its beginning.

>>> from bowstring.redaction import redact
>>> signer = TicketSigner(bytes(32), "tcp://127.0.0.1:5000")
>>> ticket = signer.sign("visits", expires_at=1_800_000_000)
>>> redact(ticket)
'visits~1800000000~…'
>>> signer.verify(ticket, now=1_700_000_000.0)
'visits'
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field

from bowstring.errors import AccessDeniedError, InvalidArgumentError

MIN_KEY_BYTES = 32  # RFC 2104 discourages keys of HMAC that are shorter than the digest
CLOCK_TOLERANCE_S = 5.0
"""How long after its expiry a ticket is accepted, because clocks are adjusted."""

_LABEL = "bowstring ticket 1"


@dataclass(frozen=True, slots=True)
class TicketSigner:
    """Signs and verifies the tickets of one server. Raises `InvalidArgumentError` for a key of less than 32 bytes."""

    key: bytes = field(repr=False)
    server: str
    """The scheme and first address of the server."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes):
            raise InvalidArgumentError(f"ticket_key: expected bytes, found {type(self.key).__name__}")
        if len(self.key) < MIN_KEY_BYTES:
            raise InvalidArgumentError(
                f"ticket_key: expected at least {MIN_KEY_BYTES} random bytes, found {len(self.key)}"
            )

    def sign(self, name: str, expires_at: int | None = None) -> str:
        """Return a ticket for the data set `name`, which expires at a Unix time in seconds, if any."""
        expiry = "" if expires_at is None else str(expires_at)
        return f"{name}~{expiry}~{self._signature(name, expiry)}"

    def verify(self, ticket: str, now: float) -> str:
        """Return the name of the data set, which may not exist. `now` is the Unix time in seconds.

        Raises `AccessDeniedError`, with one message for all invalid tickets.
        """
        # From the end: a name may contain tildes, the other parts don't.
        signed, _, signature = ticket.rpartition("~")
        name, _, expiry = signed.rpartition("~")
        if not hmac.compare_digest(self._signature(name, expiry).encode(), signature.encode(errors="surrogateescape")):
            raise AccessDeniedError("access denied: the ticket is not valid for this server")
        # Only after the signature is verified, which makes it a number that this server has written.
        if expiry and now > int(expiry) + CLOCK_TOLERANCE_S:
            raise AccessDeniedError("access denied: the ticket has expired")
        return name

    def _signature(self, name: str, expiry: str) -> str:
        message = "".join(f"{line}\0" for line in (_LABEL, expiry, name, self.server))
        digest = hmac.digest(self.key, message.encode("utf-8", "surrogateescape"), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
