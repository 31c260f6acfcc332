"""Check that descriptors are closed."""

from __future__ import annotations

import contextlib
import gc
import os
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
    before = _list_open_files()
    yield
    # Not their number: a thread of an earlier test may close a descriptor within the block.
    assert not _list_open_files() - before


def _list_open_files() -> set[tuple[str, str]]:
    """Return the number of each open descriptor and what it refers to, such as ``socket:[4711]``."""
    files = set[tuple[str, str]]()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            files.add((path.name, os.readlink(path)))
    return files
