"""The conformance suites over libfabric."""

from __future__ import annotations

from bowstring_networks.fabric.transport import FabricOptions, FabricTransport
from bowstring_testing.transport_conformance import TransportConformance
from networks.tests.fabric.pairs import FabricPairs, require_libfabric
from tests.transports.conformance import StreamConformance

require_libfabric()


class TestTcp(FabricPairs, TransportConformance, StreamConformance):
    transport = FabricTransport(FabricOptions(provider="tcp"))


# These providers have threads of their own, which a loaded machine may delay longer than tests of single steps wait.


class TestNet(FabricPairs, StreamConformance):
    transport = FabricTransport(FabricOptions(provider="net"))


class TestSockets(FabricPairs, StreamConformance):
    transport = FabricTransport(FabricOptions(provider="sockets"))
