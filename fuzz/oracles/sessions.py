"""Whole sessions: a client whose server sends any bytes, and a server whose client does.

Both use real sockets. The client ends with data or an error. The server answers or closes the connection, and serves
the next client. Neither keeps descriptors.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import bowstring as bs
from bowstring.dissociated.messages import BODY_TYPE_SHIFT, BodyType, decode_addresses, encode_free_data
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import BowstringError, DeadlineError, InvalidArgumentError
from bowstring.sharing.client.connection import Connection
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import (
    ERROR_DATA,
    FREE_DATA,
    WANT_DATA,
    WANT_METADATA,
    Ticket,
    create_server_uri,
    format_dataset_uri,
)
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import dial
from bowstring.transports.registry import find_transport
from bowstring.transports.session import Session, SessionOptions
from bowstring.transports.sockets.frames import HELLO_BODY, VERSION, FrameKind
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.sockets.unix import encode_unix_address, random_abstract_address
from bowstring_testing.descriptors import count_open_descriptors
from fuzz.expectations import ExpectationError, expect
from fuzz.frames import EditableFrame, build_frame, encode_frames, parse_frames
from fuzz.oracles.frames import TABLE, TCP, passed_region, send_segment, split_segments

NAME = "numbers"
SENT_AT_ONCE = 64
"""The bit of the options for clients that do not wait for an answer before they send more."""
_TIMEOUT_S = 10.0
_POLL_S = 0.0005
_SCHEMES = ("unix", "tcp")


def check_replies(data: bytes) -> bool:
    """Check a client that receives these bytes."""
    options, received = (data[0], data[1:]) if data else (0, b"")
    passed_region(options & 0x30)
    descriptors_before = count_open_descriptors()
    is_valid = _read(options, received)
    expect(count_open_descriptors() == descriptors_before, "the client leaves descriptors open")
    return is_valid


def check_requests(data: bytes) -> bool:
    """Check a server that receives these bytes from a client."""
    options, sent = (data[0], data[1:]) if data else (0, b"")
    server = _server(_SCHEMES[options & TCP])
    passed_region(options & 0x30)
    descriptors_before = count_open_descriptors()
    failures: list[str] = []
    previous, threading.excepthook = threading.excepthook, lambda failure: failures.append(repr(failure.exc_value))
    try:
        with _connect(server) as client:
            replies = _exchange(client, options, sent)
        expect(_wait_until(lambda: not server.num_clients), "the server keeps a connection that has ended")
    finally:
        threading.excepthook = previous
    expect(not failures, f"the server's thread fails: {failures}")
    with bs.connect(server.uri(NAME)) as dataset:
        expect(dataset.read_all() == TABLE, "the next client receives other data")
    expect(_wait_until(lambda: count_open_descriptors() == descriptors_before), "the server leaves descriptors open")
    num_requests = sum(map(_is_request, parse_frames(sent)))
    return not any(map(_is_error, replies)) and sum(map(_is_end, replies)) == num_requests


def record_session(options: int, tickets: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """The bytes that client and server send for these requests, one after the other."""
    requests = [build_frame(FrameKind.HELLO, 0, HELLO_BODY.pack(VERSION, VERSION))]
    replies: list[EditableFrame] = []
    for ticket in tickets:
        requests.append(build_frame(FrameKind.TAGGED, WANT_DATA, ticket))
        with _connect(_server(_SCHEMES[options & TCP])) as client:
            num_earlier, replies = len(replies), _exchange(client, options, encode_frames(requests))
        for reply in replies[num_earlier:]:
            if reply.kind == FrameKind.TAGGED and reply.tag >> BODY_TYPE_SHIFT == BodyType.ADDRESSES:
                body = decode_addresses(reply.payload)
                requests.append(
                    build_frame(FrameKind.TAGGED, FREE_DATA, encode_free_data(body.addresses[body.lengths > 0]))
                )
    return encode_frames(requests), encode_frames(replies)


def _read(options: int, received: bytes) -> bool:
    """Read a data set from a server that sends these bytes; return whether it is valid."""
    scheme = _SCHEMES[options & TCP]
    with listen(scheme) as (listener, address):
        uri = parse_uri(format_dataset_uri(create_server_uri(address, scheme), NAME))
        transport = find_transport(scheme, uri)
        channel = dial(transport, address, TransportOptions(max_tagged_bytes=1 << 26))
        limits = SessionOptions(input_timeout_s=_TIMEOUT_S, stall_s=_TIMEOUT_S)
        session = Session(
            {ConnectionRole.BOTH: channel}, transport.open_remote_memory(channel, None), now=0.0, options=limits
        )
        peer, _ = listener.accept()
        with session, peer:
            for segment, descriptors in split_segments(options, received):
                send_segment(peer, segment, descriptors)
            peer.shutdown(socket.SHUT_WR)
            connection = Connection(uri, session)
            try:
                for batch in connection.request_stream(Ticket((NAME,))):
                    batch.validate(full=True)
            except BowstringError as error:
                expect(bool(str(error)), "the error has no message")
                unexpected = isinstance(error, InvalidArgumentError | DeadlineError)
                # A server may refuse a request with the error of a usage.
                is_refusal = any(map(_is_error, parse_frames(received)))
                expect(not unexpected or is_refusal, f"a hostile server causes {type(error).__name__}: {error}")
                return False
            finally:
                connection.close()
    return True


def _exchange(client: socket.socket, options: int, sent: bytes) -> list[EditableFrame]:
    """Send bytes to a server, and return its answers. A request is answered before more is sent, with some options."""
    received = b""
    num_requests = 0
    try:
        for piece in [sent] if options & SENT_AT_ONCE else _split_after_requests(sent):
            for segment, descriptors in split_segments(options, piece):
                send_segment(client, segment, descriptors)
            num_requests += sum(map(_is_request, parse_frames(piece)))
            while not _is_answered(parse_frames(received), num_requests):
                chunk = client.recv(1 << 16)
                if not chunk:
                    return parse_frames(received)
                received += chunk
        client.shutdown(socket.SHUT_WR)
        while chunk := client.recv(1 << 16):
            received += chunk
    except TimeoutError:
        raise ExpectationError(f"no answer within {_TIMEOUT_S:g} s, only {received!r}") from None
    except ConnectionError:  # the server closes a connection that has unread bytes
        pass
    except OSError as error:  # from `shutdown`: it has closed the connection before
        if error.errno != errno.ENOTCONN:
            raise
    return parse_frames(received)


def _split_after_requests(sent: bytes) -> Iterator[bytes]:
    pending, rest = b"", sent
    for each in parse_frames(sent):
        size_bytes = len(each.encode())
        pending, rest = pending + rest[:size_bytes], rest[size_bytes:]
        if _is_request(each):
            yield pending
            pending = b""
    yield pending + rest


def _is_answered(replies: list[EditableFrame], num_requests: int) -> bool:
    return any(map(_is_error, replies)) or sum(map(_is_end, replies)) >= num_requests


def _is_request(sent: EditableFrame) -> bool:
    """Whether it is a complete request whose answer has an end: for metadata, or for both metadata and bodies."""
    return sent.kind == FrameKind.TAGGED and sent.tag in (WANT_DATA, WANT_METADATA) and sent.false_length is None


def _is_error(reply: EditableFrame) -> bool:
    return reply.kind == FrameKind.TAGGED and reply.tag == ERROR_DATA


def _is_end(reply: EditableFrame) -> bool:
    """Whether it is a complete message for the end of a stream."""
    return reply.kind == FrameKind.PLAIN and reply.payload[:1] == b"\0" and reply.false_length is None


@cache
def _server(scheme: str) -> Server:
    """A server of this process."""
    server = bs.serve({NAME: TABLE}, options=ServerOptions(inline_bytes=0), scheme=scheme)
    with bs.connect(server.uri(NAME)) as dataset:
        dataset.read_all()
    _wait_until(lambda: not server.num_clients)
    return server


@contextmanager
def listen(scheme: str) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket, and its address."""
    address = random_abstract_address()
    family, name = (
        (socket.AF_UNIX, encode_unix_address(address)) if scheme == "unix" else (socket.AF_INET, ("127.0.0.1", 0))
    )
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        listener.listen()
        yield listener, address if scheme == "unix" else "//{}:{}".format(*listener.getsockname())


@contextmanager
def _connect(server: Server) -> Iterator[socket.socket]:
    """A socket that is connected to a server."""
    is_unix = server.address.startswith("@")
    with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(_TIMEOUT_S)
        client.connect(encode_unix_address(server.address) if is_unix else parse_address(server.address))
        yield client


def _wait_until(condition: Callable[[], bool]) -> bool:
    """Poll a condition until it is true or the time is over; return whether it is true."""
    end = time.monotonic() + _TIMEOUT_S
    while not (is_true := condition()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return is_true
