"""The conformance suite over libfabric."""

from __future__ import annotations

from bowstring.testing.protocol_conformance import DEFAULT_OPTIONS, ChannelPair, ProtocolConformance
from bowstring.testing.transport_conformance import TransportConformance
from bowstring.transports.base import Channel, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.fabric.channel import FabricChannel
from bowstring.transports.fabric.transport import FabricOptions, FabricTransport
from tests.transports.fabric.fabric_processes import require_libfabric, require_provider

require_libfabric()


def is_ready(channel: Channel) -> bool:
    """Whether the endpoints are connected, too: until then libfabric takes no messages."""
    assert isinstance(channel, FabricChannel)
    return channel.is_connected and channel._link is not None and not channel._link.is_flushing


class FabricPairs:
    """Connects pairs. That takes progress at both ends, which most tests of the suites drive one after the other."""

    transport: FabricTransport
    shares_memory = False

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        require_provider(self.transport.settings.provider)
        with self.transport.listen(options=options) as listener:
            channels: list[Channel] = [self.transport.dial(listener.address, options)]
            while len(channels) < 2 or not all(map(is_ready, channels)):
                for channel in channels:
                    channel.progress()
                channels += listener.accept()
            dialed, accepted = (BlockingChannel(self.transport, channel) for channel in channels)
            return dialed, accepted


class TestTcp(FabricPairs, TransportConformance):
    transport = FabricTransport(FabricOptions(provider="tcp"))


# These providers have threads of their own, which a loaded machine may delay longer than tests of single steps wait.


class TestNet(FabricPairs, ProtocolConformance):
    transport = FabricTransport(FabricOptions(provider="net"))


class TestSockets(FabricPairs, ProtocolConformance):
    transport = FabricTransport(FabricOptions(provider="sockets"))
