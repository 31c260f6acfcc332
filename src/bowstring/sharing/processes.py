"""Identify processes: an ID alone is ambiguous, because IDs are reused and differ between containers."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import resource
import select
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from bowstring.errors import ConnectionLostError, ResourceError, translate_os_error

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_SUFFICIENT_LIMITS = {
    "RLIMIT_AS": math.inf,
    "RLIMIT_CPU": math.inf,
    "RLIMIT_DATA": math.inf,
    "RLIMIT_FSIZE": math.inf,
    "RLIMIT_NOFILE": 1024,
    "RLIMIT_NPROC": 1024,
}
"""What is enough for a host agent. The size of core dumps is not among them: they would contain the data."""


@cache
def host_id() -> str:
    """Return the machine's boot ID and the namespaces of PIDs and clocks, which are equal for processes that can see
    each other with the same start times.

    They are this process's as long as it runs; only a forked child may be in another namespace. Raises as
    `start_ticks`.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        paths = ("/proc/self/ns/pid", "/proc/self/ns/time")  # the latter since Linux 5.6
        return "/".join((boot, *(os.readlink(path) for path in paths if os.path.lexists(path))))
    except OSError as error:
        _check_shortage(error, "this host")
        return os.uname().nodename


os.register_at_fork(after_in_child=host_id.cache_clear)


def start_ticks(pid: int) -> int:
    """The start time of a process in clock ticks since boot; -1 if it does not exist or has ended.

    Raises `ResourceError` if it can't be read for lack of descriptors or memory: it may still run.
    """
    fields = _read_stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in b"ZX" else -1


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger; False if it is not visible."""
    fields = _read_stat_fields(pid)
    return bool(fields) and fields[0] in b"Tt"


def parent_pid(pid: int) -> int:
    """The parent of `pid`; 0 if unknown."""
    fields = _read_stat_fields(pid)
    return int(fields[1]) if fields else 0


def _read_stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the command's name; none if the process is not visible. Raises as
    `start_ticks`.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        _check_shortage(error, f"process {pid}")
        return []
    try:
        # The command's name is in parentheses, and may itself contain spaces and parentheses.
        return os.read(descriptor, mmap.PAGESIZE).rpartition(b") ")[2].split()
    except OSError:  # it has just ended
        return []
    finally:
        os.close(descriptor)


def _check_shortage(error: OSError, subject: str) -> None:
    """Raise `ResourceError` if `subject` may exist, but can't be inspected for lack of descriptors or memory."""
    if error.errno in _SHORTAGES:
        raise translate_os_error(error, f"{subject} can't be inspected: {error.strerror}") from error


def _read_program_name(pid: int) -> str:
    """The name of a process's program; empty if unknown."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified across machines, containers and reused IDs."""

    pid: int
    start_ticks: int
    host: str

    @classmethod
    def from_pid(cls, pid: int) -> Self:
        """The process that has this ID now."""
        return cls(pid, start_ticks(pid), host_id())

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls.from_pid(os.getpid())

    @property
    def is_local(self) -> bool:
        """Whether it is (or was) visible to this process."""
        return self.host == host_id()

    def is_alive(self) -> bool:
        """Whether it is visible and still runs. Raises as `start_ticks`."""
        return self.is_local and self.start_ticks >= 0 and start_ticks(self.pid) == self.start_ticks

    def check_alive(self, purpose: str) -> None:
        """Raise `ConnectionLostError` unless it is visible and still runs."""
        if not self.is_local:
            raise ConnectionLostError(
                f"{purpose}: process {self.pid} ran on another machine or in another container, or before a restart"
            )
        if not self.is_alive():
            raise ConnectionLostError(f"{purpose}: process {self.pid} has ended")


@cache  # the kernel takes a millisecond for /proc/PID/stat of a JVM with many threads
def find_java_ancestor() -> ProcessIdentity | None:
    """The nearest Java ancestor of this process when it was first asked: Spark's driver or executor."""
    pid = os.getpid()
    while pid > 1:
        pid = parent_pid(pid)
        if _read_program_name(pid) == "java":
            return ProcessIdentity.from_pid(pid)
    return None


os.register_at_fork(after_in_child=find_java_ancestor.cache_clear)


def find_python() -> str:
    """The path of this Python. Raises `ResourceError` if it is unknown, in a program that embeds Python."""
    if sys.executable:
        return sys.executable
    python = f"{sys.exec_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not os.access(python, os.X_OK):
        raise ResourceError(f"sys.executable is not set, and there is no {python}: set it to the path of this Python")
    return python


def wait_for_exit(pidfd: int, timeout_s: float = 0) -> bool:
    """Wait until the process of a descriptor of `os.pidfd_open` ends; return False after `timeout_s`."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def redirect_to_devnull(descriptors: Iterable[int]) -> None:
    """Replace inherited sockets in a forked child by /dev/null, so that closing them does not affect the parent."""
    numbers = [descriptor for descriptor in descriptors if descriptor >= 0]
    if not numbers:
        return
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no number is left: then it gets the one that is closed here, because a child has one thread
        os.close(numbers[0])
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in numbers:
        if descriptor != null:
            os.dup2(null, descriptor, inheritable=False)
    if null not in numbers:
        os.close(null)


def lift_inherited_limits() -> None:
    """Undo what this process has inherited from the one that started it, and other processes would suffer from: raise
    the soft limits to the hard ones, and reset the priority and the processors, where that is permitted.
    """
    for name in _SUFFICIENT_LIMITS:
        number = getattr(resource, name)
        _, hard_limit = resource.getrlimit(number)
        resource.setrlimit(number, (hard_limit, hard_limit))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))


def list_inherited_limits() -> list[str]:
    """The limits that remain, such as "RLIMIT_AS 1073741824", in the unit of `setrlimit`, and "nice 10"."""
    limits = {name: resource.getrlimit(getattr(resource, name))[0] for name in _SUFFICIENT_LIMITS}
    finite = [f"{name} {limit}" for name, limit in limits.items() if 0 <= limit < _SUFFICIENT_LIMITS[name]]
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return [*finite, f"nice {nice}"] if nice > 0 else finite
