from __future__ import annotations

from bowstring.errors import ConnectionLostError
from bowstring.testing.descriptors import assert_descriptors_closed
from bowstring.testing.transport_conformance import TransportConformance
from bowstring.transports.base import RECEIVE, DirectionEnded
from bowstring.transports.loopback import LOOPBACK


class TestLoopback(TransportConformance):
    transport = LOOPBACK


def test_a_connection_to_a_listener_that_was_closed_meanwhile_ends() -> None:
    with assert_descriptors_closed():
        listener = LOOPBACK.listen()
        client, server = LOOPBACK.pair()
        listener.close()
        listener.add_pending_channel(server)
        (event,) = client.progress(RECEIVE)
        assert isinstance(event, DirectionEnded)
        assert isinstance(event.error, ConnectionLostError)
        client.close()
