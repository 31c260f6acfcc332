"""The partitions of a published frame: computed by a Spark job, and computed again if a host agent loses them.

A lost partition is treated as Spark treats a lost shuffle file: only what was lost is computed, from the same lineage,
as often as Spark repeats a stage. The query execution is that of the first job, so it has the same final plan and the
same shuffle files, and each partition has the same rows. Where that does not hold, all partitions are computed again,
and the earlier ones are dropped: on Spark Connect, which runs whole frames only, and if Spark calls the frame's output
indeterminate, for which it repeats whole stages, too.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bowstring.datasets.dataset import DatasetPart
from bowstring.datatypes.schema import Schema
from bowstring.errors import BowstringError, ClosedError, ConnectionLostError, NotFoundError
from bowstring.sharing.agent_client import AgentClient, AgentKey
from bowstring.spark.batch_byte_limit import plan_map_in_arrow
from bowstring.spark.partition_writer import REPORT_SCHEMA, PartitionReport, write_empty_partition, write_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOGGER = logging.getLogger(__name__)
_MAX_ATTEMPTS_SETTING = "spark.stage.maxConsecutiveAttempts"
_DEFAULT_MAX_ATTEMPTS = "4"
_INDETERMINATE = "INDETERMINATE"
_LOST_AGENT = (ConnectionLostError, NotFoundError)
"""The errors if an agent has ended with its partitions, also if another one runs in its place."""


class PartitionJob:
    """Computes the partitions of a frame, and commits one attempt of each; holds the frame's lineage."""

    def __init__(self, df: DataFrame, dataset: str, agent_key: AgentKey, schema: Schema) -> None:
        self._dataset = dataset
        self.agent_key = agent_key
        self._schema = schema
        self._job = plan_map_in_arrow(df, partial(write_partition, dataset, agent_key, schema), REPORT_SCHEMA)
        self._reports: dict[int, PartitionReport] = {}
        self._expires_at = math.inf
        self._recompute_lock = threading.Lock()

    @property
    def parts(self) -> tuple[DatasetPart, ...]:
        """The parts of the data set, in the order of the partitions."""
        return tuple(self._reports[partition_id].part for partition_id in sorted(self._reports))

    def run(self) -> None:
        """Compute and commit all partitions. Raises as `publish`."""
        self._compute_and_commit(None, self.agent_key.ttl_s)
        self._expires_at = time.monotonic() + self.agent_key.ttl_s

    def find_missing(self) -> list[int]:
        """Return the partitions that agents have lost. Those of agents that this process can't ask do not count."""
        attempts = self._local_attempts()
        try:
            with self._local_agent() as agent:
                return agent.find_missing(self._dataset, attempts) if attempts else []
        except _LOST_AGENT:
            return sorted(attempts)

    def recompute(self) -> list[int]:
        """Compute the lost partitions again, and return their numbers; `parts` then has their locations.

        If that fails, the others stay as they are. Raises as `PublishedDataset.recompute`.
        """
        with self._recompute_lock:
            lost = self.find_missing()
            if not lost:
                return []
            ttl_s = self._expires_at - time.monotonic()
            if ttl_s <= 0:
                raise NotFoundError(f"data set {self._dataset} has expired")
            self._check_application()
            previous = self._reports
            try:
                self._compute_and_commit(lost, ttl_s)
            except BaseException:
                self._reports = previous
                self._discard_attempts(lost, ttl_s)
                raise
            return lost

    def drop(self) -> None:
        """Free the memory of the data set, on the agents that this process can reach."""
        try:
            with self._local_agent() as agent:
                agent.drop(self._dataset)
        except BowstringError:
            pass  # there is no such data set, or no agent

    def _compute_and_commit(self, lost: Sequence[int] | None, ttl_s: float) -> None:
        """Compute the lost partitions, all for None, until no agent has lost any."""
        spark = self._job.frame.sparkSession
        max_attempts = int(spark.conf.get(_MAX_ATTEMPTS_SETTING, _DEFAULT_MAX_ATTEMPTS) or _DEFAULT_MAX_ATTEMPTS)
        for _ in range(max_attempts):
            self._compute(lost)
            lost = self._commit(ttl_s)
            if not lost:
                return
            _LOGGER.warning("data set %s: a host agent has ended with the partitions %s", self._dataset, lost)
        raise ConnectionLostError(
            f"data set {self._dataset}: a host agent ended with the partitions {lost} in each of {max_attempts} "
            f"consecutive attempts"
        )

    def _compute(self, lost: Sequence[int] | None) -> None:
        if lost is not None:
            self._reopen()
        reports = dict(self._reports)
        if lost is None or not self._has_same_rows_again():
            reports = {row.partition_id: PartitionReport(*row) for row in self._job.collect()}
        elif any(reports[partition_id].num_rows for partition_id in lost):
            frame = self._job.frame
            rows = frame.sparkSession.sparkContext.runJob(frame.rdd, list, lost)
            reports.update((row.partition_id, PartitionReport(*row)) for row in rows)
        if not any(report.num_rows for report in reports.values()):
            reports[0] = write_empty_partition(self._dataset, self.agent_key, self._schema)
        self._reports = reports

    def _has_same_rows_again(self) -> bool:
        """Whether a job for some of the partitions gives them the same rows as the first job."""
        frame: Any = self._job.frame
        if not hasattr(frame, "_jdf"):
            return False  # Spark Connect
        level: str = frame._jdf.queryExecution().toRdd().outputDeterministicLevel().toString()
        return level != _INDETERMINATE

    def _check_application(self) -> None:
        frame: Any = self._job.frame
        if hasattr(frame, "_jdf") and frame.sparkSession.sparkContext._jsc is None:
            raise ClosedError(f"data set {self._dataset}: its Spark application has ended, and nothing can be computed")

    def _commit(self, ttl_s: float) -> list[int]:
        """Commit all partitions, and return those that are lost; if there are any, nothing is committed."""
        attempts = self._local_attempts()
        try:
            with self._local_agent() as agent:
                return agent.commit_attempts(self._dataset, attempts, ttl_s) if attempts else []
        except _LOST_AGENT:
            return sorted(attempts)

    def _discard_attempts(self, lost: Sequence[int], ttl_s: float) -> None:
        """Drop uncommitted attempts: commit those that were committed before, without the lost ones."""
        remaining = {number: attempt for number, attempt in self._local_attempts().items() if number not in lost}
        try:
            with self._local_agent() as agent:
                agent.commit_attempts(self._dataset, remaining, ttl_s)
        except _LOST_AGENT:
            pass  # there are none

    def _reopen(self) -> None:
        try:
            with self._local_agent() as agent:
                agent.reopen(self._dataset)
        except _LOST_AGENT:
            pass  # the next attempt starts another agent

    def _local_agent(self) -> AgentClient:
        return AgentClient.open(self.agent_key, start=False)

    def _local_attempts(self) -> dict[int, int]:
        """The attempt of each partition in the agent of the driver's host."""
        return {number: report.attempt for number, report in self._reports.items() if report.is_local and report.uris}
