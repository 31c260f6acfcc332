"""Counts, sizes and times as text."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def format_count(count: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_size(size_bytes: float) -> str:
    """Format a size in bytes, KiB, MiB or GiB, with three digits."""
    if size_bytes < 1024:
        return format_count(round(size_bytes), "byte")
    unit = 0
    while size_bytes >= 999.5 and unit < len(_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    decimals = 2 if size_bytes < 9.995 else 1 if size_bytes < 99.95 else 0
    return f"{size_bytes:.{decimals}f} {_UNITS[unit]}"


def format_time(seconds: float) -> str:
    """Format a time in seconds, or in milliseconds below one second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def format_time_range(seconds: Sequence[float]) -> str:
    """Format the minimum and maximum of times, in the unit of the maximum."""
    least, most = min(seconds), max(seconds)
    return f"{least:.2f}–{most:.2f} s" if most >= 1 else f"{least * 1000:.1f}–{most * 1000:.1f} ms"
