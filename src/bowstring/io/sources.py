"""Opening sources: memory-mapped files, memory, file objects, descriptors, sockets and URLs."""

from __future__ import annotations

import io
import os
import socket
import stat
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np

from bowstring.errors import (
    ClosedError,
    InvalidArgumentError,
    LimitError,
)
from bowstring.io import fsspec_store
from bowstring.io.io_errors import get_source_name, is_directory_error, translate_io_error, unwrap_text_file
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import MAX_ROUND_BYTES, FileObjectRangeReader, RangeSource
from bowstring.io.store_path import StorePath
from bowstring.io.stream_source import GrowingFile, StreamSource
from bowstring.memory.buffer import Buffer, Memory
from bowstring.memory.descriptors import map_file, pwrite_all
from bowstring.memory.unnamed_file import check_free_space, find_folders, open_unnamed_file
from bowstring.redaction import redact, translated_errors

RandomAccessSource: TypeAlias = MemorySource | RangeSource
"""A source with random access, local or remote."""
AnySource: TypeAlias = RandomAccessSource | StreamSource
"""A source of bytes, with random access or sequential."""
# A file object allocates this much for each call, whatever length a message claims.
_MAX_READ_BYTES = 1 << 20
_MAX_COPIED_FILE_BYTES = 1 << 16
"""Reading a file of this size takes as long as mapping it, and a process has 65,530 mappings (vm.max_map_count)."""
_DECOMPRESSOR_MODULES = ("gzip", "bz2", "lzma", "_compression")


def open_random_access(source: Any) -> AnySource:
    """Open a source for the file format: map a path or the file object of a regular file, use memory in place, read
    URLs and other seekable file objects by ranges.

    Sources without random access become sequential sources: pipes, sockets, URLs of unknown size, and file objects that
    decompress, as seeking back restarts decompression. Raises `NotFoundError` if a path does not exist,
    `InvalidArgumentError` for an unsupported object, `ResourceError` for errors of the operating system.
    """
    if isinstance(source, MemorySource | RangeSource):
        return source
    if fsspec_store.is_path(source):
        return open_path(source)
    return _open_fsspec_ranges(source) or _open_memory(source) or _open_file_object(source)


def open_sequential(source: Any) -> MemorySource | StreamSource:
    """Open a source for the streaming format: map a path, use memory in place, read others as data arrives."""
    if isinstance(source, MemorySource | StreamSource):
        return source
    if fsspec_store.is_path(source):
        return open_path(source)
    return _open_fsspec_stream(source) or _open_memory(source) or _open_file_object_stream(source)


def _open_fsspec_ranges(source: Any) -> AnySource | None:
    """A file of an fsspec file system; None if the source is neither a URL nor an object of fsspec."""
    location = fsspec_store.find_store_location(source)
    local = fsspec_store.get_local_path(*location) if location else None
    if local:
        return open_path(local)
    location = location or fsspec_store.find_file_object_location(source)
    if location is None:
        return None
    try:
        name = redact(str(source) if isinstance(source, str | StorePath) else location[1])
        return RangeSource(fsspec_store.FsspecRangeReader(*location, name))
    except fsspec_store.UnknownSizeError:
        return open_sequential(source)


def _open_fsspec_stream(source: Any) -> MemorySource | StreamSource | None:
    """A file of an fsspec file system, to be read in order; None if the source is neither a URL nor a result of
    `fsspec.open`.
    """
    location = fsspec_store.find_store_location(source)
    if location is None and not fsspec_store.is_fsspec_open_file(source):
        return None
    local = fsspec_store.get_local_path(*location) if location else None
    if local:
        return open_path(local)
    name = redact(str(source) if isinstance(source, str | StorePath) else source.path)
    files = (fsspec_store.open_store_file(*location),) if location else fsspec_store.open_decompressed(source)
    return StreamSource(
        _with_translated_errors(lambda view: _call_read(files[0], view), name, name), name, lambda: _close_all(files)
    )


def _open_file_object(source: Any) -> AnySource:
    """A file object or a descriptor, from its beginning if it can seek."""
    descriptor, file = _get_descriptor(source), unwrap_text_file(source)
    if descriptor is None and _is_seekable(file):
        return RangeSource(FileObjectRangeReader(file, get_source_name(file)))
    try:
        is_regular = descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)
        descriptor_copy = os.dup(descriptor) if descriptor is not None and is_regular else None
    except OSError as error:
        raise translate_io_error(error, get_source_name(source)) from None
    if descriptor_copy is not None:
        return map_descriptor(descriptor_copy, get_source_name(source))
    if callable(getattr(source, "seekable", None)) and source.seekable():
        source.seek(0)
    return open_sequential(source)


def _is_seekable(source: Any) -> bool:
    inner = getattr(source, "raw", source)
    compression = getattr(inner, "_compress_type", None)  # members of zipfile archives have it
    if type(inner).__module__ in _DECOMPRESSOR_MODULES or compression:
        return False
    if not all(callable(getattr(source, name, None)) for name in ("read", "seek", "seekable")):
        return False
    with translated_errors(lambda error: translate_io_error(error, get_source_name(source))):
        return bool(source.seekable())


def _open_file_object_stream(source: Any) -> StreamSource:
    """A file object, a descriptor or a socket, to be read from its position."""
    if isinstance(source, socket.socket):
        return StreamSource(_with_translated_errors(source.recv_into, "socket"), "socket")
    if _is_descriptor(source):
        name = f"descriptor {source}"
        return StreamSource(_with_translated_errors(lambda view: os.readv(source, [view]), name), name)
    file = unwrap_text_file(source)
    name = get_source_name(file)
    if callable(getattr(file, "readinto", None)):
        return StreamSource(_with_translated_errors(lambda view: _call_readinto(file, view), name), name)
    if callable(getattr(source, "read", None)):
        return StreamSource(_with_translated_errors(lambda view: _call_read(source, view), name), name)
    raise InvalidArgumentError(
        f"expected a path, bytes, a binary file object, a descriptor or a socket to read, not {type(source).__name__}"
    )


def open_path(path: str | os.PathLike[str]) -> MemorySource | StreamSource:
    """Map the regular file at a path; open another, such as a named pipe, for sequential reading."""
    name = redact(os.fspath(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:
        raise InvalidArgumentError(f"{name!r} is not a valid path: {error}") from None
    except OSError as error:
        raise translate_io_error(error, name, "opened") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return map_descriptor(descriptor, name)
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise is_directory_error(name)
    return StreamSource(
        _with_translated_errors(lambda view: os.readv(descriptor, [view]), name), name, lambda: os.close(descriptor)
    )


def open_growing(source: Any, timeout_s: float | None) -> StreamSource:
    """Open the file at a path for sequential reading that waits at its end; errors as from `GrowingFile.read`.

    Raises `InvalidArgumentError` for anything else: what pipes and sockets return ends when the writer has closed them.
    """
    location = fsspec_store.find_store_location(source)
    path = fsspec_store.get_local_path(*location) if location else source
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError(f"follow=True expects the path of a local file, not {type(source).__name__}")
    opened = open_path(path)
    if isinstance(opened, StreamSource):
        return opened
    with closing(opened):
        descriptor = os.dup(opened.descriptor)
    file = GrowingFile(descriptor, path, opened.name, timeout_s)
    return StreamSource(file.read, opened.name, file.close)


def map_descriptor(descriptor: int, name: str) -> MemorySource:
    """Map the regular file of a descriptor, or copy a small one. The source owns the descriptor."""
    try:
        size_bytes = os.fstat(descriptor).st_size
        is_copied = size_bytes <= _MAX_COPIED_FILE_BYTES
        owner: Any = os.pread(descriptor, size_bytes, 0) if is_copied else map_file(descriptor, size_bytes)
        return MemorySource(Memory(owner), name, descriptor)
    except OSError as error:
        os.close(descriptor)
        raise translate_io_error(error, name, "mapped") from None
    except BaseException:
        os.close(descriptor)
        raise


def _open_memory(source: Any) -> MemorySource | None:
    if getattr(source, "closed", False) is True:
        raise ClosedError(f"{get_source_name(source)}: the file object is closed")
    if isinstance(source, Memory):
        return MemorySource(source, "memory")
    if isinstance(source, Buffer):
        is_whole = source.offset == 0 and source.size == source.memory.size
        return MemorySource(source.memory if is_whole else Memory(source.bytes), "buffer")
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
        raise InvalidArgumentError(f"expected contiguous bytes, found a {type(source).__name__} with strides")
    return MemorySource(Memory(view), type(source).__name__)


def _get_descriptor(source: Any) -> int | None:
    """The descriptor of a file object that returns the file's own bytes; None if it decompresses."""
    if _is_descriptor(source):
        return int(source)
    raw = getattr(unwrap_text_file(source), "raw", unwrap_text_file(source))
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _is_descriptor(source: Any) -> bool:
    return isinstance(source, int) and not isinstance(source, bool)


def _close_all(files: Iterable[Any]) -> None:
    """Close file objects, in this order."""
    for file in files:
        file.close()


def _call_readinto(source: Any, view: memoryview) -> int:
    filled = source.readinto(view)
    if filled is None:
        raise BlockingIOError
    return int(filled)


def _call_read(source: Any, view: memoryview) -> int:
    size_bytes = min(len(view), _MAX_READ_BYTES)
    chunk = source.read(size_bytes)
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"expected a binary file object, but read() returned {type(chunk).__name__}")
    if len(chunk) > size_bytes:
        raise InvalidArgumentError(f"{get_source_name(source)}: read({size_bytes}) returned {len(chunk)} bytes")
    view[: len(chunk)] = chunk
    return len(chunk)


def _with_translated_errors(
    read: Callable[[memoryview], int], name: str, path: str | None = None
) -> Callable[[memoryview], int]:
    def read_translated(view: memoryview) -> int:
        # A caller's file object may raise any exception, as decompressors do.
        with translated_errors(lambda error: translate_io_error(error, name, path=path)):
            return read(view)

    return read_translated


def open_at_position(source: Any) -> MemorySource | StreamSource:
    """Open a source for reading from its current position; a regular file is mapped."""
    source = getattr(source, "buffer", source) if hasattr(source, "encoding") else source
    if isinstance(source, int) or (hasattr(source, "fileno") and hasattr(source, "read")):
        try:
            descriptor = source if isinstance(source, int) else source.fileno()
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except (OSError, ValueError):
            is_regular = False
        if is_regular:
            name = getattr(source, "name", None)
            label = name if isinstance(name, str) else f"descriptor {descriptor}"
            mapped_source = map_descriptor(os.dup(descriptor), "standard input" if label == "<stdin>" else label)
            mapped_source.position = os.lseek(descriptor, 0, os.SEEK_CUR) if isinstance(source, int) else source.tell()
            return mapped_source
    return open_sequential(source)


def open_source(source: Any) -> AnySource:
    """Open a source as `open_at_position` does, but URLs and results of `fsspec.open` by ranges."""
    return open_random_access(source) if fsspec_store.find_store_location(source) else open_at_position(source)


def ensure_random_access(source: AnySource, max_piped_bytes: int) -> RandomAccessSource:
    """Return the rest of a source for random access: a pipe is read into memory, as `read_into_memory` does."""
    if isinstance(source, StreamSource):
        return read_into_memory(source, max_piped_bytes)
    if isinstance(source, MemorySource) and source.position:
        return MemorySource(Memory(source.memory.bytes[source.position :]), source.name)
    return source


def read_into_memory(source: StreamSource, max_bytes: int) -> MemorySource:
    """Read the rest of a pipe into memory for random access. Raises `LimitError` for more than `max_bytes`."""
    content = bytearray()
    while chunk := source.read(min(_MAX_READ_BYTES, max_bytes + 1 - len(content))):
        content += chunk
        if len(content) > max_bytes:
            raise LimitError(
                f"{source.name}: a pipe or a store without ranges has to be read into memory here, and this one is "
                f"larger than the limit of {max_bytes} bytes: use the path of a local file, or raise max_piped_bytes "
                "(--max-piped-bytes)"
            )
    return MemorySource(Memory(content), source.name)


def download(source: RangeSource) -> MemorySource:
    """Copy a remote file to a temporary file without a name, and map that. Raises `ResourceError` without space."""
    descriptor, folder = open_unnamed_file(find_folders())
    try:
        check_free_space(folder, source.size, source.name)
        for offset in range(0, source.size, MAX_ROUND_BYTES):
            size_bytes = min(MAX_ROUND_BYTES, source.size - offset)
            chunk = source.fetch([(offset, size_bytes)]).find(offset, size_bytes)
            assert chunk is not None
            pwrite_all(descriptor, chunk.bytes.data, offset)
    except OSError as error:
        os.close(descriptor)
        raise translate_io_error(error, f"{source.name} in {folder}", "copied") from None
    except BaseException:
        os.close(descriptor)
        raise
    return map_descriptor(descriptor, source.name)
