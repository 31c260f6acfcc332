"""A relay in front of gRPC, which accepts any number of connections, requests and bytes, and whose limits pyarrow does
not let us set.

gRPC listens at a unix socket that only this user can reach. The relay accepts the clients, ends their TLS, and passes
the bytes on both ways. Of the frames of HTTP/2 (RFC 9113) it reads the headers: a connection has few requests that are
not answered, and few bytes in them, none compressed.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bowstring.errors import BowstringError, ConnectionLostError, ProtocolError
from bowstring.memory.closable import Closable, call_in_forked_children, call_on_error
from bowstring.sharing.processes import redirect_to_devnull
from bowstring.transports.base import RECEIVE, SEND, Channel, Interest, TransportOptions, Wait
from bowstring.transports.event_loop import EventHandler, EventLoop, ListenerHandler
from bowstring.transports.sockets.tcp import TcpListener

if TYPE_CHECKING:
    from bowstring.sharing.server.options import ServerOptions
    from bowstring.transports.tls import TlsOptions

_MAX_REQUEST_BYTES = 1 << 17
"""The bytes that a connection may have in requests without an answer, such as a ticket of 64 KiB and short ones."""
_MAX_REQUESTS = 100
"""The requests of a connection without an answer. Clients get this number, and wait."""
_MAX_INCOMPLETE = 4
"""The requests of a connection of which only a part has arrived: clients send all at once."""
_MAX_WAITING = 64
"""The requests of all connections at which others wait until gRPC, which has a thread for each, begins to answer."""
_PAUSE_S = 0.01
_PREFACE_BYTES = 24
_HEADER_BYTES = 9
_DATA, _HEADERS, _RESET, _CONTINUATION = 0, 1, 3, 9
_END_STREAM, _PADDED = 0x1, 0x8
_MAX_CONCURRENT_STREAMS = 3
_BUFFER_BYTES = 1 << 18
_REQUEST_BYTES = 1 << 14
# A connection has a socket of its client and two of gRPC, and the other listeners of the process need descriptors, too.
_DESCRIPTORS_PER_CONNECTION = 8


class FlightRelay(Closable):
    """Listens at an address, and relays up to `max_clients` and `max_silent` connections to the unix socket `path`,
    which may be unlinked from now on.

    Raises `InvalidArgumentError` if it can't listen there or has no certificate for TLS.
    """

    def __init__(self, address: str, path: str, options: ServerOptions, tls: TlsOptions | None) -> None:
        context = None
        if tls is not None:
            context = tls.create_server_context()
            context.set_alpn_protocols(["h2"])
        listener = _Listener(address, TransportOptions(allow_other_hosts=True), "flight", context)
        with call_on_error(listener.close):
            self._loop = EventLoop("bowstring-flight-relay")
            with call_on_error(self._loop.close):
                self._loop.add(_Acceptor(self._loop, listener, path, options))
                self._loop.start()
        self.address = listener.address
        _RELAYS.add(self)

    def close(self) -> None:
        """End all connections. Idempotent."""
        self._loop.close()


class _Listener(TcpListener):
    def _create_channel(self, connection: socket.socket) -> Any:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return connection
            return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            connection.close()
            raise ConnectionLostError("flight: the peer disconnected", error) from error


class _Acceptor(ListenerHandler):
    """Accepts connections up to a limit; then a new one replaces one without a request, or is closed."""

    def __init__(self, loop: EventLoop, listener: TcpListener, path: str, options: ServerOptions) -> None:
        super().__init__(listener)
        self._grpc_file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self.options = options
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        """Where connections receive, one after the other."""
        self._loop = loop
        self._connections: set[_Connection] = set()
        max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = min(
            options.max_clients + options.max_silent, max_descriptors // _DESCRIPTORS_PER_CONNECTION
        )

    def add_channel(self, channel: Channel) -> None:
        client: Any = channel
        if len(self._connections) >= self._max_connections and not self.close_unused_connection():
            client.close()
            return
        connection = _Connection(self, client)
        self._connections.add(connection)
        self._loop.add(connection)

    @property
    def is_busy(self) -> bool:
        """Whether requests have to wait."""
        return sum(len(connection.requests.waiting) for connection in self._connections) >= _MAX_WAITING

    def close_unused_connection(self, error: Exception | None = None) -> bool:  # noqa: ARG002 - one more is enough
        """Close the connection without a request to answer whose last answer is the oldest, or that had none."""
        unused = (connection for connection in self._connections if not connection.requests.complete)
        connection = min(unused, key=lambda each: (each.requests.are_answered, each.active_at), default=None)
        if connection is not None:
            self.close_connection(connection)
        return connection is not None

    def connect_grpc(self) -> socket.socket:
        """Connect to gRPC, whose socket may have no path any more. Raises `OSError`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with call_on_error(connection.close):
            connection.setblocking(False)
            connection.connect(f"/proc/self/fd/{self._grpc_file}")
        return connection

    def close(self) -> None:
        super().close()
        os.close(self._grpc_file)

    def descriptors(self) -> list[int]:
        return [*super().descriptors(), self._grpc_file]

    def close_connection(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._loop.remove(connection)
        connection.close()


class _Connection(Closable, EventHandler):
    """A client's connection, and its connection to gRPC from the first byte on."""

    def __init__(self, acceptor: _Acceptor, client: Any) -> None:
        self._acceptor = acceptor
        self._client = client
        self._grpc: socket.socket | None = None
        self._handshake_interest = RECEIVE if isinstance(client, ssl.SSLSocket) else 0
        self._to_grpc = self._to_client = b""
        """What has been received, and the other end does not take yet."""
        self._has_settings = False
        self._is_lost = False
        """Whether the client has left, or was disconnected, while gRPC answers its requests."""
        self.requests = _Requests()
        self.active_at = time.monotonic()
        """When the client was accepted, sent data or began to request again."""

    @property
    def deadline(self) -> float:
        """Of a complete request, or of progress in answers; idle connections have none."""
        if self.requests.complete and not self._is_lost:
            return self.active_at + self._acceptor.options.stall_s
        if self.requests.are_answered:
            return math.inf
        return self.active_at + self._acceptor.options.timeout_s

    def next_wait(self) -> Wait:
        is_paused = not self._handshake_interest and self._acceptor.is_busy
        interests = []
        if not self._is_lost:
            client_interest = self._handshake_interest or _interest(self._to_grpc or is_paused, self._to_client)
            interests.append(Interest(self._client.fileno(), client_interest))
        if self._grpc is not None:
            interests.append(Interest(self._grpc.fileno(), _interest(self._to_client, self._to_grpc)))
        has_decrypted_bytes = not self._is_lost and isinstance(self._client, ssl.SSLSocket) and self._client.pending()
        if is_paused:
            timeout_s = _PAUSE_S
        else:
            timeout_s = 0 if has_decrypted_bytes and not self._to_grpc else math.inf
        return Wait([interest for interest in interests if interest.events], timeout_s)

    def descriptors(self) -> list[int]:
        return [each.fileno() for each in (self._client, self._grpc) if each is not None and each.fileno() >= 0]

    def handle_events(self, _events: int) -> None:
        try:
            if not self._is_lost:
                self._relay_requests()
        except (OSError, BowstringError):
            # gRPC does not notice, and answers the requests in its threads: meanwhile this connection counts.
            self._is_lost = True
            self._to_grpc = self._to_client = b""
            self._client.close()
        try:
            if self._grpc is not None:
                self._relay_answers()
        except (OSError, BowstringError):
            self._is_lost, self.requests = True, _Requests()
        if self._is_lost and not self.requests.waiting:
            self._acceptor.close_connection(self)

    def handle_deadline(self) -> None:
        self._acceptor.close_connection(self)

    def close(self) -> None:
        self._client.close()
        if self._grpc is not None:
            self._grpc.close()

    def _relay_requests(self) -> None:
        if self._handshake_interest and not self._continue_handshake():
            return
        received: bytes | memoryview = self._to_grpc
        if not received and not self._acceptor.is_busy:
            received = self._receive(self._client, _REQUEST_BYTES)
            if self.requests.are_answered:
                self.active_at = time.monotonic()
            self.requests.count_client_bytes(received)
        if received:
            self._grpc = self._grpc or self._acceptor.connect_grpc()
            self._to_grpc = _send(self._grpc, received)

    def _relay_answers(self) -> None:
        assert self._grpc is not None
        received: bytes | memoryview = self._to_client
        if not received:
            received = self._receive(self._grpc, _BUFFER_BYTES)
            if self.requests.count_server_bytes(received):
                self.active_at = time.monotonic()
            if received and not self._has_settings:
                self._has_settings, received = True, _limit_requests(received)
        if not self._is_lost:
            self._to_client = _send(self._client, received)

    def _continue_handshake(self) -> bool:
        try:
            self._client.do_handshake()
            self._handshake_interest = 0
        except ssl.SSLWantReadError:
            self._handshake_interest = RECEIVE
        except ssl.SSLWantWriteError:
            self._handshake_interest = SEND
        return not self._handshake_interest

    def _receive(self, source: socket.socket, max_bytes: int) -> memoryview:
        """Return the bytes that have arrived, until the next call for any connection. Raises `ConnectionLostError`."""
        try:
            received = self._acceptor.buffer[: source.recv_into(self._acceptor.buffer, max_bytes)]
        except (BlockingIOError, ssl.SSLWantReadError):
            return self._acceptor.buffer[:0]
        if not received:
            raise ConnectionLostError("flight: the peer disconnected")
        return received


def _interest(received: bytes | bool, queued: bytes) -> int:
    """What to wait for at a socket: to receive, unless there is something received already, and to send."""
    return (0 if received else RECEIVE) | (SEND if queued else 0)


def _send(sink: socket.socket, view: bytes | memoryview) -> bytes:
    """Send bytes; return those that the sink does not take now."""
    try:
        sent = sink.send(view) if view else 0
    except (BlockingIOError, ssl.SSLWantWriteError):
        sent = 0
    return bytes(view[sent:])


class _Requests:
    """The requests of a connection that are not answered, by the headers of its frames."""

    def __init__(self) -> None:
        self.are_answered = False
        """Whether there was an answer, and no request has begun since."""
        self.complete: set[int] = set()
        """Those that gRPC has to answer."""
        self.waiting: set[int] = set()
        """Those of them whose answer has not begun."""
        self._sizes: dict[int, int] = {}
        """The bytes of each request's message."""
        self._block_bytes = 0
        """The size of the last block of headers."""
        self._client_frames = _FrameHeaders(_PREFACE_BYTES)
        self._server_frames = _FrameHeaders(0)

    def count_client_bytes(self, received: memoryview) -> None:
        """Count requests and their bytes. Raises `ProtocolError` if there are too many, or if one is compressed, or
        cancelled before its answer has begun: gRPC would answer it without a sign of its end.
        """
        complete = set()
        for kind, flags, stream, length, first_byte in self._client_frames.find(received):
            if kind == _HEADERS:
                self._sizes.setdefault(stream, 0)
                self.are_answered = False
            if kind in (_HEADERS, _CONTINUATION):
                self._block_bytes = length + (self._block_bytes if kind == _CONTINUATION else 0)
            if kind == _DATA and length and stream in self._sizes:
                # The first byte of a message says whether it is compressed, which could be a thousand times its size.
                if flags & _PADDED or (first_byte and not self._sizes[stream]):
                    raise ProtocolError("flight: a compressed or padded request")
                self._sizes[stream] += length
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM and stream in self._sizes:
                complete.add(stream)
            if kind == _RESET:
                if stream in self.waiting or stream in complete:
                    raise ProtocolError("flight: a request was cancelled before its answer")
                self._remove(stream)
            num_bytes = sum(self._sizes.values())
            if len(self._sizes) > _MAX_REQUESTS or max(num_bytes, self._block_bytes) > _MAX_REQUEST_BYTES:
                raise ProtocolError(f"flight: {len(self._sizes)} requests with {num_bytes} bytes without an answer")
        if len(self._sizes) - len(self.complete) - len(complete) > _MAX_INCOMPLETE:
            raise ProtocolError("flight: too many incomplete requests")
        self.complete |= complete
        self.waiting |= complete

    def count_server_bytes(self, received: memoryview) -> bool:
        """Return whether there was data or an answer among them."""
        has_progress = False
        for kind, flags, stream, _, _ in self._server_frames.find(received):
            has_progress = has_progress or kind in (_DATA, _HEADERS)
            if kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
                self._remove(stream)
            elif kind == _HEADERS:
                self.waiting.discard(stream)
        return has_progress

    def _remove(self, stream: int) -> None:
        self._sizes.pop(stream, None)
        self.complete.discard(stream)
        self.waiting.discard(stream)
        self.are_answered = not self._sizes


class _FrameHeaders:
    """Finds the headers of frames in the bytes of one direction, after those to skip."""

    def __init__(self, skipped_bytes: int) -> None:
        self._skipped_bytes = skipped_bytes
        self._header = bytearray()

    def find(self, received: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the kind, flags, stream and length of each frame, and of one with data the first byte."""
        position = 0
        while position < len(received):
            if self._skipped_bytes:
                step = min(self._skipped_bytes, len(received) - position)
                self._skipped_bytes -= step
            else:
                header = self._header
                step = min(_HEADER_BYTES - len(header), len(received) - position) or 1
                header += received[position : position + step]
                if len(header) >= _HEADER_BYTES:
                    length, kind = int.from_bytes(header[:3], "big"), header[3]
                    has_first_byte = kind == _DATA and length > 0
                    if len(header) == _HEADER_BYTES + has_first_byte:
                        stream = int.from_bytes(header[5:9], "big") & 0x7FFFFFFF
                        self._skipped_bytes, self._header = length - has_first_byte, bytearray()
                        yield kind, header[4], stream, length, header[-1]
            position += step


def _limit_requests(settings: bytes | memoryview) -> bytes:
    """Add the limit of requests to the first frame of a server, its settings."""
    length, rest = int.from_bytes(settings[:3], "big") + 6, bytes(settings[3:])
    limit = struct.pack(">HI", _MAX_CONCURRENT_STREAMS, _MAX_REQUESTS)
    return length.to_bytes(3, "big") + rest[:6] + limit + rest[6:]


_RELAYS: weakref.WeakSet[FlightRelay] = weakref.WeakSet()


def _close_in_child(relay: FlightRelay) -> None:
    """Close the sockets in a forked child, so that clients notice when the parent closes them, or ends. The socket of
    gRPC remains, which nobody can reach any more.
    """
    redirect_to_devnull(relay._loop.descriptors)


call_in_forked_children(_close_in_child, _RELAYS)
