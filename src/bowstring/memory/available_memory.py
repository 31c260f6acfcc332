"""The available memory of the machine or container."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bowstring.errors import ResourceError

CHECK_AVAILABLE_BYTES = 64 << 20
"""The size from which `check_available_memory` reads the available memory."""
_CGROUP = "/sys/fs/cgroup"


def check_available_memory(size_bytes: int, name: str) -> None:
    """Raise `ResourceError` if memory is short: the kernel could kill a process instead of failing an allocation."""
    if size_bytes < CHECK_AVAILABLE_BYTES:
        return
    available = available_memory_bytes()
    if available is not None and size_bytes > available:
        cause = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        raise ResourceError(f"region {name!r}: {size_bytes} bytes requested, {available} available", cause)


def available_memory_bytes() -> int | None:
    """Return the available memory of the machine or container in bytes; None if unknown."""
    limits_bytes = list(_read_available_bytes())
    return min(limits_bytes) if limits_bytes else None


def _read_available_bytes() -> Iterator[int]:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10
        limit = Path(_CGROUP, "memory.max").read_text().strip()
        if limit.isdigit():
            statistics = dict(line.split() for line in Path(_CGROUP, "memory.stat").read_text().splitlines())
            cache = int(statistics["file"]) - int(statistics["shmem"])  # the kernel reclaims it under pressure
            yield max(int(limit) - int(Path(_CGROUP, "memory.current").read_text()) + cache, 0)
    except (OSError, ValueError, LookupError):
        return
