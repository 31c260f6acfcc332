"""The available memory of the machine or container."""

from __future__ import annotations

from bowstring.memory.available_memory import available_memory_bytes


def test_available_memory_is_measured() -> None:
    available = available_memory_bytes()
    assert available is not None
    assert 1 << 20 < available < 1 << 50
