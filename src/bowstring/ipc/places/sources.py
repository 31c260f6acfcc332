"""Where bytes come from: mapped files and memory, file objects, descriptors, sockets."""

from __future__ import annotations

import io
import mmap
import os
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.errors import (
    ClosedError,
    LimitError,
    NotFoundError,
    ResourceError,
    TruncatedError,
    UsageError,
)
from bowstring.ipc.places import stores
from bowstring.ipc.places.faults import fault
from bowstring.ipc.places.ranges import FileObject, RangeSource
from bowstring.memory.buffer import EMPTY, Buffer, Memory, allocate

_AT_ONCE = 1 << 20
_COPY_UP_TO = 1 << 13
_HEAD = 512
_DECOMPRESSORS = ("gzip", "bz2", "lzma", "_compression")


class MemorySource:
    """A source that is memory: bytes or a mapped file. Both random access and reading in order; buffers are not copied.

    With a `descriptor` of the file behind the mapping small pieces are read through it: cheaper than a page fault. The
    source owns it.
    """

    __slots__ = ("_descriptor", "_view", "memory", "name", "position", "size")

    def __init__(self, memory: Memory, name: str, descriptor: int = -1) -> None:
        self.memory = memory
        self.name = name
        self.size = memory.size
        self.position = 0
        self._descriptor = descriptor
        self._view: memoryview | None = memory.bytes.data

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; the memory can be read for as long as somebody holds it."""
        return self._view is None

    @property
    def descriptor(self) -> int:
        """The descriptor of the file behind the memory, -1 for none."""
        return self._descriptor

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from byte `offset` on; the caller has checked that they are there."""
        if self._descriptor >= 0:
            return self._pread(offset, size_bytes)
        return bytes(self.memory.bytes[offset : offset + size_bytes].data)

    def _pread(self, offset: int, size_bytes: int) -> bytes:
        try:
            held = os.pread(self._descriptor, size_bytes, offset)
            if len(held) == size_bytes:
                return held
            now_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise ResourceError(f"{self.name}: cannot be read: {error.strerror}") from None
        if now_bytes < offset + size_bytes:  # to touch the mapping there would end the process
            raise TruncatedError(
                f"{self.name}: expected {size_bytes} bytes at byte {offset}, found a file that was cut to {now_bytes} "
                f"bytes after it had been opened"
            )
        return bytes(self.memory.bytes[offset : offset + size_bytes].data)

    def peek(self, offset: int, size_bytes: int) -> bytes | memoryview | FarBytes:
        """The bytes from byte `offset` on, read in part if they are many; the caller has checked the bounds."""
        if size_bytes <= _COPY_UP_TO:
            return self.read_at(offset, size_bytes)
        if self._descriptor >= 0:
            return FarBytes(self, offset, size_bytes)
        view = self.memory.bytes.data if self._view is None else self._view
        return view[offset : offset + size_bytes]

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        size_bytes = min(size_bytes, self.size - self.position)
        held = self.read_at(self.position, size_bytes)
        self.position += size_bytes
        return held

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes, not copied; fewer only at the end."""
        size_bytes = min(size_bytes, self.size - self.position)
        self.position += size_bytes
        return Buffer(self.memory, self.position - size_bytes, size_bytes)

    def close(self) -> None:
        """Close the descriptor; the mapping goes with its last holder."""
        descriptor, self._descriptor, self._view = self._descriptor, -1, None
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class FarBytes:
    """The bytes of a large header in a file, of which mostly a few are wanted: read in pieces.

    Slicing gives bytes.
    """

    __slots__ = ("_head", "_offset", "_size", "_source")

    def __init__(self, source: MemorySource, offset: int, size_bytes: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size_bytes
        self._head = source.read_at(offset, min(size_bytes, _HEAD))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._size)
        if stop > len(self._head):
            return self._source.read_at(self._offset + start, max(stop - start, 0))
        return self._head[start:stop]


class PulledSource:
    """A source that has to be read in order, into fresh memory: a pipe, a file object, a socket.

    `pull` fills a part of the memory that it is given, and says how much; 0 is the end. Memory grows with what has
    come, not with what was claimed.
    """

    __slots__ = ("_close", "_pull", "name", "position")

    def __init__(self, pull: Callable[[memoryview], int], name: str, close: Callable[[], None] | None = None) -> None:
        self._pull = pull
        self._close = close
        self.name = name
        self.position = 0

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes() if size_bytes else b""

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in fresh memory, aligned to 64 bytes; fewer only at the end."""
        if size_bytes == 0:
            return EMPTY
        try:
            held = allocate(size_bytes)  # the system gives pages when they are written
        except (MemoryError, ValueError, OverflowError):
            raise LimitError(f"{self.name}: no memory for {size_bytes} bytes at byte {self.position}") from None
        view, filled = held.data, 0
        while filled < size_bytes:
            got = self._pull(view[filled:])
            if got == 0:
                break
            filled += got
        self.position += filled
        return Buffer.of(held[:filled])

    def close(self) -> None:
        """Close what belongs to the source."""
        if self._close is not None:
            self._close()


def random_access(source: Any) -> MemorySource:
    """A source for the file format: a path is mapped, a file object mapped or read whole, anything else taken as
    memory.

    Raises `NotFoundError` where a path does not exist, `UsageError` for an object that is no source, `ResourceError`
    where the system refuses.
    """
    if isinstance(source, MemorySource):
        return source
    if isinstance(source, str | os.PathLike) or stores.is_unopened(source):
        opened = in_order(source)
        if isinstance(opened, MemorySource):
            return opened
        try:
            return MemorySource(Memory(_everything(opened)), opened.name)
        finally:
            opened.close()
    memory = _as_memory(source)
    if memory is not None:
        return memory
    descriptor = _descriptor_of(source)
    try:
        own = os.dup(descriptor) if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError as error:
        raise ResourceError(f"{_name_of(source)}: cannot be read: {error.strerror}") from None
    if own is not None:
        return mapped_descriptor(own, _name_of(source))
    if callable(getattr(source, "seekable", None)) and source.seekable():
        source.seek(0)
    return MemorySource(Memory(_everything(in_order(source))), _name_of(source))


def by_ranges(source: Any) -> MemorySource | RangeSource:
    """A source for the file format, as `random_access`; but URLs, and file objects that can seek and are no regular
    files, are read by ranges.

    File objects that decompress are read whole, as they can't go back without beginning anew.
    """
    if isinstance(source, RangeSource):
        return source
    if isinstance(source, MemorySource | os.PathLike | int | socket.socket):
        return random_access(source)
    found = stores.place_of(source)
    local = stores.local_path(*found) if found else None
    if local:
        return random_access(local)
    found = found or stores.place_of_opened(source)
    if found:
        return RangeSource(stores.FsspecStore(*found, source if isinstance(source, str) else found[1]))
    if isinstance(source, str) or _as_memory(source) is not None or _descriptor_of(source) is not None:
        return random_access(source)
    held = _binary(source)
    if _seeks_cheaply(held):
        return RangeSource(FileObject(held, _name_of(held)))
    return random_access(source)


def _seeks_cheaply(source: Any) -> bool:
    inner = getattr(source, "raw", source)
    packing = getattr(inner, "_compress_type", None)  # zipfile's members have it
    if type(inner).__module__ in _DECOMPRESSORS or packing:
        return False
    if not all(callable(getattr(source, name, None)) for name in ("read", "seek", "seekable")):
        return False
    try:
        return bool(source.seekable())
    except Exception as error:
        raise fault(error, _name_of(source)) from error


def in_order(source: Any) -> MemorySource | PulledSource:
    """A source for the streaming format: a path is mapped, memory used as it is, all else read as it comes."""
    if isinstance(source, MemorySource | PulledSource):
        return source
    place = stores.place_of(source)
    if place is not None or stores.is_unopened(source):
        local = stores.local_path(*place) if place is not None else None
        if local:
            return _mapped_path(local)
        name = source if isinstance(source, str) else source.path
        held = stores.opened(*place) if place is not None else stores.unpacked(source)
        return PulledSource(_guarded(lambda view: _read_into(held, view), name), name, held.close)
    if isinstance(source, str | os.PathLike):
        return _mapped_path(source)
    memory = _as_memory(source)
    if memory is not None:
        return memory
    if isinstance(source, socket.socket):
        return PulledSource(_guarded(source.recv_into, "socket"), "socket")
    if _is_descriptor(source):
        return PulledSource(
            _guarded(lambda view: os.readv(source, [view]), f"descriptor {source}"), f"descriptor {source}"
        )
    name = _name_of(_binary(source))
    if callable(getattr(_binary(source), "readinto", None)):
        return PulledSource(_guarded(lambda view: _fill(_binary(source), view), name), name)
    if callable(getattr(source, "read", None)):
        return PulledSource(_guarded(lambda view: _read_into(source, view), name), name)
    raise UsageError(
        f"expected a path, bytes, a binary file object, a descriptor or a socket to read, not {type(source).__name__}"
    )


def mapped_descriptor(descriptor: int, name: str) -> MemorySource:
    """A source over the regular file behind a descriptor, which it takes over."""
    try:
        size_bytes = os.fstat(descriptor).st_size
        owner: Any = mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ) if size_bytes else b""
        return MemorySource(Memory(owner), name, descriptor)
    except OSError as error:
        os.close(descriptor)
        raise ResourceError(f"{name}: cannot be mapped: {error.strerror}") from None
    except BaseException:
        os.close(descriptor)
        raise


def _mapped_path(path: str | os.PathLike[str]) -> MemorySource | PulledSource:
    name = os.fspath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise NotFoundError(f"{name}: there is no such file") from None
    except ValueError as error:
        raise UsageError(f"{name!r} is no path: {error}") from None
    except OSError as error:
        raise ResourceError(f"{name}: cannot be opened: {error.strerror}") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return mapped_descriptor(descriptor, name)
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise UsageError(f"{name}: is a directory")
    return PulledSource(_guarded(lambda view: os.readv(descriptor, [view]), name), name, lambda: os.close(descriptor))


def _as_memory(source: Any) -> MemorySource | None:
    if getattr(source, "closed", False) is True:
        raise ClosedError(f"{_name_of(source)}: the file object is closed")
    if isinstance(source, Memory):
        return MemorySource(source, "memory")
    if isinstance(source, Buffer):
        whole = source.offset == 0 and source.size == source.memory.size
        return MemorySource(source.memory if whole else Memory(source.bytes), "buffer")
    if callable(getattr(source, "getvalue", None)) and isinstance(source.getvalue(), bytes):  # io.BytesIO shares it
        memory = MemorySource(Memory(source.getvalue()), "BytesIO")
        memory.position = source.tell()
        return memory
    if isinstance(source, np.ndarray):
        return MemorySource(Memory(np.ascontiguousarray(source)), "array")
    if isinstance(source, int) or hasattr(source, "read") or hasattr(source, "recv_into"):
        return None
    try:
        view = memoryview(source)
    except TypeError:
        return None
    except ValueError as error:
        raise ClosedError(f"{type(source).__name__}: {error}") from None
    if not view.c_contiguous:
        raise UsageError(f"expected bytes that lie end to end, found a {type(source).__name__} with strides")
    return MemorySource(Memory(view), type(source).__name__)


def _descriptor_of(source: Any) -> int | None:
    """The descriptor whose bytes are those that `source` gives; a file object that decompresses has none."""
    if _is_descriptor(source):
        return int(source)
    raw = getattr(_binary(source), "raw", _binary(source))
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _is_descriptor(source: Any) -> bool:
    return isinstance(source, int) and not isinstance(source, bool)


def _binary(source: Any) -> Any:
    """The bytes behind a file object that gives text, such as standard input; any other object as it is."""
    return getattr(source, "buffer", source)


def _name_of(source: Any) -> str:
    if isinstance(source, int):
        return f"descriptor {source}"
    if source is getattr(sys.stdin, "buffer", None):
        return "standard input"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else type(source).__name__


def _fill(source: Any, view: memoryview) -> int:
    filled = source.readinto(view)
    if filled is None:
        raise BlockingIOError
    return int(filled)


def _read_into(source: Any, view: memoryview) -> int:
    wanted = min(len(view), _AT_ONCE)
    held = source.read(wanted)
    if not isinstance(held, bytes | bytearray | memoryview):
        raise UsageError(f"expected a binary file object, but reading gave {type(held).__name__}")
    if len(held) > wanted:
        raise UsageError(f"{_name_of(source)}: was asked for up to {wanted} bytes, and gave {len(held)}")
    view[: len(held)] = held
    return len(held)


def _guarded(pull: Callable[[memoryview], int], name: str) -> Callable[[memoryview], int]:
    def guarded(view: memoryview) -> int:
        try:
            return pull(view)
        except Exception as error:  # whatever a file object of the caller's raises, a decompressor's own errors too
            raise fault(error, name) from error

    return guarded


def _everything(source: MemorySource | PulledSource) -> bytes:
    parts = []
    while part := source.read(_AT_ONCE):
        parts.append(part)
    return b"".join(parts)
