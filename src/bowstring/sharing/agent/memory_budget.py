"""The memory of a host agent: its partitions, and reservations of tasks for partitions that they write.

A task reserves memory before it writes, in growing chunks. Where a reservation is refused, it continues in an unnamed
file: the kernel would otherwise end a process, often the JVM, because memory that others can map is never reclaimed.

Two limits apply. The publisher's limit is for the agent's regions and all reservations. The memory that is available
now has to cover what is reserved and not written yet. The task reads it, because its control group is charged for what
it writes. Reservations of other control groups count, too, since the agent can't identify them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from bowstring.errors import InvalidArgumentError
from bowstring.memory.available_memory import spare_memory_bytes
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.memory.unnamed_file import find_folders
from bowstring.sharing.server.options import UNLIMITED_BYTES

_FOLDER_VARIABLES = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
"""Spark's, which it sets for its Python workers, and YARN's."""


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """The memory that a partition needs in total, and the larger amount that covers its next writes, too.

    `limit_bytes` is the limit of the host agent's memory, `available_bytes` what the writer's control group has.
    None means unlimited.
    """

    needed_bytes: int
    wanted_bytes: int
    written_bytes: int
    limit_bytes: int | None
    available_bytes: int | None

    def __post_init__(self) -> None:
        numbers = (self.needed_bytes, self.wanted_bytes, self.written_bytes, self.limit_bytes, self.available_bytes)
        is_typed = all(type(number) is int for number in numbers if number is not None)
        if not (is_typed and 0 <= self.written_bytes <= self.needed_bytes <= self.wanted_bytes):
            raise InvalidArgumentError(f"expected a request for memory, found {self}")


class MemoryBudget:
    """Counts regions as long as they exist, and reservations until they are closed."""

    def __init__(self) -> None:
        self._regions = weakref.WeakSet[Region]()  # regions may be freed in any thread, even while they are added up
        self._reservations: set[MemoryReservation] = set()

    @property
    def held_bytes(self) -> int:
        """The memory of the regions."""
        return sum(region.size_bytes for region in self._regions if region.is_sealed)

    @property
    def spilled_bytes(self) -> int:
        """The bytes of the regions that are files."""
        return sum(region.size_bytes for region in self._regions if not region.is_sealed)

    @property
    def reserved_bytes(self) -> int:
        """The memory that tasks have reserved."""
        return sum(reservation.reserved_bytes for reservation in self._reservations)

    @property
    def has_reservations(self) -> bool:
        """Whether any task is writing a partition, in memory or in a file."""
        return bool(self._reservations)

    def add_region(self, region: Region) -> None:
        """Count a region until it is freed."""
        self._regions.add(region)

    def reserve(self, reservation: MemoryReservation, request: MemoryRequest) -> str:
        """Replace a reservation: reserve what is needed, and what is wanted as well, up to a quarter of the rest.

        Return an empty string, or why it is refused; the reservation is unchanged then.
        """
        self._reservations.add(reservation)
        reservation.is_open = True
        others = self._reservations - {reservation}
        allowed_bytes, shortage = UNLIMITED_BYTES, ""
        if request.limit_bytes is not None:
            held_bytes, reserved_bytes = self.held_bytes, sum(other.reserved_bytes for other in others)
            allowed_bytes = request.limit_bytes - held_bytes - reserved_bytes
            shortage = f"{held_bytes} bytes are held and {reserved_bytes} reserved of the limit, {request.limit_bytes}"
        if request.available_bytes is not None:
            unwritten_bytes = sum(other.unwritten_bytes for other in others)
            available_bytes = request.written_bytes + request.available_bytes - unwritten_bytes
            if available_bytes < allowed_bytes:
                allowed_bytes = available_bytes
                shortage = f"{request.available_bytes} bytes can be spared, of which {unwritten_bytes} are reserved"
        if allowed_bytes < request.needed_bytes:
            return shortage
        # Not all of it: other tasks would be refused what this one may not use.
        extra_bytes = min(request.wanted_bytes - request.needed_bytes, (allowed_bytes - request.needed_bytes) // 4)
        reservation.reserved_bytes = request.needed_bytes + extra_bytes
        reservation.written_bytes = request.written_bytes
        return ""

    def choose_merge_folders(self, regions: Iterable[Region]) -> list[str]:
        """The folders for the file that replaces some regions; empty if memory replaces them."""
        regions = list(regions)
        spare_bytes = spare_memory_bytes()
        is_short = spare_bytes is not None and sum(region.size_bytes for region in regions) > spare_bytes
        return find_spill_folders() if is_short or not all(region.is_sealed for region in regions) else []

    def to_json(self) -> dict[str, int]:
        """The sums, for the agent's status."""
        return {
            "held_bytes": self.held_bytes,
            "reserved_bytes": self.reserved_bytes,
            "spilled_bytes": self.spilled_bytes,
        }

    def release(self, reservation: MemoryReservation) -> None:
        """Remove a reservation. Idempotent."""
        self._reservations.discard(reservation)


class MemoryReservation(Closable):
    """The memory that a task has reserved; closed with its connection, or when the agent has the partition."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.is_open = False
        """Whether the task is writing a partition."""
        self.reserved_bytes = self.written_bytes = 0

    @property
    def unwritten_bytes(self) -> int:
        """The part of the reserved memory that was not written when the task asked last."""
        return self.reserved_bytes - self.written_bytes

    def close(self) -> None:
        """Return the memory. It can be reserved again. Idempotent."""
        self._budget.release(self)
        self.is_open = False
        self.reserved_bytes = self.written_bytes = 0


def find_spill_folders() -> list[str]:
    """Where partitions may continue in files, the best first: in Spark's local folders (its workers inherit
    them from their executor), otherwise in the temporary folder; on a disk if possible.
    """
    local_folders = next((os.environ[name] for name in _FOLDER_VARIABLES if os.environ.get(name)), "")
    return find_folders(local_folders.split(","))
