"""Waiting for what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

_POLL_S = 0.02


def soon(condition: Callable[[], object], within_s: float = 15.0) -> bool:
    """Whether a condition comes to hold in time."""
    end = time.monotonic() + within_s
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return bool(holds)
