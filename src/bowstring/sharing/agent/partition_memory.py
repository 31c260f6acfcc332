"""The memory of a partition while a task writes it: reserved from the host agent, or a file where that is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from bowstring.errors import ConnectionLostError, ResourceError
from bowstring.memory.available_memory import spare_memory_bytes
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.memory.unnamed_file import free_bytes, is_in_memory
from bowstring.sharing.agent.client import AgentClient, AgentKey, AttemptLocation
from bowstring.sharing.agent.memory_budget import MemoryRequest, find_spill_folders

AGENT_TIMEOUT_S = 120.0
"""How long a task waits for its host agent; starting it can take a while on a busy host."""
_MIN_STEP_BYTES = 1 << 20
_MAX_STEP_BYTES = 64 << 20
"""Reservations double, between these steps: that is a request per 64 MiB, and for small partitions one."""

_Reply = TypeVar("_Reply")


class PartitionMemory(Closable):
    """The bytes of a partition, written through `fileno`, which the host agent takes at last.

    Call `reserve` before each write. It may move the bytes to a file, behind the same descriptor. `close` discards them
    unless `put` was called. `read_spare_bytes` returns what this process's container can spare, or None.
    """

    def __init__(
        self, key: AgentKey, name: str, read_spare_bytes: Callable[[], int | None] = spare_memory_bytes
    ) -> None:
        self._key = key
        self._limit_bytes = key.memory_limit_bytes
        self._read_spare_bytes = read_spare_bytes
        self._agent: AgentClient | None = None
        self._needed_bytes = self._reserved_bytes = 0
        self._shortage = ""
        self._is_on_disk = False
        self._memory = Region.create_writer(name)

    def fileno(self) -> int:
        """The descriptor to write to."""
        return self._memory.fileno()

    @property
    def size_bytes(self) -> int:
        """The number of bytes that were written."""
        return os.fstat(self._memory.fileno()).st_size

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory for a write, or continue in a file.

        Raises `ResourceError` if there is neither memory nor a file, and as `AgentClient.open`.
        """
        self._needed_bytes += size_bytes
        if self._needed_bytes <= self._reserved_bytes or self._is_on_disk:
            return
        # Before the bytes are written: tasks of a host that start at once could otherwise each see the same free
        # memory.
        shortage = self._request_memory(self._needed_bytes)
        if not shortage:
            return
        self._shortage = self._shortage or shortage
        if self._memory.spill_folder is not None:  # the file is in memory, too, and there is no other place
            raise ResourceError(f"memory is short: {shortage}")
        self._spill()

    def put(self, dataset: str, attempt: tuple[int, int], num_rows: int) -> tuple[AttemptLocation, int]:
        """Pass the partition to the host agent, as `AgentClient.put`. Return its location and number of bytes."""
        with self._memory.seal() as region:
            ttl_s = self._key.ttl_s
            location = self._call_agent(
                lambda agent: agent.put(dataset, attempt, region, num_rows=num_rows, ttl_s=ttl_s)
            )
            return location, region.size_bytes

    def describe_space(self) -> str:
        """Where the bytes are, why, and how much more fits there, for an error."""
        folder = self._memory.spill_folder
        if folder is None:
            return f"in memory, of which {self._read_spare_bytes()} bytes can be spared"
        return f"in a file in {folder}, which has {free_bytes(folder)} bytes free (memory is short: {self._shortage})"

    def close(self) -> None:
        """Discard the bytes unless `put` was called, and return the reservation. Idempotent."""
        self._memory.close()
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _spill(self) -> None:
        folders = find_spill_folders()
        if folders and is_in_memory(folders[0]):
            # The file takes memory, too: the limit does not apply to it, but what is available does, and the bytes are
            # there twice while they are copied.
            self._limit_bytes = None
            shortage = self._request_memory(self._needed_bytes + self.size_bytes)
            if shortage:
                raise ResourceError(f"memory is short: {shortage}; files in {', '.join(folders)} take memory, too")
        try:
            self._memory.spill(folders)
        except ResourceError as problem:
            space = "".join(f"; {folder} has {free_bytes(folder)} bytes free" for folder in folders)
            raise ResourceError(f"memory is short: {self._shortage}; {problem}{space}") from problem
        self._is_on_disk = not is_in_memory(self._memory.spill_folder or "")
        if self._is_on_disk:
            # Returns the memory. The reservation stays open, or the agent would close the connection as idle.
            empty = MemoryRequest(0, 0, 0, None, None)
            self._call_agent(lambda agent: agent.reserve(empty))

    def _request_memory(self, needed_bytes: int) -> str:
        """Reserve at least these bytes in total; return why not, or an empty string."""
        written_bytes = self.size_bytes
        needed_bytes = max(needed_bytes, written_bytes)
        wanted_bytes = needed_bytes + min(max(needed_bytes, _MIN_STEP_BYTES), _MAX_STEP_BYTES)
        spare_bytes = self._read_spare_bytes()
        request = MemoryRequest(needed_bytes, wanted_bytes, written_bytes, self._limit_bytes, spare_bytes)
        self._reserved_bytes, shortage = self._call_agent(lambda agent: agent.reserve(request))
        return shortage

    def _call_agent(self, call: Callable[[AgentClient], _Reply]) -> _Reply:
        """Call the agent, or another one if it has ended: the partition is still here."""
        if self._agent is not None:
            try:
                return call(self._agent)
            except ConnectionLostError:
                self._agent.close()
        self._agent = AgentClient.open(self._key, timeout_s=AGENT_TIMEOUT_S)
        return call(self._agent)
