"""The attributes of published data sets, as another process may send them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from bowstring.errors import ProtocolError
from bowstring.sharing.agent.publications import parse_time


@pytest.mark.parametrize("value", [None, math.inf, -math.inf, 1e300, -1e300, 10**400])
def test_a_time_beyond_the_year_9999_is_none(value: object) -> None:
    assert parse_time(value) is None


@pytest.mark.parametrize("value", [math.nan, True, "1", [], {}])
def test_another_value_is_not_a_time(value: object) -> None:
    with pytest.raises(ProtocolError, match="published data set: expected a time in seconds, found "):
        parse_time(value)


def test_a_time_is_in_seconds_since_1970() -> None:
    assert parse_time(86_400) == parse_time(86_400.0) == datetime(1970, 1, 2, tzinfo=UTC)
