"""A client and a server that behave like the published reference implementation of Dissociated IPC.

They follow the messages of apache/arrow-experiments, dissociated-ipc/ (cudf-flight-client.cc, cudf-flight-server.cc,
ucx_conn.cc, ucx_server.cc), for host memory, and use libucp and pyarrow only:

* metadata is an active message with number 0 and without a header that asks for replies: the type (1 byte), the
  sequence number (4 bytes), the flatbuffer; at the end of the stream the type is 0;
* a body is a tagged message, gathered from its buffers; its tag is the sequence number and `0 << 55`;
* there are two connections, each with its own context, worker and listener address, in error mode NONE. Requests are
  synchronous tagged sends of the ticket, with one tag for the metadata and another for the bodies. The server derives
  the role from the tag and gives each client its own worker;
* the client receives a body by probing for its sequence number in the lower 32 bits of the tag.

The compiled reference has faults, which the peer has on demand, because ours has to withstand them:

* the server uses one payload again, so that from the second batch on a message has the nodes and buffers of all before
  (ticket `reused-payload`);
* the type of a body is shifted by 55 instead of 56, so that type 1 sets a reserved bit (ticket `type-1`);
* the client can't read dictionaries, and can crash at the end of a stream (command `fetch-and-crash`).

It also sends its tickets from a request parameter that it does not initialise; that is not imitated.

Run as a program with `serve` (prints two URIs; ends when its standard input does) or with `fetch`, two URIs and a
ticket (writes the received table as an Arrow stream to standard output).
"""

from __future__ import annotations

import io
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa

from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.header import BatchHeader, BatchHeaderBuilder, BatchHeaderValues, HeaderReader
from bowstring_networks.ucx import ucp
from bowstring_networks.ucx.arguments import send_buffer_arguments
from bowstring_networks.ucx.context import Context
from bowstring_networks.ucx.libucp import ErrorMode, Feature
from bowstring_networks.ucx.ucp import ActiveMessage, ConnectionRequest, Request, UcpEndpoint, UcpListener, Worker

WANT_DATA_TAG = 0x0000_0DEA_DBA0_BAB0
WANT_CTRL_TAG = 0xFFFF_FDEA_DBA0_BAB0
WANT_CTRL_MASK = 0xFFFF_F000_0000_0000
BODY_TYPE_SHIFT = 55
SEQUENCE_MASK = 0xFFFF_FFFF
POINTER_BODY_MASK = 0x0100_0000_0000_0000
END_OF_STREAM, METADATA = 0, 1
DICTIONARY_BATCH = 2
FEATURES = Feature.TAG | Feature.ACTIVE_MESSAGES | Feature.RMA | Feature.WAKEUP
TIMEOUT_S = 60.0
MAX_PIECE_BYTES = 1 << 20
AM_SEND_REPLY = 1
"""`UCP_AM_SEND_FLAG_REPLY`."""


def drive(workers: Sequence[Worker], is_done: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Make progress on all workers until `is_done`; sleep on their event descriptors."""
    end = time.monotonic() + timeout_s
    while True:
        for worker in workers:
            worker.progress()
        if is_done():
            return
        if time.monotonic() > end:
            raise TimeoutError("the peer did not answer")
        if all(worker.arm() for worker in workers):
            select.select([worker.event_descriptor for worker in workers], [], [], 0.5)


def drive_requests(worker: Worker, requests: Sequence[Request]) -> None:
    drive([worker], lambda: all(request.is_done for request in requests))
    for request in requests:
        if request.error is not None:
            raise request.error


def send_synchronously(endpoint: UcpEndpoint, message: bytes, tag: int) -> Request:
    """Send a tagged message, which is complete when the peer has begun to receive it."""
    address, count, datatype, owners = send_buffer_arguments([message])
    with endpoint._lock_library() as library:
        function = library.ucp_tag_send_sync_nbx
        function.restype, function.argtypes = library.ucp_tag_send_nbx.restype, library.ucp_tag_send_nbx.argtypes
        arguments, start = (endpoint.handle, address, count, tag), endpoint.worker._start_request
        return start("send", function, arguments, ucp._ON_SENT, owners, datatype=datatype)


def send_with_reply_endpoint(endpoint: UcpEndpoint, parts: list[bytes]) -> Request:
    """Send an active message to which the receiver can reply."""
    address, count, datatype, owners = send_buffer_arguments(parts)
    with endpoint._lock_library() as library:
        arguments, start = (endpoint.handle, 0, None, 0, address, count), endpoint.worker._start_request
        function, flags = library.ucp_am_send_nbx, AM_SEND_REPLY
        return start("send", function, arguments, ucp._ON_SENT, owners, flags=flags, datatype=datatype)


@dataclass
class Reader:
    """The client: `StreamReader` of the reference."""

    ctrl: UcpEndpoint
    data: UcpEndpoint
    metadata: dict[int, bytes] = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    length: int | None = None
    """The number of messages, once the end of the stream was received."""

    @classmethod
    def connect(cls, ctrl_uri: str, data_uri: str, options: dict[str, str]) -> Reader:
        endpoints: list[UcpEndpoint] = []
        for uri in (ctrl_uri, data_uri):
            address = urlsplit(uri)
            assert address.scheme == "ucx"
            worker = Worker(Context(FEATURES, options))
            endpoints.append(worker.connect(address.hostname or "", address.port or 0, error_mode=ErrorMode.NONE))
        ctrl, data = endpoints
        return cls(ctrl, data)

    @property
    def workers(self) -> list[Worker]:
        return [self.ctrl.worker, self.data.worker]

    def read(self, ctrl_tag: int, data_tag: int, ticket: bytes) -> pa.Table:
        for endpoint, tag in ((self.ctrl, ctrl_tag), (self.data, data_tag)):
            drive_requests(endpoint.worker, [send_synchronously(endpoint, ticket, tag)])
        drive(self.workers, self.is_complete)
        stream = io.BytesIO()
        for sequence_number in range(self.length or 0):
            metadata = self.metadata[sequence_number]
            metadata += bytes(-len(metadata) % 8)
            stream.write(struct.pack("<Ii", 0xFFFF_FFFF, len(metadata)) + metadata)
            stream.write(self.bodies.get(sequence_number, b""))
        return pa.ipc.open_stream(stream.getvalue()).read_all()

    def is_complete(self) -> bool:
        while self.ctrl.worker.active_messages:
            self.receive_metadata(self.ctrl.worker.active_messages.popleft())
        for sequence_number, metadata in self.metadata.items():
            if sequence_number not in self.bodies and body_length(metadata):
                self.receive_body(sequence_number)
        if self.length is None or len(self.metadata) < self.length:
            return False
        return all(number in self.bodies for number, metadata in self.metadata.items() if body_length(metadata))

    def receive_metadata(self, message: ActiveMessage) -> None:
        assert message.id == 0
        payload = message.payload
        if payload is None:
            buffer = bytearray(message.length_bytes)
            drive_requests(self.ctrl.worker, [message.receive_into(buffer)])
            payload = bytes(buffer)
        kind, sequence_number = struct.unpack_from("<BI", payload)
        if kind == END_OF_STREAM:
            assert len(payload) == 5
            self.length = sequence_number
        else:
            assert kind == METADATA
            if header_type(payload[5:]) == DICTIONARY_BATCH:
                raise NotImplementedError("the reference can't read dictionaries")
            self.metadata[sequence_number] = payload[5:]

    def receive_body(self, sequence_number: int) -> None:
        message = self.data.worker.probe_tagged_message(sequence_number, SEQUENCE_MASK)
        if message is None:
            return
        assert not message.tag & POINTER_BODY_MASK, "the reference has no bodies of addresses"
        buffer = bytearray(message.length_bytes)
        drive_requests(self.data.worker, [message.receive_into(buffer)])
        self.bodies[sequence_number] = bytes(buffer)

    def close(self) -> None:
        for endpoint in (self.ctrl, self.data):
            request = endpoint.close(is_forced=False)
            if request is not None:
                drive_requests(endpoint.worker, [request])
            endpoint.worker.context.close()


def header_type(metadata: bytes) -> int:
    """Return the field `header_type` of a flatbuffer `Message`: the second one of the root table."""
    return _read_number(metadata, 1, "<B")


def body_length(metadata: bytes) -> int:
    """Return the field `bodyLength` of a flatbuffer `Message`: the fourth one of the root table."""
    return _read_number(metadata, 3, "<q")


def _read_number(metadata: bytes, index: int, number_format: str) -> int:
    """Return a field of the root table of a flatbuffer; 0 if it is absent."""
    root = struct.unpack_from("<I", metadata)[0]
    vtable = root - struct.unpack_from("<i", metadata, root)[0]
    vtable_bytes = struct.unpack_from("<H", metadata, vtable)[0]
    offset_at = 4 + 2 * index
    offset = struct.unpack_from("<H", metadata, vtable + offset_at)[0] if vtable_bytes > offset_at else 0
    return int(struct.unpack_from(number_format, metadata, root + offset)[0]) if offset else 0


class Server:
    """The server: one listener, a worker for each client, data sets by ticket."""

    def __init__(self, tables: dict[bytes, pa.Table], options: dict[str, str]) -> None:
        self.tables = tables
        self.context = Context(FEATURES, options)
        self.listener = UcpListener(Worker(self.context), "127.0.0.1")
        self.clients: list[tuple[Worker, UcpEndpoint]] = []
        self.sends: list[Request] = []

    @property
    def uris(self) -> tuple[str, str]:
        host, port = self.listener.address
        return f"ucx://{host}:{port}?want_data={WANT_CTRL_TAG}", f"ucx://{host}:{port}?want_data={WANT_DATA_TAG}"

    def step(self) -> None:
        """Accept clients, and answer their requests."""
        self.listener.worker.progress()
        for request in list(self.listener.requests):
            self.accept(request)
        for worker, endpoint in self.clients:
            worker.progress()
            message = worker.probe_tagged_message(WANT_DATA_TAG, ~WANT_CTRL_MASK & (1 << 64) - 1)
            if message is not None:
                ticket = bytearray(message.length_bytes)
                drive_requests(worker, [message.receive_into(ticket)])
                send = self.send_metadata if message.tag & WANT_CTRL_MASK else self.send_bodies
                send(worker, endpoint, bytes(ticket))

    def accept(self, request: ConnectionRequest) -> None:
        worker = Worker(self.context)
        self.clients.append((worker, worker.accept(request, error_mode=ErrorMode.NONE)))

    def create_messages(self, ticket: bytes) -> list[IpcMessage]:
        messages = messages_of(self.tables[ticket])
        return reuse_payload(messages) if ticket == b"reused-payload" else messages

    def send_metadata(self, worker: Worker, endpoint: UcpEndpoint, ticket: bytes) -> None:
        messages = self.create_messages(ticket)
        for sequence_number, message in enumerate(messages):
            prefix = struct.pack("<BI", METADATA, sequence_number)
            self.sends.append(send_with_reply_endpoint(endpoint, [prefix, message.metadata]))
        drive_requests(worker, [endpoint.flush()])
        end = struct.pack("<BI", END_OF_STREAM, len(messages))
        drive_requests(worker, [send_with_reply_endpoint(endpoint, [end])])

    def send_bodies(self, worker: Worker, endpoint: UcpEndpoint, ticket: bytes) -> None:
        body_type = 1 if ticket == b"type-1" else 0
        for sequence_number, message in enumerate(self.create_messages(ticket)):
            body = message.body
            if sequence_number > 0:
                pieces = [body[start : start + MAX_PIECE_BYTES] for start in range(0, len(body), MAX_PIECE_BYTES)]
                tag = body_type << BODY_TYPE_SHIFT | sequence_number
                self.sends.append(endpoint.send_tagged(pieces, tag))
        drive_requests(worker, [endpoint.flush()])

    def serve(self) -> None:
        """Serve until standard input ends."""
        while True:
            self.step()
            workers = [self.listener.worker, *(worker for worker, _ in self.clients)]
            if all(worker.arm() for worker in workers):
                ready, _, _ = select.select([0, *(worker.event_descriptor for worker in workers)], [], [], 1)
                if 0 in ready:
                    break
        self.context.close()


class IpcMessage(NamedTuple):
    """The flatbuffer of an IPC message, and its body."""

    metadata: bytes
    body: bytes


def messages_of(table: pa.Table) -> list[IpcMessage]:
    """Return the IPC messages of a table, with dictionaries in full."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [
        IpcMessage(message.metadata.to_pybytes(), b"" if message.body is None else message.body.to_pybytes())
        for message in messages
    ]


def reuse_payload(messages: list[IpcMessage]) -> list[IpcMessage]:
    """Return the messages of a schema and of batches, each batch with the nodes and buffers of all before."""
    reader, builder = HeaderReader(DEFAULT_LIMITS), BatchHeaderBuilder()
    nodes, buffers = np.empty((0, 2), np.int64), np.empty((0, 2), np.int64)
    body, reused = b"", messages[:1]
    for message in messages[1:]:
        header = reader.read(message.metadata, ("message",))
        assert isinstance(header, BatchHeader)
        own_nodes, own_buffers = (each.view(np.int64).reshape(-1, 2) for each in (header.nodes(), header.buffers()))
        nodes = np.concatenate([nodes, own_nodes])
        buffers = np.concatenate([buffers, own_buffers + np.array([len(body), 0])])
        body += message.body
        values = BatchHeaderValues(header.length, nodes, buffers, np.empty(0, np.int64))
        reused.append(IpcMessage(builder.build(values, len(body)), body))
    return reused


def example_table(num_rows: int = 300_000) -> pa.Table:
    """A table with several batches, nulls and strings."""
    numbers = pa.array(range(num_rows), pa.int64())
    strings = pa.array([f"row {index}" if index % 7 else None for index in range(num_rows)])
    table = pa.table({"number": numbers, "text": strings})
    return pa.Table.from_batches(table.to_batches(max_chunksize=num_rows // 3 + 1))


def main(command: str, *uris: str) -> None:
    """Run one of the two programs."""
    if command == "serve":
        tables = {b"example": example_table(), b"tiny": example_table(9)}
        server = Server({**tables, **dict.fromkeys((b"reused-payload", b"type-1"), tables[b"tiny"])}, {})
        sys.stdout.write(" ".join(server.uris) + "\n")
        sys.stdout.flush()
        server.serve()
        return
    ctrl_uri, data_uri, ticket = uris
    ctrl_tag, data_tag = (int(parse_qs(urlsplit(uri).query)["want_data"][0]) for uri in (ctrl_uri, data_uri))
    reader = Reader.connect(ctrl_uri, data_uri, {})
    table = reader.read(ctrl_tag, data_tag, ticket.encode())
    if command != "fetch-and-crash":
        reader.close()
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
        writer.write_table(table)
    if command == "fetch-and-crash":
        sys.stdout.flush()
        os.abort()


if __name__ == "__main__":
    main(*sys.argv[1:])
