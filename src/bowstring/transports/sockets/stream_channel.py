"""Channels of stream sockets with Bowstring's frames; transports differ in how bytes are moved."""

from __future__ import annotations

import errno
import math
import os
import socket
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    TruncatedError,
    translate_os_error,
)
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    RECEIVE,
    SEND,
    Channel,
    ChannelTraits,
    DirectionEnded,
    Event,
    Interest,
    TransportOptions,
    Wait,
    strip_traceback,
)
from bowstring.transports.sockets.frames import (
    HELLO_BODY,
    PLAIN,
    RECEIVE_BYTES,
    TAGGED,
    VERSION,
    FrameKind,
    FrameParser,
    FrameQueue,
)

# sendfile needs a call of its own for each body: shorter ones are read and sent with others.
_MIN_FILE_BYTES = 1 << 14
# A fast peer must not keep the other clients of a loop from their turn: at most some milliseconds each.
_CALLS_PER_PROGRESS, _SENT_BYTES_PER_PROGRESS = 16, 1 << 22
# The errors of a socket that its peer, or another thread, has ended.
_NOT_CONNECTED = {errno.ENOTCONN, errno.EBADF}


class StreamChannel(Channel):
    """One end of a connection. After an error of receiving, submitted messages can still be sent."""

    def __init__(
        self, connection: socket.socket, name: str, options: TransportOptions, *, receives_regions: bool = False
    ) -> None:
        self.options = options
        self.traits = ChannelTraits(min_file_bytes=_MIN_FILE_BYTES)
        self.bytes_received = 0
        self.bytes_sent = 0
        self.is_closed = False
        self.is_connected = True
        self._name = name
        self._socket = connection
        self._queue = FrameQueue()
        self._parser = FrameParser(name, options, receives_regions=receives_regions)
        self._lost_directions = 0
        connection.setblocking(False)

    def descriptors(self) -> list[int]:
        return [] if self.is_closed else [self._socket.fileno()]

    @property
    def is_sending(self) -> bool:
        return self._queue.queued_bytes > 0

    @property
    def queued_bytes(self) -> int:
        return self._queue.queued_bytes

    @property
    def is_receiving_message(self) -> bool:
        return not self._parser.is_between_frames

    @property
    def wait_description(self) -> str:
        if not self.is_connected:
            return f"{self._name}: connecting"
        if self.queued_bytes:
            return f"{self._name}: sending, {self.queued_bytes} bytes before the end"
        position = "in the middle of a frame" if self.is_receiving_message else "between two messages"
        return f"{self._name}: receiving, {position}"

    def submit(self, parts: Sequence[Any], tag: int | None = None) -> None:
        self.submit_frame(PLAIN if tag is None else TAGGED, tag or 0, parts)

    def submit_frame(self, kind: FrameKind, tag: int, parts: Sequence[Any], region: Region | None = None) -> None:
        """Queue a frame, with the descriptor of `region`, which has to stay open until it is sent."""
        self._answer_hello()
        self._queue.submit(kind, tag, parts, region)

    def accept_offered_message(self, token: int, destination: Any = None) -> None:
        self._parser.accept_offered_message(token, destination)

    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        self._parser.credit.grant(num_messages, nbytes)

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events: list[Event] = []
        if not self.is_connected:
            try:
                self.is_connected = not self._lost_directions and self._continue_connecting()
            except BowstringError as error:
                self._lost_directions = BOTH_DIRECTIONS
                events.append(DirectionEnded(strip_traceback(error), BOTH_DIRECTIONS))
            if not self.is_connected:
                return events
        directions &= ~self._lost_directions
        if directions & SEND and self._queue.queued_bytes:
            self._send(events)
        if directions & RECEIVE:
            try:
                self._receive_events(events)
            except BowstringError as error:
                self._parser.close()
                self._lost_directions |= RECEIVE
                # The reply has the reason for the peer. Nothing is sent after other errors: another thread may be
                # sending to a peer that has only ended its own direction.
                if not self._parser.has_common_version and not self._lost_directions & SEND:
                    self._answer_hello()
                    self._send(events)
                events.append(DirectionEnded(strip_traceback(error), RECEIVE))
        return events

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        directions &= ~self._lost_directions
        needed, timeout_s = SEND if directions & SEND and self._queue.queued_bytes else 0, math.inf
        if directions & RECEIVE and self._parser.can_receive:
            needed |= RECEIVE
            # Bytes that were received, and not delivered for lack of credit or behind an offer.
            if self._parser.has_buffered_message or self._has_decrypted_bytes:
                timeout_s = 0.0
        return Wait([Interest(self._socket.fileno(), needed)] if needed else [], timeout_s)

    def shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.is_closed = True
        self._lost_directions = BOTH_DIRECTIONS
        self._socket.close()
        self._queue.clear()
        self._parser.close()

    @property
    def _has_decrypted_bytes(self) -> bool:
        """Whether bytes were taken from the socket that `_read` has not returned."""
        return False

    def _continue_connecting(self) -> bool:
        """Continue to connect; return whether it is done. Raises an error of `bowstring.errors`."""
        return True

    @abstractmethod
    def _read(self, size_bytes: int) -> bytes:
        """Receive bytes; none at the end. Raises `OSError`."""

    @abstractmethod
    def _write(self, views: list[bytes | memoryview], region: Region | None) -> int:
        """Send bytes, with the descriptor of a region; return their number. Raises `OSError`."""

    def _write_file(self, file: FileRange) -> int:
        """Send bytes of a file; return their number. Raises `OSError`, `TruncatedError`."""
        # With the offset, so that several channels can send the same open file.
        count = os.sendfile(self._socket.fileno(), file.region.descriptor, file.offset_bytes, file.nbytes)
        if not count:
            file.region.check_backing_file()
            raise TruncatedError(f"{self._name}: the end of {file.region.name} at byte {file.offset_bytes}")
        return count

    def _read_into(self, target: memoryview) -> int:
        """Receive bytes into memory; return their number, 0 at the end. Raises `OSError`."""
        return self._socket.recv_into(target)

    def _answer_hello(self) -> None:
        """Answer the HELLO of a peer that dialed, before the first other frame."""
        if self._parser.must_answer_hello:
            self._parser.must_answer_hello = False
            self._submit_hello()

    def _dial(self) -> None:
        """Begin as the end that dialed, with a HELLO."""
        self._parser.is_dialer = True
        self._submit_hello()

    def _submit_hello(self) -> None:
        self._queue.submit(FrameKind.HELLO, 0, (HELLO_BODY.pack(VERSION, VERSION),))

    def _send(self, events: list[Event]) -> None:
        end_bytes = self.bytes_sent + _SENT_BYTES_PER_PROGRESS
        for _ in range(_CALLS_PER_PROGRESS):
            if not self._queue.queued_bytes or self.bytes_sent >= end_bytes:
                break
            try:
                file = self._queue.next_file()
                count = self._write(*self._queue.next_buffers()) if file is None else self._write_file(file)
            except BlockingIOError:
                return
            except (OSError, BowstringError) as error:
                self._queue.clear()
                # Receiving goes on: a peer may have sent why it disconnects before it did.
                self._lost_directions |= SEND
                if not isinstance(error, ConnectionError):  # the peer must not wait for the rest, as of a shorter file
                    self.shut_down()
                lost = error if isinstance(error, BowstringError) else self._translate_socket_error(error)
                events.append(DirectionEnded(strip_traceback(lost), SEND))
                return
            self.bytes_sent += count
            self._queue.advance(count)

    def _receive_events(self, events: list[Event]) -> None:
        reader = self._parser
        for _ in range(_CALLS_PER_PROGRESS):
            # Directly into the destination of a long message, so that its bytes are not copied.
            target = reader.remaining_destination()
            try:
                if target is not None:
                    count = self._read_into(target)
                    if not count:
                        raise self._end_of_input_error()
                    self.bytes_received += count
                    reader.advance(count, events)
                    continue
                if not (reader.is_between_frames or reader.parse_frames(events)):
                    return
                if reader.frame is None:
                    received = self._read(RECEIVE_BYTES)
                    if not received:
                        raise self._end_of_input_error()
                    self.bytes_received += len(received)
                    reader.feed(received)
                    # A read also ends after the bytes sent with a descriptor, however many follow.
                    if len(received) < RECEIVE_BYTES and not reader.descriptors:
                        reader.parse_frames(events)  # that was all, most likely
                        return
            except BlockingIOError:
                return
            except BowstringError:
                raise
            except OSError as error:
                raise self._translate_socket_error(error) from error

    def _end_of_input_error(self) -> BowstringError:
        if self.is_closed:
            return ClosedError(f"{self._name}: closed while receiving")
        return ConnectionLostError(f"{self._name}: the peer disconnected {self._parser.position_description}")

    def _translate_socket_error(self, error: OSError) -> BowstringError:
        if self.is_closed:
            return ClosedError(f"{self._name}: closed by another thread")
        if error.errno in _NOT_CONNECTED:
            return ConnectionLostError(f"{self._name}: the peer disconnected", error)
        reason = "the peer disconnected" if isinstance(error, ConnectionError) else error.strerror
        return translate_os_error(error, f"{self._name}: {reason}")

    def __del__(self) -> None:
        if hasattr(self, "_lost_directions"):
            self.close()
