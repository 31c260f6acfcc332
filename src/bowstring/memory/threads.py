"""Work on bytes, shared out among threads: for what lets go of the interpreter lock, such as codecs and NumPy."""

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
_MOST_THREADS = 16
_WORTH_THREADS_BYTES = 1 << 20

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def map_in_threads(work: Callable[[_Job], _Result], jobs: Sequence[_Job], sizes_bytes: Sequence[int]) -> list[_Result]:
    """`work` done on each of the jobs, by several threads where there is enough of it; raises the error of the first
    job that has one.

    The caller's thread works too and waits for no other but those that are at work, so that work may come here again.
    """
    groups = (
        group_by_size(jobs, sizes_bytes, _CHUNK_BYTES)
        if len(jobs) > 1 and sum(sizes_bytes) >= _WORTH_THREADS_BYTES
        else []
    )
    pool = _threads.pool() if len(groups) > 1 else None
    if pool is None:
        return [work(job) for job in jobs]
    waiting = deque(range(len(groups)))
    done: list[list[_Result]] = [[]] * len(groups)
    errors: dict[int, BaseException] = {}

    def take_turns() -> None:
        while True:
            try:
                place = waiting.popleft()
            except IndexError:
                return
            try:
                done[place] = [work(job) for job in groups[place]]
            except BaseException as error:  # noqa: BLE001 -- the caller raises it
                errors[place] = error
                waiting.clear()

    helpers: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter is shutting down
        helpers.extend(pool.submit(take_turns) for _ in range(min(_cores(), len(groups)) - 1))
    take_turns()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            errors.clear()  # or the error would keep itself, and the jobs
    return [result for group in done for result in group]


def group_by_size(jobs: Sequence[_Job], sizes_bytes: Sequence[int], least_bytes: int) -> list[list[_Job]]:
    """Jobs in groups, in their order, of at least so many bytes each but the last."""
    groups: list[list[_Job]] = [[]]
    held = 0
    for job, size_bytes in zip(jobs, sizes_bytes, strict=True):
        if held >= least_bytes:
            groups.append([])
            held = 0
        groups[-1].append(job)
        held += size_bytes
    return groups


def _cores() -> int:
    return min(os.cpu_count() or 1, _MOST_THREADS)


class _Threads:
    """The threads of this process, begun when there is work for them."""

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """A forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def pool(self) -> ThreadPoolExecutor | None:
        if _cores() < 2:
            return None
        from concurrent.futures import ThreadPoolExecutor  # it is only loaded where there is work for it

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_cores() - 1, "bowstring")
            return self._pool


_threads = _Threads()
