"""Where bytes go: paths (atomically), descriptors and sockets by vectored calls, file objects."""

from __future__ import annotations

import io
import os
import select
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from bowstring.errors import ClosedError, IsDirectoryError, UsageError
from bowstring.io import fsspec_store
from bowstring.io.atomic_file import AtomicFile
from bowstring.io.os_errors import name_of, translate_io_error
from bowstring.memory.descriptors import IOV_MAX, reserve
from bowstring.memory.iovec import Parts, remaining_vectors, write_vectors

_SMALL = 1 << 15
_GATHER = 1 << 20
_WORTH_RESERVING = 1 << 22
_RESERVED_AT_ONCE = 1 << 25


class Sink(Protocol):
    """Takes bytes in order. `name` is what errors and warnings call it."""

    name: str
    position: int

    def write(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Take the parts, `size_bytes` in all. Nothing of the caller's memory is kept."""

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Take a message: its head, and the parts of its body, `body_bytes` in all. Nothing of them is kept."""

    def finish(self) -> None:
        """Everything is written: make it visible."""

    def abandon(self) -> None:
        """Something failed: leave nothing behind where that is possible."""


@runtime_checkable
class Rewritable(Protocol):
    """A sink that can go back: a path, as nobody sees the file yet, and memory.

    A descriptor or a socket may be a pipe; a file object that can seek may be one that is appended to.
    """

    def overwrite(self, at: int, data: bytes) -> None:
        """Put other bytes in the place of some that have been written, `at` bytes from where the sink began."""


class VectorSink:
    """Writes by vectored calls; many small pieces are gathered first, as a call costs more than copying them.

    `send` is os.writev with a descriptor, or a socket's sendmsg. `file` is the descriptor of a regular file: elsewhere
    somebody waits for what is written, so nothing is gathered.
    """

    __slots__ = ("_file", "_held", "_send", "name", "position")

    def __init__(self, send: Callable[[Sequence[Any]], int], name: str, file: int | None = None) -> None:
        self._send = send
        self.name = name
        self._file = file
        self._held = bytearray()
        self.position = 0

    def write(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Take the parts, `size_bytes` in all."""
        self.position += size_bytes
        if self._file is not None and size_bytes <= _SMALL:
            self._held += b"".join(parts)
            if len(self._held) >= _GATHER:
                self._flush()
            return
        if self._held:
            self._flush()
        self._out(parts)

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Take a message; the body goes from where it lies to a regular file without an object for each buffer."""
        file = self._file
        if file is None or body_bytes <= _SMALL or not isinstance(body, Parts):
            self.write([head, *body], len(head) + body_bytes)
            return
        self.position += len(head) + body_bytes
        self._held += head
        self._flush()
        vectors = body.vectors()
        while len(vectors):
            sent = self._call(lambda some: write_vectors(file, some), vectors[:IOV_MAX])
            vectors = remaining_vectors(vectors, sent)

    def _flush(self) -> None:
        held, self._held = self._held, bytearray()
        if held:
            self._out([held])

    def _out(self, parts: Sequence[Any]) -> None:
        for start in range(0, len(parts), IOV_MAX):
            some = parts[start : start + IOV_MAX] if len(parts) > IOV_MAX else parts
            left = sum(map(len, some))
            while left:
                sent = self._call(self._send, some)
                left -= sent
                if left:
                    some = _rest(some, sent)

    def _call(self, send: Callable[[Any], int], parts: Any) -> int:
        try:
            return send(parts)
        except OSError as error:
            raise translate_io_error(error, self.name, "written") from None

    def finish(self) -> None:
        """Write what was gathered."""
        self._flush()

    def abandon(self) -> None:
        """Forget what was gathered; what is written stays."""
        self._held.clear()


def _rest(parts: Sequence[Any], sent: int) -> list[Any]:
    """What is left of parts after so many bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


class PathSink(VectorSink):
    """A file that appears under its name when it is complete, and not at all if something fails."""

    __slots__ = ("_new", "_path", "_room")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._new = new = AtomicFile(path)
        self._path = new.path
        self._room = 0
        super().__init__(lambda parts: os.writev(new.descriptor, parts), os.fspath(path), new.descriptor)

    def write(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Take the parts, `size_bytes` in all."""
        self.reserve_space(size_bytes)
        super().write(parts, size_bytes)

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Take a message."""
        self.reserve_space(len(head) + body_bytes)
        super().write_message(head, body, body_bytes)

    def overwrite(self, at: int, data: bytes) -> None:
        """Put other bytes in the place of some that have been written."""
        self._flush()
        sent = 0
        while sent < len(data):
            sent += self._call(lambda start: os.pwrite(self._new.descriptor, data[start:], at + start), sent)

    def skip(self, size_bytes: int) -> tuple[int, int]:
        """Go on after so many bytes, which the caller writes itself: the file's descriptor, and where they belong."""
        self._flush()
        at = self.position
        self.position += size_bytes
        os.lseek(self._new.descriptor, self.position, os.SEEK_SET)
        return self._new.descriptor, at

    def reserve_space(self, size_bytes: int) -> None:
        """Have a disk reserve room for what comes next, in large steps, where the file is a large one.

        `finish` gives back what is left of it. In memory, where device numbers have no major part, it does not pay.
        """
        end = self.position + size_bytes
        if end > self._room and end >= _WORTH_RESERVING:
            length_bytes = size_bytes + _RESERVED_AT_ONCE
            is_on_disk = os.major(os.fstat(self._new.descriptor).st_dev) != 0
            is_reserved = is_on_disk and reserve(self._new.descriptor, self.position, length_bytes)
            self._room = self.position + length_bytes if is_reserved else sys.maxsize

    def finish(self) -> None:
        """Write what was gathered and put the file in its place."""
        super().finish()
        try:
            self._new.commit(self.position if self._room > self.position else None)
        except OSError as error:
            raise translate_io_error(error, self.name, "put in its place", self.name) from None

    def abandon(self) -> None:
        """Remove the unfinished file."""
        super().abandon()
        self._new.drop()


class ObjectSink:
    """A file object with `write`; large pieces are handed over as they are."""

    __slots__ = ("_file", "_held", "name", "position")

    def __init__(self, file: Any, name: str | None = None) -> None:
        self._file = file
        self.name = name_of(file) if name is None else name
        self._held = bytearray()
        self.position = 0

    def write(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Take the parts, `size_bytes` in all."""
        self.position += size_bytes
        for part in parts:
            if len(part) <= _SMALL:
                self._held.extend(part)
                if len(self._held) >= _GATHER:
                    self._flush()
            else:
                self._flush()
                self._out(part)

    def write_message(self, head: bytes, body: Sequence[Any], body_bytes: int) -> None:
        """Take a message."""
        self.write([head, *body], len(head) + body_bytes)

    def _flush(self) -> None:
        held, self._held = self._held, bytearray()
        if held:
            self._out(held)

    def _out(self, part: Any) -> None:
        view = memoryview(part)
        while view.nbytes:
            try:
                written = self._file.write(view)
            except TypeError as error:
                raise UsageError(f"expected a binary file object to write to: {error}") from None
            except Exception as error:
                raise translate_io_error(error, self.name, "written") from error
            if written is None or not isinstance(written, int) or written >= len(view):
                return
            view = view[written:]

    def finish(self) -> None:
        """Hand over what was gathered, and flush the file object if it can."""
        self._flush()
        if callable(getattr(self._file, "flush", None)):
            try:
                self._file.flush()
            except Exception as error:
                raise translate_io_error(error, self.name, "written") from error

    def abandon(self) -> None:
        """Forget what was gathered; what is written stays."""
        self._held.clear()


class MemorySink(ObjectSink):
    """Memory, as the standard library has it (`io.BytesIO`); what was in it before stays."""

    __slots__ = ()

    def overwrite(self, at: int, data: bytes) -> None:
        """Put other bytes in the place of some that have been written."""
        self._flush()
        end = self._file.tell()
        self._file.seek(end - self.position + at)
        self._file.write(data)
        self._file.seek(end)


class StoreSink(ObjectSink):
    """A file of a store, which appears under its name when it is complete, as far as the store can do that."""

    __slots__ = ("_upload",)

    def __init__(self, upload: fsspec_store.Upload) -> None:
        super().__init__(upload, upload.path)
        self._upload = upload

    def finish(self) -> None:
        """Hand over what was gathered and make the file appear."""
        super().finish()
        self._upload.commit()

    def abandon(self) -> None:
        """Drop what was handed over."""
        super().abandon()
        self._upload.discard()


def open_sink(sink: Any) -> Sink:
    """A sink for a path, a URL, a descriptor, a socket or a binary file object. Raises `UsageError` for anything else,
    `MissingExtraError` for a URL where fsspec is not installed.
    """
    found = fsspec_store.find_location(sink)
    if found is not None:
        local = fsspec_store.local_path(*found)
        if local is None:
            return StoreSink(fsspec_store.Upload(*found))
        sink = local
    if isinstance(sink, str | os.PathLike):
        path = os.fspath(sink)
        try:
            special = not stat.S_ISREG(os.stat(path).st_mode)
        except OSError:
            special = False
        except ValueError as error:
            raise UsageError(f"{path!r} is no path: {error}") from None
        if not special:
            return PathSink(path)
        if os.path.isdir(path):
            raise IsDirectoryError(f"{path}: is a directory", filename=path)
        try:
            return _DescriptorSink(os.open(path, os.O_WRONLY | os.O_CLOEXEC), path)
        except OSError as error:
            raise translate_io_error(error, path, "opened") from None
    if isinstance(sink, int) and not isinstance(sink, bool):
        return VectorSink(_writer(sink), name_of(sink), sink if _is_file(sink) else None)
    if isinstance(sink, socket.socket):
        return VectorSink(sink.sendmsg, "socket")
    sink = getattr(sink, "buffer", sink)  # standard output as text has its bytes behind it
    if getattr(sink, "closed", False) is True:
        raise ClosedError(f"{type(sink).__name__}: the file object is closed")
    if callable(getattr(sink, "write", None)):
        return MemorySink(sink) if isinstance(sink, io.BytesIO) else ObjectSink(sink)
    raise UsageError(
        f"expected a path, a binary file object, a descriptor or a socket to write to, not {type(sink).__name__}"
    )


def reject_same_file(sources: Iterable[Any], sink: Any) -> None:
    """Raise `UsageError` if a sink is one of the sources: the same file by any path, link, descriptor or file object,
    the same file of a store, or the same `BytesIO`.

    A terminal, a pipe or another special file may be both.
    """
    target = _identity(sink)
    for source in sources if target is not None else ():
        if _identity(source) == target:
            name = sink if isinstance(sink, str | os.PathLike) else name_of(sink)
            raise UsageError(f"{name}: is the file to read as well as the file to write: write to another name")


def _identity(place: Any) -> tuple[Any, ...] | None:
    """What distinguishes the file behind a source or a sink from others; None if there is no regular file."""
    place = getattr(place, "buffer", place)
    stored = fsspec_store.find_location(place) or fsspec_store.find_location_of_file(place)
    if stored is not None:
        place = fsspec_store.local_path(*stored)
        if place is None:
            return stored
    if isinstance(place, io.BytesIO):
        return (id(place),)
    try:
        if isinstance(place, str | os.PathLike):
            status = os.stat(place)
        else:
            status = os.fstat(place if isinstance(place, int) else place.fileno())
    except (OSError, ValueError, AttributeError, TypeError):  # not there, or not a file: opening it says what is wrong
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


class _DescriptorSink(VectorSink):
    """A special file, such as a named pipe, opened by its path."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        super().__init__(_writer(descriptor), path)

    def finish(self) -> None:
        super().finish()
        self.abandon()

    def abandon(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError as error:
        raise translate_io_error(error, name_of(descriptor), "written") from None


def _writer(descriptor: int) -> Callable[[Sequence[Any]], int]:
    def write(parts: Sequence[Any]) -> int:
        while True:
            try:
                return os.writev(descriptor, parts)
            except BlockingIOError:
                select.select([], [descriptor], [], 60.0)

    return write
