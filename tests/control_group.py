"""A control group whose memory is limited, as a container's is."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.polling import wait_until

_MEMORY_HIERARCHY = Path("/sys/fs/cgroup/memory")


@contextmanager
def limit_memory(limit_bytes: int) -> Iterator[Path]:
    """The folder of a new control group; a process joins it by writing its ID into `cgroup.procs`. Skips the test
    without cgroup v1's controller of memory or without permission.
    """
    group = _MEMORY_HIERARCHY / f"bowstring-test-{secrets.token_hex(4)}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"a control group with limited memory can't be created: {error}")
    try:
        yield group
    finally:
        assert wait_until(lambda: not (group / "cgroup.procs").read_text(), within_s=60), "processes were left"
        assert wait_until(lambda: _remove(group)), f"{group} is in use"


def _remove(group: Path) -> bool:
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True
