"""Everything that Bowstring raises on purpose, in one hierarchy.

A caller's fault, malformed data, a limit, a peer and the machine are told apart::

    BowstringError
    ├── UsageError               the caller asked for something that makes no sense        (also ValueError)
    │   ├── DataTypeError        a value does not fit the data type that was asked for     (also TypeError)
    │   ├── NotFoundError        no such column, batch, dataset, file or partition         (also KeyError)
    │   ├── WouldCopyError       no copy was allowed, but the layout needs one
    │   ├── NotShareableError    memory that a protocol without nulls cannot hand over         (also BufferError)
    │   ├── ClosedError          a handle was used after it was closed
    │   └── UnsupportedTypeError a type that has no counterpart on the other side, named with its column path
    ├── MissingExtraError        an optional package is not installed; names the extra     (also ImportError)
    ├── InvalidDataError         bytes from outside break the specification                (also ValueError)
    │   ├── TruncatedError       the bytes end before the structure does
    │   ├── FormatMismatchError  another format than the one asked for (a stream given as a file, …)
    │   ├── LimitError           well formed, but beyond a limit that an option can raise
    │   └── UnsupportedError     well formed, but a feature that this version does not read
    ├── ConnectionLostError      a peer is gone or does not answer                         (also ConnectionError)
    │   └── DeadlineError        a peer did not answer in time                             (also TimeoutError)
    ├── ProtocolError            a peer breaks the Dissociated IPC protocol
    ├── ResourceError            shared memory, memory, disk or descriptors are short      (also OSError)
    └── EnvironmentProblemError  something that has to be installed or configured (Java, Spark)

Only these come out of malformed data. A message says what was read, where, what was expected and what was found.
"""

from __future__ import annotations


class BowstringError(Exception):
    """The base of all errors raised by Bowstring."""


class UsageError(BowstringError, ValueError):
    """The caller asked for something that makes no sense."""


class DataTypeError(UsageError, TypeError):
    """A value does not fit the data type that was asked for."""


class NotFoundError(UsageError, KeyError):
    """There is no such column, batch, dataset, file or partition."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


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


class FormatMismatchError(InvalidDataError):
    """The bytes are of another format than the one asked for."""


class LimitError(InvalidDataError):
    """The data is well formed, but beyond a limit that an option can raise."""


class UnsupportedError(InvalidDataError):
    """The data is well formed, but uses a feature that this version does not read."""


class ConnectionLostError(BowstringError, ConnectionError):
    """A peer is gone or does not answer."""


class DeadlineError(ConnectionLostError, TimeoutError):
    """A peer did not answer in time."""


class ProtocolError(BowstringError):
    """A peer breaks the Dissociated IPC protocol."""


class ResourceError(BowstringError, OSError):
    """Shared memory, memory, disk or descriptors are short."""


class EnvironmentProblemError(BowstringError, RuntimeError):
    """Something outside Bowstring has to be installed or configured first."""
