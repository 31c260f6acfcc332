"""The memory of received messages."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from bowstring.memory.mapping_pool import MAPPING_POOL, POOLED_BYTES
from bowstring.transports.base import Event, MessageOffered, MessageReceived, TransportOptions, allocate_message
from bowstring.transports.sockets import frames

SIZE_BYTES = 2 * POOLED_BYTES


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    MAPPING_POOL.release_unused()
    yield
    MAPPING_POOL.release_unused()


def address_of(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def test_memory_is_used_again_after_its_last_view() -> None:
    message = allocate_message(SIZE_BYTES, "test")
    message[:3] = b"abc"
    slice_of_it, first = message[1:3], address_of(message)
    del message
    gc.collect()
    other = allocate_message(SIZE_BYTES - 100, "test")
    assert address_of(other) != first
    content = bytes(slice_of_it)
    del slice_of_it
    gc.collect()
    assert content == b"bc"
    again = allocate_message(SIZE_BYTES - 200, "test")
    assert (address_of(again), len(again)) == (first, SIZE_BYTES - 200)


def test_only_long_messages_use_the_pool() -> None:
    for length_bytes in (0, 1 << 16, POOLED_BYTES - 1):
        assert len(allocate_message(length_bytes, "test")) == length_bytes
    assert MAPPING_POOL.unused_bytes == 0


def test_a_message_that_arrives_in_parts_is_received_into_its_destination() -> None:
    content = bytes(range(256)) * 1024
    parser = frames.FrameParser("test", TransportOptions())
    header = frames.FRAME_HEADER.pack(frames.MAGIC, frames.TAGGED, 0, 0, 7, len(content))
    parser.feed(header + content[:1000])
    events: list[Event] = []
    parser.parse_frames(events)
    offered = events.pop()
    assert isinstance(offered, MessageOffered)
    parser.accept_offered_message(offered.token, None)
    parser.parse_frames(events)
    target = parser.remaining_destination()
    assert target is not None
    target[:] = content[1000:]
    parser.advance(len(target), events)
    assert [bytes(event.data) for event in events if isinstance(event, MessageReceived)] == [content]
