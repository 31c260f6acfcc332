"""Check that descriptors are closed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Assert that the block closes each descriptor that it opens, without waiting for the garbage collector."""
    gc.collect()  # otherwise earlier garbage may be closed within the block and hide a leak
    before = open_descriptors()
    yield
    assert open_descriptors() == before
