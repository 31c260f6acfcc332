"""Publish a data frame: Spark computes it, and other processes read it from shared memory.

Each task writes its partition as an Arrow file into sealed memory of its host and passes it to the host agent. The
driver receives only URIs, rows and bytes, and commits one attempt of each partition, so repeated tasks leave no
duplicates.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bowstring.arrays.table import Table
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datatypes.schema import Schema
from bowstring.errors import ClosedError, InvalidArgumentError
from bowstring.memory.closable import Closable
from bowstring.sharing.agent_client import DEFAULT_TTL_S, AgentKey
from bowstring.sharing.agent_control import RemoteAccess
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.job_progress import show_progress
from bowstring.spark.options import parse_byte_size
from bowstring.spark.partition_job import PartitionJob
from bowstring.spark.remote_options import RemoteOptions, choose_remote_options, find_driver_host
from bowstring.spark.types import to_arrow_schema
from bowstring.spark.worker_errors import find_resource_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEMORY_LIMIT_SETTING = "spark.bowstring.publish.memoryLimit"
_LARGE_TYPES_SETTING = "spark.sql.execution.arrow.useLargeVarTypes"

_agent_keys: dict[tuple[ProcessIdentity, RemoteOptions | None], AgentKey] = {}


class PublishedDataset(Dataset, Closable):
    """A data set in the memory of the executors' hosts; created by `publish`. A context manager; can be pickled.

    `bowstring.connect` accepts it, or any of its `uris`, in any process of the same host and user; with `remote`, in
    any process that has it, on any host. The memory is freed by `close` on the object that `publish` returned, at the
    end of the driver's process, or after the time to live; attached data stays valid. `schema` is that of
    ``df.toArrow()``.

    The object that `publish` returned holds the frame, and with it Spark's shuffle files, so that lost parts can be
    computed again.
    """

    __slots__ = ("_is_closed", "_job")

    def __init__(self, name: str, schema: Schema, parts: Iterable[DatasetPart], job: PartitionJob | None) -> None:
        super().__init__(name, schema, parts)
        self._job = job
        self._is_closed = False

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has rows; of one empty part, with the schema, if none has rows.

        Raises `ClosedError`.
        """
        self._check_open()
        return super().uris

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    def close(self) -> None:
        """Free the memory: of this host, and with `remote` of all hosts that can be reached. On an unpickled copy, only
        close the copy. Idempotent.
        """
        job, self._job, self._is_closed = self._job, None, True
        if job is not None:
            job.drop()

    @property
    def metrics(self) -> Table:
        """A table with a row for each partition: `partition_id`, `num_rows`, `nbytes`, `seconds`, `attempt_number`
        (failed attempts before), `host` and `executor_pid`.

        The seconds include the computation of the rows. Raises `ClosedError`, and `InvalidArgumentError` on an
        unpickled copy.
        """
        return self._find_job("metrics").metrics

    def missing(self) -> list[int]:
        """Return the indices of the parts that are lost, because their host agents have ended.

        The agents are asked. With `remote`, parts of hosts that can't be reached count, too; otherwise those of other
        hosts do not count. Raises `ClosedError`, and `InvalidArgumentError` on an unpickled copy.
        """
        return self._find_job("missing").find_missing()

    def recompute(self) -> list[int]:
        """Compute the lost parts again, from the frame's lineage, and return their indices.

        `parts` has their locations afterwards. Whoever connects then reads all rows; copies that were pickled before
        still lack the lost parts. If it fails, nothing changes. The data set still expires `ttl_s` after it was
        published. Spark keeps the rows of a part the same as it does for lost shuffle files; of a frame whose rows may
        differ (its RDD is `INDETERMINATE`), and on Spark Connect, all parts are computed again and replaced, so that
        there are no duplicates.

        Raises as `publish` and `missing`, `NotFoundError` if the data set has expired, and `ClosedError` if the Spark
        application has ended.
        """
        job = self._find_job("recompute")
        indices = job.recompute()
        if self._is_closed:  # meanwhile, by another thread
            job.drop()
            self._find_job("recompute")
        self.parts = job.parts
        return indices

    def _find_job(self, method: str) -> PartitionJob:
        self._check_open()
        if self._job is None:
            raise InvalidArgumentError(
                f"data set {self.name}: {method}: this is a copy; call it on the object that `publish` returned, which "
                f"has the frame"
            )
        return self._job

    def to_json(self) -> str:
        """As `Dataset.to_json`. Raises `ClosedError`."""
        self._check_open()
        return super().to_json()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"data set {self.name}: it was used after it was closed")

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return PublishedDataset, (self.name, self.schema, self.parts, None)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes in {len(self.parts)} parts"
        return f"<bowstring.spark.PublishedDataset {self.name}: {size}{state}>"


def publish(
    df: DataFrame,
    *,
    name: str | None = None,
    ttl_s: float = DEFAULT_TTL_S,
    memory_limit: int | str | None = None,
    remote: bool | RemoteOptions | None = None,
    progress: bool | None = None,
) -> PublishedDataset:
    """Compute `df` and keep its partitions in the memory of the executors' hosts, for other processes.

    The data does not pass through the driver. Its memory counts against the executors' containers: see docs/spark.md.
    `name` is a prefix of the data set's name. `ttl_s` is the maximum lifetime of the data, from the commit.

    With `remote`, the executors' hosts also serve their partitions over TCP, to whoever has the data set or a URI, and
    the driver frees their memory with `close` or at its end; True takes the session's settings
    ``spark.bowstring.publish.remote.…``, and the default is ``spark.bowstring.publish.remote``. Otherwise nothing
    listens beyond a host, and the memory on other hosts than the driver's is freed when the executors end, or after
    `ttl_s`.

    Where a host's memory is short, or `memory_limit` (bytes, or such as "4g") is reached there, partitions are written
    to unnamed files in Spark's local folders. By default it is ``spark.bowstring.publish.memoryLimit``, if that is set.

    `progress` shows tasks, rows and bytes meanwhile, if rich is installed; by default in a terminal or notebook only.
    Jobs have a description in Spark's UI, unless the caller has set one.

    Columns keep their names, including duplicates and names with a dot. Rows of a frame without columns are counted. A
    data set without rows has one URI, of an empty partition on the driver's host. Frames of fixed-width columns and
    strings skip Spark's check of the batch size after each row; frames that run Python or have other columns, Connect
    sessions, and sessions with their own ``maxBytesPerBatch`` keep it. No setting of the session is changed.

    Raises:
        UnsupportedTypeError: a column's type has no counterpart in Arrow; raised before any job runs, with the column's
            path.
        ConnectionLostError: a host agent ended with its partitions in each of as many attempts as Spark repeats a stage
            (``spark.stage.maxConsecutiveAttempts``).
        ResourceError: memory and disk space are short.
        InvalidArgumentError: `ttl_s` is not positive, `name` has other characters than letters, digits, "_", "-" and
            ".", `remote` is of another type, or `df` is not a data frame.
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
    if memory_limit is None:
        memory_limit = df.sparkSession.conf.get(_MEMORY_LIMIT_SETTING, None)
    limit_bytes = None if memory_limit is None else parse_byte_size("memory_limit", memory_limit)
    prefers_large_types = df.sparkSession.conf.get(_LARGE_TYPES_SETTING) == "true"
    schema = to_arrow_schema(df.schema, prefers_large_types=prefers_large_types)
    dataset = f"{name or 'data'}-{secrets.token_hex(8)}"
    remote_options = choose_remote_options(df.sparkSession, remote)
    agent_key = _current_agent_key(ttl_s, remote_options, find_driver_host(df.sparkSession))
    job = PartitionJob(df, dataset, replace(agent_key, memory_limit_bytes=limit_bytes), schema)
    try:
        with show_progress(df.sparkSession, dataset, agent_key, progress):
            job.run()
    except BaseException as problem:
        job.drop()
        if isinstance(problem, Exception):
            job.drop_unreported_attempts()
        shortage = find_resource_error(problem)
        if shortage is not None:
            raise shortage from problem
        raise
    return PublishedDataset(dataset, schema, job.parts, job)


def _current_agent_key(ttl_s: float, remote: RemoteOptions | None, driver_host: str | None) -> AgentKey:
    """The key of this process's agents; a forked child has its own keys. Agents for other hosts have another one."""
    owner = ProcessIdentity.current()
    agent_key = _agent_keys.get((owner, remote))
    if agent_key is None:
        access = (
            None if remote is None else RemoteAccess.create(remote.host, driver_host, remote.bind_address, remote.tls)
        )
        agent_key = _agent_keys[owner, remote] = AgentKey.create(access=access)
    return replace(agent_key, ttl_s=ttl_s)
