"""A file that appears under its name when it is complete, and leaves nothing behind if it never is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from bowstring.errors import MissingFileError
from bowstring.io.os_errors import translate_io_error

_NAME_CHARACTERS = 50  # with what is put around them they fit the 255 bytes of a name, whatever letters they are


class AtomicFile:
    """A file that is written before it has its name, by its `descriptor`.

    Where the file system can do that (O_TMPFILE), it has no name at all until then: the kernel takes it away with the
    process, however that ends. Elsewhere it lies beside its place under a name that ends in `.part`. One that it
    replaces passes on who may read and write it, from the first byte on.
    """

    __slots__ = ("_beside", "_is_beside", "descriptor", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(os.fspath(path))
        folder, name = os.path.split(self.path)
        self._beside = os.path.join(folder, f".{name[:_NAME_CHARACTERS]}.{os.getpid()}.{os.urandom(6).hex()}.part")
        try:
            mode = _mode_of(self.path)
            self.descriptor = _nameless(folder, 0o666 if mode is None else mode)
            self._is_beside = self.descriptor < 0
            if self._is_beside:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self.descriptor = os.open(self._beside, flags, 0o666 if mode is None else mode)
        except OSError as error:
            name = os.fspath(path)
            if isinstance(error, FileNotFoundError) and not name.startswith("unix:") and not os.path.isdir(folder):
                raise MissingFileError(f"{name}: there is no folder {folder}", error, name) from None
            raise translate_io_error(error, name, "created", name) from None
        if mode is not None:
            with suppress(OSError):  # on a file system that can't, the mask has made it stricter at the most
                os.fchmod(self.descriptor, mode)

    def commit(self, size_bytes: int | None) -> None:
        """Give it its name, and so many bytes, if they are said. Raises `OSError`."""
        descriptor, self.descriptor = self.descriptor, -1
        try:
            if size_bytes is not None:
                os.ftruncate(descriptor, size_bytes)
            if not self._is_beside:
                try:
                    _name(descriptor, self.path)
                    return
                except FileExistsError:  # only renaming takes a name away from another file
                    _name(descriptor, self._beside)
                    self._is_beside = True
        finally:
            os.close(descriptor)
        os.replace(self._beside, self.path)

    def drop(self) -> None:
        """Remove it, unless it is in its place."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._is_beside:
            with suppress(OSError):
                os.unlink(self._beside)


def _mode_of(path: str) -> int | None:
    """Who may do what with a regular file; None where there is none."""
    try:
        held = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    return held & 0o777 if stat.S_ISREG(held) else None


def _nameless(folder: str, mode: int) -> int:
    """The descriptor of a new file without a name, to which one can be given; -1 where that can't be had."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return -1
    try:
        descriptor = os.open(folder, os.O_WRONLY | flag | os.O_CLOEXEC, mode)
    except OSError:  # whatever it is: if a file with a name can't be made either, that tells it better
        return -1
    if os.path.exists(_entry(descriptor)):
        return descriptor
    os.close(descriptor)  # without /proc it would stay without a name
    return -1


def _entry(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _name(descriptor: int, path: str) -> None:
    """Link a file without a name. The first path being absolute, `src_dir_fd` says nothing, but with it Python makes
    the call that follows links.
    """
    os.link(_entry(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)
