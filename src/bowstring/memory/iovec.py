"""Buffers on their way out («Record Batch Body»): one after the other with zeros between them, not copied."""

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
    """Stretches of memory, each followed by less than 64 zero bytes; empty ones are left out.

    As a sequence, objects with the buffer protocol, made when they are first asked for. `vectors` says the same in
    addresses, for which no Python object a stretch is needed. Made by `of_memory` or `of_buffers`.
    """

    __slots__ = ("_addresses", "_listed", "_paddings", "_sizes", "_stretches")

    def __init__(
        self, stretches: Callable[[], Iterable[Any]], addresses: Numbers, sizes: Numbers, paddings: Numbers
    ) -> None:
        self._stretches = stretches
        self._addresses = addresses
        self._sizes = sizes
        self._paddings = paddings
        self._listed: list[Any] | None = None

    @classmethod
    def of_memory(cls, memory: Memory, offsets: Numbers, sizes: Numbers, paddings: Numbers) -> Parts:
        """Stretches of one memory. Offsets, sizes and paddings are in bytes, shape (n,).

        Raises `UsageError` where a stretch is not within the memory.
        """
        if ((offsets < 0) | (sizes < 0) | (offsets > memory.size - sizes)).any():
            raise UsageError("a stretch is not within its memory")

        def stretches() -> Iterator[Any]:
            view = memory.bytes.data
            return (view[at : at + size] for at, size in zip(offsets.tolist(), sizes.tolist(), strict=True))

        return cls(stretches, memory.address + offsets, sizes, paddings)

    @classmethod
    def of_buffers(cls, buffers: Sequence[Buffer | None], sizes: Numbers, paddings: Numbers) -> Parts:
        """Whole buffers: their sizes and paddings in bytes, shape (n,), and a size of 0 for one to be left out."""
        addresses = np.fromiter([0 if b is None else b.address for b in buffers], np.int64, len(buffers))
        return cls(lambda: (b"" if b is None else b.bytes for b in buffers), addresses, sizes, paddings)

    def _list(self) -> list[Any]:
        if self._listed is None:
            listed: list[Any] = []
            spans = zip(self._stretches(), self._sizes.tolist(), self._paddings.tolist(), strict=True)
            for stretch, size, padding in spans:
                if size:
                    listed.append(stretch)
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
        """Address and length in bytes of each piece, shape (n, 2): an array of the system's `struct iovec`.

        Pieces that lie end to end are one. Valid as long as this object is.
        """
        out = np.empty((len(self._sizes), 2, 2), np.intp)
        out[:, 0, 0] = self._addresses
        out[:, 0, 1] = self._sizes
        out[:, 1, 0] = _ZEROS.address
        out[:, 1, 1] = np.where(self._sizes > 0, self._paddings, 0)
        pieces = out.reshape(-1, 2)
        pieces = pieces[pieces[:, 1] > 0]
        is_first = np.ones(len(pieces), bool)
        is_first[1:] = pieces[1:, 0] != pieces[:-1, 0] + pieces[:-1, 1]
        firsts = np.flatnonzero(is_first)
        if len(firsts) == len(pieces):
            return pieces
        return np.stack((pieces[firsts, 0], np.add.reduceat(pieces[:, 1], firsts)), 1)


def after(vectors: Vectors, sent_bytes: int) -> Vectors:
    """What is left of vectors when their first bytes are written; changes the first one that is left."""
    ends = np.cumsum(vectors[:, 1])
    whole = int(np.searchsorted(ends, sent_bytes, "right"))
    if whole < len(vectors):
        done = sent_bytes - (int(ends[whole - 1]) if whole else 0)
        vectors[whole] += (done, -done)
    return vectors[whole:]


_writev = ctypes.CDLL(None, use_errno=True).writev
_writev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_writev.restype = ctypes.c_ssize_t


def write_vectors(descriptor: int, vectors: Vectors) -> int:
    """`os.writev` for memory that is given by its addresses: the number of bytes written. Raises `OSError`."""
    while True:
        sent: int = _writev(descriptor, vectors.ctypes.data, len(vectors))
        if sent >= 0:
            return sent
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
