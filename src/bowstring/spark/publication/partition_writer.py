"""The work of a task that publishes: write its partition into memory, and pass that to the host agent."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bowstring.datasets.dataset import DatasetPart, parse_list_lengths
from bowstring.datatypes.schema import Schema
from bowstring.errors import ConnectionLostError, NotFoundError, ResourceError, add_location
from bowstring.ipc.api import new_file
from bowstring.kernels.list_lengths import ListLengthCollector
from bowstring.memory.available_memory import spare_memory_bytes
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import AgentClient, AgentKey, AttemptLocation
from bowstring.sharing.agent.partition_memory import AGENT_TIMEOUT_S, PartitionMemory
from bowstring.sharing.processes import find_java_ancestor
from bowstring.spark.arrow_files import write_batches
from bowstring.spark.options import WriteOptions, parse_byte_size
from bowstring.spark.runtime.arrow_batch_job import MAX_BATCH_BYTES
from bowstring.spark.vectors import VectorConversion

REPORT_SCHEMA = (
    "partition_id long, attempt long, host string, is_local boolean, num_rows long, nbytes long, uris array<string>, "
    "control_uri string, seconds double, attempt_number long, executor_pid long, list_lengths string"
)
"""The columns of a `PartitionReport`."""

_OPTIONS = WriteOptions(statistics=False)
_MESSAGE_BYTES = 4096
_COLUMN_BYTES = 256
"""Upper bounds of what a message and each column add to the values: metadata and padding, also in the footer."""
_MIN_OVERHEAD_BYTES = 384 << 20
_OVERHEAD_DIVISOR = 10
"""The overhead of a JVM beyond its heap, by Spark's own defaults (`spark.executor.memoryOverhead`)."""
_BATCHES_BYTES = 2 * MAX_BATCH_BYTES
"""The next batch, in the JVM and in this process."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The report of a task to the driver."""

    partition_id: int
    attempt: int
    """The ID of the task attempt, which is unique in the application."""
    host: str
    is_local: bool
    """Whether the task ran on the driver's host."""
    num_rows: int
    nbytes: int
    uris: tuple[str, ...]
    """Where it can be read, the nearest first; empty if the partition has no rows."""
    control_uri: str
    """Its agent, for `AgentClient.dial`; empty if that is reached only on its host."""
    seconds: float = 0.0
    """The time from the beginning of the task's Python code until the agent had the partition, also for the rows."""
    attempt_number: int = 0
    """How often the task had been tried before."""
    executor_pid: int = 0
    """The process of the executor; 0 if it was not found."""
    list_lengths: str = "[]"
    """`DatasetPart.list_lengths` as JSON."""

    def to_part(self, schema: Schema) -> DatasetPart:
        """Return the part of the data set."""
        list_lengths = parse_list_lengths(json.loads(self.list_lengths), schema)
        return DatasetPart(self.num_rows, self.nbytes, tuple(self.uris), self.host, list_lengths)


def write_partition(
    dataset: str, agent_key: AgentKey, schema: Schema, vectors: VectorConversion, batches: Iterator[Any]
) -> Iterator[Any]:
    """Store the batches of a partition and yield a report, with the columns of `REPORT_SCHEMA`; runs in a task."""
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    started_s = time.monotonic()
    partition_id, attempt = task.partitionId(), task.taskAttemptId()
    columns = vectors.convert((batch.select(range(len(schema))) for batch in batches), schema)
    collector = ListLengthCollector(schema.types)
    location, nbytes = AttemptLocation((), ""), 0  # of a partition without rows, which no agent has
    # Closed before the report is yielded: from then on only the agent has the memory, and the executor may be killed.
    with PartitionMemory(agent_key, f"{dataset}/{partition_id}", _spare_executor_bytes) as memory:
        try:
            reserved = _reserve_memory(memory, columns)
            num_rows, _ = write_batches(memory.fileno(), reserved, schema, _OPTIONS, collector)
        except ResourceError as problem:
            size, space = memory.size_bytes, memory.describe_space()
            place = f"data set {dataset}, partition {partition_id}, after {size} bytes {space}"
            raise add_location(problem, place) from problem
        if num_rows:  # otherwise nothing was written, and the memory is discarded
            location, nbytes = memory.put(dataset, (partition_id, attempt), num_rows)
    executor = find_java_ancestor()
    report = PartitionReport(
        partition_id,
        attempt,
        os.uname().nodename,
        agent_key.is_local,
        num_rows,
        nbytes,
        location.uris,
        location.control_uri,
        seconds=time.monotonic() - started_s,
        attempt_number=task.attemptNumber(),
        executor_pid=executor.pid if executor is not None else 0,
        list_lengths=json.dumps(collector.list_lengths),
    )
    yield pa.RecordBatch.from_pylist([asdict(report)])


def drop_on_this_host(dataset: str, agent_key: AgentKey, batches: Iterator[Any]) -> Iterator[Any]:
    """Free the partitions of a data set on this host; runs in a task."""
    yield from batches
    with suppress(ConnectionLostError, NotFoundError), AgentClient.open(agent_key, start=False) as agent:
        agent.drop(dataset)


def discard_on_this_host(
    dataset: str, agent_key: AgentKey, known_uris: frozenset[str], ttl_s: float, batches: Iterator[Any]
) -> Iterator[Any]:
    """Free the attempts of a data set on this host, unless `known_uris` has its agent; runs in a task.

    They can be written again, unlike attempts of a data set that was dropped. Late ones expire after `ttl_s`.
    """
    yield from batches
    with suppress(ConnectionLostError, NotFoundError), AgentClient.open(agent_key, start=False) as agent:
        if agent.control_uri not in known_uris:
            agent.commit_attempts(dataset, {}, ttl_s)
            agent.reopen(dataset)


def _reserve_memory(memory: PartitionMemory, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, for each of which memory was reserved."""
    for batch in batches:
        if batch.num_rows:
            memory.reserve(batch.nbytes + _MESSAGE_BYTES + _COLUMN_BYTES * batch.num_columns)
        yield batch


def write_empty_partition(dataset: str, agent_key: AgentKey, schema: Schema) -> PartitionReport:
    """Create partition 0 of a data set without rows on this host, so that the schema can be read from its URI."""
    with Region.create_writer(f"{dataset}/0") as memory:
        new_file(memory.fileno(), schema).close()
        with memory.seal() as region, AgentClient.open(agent_key, timeout_s=AGENT_TIMEOUT_S) as agent:
            location = agent.put(dataset, (0, 0), region, num_rows=0, ttl_s=agent_key.ttl_s)
            host = os.uname().nodename
            lengths = json.dumps(ListLengthCollector(schema.types).list_lengths)
            uris, control_uri = location.uris, location.control_uri
            return PartitionReport(0, 0, host, True, 0, region.size_bytes, uris, control_uri, list_lengths=lengths)


def _spare_executor_bytes() -> int | None:
    """Return `spare_memory_bytes`, less what this process's JVM may still allocate and the next batch; None if unknown.

    The kernel would end the JVM, whose heap grows whatever other processes have allocated.
    """
    spare_bytes = spare_memory_bytes()
    return None if spare_bytes is None else max(spare_bytes - _BATCHES_BYTES - _read_jvm_growth_bytes(), 0)


def _read_jvm_growth_bytes() -> int:
    """The memory that the JVM may still take; 0 if this is not a process of a JVM, or it has no `-Xmx`."""
    jvm = find_java_ancestor()
    try:
        if jvm is None:
            return 0
        arguments = Path(f"/proc/{jvm.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        sizes = [argument.removeprefix("-Xmx") for argument in arguments if argument.startswith("-Xmx")]
        if not sizes:
            return 0
        status = Path(f"/proc/{jvm.pid}/status").read_text().splitlines()
        resident_bytes = next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))
        heap_bytes = parse_byte_size("-Xmx", sizes[-1])  # Java uses the last one
        overhead_bytes = max(heap_bytes // _OVERHEAD_DIVISOR, _MIN_OVERHEAD_BYTES)
        return max(heap_bytes + overhead_bytes - resident_bytes, 0)
    except (OSError, ValueError, StopIteration):  # the JVM has ended
        return 0
