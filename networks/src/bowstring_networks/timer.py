"""Timers with a descriptor, which wake a thread now or after a while."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from bowstring.errors import ResourceError


class Timer:
    """A descriptor that becomes readable at once or after a while (timerfd), until `clear`."""

    __slots__ = ("descriptor",)

    def __init__(self) -> None:
        self.descriptor: int = _timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            code = ctypes.get_errno()
            raise ResourceError(f"timerfd: {os.strerror(code)}", OSError(code, os.strerror(code)))

    def set(self, delay_s: float = 0.0) -> None:
        """Make the descriptor readable after `delay_s`. Thread-safe."""
        if self.descriptor >= 0:
            nanoseconds = max(int(delay_s * 1e9), 1)
            _timerfd_settime(self.descriptor, 0, (ctypes.c_int64 * 4)(0, 0, *divmod(nanoseconds, 10**9)), None)

    def clear(self) -> None:
        """Make it unreadable, and forget the time."""
        if self.descriptor >= 0:
            _timerfd_settime(self.descriptor, 0, (ctypes.c_int64 * 4)(), None)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)
_timerfd_create: Any = getattr(_libc, "timerfd_create", None)
_timerfd_settime: Any = getattr(_libc, "timerfd_settime", None)
