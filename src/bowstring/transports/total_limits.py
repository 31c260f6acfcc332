"""Limits of the leases and queued messages that several sessions have outstanding together.

Half of a limit is common: first come, first served. Sessions that wait for it continue in the order in which they began
to wait. The other half is reserved in equal parts. A session may always use its part, and one element
of its stream, whatever others have outstanding: a peer that frees or receives nothing slows only itself. So the total
exceeds a limit by less than one element per session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class OutstandingAmounts(NamedTuple):
    """How much a peer has not freed, and not received."""

    leases: int = 0
    leased_bytes: int = 0
    queued_bytes: int = 0


@dataclass(slots=True)
class _SharedLimit:
    """One of the limits that all sessions share, and its total so far."""

    total: int
    common: int
    """The total below which any session may use more."""
    reserved: int
    """The part of each session."""


class TotalLimits:
    """The limits for at most `max_sessions` sessions of one thread."""

    def __init__(self, limits: OutstandingAmounts, max_sessions: int) -> None:
        self._limits = [
            _SharedLimit(0, limit - limit // 2, max(limit // 2 // max(max_sessions, 1), 1)) for limit in limits
        ]
        self._outstanding: dict[object, tuple[int, int, int]] = {}
        self._waiting: dict[object, Callable[[], None]] = {}
        """The sessions that have more to send, and how to wake them."""

    @property
    def outstanding(self) -> OutstandingAmounts:
        """What all sessions have outstanding."""
        return OutstandingAmounts(*(limit.total for limit in self._limits))

    def allows_more(self, session: object, outstanding: tuple[int, int, int]) -> bool:
        """Whether a session that has this much outstanding may send one more element."""
        if outstanding == _NONE_OUTSTANDING:
            return True
        previous = self._outstanding.get(session, _NONE_OUTSTANDING)
        for limit, amount, previous_amount in zip(self._limits, outstanding, previous, strict=True):
            if amount >= limit.reserved and limit.total - previous_amount + amount >= limit.common:
                return False
        return True

    def update_and_wake_next(
        self, session: object, outstanding: tuple[int, int, int], wake: Callable[[], None] | None
    ) -> None:
        """Record the outstanding amounts of a session, and wake the next one that can continue.

        `wake` wakes this one; None if it has no more to send.
        """
        if wake is None and not self._waiting and outstanding == self._outstanding.get(session, _NONE_OUTSTANDING):
            return  # in most steps of a session
        previous = self._outstanding.pop(session, _NONE_OUTSTANDING)
        for limit, amount, previous_amount in zip(self._limits, outstanding, previous, strict=True):
            limit.total += amount - previous_amount
        if any(outstanding):
            self._outstanding[session] = outstanding
        if wake is not None and not self.allows_more(session, outstanding):
            self._waiting.setdefault(session, wake)
        else:
            self._waiting.pop(session, None)
        next_session = next(
            (other for other in self._waiting if self.allows_more(other, self._outstanding[other])), None
        )
        if next_session is not None:
            self._waiting.pop(next_session)()


_NONE_OUTSTANDING = OutstandingAmounts()
