"""Both sides of a stream, message by message, and peers that do what they may not."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import (
    AddressesFreed,
    AllMessagesReceived,
    ClientEvent,
    DataRequested,
    StreamComplete,
    StreamMessage,
)
from bowstring.dissociated.limits import ProtocolLimits
from bowstring.dissociated.messages import AddressBody, OutgoingMessage, PackedBody
from bowstring.dissociated.server import ConnectionRole, EncodedStream, ServerConnection
from bowstring.dissociated.states import StreamState
from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    ProtocolError,
)

WANT, FREE = 101, 102


def has_body(header: Any) -> bool:
    return bytes(header[:1]) == b"B"


def new_client(**options: Any) -> ClientStream:
    return ClientStream(WANT, options.pop("free_data", FREE), has_body=has_body, **options)


def requesting_client(**options: Any) -> ClientStream:
    client = new_client(**options)
    client.request(b"t")
    return client


def streaming_server(**options: Any) -> ServerConnection:
    server = ServerConnection(
        {WANT: options.pop("role", ConnectionRole.BOTH)}, options.pop("free_data", FREE), **options
    )
    server.receive(WANT, b"t")
    return server


def message_bytes(message: OutgoingMessage) -> bytes:
    return b"".join(message.parts)


def receive_all(client: ClientStream, messages: list[OutgoingMessage]) -> list[ClientEvent]:
    return [event for message in messages for event in client.receive(message.tag, message_bytes(message))]


def prefix(kind: int, sequence: int) -> bytes:
    return struct.pack("<BI", kind, sequence)


def encode_uint64s(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


class Owner:
    pass


def test_the_bytes_of_a_small_stream_follow_the_specification() -> None:
    server = ServerConnection(WANT, FREE)
    assert server.receive(WANT, b"ticket") == [DataRequested(b"ticket")]
    messages = server.send(b"Schema")
    messages += server.send(b"B1", PackedBody.from_parts(b"ab", b"cd"))
    messages += server.send(b"B2", AddressBody.from_arrays([4096, 8192], [3, 5]))
    messages += server.send_end()
    assert [(message.tag, message_bytes(message)) for message in messages] == [
        (None, b"\x01\0\0\0\0Schema"),
        (None, b"\x01\x01\0\0\0B1"),
        (0x0000_0000_0000_0001, b"abcd"),
        (None, b"\x01\x02\0\0\0B2"),
        (0x0100_0000_0000_0002, encode_uint64s(8, 2, 4096, 3, 8192, 5)),
        (None, b"\0\x03\0\0\0"),
    ]
    assert all(message.length_bytes == len(message_bytes(message)) for message in messages)


def test_an_encoded_stream_has_the_messages_of_one_that_is_sent_in_parts() -> None:
    batches = [(b"B%d" % number, PackedBody.from_parts(b"body", b"%d" % number)) for number in range(3)]
    stream = EncodedStream.encode(b"Schema", batches)
    server, other = streaming_server(), streaming_server()
    for _ in range(2):
        messages = server.send(b"Schema")
        for header, body in batches:
            messages += server.send(header, body)
        messages += server.send_end()
        encoded = other.send_stream(stream)
        assert [(each.tag, message_bytes(each), each.length_bytes) for each in encoded] == [
            (each.tag, message_bytes(each), each.length_bytes) for each in messages
        ]
        assert stream.length_bytes == sum(each.length_bytes for each in messages)
        assert (other.state, other.next_sequence) == (server.state, server.next_sequence)
        assert server.receive(WANT, b"again") == other.receive(WANT, b"again")


def test_an_encoded_stream_is_sent_as_a_whole() -> None:
    stream = EncodedStream.encode(b"Schema", [])
    with pytest.raises(ProtocolError, match="metadata message while waiting"):
        ServerConnection(WANT).send_stream(stream)
    for server in (
        streaming_server(role=ConnectionRole.METADATA),
        streaming_server(role=ConnectionRole.BODIES),
        streaming_server(),
    ):
        if server.role is ConnectionRole.BOTH:
            server.send(b"Schema")
        with pytest.raises(InvalidArgumentError, match="needs a new request for metadata and bodies"):
            server.send_stream(stream)


def test_the_client_gets_messages_in_order_with_their_bodies() -> None:
    server, client = streaming_server(), requesting_client()
    events = receive_all(client, server.send(b"Schema"))
    events += receive_all(client, server.send(b"B1", PackedBody.from_parts(b"abcd")))
    events += receive_all(client, server.send_end())
    first, second, ended, complete = events
    assert isinstance(first, StreamMessage)
    assert isinstance(second, StreamMessage)
    assert (first.sequence, bytes(first.header), first.body) == (0, b"Schema", None)
    assert isinstance(second.body, PackedBody)
    assert second.body.parts == (b"abcd",)
    assert (ended, complete) == (AllMessagesReceived(2), StreamComplete())
    assert server.state is StreamState.COMPLETE
    assert client.is_complete


def test_the_stream_is_complete_when_the_client_has_freed_all_memory() -> None:
    server, client = streaming_server(), requesting_client()
    owner = Owner()
    alive = weakref.ref(owner)
    messages = (
        server.send(b"Schema") + server.send(b"B", AddressBody.from_arrays([1, 2], [1, 1]), owner) + server.send_end()
    )
    del owner
    events = receive_all(client, messages)
    assert events[-1] == AllMessagesReceived(2)
    assert (client.has_all_messages, client.is_complete, server.state) == (True, False, StreamState.LEASED)
    body = events[1].body  # type: ignore[union-attr]
    assert isinstance(body, AddressBody)
    gc.collect()
    assert alive() is not None
    freed = client.free(body)
    assert freed is not None
    assert (freed.tag, message_bytes(freed)) == (FREE, encode_uint64s(1, 2))
    assert server.receive(freed.tag, message_bytes(freed)) == [AddressesFreed(2, 0), StreamComplete()]
    assert client.is_complete
    gc.collect()
    assert alive() is None


def test_single_addresses_can_be_freed() -> None:
    server, client = streaming_server(), requesting_client()
    receive_all(client, server.send(b"Schema") + server.send(b"B", AddressBody.from_arrays([1, 2, 3], [1, 1, 1])))
    freed = client.free(np.array([3, 1], np.uint64))
    assert freed is not None
    assert server.receive(freed.tag, message_bytes(freed)) == [AddressesFreed(2, 1)]
    with pytest.raises(InvalidArgumentError, match="address 3"):
        client.free(np.array([3], np.uint64))


def test_one_message_frees_several_bodies_and_several_messages_free_one() -> None:
    server, client = streaming_server(), requesting_client()
    receive_all(client, server.send(b"Schema"))
    bodies = [[10, 20, 30], [20, 40, 50], [60, 70, 80]]
    ready = [receive_all(client, server.send(b"B", AddressBody.from_arrays(body, [1, 0, 1])))[0] for body in bodies]
    first, second, third = (event.body for event in ready if isinstance(event, StreamMessage))
    assert isinstance(first, AddressBody)
    assert isinstance(second, AddressBody)
    assert isinstance(third, AddressBody)
    freed = client.free(first, np.array([60], np.uint64), second)
    assert freed is not None
    assert message_bytes(freed) == encode_uint64s(10, 20, 30, 60, 20, 40, 50)
    assert server.receive(FREE, message_bytes(freed)) == [AddressesFreed(7, 1)]
    receive_all(client, server.send_end())
    assert server.receive(FREE, encode_uint64s(80)) == [AddressesFreed(1, 0), StreamComplete()]
    last = client.free(np.array([80], np.uint64), np.array([70], np.uint64))
    assert last is not None
    assert message_bytes(last) == encode_uint64s(80, 70)
    assert client.is_complete
    assert client.free() is None


def test_an_empty_body_is_a_message_of_no_bytes() -> None:
    server, client = streaming_server(), requesting_client()
    receive_all(client, server.send(b"Schema"))
    metadata, body = server.send(b"B", PackedBody.from_parts())
    assert (body.tag, body.length_bytes) == (1, 0)
    assert receive_all(client, [metadata]) == []
    (event,) = receive_all(client, [body])
    assert isinstance(event, StreamMessage)


def test_the_bytes_of_a_packed_body_are_never_read() -> None:
    client, body = requesting_client(), object()
    client.receive(None, prefix(1, 0) + b"Schema")
    client.receive(None, prefix(1, 1) + b"B")
    (event,) = client.receive(1, body, 1 << 30)
    assert isinstance(event, StreamMessage)
    assert isinstance(event.body, PackedBody)
    assert event.body.parts == (body,)


def test_the_lower_half_of_a_tag_matches_a_body_of_any_type_with_its_metadata() -> None:
    client = requesting_client()
    client.receive(None, prefix(1, 0) + b"Schema")
    for tag, data in ((1, b"x"), (1 << 56 | 2, encode_uint64s(1, 1, 7, 1)), (3, b"y")):
        assert client.receive(None, prefix(1, tag & 0xFFFF_FFFF) + b"B") == []
        (event,) = client.receive(tag, data)
        assert isinstance(event, StreamMessage)
        assert event.sequence == tag & 0xFFFF_FFFF


def test_metadata_that_is_missing_at_the_end_of_stream_is_still_processed() -> None:
    server, client = streaming_server(), requesting_client(in_order=False)
    messages = server.send(b"Schema") + server.send(b"B", PackedBody.from_parts(b"x")) + server.send_end()
    schema, metadata, body, end = messages
    assert [type(event) for event in receive_all(client, [schema, end])] == [StreamMessage]
    assert not client.has_all_messages
    assert receive_all(client, [body]) == []
    assert [type(event) for event in receive_all(client, [metadata])] == [
        StreamMessage,
        AllMessagesReceived,
        StreamComplete,
    ]


def test_a_batch_without_buffers_leases_nothing() -> None:
    server, client = streaming_server(), requesting_client()
    events = receive_all(
        client, server.send(b"Schema") + server.send(b"B", AddressBody.from_arrays([], [])) + server.send_end()
    )
    assert events[-1] == StreamComplete()
    body = events[1].body  # type: ignore[union-attr]
    assert isinstance(body, AddressBody)
    assert client.free(body) is None


def test_metadata_and_bodies_of_two_connections_are_paired() -> None:
    metadata, bodies, client = (
        streaming_server(role=ConnectionRole.METADATA),
        streaming_server(role=ConnectionRole.BODIES),
        requesting_client(),
    )
    plain: list[OutgoingMessage] = []
    tagged: list[OutgoingMessage] = []
    for header, body in [
        (b"Schema", None),
        (b"B1", PackedBody.from_parts(b"x")),
        (b"B2", AddressBody.from_arrays([7], [1])),
    ]:
        plain += metadata.send(header, body)
        tagged += bodies.send(header, body)
    plain, tagged = plain + metadata.send_end(), tagged + bodies.send_end()
    assert {message.tag for message in plain} == {None}
    assert [message.tag for message in tagged] == [1, 1 << 56 | 2]
    assert (metadata.state, bodies.state) == (StreamState.COMPLETE, StreamState.LEASED)
    events = receive_all(client, tagged)
    assert events == []
    events = receive_all(client, plain)
    assert [type(event) for event in events] == [StreamMessage, StreamMessage, StreamMessage, AllMessagesReceived]


def test_the_tag_of_the_request_selects_the_role() -> None:
    tags = {WANT: ConnectionRole.BOTH, 201: ConnectionRole.METADATA, 202: ConnectionRole.BODIES}
    client = ClientStream({ConnectionRole.METADATA: 201, ConnectionRole.BODIES: 202}, FREE, has_body=has_body)
    events: list[ClientEvent] = []
    for role, kinds in ((ConnectionRole.BODIES, [1 << 56 | 1]), (ConnectionRole.METADATA, [None, None, None])):
        server = ServerConnection(tags, FREE)
        request = client.request(b"t", role)
        assert server.receive(request.tag, message_bytes(request)) == [DataRequested(b"t")]
        assert server.role is role
        messages = server.send(b"Schema") + server.send(b"B", AddressBody.from_arrays([7], [1])) + server.send_end()
        assert [message.tag for message in messages] == kinds
        events += receive_all(client, messages)
    assert [type(event) for event in events] == [StreamMessage, StreamMessage, AllMessagesReceived]
    server = ServerConnection(tags, FREE)
    assert server.receive(WANT, b"t") == [DataRequested(b"t")]
    assert server.role is ConnectionRole.BOTH
    with pytest.raises(ProtocolError, match=r"expected the tag 101 or 201 or 202 \(want_data\) or 102"):
        server.receive(203, b"t")


def test_tags_that_do_not_select_one_role_are_rejected() -> None:
    for tags in ({}, {FREE: ConnectionRole.BOTH}, FREE):
        with pytest.raises(InvalidArgumentError, match="other than free_data = 102"):
            ServerConnection(tags, FREE)
    client = ClientStream({ConnectionRole.METADATA: 201, ConnectionRole.BODIES: 202}, FREE, has_body=has_body)
    with pytest.raises(
        InvalidArgumentError,
        match=r"tags for ConnectionRole.METADATA or ConnectionRole.BODIES, not for ConnectionRole.BOTH",
    ):
        client.request(b"t")
    client.request(b"t", ConnectionRole.METADATA)
    with pytest.raises(InvalidArgumentError, match="another ClientStream"):
        client.request(b"t", ConnectionRole.METADATA)
    client.request(b"t", ConnectionRole.BODIES)


@given(st.randoms(use_true_random=False), st.sampled_from([0, 2**32 - 2, 2**32 - 1]))
def test_an_unordered_transport_may_deliver_in_any_order(random: Any, start: int) -> None:
    server = streaming_server(first_sequence=start)
    client = requesting_client(first_sequence=start, in_order=False)
    messages = server.send(b"Schema")
    for number in range(6):
        messages += server.send(b"B%d" % number, PackedBody.from_parts(b"%d" % number))
    messages += server.send_end()
    random.shuffle(messages)
    events = receive_all(client, messages)
    ready = [event for event in events if isinstance(event, StreamMessage)]
    assert [bytes(message.header) for message in ready] == [b"Schema", b"B0", b"B1", b"B2", b"B3", b"B4", b"B5"]
    assert [type(event) for event in events[-2:]] == [AllMessagesReceived, StreamComplete]


def test_the_sequence_number_rolls_over_on_both_sides() -> None:
    server, client = streaming_server(first_sequence=2**32 - 1), requesting_client(first_sequence=2**32 - 1)
    events = receive_all(
        client, server.send(b"Schema") + server.send(b"B", PackedBody.from_parts(b"x")) + server.send_end()
    )
    assert [event.sequence for event in events if isinstance(event, StreamMessage)] == [2**32 - 1, 0]


def test_one_connection_serves_one_stream_after_the_other() -> None:
    server = streaming_server()
    server.send(b"Schema")
    server.send(b"B", AddressBody.from_arrays([9], [1]))
    server.send_end()
    assert server.receive(WANT, b"again") == [DataRequested(b"again")]
    assert message_bytes(server.send(b"Schema")[0]).startswith(prefix(1, 0))
    server.receive(FREE, encode_uint64s(9))
    server.send_end()
    assert server.state is StreamState.COMPLETE


def test_the_server_ends_the_leases_of_a_lost_client() -> None:
    server = streaming_server()
    owner = Owner()
    alive = weakref.ref(owner)
    server.send(b"Schema")
    server.send(b"B", AddressBody.from_arrays([1, 2], [1, 1]), owner)
    del owner
    assert server.connection_lost() == 2
    gc.collect()
    assert alive() is None
    assert server.state is StreamState.LOST
    with pytest.raises(ProtocolError):
        server.send(b"B")


# Hostile clients


@pytest.mark.parametrize(
    ("before", "tag", "data", "message"),
    [
        ("waiting", None, b"plain", "expected a tagged message"),
        ("waiting", 7, b"", "found 7"),
        ("waiting", FREE, encode_uint64s(1), "free_data while waiting"),
        ("streaming", WANT, b"t", "want_data while streaming"),
        ("streaming", FREE, b"", "one or more integers"),
        ("streaming", FREE, b"123", "one or more integers"),
        ("streaming", FREE, encode_uint64s(5), "frees address 5"),
        ("streaming", FREE, encode_uint64s(1, 1), "address 1 2 times"),
        ("streaming", 1 << 56, encode_uint64s(0, 0), "expected the tag"),
    ],
)
def test_a_protocol_violation_of_the_client_ends_the_connection(
    before: str, tag: int | None, data: bytes, message: str
) -> None:
    server = ServerConnection(WANT, FREE)
    if before == "streaming":
        server.receive(WANT, b"t")
        server.send(b"Schema")
        server.send(b"B", AddressBody.from_arrays([1], [1]))
    with pytest.raises(ProtocolError, match=message):
        server.receive(tag, data)
    assert server.state is StreamState.FAILED
    assert not server.leases
    with pytest.raises(ProtocolError, match="want_data while failed"):
        server.receive(WANT, b"t")


def test_a_huge_ticket_is_an_error() -> None:
    with pytest.raises(LimitError, match="max_ticket_bytes = 10"):
        ServerConnection(WANT, limits=ProtocolLimits(max_ticket_bytes=10)).receive(WANT, bytes(11))


@given(st.lists(st.tuples(st.none() | st.sampled_from([WANT, FREE, 0, 2**64 - 1]), st.binary(max_size=24)), max_size=8))
def test_any_messages_to_a_server_are_events_or_errors_of_bowstring(messages: list[tuple[int | None, bytes]]) -> None:
    server = ServerConnection(WANT, FREE)
    for tag, data in messages:
        try:
            server.receive(tag, data)
        except BowstringError:
            assert server.state is StreamState.FAILED


# Hostile servers


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([(None, b"")], "prefix of 5 bytes"),
        ([(None, b"\x01\0\0")], "prefix of 5 bytes"),
        ([(None, prefix(2, 0) + b"S")], "type 0 or 1"),
        ([(None, prefix(1, 1) + b"S")], "expected sequence number 0, found 1"),
        ([(None, prefix(1, 2**32 - 1) + b"S")], "expected sequence number 0"),
        ([(None, prefix(1, 0) + b"B")], "expected a schema"),
        ([(None, prefix(0, 0))], "expected a schema before it"),
        ([(None, prefix(0, 1))], "expected sequence number 0"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(1, 0) + b"S")], "expected sequence number 1, found 0"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(1, 2) + b"B")], "expected sequence number 1, found 2"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(0, 1) + b"x")], "exactly 5 bytes, found 6"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(0, 7))], "end of stream: expected sequence number 1, found 7"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(0, 1)), (None, prefix(0, 1))], "while complete"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(0, 1)), (None, prefix(1, 1) + b"B")], "while complete"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(0, 1)), (1, b"body")], "body while complete"),
        ([(None, prefix(1, 0) + b"S"), (0, b"body")], "expected message 1"),
        ([(0, b"body"), (None, prefix(1, 0) + b"S")], "message 0, whose header has none"),
        ([(5, b"body"), (5, b"body")], "body 5 was received twice"),
        ([(5, b"body"), (None, prefix(1, 0) + b"S"), (None, prefix(0, 1))], "message 5 came, but the end"),
        ([(1 << 40 | 5, b"body")], "reserved bits"),
        ([(2 << 56 | 5, b"body")], "body type 0 or 1"),
        ([(1 << 56 | 5, b"body")], "at least 16 bytes"),
        ([(1 << 56 | 5, encode_uint64s(0, 2**63))], "buffers take"),
        ([(1 << 56 | 5, encode_uint64s(9, 1, 0, 8) + encode_uint64s(1, 1))], "found 48"),
    ],
)
def test_a_protocol_violation_of_the_server_ends_the_stream(
    messages: list[tuple[int | None, bytes]], message: str
) -> None:
    client = requesting_client()
    for tag, data in messages[:-1]:
        client.receive(tag, data)
    with pytest.raises(ProtocolError, match=message):
        client.receive(*messages[-1])
    with pytest.raises(ProtocolError, match="metadata message while failed"):
        client.receive(None, prefix(1, 0) + b"S")


@pytest.mark.parametrize("in_order", [False, True])
def test_the_first_message_is_always_a_schema_message(in_order: bool) -> None:
    server = streaming_server()
    with pytest.raises(InvalidArgumentError, match="the first message has to be the schema's"):
        server.send(b"B", PackedBody.from_parts(b""))
    assert message_bytes(server.send(b"Schema")[0]) == prefix(1, 0) + b"Schema"
    client = requesting_client(in_order=in_order)
    if not in_order:
        assert client.receive(None, prefix(1, 1) + b"B") == []  # message 0 is late
        assert client.receive(0, b"the body of message 0") == []
    with pytest.raises(ProtocolError, match="metadata message 0: expected a schema"):
        client.receive(None, prefix(1, 0) + b"B")


@pytest.mark.parametrize("tag", [3, 1 << 56 | 3, 1 << 40 | 3, 2**64])
def test_a_client_rejects_a_tag_of_errors_that_is_reserved_or_that_of_a_body(tag: int) -> None:
    with pytest.raises(InvalidArgumentError, match="error_data: expected zeros in bits 32 to 55"):
        ClientStream(WANT, error_data=tag, has_body=lambda _: False)


def test_addresses_need_a_uri_with_free_data_on_both_sides() -> None:
    with pytest.raises(ProtocolError, match="the URI has no free_data"):
        requesting_client(free_data=None).receive(1 << 56 | 1, encode_uint64s(1, 1, 0, 1))
    server = streaming_server(free_data=None)
    server.send(b"Schema")
    with pytest.raises(InvalidArgumentError, match="free_data"):
        server.send(b"B", AddressBody.from_arrays([1], [1]))


def test_a_body_that_cannot_be_encoded_is_an_error_and_the_stream_continues() -> None:
    server, client = streaming_server(), requesting_client()
    first = server.send(b"Schema")
    with pytest.raises(InvalidArgumentError, match=f"{1 << 64} bytes"):
        server.send(b"B", AddressBody.from_arrays([1, 2], [1 << 63, 1 << 63]))
    assert not server.leases
    assert len(receive_all(client, first + server.send(b"B", AddressBody.from_arrays([1], [1])))) == 2


def test_the_error_for_a_limit_of_the_client_names_it() -> None:
    limits = ProtocolLimits(max_metadata_bytes=10, max_packed_body_bytes=20, max_pending_messages=3, max_ticket_bytes=4)
    with pytest.raises(LimitError, match="max_metadata_bytes = 10"):
        requesting_client(limits=limits).receive(None, prefix(1, 0) + b"S" * 6)
    with pytest.raises(LimitError, match="max_packed_body_bytes = 20"):
        requesting_client(limits=limits).receive_body(1, object(), 21)
    with pytest.raises(LimitError, match="max_pending_messages = 3"):
        requesting_client(limits=limits).receive(3, b"")
    with pytest.raises(InvalidArgumentError, match="max_ticket_bytes = 4"):
        new_client(limits=limits).request(b"12345")


def test_a_malformed_header_ends_the_stream() -> None:
    def refuse(header: Any) -> bool:
        raise InvalidDataError("no header")

    client = ClientStream(WANT, has_body=refuse)
    client.request(b"t")
    with pytest.raises(InvalidDataError):
        client.receive(None, prefix(1, 0) + b"S")
    with pytest.raises(ProtocolError, match="body while failed"):
        client.receive(0, b"")


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, None, 1, 2, 1 << 56 | 1, 1 << 56 | 2, 1 << 33, 2**64 - 1]),
            st.sampled_from(
                [
                    prefix(1, 0) + b"S",
                    prefix(1, 1) + b"B",
                    prefix(1, 2) + b"B",
                    prefix(0, 3),
                    encode_uint64s(1, 1, 5, 1),
                ]
            )
            | st.binary(max_size=30),
        ),
        max_size=10,
    ),
    st.booleans(),
)
def test_any_messages_to_a_client_are_events_or_errors_of_bowstring(
    messages: list[tuple[int | None, bytes]], in_order: bool
) -> None:
    client = requesting_client(in_order=in_order)
    expected = 0
    for tag, data in messages:
        try:
            events = client.receive(tag, data)
        except BowstringError:
            with pytest.raises(ProtocolError, match="metadata message while failed"):
                client.receive(None, prefix(1, 0) + b"S")
            return
        for event in events:
            if isinstance(event, StreamMessage):
                assert event.sequence == expected
                expected += 1


# Connections that end


@pytest.mark.parametrize(
    ("messages", "missing"),
    [
        ([], "message 0 and the end of stream"),
        ([(None, prefix(1, 0) + b"S")], "message 1 and the end of stream"),
        ([(None, prefix(1, 0) + b"S"), (None, prefix(1, 1) + b"B")], "the body of message 1"),
        ([(None, prefix(1, 0) + b"S"), (1, b"x")], "the metadata of message 1"),
    ],
)
def test_a_lost_server_is_an_error_that_names_the_missing_message(
    messages: list[tuple[int | None, bytes]], missing: str
) -> None:
    client = requesting_client()
    for tag, data in messages:
        client.receive(tag, data)
    with pytest.raises(ConnectionLostError, match=missing):
        client.connection_lost()
    with pytest.raises(ProtocolError, match="metadata message while lost"):
        client.receive(None, prefix(1, 0) + b"S")


def test_gaps_before_the_end_are_an_error_when_an_unordered_connection_ends() -> None:
    client = requesting_client(in_order=False)
    client.receive(None, prefix(1, 0) + b"S")
    client.receive(None, prefix(0, 5))
    with pytest.raises(ConnectionLostError, match=r"message 1 .*4 incomplete"):
        client.connection_lost()


def test_a_server_lost_after_the_end_is_not_an_error() -> None:
    server, client = streaming_server(), requesting_client()
    events = receive_all(
        client, server.send(b"Schema") + server.send(b"B", AddressBody.from_arrays([1], [1])) + server.send_end()
    )
    client.connection_lost()
    body = events[1].body  # type: ignore[union-attr]
    assert isinstance(body, AddressBody)
    assert client.free(body) is None


# Our own side


def test_misuse_of_the_server_is_rejected() -> None:
    server = ServerConnection(WANT)
    with pytest.raises(ProtocolError, match="while waiting"):
        server.send(b"Schema")
    server.receive(WANT, b"t")
    with pytest.raises(InvalidArgumentError, match="schema before the end"):
        server.send_end()
    with pytest.raises(InvalidArgumentError, match="has to be the schema"):
        server.send(b"B", PackedBody.from_parts(b""))
    server.send(b"Schema")
    server.send_end()
    with pytest.raises(ProtocolError, match="while complete"):
        server.send(b"B")


def test_a_client_connection_sends_one_request() -> None:
    client = requesting_client()
    with pytest.raises(InvalidArgumentError, match="another ClientStream"):
        client.request(b"t")


def test_messages_before_the_request_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="while waiting"):
        new_client().receive(None, prefix(1, 0) + b"S")
    with pytest.raises(ProtocolError, match="while waiting"):
        new_client().receive(1, b"")


@pytest.mark.parametrize("freed", [[(20,)], [(10, 20, 30)], [(20,), (10,), (30, 30)], [(10,), (20,)]])
def test_a_stream_is_complete_when_all_buffers_that_have_bytes_are_freed(freed: list[tuple[int, ...]]) -> None:
    server = streaming_server()
    server.send(b"Schema")
    server.send(b"B", AddressBody.from_arrays([10, 20, 30], [0, 5, 0]))
    server.send_end()
    for addresses in freed:
        server.receive(FREE, encode_uint64s(*addresses))
    assert server.state is StreamState.COMPLETE
    with pytest.raises(ProtocolError, match="frees address 20"):
        server.receive(FREE, encode_uint64s(20))


def test_a_client_frees_all_addresses_of_a_body_also_those_of_empty_buffers() -> None:
    server, client = streaming_server(), requesting_client()
    receive_all(client, server.send(b"Schema"))
    (event,) = receive_all(client, server.send(b"B", AddressBody.from_arrays([10, 20], [0, 5])))
    assert isinstance(event, StreamMessage)
    assert isinstance(event.body, AddressBody)
    assert client.leases.outstanding == 1
    freed = client.free(event.body)
    assert freed is not None
    assert message_bytes(freed) == encode_uint64s(10, 20)
    receive_all(client, server.send_end())
    assert client.is_complete
