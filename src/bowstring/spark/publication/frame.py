"""Publish a data frame: Spark computes it, and other processes read it from shared memory.

Each task writes its partition as an Arrow file into sealed memory of its host and passes it to the host agent. The
driver receives only URIs, rows and bytes, and commits one attempt of each partition, so repeated tasks leave no
duplicates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bowstring.arrays.table import Table
from bowstring.datasets.dataset import Dataset
from bowstring.datasets.published_dataset import PublishedDataset, end_predecessors
from bowstring.errors import InvalidArgumentError
from bowstring.sharing.agent.client import DEFAULT_TTL_S, AgentKey
from bowstring.sharing.agent.control import RemoteAccess
from bowstring.sharing.agent.publications import DEFAULT_NAME, Lifetime, create_dataset_id
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.options import parse_byte_size
from bowstring.spark.publication.options import PublishOptions, RemoteOptions, choose_remote_options
from bowstring.spark.publication.partition_job import PartitionJob
from bowstring.spark.runtime.arrow_batch_job import as_spark_frame
from bowstring.spark.runtime.job_progress import show_progress
from bowstring.spark.runtime.worker_errors import find_resource_error
from bowstring.spark.types import prefers_large_types, to_arrow_schema
from bowstring.spark.vectors import VectorConversion, VectorForm

if TYPE_CHECKING:
    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame, SparkSession

_MEMORY_LIMIT_SETTING = "spark.bowstring.publish.memoryLimit"
_DRIVER_HOST_SETTING = "spark.driver.host"

_agent_keys: dict[tuple[ProcessIdentity, RemoteOptions | None], AgentKey] = {}


class PublishedFrame(PublishedDataset):
    """A data set in the memory of the executors' hosts; created by `publish`. A context manager; can be pickled.

    The object that `publish` returned holds the frame, and with it Spark's shuffle files, so that lost parts can be
    computed again.
    """

    __slots__ = ()

    @property
    def _job(self) -> PartitionJob | None:
        return self._control if isinstance(self._control, PartitionJob) else None

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

        The agents are asked. With `remote`, parts of hosts that can't be reached count, too; otherwise parts of other
        hosts do not count. Raises `ClosedError`, and `InvalidArgumentError` on an unpickled copy.
        """
        return self._find_job("missing").find_missing()

    def recompute(self) -> list[int]:
        """Compute the lost parts again, from the frame's lineage, and return their indices.

        `parts` has their locations afterwards. Connections opened from then on read all rows; copies that were pickled
        before still lack the lost parts. If it fails, nothing changes. The data set still expires `ttl_s` after it was
        published. As for lost shuffle files, Spark computes the same rows for a part again. If they may differ (the
        frame's RDD is `INDETERMINATE`), and on Spark Connect, all parts are computed again and replaced, so that there
        are no duplicates.

        Raises as `publish` and `missing`, `NotFoundError` if the data set has expired, and `ClosedError` if the Spark
        application has ended.
        """
        job = self._find_job("recompute")
        indices = job.recompute()
        if self._is_closed:  # meanwhile, by another thread
            job.drop()
            self._find_job("recompute")  # raises `ClosedError`
        self.parts = job.parts
        job.publish(self)
        return indices

    def _find_job(self, method: str) -> PartitionJob:
        self._check_open()
        if self._job is None:
            raise InvalidArgumentError(
                f"data set {self.id}: {method}: this is a copy; call it on the object that `publish` returned, which "
                f"has the frame"
            )
        return self._job


def publish(  # noqa: PLR0913 -- all but one are options
    df: DataFrame | PandasFrame[Any],
    *,
    name: str | None = None,
    ttl_s: float = DEFAULT_TTL_S,
    lifetime: Lifetime = "application",
    memory_limit: int | str | None = None,
    remote: bool | RemoteOptions | None = None,
    vectors: VectorForm = "float64",
    progress: bool | None = None,
    replace: bool = False,
) -> PublishedFrame:
    """Compute `df` and keep its partitions in the memory of the executors' hosts, for other processes.

    The data does not pass through the driver. Its memory counts against the executors' containers; see
    docs/reference/spark-publish.md. `bowstring.open_published(name)` opens the newest data set with this name in any
    process of the user on a host that has a part, without `remote` only on the driver's.

    The schema is as of ``df.toArrow()``, except that ML vectors are lists of float64, or with `vectors` of "float32";
    "sparse" keeps only the values that are not zero, and their indices, in the structs that Spark has; "struct" changes
    nothing. Matrices are lists of rows, except with "struct". A frame of `pyspark.pandas` has no index.

    The memory is freed by `close` of the object that is returned, by `bowstring.unpublish`, `ttl_s` after the commit,
    and at the end of the driver's process; with the lifetime "detached", not at the end of the driver, so that a
    trainer can start when the application has ended. `replace` is as in `bowstring.publish`.

    With `remote`, the executors' hosts also serve their partitions over TCP, to all processes with the data set or a
    URI, and the driver frees their memory with `close` or at its end; True takes the session's settings
    ``spark.bowstring.publish.remote.…``, and the default is ``spark.bowstring.publish.remote``. Otherwise nothing
    listens at a network address, and the memory on other hosts than the driver's is freed when the executors end, or
    after `ttl_s`.

    Where a host's memory is short, or `memory_limit` (bytes, or such as "4g") is reached there, partitions are written
    to unnamed files in Spark's local folders. By default it is ``spark.bowstring.publish.memoryLimit``, if that is set.

    `progress` shows tasks, rows and bytes meanwhile, if rich is installed; by default in a terminal or notebook only.
    Jobs have a description in Spark's UI, unless the caller has set one.

    Columns keep their names, including duplicates and names with a dot. Rows of a frame without columns are counted. A
    data set without rows has one URI, of an empty partition on the driver's host. No setting of the session is changed.

    Raises:
        UnsupportedTypeError: a column's type has no counterpart in Arrow; raised before any job runs, with the column's
            path.
        ConnectionLostError: a host agent ended with its partitions in each of as many attempts as Spark repeats a stage
            (``spark.stage.maxConsecutiveAttempts``).
        ResourceError: memory and disk space are short.
        InvalidArgumentError: `ttl_s` is not positive, `name` has other characters than letters, digits, "_", "-" and
            ".", `lifetime`, `remote` or `vectors` has another value, or `df` is not a data frame.
    """
    dataset_id = create_dataset_id(name)
    frame = publish_as(dataset_id, df, PublishOptions(name, ttl_s, lifetime, memory_limit, remote, vectors, progress))
    if replace:
        end_predecessors(frame)
    return frame


def publish_as(dataset_id: str, df: DataFrame | PandasFrame[Any], options: PublishOptions) -> PublishedFrame:
    """As `publish`, with a new ID."""
    frame = as_spark_frame(df, "publish", "publish")
    memory_limit = options.memory_limit
    if memory_limit is None:
        memory_limit = frame.sparkSession.conf.get(_MEMORY_LIMIT_SETTING, None)
    limit_bytes = None if memory_limit is None else parse_byte_size("memory_limit", memory_limit)
    vectors, spark_schema = VectorConversion.plan(frame.schema, options.vectors)
    schema = to_arrow_schema(spark_schema, prefers_large_types=prefers_large_types(frame.sparkSession))
    remote_options = choose_remote_options(frame.sparkSession, options.remote)
    agent_key = replace(
        _current_agent_key(remote_options, frame.sparkSession),
        ttl_s=options.ttl_s,
        memory_limit_bytes=limit_bytes,
        is_detached=options.lifetime == "detached",
    )
    job = PartitionJob(frame, dataset_id, agent_key, schema, vectors)
    try:
        with show_progress(frame.sparkSession, dataset_id, agent_key, options.progress):
            job.run()
        dataset = Dataset(options.name or DEFAULT_NAME, schema, job.parts)
        expires_at = job.publish(dataset)
    except BaseException as problem:
        job.drop()
        if isinstance(problem, Exception):  # after KeyboardInterrupt, the user does not wait for another Spark job
            job.drop_unreported_attempts()
        shortage = find_resource_error(problem)
        if shortage is not None:
            raise shortage from problem
        raise
    return PublishedFrame(dataset.name, schema, dataset.parts, dataset_id, expires_at, job, is_owner=True)


def _current_agent_key(remote: RemoteOptions | None, spark: SparkSession) -> AgentKey:
    """The key of this process's agents; a forked child has its own keys. Agents for other hosts have another one."""
    owner = ProcessIdentity.current()
    # One key for all frames of the process, so that each host has one agent, and not one for each frame.
    agent_key = _agent_keys.get((owner, remote))
    if agent_key is None:
        access = None
        if remote is not None:
            driver_host = spark.conf.get(_DRIVER_HOST_SETTING, None)
            access = RemoteAccess(remote.host, driver_host, remote.bind_address, remote.tls)
        agent_key = _agent_keys[owner, remote] = AgentKey(access=access)
    return agent_key
