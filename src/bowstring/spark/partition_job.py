"""The partitions of a published frame: computed by a Spark job, and computed again if a host agent loses them.

A lost partition is treated as Spark treats a lost shuffle file: only what was lost is computed, from the same lineage,
as often as Spark repeats a stage. The query execution is that of the first job, so it has the same final plan and the
same shuffle files, and each partition has the same rows. Where that does not hold, all partitions are computed again,
and the earlier ones are dropped: on Spark Connect, which runs whole frames only, and if Spark calls the frame's output
indeterminate, for which it repeats whole stages, too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bowstring.datasets.dataset import DatasetPart
from bowstring.datatypes.schema import Schema
from bowstring.errors import ConnectionLostError, NotFoundError
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
        self._agent_key = agent_key
        self._schema = schema
        self._job = plan_map_in_arrow(df, partial(write_partition, dataset, agent_key, schema), REPORT_SCHEMA)
        self._reports: dict[int, PartitionReport] = {}

    @property
    def parts(self) -> tuple[DatasetPart, ...]:
        """The parts of the data set, in the order of the partitions."""
        return tuple(self._reports[partition_id].part for partition_id in sorted(self._reports))

    def run(self) -> None:
        """Compute and commit all partitions. Raises as `publish`."""
        self._compute_and_commit(None, self._agent_key.ttl_s)

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
            reports[0] = write_empty_partition(self._dataset, self._agent_key, self._schema)
        self._reports = reports

    def _has_same_rows_again(self) -> bool:
        """Whether a job for some of the partitions gives them the same rows as the first job."""
        frame: Any = self._job.frame
        if not hasattr(frame, "_jdf"):
            return False  # Spark Connect
        level: str = frame._jdf.queryExecution().toRdd().outputDeterministicLevel().toString()
        return level != _INDETERMINATE

    def _commit(self, ttl_s: float) -> list[int]:
        """Commit all partitions, and return those that are lost; if there are any, nothing is committed."""
        attempts = self._local_attempts()
        try:
            with self._local_agent() as agent:
                return agent.commit_attempts(self._dataset, attempts, ttl_s) if attempts else []
        except _LOST_AGENT:
            return sorted(attempts)

    def _reopen(self) -> None:
        try:
            with self._local_agent() as agent:
                agent.reopen(self._dataset)
        except _LOST_AGENT:
            pass  # the next attempt starts another agent

    def _local_agent(self) -> AgentClient:
        return AgentClient.open(self._agent_key, start=False)

    def _local_attempts(self) -> dict[int, int]:
        """The attempt of each partition in the agent of the driver's host."""
        return {number: report.attempt for number, report in self._reports.items() if report.is_local and report.uris}
