"""The conformance suite over UCX. Its channels are not ordered, so the tests of order are replaced."""

from __future__ import annotations

from typing import NoReturn

import pytest

from bowstring.errors import ConnectionLostError, InvalidArgumentError, ResourceError
from bowstring.transports.base import Channel, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring_networks.ucx.channel import UcxChannel
from bowstring_networks.ucx.transport import UcxTransport
from bowstring_networks.ucx.ucp import ConnectionRequest, Worker
from bowstring_testing.transport_conformance import DEFAULT_OPTIONS, ChannelPair, TransportConformance, run_in_thread
from networks.tests.ucx.ucp_processes import require_libucp
from tests.transports.blocking import flush
from tests.transports.conformance import StreamConformance
from tests.transports.forked_children import call_in_forked_child

require_libucp()


class TestUcx(TransportConformance, StreamConformance):
    transport = UcxTransport()
    shares_memory = False

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        """Connecting takes progress at both ends, which most tests of the suite drive one after the other."""
        with self.transport.listen(options=options) as listener:
            channels: list[Channel] = [self.transport.dial(listener.address, options)]
            while len(channels) < 2:
                channels[0].progress()
                channels += listener.accept()
            requests = [channel.endpoint.flush() for channel in channels if isinstance(channel, UcxChannel)]
            while not all(request.is_done for request in requests):
                for channel in channels:
                    channel.progress()
            dialed, accepted = (BlockingChannel(self.transport, channel) for channel in channels)
            return dialed, accepted

    def test_messages_arrive_in_order_with_their_tags(self, channel_pair: ChannelPair) -> None:
        """Plain and tagged messages overtake each other; short messages of one kind do not."""
        one, other = channel_pair
        assert not other.channel.traits.is_ordered
        tags = [None, 0, 1, 2**64 - 1, None, 1 << 56 | 7]
        for number, tag in enumerate(tags):
            one.send([b"message ", str(number).encode()], tag=tag)
        received = [(message.tag, bytes(message.data)) for message in (other.receive() for _ in tags)]
        sent = [(tag, f"message {number}".encode()) for number, tag in enumerate(tags)]
        assert sorted(received, key=is_plain) == sorted(sent, key=is_plain)

    def test_a_short_plain_message_does_not_overtake_a_long_one(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        sizes_bytes = [8 << 20, 10, 100_000, 0, 40_000, 3]

        def send() -> None:
            for size_bytes in sizes_bytes:
                one.channel.submit([bytes(size_bytes)])
            flush(one)

        with run_in_thread(send) as raised:
            assert [len(other.receive().data) for _ in sizes_bytes] == sizes_bytes
        assert not raised


def test_a_connection_that_could_not_be_accepted_for_lack_of_memory_keeps_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> NoReturn:
        raise ResourceError("no memory")

    transport = UcxTransport()
    with transport.listen() as listener, transport.dial(listener.address) as channel:
        context = transport.acquire_context()
        num_workers = len(context.workers)
        monkeypatch.setattr(Worker, "accept", fail)
        with pytest.raises(ResourceError):
            while True:
                channel.progress()
                listener.accept()
        assert len(context.workers) == num_workers
        transport.release_context()
    assert context.is_closed


def test_a_client_whose_request_cannot_be_read_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    num_requests = 0

    def fail(_: ConnectionRequest) -> NoReturn:
        nonlocal num_requests
        num_requests += 1
        raise ConnectionLostError("the client has left") if num_requests < 10 else AssertionError("asked again")

    monkeypatch.setattr(ConnectionRequest, "client_address", property(fail))
    transport = UcxTransport()
    with transport.listen() as listener, transport.dial(listener.address) as channel:
        while not num_requests:
            channel.progress()
            assert listener.accept() == []
    assert num_requests == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_closes_a_channel_that_a_thread_of_its_parent_has_locked() -> None:
    with UcxTransport().listen() as listener, UcxTransport().dial(listener.address) as channel:
        assert isinstance(channel, UcxChannel)
        assert call_in_forked_child(channel.close, [channel._lock, channel._worker._lock]) == 0
        assert not channel.is_closed


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_cannot_use_a_worker_that_a_thread_of_its_parent_has_locked() -> None:
    with UcxTransport().listen() as listener, UcxTransport().dial(listener.address) as channel:
        assert isinstance(channel, UcxChannel)

        def progress() -> None:
            with pytest.raises(InvalidArgumentError, match="after a fork"):
                channel._worker.progress()

        assert call_in_forked_child(progress, [channel._worker._lock]) == 0


def is_plain(message: tuple[int | None, bytes]) -> bool:
    return message[0] is None
