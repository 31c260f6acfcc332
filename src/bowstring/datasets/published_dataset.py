"""Published data sets: what `publish` returns, and how any process of the user finds it again by its name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datatypes.schema import Schema
from bowstring.errors import BowstringError, ClosedError, InvalidArgumentError
from bowstring.memory.closable import Closable
from bowstring.sharing.agent_client import AgentClient, AgentKey
from bowstring.sharing.agent_directory import find_published, list_published
from bowstring.sharing.agent_group import AgentGroup
from bowstring.sharing.publications import (
    Publication,
    PublishedSummary,
    compress_description,
    decompress_description,
)

DEFAULT_TIMEOUT_S = 5.0


class DatasetControl(Protocol):
    """Changes the lifetime of a published data set on all its hosts."""

    def drop(self) -> None:
        """Free its memory. Does nothing if it does not exist any more."""

    def extend(self, ttl_s: float) -> datetime | None:
        """Let it expire `ttl_s` from now; return when, None for never. Raises `NotFoundError`."""


class LocalDatasetControl:
    """The control of a data set of an agent of this host."""

    def __init__(self, address: str, dataset_id: str) -> None:
        self._address = address
        self._dataset_id = dataset_id

    def drop(self) -> None:
        """As `DatasetControl.drop`."""
        try:
            with AgentClient.connect(self._address) as agent:
                agent.drop(self._dataset_id)
        except BowstringError:
            pass  # there is no such data set, or no agent

    def extend(self, ttl_s: float) -> datetime | None:
        """As `DatasetControl.extend`. Raises `ConnectionLostError` if the agent has ended."""
        with AgentClient.connect(self._address) as agent:
            return agent.extend(self._dataset_id, ttl_s)


class RemoteDatasetControl:
    """The control of a data set of the agents of several hosts, which another process may have published."""

    def __init__(self, agents: AgentGroup, uris: Iterable[str], dataset_id: str) -> None:
        self._agents = agents
        self._uris = tuple(uris)
        self._dataset_id = dataset_id

    def drop(self) -> None:
        """As `DatasetControl.drop`, on the hosts that can be reached."""
        self._agents.drop(self._dataset_id, self._uris)

    def extend(self, ttl_s: float) -> datetime | None:
        """As `DatasetControl.extend`, on the hosts that can be reached."""
        return self._agents.extend(self._dataset_id, self._uris, ttl_s)


class PublishedDataset(Dataset, Closable):
    """A data set in the memory of host agents, created by `publish` or `open_published`. A context manager.

    `bowstring.connect` accepts it, or any of its `uris`, in any process of the same user and host. `close` frees the
    memory; attached data stays valid. It can be pickled; an unpickled copy can be read, and its `close` closes only the
    copy. `id` is unique, `name` may be that of several data sets.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-extended", ttl_s=60) as dataset:
    ...     dataset.extend(3600)
    ...     dataset.schema, dataset.head(1)["n"].to_pylist()
    (Schema(n: int64), [1])
    """

    __slots__ = ("_control", "_expires_at", "_is_closed", "id")

    def __init__(
        self,
        name: str,
        schema: Schema,
        parts: Iterable[DatasetPart],
        id: str = "",
        expires_at: datetime | None = None,
        control: DatasetControl | None = None,
    ) -> None:
        super().__init__(name, schema, parts)
        self.id = id
        self._expires_at = expires_at
        self._control = control
        self._is_closed = False

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has rows; of one empty part, with the schema, if none has rows.

        Raises `ClosedError`.
        """
        self._check_open()
        return super().uris

    @property
    def expires_at(self) -> datetime | None:
        """When the memory is freed, in UTC, as this object last read it; None for never. See `extend`."""
        return self._expires_at

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    def extend(self, ttl_s: float) -> None:
        """Let the data set expire `ttl_s` from now, whether that is later or earlier than before.

        Raises `ClosedError`, `NotFoundError` if it does not exist any more, `ConnectionLostError` if its agent has
        ended, and `InvalidArgumentError` on an unpickled copy: use `open_published`.

        >>> with bs.publish(bs.table({"n": [1]}), name="docs-extend", ttl_s=60) as dataset:
        ...     dataset.extend(3600)  # an hour from now
        """
        self._check_open()
        if not ttl_s > 0:
            raise InvalidArgumentError(f"ttl_s: expected a positive number of seconds, found {ttl_s!r}")
        if self._control is None:
            raise InvalidArgumentError(
                f"data set {self.id}: an unpickled copy: extend bowstring.open_published(its id)"
            )
        self._expires_at = self._control.extend(ttl_s)

    def close(self) -> None:
        """Free the memory. On an unpickled copy, only close the copy. Idempotent.

        >>> dataset = bs.publish(bs.table({"n": [1]}), name="docs-close", ttl_s=60)
        >>> table = dataset.read_all()
        >>> dataset.close()
        >>> table["n"].to_pylist()  # what was read stays valid
        [1]
        """
        control, self._control, self._is_closed = self._control, None, True
        if control is not None:
            control.drop()

    def to_json(self) -> str:
        """As `Dataset.to_json`. Raises `ClosedError`."""
        self._check_open()
        return super().to_json()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"data set {self.id}: it was used after it was closed")

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return type(self), (self.name, self.schema, self.parts, self.id, self._expires_at)

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        size = f"{self.num_rows} rows, {self.nbytes} bytes in {len(self.parts)} parts"
        package = type(self).__module__.rpartition(".")[0]
        return f"<{package}.PublishedDataset {self.id}: {size}{state}>"


def published(timeout_s: float = DEFAULT_TIMEOUT_S) -> list[PublishedSummary]:
    """Return the data sets that this user has published and that have memory on this host, newest first.

    It finds those of all processes of the same network namespace. A host agent that does not answer within `timeout_s`
    is left out. Raises `InvalidArgumentError`, `ResourceError` if the system does not list its sockets.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-listed", ttl_s=60):
    ...     [summary.num_rows for summary in bs.published() if summary.name == "docs-listed"]
    [2]
    """
    return [summary for _, summary in list_published(timeout_s)]


def open_published(name: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> PublishedDataset:
    """Return the published data set with an ID, or else the newest with a name. Its `close` frees the memory, of a data
    set published with `remote` that of all hosts that can be reached.

    Raises `NotFoundError`, and as `published`.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-numbers", ttl_s=60):
    ...     with bs.open_published("docs-numbers") as dataset:
    ...         dataset.num_rows, dataset.read_all()["n"].to_pylist()
    (2, [1, 2])
    """
    address, summary = find_published(name, timeout_s)
    with AgentClient.connect(address, timeout_s=timeout_s) as agent:
        publication, expires_at, access = agent.describe(summary.id)
    dataset = Dataset.from_json(decompress_description(publication.description))
    control: DatasetControl = LocalDatasetControl(address, summary.id)
    if access is not None and publication.control_uris:
        agents = AgentGroup(AgentKey.of_others(address, access))
        control = RemoteDatasetControl(agents, publication.control_uris, summary.id)
    return PublishedDataset(dataset.name, dataset.schema, dataset.parts, summary.id, expires_at, control)


def describe_publication(dataset: Dataset, lifetime: str, control_uris: tuple[str, ...] = ()) -> Publication:
    """Return the host agents' descriptions of a data set."""
    hosts = tuple(dict.fromkeys(part.host for part in dataset.parts if part.host))
    num_rows, nbytes, num_parts = dataset.num_rows or 0, dataset.nbytes or 0, len(dataset.parts)
    description = compress_description(dataset.to_json())
    return Publication(dataset.name, num_rows, nbytes, num_parts, hosts, lifetime, description, control_uris)
