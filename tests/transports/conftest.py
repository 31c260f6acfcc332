"""Fixtures of the tests of transports."""

from __future__ import annotations

import pytest

from bowstring.transports.base import Transport
from bowstring.transports.loopback import LOOPBACK
from bowstring.transports.unix import UNIX


@pytest.fixture(params=[UNIX, LOOPBACK], ids=["unix", "loopback"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """A transport whose two ends are in the test's process."""
    transport: Transport = request.param
    return transport
