"""Leases: which addresses are out until <free_data> names them or the connection is lost («Data Stream Sequence»).

A body lends each of its addresses once, so an address that stands in two bodies (or twice in one) has to be freed
twice. Buffers without bytes are not lent, because a client has no reason to free what it never reads. Their addresses
may be freed all the same, any number of times.

Peers mostly free what they got, as they got it: that costs one hash of the addresses' bytes, whatever their number.
Only a body that is freed piecemeal, or in another order, is split into its addresses.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.wire import Addresses
from bowstring.errors import LimitError, ProtocolError


class _Span(NamedTuple):
    """The lowest and the highest address of a body, and the bytes of all of them."""

    lowest: int
    highest: int
    key: bytes


class Leases:
    """The addresses lent to one holder, and what has to stay alive for them."""

    __slots__ = ("_by_address", "_empty", "_limits", "_spans", "_whole", "holder", "outstanding")

    def __init__(self, holder: str = "the client", limits: Limits = DEFAULT_LIMITS) -> None:
        self.holder = holder
        self.outstanding = 0
        self._limits = limits
        self._whole: dict[bytes, deque[Any]] = {}
        self._spans: list[_Span] = []
        # The owners of an address, as a linked list, because nearly all have one, which then shares its body's node.
        self._by_address: dict[int, tuple[Any, Any]] = {}
        self._empty: set[int] = set()

    def lend(self, addresses: Addresses, owner: Any = None, *, lengths: Addresses | None = None) -> None:
        """Lend the addresses of one body; `owner` is kept alive until all of them are freed.

        Buffers whose length is 0 are not lent. Raises `LimitError`.
        """
        if lengths is not None and not lengths.all():
            self._empty.update(addresses[lengths == 0].tolist())
            addresses = addresses[lengths > 0]
        if self.outstanding + len(self._empty) + addresses.size > self._limits.max_outstanding_addresses:
            raise LimitError(
                f"{self.holder} holds {self.outstanding} addresses; {addresses.size} more would pass "
                f"max_outstanding_addresses = {self._limits.max_outstanding_addresses}"
            )
        if not addresses.size:
            return
        key = addresses.tobytes()
        owners = self._whole.get(key)
        if owners is None:
            owners = self._whole[key] = deque()
            insort(self._spans, _Span(int(addresses.min()), int(addresses.max()), key))
        owners.append(owner)
        self.outstanding += addresses.size

    def free(self, addresses: Addresses) -> None:
        """End one lease of each address. Raises `ProtocolError` for one that is not out; then nothing is freed."""
        if self._free_body(addresses):
            return
        if self._empty:
            empty = self._empty
            with_bytes = addresses[[address not in empty for address in addresses.tolist()]]
            if 0 < with_bytes.size < addresses.size and self._free_body(with_bytes):
                return
        self._free_singly(addresses)

    def free_all(self) -> int:
        """End all leases, because the connection is lost or the stream is over; how many addresses were out."""
        count, self.outstanding = self.outstanding, 0
        self._whole.clear()
        self._spans.clear()
        self._by_address.clear()
        return count

    def _free_body(self, addresses: Addresses) -> bool:
        """End a lease of a whole body; whether one with exactly these addresses was out."""
        key = addresses.tobytes()
        owners = self._whole.get(key)
        if owners is None:
            return False
        owners.popleft()
        if not owners:
            del self._whole[key]
            span = _Span(int(addresses.min()), int(addresses.max()), key)
            del self._spans[bisect_right(self._spans, span) - 1]
        self.outstanding -= addresses.size
        return True

    def _free_singly(self, addresses: Addresses) -> None:
        counts: dict[int, int] = {}
        for address in addresses.tolist():
            counts[address] = counts.get(address, 0) + 1
        for address, count in counts.items():
            lent = self._count(address, count)
            if lent < count:
                if address not in self._empty:
                    raise ProtocolError(
                        f"<free_data>: {self.holder} frees address {address} {count} times, but holds it {lent} times"
                    )
                counts[address] = lent
        for address, count in counts.items():
            for _ in range(count):
                _, others = self._by_address.pop(address)
                if others is not None:
                    self._by_address[address] = others
            self.outstanding -= count

    def _count(self, address: int, enough: int) -> int:
        """How often an address is out, counted up to `enough`; the bodies that were needed for that are split."""
        while True:
            count, node = 0, self._by_address.get(address)
            while node is not None and count < enough:
                count, node = count + 1, node[1]
            if count == enough or not self._split_body(address):
                return count

    def _split_body(self, address: int) -> bool:
        """Spread a whole body with this address over its addresses; whether there was one.

        Its owner stays alive as long as one of them points at it.
        """
        for index in reversed(range(bisect_right(self._spans, address, key=itemgetter(0)))):
            span = self._spans[index]
            if span.highest >= address and address in (addresses := np.frombuffer(span.key, "<u8").tolist()):
                break
        else:
            return False
        del self._spans[index]
        for owner in self._whole.pop(span.key):
            node = (owner, None)
            for lent in addresses:
                others = self._by_address.get(lent)
                self._by_address[lent] = node if others is None else (owner, others)
        return True

    def __len__(self) -> int:
        return self.outstanding

    def __bool__(self) -> bool:
        return self.outstanding > 0

    def __repr__(self) -> str:
        return f"<Leases of {self.holder}: {self.outstanding} addresses out>"
