"""Follow the batches of a streaming query, each of which is a published data set: `bowstring.spark.publish_stream`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets.dataset import slice_batches
from bowstring.datasets.published_dataset import DEFAULT_TIMEOUT_S, PublishedDataset, open_published
from bowstring.errors import ConnectionLostError, InvalidDataError, NotFoundError, check_seconds
from bowstring.sharing.agent.directory import list_published
from bowstring.sharing.agent.publications import QueryBatchId

# Many triggers of a usual query.
DEFAULT_WAIT_S = 60.0

# Of `state_dict`; others are rejected.
_STATE_VERSION = 1
# The agents are asked, and do not call back: soon after a batch, then rarely, so that many idle readers cost little.
_MIN_POLL_S, _MAX_POLL_S = 0.01, 0.2


class PublishedQuery:
    """Iterates over the record batches of a streaming query that is published as `name`, in order, as they arrive.

    It begins with the oldest batch that is still published, or at the position `state`, from `state_dict` of any
    process. The iteration ends when no batch has arrived for `timeout_s`: the query has ended, or its driver is
    restarting. It can then be continued, with each row once. Memory is shared, and freed after its last user.

    The iteration raises `NotFoundError` if the next batch has been freed, because newer ones replaced it, and
    `InvalidDataError` if the state belongs to another query. Raises `InvalidArgumentError`.
    """

    def __init__(self, name: str, state: Mapping[str, Any] | None = None, *, timeout_s: float = DEFAULT_WAIT_S) -> None:
        self.name = name
        self._timeout_s = check_seconds("timeout_s", timeout_s)
        self._query: str | None = None
        self._batch: int | None = None
        self._row = 0
        if state is not None:
            self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last record batch that the iteration has yielded, which can be stored as JSON:
        the query, the number of the batch, and the index in it of the next row.
        """
        return {"version": _STATE_VERSION, "query": self._query, "batch": self._batch, "row": self._row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a position of `state_dict`. Raises `InvalidDataError`."""
        query, batch, row = state.get("query"), state.get("batch"), state.get("row")
        is_start = query is None and batch is None and row == 0
        is_position = isinstance(query, str) and all(type(number) is int and number >= 0 for number in (batch, row))
        if state.get("version") != _STATE_VERSION or not (is_start or is_position):
            raise InvalidDataError(f"state: expected the position of a query, found {dict(state)!s:.200}")
        self._query, self._batch, self._row = query, batch, int(row or 0)

    def __iter__(self) -> Iterator[RecordBatch]:
        deadline_s, poll_s = time.monotonic() + self._timeout_s, _MIN_POLL_S
        while True:
            dataset = self._open_next()
            if dataset is not None:
                yield from self._read(dataset)
                deadline_s, poll_s = time.monotonic() + self._timeout_s, _MIN_POLL_S
            elif time.monotonic() >= deadline_s:
                return
            else:
                time.sleep(poll_s)
                poll_s = min(2 * poll_s, _MAX_POLL_S)

    def _open_next(self) -> PublishedDataset | None:
        """Open the batch at the position; None if it is not published yet."""
        dataset_id = self._find_next()
        try:
            return None if dataset_id is None else open_published(dataset_id)
        except NotFoundError:
            return None  # freed since; the next search finds newer ones, if any

    def _find_next(self) -> str | None:
        """Return the ID of the data set of the batch at the position; None if it is not published yet."""
        batches: dict[str, dict[int, str]] = {}  # of each query of this name, those published last first
        for _, summary in list_published(DEFAULT_TIMEOUT_S, self.name):
            batch = QueryBatchId.parse(summary.id)
            if batch is not None and batch.name == self.name:
                batches.setdefault(batch.query, {}).setdefault(batch.number, summary.id)
        if self._query is None and batches:
            self._query = next(iter(batches))
            self._batch = min(batches[self._query])
        if self._query is None or self._batch is None:
            return None
        if batches and self._query not in batches:
            raise InvalidDataError(
                f"query {self.name!r}: another query is published with this name: start without a state"
            )
        numbers = batches.get(self._query, {})
        if self._batch not in numbers and any(number > self._batch for number in numbers):
            raise NotFoundError(
                f"query {self.name!r}: batch {self._batch} was freed; the oldest is {min(numbers)}: set keep of "
                f"publish_stream to more batches, or start without a state"
            )
        return numbers.get(self._batch)

    def _read(self, dataset: PublishedDataset) -> Iterator[RecordBatch]:
        """Yield the rows of a batch from the position on."""
        assert self._batch is not None
        next_batch = self._batch + 1
        try:
            for batch in slice_batches(dataset, self._row, dataset.num_rows):
                # Counted before it is passed on: a caller that saves the state has received the rows.
                self._row += batch.num_rows
                if self._row >= dataset.num_rows:
                    self._batch, self._row = next_batch, 0
                yield batch
        except (ConnectionLostError, NotFoundError):
            if self._find_next() == dataset.id:
                raise
            return  # freed before it was read
        if self._row >= dataset.num_rows:  # it had no rows left
            self._batch, self._row = next_batch, 0


def follow_published(
    name: str, state: Mapping[str, Any] | None = None, *, timeout_s: float = DEFAULT_WAIT_S
) -> PublishedQuery:
    """Return an iterator over the record batches of a query that `bowstring.spark.publish_stream` publishes as `name`.

    See `PublishedQuery`.
    """
    return PublishedQuery(name, state, timeout_s=timeout_s)
