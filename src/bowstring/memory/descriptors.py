"""System calls for shared memory: memfds, seals, mappings, and their errors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from bowstring.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidDataError,
    ResourceError,
    TruncatedError,
    limit_hint,
    translate_os_error,
)
from bowstring.memory.closable import call_on_error

# Of linux/fcntl.h and linux/memfd.h, which Python 3.11 lacks.
_SEAL_FUTURE_WRITE, _MFD_NOEXEC_SEAL = 16, 8
# Growing is harmless to readers, which map a fixed size: `F_SEAL_GROW` is set, but not required of others.
_NEEDED_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE
_FIXED_SIZE_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_ALL_SEALS = _FIXED_SIZE_SEALS | fcntl.F_SEAL_WRITE
# `F_SEAL_FUTURE_WRITE` keeps the arena's own mapping writable and rejects later ones, by any descriptor.
_ARENA_SEALS = _FIXED_SIZE_SEALS | _SEAL_FUTURE_WRITE

# ENOSYS and EPERM are what seccomp filters return for a system call that a container may not make.
_SHORTAGES = {
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EMFILE,
    errno.ENFILE,
    errno.EFBIG,
    errno.EDQUOT,
    errno.ENOSYS,
    errno.EPERM,
}
_BLOCK_BYTES = 512  # the unit of `st_blocks`, whatever `st_blksize` is
_MAP_FIXED = 0x10  # of mman.h, which Python's mmap does not export; x86, Arm, POWER, RISC-V and s390 agree
_UNUSABLE: list[mmap.mmap] = []
_SEALING_WAITS_S = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Between attempts to seal. The kernel refuses as well while it uses pages itself, and while a child that another
thread is starting still has the mappings of this process."""


def new_memfd(name: str) -> int:
    """Create an empty, sealable memfd and return its descriptor. Raises `ResourceError`."""
    if not hasattr(os, "memfd_create"):
        raise ResourceError(f"region {name!r}: this platform has no memfd_create; share a file instead")
    label = f"bowstring:{name}"[:200].replace("\0", "")
    with translate_shortage_errors("create", name):
        try:
            descriptor = os.memfd_create(label, os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
        except OSError as error:  # kernels before 6.3 reject the flag
            if error.errno != errno.EINVAL:
                raise
            descriptor = os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # All may write by default: another user who receives a descriptor could set the time of modification, which
        # `bowstring.sharing.share` compares.
        with call_on_error(os.close, descriptor):
            os.fchmod(descriptor, 0o600)
        return descriptor


def seal(descriptor: int, name: str) -> tuple[int, int]:
    """Seal a memfd permanently. Returns a new read-only descriptor and the size in bytes; `descriptor` stays open.

    Raises `InvalidArgumentError` if it stays mapped for writing, and `ResourceError`; it is not sealed then.
    """
    try:
        # Before the seals are set: after a shortage of descriptors the region can still be written, and sealed later.
        reader = reopen_read_only(descriptor, name)
    except FileNotFoundError:  # no /proc: the seals alone keep writers out
        reader = os.dup(descriptor)
    with call_on_error(os.close, reader):
        for wait_s in (*_SEALING_WAITS_S, None):
            try:
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
                break
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                if wait_s is None:
                    raise InvalidArgumentError(
                        f"region {name!r} can't be sealed while it is mapped for writing"
                    ) from None
            time.sleep(wait_s)
        return reader, os.fstat(descriptor).st_size


def reopen_read_only(descriptor: int, name: str) -> int:
    """Open a memfd again for reading, with a new open file description. Raises `ResourceError`, `FileNotFoundError`."""
    with translate_shortage_errors("reopen", name):
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)


def seal_for_arena(descriptor: int) -> None:
    """Seal a memfd permanently, except that existing mappings can still write it. Raises `OSError`."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ARENA_SEALS)


def is_sealed(seals: int | None) -> bool:
    """Whether the seals of a memfd prevent writing and shrinking."""
    return (seals or 0) & _NEEDED_SEALS == _NEEDED_SEALS


def has_arena_seals(seals: int | None) -> bool:
    """Whether the seals of a memfd prevent shrinking, and writing except by an arena's mapping."""
    return (seals or 0) & (_ARENA_SEALS | fcntl.F_SEAL_WRITE) == _ARENA_SEALS


def lock_for_reading(descriptor: int, name: str) -> None:
    """Keep an arena from filling a memfd while this open file description is in use. Raises `ClosedError` if the arena
    fills it already.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClosedError(f"region {name!r}: its memory contains another region now") from None


def inspect_received_descriptor(
    descriptor: int, expected_bytes: int | None, accept_files: bool, name: str
) -> tuple[int, bool]:
    """Check a received descriptor as documented for `Region.attach`, and lock memory of an arena. Return the size in
    bytes and whether it is a sealed memfd.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidDataError(f"region {name!r}: expected a sealed memfd, received {describe_file_type(status)}")
    seals = read_seals(descriptor, status)
    # Again, because only sealed memory keeps its size and pages: the peer may have changed both before it was sealed.
    status = os.fstat(descriptor)
    is_from_arena, has_seals = has_arena_seals(seals), is_sealed(seals)
    if not has_seals and not (accept_files and (seals is None or is_from_arena)):
        kind = "an ordinary file" if seals is None else "memory that its creator can still write or shrink"
        raise InvalidDataError(
            f"region {name!r}: expected a memfd sealed against writing and shrinking, received {kind}"
        )
    size_bytes = status.st_size
    if expected_bytes is not None and size_bytes != expected_bytes:
        # A block of an arena is longer than most of its regions.
        if not is_from_arena or size_bytes < expected_bytes:
            raise TruncatedError(f"region {name!r}: expected {expected_bytes} bytes, received {size_bytes}")
        size_bytes = expected_bytes
    # Swapped pages count as allocated. Ordinary files may have holes: their pages are cache, which the kernel reclaims.
    if (has_seals or is_from_arena) and status.st_blocks * _BLOCK_BYTES < status.st_size:
        backed_bytes = status.st_blocks * _BLOCK_BYTES
        raise InvalidDataError(
            f"region {name!r} has holes: {status.st_size} bytes, of which {backed_bytes} are allocated"
        )
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        raise InvalidDataError(f"region {name!r}: expected a readable descriptor, received a write-only one")
    if is_from_arena:
        lock_for_reading(descriptor, name)
    return size_bytes, has_seals


def read_seals(descriptor: int, status: os.stat_result) -> int | None:
    """Return the seals of a memfd, or None for a descriptor that can't have any, such as an ordinary file's. `status`
    is the descriptor's `os.fstat`.

    Files in a tmpfs report one seal, that no other can be added; this is also what a memfd without sealing reports.
    """
    if status.st_nlink:
        return None
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        return None
    return None if seals == fcntl.F_SEAL_SEAL else seals


def map_read_only(descriptor: int, size_bytes: int, name: str) -> memoryview:
    """Map all bytes read-only.

    Raises `TruncatedError`, `ResourceError`, and `InvalidDataError` if the file can't be mapped.
    """
    if not size_bytes:
        return memoryview(b"")
    size_now = os.fstat(descriptor).st_size
    if size_now < size_bytes:
        raise TruncatedError(f"region {name!r}: expected {size_bytes} bytes, found {size_now}")
    try:
        with translate_shortage_errors(f"map {size_bytes} bytes of", name):
            return memoryview(map_file(descriptor, size_bytes))
    except OSError as error:
        if isinstance(error, ResourceError):
            raise
        raise InvalidDataError(f"region {name!r}: expected a file that can be mapped: {error.strerror}") from None


def map_file(descriptor: int, size_bytes: int) -> mmap.mmap:
    """Map the first `size_bytes` read-only, without keeping a descriptor; `descriptor` stays open.

    The mapping ends with its last view, like any `mmap.mmap`. The file must not be shorter. Raises `OSError`.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size_bytes, mmap.MAP_PRIVATE, mmap.PROT_READ, trackfd=False)
    # mmap.mmap duplicates a file's descriptor. So create an anonymous mapping and replace its pages with the file's.
    mapping = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    _replace_pages(mapping, descriptor, mmap.MAP_PRIVATE, mmap.PROT_READ)
    return mapping


def map_writable(descriptor: int, size_bytes: int) -> mmap.mmap:
    """Map the first bytes of a memfd for reading and writing, without keeping a descriptor. Raises `OSError`."""
    mapping = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _replace_pages(mapping, descriptor, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    return mapping


def make_copy_on_write(mapping: mmap.mmap, descriptor: int) -> None:
    """Make a mapping of `map_writable` copy pages on write: existing views keep the bytes and no longer change the
    memfd. Raises `OSError`.
    """
    _replace_pages(mapping, descriptor, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)


def _replace_pages(mapping: mmap.mmap, descriptor: int, flags: int, protection: int) -> None:
    # MAP_FIXED replaces only pages of `mapping`, in one step: between munmap and mmap, another thread could get the
    # range.
    address = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    if _load_mmap()(address, len(mapping), protection, flags | _MAP_FIXED, descriptor, 0) != address:
        number = ctypes.get_errno()
        _UNUSABLE.append(mapping)  # its addresses may be reused by other mappings: never unmap them
        raise OSError(number, os.strerror(number))


@cache
def _load_mmap() -> Any:
    """Return the C function."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    call.restype = ctypes.c_void_p
    return call


def pwrite_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all bytes at an offset of a file. Raises `OSError`."""
    while len(data):
        written_bytes = os.pwrite(descriptor, data, offset)
        data, offset = data[written_bytes:], offset + written_bytes


def is_same_file(path: str | os.PathLike[str], descriptor: int) -> bool:
    """Return whether the file of a descriptor is the one at a path."""
    try:
        current, opened = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino)


def describe_file_type(status: os.stat_result) -> str:
    """Describe the type of a file for error messages."""
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device"}
    return kinds.get(stat.S_IFMT(status.st_mode), "something that is not a regular file")


@contextmanager
def translate_shortage_errors(action: str, what: str) -> Iterator[None]:
    """Raise `ResourceError` with action and name for errors of exhausted resources."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ResourceError) or error.errno not in _SHORTAGES:
            raise
        raise translate_os_error(error, f"can't {action} {what!r}: {error.strerror}{limit_hint(error)}") from error
