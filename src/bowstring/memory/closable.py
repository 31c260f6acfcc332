"""What is let go at the end of a `with` block."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self


class SupportsClose(Protocol):
    """Anything with `close`: sources, regions, sockets."""

    def close(self) -> None:
        """Let go of what is held."""


@contextmanager
def close_on_error(held: SupportsClose) -> Iterator[None]:
    """Close what was opened where the block that puts it to use fails; else it stays open."""
    try:
        yield
    except BaseException:
        held.close()
        raise


def warn_unclosed(owner: object, message: str) -> None:
    """Emit the `ResourceWarning` for an object that is finalised without having been closed."""
    warnings.warn(message, ResourceWarning, stacklevel=3, source=owner)


class Closable:
    """A context manager that closes itself."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; once more does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Transactional(Closable):
    """A context manager that closes itself where its block ends well, and else leaves nothing of what was begun."""

    __slots__ = ()

    @abstractmethod
    def abandon(self) -> None:
        """Stop, and leave things as they were before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
