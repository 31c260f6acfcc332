"""The available memory of the machine and of the container."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bowstring.errors import ResourceError

# Reading the available memory takes as long as filling a megabyte.
_MIN_CHECKED_BYTES, _MAX_CHECKED_BYTES = 1 << 20, 64 << 20
"""How much may be requested until `check_available_memory` reads the available memory: at most half of it."""
# On small machines a sixteenth is less than a process or two may allocate at any time; on large ones it is memory that
# nobody needs.
_MIN_MARGIN_BYTES = 128 << 20
_MAX_MARGIN_BYTES = 1 << 30
_unchecked_bytes, _max_unchecked_bytes = 0, _MAX_CHECKED_BYTES
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 represents no limit by a number close to 2**63."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The memory of the machine or of a control group: all of it, and the part that is free or reclaimable now."""

    name: str
    total_bytes: int
    available_bytes: int

    @property
    def spare_bytes(self) -> int:
        """The available memory without a margin for running processes: a sixteenth, 128 MiB to 1 GiB."""
        return self.available_bytes - min(max(self.total_bytes // 16, _MIN_MARGIN_BYTES), _MAX_MARGIN_BYTES)


def check_available_memory(size_bytes: int, name: str) -> None:
    """Raise `ResourceError` if memory is short: the kernel could kill a process instead of failing an allocation.

    Small sizes are added up, because many of them fill the memory as one does.
    """
    global _unchecked_bytes, _max_unchecked_bytes  # noqa: PLW0603 - a thread that misses another's count checks later
    _unchecked_bytes += size_bytes
    if _unchecked_bytes < _max_unchecked_bytes:
        return
    _unchecked_bytes, available = 0, available_memory_bytes()
    if available is None:
        return
    available = max(available - _MIN_CHECKED_BYTES, 0)  # what is not checked is allocated, too
    _max_unchecked_bytes = min(max((available - size_bytes) // 2, _MIN_CHECKED_BYTES), _MAX_CHECKED_BYTES)
    if size_bytes > available:
        cause = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        raise ResourceError(f"region {name!r}: {size_bytes} bytes requested, {available} available", cause)


def available_memory_bytes() -> int | None:
    """Return the available memory of the machine or container in bytes; None if unknown."""
    return min((limit.available_bytes for limit in read_memory_limits()), default=None)


def spare_memory_bytes() -> int | None:
    """Return the memory that can be filled for long, leaving a margin, in bytes; None if unknown. May be negative."""
    return min((limit.spare_bytes for limit in read_memory_limits()), default=None)


def read_memory_limits() -> list[MemoryLimit]:
    """The memory of the machine, and of the limited control groups of this process: its own and their ancestors."""
    return [*_read_machine(), *_read_control_groups()]


def _read_machine() -> Iterator[MemoryLimit]:
    try:
        values = _read_pairs(Path("/proc/meminfo"))
        yield MemoryLimit("the machine", values["MemTotal:"] << 10, values["MemAvailable:"] << 10)
    except (OSError, ValueError, LookupError):
        return


def _read_control_groups() -> Iterator[MemoryLimit]:
    for mount in _find_memory_mounts():
        folder = mount.find_group()
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError, LookupError):  # the root of version 2 has none of the files
                yield from _read_control_group(group, is_unified=mount.is_unified)
            if group == mount.folder:
                break


def _read_control_group(folder: Path, *, is_unified: bool) -> Iterator[MemoryLimit]:
    """The limits of a control group. Pages of files do not count: the kernel reclaims them under pressure; shared
    memory, which `cache` and `file` include, it can't.
    """
    names = ("memory.max", "memory.high") if is_unified else ("memory.limit_in_bytes",)
    texts = [(folder / name).read_text().strip() for name in names]
    limits_bytes = [int(text) for text in texts if text != "max" and int(text) < _UNLIMITED_BYTES]
    if limits_bytes:
        used_bytes = int((folder / ("memory.current" if is_unified else "memory.usage_in_bytes")).read_text())
        statistics = _read_pairs(folder / "memory.stat")
        prefix = "" if is_unified else "total_"  # includes the groups below
        cache_bytes = statistics[f"{prefix}inactive_file"] + statistics[f"{prefix}active_file"]
        limit_bytes = min(limits_bytes)
        yield MemoryLimit(f"control group {folder}", limit_bytes, max(limit_bytes - used_bytes + cache_bytes, 0))


@dataclass(frozen=True, slots=True)
class _ControlGroupMount:
    """A mounted hierarchy of control groups. `root` is the group at its folder; in a container not always "/"."""

    folder: Path
    root: str
    is_unified: bool

    def find_group(self) -> Path:
        """The folder of this process's group. It is read each time, because a process can be moved."""
        with suppress(OSError, ValueError):
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                is_hierarchy = controllers == "" if self.is_unified else "memory" in controllers.split(",")
                # A path outside the mounted part begins with "/..", or has another root.
                if is_hierarchy and ".." not in Path(path).parts and Path(path).is_relative_to(self.root):
                    return self.folder / Path(path).relative_to(self.root)
        return self.folder


@cache
def _find_memory_mounts() -> list[_ControlGroupMount]:
    mounts = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            # «36 35 98:0 /root /folder rw,noatime master:1 - type source options», proc(5)
            mount, _, file_system = line.partition(" - ")
            root, folder = mount.split()[3:5]
            kind, *_, options = file_system.split()
            if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
                mounts.append(_ControlGroupMount(Path(folder), root, kind == "cgroup2"))
    return mounts


def _read_pairs(path: Path) -> dict[str, int]:
    """The numbers of a file whose lines are names and numbers."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs}
