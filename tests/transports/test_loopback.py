from __future__ import annotations

from bowstring.testing.protocol_conformance import QUICK
from bowstring.testing.transport_conformance import TransportConformance
from bowstring.transports.base import Transport, TransportOptions
from bowstring.transports.loopback import LoopbackTransport


class TestLoopback(TransportConformance):
    def connected(self, options: TransportOptions = QUICK) -> tuple[Transport, Transport]:
        return LoopbackTransport.pair(options)
