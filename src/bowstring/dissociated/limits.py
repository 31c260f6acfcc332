"""Resource limits of the protocol, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.display.objects import repr_options
from bowstring.errors import LimitError


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    """The maximum that a peer may send. Exceeding a limit is a `LimitError` that names it.

    Memory at addresses is not allocated here, so its limit is much higher than the limit for bodies sent as bytes.
    """

    max_ticket_bytes: int = 1 << 20
    """The identifier of the data in a <want_data> message."""
    max_free_bytes: int = 1 << 26
    """One <free_data> message, 8 bytes per address. It can't free more addresses than were sent."""
    max_metadata_bytes: int = 1 << 28
    """One metadata message; a schema of 10,000 columns takes about 1 MB."""
    max_error_bytes: int = 1 << 16
    """One message with the tag of `error_data`."""
    max_packed_body_bytes: int = 1 << 36
    """One body sent as bytes (type 0)."""
    max_address_body_bytes: int = 1 << 46
    """The total size of the buffers of one body of addresses (type 1)."""
    max_buffers: int = 1 << 22
    """The buffers of one body of addresses."""
    max_pending_messages: int = 1 << 16
    """How far a sequence number may be ahead of the first incomplete message."""
    max_pending_bytes: int = 1 << 32
    """Metadata and bodies that wait for their counterpart or for an earlier message."""
    max_outstanding_addresses: int = 1 << 26
    """Addresses that were sent and not freed."""

    __repr__ = repr_options

    def check_length(self, subject: str, length_bytes: int, limit_name: str) -> None:
        """Raise `LimitError` for a length beyond the limit with this name."""
        limit = getattr(self, limit_name)
        if length_bytes > limit:
            raise LimitError(f"{subject}: {length_bytes} bytes, more than {limit_name} = {limit}")


DEFAULT_LIMITS = ProtocolLimits()
