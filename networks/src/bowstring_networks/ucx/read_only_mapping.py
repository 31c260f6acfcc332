"""A second, read-only mapping of memory that another library has mapped."""

from __future__ import annotations

import ctypes
import mmap
import weakref

from bowstring.errors import LimitError

# Of Linux (mman.h): the copy gets an address of its own.
_MREMAP_MAYMOVE = 1

_libc = ctypes.CDLL(None, use_errno=True)
_mremap = getattr(_libc, "mremap", None)
if _mremap is not None:
    _mremap.restype, _mremap.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int],
    )
_munmap = _libc.munmap
_munmap.restype, _munmap.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t]
_mprotect = _libc.mprotect
_mprotect.restype, _mprotect.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_MAP_FAILED = ctypes.c_void_p(-1).value


def remap_read_only(address: int, size_bytes: int) -> memoryview | None:
    """Map a range of shared memory a second time, read-only, until no view of it is left.

    Returns None if the kernel can't, and raises `LimitError` if the range is not inside one mapping of shared memory.
    """
    if size_bytes == 0:
        return memoryview(b"")
    if _mremap is None:
        return None
    # The peer chose the range. Of a private mapping, old kernels would map other pages instead of failing.
    _check_is_shared_mapping(address, size_bytes)
    offset = address % mmap.PAGESIZE
    mapped_bytes = -(-(offset + size_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    # With an old size of 0, mremap maps the same pages once more (mremap(2)).
    start = _mremap(address - offset, 0, mapped_bytes, _MREMAP_MAYMOVE)
    if start is None or start == _MAP_FAILED:
        return None
    if _mprotect(start, mapped_bytes, mmap.PROT_READ):
        _munmap(start, mapped_bytes)
        return None
    array = (ctypes.c_uint8 * size_bytes).from_address(start + offset)
    weakref.finalize(array, _munmap, start, mapped_bytes).atexit = False
    return memoryview(array).cast("B").toreadonly()


def _check_is_shared_mapping(address: int, size_bytes: int) -> None:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, permissions, _ = line.split(" ", 2)
            start, end = (int(number, 16) for number in span.split("-"))
            if start <= address < end:
                if address + size_bytes <= end and permissions[3] == "s":
                    return
                break
    raise LimitError(f"UCX: {size_bytes} bytes of the peer's memory are not inside one shared mapping")
