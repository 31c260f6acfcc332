"""Peak resident memory of this process.

`getrusage` is unsuitable: a process starts with the peak of the process that started it.
"""

from __future__ import annotations

from pathlib import Path


def peak_bytes(pid: int | str = "self") -> int:
    """Return the largest resident size of a process since it started, or of this one since `reset_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def reset_peak() -> None:
    """Let `peak_bytes` start again from the current resident size."""
    Path("/proc/self/clear_refs").write_text("5")
