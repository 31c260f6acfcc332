"""The memory of received messages."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from bowstring.transports import frames

SIZE_BYTES = 2 * frames._HUGE_BYTES


@pytest.fixture(autouse=True)
def free_mappings(monkeypatch: pytest.MonkeyPatch) -> frames._FreeMappings:
    mappings = frames._FreeMappings(3 * SIZE_BYTES)
    monkeypatch.setattr(frames, "_FREE_MAPPINGS", mappings)
    return mappings


def address_of(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def test_memory_is_used_again_after_the_last_view_is_gone() -> None:
    message = frames._allocate(SIZE_BYTES, "test")
    message[:3] = b"abc"
    slice_of_it, first = message[1:3], address_of(message)
    del message
    gc.collect()
    other = frames._allocate(SIZE_BYTES - 100, "test")
    assert address_of(other) != first
    content = bytes(slice_of_it)
    del slice_of_it
    gc.collect()
    assert content == b"bc"
    again = frames._allocate(SIZE_BYTES - 200, "test")
    assert (address_of(again), len(again)) == (first, SIZE_BYTES - 200)


def test_memory_of_another_size_is_not_used_again() -> None:
    message = frames._allocate(SIZE_BYTES, "test")
    del message
    gc.collect()
    assert len(frames._allocate(2 * SIZE_BYTES, "test")) == 2 * SIZE_BYTES


def test_free_memory_is_limited(free_mappings: frames._FreeMappings) -> None:
    messages = [frames._allocate(SIZE_BYTES, "test") for _ in range(5)]
    del messages
    gc.collect()
    assert len(free_mappings._mappings) == 3
