"""Fixtures of the tests of transports."""

from __future__ import annotations

import pytest

from bowstring.transports.base import Transport
from bowstring.transports.sockets.unix import UNIX


@pytest.fixture
def transport() -> Transport:
    """A transport whose two ends are in the test's process."""
    return UNIX
