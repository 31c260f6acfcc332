"""A proxy between a client and a server, which changes one frame."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from bowstring.transports.frames import FRAME, MAGIC
from bowstring.transports.tcp_address import format_address, parse_address
from bowstring.transports.unix_address import new_abstract_address, socket_name


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


class Proxy:
    """Passes the frames of one connection on, and records them. Raises nothing: the ends notice what happens."""

    def __init__(self, scheme: str, server_address: str, change: FrameChange | None) -> None:
        self._is_unix = scheme == "unix"
        self._server_name = self._name(server_address)
        self._change = change
        self.frames: dict[Sender, list[Frame]] = {sender: [] for sender in Sender}
        self._listener = self._socket()
        address = new_abstract_address() if self._is_unix else "127.0.0.1:0"
        self._listener.bind(self._name(address))
        self._listener.listen()
        self.address = address if self._is_unix else format_address(*self._listener.getsockname())

    def run(self) -> None:
        """Serve one connection."""
        with self._listener, suppress(OSError):
            client = self._listener.accept()[0]
            with client, self._socket() as server:
                server.connect(self._server_name)
                other = threading.Thread(target=self._pass_on, args=(server, client, Sender.SERVER))
                other.start()
                self._pass_on(client, server, Sender.CLIENT)
                other.join()
        for frames in self.frames.values():
            for frame in frames:
                for descriptor in frame.descriptors:
                    os.close(descriptor)

    def _socket(self) -> socket.socket:
        return socket.socket(socket.AF_UNIX if self._is_unix else socket.AF_INET, socket.SOCK_STREAM)

    def _name(self, address: str) -> bytes | tuple[str, int]:
        return socket_name(address) if self._is_unix else parse_address(address)

    def _pass_on(self, source: socket.socket, target: socket.socket, sender: Sender) -> None:
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

    def _receive(self, source: socket.socket) -> Frame | None:
        header, descriptors = b"", list[int]()
        while len(header) < FRAME.size:
            if self._is_unix:
                received, passed, _, _ = socket.recv_fds(source, FRAME.size - len(header), 1)
                descriptors += passed
            else:
                received = source.recv(FRAME.size - len(header))
            if not received:
                return None
            header += received
        magic, kind, count, reserved, tag, length_bytes = FRAME.unpack(header)
        payload = bytearray()
        while len(payload) < length_bytes:
            received = source.recv(length_bytes - len(payload))
            if not received:
                return None
            payload += received
        return Frame(kind, count, tag, length_bytes, bytes(payload), tuple(descriptors), magic, reserved)

    def _send(self, target: socket.socket, frame: Frame) -> None:
        header = FRAME.pack(
            frame.magic, frame.kind, frame.num_descriptors, frame.reserved, frame.tag, frame.length_bytes
        )
        if frame.descriptors:
            socket.send_fds(target, [header], frame.descriptors)
        else:
            target.sendall(header)
        target.sendall(frame.payload)
