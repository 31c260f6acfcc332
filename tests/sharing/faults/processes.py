"""Start children of `children.py`, and examine what processes have open."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bowstring_testing.descriptors import count_open_descriptors
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess

MAX_GROWTH_BYTES = 16 << 20
"""The growth of a process that its allocator may cause. A leak of 100 bytes per client exceeds it within the hour."""
_NUM_IN_TRANSITION = 2
"""The number of data sets that may be about to be removed."""
_START = "import sys\nsys.path[:] = path\nfrom tests.sharing.faults.children import main\nmain()"


class Children:
    """Forks children from one process, which takes milliseconds. A context manager, which kills them."""

    def __init__(self) -> None:
        self._other = PythonProcess(_START, path=sys.path)
        self._reports: dict[int, deque[Any]] = defaultdict(deque)
        self._running: set[int] = set()

    def start(self, function: str, **values: Any) -> Child:
        """Run a function of `children.py`."""
        self._other.send((function, values))
        pid = self.receive(self._other.process.pid)
        self._running.add(pid)
        return Child(self, pid)

    def receive(self, pid: int) -> Any:
        """The next report of a process."""
        while not self._reports[pid]:
            sender, value = self._other.receive()
            self._reports[sender].append(value)
        value = self._reports[pid].popleft()
        if not self._reports[pid]:
            del self._reports[pid]
        return value

    def wait(self, pid: int) -> int:
        """Wait for the end of a child, and return its exit code."""
        self._other.send(("wait", {"pid": pid}))
        code: int | None = self.receive(self._other.process.pid)
        self._running.discard(pid)
        assert code is not None, "the child hangs"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        self._other.__exit__(kind, error, trace)


class Child:
    """A child that was started."""

    def __init__(self, children: Children, pid: int) -> None:
        self._children = children
        self._code: int | None = None
        self.pid = pid

    def receive(self) -> Any:
        """The next report."""
        return self._children.receive(self.pid)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Stop all of its threads."""
        self.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        assert wait_until(lambda: all("State:\tT" in (task / "status").read_text() for task in threads.iterdir()))

    def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        if self._code is None:
            self._code = self._children.wait(self.pid)
        return self._code

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def num_threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses."""

    anonymous_bytes: int
    threads: int
    descriptors: int
    shared_mappings: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """The usage of a process now."""
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
        maps = Path(f"/proc/{pid}/maps").read_text()
        return cls(int(line.split()[1]) << 10, num_threads(pid), num_descriptors(pid), maps.count("memfd:"))

    def is_flat(self, before: Usage) -> bool:
        """Whether it has not grown since an earlier time."""
        return (
            self.anonymous_bytes <= before.anonymous_bytes + MAX_GROWTH_BYTES
            and self.threads <= before.threads
            and self.descriptors <= before.descriptors + _NUM_IN_TRANSITION
            and self.shared_mappings <= before.shared_mappings + _NUM_IN_TRANSITION
        )


def has_memory(name: str) -> bool:
    """Whether this process has a memfd of this name mapped or open."""
    own = Path("/proc/self")
    targets = [os.readlink(link) for link in (own / "fd").iterdir() if link.is_symlink()]
    return any(name in text for text in (*targets, (own / "maps").read_text()))


@contextmanager
def nothing_left(*pids: int) -> Iterator[None]:
    """Assert that these processes and this one get rid of all descriptors and threads of the block."""
    gc.collect()  # otherwise earlier garbage may be closed within the block and hide a leak
    before = [(pid, num_descriptors(pid), num_threads(pid)) for pid in pids]
    own_descriptors, own_threads = count_open_descriptors(), threading.active_count()
    entries = set(os.listdir("/dev/shm"))
    yield
    assert wait_until(lambda: count_open_descriptors() <= own_descriptors), (
        f"{count_open_descriptors()}, not {own_descriptors}"
    )
    assert wait_until(lambda: threading.active_count() <= own_threads), f"{threading.enumerate()}, not {own_threads}"
    for pid, descriptors, threads in before:
        assert wait_until(lambda: num_descriptors(pid) <= descriptors), f"{num_descriptors(pid)}, not {descriptors}"  # noqa: B023
        assert wait_until(lambda: num_threads(pid) <= threads), f"{num_threads(pid)}, not {threads}"  # noqa: B023
    assert {entry for entry in os.listdir("/dev/shm") if "bowstring" in entry} <= entries
