"""A table for another process without any server: `share` here, `attach` there.

The memory is a sealed memfd, and the handle says how to find it: the process that shared it and the number of its
descriptor, which the kernel shows to processes of the same user as /proc/PID/fd/N. Process numbers and descriptors are
used again, so the handle also carries what tells this memory from any other: device, inode and size, and a random
token in the memory's name. All are compared on the very descriptor that was opened, so that no other bytes are ever
read.

Nothing is left behind: the memory has no name in a file system and goes with its last holder. Holders are the handle
that `share` gave, until it is closed, dropped or its process ends, and every table that was attached.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from bowstring.datatypes.field import Schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidDataError,
    ResourceError,
    UsageError,
)
from bowstring.memory.closing import Closing
from bowstring.memory.region import Region
from bowstring.serving.processes import Process
from bowstring.serving.storing import Batches, open_region, store
from bowstring.tabular.table import Table


class Handle(Closing):
    """Leads any process of this machine and user to a table; made by `share`.

    Small when it is pickled. Where `share` made it, it holds the memory: keep it until the others have attached, then
    close it (or use it in a `with` block). Closing or dropping a copy that was unpickled elsewhere lets go of nothing.
    """

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_identity",
        "_is_closed",
        "_process",
        "_region",
        "_token",
        "nbytes",
        "num_rows",
    )

    def __init__(self, region: Region, num_rows: int, token: str) -> None:
        status = os.fstat(region.descriptor)
        self._region: Region | None = region
        self._is_closed = False
        self._process = Process.current()
        self._descriptor = region.descriptor
        self._identity = (status.st_dev, status.st_ino)
        self._token = token
        self.num_rows = num_rows
        self.nbytes = region.size_bytes

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    @property
    def schema(self) -> Schema:
        """The table's schema. Attaches to read it; errors as `attach`."""
        return open_region(self.region()).schema

    def region(self) -> Region:
        """The shared memory, for whoever wants to map or pass it; the caller owns the object. Errors as `attach`."""
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        return self._region.duplicate() if self._region is not None else self._open()

    def close(self) -> None:
        """Let go. Where `share` made the handle, nobody can attach any more; tables that were attached stay valid.
        Idempotent.
        """
        self._is_closed = True
        region, self._region = self._region, None
        if region is not None:
            region.close()

    def _open(self) -> Region:
        process = self._process
        process.check_reachable(f"{self!r}")
        path = f"/proc/{process.pid}/fd/{self._descriptor}"
        try:
            if self._token not in os.readlink(path):  # opening something else, a terminal or a pipe, could have effects
                raise self._refusal(None)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise self._refusal(error) from None
        status = os.fstat(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if (status.st_dev, status.st_ino) != self._identity or self._token not in name:
            os.close(descriptor)
            raise self._refusal(None)
        return Region.attach(descriptor, self.nbytes, name=f"share {self._token[:8]}")

    def _refusal(self, error: OSError | None) -> Exception:
        if not self._process.is_alive():
            return ConnectionLostError(f"{self!r}: process {self._process.pid}, which shared it, is gone")
        if isinstance(error, PermissionError):
            return ResourceError(
                error.errno,
                f"{self!r}: the system does not let this process look into process {self._process.pid}: it is another "
                "user's, or changed its rights; bowstring.serve and connect do without",
            )
        if error is not None and not isinstance(error, FileNotFoundError):
            return ResourceError(error.errno, f"{self!r}: cannot be opened: {error.strerror}")
        return ClosedError(
            f"{self!r}: process {self._process.pid} has closed it, or dropped the handle that share() gave: keep that "
            "handle until the others have attached"
        )

    def __getstate__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        return (self._process, self._descriptor, self._identity, self._token, self.num_rows, self.nbytes)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._region, self._is_closed = None, False
        self._process, self._descriptor, self._identity, self._token, self.num_rows, self.nbytes = state

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes"
        return f"<bowstring.Handle {self._token[:8]} of process {self._process.pid}: {size}{state}>"


def share(data: Batches) -> Handle:
    """Copy a table (of Bowstring or another library), record batches or what a reader gives once into shared memory:
    a handle that can be pickled.

    What is read batch by batch is written batch by batch, so it is never there twice. Raises `UsageError` for anything
    else, `ResourceError` where memory or descriptors are short; then nothing is left behind.
    """
    token = secrets.token_hex(16)
    region, num_rows = store(data, f"share-{token}")
    return Handle(region, num_rows, token)


def attach(handle: Handle) -> Table:
    """The table behind a handle, without copying; its arrays can't be written, and stay valid whatever becomes of the
    sharer.

    Raises `ConnectionLostError` where the process that shared it is gone (or is of another machine or container),
    `ClosedError` where either side closed the handle, `ResourceError` where the system refuses.
    """
    if not isinstance(handle, Handle):
        raise UsageError(f"attach: expected the handle that bowstring.share gave, not {type(handle).__name__}")
    with handle.region() as region:
        try:
            return open_region(region).read_all()
        except InvalidDataError as error:
            raise type(error)(f"{handle!r}: {error}") from error
