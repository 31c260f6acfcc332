"""Calls in a forked child while a thread of the parent has locks."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack


def call_in_forked_child(call: Callable[[], object], locks: Sequence[AbstractContextManager[object]]) -> int | None:
    """Return the exit code of the child; None if it does not end."""
    is_locked, may_unlock = threading.Event(), threading.Event()

    def hold_locks() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            is_locked.set()
            may_unlock.wait()

    thread = threading.Thread(target=hold_locks)
    thread.start()
    try:
        is_locked.wait()
        child = multiprocessing.get_context("fork").Process(target=call)
        child.start()
        child.join(20)
        exit_code = child.exitcode
        if exit_code is None:
            child.kill()
            child.join()
        return exit_code
    finally:
        may_unlock.set()
        thread.join()
