"""Leases: which addresses are out until <free_data> names them or the connection is lost («Data Stream Sequence»).

A body lends each of its addresses once, so an address that stands in two bodies (or twice in one) has to be freed
twice. Peers mostly free what they got, as they got it: that costs one hash of the addresses' bytes, whatever their
number. Only a peer that frees piecemeal or in another order makes the book go through single addresses.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.wire import Addresses
from bowstring.errors import LimitError, ProtocolError


class Leases:
    """The addresses lent to one holder, and what has to stay alive for them."""

    __slots__ = ("_by_address", "_limits", "_whole", "holder", "outstanding")

    def __init__(self, holder: str = "the client", limits: Limits = DEFAULT_LIMITS) -> None:
        self.holder = holder
        self.outstanding = 0
        self._limits = limits
        self._whole: dict[bytes, deque[Any]] = {}
        self._by_address: dict[int, deque[Any]] = {}

    def lend(self, addresses: Addresses, owner: Any = None) -> None:
        """Lend the addresses of one body; `owner` is kept alive until all of them are freed. Raises `LimitError`."""
        if not addresses.size:
            return
        if self.outstanding + addresses.size > self._limits.max_outstanding_addresses:
            raise LimitError(
                f"{self.holder} holds {self.outstanding} addresses; {addresses.size} more would pass "
                f"max_outstanding_addresses = {self._limits.max_outstanding_addresses}"
            )
        key = addresses.tobytes()
        self._whole.setdefault(key, deque()).append(owner)
        self.outstanding += addresses.size

    def free(self, addresses: Addresses) -> None:
        """End one lease of each address. Raises `ProtocolError` for one that is not out; then nothing is freed."""
        key = addresses.tobytes()
        owners = self._whole.get(key)
        if owners is not None:
            owners.popleft()
            if not owners:
                del self._whole[key]
        else:
            self._free_singly(addresses)
        self.outstanding -= addresses.size

    def free_all(self) -> int:
        """End all leases, because the connection is lost or the stream is over; how many addresses were out."""
        count, self.outstanding = self.outstanding, 0
        self._whole.clear()
        self._by_address.clear()
        return count

    def _free_singly(self, addresses: Addresses) -> None:
        self._break_up()
        counts: dict[int, int] = {}
        for address in addresses.tolist():
            counts[address] = counts.get(address, 0) + 1
        for address, count in counts.items():
            held = len(self._by_address.get(address, ()))
            if held < count:
                raise ProtocolError(
                    f"<free_data>: {self.holder} frees address {address} {count} times, but holds it {held} times"
                )
        for address, count in counts.items():
            owners = self._by_address[address]
            for _ in range(count):
                owners.popleft()
            if not owners:
                del self._by_address[address]

    def _break_up(self) -> None:
        """Spread whole bodies over their addresses; a body's owner stays alive as long as one of them points at it."""
        for key, owners in self._whole.items():
            addresses = np.frombuffer(key, "<u8").tolist()
            for owner in owners:
                for address in addresses:
                    self._by_address.setdefault(address, deque()).append(owner)
        self._whole.clear()

    def __len__(self) -> int:
        return self.outstanding

    def __bool__(self) -> bool:
        return self.outstanding > 0

    def __repr__(self) -> str:
        return f"<Leases of {self.holder}: {self.outstanding} addresses out>"
