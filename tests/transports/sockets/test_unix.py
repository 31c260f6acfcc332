from __future__ import annotations

import socket

from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX, UnixChannel
from bowstring_testing.transport_conformance import DEFAULT_OPTIONS, ChannelPair, TransportConformance
from tests.transports.conformance import RegionConformance, StreamConformance


class TestUnix(TransportConformance, StreamConformance, RegionConformance):
    transport = UNIX


class TestSocketPair(TransportConformance, StreamConformance, RegionConformance):
    """Sockets that neither dialed nor listened, so that no end sends a HELLO."""

    transport = UNIX

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        first, second = (UnixChannel.from_socket(end, options) for end in socket.socketpair(socket.AF_UNIX))
        return BlockingChannel(UNIX, first), BlockingChannel(UNIX, second)
