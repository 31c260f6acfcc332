"""Publish the batches of a streaming query: each is a data set in memory, and the newest ones can be read."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bowstring.datasets.published_dataset import DEFAULT_TIMEOUT_S, unpublish
from bowstring.errors import BowstringError, InvalidArgumentError, NotFoundError, check_count
from bowstring.sharing.agent.client import DEFAULT_TTL_S
from bowstring.sharing.agent.directory import list_published
from bowstring.sharing.agent.publications import Lifetime, QueryBatchId, check_name
from bowstring.spark.publication.frame import PublishedFrame, publish_as
from bowstring.spark.publication.options import PublishOptions, RemoteOptions
from bowstring.spark.vectors import VectorForm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# A follower that is some triggers late still finds its next batch.
DEFAULT_KEPT_BATCHES = 10

_LOGGER = logging.getLogger(__name__)
_QUERY_PROPERTY = "sql.streaming.queryId"


def publish_stream(  # noqa: PLR0913 -- all but two are options
    writer: DataStreamWriter,
    name: str,
    *,
    keep: int = DEFAULT_KEPT_BATCHES,
    ttl_s: float = DEFAULT_TTL_S,
    lifetime: Lifetime = "application",
    memory_limit: int | str | None = None,
    remote: bool | RemoteOptions | None = None,
    vectors: VectorForm = "float64",
) -> StreamingQuery:
    """Start a query that publishes each of its batches as `publish` does, and keeps the newest `keep` ones.

    `writer` is ``frame.writeStream`` with a checkpoint, a trigger and an output mode. `follow_published(name)` of
    `bowstring` iterates over the rows as they arrive, each exactly once; `open_published(name)` opens the newest batch.
    Older batches are freed after their last reader, all of them when the query ends; with the lifetime
    "detached", the newest ones remain until `ttl_s`, also for the query that a new driver continues. A batch that Spark
    repeats after a failure replaces its rows, or if it is still there, has no effect.

    Raises `InvalidArgumentError` for invalid options, and for a query of Spark Connect, whose batches are not in this
    process.
    """
    check_name(name)
    options = PublishOptions(name, ttl_s, lifetime, memory_limit, remote, vectors, progress=False)
    check_count("keep", keep, 1)
    if not hasattr(writer, "_jwrite"):
        raise InvalidArgumentError(
            f"publish_stream: expected the writeStream of a frame of a classic Spark session, "
            f"found {type(writer).__module__}.{type(writer).__qualname__}"
        )
    publisher = _BatchPublisher(name, keep, options)
    query = writer.foreachBatch(publisher.publish).start()
    threading.Thread(target=publisher.close_after, args=(query,), name=f"bowstring-{name}", daemon=True).start()
    return query


@dataclass(slots=True)
class _BatchPublisher:
    """Publishes the batches of one run of a query."""

    name: str
    keep: int
    options: PublishOptions
    _frames: dict[int, PublishedFrame] = field(default_factory=dict)
    _is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while `_frames` changes or is listed: Spark may still publish a batch when the query has ended."""

    def publish(self, df: DataFrame, number: int) -> None:
        """Publish a batch, and free those that are too old."""
        query = df.sparkSession.sparkContext.getLocalProperty(_QUERY_PROPERTY)
        assert query is not None
        batch = QueryBatchId(self.name, query.replace("-", ""), number)
        # With the other lifetime, data sets of an earlier run of this process are about to be freed.
        others = self._list_others(batch.query) if self.options.lifetime == "detached" else {}
        if number not in others:  # or the driver before this one has published the batch, and Spark repeats it
            frame = publish_as(batch.create_dataset_id(), df, self.options)
            with self._lock:
                self._frames[number] = frame
                if self._is_closed:
                    self._close(number)
        with self._lock:
            for old in [each for each in self._frames if each <= number - self.keep]:
                self._close(old)
        for old in [each for each in others if each <= number - self.keep]:
            try:
                unpublish(others[old])
            except BowstringError as error:  # the batch is published; an old one may remain until it expires
                if not isinstance(error, NotFoundError):
                    _LOGGER.warning("data set %s: may remain until it expires: %s", others[old], error)

    def close_after(self, query: StreamingQuery) -> None:
        """Free the batches when the query has ended, unless they outlive the application."""
        with contextlib.suppress(Exception):  # the query's own; the caller gets it from the query
            query.awaitTermination()
        if self.options.lifetime == "detached":
            return
        with self._lock:
            self._is_closed = True
            for number in list(self._frames):
                self._close(number)

    def _close(self, number: int) -> None:
        frame = self._frames.pop(number, None)
        if frame is not None:
            frame.close()

    def _list_others(self, query: str) -> dict[int, str]:
        """The IDs of the data sets of the query's batches, by their numbers, which other processes have published."""
        batches: dict[int, str] = {}
        for _, summary in list_published(DEFAULT_TIMEOUT_S, self.name):
            batch = QueryBatchId.parse(summary.id)
            is_of_query = batch is not None and (batch.name, batch.query) == (self.name, query)
            if batch is not None and is_of_query and batch.number not in self._frames:
                batches.setdefault(batch.number, summary.id)
        return batches
