"""The frames of a byte stream: a channel reports the same events whether bytes arrive at once or in small pieces.

The options of an input select the transport, the size of the pieces, whether long messages are accepted or discarded,
and the descriptors that are passed with frames of regions.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import bowstring as bs
from bowstring.errors import ConnectionLostError, InvalidArgumentError
from bowstring.memory.region import Region
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.base import (
    RECEIVE,
    Channel,
    DirectionEnded,
    Event,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    TransportOptions,
)
from bowstring.transports.sockets.frames import FrameKind
from bowstring.transports.sockets.tcp_channel import TcpChannel
from bowstring.transports.sockets.unix import UnixChannel
from bowstring_testing.descriptors import count_open_descriptors
from fuzz.expectations import expect
from fuzz.frames import parse_frames

TABLE = bs.table({"n": [1, 2, None], "s": ["a", "bc", ""]})
"""What the recorded sessions serve."""
TCP = 1
"""Bits of the options."""
_PIECE_BYTES = (1 << 16, 1000, 24, 7)
_MAX_PIECES = 500
_OPTIONS = TransportOptions(max_plain_bytes=1 << 20, max_tagged_bytes=1 << 20, eager_bytes=64, max_regions=4)


def check_frames(data: bytes) -> bool:
    """Check received frames."""
    options, received = (data[0], data[1:]) if data else (0, b"")
    size_bytes = max(_PIECE_BYTES[options >> 1 & 3], len(received) // _MAX_PIECES)
    passed_region(options & 0x30)
    descriptors_before = count_open_descriptors()
    at_once = _receive(options, received, len(received) + 1)
    in_pieces = _receive(options, received, size_bytes)
    expect(count_open_descriptors() == descriptors_before, "descriptors are left open")
    if not options >> 4 & 3:  # after missing or superfluous descriptors, what came with them may be dropped
        expect(at_once == in_pieces, f"at once: {at_once}; in pieces: {in_pieces}")
    return at_once[-1] == ("lost", ConnectionLostError, True)


def split_segments(options: int, received: bytes) -> Iterator[tuple[bytes, list[int]]]:
    """The bytes in the pieces that `sendmsg` sends: a frame of a region begins a new one, with descriptors."""
    num_descriptors = 0 if options & TCP else (1, 0, 2, 1)[options >> 4 & 3]
    region = passed_region(options & 0x30)
    pending, rest = b"", received
    descriptors: list[int] = []
    for each in parse_frames(received):
        raw, rest = rest[: len(each.encode())], rest[len(each.encode()) :]
        if each.kind == FrameKind.REGION and num_descriptors:
            if pending:
                yield pending, descriptors
            pending, descriptors = b"", [region.descriptor] * num_descriptors
        pending += raw
    if pending + rest:
        yield pending + rest, descriptors


def send_segment(peer: socket.socket, piece: bytes, descriptors: list[int]) -> None:
    """Send bytes with descriptors."""
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if descriptors else []
    count = peer.sendmsg([piece], rights)
    peer.sendall(piece[count:])


def _receive(options: int, received: bytes, size_bytes: int) -> list[tuple[Any, ...]]:
    """Receive bytes in pieces of a size; return what the channel reports."""
    own, peer = socket.socketpair()
    channel: Channel = TcpChannel(own, "fuzz", _OPTIONS) if options & TCP else UnixChannel.from_socket(own, _OPTIONS)
    events: list[tuple[Any, ...]] = []
    with channel, peer:
        for segment, descriptors in split_segments(options, received):
            for start in range(0, len(segment), size_bytes):
                send_segment(peer, segment[start : start + size_bytes], [] if start else descriptors)
                _progress(channel, events)
                if events and events[-1][0] == "lost":
                    return events
        peer.shutdown(socket.SHUT_WR)
        _progress(channel, events)
    expect(bool(events) and events[-1][0] == "lost", "the end of the connection is not reported")
    return events


def _progress(channel: Channel, events: list[tuple[Any, ...]]) -> None:
    """Receive all that has arrived."""
    while True:
        before = channel.bytes_received
        reported = channel.progress(RECEIVE)
        events += [_describe(channel, event) for event in reported]
        if not reported and channel.bytes_received == before and channel.next_wait(RECEIVE).timeout_s:
            return


def _describe(channel: Channel, event: Event) -> tuple[Any, ...]:
    """Process an event as a session does; return what can be compared."""
    if isinstance(event, MessageReceived):
        channel.grant_credit(1, len(event.data))
        return "received", event.tag, bytes(event.data)
    if isinstance(event, MessageOffered):
        channel.accept_offered_message(event.token)
        return "offered", event.tag, event.length_bytes
    if isinstance(event, RemoteMemoryUpdated):
        region = event.update.region
        if region is not None:
            region.close()
        return "announced", event.update.index, region is not None and region.size_bytes
    assert isinstance(event, DirectionEnded)
    expect(bool(str(event.error)), "the error has no message")
    expect(not isinstance(event.error, InvalidArgumentError), f"a hostile peer causes a usage error: {event.error}")
    return "lost", type(event.error), "between two messages" in str(event.error)


@cache
def passed_region(options: int) -> Region:
    """The region whose descriptor is passed: the served table, or with some options a device."""
    if options >> 4 & 3 == 3:
        return Region(os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC), 8, "device", is_sealed=False)
    return store_in_region(TABLE)[0]
