"""Which process has created an object: a forked child inherits it, but not its threads and locks."""

from __future__ import annotations

import os
from threading import RLock

_token = object()


def process_token() -> object:
    """Return an object that only this process has, not its forked children.

    The ID of a process is not enough: a child may get the ID of an ancestor that has ended, and both are process 1 if
    they are the first ones of their namespaces.
    """
    return _token


def _replace_token() -> None:
    global _token  # noqa: PLW0603 -- of this process
    _token = object()


os.register_at_fork(after_in_child=_replace_token)


class ProcessLock:
    """A reentrant lock of each process. A forked child does not inherit a locked one, which nothing would unlock: the
    parent's other threads do not exist there.

    What the lock guards has to be valid after each change, as such a thread may not have made the next one.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[object, RLock] = {}

    @property
    def of_this_process(self) -> RLock:
        """The lock to use in a ``with`` statement, which unlocks it even if its block has forked."""
        return self._locks.setdefault(_token, RLock())
