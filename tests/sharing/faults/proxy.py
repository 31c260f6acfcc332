"""A proxy between a client and a server, which changes one frame."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from bowstring.transports.sockets.frames import FRAME_HEADER, MAGIC
from bowstring.transports.sockets.tcp_address import format_address, parse_address
from bowstring.transports.sockets.unix import encode_unix_address, random_abstract_address
from bowstring.transports.tls import TlsOptions

RECORD = struct.Struct(">BHH")
"""The header of a TLS record: its type, version and length."""
_HOST = "127.0.0.1"


class Sender(StrEnum):
    """The process that sends a frame."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame with the descriptors that came with it. `length_bytes` may differ from the length of `payload`."""

    kind: int
    num_descriptors: int
    tag: int
    length_bytes: int
    payload: bytes
    descriptors: tuple[int, ...] = ()
    magic: bytes = MAGIC
    reserved: int = 0

    def with_payload(self, payload: bytes) -> Frame:
        """The frame with other bytes, and their length."""
        return replace(self, payload=payload, length_bytes=len(payload))


Change: TypeAlias = Callable[[Frame, Frame | None], Sequence[Frame] | None]
"""Returns what is sent instead of a frame; None if it needs the next one as well. `[]` drops it."""


@dataclass(frozen=True, slots=True)
class FrameChange:
    """A frame of a session, by its sender and index, and its change. With `is_last`, the connection ends after it."""

    sender: Sender
    index: int
    apply: Change
    is_last: bool = False


class TlsSocket:
    """An end of a connection with TLS, after its handshake. One thread may receive while another sends."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        connection.setblocking(False)

    def recv(self, size_bytes: int) -> bytes:
        while True:
            try:
                with self._lock:
                    return self._connection.recv(size_bytes)
            except ssl.SSLWantReadError:
                select.select([self._connection], [], [])

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                with self._lock:
                    view = view[self._connection.send(view) :]
            except ssl.SSLWantWriteError:
                select.select([], [self._connection], [])

    def shutdown(self, direction: int) -> None:
        """End the TCP connection, without an alert."""
        socket.socket.shutdown(self._connection, direction)


Connection: TypeAlias = socket.socket | TlsSocket
"""One end of a connection."""


class Proxy:
    """Passes the frames of one connection on, and records them. Raises nothing: the ends notice what happens.

    With `tls`, which has the certificates of a server, it is the end of two connections with TLS.
    """

    def __init__(
        self, scheme: str, server_address: str, change: FrameChange | None, tls: TlsOptions | None = None
    ) -> None:
        self._is_unix = scheme == "unix"
        self._tls = tls
        self._server_name = self._name(server_address)
        self._change = change
        self.frames: dict[Sender, list[Frame]] = {sender: [] for sender in Sender}
        self._listener = self._socket()
        address = random_abstract_address() if self._is_unix else f"{_HOST}:0"
        self._listener.bind(self._name(address))
        self._listener.listen()
        self.address = address if self._is_unix else format_address(*self._listener.getsockname())

    def run(self) -> None:
        """Serve one connection."""
        with self._listener, suppress(OSError):
            client = self._listener.accept()[0]
            with client, self._socket() as server:
                server.connect(self._server_name)
                if self._tls is None:
                    self._pass_both_on(client, server)
                    return
                with (
                    self._tls.create_server_context().wrap_socket(client, server_side=True) as tls_client,
                    TlsOptions().create_client_context().wrap_socket(server, server_hostname=_HOST) as tls_server,
                ):
                    self._pass_both_on(TlsSocket(tls_client), TlsSocket(tls_server))

    def close(self) -> None:
        """Close the descriptors of the frames."""
        for frames in self.frames.values():
            for frame in frames:
                for descriptor in frame.descriptors:
                    os.close(descriptor)

    def _pass_both_on(self, client: Connection, server: Connection) -> None:
        other = threading.Thread(target=self._pass_on, args=(server, client, Sender.SERVER))
        other.start()
        self._pass_on(client, server, Sender.CLIENT)
        other.join()

    def _socket(self) -> socket.socket:
        return socket.socket(socket.AF_UNIX if self._is_unix else socket.AF_INET, socket.SOCK_STREAM)

    def _name(self, address: str) -> bytes | tuple[str, int]:
        return encode_unix_address(address) if self._is_unix else parse_address(address)

    def _pass_on(self, source: Connection, target: Connection, sender: Sender) -> None:
        change = self._change if self._change is not None and self._change.sender == sender else None
        previous: Frame | None = None
        with suppress(OSError):
            while (frame := self._receive(source)) is not None:
                index = len(self.frames[sender])
                self.frames[sender].append(frame)
                if change is not None and index == change.index:
                    frames = change.apply(frame, None)
                    if frames is None:
                        previous = frame
                        continue
                elif previous is not None and change is not None:
                    frames, previous = change.apply(previous, frame), None
                else:
                    frames = [frame]
                for each in frames or ():
                    self._send(target, each)
                if change is not None and change.is_last and index >= change.index:
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _receive(self, source: Connection) -> Frame | None:
        header, descriptors = b"", list[int]()
        while len(header) < FRAME_HEADER.size:
            if isinstance(source, socket.socket) and self._is_unix:
                received, passed, _, _ = socket.recv_fds(source, FRAME_HEADER.size - len(header), 1)
                descriptors += passed
            else:
                received = source.recv(FRAME_HEADER.size - len(header))
            if not received:
                return None
            header += received
        magic, kind, count, reserved, tag, length_bytes = FRAME_HEADER.unpack(header)
        payload = receive_exactly(source, length_bytes)
        if payload is None:
            return None
        return Frame(kind, count, tag, length_bytes, payload, tuple(descriptors), magic, reserved)

    def _send(self, target: Connection, frame: Frame) -> None:
        header = FRAME_HEADER.pack(
            frame.magic, frame.kind, frame.num_descriptors, frame.reserved, frame.tag, frame.length_bytes
        )
        if frame.descriptors and isinstance(target, socket.socket):
            socket.send_fds(target, [header], frame.descriptors)
        else:
            target.sendall(header)
        target.sendall(frame.payload)


class RecordProxy(Proxy):
    """Passes the records of a connection with TLS on: frames whose `tag` is the version, of encrypted bytes."""

    def _receive(self, source: Connection) -> Frame | None:
        header = receive_exactly(source, RECORD.size)
        if header is None:
            return None
        kind, version, length_bytes = RECORD.unpack(header)
        payload = receive_exactly(source, length_bytes)
        return None if payload is None else Frame(kind, 0, version, length_bytes, payload)

    def _send(self, target: Connection, frame: Frame) -> None:
        target.sendall(RECORD.pack(frame.kind, frame.tag, frame.length_bytes) + frame.payload)


def receive_exactly(source: Connection, size_bytes: int) -> bytes | None:
    """Receive bytes; None if the connection ends before."""
    content = bytearray()
    while len(content) < size_bytes:
        received = source.recv(size_bytes - len(content))
        if not received:
            return None
        content += received
    return bytes(content)
