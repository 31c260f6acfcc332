"""Receive batches in a thread, ahead of the loop that uses them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import ClosedError
from bowstring.memory.forks import process_token
from bowstring.memory.thread_pool import start_thread

# `interrupt` ends a call that waits for a server at once. One that waits for a store can't be ended: the loop leaves
# the thread, which is a daemon, to its call.
_JOIN_TIMEOUT_S = 5.0


class ReadAhead:
    """One iteration whose batches a thread receives, as long as those waiting have fewer than `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.interrupt: Callable[[], None] | None = None
        """Ends a call that waits for a batch; set by the source, None while there is none. Thread-safe."""
        self.batch_bytes: int | None = None
        """The bytes that the last batch keeps alive, if they are more than the batch's own."""
        self._max_bytes = max_bytes
        self._process = process_token()
        # Guards the fields below.
        self._changed = threading.Condition()
        self._waiting: deque[tuple[RecordBatch, int]] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._is_at_end = False
        self._is_needed = False
        """Whether the loop waits for a batch."""
        self._is_stopped = False

    def iterate(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches of a generator, which the thread runs and closes.

        An error of the generator is raised after the batches before it. If the loop ends early, the thread ends, too:
        at once if it waits for a server, after its call if it waits for a store. Raises `ClosedError` after `stop`, and
        in a forked child, which has no such thread.
        """
        # The generator belongs to the thread from here on: no other thread may run or close it.
        thread = start_thread(partial(self._run, batches), "bowstring-read-ahead")
        try:
            while (batch := self._take()) is not None:
                yield batch
        finally:
            self.stop()
            if self._process is process_token():
                thread.join(_JOIN_TIMEOUT_S)

    def wait_until_needed(self) -> None:
        """Wait until the loop has used all batches and waits for the next one; called by the source, in the thread.

        Raises `ClosedError` after `stop`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or (self._is_needed and not self._waiting))
            if self._is_stopped:
                raise ClosedError("the iteration was ended")

    def stop(self) -> None:
        """Drop the batches, and let the thread end. Thread-safe; idempotent."""
        if self._process is not process_token():
            return  # a thread that was not forked may hold the lock
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._changed.notify_all()
            interrupt = None if self._is_at_end else self.interrupt
        if interrupt is not None:
            interrupt()  # without the lock, since closing waits for the thread

    def _run(self, batches: Iterator[RecordBatch]) -> None:
        """Take batches until the end, an error or `stop`."""
        error: BaseException | None = None
        try:
            for batch in batches:
                nbytes = batch.nbytes  # of all columns, which a remote file fetches here
                nbytes = max(nbytes, self.batch_bytes or 0)
                with self._changed:
                    if not self._is_stopped:
                        self._waiting.append((batch, nbytes))
                        # The batch is added whatever its size, and only then is there a wait: one that exceeds the
                        # limit alone can't block for ever.
                        self._waiting_bytes += nbytes
                        self._changed.notify_all()
                    del batch  # it belongs to the loop
                    self._changed.wait_for(lambda: self._is_stopped or self._waiting_bytes < self._max_bytes)
                    if self._is_stopped:
                        break
        except BaseException as raised:  # noqa: BLE001 - raised in the loop
            error = raised
        finally:
            batches.close()  # type: ignore[attr-defined]
        with self._changed:
            self._error, self._is_at_end = error, True
            self._changed.notify_all()

    def _take(self) -> RecordBatch | None:
        """Return the next batch; None after the last. Raises the error of the source."""
        if self._process is not process_token():
            raise ClosedError("the batches are received ahead in the parent process: iterate again in the child")
        with self._changed:
            self._is_needed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._is_at_end or self._is_stopped)
            self._is_needed = False
            if self._is_stopped:
                raise ClosedError("the data set was closed while it was read")
            if self._waiting:
                batch, nbytes = self._waiting.popleft()
                self._waiting_bytes -= nbytes
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None
