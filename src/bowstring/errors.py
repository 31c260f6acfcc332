"""The exceptions that Bowstring raises on purpose, in one hierarchy.

Invalid calls, missing packages, malformed data, lost connections and insufficient resources have a branch each::

    BowstringError
    ├── InvalidArgumentError         an invalid argument or call                           (also ValueError)
    │   ├── TypeMismatchError        a value does not fit the data type                    (also TypeError)
    │   ├── NotFoundError            no such column, batch, dataset, file or partition     (also KeyError)
    │   │   ├── MissingFileError     no file or directory with this path or URL            (also FileNotFoundError)
    │   │   └── NotDirectoryError    a file where a directory is expected                  (also NotADirectoryError)
    │   ├── IsDirectoryError         a directory where a file is expected                  (also IsADirectoryError)
    │   ├── ExistingFileError        the file to create exists                             (also FileExistsError)
    │   ├── UnavailableAddressError  an address that is in use, or not of this machine         (also OSError)
    │   ├── WouldCopyError           a copy is required, but was not allowed
    │   ├── BufferExchangeError      memory that DLPack or the buffer protocol does not support  (also BufferError)
    │   ├── ClosedError              a handle was used after it was closed
    │   └── UnsupportedTypeError     a type that the target does not support, with its column path
    ├── MissingExtraError            an optional package is not installed; names the extra (also ImportError)
    ├── InvalidDataError             data violates the specification                       (also ValueError)
    │   ├── TruncatedError           the data ends too early
    │   │   └── NoDataError          the data is empty
    │   ├── FormatMismatchError      the data has another format (a stream opened as a file, …)
    │   ├── LimitError               valid data that exceeds a limit, which an option can raise
    │   └── UnsupportedError         valid data with a feature that this version does not support
    ├── ConnectionLostError          the peer disconnected or does not respond             (also ConnectionError)
    │   ├── RefusedConnectionError   no server listens at the address                      (also ConnectionRefusedError)
    │   ├── ResetConnectionError     the peer reset the connection                         (also ConnectionResetError)
    │   ├── AbortedConnectionError   this side aborted the connection                      (also ConnectionAbortedError)
    │   ├── BrokenConnectionError    the other end of a pipe or socket is closed           (also BrokenPipeError)
    │   └── DeadlineError            the peer did not respond in time                      (also TimeoutError)
    │       └── WouldBlockError      a non-blocking descriptor is not ready                (also BlockingIOError)
    ├── ProtocolError                the peer violates the Dissociated IPC protocol
    ├── ResourceError                memory, disk space or descriptors are insufficient    (also OSError)
    │   └── AccessDeniedError        permission denied                                     (also PermissionError)
    ├── ConflictError                another writer has committed what this one would undo
    └── UnmetRequirementError        something must be installed or configured (Java, CUDA, …)

Errors of the operating system are also instances of the built-in class that Python raises for them, so that `except
FileNotFoundError` and `except PermissionError` work. They have the `errno`, `strerror` and `filename` of a built-in
`OSError`; `translate_os_error` creates them.

Malformed data raises no other exceptions. A message names what was read, where, what was expected and what was found.
"""

from __future__ import annotations

import errno
import math
import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from difflib import get_close_matches
from itertools import islice
from numbers import Real
from typing import Any, TypeVar

from bowstring.fork_safe_imports import completed_before_forks
from bowstring.redaction import redact


class BowstringError(Exception):
    """The base of all errors raised by Bowstring. Messages contain no secrets of URIs and URLs."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(arg) if isinstance(arg, str) else arg for arg in args))

    def add_note(self, note: str) -> None:
        """Add a line to what is shown of the error, without secrets."""
        super().add_note(redact(note))

    def __str__(self) -> str:
        # Messages contain names from files and peers, and terminals obey escape sequences. `KeyError` and `OSError`
        # would format their arguments in other ways.
        message = str(self.args[0]) if len(self.args) == 1 else super().__str__()
        return "\n".join(map(escape_unprintable, message.split("\n")))


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
        self.args = (redact(message),)
        self.errno = self._ERRNO if cause is None or cause.errno is None else cause.errno
        self.strerror = None if cause is None else cause.strerror
        if self.strerror is None and self.errno is not None:
            self.strerror = os.strerror(self.errno)
        if filename is None and cause is not None:
            filename = cause.filename
        self.filename = redact(filename) if isinstance(filename, str) else filename

    def __reduce__(self) -> tuple[Any, ...]:
        system = {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return type(self), self.args, {**self.__dict__, **system}


_Error = TypeVar("_Error", bound=BowstringError)


class InvalidArgumentError(BowstringError, ValueError):
    """An argument or a call is invalid."""


class TypeMismatchError(InvalidArgumentError, TypeError):
    """A value does not fit the requested data type."""


class NotFoundError(InvalidArgumentError, KeyError):
    """A column, batch, dataset, file or partition does not exist."""


class MissingFileError(_OSErrorFields, NotFoundError, FileNotFoundError):
    """A file or directory does not exist."""

    _ERRNO = errno.ENOENT


class IsDirectoryError(_OSErrorFields, InvalidArgumentError, IsADirectoryError):
    """A path is a directory where a file is expected."""

    _ERRNO = errno.EISDIR


class NotDirectoryError(_OSErrorFields, NotFoundError, NotADirectoryError):
    """A part of a path is a file where a directory is expected."""

    _ERRNO = errno.ENOTDIR


class ExistingFileError(_OSErrorFields, InvalidArgumentError, FileExistsError):
    """The file or directory to create exists."""

    _ERRNO = errno.EEXIST


class UnavailableAddressError(_OSErrorFields, InvalidArgumentError, OSError):
    """An address to listen at is in use, or not an address of this machine."""

    _ERRNO = errno.EADDRINUSE


class WouldCopyError(InvalidArgumentError):
    """A copy is required, but was not allowed."""


class BufferExchangeError(InvalidArgumentError, BufferError):
    """DLPack or the buffer protocol does not support this memory without a copy."""


class ClosedError(InvalidArgumentError):
    """A handle, reader, writer or connection was used after it was closed."""


class UnsupportedTypeError(InvalidArgumentError):
    """The target does not support a type; the message has its column path."""


def format_install_command(extra: str, distribution: str = "bowstring") -> str:
    """Return how to install an extra of Bowstring or `bowstring-networks`, from a package index or a clone."""
    folder, suffix = "." if distribution == "bowstring" else "./networks", f"[{extra}]" if extra else ""
    return f"pip install '{distribution}{suffix}', or in a clone '{folder}{suffix}'"


class MissingExtraError(BowstringError, ImportError):
    """An optional package is not installed; the message names the extra that installs it."""

    @classmethod
    def for_package(cls, package: str, extra: str, distribution: str = "bowstring") -> MissingExtraError:
        """The error for `package`, a part of the optional dependency group `extra`."""
        return cls(f"{package} is not installed: {format_install_command(extra, distribution)}")


class InvalidDataError(BowstringError, ValueError):
    """Data violates the specification."""


class TruncatedError(InvalidDataError):
    """The data ends too early."""


class NoDataError(TruncatedError):
    """The data is empty."""


class FormatMismatchError(InvalidDataError):
    """The data has another format than the requested one."""


class LimitError(InvalidDataError):
    """Valid data exceeds a limit, which an option can raise."""


class UnsupportedError(InvalidDataError):
    """Valid data uses a feature that this version does not support."""


class ConnectionLostError(_OSErrorFields, BowstringError, ConnectionError):
    """The peer disconnected or does not respond."""


class RefusedConnectionError(ConnectionLostError, ConnectionRefusedError):
    """No server listens at the address."""

    _ERRNO = errno.ECONNREFUSED


class ResetConnectionError(ConnectionLostError, ConnectionResetError):
    """The peer reset the connection."""

    _ERRNO = errno.ECONNRESET


class AbortedConnectionError(ConnectionLostError, ConnectionAbortedError):
    """This side aborted the connection."""

    _ERRNO = errno.ECONNABORTED


class BrokenConnectionError(ConnectionLostError, BrokenPipeError):
    """The other end of a pipe or a socket is closed."""

    _ERRNO = errno.EPIPE


class DeadlineError(ConnectionLostError, TimeoutError):
    """The peer did not respond in time."""

    _ERRNO = errno.ETIMEDOUT


class WouldBlockError(DeadlineError, BlockingIOError):
    """A non-blocking descriptor is not ready."""

    _ERRNO = errno.EAGAIN


class ProtocolError(BowstringError):
    """The peer violates the Dissociated IPC protocol."""


class ResourceError(_OSErrorFields, BowstringError, OSError):
    """Memory, shared memory, disk space or file descriptors are insufficient."""


class AccessDeniedError(ResourceError, PermissionError):
    """The system or a server denies permission."""

    _ERRNO = errno.EACCES


class ConflictError(BowstringError, RuntimeError):
    """Another writer has committed a change that this one would undo."""


class UnmetRequirementError(BowstringError, RuntimeError):
    """Something outside Bowstring must be installed or configured first."""


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
_ERRORS_BY_NUMBER: dict[int | None, type[BowstringError]] = {
    errno.EADDRINUSE: UnavailableAddressError,
    errno.EADDRNOTAVAIL: UnavailableAddressError,
}
"""The numbers for which Python has no class."""


def translate_os_error(error: OSError, message: str, filename: object = None) -> BowstringError:
    """Return the error of this module for an error of the operating system, with `message` as its text.

    It is an instance of the same built-in class as `error` and has its `errno`, `strerror` and `filename`; `filename`
    replaces the last one. An error of this module is returned unchanged.
    """
    if isinstance(error, BowstringError):
        return error
    # Subclasses of other libraries, such as HTTP clients, have the number, but not always the built-in class.
    if error.errno in _ERRORS_BY_NUMBER:
        return _ERRORS_BY_NUMBER[error.errno](message, error, filename)
    by_number = error if error.errno is None else OSError(error.errno, error.strerror)
    for builtin, kind in _OS_ERRORS:
        if isinstance(error, builtin) or (isinstance(by_number, builtin) and builtin is not OSError):
            return kind(message, error, filename)
    raise AssertionError(f"not an OSError: {error!r}")


def limit_hint(error: OSError) -> str:
    """Which limit is exceeded, to follow the text of an error of the operating system that does not name it; or ""."""
    if error.errno == errno.EFBIG:
        return " for `ulimit -f`, which also limits shared memory"
    return ", or the process has too many mappings (sysctl vm.max_map_count)" if error.errno == errno.ENOMEM else ""


def add_location(error: _Error, location: str, separator: str = ": ") -> _Error:
    """Return a copy of an error of this module whose message begins with a location.

    It keeps the class, `errno`, `strerror` and `filename`, other attributes and notes; its traceback is its own.
    """
    located = copy(error)
    located.args = (redact(f"{location}{separator}{error}"),)
    return located


@contextmanager
def prefix_errors(location: str) -> Iterator[None]:
    """Add a location to an `InvalidDataError` or a `TypeMismatchError` from the block."""
    try:
        yield
    except (InvalidDataError, TypeMismatchError) as error:
        raise add_location(error, location) from None


@contextmanager
def require_package(package: str, extra: str, distribution: str = "bowstring") -> Iterator[None]:
    """Raise `MissingExtraError` if the block can't import a package of the optional dependency group `extra`."""
    try:
        with completed_before_forks():
            yield
    except ImportError as error:
        raise MissingExtraError.for_package(package, extra, distribution) from error


def check_seconds(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return a positive number of seconds, the value of an option. Raises `InvalidArgumentError` for anything else."""
    seconds = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # of an integer
            seconds = float(value)
    if not (seconds > 0 or (allow_zero and seconds == 0)):
        kind = "a number of seconds of 0 or more" if allow_zero else "a positive number of seconds"
        raise InvalidArgumentError(f"{name}: expected {kind}, found {value!r:.60}")
    return seconds


def check_count(name: str, value: object, minimum: int = 0) -> int:
    """Return an integer of at least `minimum`, an option's value. Raises `InvalidArgumentError` for anything else."""
    try:
        count = minimum - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = minimum - 1
    if count < minimum:
        raise InvalidArgumentError(f"{name}: expected an integer of {minimum} or more, found {value!r:.60}")
    return count


def format_count(count: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural: "1 row", "12,000 rows", "2 record batches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def escape_unprintable(text: str) -> str:
    """Escape control characters, line ends and directional marks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def suggest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean 'a'?" for the most similar of the first thousand names; "" if none is similar."""
    # A comparison takes some microseconds.
    closest = get_close_matches(name, islice(names, 1000), 1)
    return f"; did you mean {closest[0]!r}?" if closest else ""
