"""Vectored writes of buffers with padding between them («Record Batch Body»), without copying."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from bowstring.errors import UsageError
from bowstring.memory.buffer import Buffer, Memory

Vectors: TypeAlias = npt.NDArray[np.intp]
Numbers: TypeAlias = npt.NDArray[np.int64]
_ZEROS = Memory(bytes(64))
_PADDINGS = [bytes(length_bytes) for length_bytes in range(64)]


class Parts(Sequence[Any]):
    """Ranges of memory, each followed by less than 64 zero bytes of padding; empty ranges are left out.

    A sequence of objects with the buffer protocol, created on first access. `vectors` returns the same as addresses,
    without creating a Python object per range. Created by `of_memory` or `of_buffers`.
    """

    __slots__ = ("_addresses", "_listed", "_paddings", "_ranges", "_sizes")

    def __init__(
        self, ranges: Callable[[], Iterable[Any]], addresses: Numbers, sizes: Numbers, paddings: Numbers
    ) -> None:
        self._ranges = ranges
        self._addresses = addresses
        self._sizes = sizes
        self._paddings = paddings
        self._listed: list[Any] | None = None

    @classmethod
    def of_memory(cls, memory: Memory, offsets: Numbers, sizes: Numbers, paddings: Numbers) -> Parts:
        """Ranges of one memory. Offsets, sizes and paddings are in bytes, shape (n,).

        Raises `UsageError` if a range is not within the memory.
        """
        if ((offsets < 0) | (sizes < 0) | (offsets > memory.size - sizes)).any():
            raise UsageError("a range is not within its memory")

        def ranges() -> Iterator[Any]:
            whole = memory.bytes.data
            return (
                whole[offset : offset + size] for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
            )

        return cls(ranges, memory.address + offsets, sizes, paddings)

    @classmethod
    def of_buffers(cls, buffers: Sequence[Buffer | None], sizes: Numbers, paddings: Numbers) -> Parts:
        """Whole buffers. Sizes and paddings are in bytes, shape (n,); a size of 0 leaves a buffer out."""
        addresses = np.fromiter([0 if b is None else b.address for b in buffers], np.int64, len(buffers))
        return cls(lambda: (b"" if b is None else b.bytes for b in buffers), addresses, sizes, paddings)

    def _list(self) -> list[Any]:
        if self._listed is None:
            listed: list[Any] = []
            spans = zip(self._ranges(), self._sizes.tolist(), self._paddings.tolist(), strict=True)
            for view, size, padding in spans:
                if size:
                    listed.append(view)
                    if padding:
                        listed.append(_PADDINGS[padding])
            self._listed = listed
        return self._listed

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._list()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())

    def vectors(self) -> Vectors:
        """Return address and length in bytes of each range, shape (n, 2): an array of C's `struct iovec`.

        Adjacent ranges are merged. Valid as long as this object exists.
        """
        out = np.empty((len(self._sizes), 2, 2), np.intp)
        out[:, 0, 0] = self._addresses
        out[:, 0, 1] = self._sizes
        out[:, 1, 0] = _ZEROS.address
        out[:, 1, 1] = np.where(self._sizes > 0, self._paddings, 0)
        vectors = out.reshape(-1, 2)
        vectors = vectors[vectors[:, 1] > 0]
        is_first = np.ones(len(vectors), bool)
        is_first[1:] = vectors[1:, 0] != vectors[:-1, 0] + vectors[:-1, 1]
        firsts = np.flatnonzero(is_first)
        if len(firsts) == len(vectors):
            return vectors
        return np.stack((vectors[firsts, 0], np.add.reduceat(vectors[:, 1], firsts)), 1)


def remaining_vectors(vectors: Vectors, sent_bytes: int) -> Vectors:
    """Return the vectors that remain after `sent_bytes` bytes; modifies the first remaining one in place."""
    ends = np.cumsum(vectors[:, 1])
    num_sent = int(np.searchsorted(ends, sent_bytes, "right"))
    if num_sent < len(vectors):
        partial_bytes = sent_bytes - (int(ends[num_sent - 1]) if num_sent else 0)
        vectors[num_sent] += (partial_bytes, -partial_bytes)
    return vectors[num_sent:]


_writev = ctypes.CDLL(None, use_errno=True).writev
_writev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_writev.restype = ctypes.c_ssize_t


def write_vectors(descriptor: int, vectors: Vectors) -> int:
    """Like `os.writev`, for addresses and lengths; returns the number of bytes written. Raises `OSError`."""
    while True:
        sent: int = _writev(descriptor, vectors.ctypes.data, len(vectors))
        if sent >= 0:
            return sent
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
