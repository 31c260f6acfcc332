from __future__ import annotations

from bowstring.testing.protocol_conformance import QUICK
from bowstring.testing.transport_conformance import TransportConformance
from bowstring.transports.base import Transport, TransportOptions
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_listener import UnixListener


class TestUnixByAbstractAddress(TransportConformance):
    def connected(self, options: TransportOptions = QUICK) -> tuple[Transport, Transport]:
        with UnixListener(options=options) as listener:
            one = UnixTransport.connect(listener.address, options=options)
            return one, listener.accept()


class TestUnixPair(TransportConformance):
    def connected(self, options: TransportOptions = QUICK) -> tuple[Transport, Transport]:
        return UnixTransport.pair(options)
