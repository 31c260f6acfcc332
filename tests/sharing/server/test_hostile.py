"""Peers that break the protocol: clear errors, no byte of other memory, and the server continues."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.dissociated.messages import AddressBody, OutgoingMessage, PackedBody
from bowstring.dissociated.server import ServerConnection
from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    InvalidDataError,
    LimitError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.region import Region
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.stored_parts import RegionPart, index_part, store_in_region
from bowstring.sharing.uris import FREE_DATA, WANT_DATA, create_server_uri, format_dataset_uri
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX, encode_unix_address
from tests.polling import wait_until
from tests.transports.blocking import BlockingListener, send_message
from tests.transports.region_buffers import encode_region_addresses

TABLE = bs.table({"a": np.arange(100), "s": [str(i) for i in range(100)]})


@contextmanager
def false_server(act: Callable[[BlockingChannel, ServerConnection, RegionPart], object]) -> Iterator[str]:
    """A server that takes one client's request and then calls `act`; its URI."""
    dataset = index_part(store_in_region(TABLE)[0])
    with BlockingListener.listen(UNIX) as listener:

        def serve() -> None:
            try:
                with listener.accept(timeout_s=10) as transport:
                    connection = ServerConnection(WANT_DATA, FREE_DATA)
                    connection.receive(*transport.receive())
                    act(transport, connection, dataset)
                    transport.receive(timeout_s=10)
            except BowstringError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield format_dataset_uri(create_server_uri(listener.address), "t")
        finally:
            thread.join(20)


def send_messages(transport: BlockingChannel, messages: list[OutgoingMessage]) -> None:
    for message in messages:
        send_message(transport, message)


def stream_dataset(
    transport: BlockingChannel,
    connection: ServerConnection,
    dataset: RegionPart,
    change: Callable[[AddressBody], AddressBody] = lambda body: body,
) -> None:
    send_messages(transport, connection.send(dataset.schema))
    transport.export(dataset.region)
    for message in dataset.messages:
        send_messages(transport, connection.send(message.metadata, change(message.buffers)))
    send_messages(transport, connection.send_end())


def error_after(change: Callable[[AddressBody], AddressBody]) -> BaseException:
    """The error of a client whose server changes the addresses."""
    with false_server(partial(stream_dataset, change=change)) as uri:
        with pytest.raises(BowstringError) as caught, bs.connect(uri, timeout_s=5) as data:
            data.read_all().validate(full=True)
        return caught.value


def test_data_of_another_implementation_is_read() -> None:
    with false_server(stream_dataset) as uri, bs.connect(uri) as data:
        assert data.read_all() == TABLE


def test_buffers_scattered_over_a_region_are_read_in_place() -> None:
    def scattered(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        (message,) = dataset.messages
        memory, places, parts, at = dataset.region.memory, [], [], 0
        for start, length in zip(message.buffers.addresses.tolist(), message.buffers.lengths.tolist(), strict=True):
            parts.append(bytes(64) + bytes(memory[start : start + length]) + bytes(-length % 64))
            places.append(at + 64)
            at += len(parts[-1])
        send_messages(transport, connection.send(dataset.schema))
        order = [Region.copy_of(parts)]
        transport.export(order[0])
        send_messages(
            transport, connection.send(message.metadata, AddressBody.from_arrays(places, message.buffers.lengths))
        )
        send_messages(transport, connection.send_end())

    with false_server(scattered) as uri, bs.connect(uri) as data:
        assert data.read_all() == TABLE


def test_buffers_of_several_regions_are_gathered() -> None:
    def several(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        (message,) = dataset.messages
        memory, addresses = dataset.region.memory, []
        send_messages(transport, connection.send(dataset.schema))
        for start, length in zip(message.buffers.addresses.tolist(), message.buffers.lengths.tolist(), strict=True):
            index = transport.export(Region.copy_of([bytes(memory[start : start + length])])).index
            addresses.append(index << 48)
        send_messages(
            transport, connection.send(message.metadata, AddressBody.from_arrays(addresses, message.buffers.lengths))
        )
        send_messages(transport, connection.send_end())

    with false_server(several) as uri, bs.connect(uri) as data:
        assert data.read_all() == TABLE


def test_more_bytes_at_addresses_than_all_regions_have_are_not_gathered() -> None:
    def overlapping(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        (message,) = dataset.messages
        send_messages(transport, connection.send(dataset.schema))
        size = int(message.buffers.lengths.max())
        indexes = [transport.export(Region.copy_of([bytes(size)])).index for _ in range(2)]
        count = message.buffers.lengths.size
        assert count * size > len(indexes) * size
        addresses = [indexes[number % 2] << 48 for number in range(count)]
        send_messages(transport, connection.send(message.metadata, AddressBody.from_arrays(addresses, [size] * count)))
        send_messages(transport, connection.send_end())

    limit = pytest.raises(LimitError, match="more than all regions have")
    with false_server(overlapping) as uri, bs.connect(uri, timeout_s=5) as data, limit:
        data.read_all()


def test_gathering_a_body_without_enough_memory_is_a_resource_error(tmp_path: Path) -> None:
    def sparse(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        (message,) = dataset.messages
        send_messages(transport, connection.send(dataset.schema))
        path = tmp_path / "sparse"
        path.touch()
        os.truncate(path, 1 << 43)
        indexes = [transport.export(region).index for region in (Region.from_file(path), dataset.region)]
        addresses = encode_region_addresses(indexes[1], message.buffers.addresses)
        addresses[-1] = 0
        lengths = message.buffers.lengths.copy()
        lengths[-1] = 1 << 42
        send_messages(transport, connection.send(message.metadata, AddressBody.from_arrays(addresses, lengths)))
        send_messages(transport, connection.send_end())

    translate_shortage_errors = pytest.raises(ResourceError, match="requested")
    with false_server(sparse) as uri, bs.connect(uri, timeout_s=5) as data, translate_shortage_errors:
        data.read_all()


@pytest.mark.parametrize("beyond", [1 << 20, 1 << 47, 1 << 48, 7 << 48])
def test_addresses_outside_the_received_regions_are_an_error(beyond: int) -> None:
    error = error_after(lambda body: AddressBody.from_arrays(body.addresses + np.uint64(beyond), body.lengths))
    assert isinstance(error, ProtocolError)
    assert "region" in str(error)


def test_lengths_shorter_than_in_the_header_are_an_error() -> None:
    error = error_after(lambda body: AddressBody.from_arrays(body.addresses, body.lengths // np.uint64(2)))
    assert isinstance(error, ProtocolError)
    assert "the header has" in str(error)


def test_too_few_addresses_are_an_error() -> None:
    error = error_after(lambda body: AddressBody.from_arrays(body.addresses[1:], body.lengths[1:]))
    assert isinstance(error, ProtocolError)
    assert "addresses" in str(error)


def test_validation_detects_offsets_outside_their_buffer() -> None:
    error = error_after(lambda body: AddressBody.from_arrays(np.zeros_like(body.addresses), body.lengths))
    assert isinstance(error, InvalidDataError)


@pytest.mark.parametrize("header", [b"", b"\0", b"garbage" * 9, b"\xff" * 64])
def test_a_malformed_schema_is_an_error(header: bytes) -> None:
    with false_server(lambda t, c, h: send_messages(t, c.send(header))) as uri, pytest.raises(InvalidDataError):
        bs.connect(uri, timeout_s=5)


def test_a_batch_of_another_schema_is_an_error() -> None:
    other = index_part(store_in_region(bs.table({"x": [1.5]}))[0])

    def mixed(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        send_messages(transport, connection.send(dataset.schema))
        message = other.messages[0]
        memory = other.region.memory[message.body_offset : message.body_offset + message.body_bytes]
        send_messages(transport, connection.send(message.metadata, PackedBody.from_parts(memory)))
        send_messages(transport, connection.send_end())

    with false_server(mixed) as uri, bs.connect(uri, timeout_s=5) as data, pytest.raises(InvalidDataError):
        data.read_all()


def test_a_silent_server_is_a_deadline_error() -> None:
    with false_server(lambda t, c, h: None) as uri, pytest.raises(DeadlineError, match="sends nothing"):
        bs.connect(uri, timeout_s=0.2)


def test_a_server_that_disconnects_in_the_middle_is_a_lost_connection() -> None:
    def half(transport: BlockingChannel, connection: ServerConnection, dataset: RegionPart) -> None:
        send_messages(transport, connection.send(dataset.schema))
        transport.close()

    lost = pytest.raises(ConnectionLostError, match="disconnected before the end")
    with false_server(half) as uri, bs.connect(uri) as data, lost:
        data.read_all()


def test_a_stream_that_ends_within_a_batch_is_not_served() -> None:
    sink = io.BytesIO()
    with bs.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    whole = sink.getvalue()
    with Region.copy_of([whole]) as region, bs.serve({"t": region}) as server:
        assert bs.connect(server.uri("t")).read_all() == TABLE
    cut = Region.copy_of([whole[:-72]])
    with cut, pytest.raises(InvalidDataError, match="expected 1472 bytes of a body at byte 512, found 1408"):
        bs.serve({"t": cut})


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "copied"])
def test_a_file_truncated_while_it_is_served_is_an_error(tmp_path: Path, copy: bool) -> None:
    path = tmp_path / os.fsdecode(b"\xff.arrow")  # the error names it
    with bs.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    with bs.serve({"file": path, "other": TABLE}) as server:
        os.truncate(path, 100)
        with pytest.raises(InvalidDataError, match="its file now has 100"):
            bs.connect(server.uri("file"), copy=copy)
        assert bs.connect(server.uri("other"), copy=copy).read_all() == TABLE


def connect_socket(address: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(encode_unix_address(address))
    return connected


def test_a_server_survives_hostile_clients() -> None:
    options = ServerOptions(timeout_s=0.5)
    with bs.serve({"t": TABLE}, options=options) as server:
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"BWS1", b"BWS1" + b"\xff" * 20, bytes(100)):
            with connect_socket(server.address) as connected:
                connected.sendall(data)
        silent, half = connect_socket(server.address), connect_socket(server.address)
        half.sendall(b"BWS1\x01")
        requests: list[tuple[int | None, bytes]] = [
            (None, b"plain"),
            (77, b"unknown tag"),
            (FREE_DATA, b"\0" * 8),
            (FREE_DATA, b"odd"),
            (WANT_DATA, b"\xff\xfe"),
            (WANT_DATA, b""),
            (WANT_DATA, b"x" * 60_000),
        ]
        for tag, data in requests:
            with BlockingChannel.dial(UNIX, server.address) as transport:
                transport.send((data,), tag=tag)
                while transport.receive(timeout_s=10).tag is None:
                    pass
        with BlockingChannel.dial(UNIX, server.address) as transport, pytest.raises(ConnectionLostError):
            transport.export(Region.copy_of([b"x"]))
            assert b"of which none is received" in bytes(transport.receive(timeout_s=10).data)
            transport.receive(timeout_s=10)
        assert bs.connect(server.uri("t")).read_all() == TABLE
        assert wait_until(lambda: not server.num_clients), "a silent client keeps its place"
        silent.close()
        half.close()
