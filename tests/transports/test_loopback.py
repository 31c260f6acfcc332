from __future__ import annotations

from bowstring.testing.transport_conformance import TransportConformance
from bowstring.transports.loopback import LOOPBACK


class TestLoopback(TransportConformance):
    transport = LOOPBACK
