"""The partitions of a published frame: computed by a Spark job, and computed again if a host agent loses them.

A lost partition is treated as Spark treats a lost shuffle file: only what was lost is computed, from the same lineage,
as often as Spark repeats a stage. The query execution is the first job's, so it has the same final plan and the
same shuffle files, and each partition has the same rows. Where that does not hold, all partitions are computed again,
and the earlier ones are dropped: on Spark Connect, which runs whole frames only, and if Spark calls the frame's output
indeterminate, for which it repeats whole stages, too.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from bowstring.arrays.table import Table, table
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.published_dataset import describe_publication
from bowstring.datatypes.schema import Schema
from bowstring.errors import ClosedError, ConnectionLostError, NotFoundError
from bowstring.sharing.agent.client import AgentKey
from bowstring.sharing.agent.group import LOCAL_AGENT, AgentGroup
from bowstring.sharing.agent.publications import parse_time
from bowstring.spark.publication.partition_writer import (
    REPORT_SCHEMA,
    PartitionReport,
    discard_on_this_host,
    drop_on_this_host,
    write_empty_partition,
    write_partition,
)
from bowstring.spark.runtime.arrow_batch_job import ArrowBatchJob
from bowstring.spark.runtime.job_properties import describe_jobs
from bowstring.spark.vectors import VectorConversion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOGGER = logging.getLogger(__name__)
_MAX_ATTEMPTS_SETTING = "spark.stage.maxConsecutiveAttempts"
_DEFAULT_MAX_ATTEMPTS = "4"
_METRICS = ("partition_id", "num_rows", "nbytes", "seconds", "attempt_number", "host", "executor_pid")
_EXECUTORS_OF_CONNECT = 16
"""How many executors are assumed where their number is not known."""


class PartitionJob:
    """Computes the partitions of a frame, and commits one attempt of each; holds the frame's lineage."""

    def __init__(
        self, df: DataFrame, dataset: str, agent_key: AgentKey, schema: Schema, vectors: VectorConversion
    ) -> None:
        self._dataset = dataset
        self.agent_key = agent_key
        self._agents = AgentGroup(agent_key)
        self._agent_uris: set[str] = set()
        self._schema = schema
        self._job = ArrowBatchJob(df, partial(write_partition, dataset, agent_key, schema, vectors), REPORT_SCHEMA)
        self._reports: dict[int, PartitionReport] = {}
        self._expires_at = math.inf
        self._recompute_lock = threading.Lock()

    @property
    def parts(self) -> tuple[DatasetPart, ...]:
        """The parts of the data set, in the order of the partitions."""
        return tuple(self._reports[partition_id].to_part(self._schema) for partition_id in sorted(self._reports))

    def drop(self, reason: str = "was dropped", *, is_replaced: bool = False) -> None:
        """Free the memory of the data set on all hosts; after a failed job, the attempts on the driver's host.

        As `DatasetControl.drop`.
        """
        self._agents.drop(self._dataset, self._agent_uris or {LOCAL_AGENT}, reason, is_replaced=is_replaced)

    def drop_unreported_attempts(self) -> None:
        """Free the attempts of a failed job on other hosts, by tasks on as many of them as possible.

        The driver has the agents of reported attempts only.
        """
        self._run_on_hosts(partial(drop_on_this_host, self._dataset, self.agent_key))

    def _run_on_hosts(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        """Run a function on the hosts of the executors, if their agents serve other hosts."""
        if self.agent_key.access is None:
            return
        spark = self._job.spark
        with contextlib.suppress(Exception):  # the application may have ended
            # Twice as many, since Spark chooses the executors: a host that is left out frees its memory later.
            num_tasks = 2 * count_executors(spark)
            if num_tasks:
                tasks = spark.range(0, num_tasks, 1, num_tasks)
                ArrowBatchJob(tasks, function, "id long").collect()

    @property
    def metrics(self) -> Table:
        """A row for each partition: see `PublishedFrame.metrics`."""
        reports = [self._reports[partition_id] for partition_id in sorted(self._reports)]
        return table({name: [getattr(report, name) for report in reports] for name in _METRICS})

    def run(self) -> None:
        """Compute and commit all partitions. Raises as `publish`."""
        self._compute_and_commit(None, self.agent_key.ttl_s)
        self._expires_at = time.monotonic() + self.agent_key.ttl_s

    def find_missing(self) -> list[int]:
        """Return the partitions that agents have lost, or of hosts that can't be reached; without access to other
        hosts, only the partitions of this one.
        """
        missing = self._agents.find_missing(self._dataset, self._attempts_by_agent())
        return _list_partitions(missing)

    def recompute(self) -> list[int]:
        """Compute the lost partitions again, and return their numbers; `parts` then has their locations.

        If that fails, the others stay as they are. Raises as `PublishedFrame.recompute`.
        """
        with self._recompute_lock:  # a concurrent call would compute the same parts a second time
            lost = self.find_missing()
            if not lost:
                return []
            ttl_s = self._expires_at - time.monotonic()
            if ttl_s <= 0:
                raise NotFoundError(f"data set {self._dataset} has expired")
            self._check_application()
            previous = self._reports  # `_compute` replaces the dictionary, and does not change it
            try:
                self._compute_and_commit(lost, ttl_s)
            except BaseException:
                self._reports = previous
                self._discard_attempts(lost, ttl_s)
                raise
            return lost

    def publish(self, dataset: Dataset) -> datetime | None:
        """Publish the data set on its agents, or update what was published. Return when it expires, None for never."""
        lifetime = "detached" if self.agent_key.is_detached else "application"
        control_uris = tuple(sorted(self._agent_uris - {LOCAL_AGENT}))
        publication = describe_publication(dataset, lifetime, control_uris)
        times = self._agents.publish(self._dataset, self._agent_uris, publication)
        # Without any, all partitions are on hosts whose agents this process can't reach.
        return times[0] if times else parse_time(time.time() + self._expires_at - time.monotonic())

    def renew(self, ttl_s: float) -> datetime | None:
        """Let the data set expire `ttl_s` from now. Raises as `PublishedDataset.renew`."""
        expires_at = self._agents.renew(self._dataset, self._agent_uris, ttl_s)
        self._expires_at = time.monotonic() + ttl_s
        return expires_at

    def _compute_and_commit(self, lost: Sequence[int] | None, ttl_s: float) -> None:
        """Compute the lost partitions, all for None, until no agent has lost any."""
        spark = self._job.spark
        description = f"bowstring.spark.publish {self._dataset} ({len(self._schema)} columns)"
        for attempt in count(1):
            with describe_jobs(spark, description, self._dataset):
                self._compute(lost)
            lost = self._commit(ttl_s)
            if not lost:
                return
            _LOGGER.warning("data set %s: a host agent has ended with the partitions %s", self._dataset, lost)
            max_attempts = spark.conf.get(_MAX_ATTEMPTS_SETTING, None) or _DEFAULT_MAX_ATTEMPTS
            if attempt >= int(max_attempts):
                raise ConnectionLostError(
                    f"data set {self._dataset}: a host agent ended with the partitions {lost} in each of "
                    f"{max_attempts} consecutive attempts"
                )

    def _compute(self, lost: Sequence[int] | None) -> None:
        if lost is not None:
            # Agents refuse attempts of a committed data set, because they may be late.
            self._agents.reopen(self._dataset, self._agent_uris)
        reports = dict(self._reports)
        if lost is None or not self._job.has_same_rows_again:
            reports = {row.partition_id: PartitionReport(*row) for row in self._job.collect()}
        elif any(reports[partition_id].num_rows for partition_id in lost):  # not for one with only the schema
            rows = self._job.collect(lost)
            reports.update((row.partition_id, PartitionReport(*row)) for row in rows)
        if not any(report.num_rows for report in reports.values()):
            reports[0] = write_empty_partition(self._dataset, self.agent_key, self._schema)
        self._reports = reports
        self._agent_uris.update(self._attempts_by_agent())

    def _check_application(self) -> None:
        spark: Any = self._job.spark
        if hasattr(spark, "_jsparkSession") and spark.sparkContext._jsc is None:
            raise ClosedError(
                f"data set {self._dataset}: its Spark application has ended, and nothing can be computed: publish the "
                f"frame again in another"
            )

    def _commit(self, ttl_s: float) -> list[int]:
        """Commit all partitions, and return those that are lost; if there are any, nothing is committed."""
        attempts = self._attempts_by_agent()
        missing = self._agents.commit(self._dataset, attempts, ttl_s)
        if not missing:
            # Agents that have only attempts that were lost to this process for a while.
            self._agents.drop(self._dataset, self._agent_uris - attempts.keys())
            self._agent_uris = set(attempts)
        return _list_partitions(missing)

    def _discard_attempts(self, lost: Sequence[int], ttl_s: float) -> None:
        """Drop uncommitted attempts: commit those that were committed before, without the lost ones."""
        attempts_by_agent = self._attempts_by_agent()
        # Including agents that the failed recomputation has added, of which no attempt remains.
        for uri in self._agent_uris:
            attempts = attempts_by_agent.get(uri, {})
            remaining = {number: attempt for number, attempt in attempts.items() if number not in lost}
            self._agents.commit(self._dataset, {uri: remaining}, ttl_s)
        known_uris = frozenset(self._agent_uris)
        self._run_on_hosts(partial(discard_on_this_host, self._dataset, self.agent_key, known_uris, ttl_s))

    def _attempts_by_agent(self) -> dict[str, dict[int, int]]:
        """The attempt of each partition, by agent. Without access, agents of other hosts commit attempts themselves."""
        attempts: dict[str, dict[int, int]] = {}
        for partition_id, report in self._reports.items():
            if report.uris and (report.is_local or report.control_uri):
                attempts.setdefault(report.control_uri or LOCAL_AGENT, {})[partition_id] = report.attempt
        return attempts


def _list_partitions(missing: dict[str, list[int]]) -> list[int]:
    return sorted(partition_id for partition_ids in missing.values() for partition_id in partition_ids)


def count_executors(spark: SparkSession) -> int:
    """The number of executors that are processes of their own; Spark gives each a task before any gets a second."""
    if not hasattr(spark, "_jsparkSession"):
        return _EXECUTORS_OF_CONNECT
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # without the driver
