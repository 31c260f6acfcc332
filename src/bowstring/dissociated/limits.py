"""How much a peer may ask of us: every limit of the protocol, with its default."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.errors import LimitError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may send at the most. Beyond it is a `LimitError` that names the limit.

    Addresses cost no memory of ours, so a body of addresses may be much longer than one of bytes.
    """

    max_ticket_bytes: int = 1 << 20
    """The identifier of the data in a <want_data> message."""
    max_free_bytes: int = 1 << 26
    """One <free_data> message: 8 bytes for each address. It is never longer than the addresses that were sent."""
    max_metadata_bytes: int = 1 << 28
    """One metadata message; a schema of 10,000 columns takes about 1 MB."""
    max_packed_body_bytes: int = 1 << 36
    """One body that comes as bytes (type 0)."""
    max_address_body_bytes: int = 1 << 46
    """The sum of the buffers that one body refers to by addresses (type 1)."""
    max_buffers: int = 1 << 22
    """The buffers that one body refers to."""
    max_unpaired_messages: int = 1 << 16
    """How far the sequence number of a message may run ahead of the first one that is not complete."""
    max_unpaired_bytes: int = 1 << 32
    """Metadata and bodies that wait for their other half or for an earlier message."""
    max_outstanding_addresses: int = 1 << 26
    """Addresses sent and not yet freed."""

    def check(self, what: str, length_bytes: int, name: str) -> None:
        """Raise `LimitError` for a length beyond the limit with this name."""
        limit = getattr(self, name)
        if length_bytes > limit:
            raise LimitError(f"{what}: {length_bytes} bytes, more than {name} = {limit}")


DEFAULT_LIMITS = Limits()
