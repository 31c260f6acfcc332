"""Calls in several threads: of work on bytes that releases the interpreter lock, such as codecs and NumPy, and of calls
that wait for other processes. Without memory for threads, and at the end of the interpreter, the caller works alone.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

from bowstring.errors import ResourceError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# Handing a call to a thread takes some 20 µs, decompressing a chunk several times that. Chunks that are much smaller
# than a thread's share even out items of different cost.
_CHUNK_BYTES = 1 << 18
# Copies exhaust the memory's bandwidth with fewer threads, and every process of a host has a pool of its own.
_NUM_THREADS = min(os.cpu_count() or 1, 16)
# Four chunks: for less, waking threads takes about as long as they save.
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
    if len(groups) < 2:
        return [function(item) for item in items]
    calls = _Calls(lambda group: [function(item) for item in group], groups)
    helpers: list[Future[None]] = []
    # No memory for a thread; or the interpreter is shutting down, and can't import the pool any more.
    with suppress(RuntimeError):
        if (pool := _thread_pool()) is not None:
            helpers.extend(pool.submit(calls.run) for _ in range(min(_NUM_THREADS, len(groups)) - 1))
    calls.run()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    return [output for group in calls.finish() for output in group]


def map_in_new_threads(function: Callable[[_Item], _Result], items: Iterable[_Item], max_threads: int) -> list[_Result]:
    """Apply `function` to each item, in up to `max_threads` threads, the caller's and some that end with the call.

    Raises the error of the first item that fails.
    """
    calls = _Calls(function, list(items))
    helpers: list[threading.Thread] = []
    with suppress(ResourceError):
        helpers.extend(start_thread(calls.run, "bowstring") for _ in range(min(max_threads, len(calls.items)) - 1))
    calls.run()
    for helper in helpers:
        helper.join()
    return calls.finish()


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread. Raises `ResourceError` without memory for it, and while the interpreter shuts down."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    start_checked(thread, name)
    return thread


def start_checked(thread: threading.Thread, name: str) -> None:
    """Start a thread, called `name` in errors. Raises as `start_thread`."""
    try:
        thread.start()
    except RuntimeError as error:
        cause = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        raise ResourceError(f"{name}: {error}", cause) from error


class _Calls(Generic[_Item, _Result]):
    """Calls of a function for each item, which any number of threads make."""

    def __init__(self, function: Callable[[_Item], _Result], items: list[_Item]) -> None:
        self.items = items
        self._function = function
        self._pending = deque(range(len(items)))
        self._outputs: dict[int, _Result] = {}
        self._errors: dict[int, BaseException] = {}

    def run(self) -> None:
        """Make calls that no other thread has begun, until none is left or one has failed."""
        while True:
            try:
                index = self._pending.popleft()
            except IndexError:
                return
            try:
                self._outputs[index] = self._function(self.items[index])
            except BaseException as error:  # noqa: BLE001 -- the caller raises it
                self._errors[index] = error
                self._pending.clear()

    def finish(self) -> list[_Result]:
        """Return the results in the order of the items, when all threads have returned from `run`."""
        self.items.clear()  # a thread refers to them for another moment, and so to their memory
        if self._errors:
            try:
                raise self._errors[min(self._errors)]
            finally:
                self._errors.clear()  # break the reference cycle of the error and its frame
        return [self._outputs[index] for index in sorted(self._outputs)]


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


@cache
def _thread_pool() -> ThreadPoolExecutor | None:
    """Return the thread pool of this process, started on first use; None without a second processor."""
    if _NUM_THREADS < 2:
        return None
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    return ThreadPoolExecutor(_NUM_THREADS - 1, "bowstring")


# A forked child does not inherit its parent's threads.
os.register_at_fork(after_in_child=_thread_pool.cache_clear)
