"""Files without a name, which the kernel removes with their last descriptor or mapping, as it frees memory."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from bowstring.errors import ResourceError

_KINDS_IN_MEMORY = {"tmpfs", "ramfs"}
_NO_FOLDER = "no folder for temporary files is writable (TMPDIR, /tmp, /var/tmp, the working folder): set TMPDIR"
_COPY_BYTES = 1 << 30  # sendfile copies at most 0x7ffff000 bytes per call


def open_unnamed_file(folders: Sequence[str]) -> tuple[int, str]:
    """Create an unnamed file in the first folder that allows it. Return its descriptor and the folder.

    Raises `ResourceError`.
    """
    if not folders:
        raise ResourceError(_NO_FOLDER)
    for folder in folders:
        try:
            return _create_unnamed_file(folder), folder
        except OSError as error:  # the folder does not exist, or is read-only or full
            problem = error
    message = f"can't create a file in a folder of {list(folders)}: {problem.strerror}"
    raise ResourceError(message, problem) from problem


def _create_unnamed_file(folder: str) -> int:
    # With O_EXCL the file can never get a name, so that no other process can open it.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_EXCL
    try:
        descriptor = os.open(folder, flags | os.O_TMPFILE, 0o600)
    except (OSError, AttributeError):  # file systems without O_TMPFILE have several error numbers for that
        # A process that is killed between these two lines leaves an empty file: no data is written to a file with a
        # name.
        descriptor, path = tempfile.mkstemp(prefix=".bowstring-", dir=folder)
        os.unlink(path)
    # NFS renames an open file instead of removing it, and may give it to another user.
    if not is_unnamed_file(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return descriptor


def copy_file(source: int, target: int) -> None:
    """Write all bytes of a file, without a copy in this process's memory. Raises `OSError`."""
    offset, size_bytes = 0, os.fstat(source).st_size
    while offset < size_bytes:
        offset += os.sendfile(target, source, offset, min(size_bytes - offset, _COPY_BYTES))


def is_unnamed_file(status: os.stat_result) -> bool:
    """Whether it is a regular file of this user without a name, which only processes with its descriptor can change."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_uid == os.geteuid()


def find_folders(preferred: Iterable[str] = ()) -> list[str]:
    """Writable folders for unnamed files, those with the most space first: the preferred ones if any is on a disk, or
    else the temporary ones.

    If all are in memory (tmpfs), all of them. Empty if none is writable.
    """
    temporary_folders = ["/var/tmp"]
    with suppress(ResourceError):
        temporary_folders.append(temporary_folder())
    devices = _find_memory_file_systems()
    others = []
    for group in (preferred, temporary_folders):
        folders = [folder for folder in group if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)]
        on_disk = [folder for folder in folders if os.stat(folder).st_dev not in devices]
        if on_disk:
            return sorted(on_disk, key=free_bytes, reverse=True)
        others += folders
    return sorted(others, key=free_bytes, reverse=True)


def temporary_folder() -> str:
    """The folder for temporary files. Raises `ResourceError` if none is writable, or all are full."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise ResourceError(_NO_FOLDER, error) from None


def is_in_memory(folder: str) -> bool:
    """Whether the file system of a folder is in memory (tmpfs)."""
    try:
        return os.stat(folder).st_dev in _find_memory_file_systems()
    except OSError:
        return False


def free_bytes(folder: str) -> int:
    """The space of the file system that this user may fill; 0 if unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def check_free_space(folder: str, size_bytes: int, name: str) -> None:
    """Raise `ResourceError` if a folder's file system has less space."""
    if size_bytes > free_bytes(folder):
        cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        message = f"{name}: {size_bytes} bytes more are needed in {folder}, which has {free_bytes(folder)} bytes free"
        raise ResourceError(message, cause)


def _find_memory_file_systems() -> set[int]:
    """The devices of mounted file systems in memory."""
    devices = set()
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mount, _, file_system = line.partition(" - ")
            if file_system.split()[0] in _KINDS_IN_MEMORY:
                major, minor = mount.split()[2].split(":")
                devices.add(os.makedev(int(major), int(minor)))
    except (OSError, ValueError, LookupError):
        pass
    return devices
