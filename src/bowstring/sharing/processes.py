"""Who a process is: its number alone does not say, as numbers are used again and mean nothing in another container."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bowstring.errors import ConnectionLostError


def host_key() -> str:
    """What processes that can see each other have in common: the run of the machine, and the namespace of process
    numbers.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since the machine's start; -1 for one that is not there, or ended and is
    not reaped.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return -1
    return -1 if state in "ZX" else int(fields[18])


def parent_of(pid: int) -> int:
    """The process that started `pid`; 0 where it can't be told."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _command(pid: int) -> str:
    """The name of the program that a process runs; empty where it can't be told."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end_children(words: Sequence[str], timeout_s: float) -> None:
    """End the children of this process whose command line has one of the words: politely, and after `timeout_s` not."""
    watched = [(pid, os.pidfd_open(pid)) for pid in _children() if any(word in _command_line(pid) for word in words)]
    for pid, descriptor in watched:
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if not has_ended(descriptor, timeout_s if signal_number == signal.SIGKILL else 0):
                signal.pidfd_send_signal(descriptor, signal_number)
        os.close(descriptor)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # who started it has asked for its end already


def _children() -> list[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if parent_of(pid) == os.getpid()]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told from all others of all machines."""

    pid: int
    start_time: int
    host: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now."""
        return cls(pid, start_time(pid), host_key())

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls.of(os.getpid())

    @property
    def is_local(self) -> bool:
        """Whether it is (or was) one that this process can see."""
        return self.host == host_key()

    def is_alive(self) -> bool:
        """Whether it runs still, as far as it can be seen from here."""
        return self.is_local and self.start_time >= 0 and start_time(self.pid) == self.start_time

    def check_reachable(self, what: str) -> None:
        """Raise `ConnectionLostError` unless it is alive and can be seen from here."""
        if not self.is_local:
            raise ConnectionLostError(
                f"{what}: process {self.pid} is of another machine, another start of it, or another container"
            )
        if not self.is_alive():
            raise ConnectionLostError(f"{what}: process {self.pid} is gone")

    def watch(self) -> int | None:
        """A descriptor that becomes readable when the process ends; None where it is gone already."""
        if not self.is_alive():
            return None
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive():
            return descriptor
        os.close(descriptor)
        return None


def java_above() -> Process | None:
    """The nearest Java process that this one descends from, which is Spark's own: the driver or an executor."""
    pid = os.getpid()
    while pid > 1:
        pid = parent_of(pid)
        if _command(pid) == "java":
            return Process.of(pid)
    return None


def has_ended(watched: int, timeout_s: float = 0) -> bool:
    """Whether the process behind a descriptor of `Process.watch` is gone, or goes within `timeout_s`."""
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def close_inherited(descriptors: Iterable[int]) -> None:
    """Put nothing in the place of sockets that a forked child got from its parent: whoever closes them ends nothing."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor >= 0:
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
