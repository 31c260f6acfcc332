"""Files that appear under their path only when they are complete."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from bowstring.errors import MissingFileError
from bowstring.io.io_errors import translate_io_error

_MAX_NAME_CHARACTERS = 50  # with prefix and suffix, even 4-byte characters fit the 255 bytes of a file name


class AtomicFile:
    """A file that is written by its `descriptor` and gets its path when `place` or `commit` is called.

    If the file system supports O_TMPFILE, the file has no name until then, and the kernel removes it when the process
    ends. Otherwise it has a temporary name in the same folder that ends in `.part`. The permissions of a file that it
    replaces apply from the first byte on.
    """

    __slots__ = ("_has_temporary_path", "_temporary_path", "descriptor", "is_placed", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(os.fspath(path))
        self.is_placed = False
        folder, name = os.path.split(self.path)
        self._temporary_path = os.path.join(
            folder, f".{name[:_MAX_NAME_CHARACTERS]}.{os.getpid()}.{os.urandom(6).hex()}.part"
        )
        try:
            mode = _get_permissions(self.path)
            self.descriptor = _open_unnamed_file(folder, 0o666 if mode is None else mode)
            self._has_temporary_path = self.descriptor < 0
            if self._has_temporary_path:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self.descriptor = os.open(self._temporary_path, flags, 0o666 if mode is None else mode)
        except OSError as error:
            name = os.fspath(path)
            if isinstance(error, FileNotFoundError) and not name.startswith("unix:") and not os.path.isdir(folder):
                raise MissingFileError(f"{name}: there is no folder {folder}", error, name) from None
            raise translate_io_error(error, name, "created", name) from None
        if mode is not None:
            with suppress(OSError):  # without support, the umask makes the permissions stricter at most
                os.fchmod(self.descriptor, mode)

    def place(self) -> None:
        """Move the file to its path; it can still be written. Raises `OSError`."""
        if not self._has_temporary_path:
            try:
                _link_unnamed_file(self.descriptor, self.path)
            except FileExistsError:  # only a rename replaces another file
                _link_unnamed_file(self.descriptor, self._temporary_path)
                self._has_temporary_path = True
        if self._has_temporary_path:
            os.replace(self._temporary_path, self.path)
            self._has_temporary_path = False
        self.is_placed = True

    def commit(self) -> None:
        """Move the file to its path, and close it. Raises `OSError`."""
        try:
            if not self.is_placed:
                self.place()
        finally:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def discard(self) -> None:
        """Close the file, and remove it unless it is at its path."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._has_temporary_path:
            with suppress(OSError):
                os.unlink(self._temporary_path)


def _get_permissions(path: str) -> int | None:
    """The permissions of a regular file; None if there is none."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    return mode & 0o777 if stat.S_ISREG(mode) else None


def _open_unnamed_file(folder: str, mode: int) -> int:
    """The descriptor of a new file without a name that can be linked later; -1 if unsupported."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return -1
    try:
        descriptor = os.open(folder, os.O_WRONLY | flag | os.O_CLOEXEC, mode)
    except OSError:  # creating a named file raises the better error
        return -1
    if os.path.exists(_get_descriptor_path(descriptor)):
        return descriptor
    os.close(descriptor)  # without /proc it can't be linked
    return -1


def _get_descriptor_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _link_unnamed_file(descriptor: int, path: str) -> None:
    """Link a file without a name. `src_dir_fd` has no effect with an absolute path, but makes Python call the function
    that follows symbolic links.
    """
    os.link(_get_descriptor_path(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)
