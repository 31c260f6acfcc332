"""Regions: memory that several processes share («Shared memory» in the goals of the Dissociated IPC protocol).

A `Region` is a range of bytes behind a descriptor, either

* a **sealed memfd**: anonymous memory that nobody can write, grow or shrink any more, its maker included. It has no
  name in the file system: the last holder's end, killed or not, gives the memory back; or
* an **ordinary file**, such as an uncompressed Arrow file: nothing is copied, but its owner can still change or
  truncate it. A page beyond a file's end kills the reader (SIGBUS), and no system call of Linux prevents truncation by
  the owner. So a receiver takes an ordinary file only where the caller allows it (`accept_files`), its size is compared
  with what was promised at the beginning, and `Region.check` compares again, as cheaply as one fstat, before each use.
  Whoever replaces a file by renaming (as this library does) is safe: mapped files keep their old content.

A received memfd is refused unless it is sealed against writing and shrinking, and unless all its pages exist: reading a
hole would need new memory, and a shortage in that moment is a SIGBUS too.

Where the platform has no memfd_create (anything but Linux), making a region is a `ResourceError`; mapping files works.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from bowstring.errors import (
    ClosedError,
    InvalidDataError,
    IsDirectoryError,
    LimitError,
    MissingFileError,
    TruncatedError,
    UsageError,
    translate_os_error,
)
from bowstring.memory.closable import Closable, warn_unclosed
from bowstring.memory.descriptors import (
    CHECK_AVAILABLE_BYTES,
    IOV_MAX,
    check_available,
    check_received,
    describe_file_type,
    is_sealed,
    map_read_only,
    new_memfd,
    seal,
    translate_shortage,
)

BytesLike: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class _Path:
    """Where a file was, and what tells it from any other that may have its name later."""

    path: str
    device: int
    inode: int

    def status(self) -> os.stat_result:
        """That of the file which has the path now."""
        try:
            return os.stat(self.path)
        except OSError as error:
            raise translate_os_error(error, f"{self.path}: cannot be opened again: {error.strerror}") from None

    def open(self) -> int:
        """A new descriptor of the same file. Raises `InvalidDataError`, or `OSError` if descriptors are short."""
        self.check(self.status())  # before it is opened: opening a pipe or a device could have effects
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.check(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def check(self, status: os.stat_result) -> os.stat_result:
        """Raise `InvalidDataError` for the status of another file."""
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            raise InvalidDataError(f"{self.path}: the file was replaced by another one")
        return status


class Region(Closable):
    """Read-only bytes behind a descriptor, mapped on first use.

    Made by `RegionWriter.seal`, `Region.from_file` or `Region.attach`. `view` gives memoryviews without copying; they
    keep the mapping alive after `close`, so memory goes with its last holder, whichever that is. The descriptor is this
    object's own.
    """

    __slots__ = ("__weakref__", "_descriptor", "_memory", "_path", "is_sealed", "name", "size_bytes")

    def __init__(self, descriptor: int, size_bytes: int, name: str, *, is_sealed: bool) -> None:
        self._descriptor = descriptor
        self._memory: memoryview | None = None
        self._path: _Path | None = None
        self.size_bytes = size_bytes
        self.name = name
        self.is_sealed = is_sealed

    @staticmethod
    def create(size_bytes: int, name: str = "region") -> RegionBuilder:
        """Memory of exactly `size_bytes`, all of it reserved now, to be written in place and then sealed.

        Raises `ResourceError` if memory or descriptors are short.
        """
        return RegionBuilder(size_bytes, name)

    @staticmethod
    def writer(name: str = "region") -> RegionWriter:
        """A file-like object that grows as it is written, to be sealed afterwards; the fastest way to copy data in."""
        return RegionWriter(name)

    @classmethod
    def copy_of(cls, parts: Iterable[BytesLike], name: str = "region") -> Region:
        """A sealed region with the bytes of `parts`, one after the other."""
        with cls.writer(name) as writer:
            writer.writelines(parts)
            return writer.seal()

    @classmethod
    def from_file(cls, source: str | os.PathLike[str] | int) -> Region:
        """A read-only region of an ordinary file, by path or by descriptor (which is duplicated, not taken).

        Raises `NotFoundError` if there is none, `UsageError` for anything that is not a regular file, and
        `ResourceError` where it can't be opened.
        """
        try:
            if isinstance(source, int):
                descriptor = os.dup(source)
            else:
                descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise MissingFileError(f"{source}: there is no such file", error) from None
        except OSError as error:
            raise translate_os_error(error, f"{source}: cannot be opened: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{source!r} is no path: {error}") from None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsDirectoryError(f"{source}: is a directory", filename=source)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{source}: expected a regular file, found {describe_file_type(status)}")
            region = cls(descriptor, status.st_size, str(source), is_sealed=is_sealed(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        if not isinstance(source, int):
            region._path = _Path(os.path.abspath(os.fsdecode(source)), status.st_dev, status.st_ino)
        return region

    @classmethod
    def attach(
        cls, descriptor: int, size_bytes: int | None = None, *, accept_files: bool = False, name: str = "received"
    ) -> Region:
        """A region of a descriptor that came from another process; takes the descriptor, and closes it on any error.

        `size_bytes` is what was promised. Raises `InvalidDataError` if the descriptor is not a sealed memfd (or,
        with `accept_files`, a regular file), and `TruncatedError` where its size is another one.
        """
        try:
            checked_bytes = check_received(descriptor, size_bytes, accept_files, name)
            return cls(descriptor, checked_bytes, name, is_sealed=is_sealed(descriptor))
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def descriptor(self) -> int:
        """The descriptor, to be passed on. Raises `ClosedError` if it was let go."""
        if self._descriptor < 0:
            raise ClosedError(f"region {self.name!r}: its descriptor is closed")
        return self._descriptor

    def fileno(self) -> int:
        """As `descriptor`."""
        return self.descriptor

    @property
    def memory(self) -> memoryview:
        """All bytes, read-only, not copied. Raises `ClosedError`, `ResourceError` where memory is short, and
        `InvalidDataError` for a file that can't be mapped, as those of /sys can't.
        """
        if self._memory is None:
            self._memory = map_read_only(self.descriptor, self.size_bytes, self.name)
        return self._memory

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview:
        """`length_bytes` from `offset_bytes` on, read-only, not copied. Raises `LimitError` outside the region."""
        if offset_bytes < 0 or length_bytes < 0 or offset_bytes + length_bytes > self.size_bytes:
            raise LimitError(
                f"region {self.name!r}: bytes {offset_bytes} to {offset_bytes + length_bytes} "
                f"are not inside its {self.size_bytes} bytes"
            )
        return self.memory[offset_bytes : offset_bytes + length_bytes]

    def check(self) -> None:
        """Raise `TruncatedError` if an ordinary file became shorter than it was; a sealed region can't.

        Without a descriptor, raise `InvalidDataError` if another file has its path now, and `MissingFileError` if
        none has.
        """
        if not self.is_sealed:
            if self._descriptor < 0 and self._path is not None:
                size_now = self._path.check(self._path.status()).st_size
            else:
                size_now = os.fstat(self.descriptor).st_size
            if size_now < self.size_bytes:
                raise TruncatedError(
                    f"region {self.name!r}: expected {self.size_bytes} bytes, its file has {size_now} now"
                )

    def duplicate(self) -> Region:
        """Another holder of the same memory, with a descriptor of its own.

        A file whose descriptor was released is opened again. Raises `InvalidDataError` if another file has its path
        now, `MissingFileError` if none has, and `ResourceError`.
        """
        with translate_shortage("duplicate the descriptor of", self.name):
            if self._descriptor < 0 and self._path is not None:
                descriptor = self._path.open()
            else:
                descriptor = os.dup(self.descriptor)
        return Region(descriptor, self.size_bytes, self.name, is_sealed=self.is_sealed)

    def release_descriptor(self) -> None:
        """Map now and let the descriptor go, for consumers who don't pass it on.

        A file that was opened by its path is opened again when it is needed; another one keeps the descriptor, for
        `check`.
        """
        _ = self.memory
        if self.is_sealed or self._path is not None:
            self._close_descriptor()

    @property
    def is_released(self) -> bool:
        """Whether the descriptor was released, and `duplicate` opens the file again."""
        return self._descriptor < 0 and self._path is not None

    @property
    def is_closed(self) -> bool:
        """Whether this holder let both descriptor and mapping go."""
        return self._descriptor < 0 and self._memory is None

    def close(self) -> None:
        """Let go. Views that were handed out stay valid, and the mapping ends with the last of them. Idempotent."""
        self._memory = None
        self._path = None
        self._close_descriptor()

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


class RegionWriter(Closable):
    """A memfd that grows as it is written: a file object as far as writers need one (`write`, `tell`, `fileno`, …).

    `seal` makes the `Region`; `close`, or leaving the context before, throws it away.
    """

    __slots__ = ("_descriptor", "_length_bytes", "_unchecked_bytes", "name")

    def __init__(self, name: str = "region") -> None:
        self.name = name
        self._length_bytes = 0
        self._unchecked_bytes = 0
        self._descriptor = -1
        self._descriptor = new_memfd(name)

    def fileno(self) -> int:
        """The descriptor, for writing with os.writev and the like; `seal` takes whatever size the memfd has then."""
        if self._descriptor < 0:
            raise ClosedError(f"region {self.name!r} was sealed or closed: it takes no more bytes")
        return self._descriptor

    def write(self, data: BytesLike) -> int:
        """Append all of `data`; its length. Raises `ResourceError` if memory is short."""
        return self.writelines((data,))

    def writelines(self, parts: Iterable[BytesLike]) -> int:
        """Append all of `parts` by vectored calls, without joining them; the number of bytes."""
        descriptor = self.fileno()
        views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        total = sum(view.nbytes for view in views)
        self._unchecked_bytes += total
        if self._unchecked_bytes >= CHECK_AVAILABLE_BYTES:
            check_available(self._unchecked_bytes, self.name)
            self._unchecked_bytes = 0
        with translate_shortage(f"write {total} bytes to", self.name):
            first = 0
            while first < len(views):
                written = os.writev(descriptor, views[first : first + IOV_MAX])
                self._length_bytes += written
                while first < len(views) and written >= views[first].nbytes:
                    written -= views[first].nbytes
                    first += 1
                if written:
                    views[first] = views[first][written:]
        return total

    def tell(self) -> int:
        """The number of bytes written through this object."""
        return self._length_bytes

    def flush(self) -> None:
        """Nothing to do: the bytes are where they belong."""

    def writable(self) -> bool:
        """Whether bytes can still be written."""
        return not self.closed

    def readable(self) -> bool:
        """Never: seal first."""
        return False

    def seekable(self) -> bool:
        """Never: it only grows at its end."""
        return False

    @property
    def closed(self) -> bool:
        """Whether it was sealed or closed."""
        return self._descriptor < 0

    def seal(self) -> Region:
        """End writing for everybody, for good: the sealed `Region`, which takes the memory over."""
        reader, size_bytes = seal(self.fileno(), self.name)
        self.close()
        return Region(reader, size_bytes, self.name, is_sealed=True)

    def close(self) -> None:
        """Throw the memory away, unless it was sealed. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()
            warn_unclosed(self, f"region {self.name!r}: unclosed RegionWriter: {self._length_bytes} bytes are dropped")

    def __repr__(self) -> str:
        return f"<RegionWriter {self.name!r}: {self._length_bytes} bytes, {'closed' if self.closed else 'open'}>"


class RegionBuilder(Closable):
    """Memory of a size known beforehand, written in place through `memory` and then sealed.

    All of it is reserved at the beginning: a shortage is a `ResourceError` here and never a signal while writing.
    """

    __slots__ = ("_descriptor", "_memory", "name", "size_bytes")

    def __init__(self, size_bytes: int, name: str = "region") -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._memory: memoryview | None = None
        self._descriptor = -1
        if size_bytes < 0:
            raise UsageError(f"region {name!r}: a size of {size_bytes} bytes makes no sense")
        check_available(size_bytes, name)
        self._descriptor = new_memfd(name)
        try:
            if size_bytes:
                with translate_shortage(f"reserve {size_bytes} bytes for", name):
                    os.posix_fallocate(self._descriptor, 0, size_bytes)
            _ = self.memory
        except BaseException:
            self.close()
            raise

    @property
    def memory(self) -> memoryview:
        """All bytes, writable until `seal` or `close`."""
        if self._descriptor < 0:
            raise ClosedError(f"region {self.name!r} was sealed or closed: it can't be written any more")
        if self._memory is None:
            with translate_shortage(f"map {self.size_bytes} bytes of", self.name):
                mapping = mmap.mmap(self._descriptor, self.size_bytes) if self.size_bytes else bytearray()
            self._memory = memoryview(mapping)
        return self._memory

    def seal(self) -> Region:
        """End writing for everybody, for good.

        Raises `UsageError` while views of `memory` are held or somebody else has it mapped for writing, `ResourceError`
        where descriptors are short; `memory` can be written then, and sealed later.
        """
        memory = self.memory
        mapping = memory.obj
        try:
            memory.release()
            if isinstance(mapping, mmap.mmap):
                mapping.close()
        except BufferError:
            self._memory = memoryview(mapping)
            raise UsageError(f"region {self.name!r} can't be sealed while writable views of it are held") from None
        self._memory = None
        reader, size_bytes = seal(self._descriptor, self.name)
        self.close()
        return Region(reader, size_bytes, self.name, is_sealed=True)

    def close(self) -> None:
        """Throw the memory away, unless it was sealed. Idempotent."""
        self._memory = None
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()
            warn_unclosed(self, f"region {self.name!r}: unclosed RegionBuilder: {self.size_bytes} bytes are dropped")

    def __repr__(self) -> str:
        return f"<RegionBuilder {self.name!r}: {self.size_bytes} bytes, {'closed' if self._descriptor < 0 else 'open'}>"
