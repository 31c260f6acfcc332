from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring.transports.total_limits import OutstandingAmounts, TotalLimits


class Sender:
    """Sends elements of ten leases with 100 bytes as long as it may."""

    def __init__(self, limits: TotalLimits, num_elements: int = 1000) -> None:
        self.limits = limits
        self.outstanding = OutstandingAmounts()
        self.remaining = num_elements
        self.num_wakes = 0
        self.wake: Callable[[], None] = self._wake

    def _wake(self) -> None:
        self.num_wakes += 1

    def step(self, free: int = 0) -> None:
        self._add(-free)
        while self.remaining and self.limits.allows_more(self, self.outstanding):
            self.remaining -= 1
            self._add(1)
        self.limits.update_and_wake_next(self, self.outstanding, self.wake if self.remaining else None)

    def _add(self, count: int) -> None:
        leases, leased_bytes, queued_bytes = self.outstanding
        self.outstanding = OutstandingAmounts(leases + 10 * count, leased_bytes + 100 * count, queued_bytes)


@pytest.mark.parametrize(
    "limits", [OutstandingAmounts(80, 1 << 62, 1), OutstandingAmounts(1 << 62, 800, 1)], ids=["leases", "bytes"]
)
def test_a_session_uses_the_common_half_and_others_their_part_of_the_rest(limits: OutstandingAmounts) -> None:
    total = TotalLimits(limits, 4)
    greedy, second, third = (Sender(total) for _ in range(3))
    for sender, leases in ((greedy, 40), (second, 10), (third, 10)):
        sender.step()
        assert sender.outstanding.leases == leases
    assert total.outstanding == OutstandingAmounts(60, 600, 0)
    for count in range(1, 5):
        second.step(free=1)
        assert (second.remaining, second.outstanding.leases) == (999 - count, 10)


def test_a_session_may_send_one_element_however_small_its_part_is() -> None:
    total = TotalLimits(OutstandingAmounts(2, 2, 2), 1000)
    senders = [Sender(total) for _ in range(5)]
    for sender in senders:
        sender.step()
        assert sender.outstanding.leases == 10


def test_waiting_sessions_continue_in_order_when_others_free_leases_or_end() -> None:
    total = TotalLimits(OutstandingAmounts(80, 1 << 62, 1), 1000)
    first, second, third = (Sender(total) for _ in range(3))
    for sender in (first, second, third):
        sender.step()
    assert [sender.outstanding.leases for sender in (first, second, third)] == [40, 10, 10]
    first.remaining = 0
    first.step(free=2)
    assert [second.num_wakes, third.num_wakes] == [0, 0], "the common half is still used"
    first.step(free=2)
    assert [second.num_wakes, third.num_wakes] == [1, 0]
    second.step()
    assert [sender.outstanding.leases for sender in (first, second, third)] == [0, 30, 10]
    total.update_and_wake_next(second, OutstandingAmounts(), None)
    assert [second.num_wakes, third.num_wakes] == [1, 1]
    assert total.outstanding == OutstandingAmounts(10, 100, 0)


def test_queued_bytes_of_a_session_do_not_limit_the_leases_of_others() -> None:
    total = TotalLimits(OutstandingAmounts(80, 800, 1000), 1000)
    slow = Sender(total)
    total.update_and_wake_next(slow, OutstandingAmounts(queued_bytes=5000), slow.wake)
    quick = Sender(total)
    quick.step()
    assert quick.outstanding.leases == 40
    quick.step(free=1)
    assert (quick.outstanding.leases, quick.remaining) == (40, 995)
    assert not total.allows_more(slow, OutstandingAmounts(queued_bytes=5000))
