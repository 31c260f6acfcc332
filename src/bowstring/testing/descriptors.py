"""What a piece of a test leaves open."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Assert that the block closes each descriptor that it opens, without waiting for the garbage collector."""
    gc.collect()  # else what was left before would be closed in between, and hide what is left now
    before = open_descriptors()
    yield
    assert open_descriptors() == before
