"""Timestamps as text, as Spark casts them, such as ``2024``, ``2024-1-2`` and ``2024-01-02T03:04:05.678+01:00``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from bowstring.errors import InvalidArgumentError

_TIMESTAMP = re.compile(
    r"(?P<year>[0-9]{4,6})(-(?P<month>[0-9]{1,2})(-(?P<day>[0-9]{1,2})"
    r"([T ]((?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})"
    r"(\.(?P<fraction>[0-9]*))?\s*(?P<zone>[A-Za-z+-].*)?)?)?)?)?"
)
_OFFSET = re.compile(r"(UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>[0-9]{1,2})(:(?P<minutes>[0-9]{1,2}))?(:[0-9]{2})?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_zone(name: str | None) -> tzinfo:
    """Return the time zone of a region or offset, as in ``spark.sql.session.timeZone``; None for the machine's.

    Raises `InvalidArgumentError`.
    """
    if name is None:
        return datetime.now().astimezone().tzinfo or UTC
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    try:
        if match is None:
            return ZoneInfo(name)
        offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"] or 0))
        return timezone(-offset if match["sign"] == "-" else offset)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise InvalidArgumentError(f"{name!r} is not a time zone such as 'Europe/Berlin' or '+01:00'") from None


def parse_timestamp(text: str, zone: tzinfo | None) -> datetime | None:
    """Return the time of a text in `zone`, unless it names one; None if it is not a timestamp.

    Digits after microseconds are cut off. With None for the zone, the time has none, and a zone in the text is ignored.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    fraction = (match["fraction"] or "")[:6].ljust(6, "0")
    year, month, day = (int(match[name] or 1) for name in ("year", "month", "day"))
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    try:
        time = datetime(year, month, day, hour, minute, second, int(fraction))
        if zone is None:
            return time
        return time.replace(tzinfo=parse_time_zone(match["zone"].strip()) if match["zone"] else zone)
    except (ValueError, InvalidArgumentError):
        return None


def to_microseconds(time: datetime) -> int:
    """Return the microseconds of a time with a zone since 1970 in UTC."""
    return (time - EPOCH) // timedelta(microseconds=1)
