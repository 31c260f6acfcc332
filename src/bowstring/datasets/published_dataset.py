"""Published data sets: what `publish` returns, and how any process of the user finds it again by its name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from bowstring.datasets.dataset import Dataset, DatasetPart, describe_size
from bowstring.datatypes.schema import Schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    add_location,
    check_seconds,
)
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.forks import process_token
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.directory import find_published, list_published
from bowstring.sharing.agent.group import DROP_TIMEOUT_S, AgentGroup, shows_end
from bowstring.sharing.agent.publications import (
    Publication,
    PublishedSummary,
    compress_description,
    decompress_description,
)

# An agent replies within milliseconds; one that is stopped must not block the list for long.
DEFAULT_TIMEOUT_S = 5.0


class DatasetControl(Protocol):
    """Changes the lifetime of a published data set on all its hosts."""

    def drop(self, reason: str, *, is_replaced: bool = False) -> None:
        """Free its memory, as `AgentClient.drop`; `NotFoundError` is raised only by a control of one agent."""

    def renew(self, ttl_s: float) -> datetime | None:
        """Let it expire `ttl_s` from now; return when, None for never. Raises `NotFoundError`."""


class LocalDatasetControl:
    """The control of a data set of an agent of this host."""

    def __init__(self, address: str, dataset_id: str) -> None:
        self._address = address
        self._dataset_id = dataset_id

    def drop(self, reason: str, *, is_replaced: bool = False) -> None:
        """As `DatasetControl.drop`. Raises `ConnectionLostError` if the agent has ended."""
        with AgentClient.connect(self._address, timeout_s=DROP_TIMEOUT_S) as agent:
            agent.drop(self._dataset_id, reason, is_replaced=is_replaced)

    def renew(self, ttl_s: float) -> datetime | None:
        """As `DatasetControl.renew`. Raises `ConnectionLostError` if the agent has ended."""
        with AgentClient.connect(self._address) as agent:
            return agent.renew(self._dataset_id, ttl_s)


class RemoteDatasetControl:
    """The control of a data set of the agents of several hosts, which another process may have published."""

    def __init__(self, agents: AgentGroup, uris: Iterable[str], dataset_id: str) -> None:
        self._agents = agents
        self._uris = tuple(uris)
        self._dataset_id = dataset_id

    def drop(self, reason: str, *, is_replaced: bool = False) -> None:
        """As `DatasetControl.drop`, on the hosts that can be reached."""
        self._agents.drop(self._dataset_id, self._uris, reason, is_replaced=is_replaced)

    def renew(self, ttl_s: float) -> datetime | None:
        """As `DatasetControl.renew`, on the hosts that can be reached."""
        return self._agents.renew(self._dataset_id, self._uris, ttl_s)


class PublishedDataset(Dataset, Closable):
    """A data set in the memory of host agents, created by `publish` or `open_published`. A context manager.

    `bowstring.connect` accepts it, or any of its `uris`, in any process of the same user and host. The object that
    `publish` returned owns the memory: its `close`, or the end of its ``with`` block, frees it for everyone; what was
    read stays valid. All other objects are views, whose `close` has no effect on the data: from `open_published`,
    unpickled copies, and all in a forked child. `id` is unique, several data sets may have one `name`.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-renewed", ttl_s=60) as dataset:
    ...     dataset.renew(3600)
    ...     dataset.schema, dataset.head(1)["n"].to_pylist()
    (Schema(n: int64), [1])
    """

    __slots__ = ("_control", "_expires_at", "_is_closed", "_owner", "id")

    def __init__(  # noqa: PLR0913 -- the fields
        self,
        name: str,
        schema: Schema,
        parts: Iterable[DatasetPart],
        id: str = "",
        expires_at: datetime | None = None,
        control: DatasetControl | None = None,
        *,
        is_owner: bool = False,
    ) -> None:
        super().__init__(name, schema, parts)
        self.id = id
        self._expires_at = expires_at
        self._control = control
        self._is_closed = False
        self._owner = process_token() if is_owner else None

    @property
    def is_owner(self) -> bool:
        """Whether `close` frees the memory: in the process that published, for the object that `publish` returned."""
        return self._owner is process_token()

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has rows; of one empty part, with the schema, if none has rows.

        Raises `ClosedError`.
        """
        self._check_open()
        return super().uris

    @property
    def expires_at(self) -> datetime | None:
        """When the memory is freed, in UTC, as this object last read it; None for never. See `renew`."""
        return self._expires_at

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this object."""
        return self._is_closed

    def renew(self, ttl_s: float) -> None:
        """Let the data set expire `ttl_s` from now, whether that is later or earlier than before.

        Raises `ClosedError`, `NotFoundError` if it does not exist any more, `ConnectionLostError` if its agent has
        ended, and `InvalidArgumentError` on an unpickled copy: use `open_published`.

        >>> with bs.publish(bs.table({"n": [1]}), name="docs-renew", ttl_s=60) as dataset:
        ...     dataset.renew(3600)  # an hour from now
        """
        self._check_open()
        check_seconds("ttl_s", ttl_s)
        if self._control is None:
            raise InvalidArgumentError(f"data set {self.id}: an unpickled copy: renew bowstring.open_published(its id)")
        self._expires_at = self._control.renew(ttl_s)

    def close(self) -> None:
        """Free the memory for everyone if this is the owner, the object that `publish` returned; otherwise close only
        this view. `unpublish` frees it without the owner. Idempotent.

        Raises `DeadlineError` if the host agent does not answer: then the memory remains until it expires, or `close`
        or `unpublish` is called again. Agents of other hosts that do not answer are logged.

        >>> dataset = bs.publish(bs.table({"n": [1]}), name="docs-close", ttl_s=60)
        >>> with bs.open_published("docs-close") as view:
        ...     table = view.read_all()
        >>> dataset.is_owner, view.is_owner, dataset.num_rows
        (True, False, 1)
        >>> dataset.close()
        >>> table["n"].to_pylist()  # what was read stays valid
        [1]
        """
        self._is_closed = True
        if self._control is not None and self.is_owner:
            try:
                self._control.drop(f"was closed by process {os.getpid()}, which published it,")
            except BowstringError as error:
                if not shows_end(error):
                    end = "" if self._expires_at is None else f" until {self._expires_at:%Y-%m-%d %H:%M:%S} UTC"
                    advice = f"its memory remains{end}; bowstring.unpublish({self.id!r}) frees it: host agent"
                    raise add_location(error, f"data set {self.id}: could not be closed: {advice}") from None
        self._control = None

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
        package = type(self).__module__.rpartition(".")[0]
        return f"<{package}.PublishedDataset {self.id}: {describe_size(self)}{state}>"


def published(timeout_s: float = DEFAULT_TIMEOUT_S) -> list[PublishedSummary]:
    """Return the data sets that this user has published and that have memory on this host, newest first.

    It finds the data sets of all processes in the same network namespace. A host agent that is stopped or does not
    answer within `timeout_s` is left out. Raises `InvalidArgumentError`, `ResourceError` if the system does not list
    its sockets, `AccessDeniedError` if the user is not mapped in its user namespace, and `DeadlineError` if others
    can't be asked because so many agents do not answer.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-listed", ttl_s=60):
    ...     [summary.num_rows for summary in bs.published() if summary.name == "docs-listed"]
    [2]
    """
    return [summary for _, summary in list_published(timeout_s)]


def open_published(name: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> PublishedDataset:
    """Return a view of the published data set with an ID, or else of the newest with a name. Closing it frees nothing.

    If a data set with this name exists at all times, one is found, however often it is replaced.

    Raises `NotFoundError`, with the reason if it has ended lately; `DeadlineError` if a host agent does not answer
    within `timeout_s` and the others do not have it; and as `published`. A stopped agent delays only names that the
    others do not have.

    >>> with bs.publish(bs.table({"n": [1, 2]}), name="docs-numbers", ttl_s=60):
    ...     with bs.open_published("docs-numbers") as dataset:
    ...         dataset.num_rows, dataset.read_all()["n"].to_pylist()
    (2, [1, 2])
    """
    address, entry = find_published(name, timeout_s)
    dataset_id = entry.summary.id
    dataset = Dataset.from_json(decompress_description(entry.description))
    control: DatasetControl = LocalDatasetControl(address, dataset_id)
    if entry.access is not None and entry.control_uris:
        agents = AgentGroup(AgentKey.of_others(address, entry.access))
        control = RemoteDatasetControl(agents, entry.control_uris, dataset_id)
    return PublishedDataset(dataset.name, dataset.schema, dataset.parts, dataset_id, entry.summary.expires_at, control)


def unpublish(name: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """Free the memory of the published data set with an ID, or else of the newest with a name, for everyone. Return its
    ID. What was read stays valid.

    Of a data set published with `remote`, the memory of all hosts that can be reached is freed. Raises as
    `open_published`.

    >>> dataset = bs.publish(bs.table({"n": [1]}), name="docs-unpublish", ttl_s=60)
    >>> bs.unpublish("docs-unpublish") == dataset.id
    True
    """
    return _end(name, f"was unpublished by process {os.getpid()}", timeout_s)


def end_predecessors(dataset: PublishedDataset) -> None:
    """End the data sets that were published before another one with its name, as replaced by it.

    Each publication ends all before it: so one remains of any number that replace each other at once, or whose process
    is killed before it ends those before.
    """
    summaries = [summary for _, summary in list_published(DEFAULT_TIMEOUT_S, dataset.name)]
    ids = [summary.id for summary in summaries if summary.name == dataset.name]
    earlier = ids[ids.index(dataset.id) + 1 :] if dataset.id in ids else ids  # it may be on other hosts only
    with call_on_error(dataset.close):
        for dataset_id in reversed(earlier):  # the newest last: if one can't be ended, the name still has a data set
            with suppress(NotFoundError):
                _end(dataset_id, f"was replaced by {dataset.id!r}", DEFAULT_TIMEOUT_S, is_replaced=True)


def _end(name: str, reason: str, timeout_s: float, *, is_replaced: bool = False) -> str:
    while True:
        dataset = open_published(name, timeout_s)
        assert dataset._control is not None
        try:
            dataset._control.drop(reason, is_replaced=is_replaced)
        except BowstringError as error:
            if not shows_end(error):
                raise
            continue  # it has just ended: the next search finds the newest of the name, or the reason
        return dataset.id


def describe_publication(dataset: Dataset, lifetime: str, control_uris: tuple[str, ...] = ()) -> Publication:
    """Return the host agents' descriptions of a data set."""
    hosts = tuple(dict.fromkeys(part.host for part in dataset.parts if part.host))
    num_rows, nbytes = sum(part.num_rows for part in dataset.parts), sum(part.nbytes for part in dataset.parts)
    description = compress_description(dataset.to_json())
    return Publication(dataset.name, num_rows, nbytes, len(dataset.parts), hosts, lifetime, description, control_uris)
