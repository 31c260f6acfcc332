"""Where bytes come from: mapped files and memory, file objects, descriptors, sockets."""

from __future__ import annotations

import io
import os
import socket
import stat
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from bowstring.errors import (
    ClosedError,
    IsDirectoryError,
    UsageError,
)
from bowstring.io import fsspec_store
from bowstring.io.memory_source import MemorySource
from bowstring.io.os_errors import name_of, translate_io_error
from bowstring.io.range_source import FileObjectStore, RangeSource
from bowstring.io.stream_source import StreamSource
from bowstring.memory.buffer import Buffer, Memory
from bowstring.memory.descriptors import map_file

RandomAccess: TypeAlias = MemorySource | RangeSource
"""A source whose bytes can be read at any place, here or far away."""
_AT_ONCE = 1 << 20
_DECOMPRESSORS = ("gzip", "bz2", "lzma", "_compression")


def open_mapped(source: Any) -> MemorySource | StreamSource:
    """A source for the file format: a path is mapped, a file object, too, where it is a regular file, anything else
    taken as memory. What can't be read at random is given to be read in order.

    Raises `NotFoundError` where a path does not exist, `UsageError` for an object that is no source, `ResourceError`
    where the system refuses.
    """
    if isinstance(source, MemorySource):
        return source
    if isinstance(source, str | os.PathLike) or fsspec_store.is_fsspec_open_file(source):
        return open_sequential(source)
    memory = _as_memory(source)
    if memory is not None:
        return memory
    descriptor = _descriptor_of(source)
    try:
        own = os.dup(descriptor) if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError as error:
        raise translate_io_error(error, name_of(source)) from None
    if own is not None:
        return mapped_descriptor(own, name_of(source))
    if callable(getattr(source, "seekable", None)) and source.seekable():
        source.seek(0)
    return open_sequential(source)


def open_random_access(source: Any) -> MemorySource | StreamSource | RangeSource:
    """A source for the file format, as `open_mapped`; but URLs, and file objects that can seek and are no regular
    files, are read by ranges.

    File objects that decompress are read in order, as they can't go back without beginning anew, and so are URLs of
    unknown size.
    """
    if isinstance(source, RangeSource):
        return source
    if isinstance(source, MemorySource | os.PathLike | int | socket.socket):
        return open_mapped(source)
    found = fsspec_store.find_location(source)
    local = fsspec_store.local_path(*found) if found else None
    if local:
        return open_mapped(local)
    found = found or fsspec_store.find_location_of_file(source)
    if found:
        try:
            return RangeSource(fsspec_store.FsspecStore(*found, source if isinstance(source, str) else found[1]))
        except fsspec_store.UnknownSizeError:
            return open_sequential(source)
    if isinstance(source, str) or _as_memory(source) is not None or _descriptor_of(source) is not None:
        return open_mapped(source)
    held = _binary(source)
    if _seeks_cheaply(held):
        return RangeSource(FileObjectStore(held, name_of(held)))
    return open_mapped(source)


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
        raise translate_io_error(error, name_of(source)) from error


def open_sequential(source: Any) -> MemorySource | StreamSource:
    """A source for the streaming format: a path is mapped, memory used as it is, all else read as it comes."""
    if isinstance(source, MemorySource | StreamSource):
        return source
    place = fsspec_store.find_location(source)
    if place is not None or fsspec_store.is_fsspec_open_file(source):
        local = fsspec_store.local_path(*place) if place is not None else None
        if local:
            return _mapped_path(local)
        name = source if isinstance(source, str) else source.path
        files = (fsspec_store.opened(*place),) if place is not None else fsspec_store.unpacked(source)
        return StreamSource(
            _guarded(lambda view: _read_into(files[0], view), name, name), name, lambda: _close_all(files)
        )
    if isinstance(source, str | os.PathLike):
        return _mapped_path(source)
    memory = _as_memory(source)
    if memory is not None:
        return memory
    if isinstance(source, socket.socket):
        return StreamSource(_guarded(source.recv_into, "socket"), "socket")
    if _is_descriptor(source):
        return StreamSource(
            _guarded(lambda view: os.readv(source, [view]), f"descriptor {source}"), f"descriptor {source}"
        )
    name = name_of(_binary(source))
    if callable(getattr(_binary(source), "readinto", None)):
        return StreamSource(_guarded(lambda view: _fill(_binary(source), view), name), name)
    if callable(getattr(source, "read", None)):
        return StreamSource(_guarded(lambda view: _read_into(source, view), name), name)
    raise UsageError(
        f"expected a path, bytes, a binary file object, a descriptor or a socket to read, not {type(source).__name__}"
    )


def mapped_descriptor(descriptor: int, name: str) -> MemorySource:
    """A source over the regular file behind a descriptor, which it takes over."""
    try:
        size_bytes = os.fstat(descriptor).st_size
        owner: Any = map_file(descriptor, size_bytes) if size_bytes else b""
        return MemorySource(Memory(owner), name, descriptor)
    except OSError as error:
        os.close(descriptor)
        raise translate_io_error(error, name, "mapped") from None
    except BaseException:
        os.close(descriptor)
        raise


def _mapped_path(path: str | os.PathLike[str]) -> MemorySource | StreamSource:
    name = os.fspath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:
        raise UsageError(f"{name!r} is no path: {error}") from None
    except OSError as error:
        raise translate_io_error(error, name, "opened") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return mapped_descriptor(descriptor, name)
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsDirectoryError(f"{name}: is a directory", filename=name)
    return StreamSource(_guarded(lambda view: os.readv(descriptor, [view]), name), name, lambda: os.close(descriptor))


def _as_memory(source: Any) -> MemorySource | None:
    if getattr(source, "closed", False) is True:
        raise ClosedError(f"{name_of(source)}: the file object is closed")
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


def _close_all(files: Iterable[Any]) -> None:
    """Close file objects, in this order."""
    for file in files:
        file.close()


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
        raise UsageError(f"{name_of(source)}: was asked for up to {wanted} bytes, and gave {len(held)}")
    view[: len(held)] = held
    return len(held)


def _guarded(pull: Callable[[memoryview], int], name: str, path: str | None = None) -> Callable[[memoryview], int]:
    def guarded(view: memoryview) -> int:
        try:
            return pull(view)
        except Exception as error:  # whatever a file object of the caller's raises, a decompressor's own errors too
            raise translate_io_error(error, name, path=path) from error

    return guarded
