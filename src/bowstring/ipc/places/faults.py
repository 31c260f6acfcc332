"""What goes wrong outside, in our words: errors of file objects, sockets and stores behind a network, and whose they
are.
"""

from __future__ import annotations

import sys
from typing import Any

from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    MissingExtraError,
    NotFoundError,
    ResourceError,
    TruncatedError,
    UsageError,
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


def fault(error: Exception, name: str, doing: str = "read") -> BowstringError:
    """The error of ours for one that was raised while `name` was read, or "written", "opened" and so on: whatever it
    can't be.

    Stores raise the errors of whatever library they talk through, so beyond the built-in ones it is the names of their
    classes that tell a deadline and a lost connection.
    """
    if isinstance(error, BowstringError):
        return error
    kinds = [kind.__name__ for kind in type(error).__mro__]
    text = str(error) or kinds[0]
    if isinstance(error, BlockingIOError):
        waited = "nothing is there yet" if doing == "read" else f"no more can be {doing} yet"
        return DeadlineError(f"{name}: {waited}, and it does not block")
    if any("Timeout" in kind for kind in kinds):
        return DeadlineError(f"{name}: {'nothing came' if doing == 'read' else f'could not be {doing}'} in time")
    if isinstance(error, ConnectionError) or any(word in kind for kind in kinds for word in _LOST):
        return ConnectionLostError(f"{name}: {text}")
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"{name}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{name}: is a directory")
    if isinstance(error, ImportError):
        return MissingExtraError(f"{name}: {error}")
    if isinstance(error, EOFError):
        return TruncatedError(f"{name}: {error}")
    if isinstance(error, OSError):
        return ResourceError(f"{name}: cannot be {doing}: {error.strerror or text}")
    if isinstance(error, ValueError) and "closed" in text:
        return ClosedError(f"{name}: {error}")
    return ResourceError(f"{name}: cannot be {doing}: {kinds[0]}: {error}")
