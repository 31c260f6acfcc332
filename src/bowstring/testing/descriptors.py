"""Check that descriptors are closed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def count_open_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def assert_descriptors_closed() -> Iterator[None]:
    """Assert that the block closes each descriptor that it opens, without waiting for the garbage collector."""
    gc.collect()  # otherwise earlier garbage may be closed within the block and hide a leak
    before = count_open_descriptors()
    yield
    assert count_open_descriptors() == before
