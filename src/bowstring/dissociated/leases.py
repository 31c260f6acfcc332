"""Leases of addresses, which end by <free_data> or with the connection («Data Stream Sequence»).

A body leases each of its addresses once, so an address in two bodies (or twice in one) has to be freed twice. Empty
buffers are not leased, because a client does not read them; their addresses may be freed any number of times.

Most peers free all addresses of a body at once, or of several, which takes one hash of the addresses' bytes for each. A
body is split into its addresses only if it is freed in parts or in another order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.messages import AddressBody, Addresses
from bowstring.errors import LimitError, ProtocolError


class _AddressRange(NamedTuple):
    """The lowest and highest leased address of a body, and the bytes of all its addresses."""

    lowest: int
    highest: int
    key: bytes


class _LeasedBody:
    """A body that was leased once per owner. `empty` has a bool for each buffer; it is None if no buffer is empty."""

    __slots__ = ("address_range", "count", "empty", "nbytes", "owners")

    def __init__(self, count: int, empty: bytes | None, nbytes: int) -> None:
        self.count = count
        self.nbytes = nbytes
        self.empty = empty
        self.owners: deque[Any] = deque()
        self.address_range: _AddressRange | None = None

    def leased_addresses(self, key: bytes) -> Addresses:
        addresses = np.frombuffer(key, "<u8")
        return addresses if self.empty is None else addresses[~np.frombuffer(self.empty, np.bool_)]


class _SplitLease:
    """One lease of a body that is freed in parts."""

    __slots__ = ("count", "nbytes", "owner")

    def __init__(self, owner: Any, count: int, nbytes: int) -> None:
        self.owner = owner
        self.count = count
        self.nbytes = nbytes


class LeaseTable:
    """The addresses leased to one holder, and the owners that they keep alive."""

    __slots__ = (
        "_address_ranges",
        "_bodies",
        "_by_address",
        "_empty_addresses",
        "_key_lengths",
        "_limits",
        "_unsorted",
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
        """The bytes at leased addresses; a body's count until all of it is freed."""
        self.total = self.total_bytes = 0
        """The addresses that were leased since the beginning, and their bytes."""
        self._limits = limits
        self._bodies: dict[bytes, _LeasedBody] = {}
        self._key_lengths: defaultdict[int, int] = defaultdict(int)
        """How many bodies there are by the length of their key; few lengths differ."""
        # The bodies by address, sorted when one is freed in parts; until then their keys are in `_unsorted`.
        self._address_ranges: list[_AddressRange] = []
        self._unsorted: dict[bytes, None] = {}
        # The owners of an address, as a linked list: most have one owner, whose node all addresses of a body share.
        self._by_address: dict[int, tuple[_SplitLease, Any]] = {}
        self._empty_addresses: set[int] = set()

    def lease_body(self, body: AddressBody, owner: Any = None) -> None:
        """Lease the addresses of one body; `owner` is kept alive until all of them are freed.

        Buffers of length 0 are not leased. Raises `LimitError`.
        """
        addresses, count, nbytes = body.addresses, body.num_leased, body.exact_bytes
        empty = None
        if count < addresses.size:
            is_empty = body.lengths == 0
            empty = is_empty.tobytes()
            self._empty_addresses.update(addresses[is_empty].tolist())
        if self.outstanding + len(self._empty_addresses) + count > self._limits.max_outstanding_addresses:
            raise LimitError(
                f"{self.holder} holds {self.outstanding} addresses; {count} more would pass "
                f"max_outstanding_addresses = {self._limits.max_outstanding_addresses}"
            )
        if not count:
            return
        key = addresses.tobytes()
        leased_body = self._bodies.get(key)
        if leased_body is not None and (leased_body.empty != empty or leased_body.nbytes != nbytes):
            self._split_body(key)
            leased_body = None
        if leased_body is None:
            leased_body = self._bodies[key] = _LeasedBody(count, empty, nbytes)
            self._unsorted[key] = None
            self._key_lengths[len(key)] += 1
        leased_body.owners.append(owner)
        self.outstanding += count
        self.outstanding_bytes += nbytes
        self.total += count
        self.total_bytes += nbytes

    def free(self, addresses: Addresses) -> None:
        """End one lease of each address. If one is not leased, free none and raise `ProtocolError`."""
        data = addresses.tobytes()
        keys = [data] if data in self._bodies else self._match_whole_bodies(data)
        if not keys:
            self._free_one_by_one(addresses)
            return
        for key in keys:
            body = self._bodies[key]
            body.owners.popleft()
            if not body.owners:
                self._remove_body(key)
            self.outstanding -= body.count
            self.outstanding_bytes -= body.nbytes

    def free_all(self) -> int:
        """End all leases; return their number."""
        count, self.outstanding, self.outstanding_bytes = self.outstanding, 0, 0
        self._bodies.clear()
        self._key_lengths.clear()
        self._address_ranges.clear()
        self._unsorted.clear()
        self._by_address.clear()
        self._empty_addresses.clear()
        return count

    def _match_whole_bodies(self, data: bytes) -> list[bytes]:
        """Split the addresses of several bodies into the keys of these; empty if they are not those of whole bodies."""
        keys, start = Counter[bytes](), 0
        while start < len(data):
            candidates = (data[start : start + length] for length in sorted(self._key_lengths, reverse=True))
            key = next((key for key in candidates if key in self._bodies), None)
            if key is None or keys[key] == len(self._bodies[key].owners):
                return []
            keys[key] += 1
            start += len(key)
        return list(keys.elements())

    def _free_one_by_one(self, addresses: Addresses) -> None:
        counts: dict[int, int] = {}
        for address in addresses.tolist():
            counts[address] = counts.get(address, 0) + 1
        for address, count in counts.items():
            leases = self._count_leases(address, count)
            if leases < count:
                if address not in self._empty_addresses:
                    raise ProtocolError(
                        f"<free_data>: {self.holder} frees address {address} {count} times, but has leased "
                        f"it {leases} times"
                    )
                counts[address] = leases
        for address, count in counts.items():
            for _ in range(count):
                lease, others = self._by_address.pop(address)
                lease.count -= 1
                if not lease.count:
                    self.outstanding_bytes -= lease.nbytes
                if others is not None:
                    self._by_address[address] = others
            self.outstanding -= count

    def _count_leases(self, address: int, max_count: int) -> int:
        """Count the leases of an address, up to `max_count`; splits the bodies that contain it."""
        while True:
            count, node = 0, self._by_address.get(address)
            while node is not None and count < max_count:
                count, node = count + 1, node[1]
            key = None if count == max_count else self._find_body_key(address)
            if key is None:
                return count
            self._split_body(key)

    def _find_body_key(self, address: int) -> bytes | None:
        """Return the key of an unsplit body with this address, if any."""
        for key in self._unsorted:
            body = self._bodies[key]
            addresses = body.leased_addresses(key)
            body.address_range = _AddressRange(int(addresses.min()), int(addresses.max()), key)
            self._address_ranges.append(body.address_range)
        if self._unsorted:
            self._unsorted.clear()
            self._address_ranges.sort()
        for index in reversed(range(bisect_right(self._address_ranges, address, key=itemgetter(0)))):
            _, highest, key = self._address_ranges[index]
            if highest >= address and bool((self._bodies[key].leased_addresses(key) == address).any()):
                return key
        return None

    def _split_body(self, key: bytes) -> None:
        """Replace the lease of a body by leases of its addresses, which keep its owners alive."""
        body = self._remove_body(key)
        addresses = body.leased_addresses(key).tolist()
        for owner in body.owners:
            lease = _SplitLease(owner, body.count, body.nbytes)
            node = (lease, None)
            for address in addresses:
                others = self._by_address.get(address)
                self._by_address[address] = node if others is None else (lease, others)

    def _remove_body(self, key: bytes) -> _LeasedBody:
        body = self._bodies.pop(key)
        self._key_lengths[len(key)] -= 1
        if not self._key_lengths[len(key)]:
            del self._key_lengths[len(key)]
        if body.address_range is None:
            del self._unsorted[key]
        else:
            del self._address_ranges[bisect_left(self._address_ranges, body.address_range)]
        return body

    def __len__(self) -> int:
        return self.outstanding

    def __bool__(self) -> bool:
        return self.outstanding > 0

    def __repr__(self) -> str:
        return f"<LeaseTable of {self.holder}: {self.outstanding} addresses leased>"
