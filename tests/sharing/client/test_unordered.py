"""A transport that does not keep the order of messages: they are put in order by their sequence numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

import bowstring as bs
from bowstring.sharing import ServerOptions
from bowstring.transports import registry
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    Event,
    MessageReceived,
    TransportOptions,
)
from bowstring.transports.sockets.unix import UnixChannel, UnixTransport


class ReversingChannel(UnixChannel):
    """Delivers all messages that have arrived in reverse order."""

    num_reversed = 0

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events = super().progress(directions)
        received = [event for event in events if isinstance(event, MessageReceived)]
        ReversingChannel.num_reversed += len(received) > 1
        return [event for event in events if not isinstance(event, MessageReceived)] + received[::-1]


class ReversingTransport(UnixTransport):
    scheme = "reversing"

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        channel = ReversingChannel.dial(address, options)
        channel.traits = replace(channel.traits, is_ordered=False)
        return channel


@pytest.mark.parametrize("copy", [False, True])
def test_a_data_set_is_read_over_a_transport_that_reverses_messages(
    monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    monkeypatch.setitem(registry.TRANSPORTS, "reversing", ReversingTransport())
    monkeypatch.setattr(ReversingChannel, "num_reversed", 0)
    words = bs.array(["a", None, "b"]).dictionary_encode()
    table = bs.Table.from_batches([bs.record_batch({"n": [n, None, n], "w": words}) for n in range(200)])
    options = ServerOptions(inline_bytes=0)
    with (
        bs.serve({"t": table}, options=options, scheme="reversing") as server,
        bs.connect(server.uri("t"), copy=copy) as data,
    ):
        for _ in range(3):
            assert data.read_all() == table
    assert ReversingChannel.num_reversed > 0
