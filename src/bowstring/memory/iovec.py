"""Buffers with padding between them («RecordBatch message»), written by `writev` without copying."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidArgumentError
from bowstring.memory.buffer import Buffer, Memory

IovecArray: TypeAlias = npt.NDArray[np.intp]
"""Address and length in bytes of memory ranges, shape (n, 2): C's `struct iovec`."""
Int64Array: TypeAlias = npt.NDArray[np.int64]
_Parts = TypeVar("_Parts", Sequence[Any], IovecArray)
IOV_MAX = 1024  # Linux's UIO_MAXIOV, and the limit of macOS
"""Maximum number of buffers in one vectored call."""
_ZEROS = Memory(bytes(64))
_PADDINGS = [bytes(length_bytes) for length_bytes in range(64)]


class PaddedBuffers(Sequence[Any]):
    """Buffers, each followed by less than 64 zero bytes of padding; empty buffers are left out.

    A sequence of objects with the buffer protocol, which are created on first access. `iovecs` returns their addresses
    without creating these objects. Create it with `from_memory_ranges` or `from_buffers`.
    """

    __slots__ = ("_addresses", "_list", "_paddings", "_ranges", "_sizes")

    def __init__(
        self, ranges: Callable[[], Iterable[Any]], addresses: Int64Array, sizes: Int64Array, paddings: Int64Array
    ) -> None:
        self._ranges = ranges
        self._addresses = addresses
        self._sizes = sizes
        self._paddings = paddings
        self._list: list[Any] | None = None

    @classmethod
    def from_memory_ranges(
        cls, memory: Memory, offsets: Int64Array, sizes: Int64Array, paddings: Int64Array
    ) -> PaddedBuffers:
        """Return ranges of one memory. Offsets, sizes and paddings are in bytes, shape (n,).

        Raises `InvalidArgumentError` for a range outside the memory.
        """
        if ((offsets < 0) | (sizes < 0) | (offsets > memory.size - sizes)).any():
            raise InvalidArgumentError("a range is outside its memory")

        def ranges() -> Iterator[Any]:
            whole = memory.bytes.data
            return (
                whole[offset : offset + size] for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
            )

        return cls(ranges, memory.address + offsets, sizes, paddings)

    @classmethod
    def from_buffers(cls, buffers: Sequence[Buffer | None], sizes: Int64Array, paddings: Int64Array) -> PaddedBuffers:
        """Return whole buffers. Sizes and paddings are in bytes, shape (n,); a size of 0 leaves a buffer out."""
        addresses = np.fromiter([0 if b is None else b.address for b in buffers], np.int64, len(buffers))
        return cls(lambda: (b"" if b is None else b.bytes for b in buffers), addresses, sizes, paddings)

    def _as_list(self) -> list[Any]:
        if self._list is None:
            parts: list[Any] = []
            spans = zip(self._ranges(), self._sizes.tolist(), self._paddings.tolist(), strict=True)
            for view, size, padding in spans:
                if size:
                    parts.append(view)
                    if padding:
                        parts.append(_PADDINGS[padding])
            self._list = parts
        return self._list

    def __len__(self) -> int:
        return len(self._as_list())

    def __getitem__(self, index: Any) -> Any:
        return self._as_list()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._as_list())

    def iovecs(self) -> IovecArray:
        """Return the addresses and lengths of the buffers and their padding; valid while this object exists."""
        out = np.empty((len(self._sizes), 2, 2), np.intp)
        out[:, 0, 0] = self._addresses
        out[:, 0, 1] = self._sizes
        # All paddings are the same 64 zeros.
        out[:, 1, 0] = _ZEROS.address
        out[:, 1, 1] = np.where(self._sizes > 0, self._paddings, 0)
        iovecs = out.reshape(-1, 2)
        return iovecs[iovecs[:, 1] > 0]


def write_all_parts(send: Callable[[_Parts], int], parts: _Parts, remaining: Callable[[_Parts, int], _Parts]) -> None:
    """Write parts with `send`, which may write only some of their bytes and returns the number, as `os.writev` does.

    `remaining` returns the rest of parts after a number of bytes. At most `IOV_MAX` parts are passed at a time.
    """
    for start in range(0, len(parts), IOV_MAX):
        rest = parts[start : start + IOV_MAX]
        while len(rest):
            rest = remaining(rest, send(rest))


def remaining_buffers(buffers: Sequence[Any], sent_bytes: int) -> Sequence[Any]:
    """Return the rest of buffers of bytes after the first `sent_bytes` bytes, without empty ones at its beginning."""
    for index, buffer in enumerate(buffers):
        if sent_bytes < len(buffer):
            return [memoryview(buffer)[sent_bytes:], *buffers[index + 1 :]]
        sent_bytes -= len(buffer)
    return []


def remaining_iovecs(iovecs: IovecArray, sent_bytes: int) -> IovecArray:
    """Return the ranges after the first `sent_bytes` bytes; modifies the first remaining one in place."""
    # `searchsorted` on the right skips ranges that end exactly at `sent_bytes`, and empty ones there: none is sent in
    # part.
    stops = np.cumsum(iovecs[:, 1])
    num_sent = int(np.searchsorted(stops, sent_bytes, "right"))
    if num_sent < len(iovecs):
        partial_bytes = sent_bytes - (int(stops[num_sent - 1]) if num_sent else 0)
        iovecs[num_sent] += (partial_bytes, -partial_bytes)
    return iovecs[num_sent:]


_writev = ctypes.CDLL(None, use_errno=True).writev
_writev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_writev.restype = ctypes.c_ssize_t


def write_iovecs(descriptor: int, iovecs: IovecArray) -> int:
    """Write memory ranges as `os.writev` does; return the number of bytes written. Raises `OSError`."""
    while True:
        sent: int = _writev(descriptor, iovecs.ctypes.data, len(iovecs))
        if sent >= 0:
            return sent
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
