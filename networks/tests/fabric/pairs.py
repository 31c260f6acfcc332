"""Connected pairs of channels over libfabric, and where they are available."""

from __future__ import annotations

from functools import cache

import pytest

from bowstring.errors import UnmetRequirementError, UnsupportedError
from bowstring.transports.base import Channel, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring_networks.fabric import libfabric
from bowstring_networks.fabric.channel import FabricChannel
from bowstring_networks.fabric.endpoint import Domain
from bowstring_networks.fabric.transport import FabricTransport
from bowstring_testing.transport_conformance import DEFAULT_OPTIONS, ChannelPair


def require_libfabric() -> None:
    """Skip the tests of a module if the library is not installed."""
    try:
        libfabric.load()
    except UnmetRequirementError as error:
        pytest.skip(str(error), allow_module_level=True)


@cache
def require_provider(name: str) -> None:
    """Skip a test if libfabric has no such provider."""
    try:
        Domain(name, "127.0.0.1").close()
    except UnsupportedError as error:
        pytest.skip(str(error))


def is_ready(channel: Channel) -> bool:
    """Whether the endpoints are connected, too: until then libfabric takes no messages."""
    assert isinstance(channel, FabricChannel)
    return channel.is_connected and channel._link is not None and not channel._link.has_unsent_frames


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
