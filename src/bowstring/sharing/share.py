"""Share a table with other processes without a server: `share` and `attach`.

The memory is one or, for large tables, several memfds, or a file. The handle contains the process and the numbers of
its descriptors, which the kernel shows to processes of the same user as /proc/PID/fd/N. Because these are reused, it
also contains the device, inode, size and time of modification. All of them are compared before and after opening, so
other bytes are never read.

A memfd has no name in a file system and is freed with its last owner: the handle of `share`, until it is closed,
dropped or its process ends, and every attached table.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, concat_tables
from bowstring.datatypes.schema import Schema
from bowstring.display.objects import source_to_html
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    WouldCopyError,
    add_location,
    format_count,
    translate_os_error,
)
from bowstring.file_formats import is_arrow, open_batches
from bowstring.io.fsspec_store import is_path
from bowstring.ipc.api import BatchesLike, as_schema_and_batches
from bowstring.memory.arena import Arena
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.region import Region
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.stored_parts import (
    FolderFinder,
    TableRegions,
    as_table_of_other_library,
    index_part,
    open_region_reader,
    store_in_regions,
)

MAX_REGIONS = 1 << 10
"""The maximum number of regions of a handle."""


@dataclass(frozen=True, slots=True)
class _RegionReference:
    """The descriptor of a region in the process that shared it, and the region's identity."""

    descriptor: int
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def from_region(cls, region: Region) -> _RegionReference:
        status = os.fstat(region.descriptor)
        return cls(region.descriptor, status.st_dev, status.st_ino, region.size_bytes, status.st_mtime_ns)

    def is_same_file(self, status: os.stat_result) -> bool:
        """Whether this is the status of the region's file. Its size is compared when it is attached."""
        identity = (self.device, self.inode, self.modified_ns)
        return stat.S_ISREG(status.st_mode) and identity == (status.st_dev, status.st_ino, status.st_mtime_ns)


class SharedTableHandle(Closable):
    """Identifies a shared table for processes of this machine and user; created by `share`. Can be pickled.

    The original owns the memory: keep it until other processes have attached, then close it (or use it in a `with`
    block). Unpickled copies own nothing.

    >>> import pickle
    >>> with bs.share(bs.table({"visits": [3, 1, 4]})) as handle:
    ...     copy = pickle.loads(pickle.dumps(handle))  # usually in another process
    ...     copy.num_rows, bs.attach(copy)["visits"].to_pylist()
    (3, [3, 1, 4])
    """

    __slots__ = (
        "__weakref__",
        "_is_closed",
        "_process",
        "_references",
        "_regions",
        "_token",
        "num_rows",
    )

    def __init__(self, regions: tuple[Region, ...], num_rows: int, token: str) -> None:
        self._regions: tuple[Region, ...] | None = regions
        self._is_closed = False
        self._process = ProcessIdentity.current()
        self._references = tuple(map(_RegionReference.from_region, regions))
        self._token = token
        self.num_rows = num_rows

    @property
    def nbytes(self) -> int:
        """The size of the shared memory in bytes."""
        return sum(reference.size_bytes for reference in self._references)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    @property
    def schema(self) -> Schema:
        """The table's schema. Attaches to read it; raises as `attach`."""
        return self._read_tables()[0].schema

    def open_regions(self) -> tuple[Region, ...]:
        """Return the shared memory: Arrow files whose batches follow one another.

        The caller has to close the regions. Raises as `attach`.
        """
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        with ExitStack() as stack:
            own_regions = self._regions
            if own_regions is None:
                self._process.check_alive(f"{self!r}")
            opened = (
                map(self._open_region, self._references)
                if own_regions is None
                else (region.duplicate() for region in own_regions)
            )
            regions = tuple(stack.enter_context(region) for region in opened)
            stack.pop_all()
            return regions

    def close(self) -> None:
        """Close the handle. After the original is closed, attaching fails; attached tables stay valid. Idempotent."""
        self._is_closed = True
        regions, self._regions = self._regions, None
        for region in regions or ():
            region.close()

    def _read_tables(self) -> list[Table]:
        """Return the table of each region; nothing is copied."""
        with ExitStack() as stack:
            try:
                regions = [stack.enter_context(region) for region in self.open_regions()]
                return [open_region_reader(region).read_all() for region in regions]
            except InvalidDataError as error:
                raise add_location(error, repr(self)) from error

    def _open_region(self, reference: _RegionReference) -> Region:
        path = f"/proc/{self._process.pid}/fd/{reference.descriptor}"
        try:
            if not reference.is_same_file(os.stat(path)):  # opening a terminal or a pipe could have effects
                raise self._open_error(None)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise self._open_error(error) from None
        name = f"share {self._token[:8]}"
        region = Region.attach(descriptor, reference.size_bytes, accept_files=True, name=name)
        # Compared again: the descriptor's number may have got another file before it was opened, and memory of an arena
        # other content, which it keeps from now on.
        with call_on_error(region.close):
            if not reference.is_same_file(os.fstat(region.descriptor)):
                raise self._open_error(None)
        return region

    def _open_error(self, error: OSError | None) -> Exception:
        if not self._process.is_alive():
            return ConnectionLostError(f"{self!r}: process {self._process.pid}, which shared it, has ended")
        if isinstance(error, PermissionError):
            return AccessDeniedError(
                f"{self!r}: no permission to inspect process {self._process.pid}: it belongs to another user or "
                "changed its credentials; bowstring.serve and connect do not need this permission",
                error,
            )
        if error is not None and not isinstance(error, FileNotFoundError):
            return translate_os_error(error, f"{self!r}: cannot be opened: {error.strerror}")
        return ClosedError(
            f"{self!r}: process {self._process.pid} has closed or dropped the handle of share(), or changed its file: "
            "keep that handle until the others have attached"
        )

    def __getstate__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise ClosedError(f"{self!r}: the handle was used after it was closed")
        # Plain tuples, of which a pickle does not name the classes: handles are arguments of commands, too.
        return (astuple(self._process), tuple(map(astuple, self._references)), self._token, self.num_rows)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._regions, self._is_closed = None, False
        process, references, self._token, self.num_rows = state
        self._process = ProcessIdentity(*process)
        self._references = tuple(_RegionReference(*reference) for reference in references)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{format_count(self.num_rows, 'row')}, {format_count(self.nbytes, 'byte')}"
        return f"<bowstring.sharing.SharedTableHandle {self._token[:8]} of process {self._process.pid}: {size}{state}>"

    _repr_html_ = source_to_html


TableSource: TypeAlias = BatchesLike | str | os.PathLike[str] | Region | SharedTableHandle
"""Batches, the path of an Arrow, Parquet, CSV or JSON file, or shared memory."""


def share(source: TableSource, *, copy: bool | None = None, arena: Arena | None = None) -> SharedTableHandle:
    """Share a table with other processes; return a handle.

    A table (of Bowstring or another library), columns by name, record batches or a reader are copied into shared
    memory. The path of an Arrow file or stream, a `Region` and a `SharedTableHandle` are shared without a copy, unless
    `copy` is True; rows of a Parquet, CSV or JSON file are copied. With `copy=False`, what would be copied raises
    `WouldCopyError`.

    With an `arena`, the copy is written to memory of earlier handles that have no readers. Without, readers and
    generators are written batch by batch, and the batches of a table of 64 MiB or more are copied by several threads,
    each into its own region, unless it has a single batch or dictionaries.

    Raises `InvalidArgumentError` for other objects, `ResourceError` if memory or descriptors are short,
    `MissingFileError` for a path without a file, and `InvalidDataError` for a file that is not Arrow data.

    >>> table = bs.table({"city": ["Berlin", None], "visits": [3, 1]})
    >>> with bs.share(table) as handle:  # pickle the handle, and attach in another process
    ...     attached = bs.attach(handle)
    >>> attached == table
    True
    """
    token = secrets.token_hex(16)
    stored = to_regions(source, f"share-{token}", copy, arena)
    with ExitStack() as stack:
        for region in stored.regions:
            stack.enter_context(region)
        if isinstance(source, SharedTableHandle):
            num_rows = source.num_rows
        else:
            num_rows = sum(stored.row_counts or (index_part(region).num_rows for region in stored.regions))
        stack.pop_all()
    return SharedTableHandle(stored.regions, num_rows, token)


def to_regions(
    source: TableSource,
    name: str,
    copy: bool | None = None,
    arena: Arena | None = None,
    find_folders: FolderFinder | None = None,
) -> TableRegions:
    """Return the regions of a source; batches are copied, as by `share`. If memory is short, the rest is copied to
    unnamed files in one of the folders that `find_folders` returns.
    """
    if isinstance(source, str | os.PathLike):
        source = source if is_path(source) and is_arrow(source) else open_batches(source)
    if not isinstance(source, str | os.PathLike | Region | SharedTableHandle):
        if copy is False:
            raise WouldCopyError(_format_copy_required_error(source))
        return store_in_regions(source, name, arena, find_folders)
    if isinstance(source, SharedTableHandle):
        regions = source.open_regions()
    else:
        regions = (source.duplicate() if isinstance(source, Region) else Region.from_file(source),)
    if not copy:
        return TableRegions(regions)
    with ExitStack() as stack:
        tables = [open_region_reader(stack.enter_context(region)).read_all() for region in regions]
        return store_in_regions(concat_tables(tables), name, arena, find_folders)


def _format_copy_required_error(source: BatchesLike) -> str:
    """Return the error message for a source that would be copied."""
    remedy = "write batches with bowstring.sharing.new_shared_table, or share the path of an Arrow file"
    source = as_table_of_other_library(source)
    schema, _ = as_schema_and_batches(source)
    kind = type(source).__name__
    if not isinstance(source, RecordBatch | Table):
        return f"copy=False, but the batches of a {kind} would be copied when they are read: {remedy}"
    if not len(schema):
        return f"copy=False, but a {kind} without columns would be copied: {remedy}"
    field = schema.fields[0]
    return (
        f"copy=False, but column {field.name!r} ({field.type}, {source.num_rows} rows) would be copied, like all of a "
        f"{kind}, because its memory was not created for sharing: {remedy}; of an attached table, share the handle"
    )


def attach(handle: SharedTableHandle) -> Table:
    """Return the table of a handle, without copying. Its arrays are read-only and stay valid after the sharing process
    has ended.

    Raises `ConnectionLostError` if that process has ended (or runs on another machine or in another container),
    `ClosedError` if either side closed the handle, `ResourceError` if the system refuses access.

    >>> with bs.share(bs.table({"visits": [3, 1, 4]})) as handle:
    ...     table = bs.attach(handle)  # nothing is copied
    >>> table["visits"].to_pylist()  # valid after the handle is closed
    [3, 1, 4]
    """
    if not isinstance(handle, SharedTableHandle):
        raise InvalidArgumentError(f"attach: expected a handle of bowstring.share, not {type(handle).__name__}")
    return concat_tables(handle._read_tables())
