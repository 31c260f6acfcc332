"""Everything that Bowstring raises on purpose, in one hierarchy.

A caller's fault, malformed data, a limit, a peer and the machine are told apart::

    BowstringError
    ├── UsageError                   the caller asked for something that makes no sense    (also ValueError)
    │   ├── DataTypeError            a value does not fit the data type                    (also TypeError)
    │   ├── NotFoundError            no such column, batch, dataset, file or partition     (also KeyError)
    │   │   ├── MissingFileError     no file or directory with this path or URL            (also FileNotFoundError)
    │   │   └── NotDirectoryError    a file where a directory is expected                  (also NotADirectoryError)
    │   ├── IsDirectoryError         a directory where a file is expected                  (also IsADirectoryError)
    │   ├── ExistingFileError        the file to create exists                             (also FileExistsError)
    │   ├── WouldCopyError           no copy was allowed, but the layout needs one
    │   ├── NotShareableError        memory that DLPack or the buffer protocol cannot express  (also BufferError)
    │   ├── ClosedError              a handle was used after it was closed
    │   └── UnsupportedTypeError     a type without a counterpart on the other side, named with its column path
    ├── MissingExtraError            an optional package is not installed; names the extra (also ImportError)
    ├── InvalidDataError             bytes from outside break the specification            (also ValueError)
    │   ├── TruncatedError           the bytes end before the structure does
    │   │   └── NoDataError          there are no bytes at all
    │   ├── FormatMismatchError      another format than the expected one (a stream given as a file, …)
    │   ├── LimitError               well formed, but beyond a limit that an option can raise
    │   └── UnsupportedError         well formed, but a feature that this version does not read
    ├── ConnectionLostError          a peer is gone or does not answer                     (also ConnectionError)
    │   ├── RefusedConnectionError   nobody listens at the address                         (also ConnectionRefusedError)
    │   ├── ResetConnectionError     the peer ended the connection                         (also ConnectionResetError)
    │   ├── AbortedConnectionError   the connection was ended on this side                 (also ConnectionAbortedError)
    │   ├── BrokenConnectionError    the other end of a pipe or socket is closed           (also BrokenPipeError)
    │   └── DeadlineError            a peer did not answer in time                         (also TimeoutError)
    │       └── WouldBlockError      not ready, and the descriptor does not block          (also BlockingIOError)
    ├── ProtocolError                a peer breaks the Dissociated IPC protocol
    ├── ResourceError                shared memory, memory, disk or descriptors are short  (also OSError)
    │   └── AccessDeniedError        no permission                                         (also PermissionError)
    └── EnvironmentProblemError      something that has to be installed or configured (Java, Spark)

Errors of the operating system are also instances of the built-in class that Python raises for them, so that `except
FileNotFoundError` and `except PermissionError` work. They have the `errno`, `strerror` and `filename` of a built-in
`OSError`; `translate_os_error` makes them.

Only these come out of malformed data. A message says what was read, where, what was expected and what was found.
"""

from __future__ import annotations

import errno
import os
from typing import Any


class BowstringError(Exception):
    """The base of all errors raised by Bowstring."""


class _OSErrorFields:
    """Mixed into the errors that are also an `OSError`: they have its attributes, and a plain message.

    `cause` is the built-in error with `errno`, `strerror` and `filename`; `filename` replaces the cause's.
    """

    errno: int | None
    strerror: str | None
    filename: Any
    args: tuple[Any, ...]

    _ERRNO: int | None = None
    """The number of an error that no system call reports, such as a missing file of a web server."""

    def __init__(self, message: str = "", cause: OSError | None = None, filename: object = None) -> None:
        self.args = (message,)
        self.errno = self._ERRNO if cause is None or cause.errno is None else cause.errno
        self.strerror = None if cause is None else cause.strerror
        if self.strerror is None and self.errno is not None:
            self.strerror = os.strerror(self.errno)
        if filename is None and cause is not None:
            filename = cause.filename
        self.filename = filename

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        system = {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return type(self), self.args, {**self.__dict__, **system}


class UsageError(BowstringError, ValueError):
    """The caller asked for something that makes no sense."""


class DataTypeError(UsageError, TypeError):
    """A value does not fit the data type that was asked for."""


class NotFoundError(UsageError, KeyError):
    """There is no such column, batch, dataset, file or partition."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingFileError(_OSErrorFields, NotFoundError, FileNotFoundError):
    """There is no file or directory with this path or URL."""

    _ERRNO = errno.ENOENT


class IsDirectoryError(_OSErrorFields, UsageError, IsADirectoryError):
    """A path is a directory where a file is expected."""

    _ERRNO = errno.EISDIR


class NotDirectoryError(_OSErrorFields, NotFoundError, NotADirectoryError):
    """A part of a path is a file where a directory is expected."""

    _ERRNO = errno.ENOTDIR


class ExistingFileError(_OSErrorFields, UsageError, FileExistsError):
    """The file or directory to create exists."""

    _ERRNO = errno.EEXIST


class WouldCopyError(UsageError):
    """No copy was allowed, but the layout needs one."""


class NotShareableError(UsageError, BufferError):
    """DLPack or the buffer protocol cannot hand over this memory as it is."""


class ClosedError(UsageError):
    """A handle, reader, writer or connection was used after it was closed."""


class UnsupportedTypeError(UsageError):
    """A type has no counterpart on the other side; the message names the column path."""


class MissingExtraError(BowstringError, ImportError):
    """An optional package is not installed; the message names the extra that installs it."""

    @classmethod
    def of(cls, package: str, extra: str) -> MissingExtraError:
        """The error for `package`, which comes with the optional dependency group `extra`."""
        return cls(f"{package} is not installed: pip install 'bowstring[{extra}]'")


class InvalidDataError(BowstringError, ValueError):
    """Bytes from outside break the specification."""


class TruncatedError(InvalidDataError):
    """The bytes end before the structure does."""


class NoDataError(TruncatedError):
    """There are no bytes at all."""


class FormatMismatchError(InvalidDataError):
    """The bytes are of another format than the one asked for."""


class LimitError(InvalidDataError):
    """The data is well formed, but beyond a limit that an option can raise."""


class UnsupportedError(InvalidDataError):
    """The data is well formed, but uses a feature that this version does not read."""


class ConnectionLostError(_OSErrorFields, BowstringError, ConnectionError):
    """A peer is gone or does not answer."""


class RefusedConnectionError(ConnectionLostError, ConnectionRefusedError):
    """Nobody listens at the address."""

    _ERRNO = errno.ECONNREFUSED


class ResetConnectionError(ConnectionLostError, ConnectionResetError):
    """The peer ended the connection."""

    _ERRNO = errno.ECONNRESET


class AbortedConnectionError(ConnectionLostError, ConnectionAbortedError):
    """The connection was ended on this side."""

    _ERRNO = errno.ECONNABORTED


class BrokenConnectionError(ConnectionLostError, BrokenPipeError):
    """The other end of a pipe or a socket is closed."""

    _ERRNO = errno.EPIPE


class DeadlineError(ConnectionLostError, TimeoutError):
    """A peer did not answer in time."""

    _ERRNO = errno.ETIMEDOUT


class WouldBlockError(DeadlineError, BlockingIOError):
    """A descriptor that does not block is not ready."""

    _ERRNO = errno.EAGAIN


class ProtocolError(BowstringError):
    """A peer breaks the Dissociated IPC protocol."""


class ResourceError(_OSErrorFields, BowstringError, OSError):
    """Shared memory, memory, disk or descriptors are short."""


class AccessDeniedError(ResourceError, PermissionError):
    """The system or a server denies permission."""

    _ERRNO = errno.EACCES


class EnvironmentProblemError(BowstringError, RuntimeError):
    """Something outside Bowstring has to be installed or configured first."""


_OS_ERRORS: tuple[tuple[type[OSError], type[BowstringError]], ...] = (
    (FileNotFoundError, MissingFileError),
    (IsADirectoryError, IsDirectoryError),
    (NotADirectoryError, NotDirectoryError),
    (FileExistsError, ExistingFileError),
    (PermissionError, AccessDeniedError),
    (ConnectionRefusedError, RefusedConnectionError),
    (ConnectionResetError, ResetConnectionError),
    (ConnectionAbortedError, AbortedConnectionError),
    (BrokenPipeError, BrokenConnectionError),
    (ConnectionError, ConnectionLostError),
    (BlockingIOError, WouldBlockError),
    (TimeoutError, DeadlineError),
    (OSError, ResourceError),
)


def translate_os_error(error: OSError, message: str, filename: object = None) -> BowstringError:
    """Return the error of this module for an error of the operating system, with `message` as its text.

    It is an instance of the same built-in class as `error` and has its `errno`, `strerror` and `filename`; `filename`
    replaces the last one. An error of this module is returned unchanged.
    """
    if isinstance(error, BowstringError):
        return error
    # A subclass from elsewhere, such as that of an HTTP library, has the number, but not always the built-in class.
    known = error if error.errno is None else OSError(error.errno, error.strerror)
    for builtin, kind in _OS_ERRORS:
        if isinstance(error, builtin) or (isinstance(known, builtin) and builtin is not OSError):
            return kind(message, error, filename)
    raise AssertionError(f"not an OSError: {error!r}")
