"""A thread pool for work on bytes that releases the interpreter lock, such as codecs and NumPy."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_CHUNK_BYTES = 1 << 18
_MAX_THREADS = 16
_MIN_PARALLEL_BYTES = 1 << 20

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_threads(
    function: Callable[[_Item], _Result], items: Sequence[_Item], sizes_bytes: Sequence[int]
) -> list[_Result]:
    """Apply `function` to each item, in several threads if there are enough bytes. Raises the error of the first item
    that fails.

    The caller's thread works too and waits only for running threads, so `function` may call `map_in_threads` itself.
    """
    groups = (
        group_by_size(items, sizes_bytes, _CHUNK_BYTES)
        if len(items) > 1 and sum(sizes_bytes) >= _MIN_PARALLEL_BYTES
        else []
    )
    pool = _thread_pool.executor() if len(groups) > 1 else None
    if pool is None:
        return [function(item) for item in items]
    pending = deque(range(len(groups)))
    outputs: list[list[_Result]] = [[]] * len(groups)
    errors: dict[int, BaseException] = {}

    def run_pending() -> None:
        while True:
            try:
                index = pending.popleft()
            except IndexError:
                return
            try:
                outputs[index] = [function(item) for item in groups[index]]
            except BaseException as error:  # noqa: BLE001 -- the caller raises it
                errors[index] = error
                pending.clear()

    helpers: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter is shutting down
        helpers.extend(pool.submit(run_pending) for _ in range(min(_num_threads(), len(groups)) - 1))
    run_pending()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    groups.clear()  # a thread refers to them for another moment, and so to the memory of the items
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # break the reference cycle of the error and its frame
    return [output for group in outputs for output in group]


def group_by_size(items: Sequence[_Item], sizes_bytes: Sequence[int], min_bytes: int) -> list[list[_Item]]:
    """Group items, in order, by at least `min_bytes` each except the last group."""
    groups: list[list[_Item]] = [[]]
    group_bytes = 0
    for item, size_bytes in zip(items, sizes_bytes, strict=True):
        if group_bytes >= min_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(item)
        group_bytes += size_bytes
    return groups


def _num_threads() -> int:
    return min(os.cpu_count() or 1, _MAX_THREADS)


class _ThreadPool:
    """The thread pool of this process, started on first use."""

    def __init__(self) -> None:
        self.reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Drop the pool: a forked child does not inherit its parent's threads."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def executor(self) -> ThreadPoolExecutor | None:
        if _num_threads() < 2:
            return None
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_num_threads() - 1, "bowstring")
            return self._pool


_thread_pool = _ThreadPool()
