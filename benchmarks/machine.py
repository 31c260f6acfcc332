"""Describe the machine and the versions that were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("bowstring", "numpy", "pyarrow", "pyspark")
_REPOSITORY = Path(__file__).resolve().parent.parent


def describe_machine() -> dict[str, str]:
    """Machine, system and versions, in display order."""
    description = {
        "processor": _read_value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _read_value("/proc/meminfo", "MemTotal") or "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for package in _PACKAGES:
        try:
            description[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            description[package] = "not installed"
    return description | {"commit": _commit(), "load average": load_average()}


def load_average() -> str:
    """The system load over the last 1, 5 and 15 minutes: shows whether other processes disturbed the run."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def _read_value(path: str, key: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(key)), None)
    except OSError:
        return None


def _commit() -> str:
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
