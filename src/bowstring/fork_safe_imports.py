"""Imports that a fork waits for.

While a thread imports a module, Python locks it. A child that another thread forks meanwhile inherits the lock, without
the thread that would release it: it would wait for ever when it needs the module. Workers of PyTorch's DataLoader are
such children.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident

_importing_threads: list[int] = []
_has_imported = Condition()
# The forking thread may itself have locked a module that another one waits for.
_MAX_WAIT_S = 30.0


@contextmanager
def completed_before_forks() -> Iterator[None]:
    """Let forks of other threads wait for the imports in the block. Several threads may import at once."""
    thread = get_ident()
    with _has_imported:
        _importing_threads.append(thread)
    try:
        yield
    finally:
        with _has_imported:
            _importing_threads.remove(thread)
            _has_imported.notify_all()


def _wait_for_imports() -> None:
    _has_imported.acquire()
    _has_imported.wait_for(lambda: {get_ident()}.issuperset(_importing_threads), _MAX_WAIT_S)


def _forget_threads() -> None:
    """Keep the imports of the thread that has forked: others do not exist in the child."""
    _importing_threads[:] = [thread for thread in _importing_threads if thread == get_ident()]
    _has_imported.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports, after_in_parent=_has_imported.release, after_in_child=_forget_threads)
