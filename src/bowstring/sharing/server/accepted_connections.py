"""The connections that a server or a host agent has accepted: silent until the first request, then active."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_Connection = TypeVar("_Connection")


class AcceptedConnections(Generic[_Connection]):
    """The silent and the active connections, each in the order in which they came. Of one thread.

    Processes that connect and send nothing must not keep others out: at a limit, the oldest silent connection makes
    room for a new one. `end` ends it, and removes it from here.
    """

    def __init__(self, end: Callable[[_Connection], None]) -> None:
        self.silent: dict[_Connection, None] = {}
        self.active: dict[_Connection, None] = {}
        self._end = end

    def __len__(self) -> int:
        return len(self.silent) + len(self.active)

    def add(self, connection: _Connection) -> None:
        """Add a connection without a request."""
        self.silent[connection] = None

    def activate(self, connection: _Connection) -> None:
        """Count a connection as active: its first request has arrived. Idempotent."""
        self.silent.pop(connection, None)
        self.active[connection] = None

    def remove(self, connection: _Connection) -> None:
        """Remove a connection. Idempotent."""
        self.silent.pop(connection, None)
        self.active.pop(connection, None)

    def end_oldest_silent(self) -> bool:
        """End the oldest connection without a request; return False if there is none."""
        connection = next(iter(self.silent), None)
        if connection is not None:
            self._end(connection)
        return connection is not None
