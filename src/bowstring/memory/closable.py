"""Context managers that release resources."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self


class SupportsClose(Protocol):
    """An object with a `close` method: a source, region or socket."""

    def close(self) -> None:
        """Release the resource."""


@contextmanager
def close_on_error(resource: SupportsClose) -> Iterator[None]:
    """Close a resource if the block raises an error; otherwise leave it open."""
    try:
        yield
    except BaseException:
        resource.close()
        raise


class SupportsAbandon(Protocol):
    """An object with an `abandon` method: a sink or a writer."""

    def abandon(self) -> None:
        """Discard the written bytes."""


@contextmanager
def abandon_on_error(writer: SupportsAbandon) -> Iterator[None]:
    """Abandon a sink or a writer if the block raises an error."""
    try:
        yield
    except BaseException:
        writer.abandon()
        raise


def warn_unclosed(owner: object, message: str) -> None:
    """Emit a `ResourceWarning` for an object that is finalized without being closed."""
    warnings.warn(message, ResourceWarning, stacklevel=3, source=owner)


class Closable:
    """A context manager that calls `close`."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> tuple[object, ...]:
        """Pickle the object if its class defines how; most hold files, memory or connections of this process."""
        if type(self).__reduce__ is object.__reduce__ and type(self).__getstate__ is object.__getstate__:
            raise TypeError(f"a {type(self).__name__} can't be pickled: open it in the other process")
        return super().__reduce_ex__(protocol)  # type: ignore[return-value]


class Transactional(Closable):
    """A context manager that calls `close` on success and `abandon` on an error."""

    __slots__ = ()

    @abstractmethod
    def abandon(self) -> None:
        """Undo all changes and release all resources."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
