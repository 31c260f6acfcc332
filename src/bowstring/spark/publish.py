"""Publish a data frame: Spark computes it, and other processes read it from shared memory.

Each task writes its partition as an Arrow file into sealed memory of its host and hands it to the host agent. The
driver receives only URIs, rows and bytes, and commits one attempt of each partition, so repeated tasks leave no
duplicates.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bowstring.arrays.table import Table
from bowstring.datatypes.field import Schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    NotFoundError,
    UsageError,
)
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.agent_client import DEFAULT_TTL_S, AgentClient, AgentKey
from bowstring.sharing.processes import Process
from bowstring.sharing.stored_dataset import store
from bowstring.spark.batch_size import drop_padding, pad_wide_rows, without_size_check
from bowstring.spark.batches import write_rows
from bowstring.spark.types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESULT = "partition int, attempt long, host string, is_here boolean, rows long, nbytes long, uri string"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"

_AGENT_TIMEOUT_S = 120.0
"""How long a task waits for its host agent; starting it can take a while on a busy host."""

_keys: dict[Process, AgentKey] = {}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a published data set: its location and size.

    Partitions without rows have no URI, except for the first one of a data set without rows.
    """

    number: int
    uri: str | None
    host: str
    num_rows: int
    nbytes: int


class Published(Closable):
    """A data set in the memory of the executors' hosts; created by `publish`. A context manager; can be pickled.

    `bowstring.connect` accepts it, or any of its `uris`, in any process of the same host and user. The memory is freed
    by `close` on the object that `publish` returned, at the end of the driver's process, or after the time to live;
    attached data stays valid.
    """

    __slots__ = ("__weakref__", "_is_closed", "_key", "name", "partitions", "schema")

    def __init__(self, name: str, schema: Schema, partitions: Sequence[Partition], key: AgentKey | None) -> None:
        self.name = name
        self.schema = schema
        self.partitions = tuple(partitions)
        self._key = key
        self._is_closed = False

    @property
    def uris(self) -> tuple[str, ...]:
        """The URI of each partition that has rows, in the partitions' order; of one empty partition, with the schema,
        if none has rows. Raises `ClosedError`.
        """
        if self._is_closed:
            raise ClosedError(f"data set {self.name}: it was used after it was closed")
        return tuple(partition.uri for partition in self.partitions if partition.uri is not None)

    @property
    def num_rows(self) -> int:
        """The rows of all partitions."""
        return sum(partition.num_rows for partition in self.partitions)

    @property
    def nbytes(self) -> int:
        """The bytes of memory of all partitions, on all hosts together."""
        return sum(partition.nbytes for partition in self.partitions)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    def close(self) -> None:
        """Free the memory of this host. On an unpickled copy, only close the copy. Idempotent."""
        key, self._key, self._is_closed = self._key, None, True
        if key is None or not self.partitions:
            return
        _drop(self.name, key)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise ClosedError(f"data set {self.name}: it was used after it was closed")
        return Published, (self.name, self.schema, self.partitions, None)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes in {len(self.partitions)} partitions"
        return f"<bowstring.spark.Published {self.name}: {size}{state}>"


def publish(df: DataFrame, *, name: str | None = None, ttl_s: float = DEFAULT_TTL_S) -> Published:
    """Compute `df` and keep its partitions in the memory of the executors' hosts, for other processes.

    The data does not pass through the driver. Its memory counts against the executors' containers: see docs/spark.md.
    `name` is a prefix of the data set's name. `ttl_s` is the maximum lifetime of the data.

    Raises:
        UnsupportedTypeError: a column's type has no counterpart in Arrow; raised before any job runs, with the column's
            path.
        ConnectionLostError: a host agent died with its partitions while the job ran.
        UsageError: `ttl_s` is not positive, `name` has other characters than letters, digits, "_", "-" and ".", or `df`
            is not a data frame.
    """
    if not ttl_s > 0:
        raise UsageError(f"ttl_s: expected a positive number of seconds, found {ttl_s!r}")
    if name is not None and not (name.isascii() and name.replace("_", "").replace("-", "").replace(".", "").isalnum()):
        raise UsageError(f"name: expected letters, digits, '_', '-' and '.', found {name!r}")
    if not hasattr(df, "mapInArrow"):
        raise UsageError(f"publish: expected a Spark data frame, not {type(df).__name__}")
    spark = df.sparkSession
    schema = arrow_schema(df.schema, prefers_large_types=spark.conf.get(_LARGE_TYPES) == "true")
    dataset = f"{name or 'data'}-{secrets.token_hex(8)}"
    key = _agent_key(ttl_s)
    try:
        frame = _numbered(df)
        padded = pad_wide_rows(frame)
        job = (padded or frame).mapInArrow(_writer(dataset, key, schema), _RESULT)
        with nullcontext() if padded is None else without_size_check(job):
            rows = sorted(job.collect(), key=lambda row: row.partition)
        _commit(dataset, key, {row.partition: row.attempt for row in rows if row.is_here and row.uri is not None})
        partitions = [Partition(r.partition, r.uri, r.host, r.rows, r.nbytes) for r in rows]
        if all(partition.uri is None for partition in partitions):
            partitions[:1] = [_put_empty(dataset, schema, key)]
    except BaseException:
        _drop(dataset, key)
        raise
    return Published(dataset, schema, partitions, key)


def _numbered(df: DataFrame) -> DataFrame:
    """`df` with numbers as names: mapInArrow fails on names with a dot and on duplicates, and loses the rows of a frame
    without columns, which therefore gets one.
    """
    return df.toDF(*map(str, range(len(df.columns)))) if df.columns else df.selectExpr("null")


def _agent_key(ttl_s: float) -> AgentKey:
    """The key of this process's agents; a forked child has its own key."""
    owner = Process.current()
    key = _keys.get(owner)
    if key is None:
        key = _keys[owner] = AgentKey.new()
    return replace(key, ttl_s=ttl_s)


def _put_empty(dataset: str, schema: Schema, key: AgentKey) -> Partition:
    """Create partition 0 of a data set without rows on this host, so that the schema can be read from its URI."""
    region, _ = store(Table(schema, []), f"{dataset}/0")
    with region, AgentClient.open(key, timeout_s=_AGENT_TIMEOUT_S) as agent:
        uri = agent.put(dataset, (0, 0), region, rows=0, ttl_s=key.ttl_s)
    _commit(dataset, key, {0: 0})
    return Partition(0, uri, os.uname().nodename, 0, region.size_bytes)


def _commit(dataset: str, key: AgentKey, attempts: dict[int, int]) -> None:
    if not attempts:
        return
    try:
        with AgentClient.open(key, start=False) as agent:
            missing = agent.commit(dataset, attempts)
    except (ConnectionLostError, NotFoundError) as problem:
        raise ConnectionLostError(
            f"data set {dataset}: the host agent ended with its partitions while the job ran: {problem}"
        ) from problem
    if missing:
        raise ConnectionLostError(
            f"data set {dataset}: the host agent has lost the partitions {missing}: it ended while the job ran"
        )


def _drop(dataset: str, key: AgentKey) -> None:
    try:
        with AgentClient.open(key, start=False) as agent:
            agent.drop(dataset)
    except BowstringError:
        pass  # there is no such data set, or no agent


def _writer(dataset: str, key: AgentKey, schema: Schema) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that runs on the executors: from the batches of a partition to one row about it."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        own_rows = (drop_padding(batch).select(range(len(schema))) for batch in batches)
        region, rows = _write_region(own_rows, schema, f"{dataset}/{partition}")
        uri = None
        if region is not None:
            with region, AgentClient.open(key, timeout_s=_AGENT_TIMEOUT_S) as agent:
                uri = agent.put(dataset, (partition, attempt), region, rows=rows, ttl_s=key.ttl_s)
        row = {
            "partition": partition,
            "attempt": attempt,
            "host": os.uname().nodename,
            "is_here": key.owner.is_local,
            "rows": rows,
            "nbytes": 0 if region is None else region.size_bytes,
            "uri": uri,
        }
        fields = [("partition", pa.int32()), ("attempt", pa.int64()), ("host", pa.string()), ("is_here", pa.bool_())]
        fields += [("rows", pa.int64()), ("nbytes", pa.int64()), ("uri", pa.string())]
        yield pa.RecordBatch.from_pylist([row], pa.schema(fields))

    return write


def _write_region(batches: Iterator[Any], schema: Schema, name: str) -> tuple[Region | None, int]:
    """Write Spark's batches as an Arrow file into sealed memory; None if there are no rows."""
    with Region.writer(name) as memory:
        rows, _ = write_rows(memory.fileno(), batches, schema)
        return (memory.seal(), rows) if rows else (None, 0)
