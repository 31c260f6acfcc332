"""The tasks of a read: each reads ranges of files, or rows of parts of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task reads, and the bytes that are read in the time that it takes."""

    ranges: tuple[Any, ...]
    length_bytes: int


class TaskReader(Protocol):
    """Plans tasks on the driver, and reads their ranges on the executors, to which it is sent pickled."""

    def plan(self) -> list[ReadTask]:
        """Return the tasks; one without ranges if there is nothing to read."""

    def read(self, ranges: tuple[Any, ...]) -> Iterator[Any]:
        """Yield pyarrow batches with Spark's types."""


def group_ranges(ranges: Iterable[tuple[Any, int]], split_bytes: int) -> list[ReadTask]:
    """Group ranges with their lengths in bytes, in order, into tasks of up to `split_bytes`, or one range."""
    tasks: list[ReadTask] = []
    group: list[Any] = []
    group_bytes = 0
    for each, length_bytes in ranges:
        if group and group_bytes + length_bytes > split_bytes:
            tasks.append(ReadTask(tuple(group), group_bytes))
            group, group_bytes = [], 0
        group.append(each)
        group_bytes += length_bytes
    return [*tasks, ReadTask(tuple(group), group_bytes)]
