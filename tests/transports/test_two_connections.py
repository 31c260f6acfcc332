"""Metadata from one server and bodies from another («Data Stream Sequence»), each over a unix socket of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import StreamMessage
from bowstring.dissociated.messages import AddressBody, Body, PackedBody
from bowstring.dissociated.server import ConnectionRole, ServerConnection
from bowstring.ipc.stream import Decoder
from bowstring.memory.buffer import Buffer
from bowstring.sharing.stored_parts import RegionPart, index_part, store_in_region
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.regions import encode_region_address
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.transport_conformance import connect_pair
from tests.transports.blocking import send_message
from tests.transports.region_buffers import view_buffers

WANT, FREE = 1, 2
TABLE = bs.Table.from_batches([bs.record_batch({"n": [i, None], "s": ["x" * i, "é"]}) for i in range(6)])


class Server:
    """One of the two servers: a connection, and the half of each message that it sends."""

    def __init__(self, transport: BlockingChannel, role: ConnectionRole) -> None:
        self.transport = transport
        self.connection = ServerConnection({WANT: role}, FREE)

    def stream(self, dataset: RegionPart) -> None:
        self.connection.receive(*self.transport.receive())
        index = self.transport.export(dataset.region).index if self.connection.role is ConnectionRole.BODIES else 0
        messages = self.connection.send(dataset.schema)
        for number, message in enumerate(dataset.messages):
            body: Body = message.to_address_body(encode_region_address(index, 0))
            if number % 2:
                body = PackedBody.from_parts(dataset.region.view(message.body_offset, message.body_bytes))
            messages += self.connection.send(message.metadata, body)
        for outgoing in messages + self.connection.send_end():
            send_message(self.transport, outgoing)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), max_size=20))
def test_metadata_and_bodies_of_two_unix_sockets_are_paired_in_any_order_of_arrival(order: list[bool]) -> None:
    with ExitStack() as stack:
        dataset = index_part(stack.enter_context(store_in_region(TABLE)[0]))
        options = TransportOptions(timeout_s=10)
        ends = [connect_pair(UNIX, options) for _ in range(2)]
        for end in (end for pair in ends for end in pair):
            stack.enter_context(end)
        (metadata, metadata_server), (bodies, body_server) = ends
        servers = [Server(metadata_server, ConnectionRole.METADATA), Server(body_server, ConnectionRole.BODIES)]
        decoder, headers, batches = Decoder(), [], []

        def has_body(header: Any) -> bool:
            if (batch := decoder.decode_header(bytes(header))) is not None:
                headers.append(batch)
            return batch is not None

        client = ClientStream(WANT, FREE, has_body=has_body)
        request = client.request(b"ticket")
        for connection in (metadata, bodies):
            send_message(connection, request)
        for server in servers:
            server.stream(dataset)

        num_pending = {metadata: 1 + len(dataset.messages) + 1, bodies: len(dataset.messages)}
        first = iter(order)
        while any(num_pending.values()):
            connection = metadata if next(first, False) else bodies
            connection = connection if num_pending[connection] else (bodies if connection is metadata else metadata)
            num_pending[connection] -= 1
            received = connection.receive()
            for event in client.receive(received.tag, received.data):
                if isinstance(event, StreamMessage) and event.body is not None:
                    message = dataset.messages[event.sequence - 1]
                    body = event.body
                    if isinstance(body, AddressBody):
                        views = view_buffers(bodies.memory, body.addresses, body.lengths)
                        offsets, lengths = message.buffers.addresses.tolist(), message.buffers.lengths.tolist()
                        assert views == [dataset.region.view(*span) for span in zip(offsets, lengths, strict=True)]
                        send_message(bodies, _free_body(client, body))
                        whole = dataset.region.view(message.body_offset, message.body_bytes)
                    else:
                        whole = body.parts[0]
                    batches.append(decoder.decode_body(headers.pop(0), Buffer.of(whole)))
        assert bs.Table.from_batches([batch for batch in batches if batch is not None]) == TABLE
        assert client.is_complete
        while servers[1].connection.leases:
            servers[1].connection.receive(*body_server.receive())


def _free_body(client: ClientStream, body: AddressBody) -> Any:
    message = client.free(body)
    assert message is not None
    return message
