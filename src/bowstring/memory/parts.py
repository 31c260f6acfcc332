"""Buffers on their way out («Record Batch Body»): one after the other with zeros between them, not copied."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from bowstring.errors import UsageError
from bowstring.memory.buffer import Memory

Vectors: TypeAlias = npt.NDArray[np.intp]
Numbers: TypeAlias = npt.NDArray[np.int64]
_ZEROS = Memory(bytes(64))
_PADDINGS = [bytes(length_bytes) for length_bytes in range(64)]


class Parts(Sequence[Any]):
    """Stretches of one memory, each followed by less than 64 zero bytes; empty ones are left out.

    As a sequence, objects with the buffer protocol, made when they are first asked for. `vectors` says the same in
    addresses, for which no Python object a stretch is needed. Offsets, sizes and paddings are in bytes, shape (n,).
    Raises `UsageError` where a stretch is not within the memory.
    """

    __slots__ = ("_listed", "_memory", "_offsets", "_paddings", "_sizes")

    def __init__(self, memory: Memory, offsets: Numbers, sizes: Numbers, paddings: Numbers) -> None:
        if ((offsets < 0) | (sizes < 0) | (offsets > memory.size - sizes)).any():
            raise UsageError("a stretch is not within its memory")
        self._memory = memory
        self._offsets = offsets
        self._sizes = sizes
        self._paddings = paddings
        self._listed: list[Any] | None = None

    def _list(self) -> list[Any]:
        if self._listed is None:
            view = self._memory.bytes.data
            listed: list[Any] = []
            spans = zip(self._offsets.tolist(), self._sizes.tolist(), self._paddings.tolist(), strict=True)
            for offset, size, padding in spans:
                if size:
                    listed.append(view[offset : offset + size])
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

        Valid as long as this object is.
        """
        out = np.empty((len(self._sizes), 2, 2), np.intp)
        out[:, 0, 0] = self._memory.address + self._offsets
        out[:, 0, 1] = self._sizes
        out[:, 1, 0] = _ZEROS.address
        out[:, 1, 1] = np.where(self._sizes > 0, self._paddings, 0)
        pieces = out.reshape(-1, 2)
        return pieces[pieces[:, 1] > 0]


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
