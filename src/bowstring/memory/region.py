"""Regions: memory that several processes share («Shared memory» in the goals of the Dissociated IPC protocol).

A `Region` is a range of bytes behind a descriptor, either

* a **sealed memfd**: anonymous memory that no process can write, grow or shrink any more. It has no name in the file
  system; the kernel frees it when its last holder closes it or dies;
* **memory of an arena** (`bowstring.memory.arena`): a memfd that its creator can fill again after the last reader has
  ended; or
* an **unnamed file** on a disk, in which a `RegionWriter` continues when memory is short. The kernel removes it as it
  frees memory. Files have no seals: receivers trust the processes that had a descriptor to write it, which are of the
  same user, not to change it, and close theirs;
* an **ordinary file**, such as an uncompressed Arrow file. Nothing is copied, but the file's owner can still change or
  truncate it, and reading a mapped page beyond the end of a file raises SIGBUS, which no system call can prevent.
  Receivers therefore accept files, and arenas, only with `accept_files`, compare the size with the announced one, and
  `Region.check_backing_file` compares it again, with one fstat, before each use. Replacing a file by renaming, as this
  library does, is safe: mappings keep the old content.

A received memfd is rejected unless it is sealed against writing and shrinking, with all pages allocated: reading a
hole allocates memory, and a shortage at that moment is also a SIGBUS.

Without memfd_create, which a container may lack, creating a region raises `ResourceError`; mapping files works.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from bowstring.errors import (
    AccessDeniedError,
    ClosedError,
    InvalidArgumentError,
    InvalidDataError,
    IsDirectoryError,
    LimitError,
    MissingFileError,
    ResourceError,
    TruncatedError,
    format_count,
    translate_os_error,
)
from bowstring.memory.available_memory import check_available_memory
from bowstring.memory.buffer import allocate
from bowstring.memory.closable import Closable, call_on_error, warn_unclosed
from bowstring.memory.descriptors import (
    describe_file_type,
    inspect_received_descriptor,
    is_sealed,
    lock_for_reading,
    make_copy_on_write,
    map_read_only,
    map_writable,
    new_memfd,
    read_seals,
    reopen_read_only,
    seal,
    translate_shortage_errors,
)
from bowstring.memory.iovec import remaining_buffers, write_all_parts
from bowstring.memory.parallel_copy import copy_bytes, read_file_into
from bowstring.memory.unnamed_file import copy_file, is_unnamed_file, open_unnamed_file

BytesLike: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class _FileIdentity:
    """The path of a file, and the numbers that distinguish it from later files at that path."""

    path: str
    device: int
    inode: int

    def read_status(self) -> os.stat_result:
        """Return the status of the file that is at the path now."""
        try:
            return os.stat(self.path)
        except OSError as error:
            raise translate_os_error(error, f"{self.path}: cannot be opened again: {error.strerror}") from None

    def reopen(self) -> int:
        """Open the same file again. Raises `InvalidDataError` for another file, or `OSError`."""
        self.check_identity(self.read_status())  # before it is opened: opening a pipe or a device could have effects
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with call_on_error(os.close, descriptor):
            self.check_identity(os.fstat(descriptor))
        return descriptor

    def check_identity(self, status: os.stat_result) -> os.stat_result:
        """Raise `InvalidDataError` for the status of another file."""
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            raise InvalidDataError(f"{self.path}: the file was replaced by another one")
        return status


class Region(Closable):
    """Read-only bytes behind a descriptor, mapped on first use.

    Created by `RegionWriter.seal`, `Region.from_file` or `Region.attach`. `view` returns memoryviews without copying;
    they keep the mapping alive after `close`. The region owns its descriptor.

    >>> with bs.memory.Region.copy_of([b"shared ", b"bytes"]) as region:
    ...     region.size_bytes, bytes(region.view(0, 6))
    (12, b'shared')
    """

    __slots__ = ("__weakref__", "_descriptor", "_file", "_memory", "is_sealed", "name", "size_bytes")

    is_on_device: ClassVar[bool] = False
    """Whether it is memory of a device, without a descriptor (`bowstring.memory.device`)."""

    def __init__(self, descriptor: int, size_bytes: int, name: str, *, is_sealed: bool) -> None:
        self._descriptor = descriptor
        self._memory: memoryview | None = None
        self._file: _FileIdentity | None = None
        self.size_bytes = size_bytes
        self.name = name
        self.is_sealed = is_sealed

    @staticmethod
    def create_builder(size_bytes: int, name: str = "region") -> RegionBuilder:
        """Allocate `size_bytes` bytes of memory, to be written in place and then sealed.

        Raises `ResourceError` if memory or descriptors are exhausted.
        """
        return RegionBuilder(size_bytes, name)

    @staticmethod
    def create_writer(name: str = "region") -> RegionWriter:
        """Return a file object in memory that can be sealed; the fastest way to copy data into a region."""
        return RegionWriter(name)

    @classmethod
    def copy_of(cls, parts: Iterable[BytesLike], name: str = "region") -> Region:
        """Return a sealed region with the concatenated bytes of `parts`."""
        with cls.create_writer(name) as writer:
            writer.writelines(parts)
            return writer.seal()

    @classmethod
    def from_file(cls, source: str | os.PathLike[str] | int) -> Region:
        """Return a read-only region of an ordinary file, given its path or a descriptor, which is duplicated.

        Raises `NotFoundError` if the file does not exist, `InvalidArgumentError` if it is not a regular file, and
        `ResourceError` if it can't be opened.
        """
        try:
            if isinstance(source, int):
                descriptor = os.dup(source)
            else:
                # Without O_NONBLOCK, opening a named pipe waits for a writer.
                descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise MissingFileError(f"{source}: there is no such file", error) from None
        except OSError as error:
            raise translate_os_error(error, f"{source}: cannot be opened: {error.strerror}") from error
        except ValueError as error:
            raise InvalidArgumentError(f"{source!r} is not a valid path: {error}") from None
        with call_on_error(os.close, descriptor):
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsDirectoryError(f"{source}: is a directory", filename=source)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidArgumentError(f"{source}: expected a regular file, found {describe_file_type(status)}")
            region = cls(descriptor, status.st_size, str(source), is_sealed=is_sealed(read_seals(descriptor, status)))
        if not isinstance(source, int):
            region._file = _FileIdentity(os.path.abspath(os.fsdecode(source)), status.st_dev, status.st_ino)
        return region

    @classmethod
    def attach(
        cls, descriptor: int, size_bytes: int | None = None, *, accept_files: bool = False, name: str = "received"
    ) -> Region:
        """Return a region of a descriptor from another process. It owns the descriptor, which is closed on any error.

        `size_bytes` is the announced size. Raises `InvalidDataError` if the descriptor is not a sealed memfd (or, with
        `accept_files`, a regular file or memory of an arena, which is locked), and `TruncatedError` if its size
        differs.
        """
        with call_on_error(os.close, descriptor):
            checked_bytes, has_seals = inspect_received_descriptor(descriptor, size_bytes, accept_files, name)
            return cls(descriptor, checked_bytes, name, is_sealed=has_seals)

    @property
    def descriptor(self) -> int:
        """The descriptor. Raises `ClosedError` if it was closed."""
        if self._descriptor < 0:
            raise ClosedError(f"region {self.name!r}: its descriptor is closed")
        return self._descriptor

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.descriptor

    @property
    def memory(self) -> memoryview:
        """All bytes, read-only, not copied. Raises `ClosedError`, `ResourceError` if memory is exhausted, and
        `InvalidDataError` for a file that can't be mapped, such as those in /sys.
        """
        if self._memory is None:
            # Without a lock: if two threads map it, the first mapping ends with its views.
            self._memory = map_read_only(self.descriptor, self.size_bytes, self.name)
        return self._memory

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview:
        """Return bytes of the region, read-only and not copied. Raises `LimitError` if they are outside the region."""
        self._check_range(offset_bytes, length_bytes)
        return self.memory[offset_bytes : offset_bytes + length_bytes]

    def copy_into(self, offset_bytes: int, destination: memoryview) -> None:
        """Copy bytes of the region into `destination`, writable memory.

        Bytes of a sealed region are copied from its mapping, others read from its descriptor, if it is open: a file
        that becomes shorter meanwhile raises `TruncatedError` and no SIGBUS. Raises `LimitError` as `view`, and
        `ResourceError` or `InvalidDataError` if the file can't be read.
        """
        if self.is_sealed or self._is_mapped_unnamed_file:
            copy_bytes(self.view(offset_bytes, destination.nbytes), destination)
            return
        self._check_range(offset_bytes, destination.nbytes)
        try:
            num_read = read_file_into(self.descriptor, offset_bytes, destination)
        except OSError as error:
            raise translate_os_error(error, f"region {self.name!r}: cannot be read: {error.strerror}") from error
        if num_read < destination.nbytes:
            raise TruncatedError(
                f"region {self.name!r}: expected {destination.nbytes} bytes at byte {offset_bytes}, found {num_read}"
            )

    def check_backing_file(self) -> None:
        """Raise `TruncatedError` if an ordinary file became shorter; a sealed region can't.

        After `release_descriptor`, raise `InvalidDataError` if another file is at the path now, and `MissingFileError`
        if none is; an unnamed file is not checked then.
        """
        if not self.is_sealed and not self._is_mapped_unnamed_file:
            if self._descriptor < 0 and self._file is not None:
                size_now = self._file.check_identity(self._file.read_status()).st_size
            else:
                size_now = os.fstat(self.descriptor).st_size
            if size_now < self.size_bytes:
                raise TruncatedError(
                    f"region {self.name!r}: expected {self.size_bytes} bytes, its file now has {size_now}"
                )

    def duplicate(self) -> Region:
        """Return another region of the same memory, with its own descriptor.

        A file whose descriptor was released is opened again. Raises `InvalidDataError` if another file is at the path
        now, `MissingFileError` if none is, and `ResourceError`.
        """
        with translate_shortage_errors("duplicate the descriptor of", self.name):
            if self._descriptor < 0 and self._file is not None:
                descriptor = self._file.reopen()
            else:
                descriptor = os.dup(self.descriptor)
        return Region(descriptor, self.size_bytes, self.name, is_sealed=self.is_sealed)

    def reopen(self) -> Region:
        """Return another region of the same file, or memory of an arena, with an open file description of its own.

        A process that receives its descriptor can't unlock the memory for others, change their flags, or write, even if
        this region's descriptor can. Raises as `duplicate`, and `AccessDeniedError`; without /proc, `ResourceError`.
        """
        if self.is_descriptor_released:
            return self.duplicate()
        try:
            descriptor = reopen_read_only(self.descriptor, self.name)
        except OSError as error:
            if isinstance(error, ResourceError):
                raise
            kind = AccessDeniedError if isinstance(error, PermissionError) else ResourceError
            raise kind(f"region {self.name!r}: can't be opened again: {error.strerror}", error) from error
        with call_on_error(os.close, descriptor):
            if not self.is_file:
                lock_for_reading(descriptor, self.name)
            return Region(descriptor, self.size_bytes, self.name, is_sealed=self.is_sealed)

    def release_descriptor(self) -> None:
        """Map the region and close the descriptor, if the region will not be passed on.

        A file that was opened by its path is opened again when needed; a file that was opened by its descriptor keeps
        it for `check_backing_file`, unless it is an unnamed file, which must not change.
        """
        _ = self.memory
        if self.is_sealed or self._file is not None or self.is_unnamed_file:
            self._close_descriptor()

    @property
    def has_descriptor(self) -> bool:
        """Whether the descriptor is open."""
        return self._descriptor >= 0

    @property
    def is_file(self) -> bool:
        """Whether it is an ordinary file. Its descriptor must be open."""
        return not self.is_sealed and read_seals(self.descriptor, os.fstat(self.descriptor)) is None

    @property
    def is_unnamed_file(self) -> bool:
        """Whether it is an unnamed file of this user. Its descriptor must be open."""
        return self.is_file and is_unnamed_file(os.fstat(self.descriptor))

    @property
    def _is_mapped_unnamed_file(self) -> bool:
        """Whether it is an unnamed file whose descriptor was released: other files keep it, or have a path."""
        return self._descriptor < 0 and self._memory is not None and self._file is None and not self.is_sealed

    @property
    def is_descriptor_released(self) -> bool:
        """Whether the descriptor was released, and `duplicate` opens the file again."""
        return self._descriptor < 0 and self._file is not None

    @property
    def is_closed(self) -> bool:
        """Whether the descriptor and the mapping were released."""
        return self._descriptor < 0 and self._memory is None

    def close(self) -> None:
        """Close the region. Existing views stay valid; the mapping ends with the last of them. Idempotent."""
        self._memory = None
        self._file = None
        self._close_descriptor()

    def _check_range(self, offset_bytes: int, length_bytes: int) -> None:
        if offset_bytes < 0 or length_bytes < 0 or offset_bytes + length_bytes > self.size_bytes:
            raise LimitError(
                f"region {self.name!r}: bytes {offset_bytes} to {offset_bytes + length_bytes} "
                f"are not inside its {self.size_bytes} bytes"
            )

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self._close_descriptor()

    def __len__(self) -> int:
        return self.size_bytes

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        kind = "sealed" if self.is_sealed else "file"
        state = "closed" if self.is_closed else kind
        return f"<Region {self.name!r}: {self.size_bytes} bytes, {state}>"


@dataclass(frozen=True, slots=True, eq=False)
class FileRange:
    """Bytes of a region that are read or sent (sendfile) without a mapping. The region has to stay open."""

    region: Region
    offset_bytes: int
    nbytes: int

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, rest: slice) -> FileRange:
        """Return the range without its first `rest.start` bytes."""
        start: int = rest.start
        return FileRange(self.region, self.offset_bytes + start, self.nbytes - start)

    def read(self) -> memoryview:
        """Return the bytes, read and not mapped: if the file was truncated, mapped ones would be a SIGBUS. Raises as
        `Region.copy_into`.
        """
        check_available_memory(self.nbytes, self.region.name)
        target = allocate(self.nbytes, is_zeroed=False).data
        self.region.copy_into(self.offset_bytes, target)
        return target


class UnsealedRegion(Closable):
    """Memory that is written and then sealed; closing it discards the bytes."""

    __slots__ = ("_descriptor", "name", "size_bytes")

    def __init__(self, name: str, size_bytes: int = 0) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor, for `os.writev` and similar calls; `seal` takes the size that the memfd has then."""
        if self._descriptor < 0:
            raise ClosedError(f"region {self.name!r} was sealed or closed")
        return self._descriptor

    @property
    def closed(self) -> bool:
        """Whether it was sealed or closed."""
        return self._descriptor < 0

    def seal(self) -> Region:
        """End writing permanently, for all processes; return the sealed `Region`, which owns the memory."""
        reader, size_bytes = seal(self.fileno(), self.name)
        self.close()
        return Region(reader, size_bytes, self.name, is_sealed=True)

    def close(self) -> None:
        """Discard the memory unless it was sealed. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()
            discarded = format_count(self.size_bytes, "byte")
            warn_unclosed(self, f"region {self.name!r}: unclosed {type(self).__name__}: {discarded} discarded")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r}: {self.size_bytes} bytes, {state}>"


class RegionWriter(UnsealedRegion):
    """A memfd that grows as it is written; a write-only file object (`write`, `tell`, `fileno`, …).

    `size_bytes` is the number of bytes written through this object. `seal` returns the `Region`; `close`, or leaving
    the context before, discards the bytes. `spill_folder` is where `spill` has moved the bytes; None in memory.
    """

    __slots__ = ("spill_folder",)

    def __init__(self, name: str = "region") -> None:
        super().__init__(name)
        self.spill_folder: str | None = None
        self._descriptor = new_memfd(name)

    def spill(self, folders: Sequence[str]) -> None:
        """Move the bytes to an unnamed file in the first of some folders that allows it, and free the memory.

        The number of the descriptor stays the same, so that its writer is not affected. Raises `ResourceError`;
        the bytes stay in memory then.
        """
        descriptor = self.fileno()
        file, folder = open_unnamed_file(folders)
        try:
            with translate_shortage_errors(f"spill to {folder}", self.name):
                copy_file(descriptor, file)
                # dup2 closes the memfd and replaces it in one step, so no other thread sees the number unused.
                os.dup2(file, descriptor, inheritable=False)
        finally:
            os.close(file)
        self.spill_folder = folder

    def seal(self) -> Region:
        """End writing permanently; return the `Region`, which owns the memory or the unnamed file."""
        if self.spill_folder is None:
            return super().seal()
        descriptor = self.fileno()
        # Receivers get a descriptor that can't write. Processes that had this one are trusted: see above.
        region = Region(
            reopen_read_only(descriptor, self.name), os.fstat(descriptor).st_size, self.name, is_sealed=False
        )
        self.close()
        return region

    def write(self, data: BytesLike) -> int:
        """Append bytes and return their number. Raises `ResourceError` if memory is exhausted."""
        return self.writelines((data,))

    def writelines(self, parts: Iterable[BytesLike]) -> int:
        """Append all parts by vectored calls, without joining them; return the number of bytes."""
        descriptor = self.fileno()
        views = [memoryview(part).cast("B") for part in parts]
        total = sum(view.nbytes for view in views)
        if self.spill_folder is None:
            check_available_memory(total, self.name)
        with translate_shortage_errors(f"write {total} bytes to", self.name):
            write_all_parts(lambda rest: os.writev(descriptor, rest), views, remaining_buffers)
        self.size_bytes += total
        return total

    def tell(self) -> int:
        """The number of bytes written through this object."""
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def writable(self) -> bool:
        """Whether bytes can still be written."""
        return not self.closed

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False


class RegionBuilder(UnsealedRegion):
    """Memory of a fixed size, written in place through `memory` and then sealed.

    All of it is allocated when the builder is created, so a shortage raises `ResourceError` then, not SIGBUS later.
    """

    __slots__ = ("_memory",)

    def __init__(self, size_bytes: int, name: str = "region") -> None:
        super().__init__(name, size_bytes)
        self._memory: memoryview | None = None
        if size_bytes < 0:
            raise InvalidArgumentError(f"region {name!r}: expected a size of 0 or more bytes, not {size_bytes}")
        check_available_memory(size_bytes, name)
        self._descriptor = new_memfd(name)
        with call_on_error(self.close):
            if size_bytes:
                with translate_shortage_errors(f"reserve {size_bytes} bytes for", name):
                    os.posix_fallocate(self._descriptor, 0, size_bytes)
            _ = self.memory

    @property
    def memory(self) -> memoryview:
        """All bytes, writable until `seal` or `close`."""
        descriptor = self.fileno()
        if self._memory is None:
            with translate_shortage_errors(f"map {self.size_bytes} bytes of", self.name):
                mapping = map_writable(descriptor, self.size_bytes) if self.size_bytes else bytearray()
            self._memory = memoryview(mapping)
        return self._memory

    def make_views_private(self) -> None:
        """Let existing views of `memory` no longer write the region: they become private copies when they are written.

        Call it before `seal` if views may exist. Raises `ResourceError`.
        """
        memory, self._memory = self.memory, memoryview(bytearray())
        # The addresses of the views stay mapped throughout; only where their writes go changes.
        if isinstance(memory.obj, mmap.mmap):
            with translate_shortage_errors(f"map {self.size_bytes} bytes of", self.name):
                make_copy_on_write(memory.obj, self.fileno())

    def seal(self) -> Region:
        """End writing permanently, for all processes; return the sealed `Region`, which owns the memory.

        Raises `InvalidArgumentError` while writable views or mappings exist, `ResourceError` if descriptors are
        exhausted; `memory` stays writable then, and can be sealed later.
        """
        memory = self.memory
        mapping = memory.obj
        try:
            # The kernel refuses to seal memory that is mapped for writing, and the mapping lasts as long as any view of
            # it.
            memory.release()
            if isinstance(mapping, mmap.mmap):
                mapping.close()
        except BufferError:
            self._memory = memoryview(mapping)
            raise InvalidArgumentError(
                f"region {self.name!r} can't be sealed while writable views of it exist"
            ) from None
        self._memory = None
        return super().seal()

    def close(self) -> None:
        self._memory = None
        super().close()
