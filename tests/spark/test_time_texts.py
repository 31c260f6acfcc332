"""Timestamps as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from bowstring.errors import InvalidArgumentError
from bowstring.spark.time_texts import parse_time_zone, parse_timestamp, to_microseconds

NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2024-07-01T12:00:00",
        " 2024-7-1 12:0:0.0000001",
        "2024-07-01 12:00:00Z",
        "2024-07-01T14:00:00+02:00",
        "2024-07-01T14:00:00.000 Europe/Berlin",
        "2024-07-01T11:00:00UTC-1",
    ],
)
def test_a_timestamp_is_read_in_its_own_zone_or_the_given(text: str) -> None:
    assert parse_timestamp(text, UTC) == NOON
    assert to_microseconds(NOON) == 1_719_835_200_000_000


def test_parts_that_are_missing_are_the_first() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert parse_timestamp("2024", berlin) == datetime(2024, 1, 1, tzinfo=berlin)
    assert parse_timestamp("2024-02-03", berlin) == datetime(2024, 2, 3, tzinfo=berlin)


@pytest.mark.parametrize(
    "text", ["", "soon", "2024-13-01", "2024-02-30", "2024-01-01T25:00:00", "2024-01-01T00:00", "99"]
)
def test_other_texts_are_not_timestamps(text: str) -> None:
    assert parse_timestamp(text, UTC) is None
    assert parse_timestamp("2024-01-01 00:00:00 Nowhere/City", UTC) is None


def test_zones_are_regions_and_offsets() -> None:
    assert parse_time_zone("Z") == parse_time_zone("GMT") == UTC
    assert parse_time_zone("-03:30") == timezone(-timedelta(hours=3, minutes=30))
    assert parse_time_zone("UTC+8") == timezone(timedelta(hours=8))
    assert parse_time_zone(None) is not None
    for name in ("Nowhere", "../etc/passwd", "+99:00", ""):
        with pytest.raises(InvalidArgumentError, match="is not a time zone"):
            parse_time_zone(name)
