"""Which process has created an object: a forked child inherits it, but not its threads and locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

_Value = TypeVar("_Value")

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


class cached_property(Generic[_Value]):  # noqa: N801 -- as in functools
    """As `functools.cached_property` from Python 3.12 on. That of 3.11 locks the property of all objects while it
    computes a value: a child that another thread forks meanwhile would wait for that lock.
    """

    def __init__(self, function: Callable[[Any], _Value]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, _: type) -> Self: ...
    @overload
    def __get__(self, instance: object, _: type) -> _Value: ...
    def __get__(self, instance: object | None, _: type) -> Self | _Value:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value
