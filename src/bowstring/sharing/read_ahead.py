"""Receive batches in a thread, ahead of the loop that uses them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from bowstring.arrays.record_batch import RecordBatch


def read_ahead(batches: Iterator[RecordBatch], max_bytes: int) -> Iterator[RecordBatch]:
    """Yield batches that a thread takes from an iterator, as long as those waiting have fewer than `max_bytes`.

    An error of the iterator is raised after the batches before it. If the loop ends early, the thread ends after the
    batch that it is receiving, and closes the iterator.
    """
    reader = _ReadAhead(batches, max_bytes)
    thread = threading.Thread(target=reader.run, name="bowstring-read-ahead", daemon=True)
    thread.start()
    try:
        while (batch := reader.take()) is not None:
            yield batch
    finally:
        reader.stop()


class _ReadAhead:
    """The batches that wait, between the thread and the loop."""

    def __init__(self, batches: Iterator[RecordBatch], max_bytes: int) -> None:
        self._batches = batches
        self._max_bytes = max_bytes
        # Guards the fields below.
        self._changed = threading.Condition()
        self._waiting: deque[tuple[RecordBatch, int]] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._is_at_end = False
        self._is_stopped = False

    def run(self) -> None:
        """Take batches until the end, an error or `stop`."""
        error: BaseException | None = None
        try:
            for batch in self._batches:
                nbytes = batch.nbytes  # of all columns, which a remote file fetches here
                with self._changed:
                    self._waiting.append((batch, nbytes))
                    self._waiting_bytes += nbytes
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._is_stopped or self._waiting_bytes < self._max_bytes)
                    if self._is_stopped:
                        break
        except BaseException as raised:  # noqa: BLE001 - raised in the loop
            error = raised
        finally:
            self._batches.close()  # type: ignore[attr-defined]
        with self._changed:
            self._error, self._is_at_end = error, True
            self._changed.notify_all()

    def take(self) -> RecordBatch | None:
        """Return the next batch; None after the last. Raises the error of the iterator."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_at_end)
            if self._waiting:
                batch, nbytes = self._waiting.popleft()
                self._waiting_bytes -= nbytes
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None

    def stop(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._changed.notify_all()
