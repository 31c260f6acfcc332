"""A table for another process without any server: `share` here, `attach` there.

The memory is a sealed memfd, or several where the table is large, and the handle says how to find them: the process
that shared them and the numbers of their descriptors, which the kernel shows to processes of the same user as
/proc/PID/fd/N. Process numbers and descriptors are used again, so the handle also carries what tells this memory from
any other: device, inode and size, and a random token in the memory's name. All are compared on the very descriptor that
was opened, so that no other bytes are ever read.

Nothing is left behind: the memory has no name in a file system and goes with its last holder. Holders are the handle
that `share` gave, until it is closed, dropped or its process ends, and every table that was attached.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bowstring.arrays.table import Table, concat_tables
from bowstring.datatypes.field import Schema
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidDataError,
    UsageError,
    translate_os_error,
)
from bowstring.layouts.base import short_repr
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.processes import Process
from bowstring.sharing.stored_dataset import Batches, open_region, store_in_parts

_TOKEN = re.compile("[0-9a-f]{32}")
_MOST_PLACES = 1 << 10


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a region is found in the process that shared it, and what tells it from any other."""

    descriptor: int
    device: int
    inode: int
    size_bytes: int

    @property
    def is_sound(self) -> bool:
        """Whether all of it are numbers that can be."""
        numbers = (self.descriptor, self.device, self.inode, self.size_bytes)
        return all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)

    @classmethod
    def of(cls, region: Region) -> _Place:
        status = os.fstat(region.descriptor)
        return cls(region.descriptor, status.st_dev, status.st_ino, region.size_bytes)


class Handle(Closable):
    """Leads any process of this machine and user to a table; made by `share`.

    Small when it is pickled. Where `share` made it, it holds the memory: keep it until the others have attached, then
    close it (or use it in a `with` block). Closing or dropping a copy that was unpickled elsewhere lets go of nothing.
    """

    __slots__ = (
        "__weakref__",
        "_is_closed",
        "_places",
        "_process",
        "_regions",
        "_token",
        "num_rows",
    )

    def __init__(self, regions: tuple[Region, ...], num_rows: int, token: str) -> None:
        self._regions: tuple[Region, ...] | None = regions
        self._is_closed = False
        self._process = Process.current()
        self._places = tuple(map(_Place.of, regions))
        self._token = token
        self.num_rows = num_rows

    @property
    def nbytes(self) -> int:
        """The bytes of shared memory."""
        return sum(place.size_bytes for place in self._places)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    @property
    def schema(self) -> Schema:
        """The table's schema. Attaches to read it; errors as `attach`."""
        return self._tables()[0].schema

    def regions(self) -> tuple[Region, ...]:
        """The shared memory, for whoever wants to map or pass it: Arrow files, whose batches follow one another.

        The caller owns the objects. Errors as `attach`.
        """
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        with ExitStack() as undone:
            ours = self._regions
            makers = map(self._open, self._places) if ours is None else (region.duplicate() for region in ours)
            found = tuple(undone.enter_context(region) for region in makers)
            undone.pop_all()
            return found

    def close(self) -> None:
        """Let go. Where `share` made the handle, nobody can attach any more; tables that were attached stay valid.
        Idempotent.
        """
        self._is_closed = True
        regions, self._regions = self._regions, None
        for region in regions or ():
            region.close()

    def _tables(self) -> list[Table]:
        """What lies in each region; nothing is copied."""
        with ExitStack() as held:
            try:
                regions = [held.enter_context(region) for region in self.regions()]
                return [open_region(region).read_all() for region in regions]
            except InvalidDataError as error:
                raise type(error)(f"{self!r}: {error}") from error

    def _open(self, place: _Place) -> Region:
        process = self._process
        process.check_reachable(f"{self!r}")
        path = f"/proc/{process.pid}/fd/{place.descriptor}"
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
        if (status.st_dev, status.st_ino) != (place.device, place.inode) or self._token not in name:
            os.close(descriptor)
            raise self._refusal(None)
        return Region.attach(descriptor, place.size_bytes, name=f"share {self._token[:8]}")

    def _refusal(self, error: OSError | None) -> Exception:
        if not self._process.is_alive():
            return ConnectionLostError(f"{self!r}: process {self._process.pid}, which shared it, is gone")
        if isinstance(error, PermissionError):
            return AccessDeniedError(
                f"{self!r}: the system does not let this process look into process {self._process.pid}: it is another "
                "user's, or changed its rights; bowstring.serve and connect do without",
                error,
            )
        if error is not None and not isinstance(error, FileNotFoundError):
            return translate_os_error(error, f"{self!r}: cannot be opened: {error.strerror}")
        return ClosedError(
            f"{self!r}: process {self._process.pid} has closed it, or dropped the handle that share() gave: keep that "
            "handle until the others have attached"
        )

    def __getstate__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        return (self._process, self._places, self._token, self.num_rows)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if not _is_sound(state):
            raise InvalidDataError(f"a handle was altered on its way: {short_repr(state)}")
        self._regions, self._is_closed = None, False
        self._process, self._places, self._token, self.num_rows = state

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes"
        return f"<bowstring.Handle {self._token[:8]} of process {self._process.pid}: {size}{state}>"


def _is_sound(state: Any) -> bool:
    """Whether a handle may have this state: `Handle.__getstate__`."""
    if not isinstance(state, tuple) or len(state) != 4:
        return False
    process, places, token, num_rows = state
    return (
        isinstance(process, Process)
        and (type(process.pid), type(process.start_time), type(process.host)) == (int, int, str)
        and isinstance(places, tuple)
        and 0 < len(places) <= _MOST_PLACES
        and all(isinstance(place, _Place) and place.is_sound for place in places)
        and isinstance(token, str)
        and _TOKEN.fullmatch(token) is not None
        and type(num_rows) is int
        and num_rows >= 0
    )


def share(data: Batches) -> Handle:
    """Copy a table (of Bowstring or another library), record batches or what a reader gives once into shared memory:
    a handle that can be pickled.

    What is read batch by batch is written batch by batch, so it is never there twice; the batches of a large table are
    copied by several processors, each into memory of its own. Raises `UsageError` for anything
    else, `ResourceError` where memory or descriptors are short; then nothing is left behind.
    """
    token = secrets.token_hex(16)
    regions, num_rows = store_in_parts(data, f"share-{token}")
    return Handle(regions, num_rows, token)


def attach(handle: Handle) -> Table:
    """The table behind a handle, without copying; its arrays can't be written, and stay valid whatever becomes of the
    sharer.

    Raises `ConnectionLostError` where the process that shared it is gone (or is of another machine or container),
    `ClosedError` where either side closed the handle, `ResourceError` where the system refuses.
    """
    if not isinstance(handle, Handle):
        raise UsageError(f"attach: expected the handle that bowstring.share gave, not {type(handle).__name__}")
    return concat_tables(handle._tables())
