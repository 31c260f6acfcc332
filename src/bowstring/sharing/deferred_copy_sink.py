"""A sink that copies into a region later, because the size of a file or stream is known only when it is written.

`DeferredCopySink` is a sink that only records its parts. Afterwards the exact size is known, and `copy_into` copies the
parts by several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.memory.buffer import UINT8, Bytes
from bowstring.memory.parallel_copy import copy_all

# As in `bowstring.io.sinks`: copying so little takes less time than the Python objects of a part.
_MAX_GATHERED_BYTES = 1 << 15


class DeferredCopySink:
    """A sink that records parts of memory and their offsets. It refers to the caller's memory until it is deleted.

    Without `has_bodies`, the bodies of messages are left out: their bytes will be written in place.
    """

    def __init__(self, name: str, *, has_bodies: bool = True) -> None:
        self.name = name
        self._has_bodies = has_bodies
        self.position = 0
        self.parts: list[tuple[int, Bytes]] = []
        """Offset in the region and bytes of each part."""
        self._small = bytearray()

    def write(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Record the parts, `size_bytes` in total."""
        end = self.position + size_bytes
        for part in parts:
            # Heads, padding and short buffers are joined here, because a copy of each would cost more than its bytes.
            if len(part) <= _MAX_GATHERED_BYTES:
                self._small.extend(part)
            else:
                self._flush_small_parts()
                self.parts.append((self.position, np.frombuffer(part, UINT8)))
            self.position += len(part)
        assert self.position == end

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Record a message: its head and the parts of its body, `body_bytes` in total."""
        self.write([head], len(head))
        if self._has_bodies:
            self.write(body, body_bytes)
        else:
            self._flush_small_parts()
            self.position += body_bytes

    def _flush_small_parts(self) -> None:
        small, self._small = self._small, bytearray()
        if small:
            self.parts.append((self.position - len(small), np.frombuffer(small, UINT8)))

    def flush(self) -> None:
        """Do nothing: no bytes are written before `copy_into`."""

    def finish(self) -> None:
        """End the layout: `position` is the size in bytes."""
        self._flush_small_parts()

    def abandon(self) -> None:
        """Drop all parts."""
        self._small.clear()
        self.parts.clear()

    def copy_into(self, memory: memoryview) -> None:
        """Copy all parts into memory of at least `position` bytes."""
        whole = np.frombuffer(memory, UINT8)
        copy_all([(part, whole[offset : offset + part.size]) for offset, part in self.parts])
