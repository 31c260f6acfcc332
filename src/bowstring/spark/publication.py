"""Publish a data frame: Spark computes it, and other processes read it from shared memory.

Each task writes its partition as an Arrow file into sealed memory of its host and passes it to the host agent. The
driver receives only URIs, rows and bytes, and commits one attempt of each partition, so repeated tasks leave no
duplicates.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bowstring.datatypes.schema import Schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    NotFoundError,
    ResourceError,
)
from bowstring.ipc.api import new_file
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.agent_client import DEFAULT_TTL_S, AgentClient, AgentKey
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.arrow_files import write_batches
from bowstring.spark.batch_byte_limit import collect_map_in_arrow, drop_padding_rows
from bowstring.spark.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LARGE_TYPES_SETTING = "spark.sql.execution.arrow.useLargeVarTypes"

_AGENT_TIMEOUT_S = 120.0
"""How long a task waits for its host agent; starting it can take a while on a busy host."""

_REPORT_SCHEMA = (
    "partition_id long, attempt long, host string, is_local boolean, num_rows long, nbytes long, uri string"
)
"""The columns that a task reports to the driver; `uri` is empty if the partition has no rows."""

_agent_keys: dict[ProcessIdentity, AgentKey] = {}


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """One partition of a published data set: its location and size.

    Partitions without rows have no URI, except for the first one of a data set without rows.
    """

    index: int
    uri: str | None
    host: str
    num_rows: int
    nbytes: int


class PublishedDataset(Closable):
    """A data set in the memory of the executors' hosts; created by `publish`. A context manager; can be pickled.

    `bowstring.connect` accepts it, or any of its `uris`, in any process of the same host and user. The memory is freed
    by `close` on the object that `publish` returned, at the end of the driver's process, or after the time to live;
    attached data stays valid. `schema` is that of ``df.toArrow()``.
    """

    __slots__ = ("__weakref__", "_agent_key", "_is_closed", "name", "partitions", "schema")

    def __init__(
        self, name: str, schema: Schema, partitions: Sequence[PublishedPartition], agent_key: AgentKey | None
    ) -> None:
        self.name = name
        self.schema = schema
        self.partitions = tuple(partitions)
        self._agent_key = agent_key
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
        agent_key, self._agent_key, self._is_closed = self._agent_key, None, True
        if agent_key is None or not self.partitions:
            return
        _drop_dataset(self.name, agent_key)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise ClosedError(f"data set {self.name}: it was used after it was closed")
        return PublishedDataset, (self.name, self.schema, self.partitions, None)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes in {len(self.partitions)} partitions"
        return f"<bowstring.spark.PublishedDataset {self.name}: {size}{state}>"


def publish(df: DataFrame, *, name: str | None = None, ttl_s: float = DEFAULT_TTL_S) -> PublishedDataset:
    """Compute `df` and keep its partitions in the memory of the executors' hosts, for other processes.

    The data does not pass through the driver. Its memory counts against the executors' containers: see docs/spark.md.
    `name` is a prefix of the data set's name. `ttl_s` is the maximum lifetime of the data, from the commit. Memory of
    closed data sets and uncommitted attempts on other hosts is freed when the executors end or after `ttl_s`.

    Columns keep their names, including duplicates and names with a dot. Rows of a frame without columns are counted. A
    data set without rows has one URI, of an empty partition on the driver's host. Frames of fixed-width columns and
    strings skip Spark's check of the batch size after each row; frames that run Python or have other columns, Connect
    sessions, and sessions with their own ``maxBytesPerBatch`` keep it. No setting of the session is changed.

    Raises:
        UnsupportedTypeError: a column's type has no counterpart in Arrow; raised before any job runs, with the column's
            path.
        ConnectionLostError: a host agent died with its partitions while the job ran.
        InvalidArgumentError: `ttl_s` is not positive, `name` has other characters than letters, digits, "_", "-" and
            ".", or `df` is not a data frame.
    """
    if not ttl_s > 0:
        raise InvalidArgumentError(f"ttl_s: expected a positive number of seconds, found {ttl_s!r}")
    if name is not None and not (name.isascii() and name.replace("_", "").replace("-", "").replace(".", "").isalnum()):
        raise InvalidArgumentError(f"name: expected letters, digits, '_', '-' and '.', found {name!r}")
    if not hasattr(df, "mapInArrow"):
        kind = type(df)
        raise InvalidArgumentError(
            f"publish: expected a Spark data frame, found {kind.__module__}.{kind.__qualname__}: "
            f"use bowstring.share for data of this process, or spark.createDataFrame first"
        )
    prefers_large_types = df.sparkSession.conf.get(_LARGE_TYPES_SETTING) == "true"
    schema = to_arrow_schema(df.schema, prefers_large_types=prefers_large_types)
    dataset = f"{name or 'data'}-{secrets.token_hex(8)}"
    agent_key = _current_agent_key(ttl_s)
    try:
        reports = collect_map_in_arrow(df, partial(_publish_partition, dataset, agent_key, schema), _REPORT_SCHEMA)
        reports.sort(key=lambda report: report.partition_id)
        partitions = [PublishedPartition(r.partition_id, r.uri or None, r.host, r.num_rows, r.nbytes) for r in reports]
        attempts = {r.partition_id: r.attempt for r in reports if r.is_local and r.num_rows}
        if not any(partition.num_rows for partition in partitions):
            partitions[:1] = [_publish_empty_partition(dataset, agent_key, schema)]
            attempts = {0: 0}
        if attempts:
            try:
                with AgentClient.open(agent_key, start=False) as agent:
                    missing = agent.commit_attempts(dataset, attempts)
            except (ConnectionLostError, NotFoundError) as problem:
                reason = f"the host agent ended with its partitions while the job ran: {problem}"
                raise ConnectionLostError(f"data set {dataset}: {reason}") from problem
            if missing:
                reason = f"the host agent has lost the partitions {missing}: it ended while the job ran"
                raise ConnectionLostError(f"data set {dataset}: {reason}")
    except BaseException:
        _drop_dataset(dataset, agent_key)
        raise
    return PublishedDataset(dataset, schema, partitions, agent_key)


def _current_agent_key(ttl_s: float) -> AgentKey:
    """The key of this process's agents; a forked child has its own key."""
    owner = ProcessIdentity.current()
    agent_key = _agent_keys.get(owner)
    if agent_key is None:
        agent_key = _agent_keys[owner] = AgentKey.create()
    return replace(agent_key, ttl_s=ttl_s)


def _publish_partition(dataset: str, agent_key: AgentKey, schema: Schema, batches: Iterator[Any]) -> Iterator[Any]:
    """Store the batches of a partition and yield a report, with the columns of `_REPORT_SCHEMA`; runs in a task."""
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    partition_id, attempt = task.partitionId(), task.taskAttemptId()
    columns = (drop_padding_rows(batch).select(range(len(schema))) for batch in batches)
    uri, nbytes = "", 0
    with Region.create_writer(f"{dataset}/{partition_id}") as memory:
        try:
            num_rows, _ = write_batches(memory.fileno(), columns, schema)
        except ResourceError as problem:
            size = os.fstat(memory.fileno()).st_size
            message = f"data set {dataset}, partition {partition_id}, after {size} bytes: {problem}"
            raise type(problem)(message, problem) from problem
        if num_rows:
            with memory.seal() as region, AgentClient.open(agent_key, timeout_s=_AGENT_TIMEOUT_S) as agent:
                uri = agent.put(dataset, (partition_id, attempt), region, rows=num_rows, ttl_s=agent_key.ttl_s)
                nbytes = region.size_bytes
    report = {
        "partition_id": partition_id,
        "attempt": attempt,
        "host": os.uname().nodename,
        "is_local": agent_key.owner.is_local,
        "num_rows": num_rows,
        "nbytes": nbytes,
        "uri": uri,
    }
    yield pa.RecordBatch.from_pylist([report])


def _publish_empty_partition(dataset: str, agent_key: AgentKey, schema: Schema) -> PublishedPartition:
    """Create partition 0 of a data set without rows on this host, so that the schema can be read from its URI."""
    with Region.create_writer(f"{dataset}/0") as memory:
        new_file(memory.fileno(), schema).close()
        with memory.seal() as region, AgentClient.open(agent_key, timeout_s=_AGENT_TIMEOUT_S) as agent:
            uri = agent.put(dataset, (0, 0), region, rows=0, ttl_s=agent_key.ttl_s)
            return PublishedPartition(0, uri, os.uname().nodename, 0, region.size_bytes)


def _drop_dataset(dataset: str, agent_key: AgentKey) -> None:
    try:
        with AgentClient.open(agent_key, start=False) as agent:
            agent.drop(dataset)
    except BowstringError:
        pass  # there is no such data set, or no agent
