"""Leases of addresses, which end by <free_data> or with the connection («Data Stream Sequence»).

A body leases each of its addresses once, so an address in two bodies (or twice in one) has to be freed twice. Empty
buffers are not leased, because a client does not read them; their addresses may be freed any number of times.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.messages import AddressBody, Addresses
from bowstring.errors import LimitError, ProtocolError


class _LeasedBody:
    """A body that was leased once for each of its owners; without owners if all of its buffers are empty."""

    __slots__ = ("count", "lengths", "nbytes", "owners")

    def __init__(self, body: AddressBody) -> None:
        self.lengths = body.lengths
        self.count = body.num_leased
        self.nbytes = body.exact_bytes
        self.owners: list[object] = []


class _AddressLeases(NamedTuple):
    """All leases of one address: their number, the bytes at it in all of them, and the distinct owners."""

    num_leases: int = 0
    nbytes: int = 0
    owners: tuple[object, ...] = ()


class LeaseTable:
    """The addresses leased to one holder, and the owners that they keep alive.

    Most peers free all addresses of a body, or of several, by one message. So leases are stored by the bytes of a
    body's addresses, in 8 bytes for each. Storing each address in a dictionary took 2.7 times the client's processor
    time and 7 times the server's for 1,000 batches of 1,000 columns, and takes about 200 bytes for each.

    A message that frees other addresses changes the table to one of addresses, until no lease is left: a peer that does
    so once will do so again, and no body has to be searched for an address. Both tables count the leases of what was
    sent repeatedly, so the time and memory of this change depend on the different bodies, however often a peer
    requested them.
    """

    __slots__ = (
        "_addresses",
        "_bodies",
        "_empty_addresses",
        "_key_lengths",
        "_limits",
        "holder",
        "outstanding",
        "outstanding_bytes",
        "total",
        "total_bytes",
    )

    def __init__(self, holder: str = "the client", limits: ProtocolLimits = DEFAULT_LIMITS) -> None:
        self.holder = holder
        self.outstanding = 0
        self.outstanding_bytes = 0
        """The bytes at leased addresses."""
        self.total = self.total_bytes = 0
        """The addresses that were leased since the beginning, and their bytes."""
        self._limits = limits
        # At least one of these is empty at any time.
        self._bodies: dict[bytes, _LeasedBody] = {}
        self._addresses: dict[int, _AddressLeases] = {}
        self._key_lengths: set[int] = set()
        """The lengths of the keys of `_bodies` since it was empty; few lengths differ."""
        self._empty_addresses: set[int] = set()

    def lease_body(self, body: AddressBody, owner: object = None) -> None:
        """Lease the addresses of one body; `owner` is kept alive at least until all of them are freed.

        Buffers of length 0 are not leased. Raises `LimitError`.
        """
        count = body.num_leased
        # Kept until the connection ends: their number counts against the limit, and none is ever freed.
        if count < body.addresses.size:
            self._empty_addresses.update(body.addresses[body.lengths == 0].tolist())
        # Empty buffers count, too: a server could otherwise fill a client's memory with their addresses.
        if self.outstanding + len(self._empty_addresses) + count > self._limits.max_outstanding_addresses:
            raise LimitError(
                f"{self.holder} holds {self.outstanding} addresses; {count} more would pass "
                f"max_outstanding_addresses = {self._limits.max_outstanding_addresses}"
            )
        if not body.addresses.size:
            return
        key = body.addresses.tobytes()
        leased_body = self._bodies.get(key)
        # The same addresses with other lengths: the table of bodies has one length for each key.
        if leased_body is not None and not np.array_equal(leased_body.lengths, body.lengths):
            self._replace_bodies_by_addresses()
        # Both tables are never in use at once, so that a lease is looked up in one place.
        if self._addresses:
            self._lease_addresses(body.addresses, body.lengths, 1, (owner,))
        else:
            if key not in self._bodies:
                self._bodies[key] = _LeasedBody(body)
                self._key_lengths.add(len(key))
            if count:
                self._bodies[key].owners.append(owner)
        self.outstanding += count
        self.outstanding_bytes += body.exact_bytes
        self.total += count
        self.total_bytes += body.exact_bytes

    def free(self, addresses: Addresses) -> None:
        """End one lease of each address. If one is not leased, free none and raise `ProtocolError`."""
        # The usual message frees exactly one body: one look-up of its bytes, whatever the number of its buffers.
        data = addresses.tobytes()
        keys = [data] if data in self._bodies else self._match_bodies(data)
        if not keys:
            self._replace_bodies_by_addresses()
            self._free_addresses(addresses)
            return
        for key in keys:
            body = self._bodies[key]
            if not body.count:  # the addresses of empty buffers may be freed again
                continue
            # Any owner: bodies with the same addresses are the same memory, and messages do not identify which of them
            # it frees.
            body.owners.pop()
            self.outstanding -= body.count
            self.outstanding_bytes -= body.nbytes
            if not body.owners:
                del self._bodies[key]
        if not self._bodies:
            self._key_lengths.clear()

    def free_all(self) -> int:
        """End all leases; return their number."""
        count, self.outstanding, self.outstanding_bytes = self.outstanding, 0, 0
        self._bodies.clear()
        self._key_lengths.clear()
        self._addresses.clear()
        self._empty_addresses.clear()
        return count

    def _match_bodies(self, data: bytes) -> list[bytes]:
        """Split the addresses of several bodies into the keys of these; empty unless they are addresses of whole
        bodies.
        """
        # The longest first, because a body may be the beginning of another. A division that this misses is found
        # address by address.
        keys, start, lengths = Counter[bytes](), 0, sorted(self._key_lengths, reverse=True)
        while start < len(data):
            candidates = (data[start : start + length] for length in lengths)
            key = next((key for key in candidates if key in self._bodies), None)
            # A body may be freed as often as it is leased in one message.
            if key is None or (self._bodies[key].count and keys[key] == len(self._bodies[key].owners)):
                return []
            keys[key] += 1
            start += len(key)
        return list(keys.elements())

    def _replace_bodies_by_addresses(self) -> None:
        """Replace the leases of bodies by leases of their addresses."""
        for key, body in self._bodies.items():
            if body.count:
                owners = tuple({id(owner): owner for owner in body.owners}.values())
                self._lease_addresses(np.frombuffer(key, "<u8"), body.lengths, len(body.owners), owners)
        self._bodies.clear()
        self._key_lengths.clear()

    def _lease_addresses(
        self, addresses: Addresses, lengths: Addresses, num_leases: int, owners: tuple[object, ...]
    ) -> None:
        """Add the leases of one body to the leases of its addresses."""
        for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
            if not length:
                continue
            added = _AddressLeases(num_leases, num_leases * length, owners)
            leases = self._addresses.setdefault(address, added)
            if leases is not added:
                known = set(map(id, leases.owners))
                new_owners = tuple(owner for owner in owners if id(owner) not in known)
                self._addresses[address] = _AddressLeases(
                    leases.num_leases + num_leases, leases.nbytes + added.nbytes, leases.owners + new_owners
                )

    def _free_addresses(self, addresses: Addresses) -> None:
        # All addresses are checked before one is freed: an invalid message must not change the leases.
        counts = Counter[int](addresses.tolist())
        for address, count in counts.items():
            num_leases = self._addresses.get(address, _AddressLeases()).num_leases
            if num_leases < count:
                if address not in self._empty_addresses:
                    raise ProtocolError(
                        f"<free_data>: {self.holder} frees address {address} {count} times, but has leased "
                        f"it {num_leases} times"
                    )
                # The rest of the count are empty buffers at the same address, which may be freed any number of times.
                counts[address] = num_leases
        for address, count in counts.items():
            if not count:
                continue
            num_leases, nbytes, owners = self._addresses.pop(address)
            # The message does not say which of the leases of an address it frees, and their lengths may differ: on
            # average, so that the sum ends at 0 with the last.
            freed_bytes = nbytes * count // num_leases
            if count < num_leases:
                self._addresses[address] = _AddressLeases(num_leases - count, nbytes - freed_bytes, owners)
            self.outstanding -= count
            self.outstanding_bytes -= freed_bytes

    def __len__(self) -> int:
        return self.outstanding

    def __repr__(self) -> str:
        return f"<LeaseTable of {self.holder}: {self.outstanding} addresses leased>"
