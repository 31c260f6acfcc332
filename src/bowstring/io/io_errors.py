"""Translation of errors raised by file objects, sockets and object stores into `bowstring.errors`."""

from __future__ import annotations

import io
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
    InvalidArgumentError,
    IsDirectoryError,
    MissingExtraError,
    MissingFileError,
    ResourceError,
    TruncatedError,
    WouldBlockError,
    limit_hint,
    translate_os_error,
)

_STANDARD_STREAMS = {0: "standard input", 1: "standard output", 2: "standard error"}
_CONNECTION_ERRORS = ("Connection", "Disconnect", "Payload", "Transport")


def get_source_name(source: Any) -> str:
    """The name of a descriptor or file object for error messages: its own name if it has one, else its type."""
    if isinstance(source, int):
        return _STANDARD_STREAMS.get(source, f"descriptor {source}")
    for stream, label in ((sys.stdin, "standard input"), (sys.stdout, "standard output")):
        if source is unwrap_text_file(stream):
            return label
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else type(source).__name__


def unwrap_text_file(file: Any) -> Any:
    """The binary file of a text file object such as standard output; any other object unchanged.

    Binary file objects may have a `buffer`, too: fsspec's contains bytes that are not uploaded yet.
    """
    return getattr(file, "buffer", file) if isinstance(file, io.TextIOBase) else file


def translate_io_error(error: Exception, name: str, operation: str = "read", path: object = None) -> BowstringError:
    """The Bowstring error for an exception raised while `name` was read (`operation` "read"), "written" or "opened".

    An `OSError` keeps its built-in class, `errno` and `strerror` (`translate_os_error`); `path` is its `filename`, by
    default the `filename` of `error`. Errors of the libraries behind a store are recognised by their HTTP status and
    class names. A Bowstring error is raised again.
    """
    if isinstance(error, BowstringError):
        raise error  # returned, it would become its own cause
    error = _find_root_error(error)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    cause = error if isinstance(error, OSError) else None
    is_plain = cause is not None and type(cause).__str__ is OSError.__str__  # its text begins with "[Errno 32]"
    text = (
        (cause.strerror if cause is not None and is_plain else _describe_connection_failure(error))
        or str(error)
        or kinds[0]
    )
    status = getattr(error, "status", None)
    if isinstance(status, int) and status >= 400:
        return _translate_http_status(status, str(getattr(error, "message", "")), name, path)
    if isinstance(error, BlockingIOError):
        state = "no data is available yet" if operation == "read" else f"no more can be {operation} yet"
        return WouldBlockError(f"{name}: {state}, and the source or sink does not block", error)
    if any("Timeout" in kind for kind in kinds):
        reason = "no data arrived" if operation == "read" else f"could not be {operation}"
        return DeadlineError(f"{name}: {reason} in time", cause)
    if isinstance(error, ConnectionError) or any(word in kind for kind in kinds for word in _CONNECTION_ERRORS):
        translated = None if cause is None else translate_os_error(cause, f"{name}: {text}", path)
        return (
            translated
            if isinstance(translated, ConnectionLostError)
            else ConnectionLostError(f"{name}: {text}", cause, path)
        )
    if isinstance(error, FileNotFoundError):
        return missing_file_error(name, error, path)
    if isinstance(error, IsADirectoryError):
        return IsDirectoryError(f"{name}: is a directory", error, path)
    if isinstance(error, ImportError):
        return MissingExtraError(f"{name}: {error}")
    if isinstance(error, EOFError):
        return TruncatedError(f"{name}: {error}")
    if cause is not None:
        return translate_os_error(cause, f"{name}: cannot be {operation}: {text}{limit_hint(cause)}", path)
    if isinstance(error, ValueError) and "closed" in text:
        return ClosedError(f"{name}: {error}")
    return ResourceError(f"{name}: cannot be {operation}: {kinds[0]}: {error}")


def _describe_connection_failure(error: Exception) -> str | None:
    """The reason why a connection failed: aiohttp's text also has the address and the settings of TLS."""
    reason = getattr(error, "os_error", None)
    if isinstance(reason, ConnectionError) and reason.errno:
        return os.strerror(reason.errno)
    return reason.strerror if isinstance(reason, gaierror) else None


def is_directory_error(name: str) -> IsDirectoryError:
    """The error for a folder where a file is read."""
    return IsDirectoryError(
        f"{name}: is a directory: bowstring.read_table and bowstring.dataset read the files of one", filename=name
    )


def missing_file_error(name: str, error: FileNotFoundError | None = None, path: object = None) -> InvalidArgumentError:
    """The error for a path or URL that does not exist."""
    if name.startswith("unix:"):
        return InvalidArgumentError(
            f"{name}: is the URI of a served data set, not a path: open it with bowstring.connect"
        )
    return MissingFileError(f"{name}: there is no such file", error, name if path is None else path)


def _translate_http_status(status: int, reason: str, name: str, path: object) -> BowstringError:
    message = f"{name}: the server responded with {status} {reason}".rstrip()
    if status in (404, 410):
        return MissingFileError(message, filename=path)
    return (AccessDeniedError if status in (401, 403, 407) else ResourceError)(message, filename=path)


def _find_root_error(error: Exception) -> Exception:
    """The error behind a `FileNotFoundError` without a number: fsspec raises one for any reply of a server."""
    while isinstance(error, FileNotFoundError) and error.errno is None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error
