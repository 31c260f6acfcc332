"""The memory that a task may fill in the container of its executor."""

from __future__ import annotations

from pathlib import Path

from bowstring.memory.available_memory import spare_memory_bytes
from bowstring.sharing.processes import find_java_ancestor
from bowstring.spark.arrow_batch_job import MAX_BATCH_BYTES
from bowstring.spark.options import parse_byte_size

_MIN_OVERHEAD_BYTES = 384 << 20
_OVERHEAD_DIVISOR = 10
"""The overhead of a JVM beyond its heap, by Spark's own defaults (`spark.executor.memoryOverhead`)."""
_BATCHES_BYTES = 2 * MAX_BATCH_BYTES
"""The next batch, in the JVM and in this process."""


def spare_executor_bytes() -> int | None:
    """Return `spare_memory_bytes`, less what this process's JVM may still allocate and the next batch; None if unknown.

    The kernel would end the JVM, whose heap grows whatever other processes have allocated.
    """
    spare_bytes = spare_memory_bytes()
    return None if spare_bytes is None else max(spare_bytes - _BATCHES_BYTES - _read_jvm_growth_bytes(), 0)


def _read_jvm_growth_bytes() -> int:
    """What the JVM may still take; 0 if this is not a process of a JVM, or it has no `-Xmx`."""
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
