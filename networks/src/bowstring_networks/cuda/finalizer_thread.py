"""Calls that finalizers leave to a thread, because they have to wait for a device.

A finalizer runs in whatever thread drops the last reference. Waiting there would stall that thread, and calling CUDA
could end the capture of a graph. So it only adds its call to a queue; a thread waits for the device, then makes it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bowstring.errors import BowstringError, ResourceError

# Only after an error of the driver, as for a stream that is being captured; the memory is freed that much later.
_RETRY_S = 1.0


class FinalizerThread:
    """A thread that makes the calls of finalizers, and the queue of these calls."""

    def __init__(self) -> None:
        # Of the queues, only this one may be used in a finalizer that interrupts its own methods.
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]]] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run; not for finalizers."""
        # Called when memory is allocated and never in `add`: a finalizer may interrupt the code that holds this lock.
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bowstring-cuda-finalizers", daemon=True)
                self._thread.start()

    def add(self, wait: Callable[[], None], call: Callable[[], None]) -> None:
        """Make a call after `wait` has returned, in another thread; for finalizers.

        Errors of Bowstring in `call` are ignored. `wait` is repeated after `ResourceError`: what it waits for may still
        use the memory that `call` frees.
        """
        self._queue.put((wait, call))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Make no calls meanwhile. Waits for those that are being made."""
        with self._turn:
            yield

    def _run(self) -> None:
        while True:
            self._make_calls([self._queue.get()])

    def _make_calls(self, entries: list[tuple[Callable[[], None], Callable[[], None]]]) -> None:
        with self._turn:
            while not self._queue.empty():
                entries.append(self._queue.get())
        # One wait per device covers all of its calls, as they were queued before it. `_turn` is free while this sleeps,
        # so that `pause` can begin between two attempts.
        for wait in dict.fromkeys(wait for wait, _ in entries):
            while not self._try_wait(wait):
                time.sleep(_RETRY_S)
        with self._turn:
            for _, call in entries:
                with suppress(BowstringError):
                    call()

    def _try_wait(self, wait: Callable[[], None]) -> bool:
        with self._turn:
            try:
                wait()
            except ResourceError:
                return False
            except BowstringError:  # the driver is shutting down
                pass
            return True
