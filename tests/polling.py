"""Waiting for an event in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

_POLL_S = 0.02


def wait_until(condition: Callable[[], object], within_s: float = 15.0) -> bool:
    """Poll a condition until it is true or the time is over; return whether it is true."""
    end = time.monotonic() + within_s
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return bool(holds)
