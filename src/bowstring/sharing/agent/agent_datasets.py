"""The data sets of a host agent: attempts of partitions, their commit, their lifetime and their descriptors.

A process may have as few as 1,024 descriptors. So small partitions, and beyond a quarter of the limit the smallest of
any size, are copied together into larger memfds, each for one data set: 10,000 partitions that eight processes read
at once take ten descriptors of the agent and five of each reader.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError, ResourceError
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.agent.end_records import EndRecord
from bowstring.sharing.agent.memory_budget import MemoryBudget
from bowstring.sharing.agent.publications import Publication
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.server.server import Server
from bowstring.sharing.stored_parts import RegionPart, index_part, merge_into_region

_MAX_ENDED = 100_000
"""The data sets whose end is remembered, some 300 bytes each."""
_REPLACED_S = 5.0
"""How long a replaced data set can be read by those that have opened it: opening and connecting are two steps."""
_MAX_REPLACED_BYTES = 1 << 30
"""The bytes of replaced data sets that can still be read, besides the data set that was replaced last."""
_MAX_NEWEST = 10
"""The data sets that an error lists."""
_SMALL_BYTES = 256 << 10
"""Partitions up to this size are always packed: mapping one takes a reader longer than copying it."""
_MERGE_BYTES = 256 << 20
"""The most that is packed at once: it takes that much memory twice while it is copied, and half a second."""

Attempt: TypeAlias = tuple[int, int]
"""The index of a partition, and the ID of the task attempt that wrote it."""


@dataclass(slots=True)
class _AgentDataset:
    """The attempts of a data set, their regions, and the tickets that can be read."""

    ttl_s: float
    expires_at: float = math.inf
    is_complete: bool = False
    is_detached: bool = False
    publication: Publication | None = None
    created_at: float = 0.0
    """When it was published, in seconds since 1970."""
    monotonic_s: float = 0.0
    """The same by the monotonic clock."""
    partitions: dict[Attempt, RegionPart] = field(default_factory=dict)
    regions: dict[Region, list[Attempt]] = field(default_factory=dict)
    tickets: set[str] = field(default_factory=set)

    def start_lifetime(self) -> None:
        """Let the data set expire `ttl_s` from now: after the commit, or after the last attempt that needs none."""
        self.expires_at = time.monotonic() + self.ttl_s

    @property
    def nbytes(self) -> int:
        """The bytes of all attempts."""
        return sum(partition.size_bytes for partition in self.partitions.values())

    @property
    def expiry_time(self) -> float | None:
        """When it expires, in seconds since 1970; None for never."""
        return None if math.isinf(self.expires_at) else time.time() + self.expires_at - time.monotonic()

    def add_attempt(self, attempt: Attempt, partition: RegionPart) -> None:
        """Add an attempt."""
        self.partitions[attempt] = partition
        self.regions.setdefault(partition.region, []).append(attempt)

    def keep_only_attempts(self, attempts: Iterable[Attempt]) -> set[Region]:
        """Remove all other attempts. Return the remaining regions that still contain bytes of removed ones."""
        self.partitions = {attempt: self.partitions[attempt] for attempt in attempts}
        before, self.regions = self.regions, {}
        for attempt, partition in self.partitions.items():
            self.regions.setdefault(partition.region, []).append(attempt)
        return {region for region, remaining in self.regions.items() if len(remaining) < len(before[region])}

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of partitions, rows, bytes and regions."""
        return {
            "partitions": len(self.partitions),
            "rows": sum(partition.num_rows for partition in self.partitions.values()),
            "bytes": self.nbytes,
            "memory_bytes": sum(region.size_bytes for region in self.regions if region.is_sealed),
            "spilled_bytes": sum(region.size_bytes for region in self.regions if not region.is_sealed),
            "regions": len(self.regions),
            "is_complete": self.is_complete,
        }


class AgentDatasets(Closable):
    """The data sets of an agent by their names. `server` is where they can be read."""

    def __init__(self, server: Server, memory: MemoryBudget, max_regions: int) -> None:
        self.server = server
        self._memory = memory
        self._max_regions = max_regions
        self._datasets: dict[str, _AgentDataset] = {}
        self._ended: dict[str, tuple[str | None, str]] = {}
        """The name that each data set was published with, if it was, and why it has ended, the newest end last.

        Replaced ones stay in `_datasets` for a while: they can be read, but not found. A late attempt must not create a
        data set again that has ended, because nothing would drop it.
        """
        self._last_monotonic_s = 0.0
        self._record = EndRecord()
        self._is_recorded = True
        self._recorded_at = -math.inf

    def __len__(self) -> int:
        return len(self._datasets)

    def put(
        self,
        name: str,
        attempt: Attempt,
        partition: RegionPart,
        *,
        ttl_s: float,
        needs_commit: bool,
        is_detached: bool = False,
    ) -> DatasetLocations:
        """Take the memory or the unnamed file of one attempt, and return where it can be read: after the commit, or at
        once if it needs none. In the latter case, `is_detached` applies; otherwise, `publish` detaches it.
        """
        ttl_s = _check_lifetime(name, ttl_s)
        locations = self.server.issue_locations(_format_ticket(name, attempt))
        dataset = self._datasets.get(name)
        # Attempts may be late, such as the slower of two speculative copies.
        if name in self._ended or (dataset is not None and dataset.is_complete):
            raise InvalidArgumentError(f"data set {name!r} is complete or dropped: partitions can't be added")
        if dataset is not None and attempt in dataset.partitions:
            raise InvalidArgumentError(
                f"data set {name!r}: partition {attempt[0]}, attempt {attempt[1]} exists already"
            )
        if dataset is None:
            dataset = self._datasets[name] = _AgentDataset(ttl_s)
        dataset.add_attempt(attempt, partition)
        self._memory.add_region(partition.region)
        if not needs_commit:
            dataset.is_detached = is_detached
            dataset.start_lifetime()
            self._serve_partitions(name, dataset, [attempt])
        self._reduce_regions()
        return locations

    def find_missing(self, name: str, attempts: Iterable[Attempt]) -> list[int]:
        """Return the partitions whose attempts are not there. Raises `NotFoundError`."""
        partitions = self._find(name).partitions
        return sorted(attempt[0] for attempt in attempts if attempt not in partitions)

    def reopen(self, name: str) -> None:
        """Accept attempts again until the next commit; committed ones can be read meanwhile. Raises `NotFoundError`."""
        self._find(name).is_complete = False

    def commit(self, name: str, attempts: set[Attempt], ttl_s: float | None = None) -> list[int]:
        """Serve these attempts, and drop the others. Return the partitions without one; then nothing is committed.

        The first commit starts the lifetime: `ttl_s`, or the first attempt's.
        """
        dataset = self._find(name)
        ttl_s = dataset.ttl_s if ttl_s is None else _check_lifetime(name, ttl_s)
        missing = self.find_missing(name, attempts)
        if missing or dataset.is_complete:  # a commit is done once, unless the data set is reopened
            return missing
        if math.isinf(dataset.expires_at):
            dataset.ttl_s = ttl_s
            dataset.start_lifetime()
        # Also regions of which only a part was committed, so that the memory of the rest is freed.
        mixed = dataset.keep_only_attempts(attempts)
        for ticket in dataset.tickets - {_format_ticket(name, attempt) for attempt in attempts}:
            self.server.remove(ticket, f"data set {name!r}: the partition was computed again")
            dataset.tickets.remove(ticket)
        small = {region for region in dataset.regions if region.size_bytes <= _SMALL_BYTES}
        if mixed or len(small) > 1:
            self._compact_regions(name, dataset, mixed | small)
        self._serve_partitions(name, dataset, attempts)
        dataset.is_complete = True  # last, so that a commit that failed can be repeated
        return []

    def publish(self, name: str, publication: Publication) -> float | None:
        """Publish a committed data set, or update what was published. Return when it expires, in seconds since 1970.

        From now on it is listed, and if it is detached, it outlives the owners. Raises `NotFoundError`.
        """
        dataset = self._find(name)
        if not dataset.tickets:
            raise InvalidArgumentError(f"data set {name!r} is not committed")
        if dataset.publication is None:
            dataset.created_at = time.time()
            # Later than the one before, even in the same tick: the newest with a name counts.
            self._last_monotonic_s = max(time.monotonic(), math.nextafter(self._last_monotonic_s, math.inf))
            dataset.monotonic_s = self._last_monotonic_s
        dataset.publication, dataset.is_complete = publication, True
        self._is_recorded = False
        dataset.is_detached = publication.lifetime == "detached"
        return dataset.expiry_time

    def renew(self, name: str, ttl_s: float) -> float | None:
        """Let a data set expire `ttl_s` from now. Return this time, in seconds since 1970. Raises `NotFoundError`."""
        dataset = self._find(name)
        if name in self._ended:
            raise NotFoundError(self._ended[name][1])
        if not ttl_s > 0:
            raise InvalidArgumentError(f"data set {name!r}: ttl_s: expected a positive number, found {ttl_s}")
        dataset.ttl_s = float(ttl_s)
        dataset.start_lifetime()
        return dataset.expiry_time

    def find_published(self, name_or_id: str) -> dict[str, Any]:
        """Return the data set with an ID, or else the newest with a name: its fields in the list, and its description.

        If there is none, return why the one that ended last has ended, and the newest others.
        """
        matches = self.list_published(name_or_id)
        if not matches:
            texts = (text for id_, (name, text) in reversed(self._ended.items()) if name_or_id in (id_, name))
            newest = sorted(self.list_published(), key=lambda summary: summary["monotonic_s"])[-_MAX_NEWEST:]
            return {"ended": next(texts, ""), "newest": newest}
        summary = max(matches, key=lambda summary: (summary["id"] == name_or_id, summary["monotonic_s"]))
        publication = self._datasets[summary["id"]].publication
        assert publication is not None
        return {"summary": summary, "description": publication.description}

    def list_published(self, name_or_id: str | None = None) -> list[dict[str, Any]]:
        """Return the fields of `PublishedSummary`, and of `Publication` without the description, of each published data
        set, or of those with an ID or a name.
        """
        readers = self._count_readers()
        return [
            {
                "id": name,
                **dataset.publication.to_json(),
                "created_at": dataset.created_at,
                "expires_at": dataset.expiry_time,
                "num_readers": readers[name],
                "monotonic_s": dataset.monotonic_s,
            }
            for name, dataset in self._datasets.items()
            if dataset.publication is not None
            and name not in self._ended
            and name_or_id in (None, name, dataset.publication.name)
        ]

    def _count_readers(self) -> Counter[str]:
        """The number of the processes and connections of other hosts that have requested each data set."""
        readers: dict[str, set[object]] = {}
        for peer, tickets in self.server.list_requests():
            for name in {ticket.partition("/")[0] for ticket in tickets}:
                readers.setdefault(name, set()).add(peer)
        return Counter({name: len(peers) for name, peers in readers.items()})

    def drop_unpublished(self, names: Iterable[str]) -> None:
        """Drop the data sets among these that were not published."""
        for name in names:
            dataset = self._datasets.get(name)
            if dataset is not None and dataset.publication is None:
                self.drop(name, "ended with the process that wrote it")

    def drop_attached(self) -> None:
        """Drop all data sets but detached ones, because no owner remains."""
        for name in [name for name, dataset in self._datasets.items() if not dataset.is_detached]:
            self.drop(name, "ended with the process that published it")

    def drop(self, name: str, reason: str) -> None:
        """Drop a data set. Raises `NotFoundError`. Clients that ask for it later get `reason`, such as "was closed"."""
        dataset = self._find(name)
        text = self._ended[name][1] if name in self._ended else self._add_end(name, dataset, reason)
        del self._datasets[name]
        for ticket in dataset.tickets:
            self.server.remove(ticket, text)

    def replace(self, name: str, reason: str) -> None:
        """Drop a data set a few seconds later, for those that have found it already; nobody finds it from now on."""
        dataset = self._find(name)
        self._add_end(name, dataset, reason)
        dataset.expires_at = min(dataset.expires_at, time.monotonic() + _REPLACED_S)
        newest_first = [each for each in reversed(self._ended) if each in self._datasets]
        sizes = accumulate(self._datasets[each].nbytes for each in newest_first[1:])
        for each, size_bytes in zip(newest_first[1:], sizes, strict=True):
            if size_bytes > _MAX_REPLACED_BYTES:
                self.drop(each, reason)

    def _add_end(self, name: str, dataset: _AgentDataset, reason: str) -> str:
        """Remember why a data set has ended, for a number of them; return it as a sentence."""
        text = f"data set {name!r} {reason} at {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}"
        self._ended.pop(name, None)
        self._ended[name] = (None if dataset.publication is None else dataset.publication.name, text)
        self._is_recorded = False
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return text

    def drop_expired(self) -> bool:
        """Drop expired data sets; return False if there are none."""
        now = time.monotonic()
        expired = [(name, dataset.ttl_s) for name, dataset in self._datasets.items() if dataset.expires_at < now]
        for name, ttl_s in expired:
            self.drop(name, f"expired after its lifetime of {ttl_s:g} s")
        return bool(expired)

    def record(self, interval_s: float) -> None:
        """Record what is published and has ended, for the errors of those who look for it when the agent has ended.

        Changes are written once in an interval: of many data sets, a record takes longer than publishing one more.
        """
        if self._is_recorded:
            if self._datasets:
                self._record.touch()
        elif time.monotonic() >= self._recorded_at + interval_s:
            self._recorded_at = time.monotonic()
            published = [each for each in self._datasets.items() if each[0] not in self._ended]
            self._record.write(
                {name: each.publication.name for name, each in published if each.publication}, self._ended
            )
            self._is_recorded = True

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the state of each data set."""
        return {
            name: {**dataset.to_json(), "is_replaced": name in self._ended} for name, dataset in self._datasets.items()
        }

    def close(self) -> None:
        """Drop all data sets. Idempotent."""
        for name in list(self._datasets):
            self.drop(name, "ended with its host agent")

    def _find(self, name: str) -> _AgentDataset:
        dataset = self._datasets.get(name)
        if dataset is None:
            _, reason = self._ended.get(name, (None, f"the host agent has no data set {name!r}"))
            raise NotFoundError(reason)
        return dataset

    def _serve_partitions(self, name: str, dataset: _AgentDataset, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            ticket = _format_ticket(name, attempt)
            if ticket not in dataset.tickets:
                self.server.add_parts(ticket, dataset.partitions[attempt])
                dataset.tickets.add(ticket)

    def _reduce_regions(self) -> None:
        """Pack the smallest half of the largest data set's regions if there are too many descriptors."""
        if sum(len(dataset.regions) for dataset in self._datasets.values()) <= self._max_regions:
            return
        name, dataset = max(self._datasets.items(), key=lambda entry: len(entry[1].regions))
        smallest, size_bytes = list[Region](), 0
        max_regions = max(len(dataset.regions) // 2, 2)
        for region in sorted(dataset.regions, key=lambda region: region.size_bytes)[:max_regions]:
            size_bytes += region.size_bytes
            if size_bytes > _MERGE_BYTES and len(smallest) > 1:
                break
            smallest.append(region)
        if len(smallest) > 1:
            self._compact_regions(name, dataset, smallest)

    def _compact_regions(self, name: str, dataset: _AgentDataset, regions: Iterable[Region]) -> None:
        """Copy the attempts of some regions into few regions. If memory is short, the regions stay as they are."""
        for group in _group_by_size(regions):
            attempts = [attempt for region in group for attempt in dataset.regions[region]]
            if sum(region.size_bytes for region in group) == dataset.partitions[attempts[0]].size_bytes:
                continue  # nothing would be gained
            try:
                folders = self._memory.choose_merge_folders(group)
                packed = merge_into_region([dataset.partitions[attempt] for attempt in attempts], name, folders)
            except ResourceError:
                return
            self._memory.add_region(packed[0].region)
            # First all of the data set, which can't fail, then the server: what it keeps of the old regions is right.
            for region in group:
                # The server's clients keep a region that they have leases of, and retire it afterwards.
                del dataset.regions[region]
            for attempt, partition in zip(attempts, packed, strict=True):
                dataset.add_attempt(attempt, partition)
            for attempt, partition in zip(attempts, packed, strict=True):
                ticket = _format_ticket(name, attempt)
                if ticket in dataset.tickets:
                    self.server.replace_parts(ticket, partition)


def index_partition(region: Region, num_rows: int) -> RegionPart:
    """Return the partition in a region. Raises `InvalidDataError`, `InvalidArgumentError` for other rows."""
    # Any other file could be truncated by any process that has its name, which ends processes that have it mapped.
    if not region.is_sealed and not region.is_unnamed_file:
        raise InvalidDataError(f"{region.name}: expected sealed memory or an unnamed file of this user")
    partition = index_part(region)
    if partition.num_rows != num_rows:
        raise InvalidArgumentError(f"{region.name}: expected {num_rows} rows, found {partition.num_rows}")
    return partition


def _check_lifetime(name: str, ttl_s: float) -> float:
    """Return a lifetime as a float. Raises `OverflowError` for an integer without one, and `InvalidArgumentError` if a
    data set would never expire, as after NaN.
    """
    if not ttl_s >= 0:
        raise InvalidArgumentError(f"data set {name!r}: ttl_s: expected a number of seconds, found {ttl_s}")
    return float(ttl_s)


def _group_by_size(regions: Iterable[Region]) -> Iterator[list[Region]]:
    """Groups of at most `_MERGE_BYTES`, or of one region, so that no more memory is taken twice at a time. Memory and
    files are separate.
    """
    group, size_bytes = list[Region](), 0
    for region in sorted(regions, key=lambda region: region.is_sealed):
        size_bytes += region.size_bytes
        if group and (size_bytes > _MERGE_BYTES or region.is_sealed != group[0].is_sealed):
            yield group
            group, size_bytes = [], region.size_bytes
        group.append(region)
    if group:
        yield group


def _format_ticket(name: str, attempt: Attempt) -> str:
    return f"{name}/{attempt[0]}/{attempt[1]}"
