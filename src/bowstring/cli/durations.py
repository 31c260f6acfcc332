"""Durations as options and in tables: `90s`, `10min`, `2h`, `1d`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

_UNITS_S = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_DURATION = re.compile(r"(\d+(?:\.\d*)?) ?(d|h|min|m|s)?")


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A positive duration with a unit, in seconds without one; converted to seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds. Raise `click.BadParameter` for other text, and for zero."""
        if isinstance(value, int | float):
            return float(value)
        match = _DURATION.fullmatch(value)
        seconds = 0.0 if match is None else float(match[1]) * _UNITS_S[{"m": "min", None: "s"}.get(match[2], match[2])]
        if not seconds:
            self.fail(f"expected a duration such as 90s, 10min, 2h or 1d, found {value!r}", param, ctx)
        return seconds


DURATION = DurationType()


def format_duration(duration: timedelta) -> str:
    """Format a duration in the largest unit of which it has two, or in seconds."""
    seconds = max(duration.total_seconds(), 0)
    for unit, unit_s in _UNITS_S.items():
        if seconds >= 2 * unit_s or unit == "s":
            return f"{seconds / unit_s:.0f} {unit}"
    raise AssertionError(unit)
