"""Context managers that release resources."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

_Owner = TypeVar("_Owner")


@contextmanager
def call_on_error(function: Callable[..., object], *args: object) -> Iterator[None]:
    """Call a function if the block raises an error, such as the method that closes what it would have returned."""
    try:
        yield
    except BaseException:
        function(*args)
        raise


def call_in_forked_children(function: Callable[[_Owner], object], owners: Iterable[_Owner]) -> None:
    """Call a function in each forked child for all of these objects, such as those of a `WeakSet`. An error is reported
    after the last call: closing one object must not depend on another.
    """

    def call_for_all() -> None:
        errors = []
        for owner in list(owners):
            try:
                function(owner)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise ExceptionGroup("in a forked child", errors)

    os.register_at_fork(after_in_child=call_for_all)


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
