"""The memory that a task may fill in the container of its executor."""

from __future__ import annotations

from pathlib import Path

from bowstring.memory.available_memory import spare_memory_bytes
from bowstring.sharing.processes import find_java_ancestor
from bowstring.spark.options import parse_byte_size


def spare_executor_bytes() -> int | None:
    """`spare_memory_bytes`, without what the heap of this process's JVM may still grow: the kernel would end the JVM,
    which can't know that the memory is in use. None if unknown.
    """
    spare_bytes = spare_memory_bytes()
    return None if spare_bytes is None else spare_bytes - _read_heap_growth_bytes()


def _read_heap_growth_bytes() -> int:
    """What the JVM's heap may still take; 0 if this is not a process of a JVM, or it has no `-Xmx`."""
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
        return max(parse_byte_size("-Xmx", sizes[-1]) - resident_bytes, 0)
    except (OSError, ValueError, StopIteration):  # the JVM has ended
        return 0
