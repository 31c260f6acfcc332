"""What goes wrong outside, in our words: errors of file objects, sockets and stores behind a network, and whose they
are.
"""

from __future__ import annotations

import os
import sys
from socket import gaierror
from typing import Any

from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    IsDirectoryError,
    MissingExtraError,
    MissingFileError,
    ResourceError,
    TruncatedError,
    UsageError,
    WouldBlockError,
    translate_os_error,
)

_STANDARD = {0: "standard input", 1: "standard output", 2: "standard error"}
_LOST = ("Connection", "Disconnect", "Payload", "Transport")


def name_of(place: Any) -> str:
    """What a descriptor or a file object is called: by its own name where it has one, else by its kind."""
    if isinstance(place, int):
        return _STANDARD.get(place, f"descriptor {place}")
    for stream, words in ((sys.stdin, "standard input"), (sys.stdout, "standard output")):
        if place is getattr(stream, "buffer", stream):
            return words
    name = getattr(place, "name", None)
    return name if isinstance(name, str) and name else type(place).__name__


def translate_io_error(error: Exception, name: str, doing: str = "read", path: object = None) -> BowstringError:
    """The error of ours for one that was raised while `name` was read, or "written", "opened" and so on.

    An error of the operating system keeps its built-in class, `errno` and `strerror` (`translate_os_error`); `path` is
    its `filename`, by default that of `error`. Stores raise the errors of whatever library they talk through: an HTTP
    status and the names of their classes say what they are. An error of ours is raised again.
    """
    if isinstance(error, BowstringError):
        raise error  # returned, it would become its own cause
    error = _origin(error)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    cause = error if isinstance(error, OSError) else None
    is_plain = cause is not None and type(cause).__str__ is OSError.__str__  # its text begins with "[Errno 32]"
    text = (cause.strerror if cause is not None and is_plain else _reason(error)) or str(error) or kinds[0]
    status = getattr(error, "status", None)
    if isinstance(status, int) and status >= 400:
        return _http_fault(status, str(getattr(error, "message", "")), name, path)
    if isinstance(error, BlockingIOError):
        waited = "nothing is there yet" if doing == "read" else f"no more can be {doing} yet"
        return WouldBlockError(f"{name}: {waited}, and it does not block", error)
    if any("Timeout" in kind for kind in kinds):
        reason = "nothing came" if doing == "read" else f"could not be {doing}"
        return DeadlineError(f"{name}: {reason} in time", cause)
    if isinstance(error, ConnectionError) or any(word in kind for kind in kinds for word in _LOST):
        lost = None if cause is None else translate_os_error(cause, f"{name}: {text}", path)
        return lost if isinstance(lost, ConnectionLostError) else ConnectionLostError(f"{name}: {text}", cause, path)
    if isinstance(error, FileNotFoundError):
        return missing_file_error(name, error, path)
    if isinstance(error, IsADirectoryError):
        return IsDirectoryError(f"{name}: is a directory", error, path)
    if isinstance(error, ImportError):
        return MissingExtraError(f"{name}: {error}")
    if isinstance(error, EOFError):
        return TruncatedError(f"{name}: {error}")
    if cause is not None:
        return translate_os_error(cause, f"{name}: cannot be {doing}: {text}", path)
    if isinstance(error, ValueError) and "closed" in text:
        return ClosedError(f"{name}: {error}")
    return ResourceError(f"{name}: cannot be {doing}: {kinds[0]}: {error}")


def _reason(error: Exception) -> str | None:
    """Why no connection was made, where aiohttp's text has the address and the settings of TLS around it."""
    reason = getattr(error, "os_error", None)
    if isinstance(reason, ConnectionError) and reason.errno:
        return os.strerror(reason.errno)
    return reason.strerror if isinstance(reason, gaierror) else None


def missing_file_error(name: str, error: FileNotFoundError | None = None, path: object = None) -> UsageError:
    """The error for a path or URL that does not exist."""
    if name.startswith("unix:"):
        return UsageError(f"{name}: is the URI of a served data set, not a path: open it with bowstring.connect")
    return MissingFileError(f"{name}: there is no such file", error, name if path is None else path)


def _http_fault(status: int, reason: str, name: str, path: object) -> BowstringError:
    answer = f"{name}: the server answers {status} {reason}".rstrip()
    if status in (404, 410):
        return MissingFileError(answer, filename=path)
    return (AccessDeniedError if status in (401, 403, 407) else ResourceError)(answer, filename=path)


def _origin(error: Exception) -> Exception:
    """The error behind a `FileNotFoundError` without a number: fsspec raises one whatever a server answers."""
    while isinstance(error, FileNotFoundError) and error.errno is None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error
