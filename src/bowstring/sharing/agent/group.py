"""The host agents that have the partitions of a data set, for the process that owns it: the agents of one key.

The agent of this host is reached by its unix socket; agents of a key with `RemoteAccess` on all hosts by their control
URIs. A data set is committed on all of them or on none. From then on the process keeps a connection to each agent of
other hosts open until the data set is dropped: the agent's memory is freed when the process ends, however it ends. If
an agent becomes unreachable, one thread tries to connect to it again; the agent keeps its data sets meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

from bowstring.errors import BowstringError, ConnectionLostError, DeadlineError, NotFoundError
from bowstring.memory.closable import call_on_error
from bowstring.memory.thread_pool import map_in_new_threads, start_thread
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.publications import Publication
from bowstring.sharing.processes import redirect_to_devnull
from bowstring.transports.base import RECEIVE, Interest
from bowstring.transports.blocking import wait_for_interests

LOCAL_AGENT = ""
"""The control URI of the agent that is reached only on this host."""
AttemptsByAgent: TypeAlias = Mapping[str, Mapping[int, int]]
"""The attempt of each partition, by the control URI of the agent that has it."""

_LOGGER = logging.getLogger(__name__)
_LOST_AGENT = (ConnectionLostError, NotFoundError)
"""The errors if an agent has ended with its partitions, can't be reached, or was replaced by another."""
# A host that is down is noticed by its silence only: each 16 of them delay a call by this time.
_REQUEST_TIMEOUT_S = 30.0
DROP_TIMEOUT_S = 10.0
"""Dropping is an effort to free memory early, and the lifetime ends it otherwise: callers wait less."""
# One thread reconnects to all agents: one that does not reply delays the others, and is dialled again later.
_RECONNECT_TIMEOUT_S = 5.0
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 1.0, 60.0
"""Between attempts to connect again."""
_MAX_THREADS = 16  # calls wait for the network, and not for processors
_ReplyType = TypeVar("_ReplyType")


class AgentGroup:
    """The agents of a key. Thread-safe. Unreachable agents delay a call by at most 30 s for each 16 of them."""

    def __init__(self, key: AgentKey) -> None:
        self.key = key

    def find_missing(self, dataset: str, attempts: AttemptsByAgent) -> dict[str, list[int]]:
        """Return the partitions that each agent lacks: all, if it has ended or can't be reached."""
        replies = self._call_each(attempts, lambda uri, agent: agent.find_missing(dataset, attempts[uri]))
        return _list_missing(replies, attempts)

    def commit(self, dataset: str, attempts: AttemptsByAgent, ttl_s: float) -> dict[str, list[int]]:
        """Commit one attempt of each partition. Return the partitions that each agent lacks; if there are any, nothing
        is committed.
        """
        # In two phases. An agent that ends between them is in the reply to the second one: others have committed then,
        # and take attempts again after `reopen`.
        missing = self.find_missing(dataset, attempts) if len(attempts) > 1 else {}
        if missing:
            return missing

        def commit_on(uri: str, agent: AgentClient) -> list[int]:
            # Before the commit: the executors that own the agents of other hosts may end at any time.
            if uri != LOCAL_AGENT:
                _ownership.acquire(self.key, uri, dataset)
            return agent.commit_attempts(dataset, attempts[uri], ttl_s)

        return _list_missing(self._call_each(attempts, commit_on), attempts)

    def reopen(self, dataset: str, uris: Iterable[str]) -> None:
        """Accept attempts again, on the agents that can be reached."""
        self._call_each(uris, lambda _, agent: agent.reopen(dataset))

    def publish(self, dataset: str, uris: Iterable[str], publication: Publication) -> list[datetime | None]:
        """Name a data set on the agents that have it and can be reached. Return when it expires on each of them."""
        return list(self._call_each(uris, lambda _, agent: agent.publish(dataset, publication)).values())

    def renew(self, dataset: str, uris: Iterable[str], ttl_s: float) -> datetime | None:
        """Let a data set expire `ttl_s` from now, on the agents that have it and can be reached. Return when, None for
        never. Raises `NotFoundError` if there are none.
        """
        times = list(self._call_each(uris, lambda _, agent: agent.renew(dataset, ttl_s)).values())
        if not times:
            raise NotFoundError(f"data set {dataset} does not exist any more, or only on hosts out of reach")
        return times[0]

    def drop(
        self, dataset: str, uris: Iterable[str], reason: str = "was dropped", *, is_replaced: bool = False
    ) -> None:
        """Free the memory of a data set, on the agents that can be reached, and do not own them for it any more. Log
        the errors of agents that may still have it.

        Otherwise as `AgentClient.drop`.
        """
        uris = list(uris)

        def drop_on(uri: str) -> None:
            try:
                with open_agent(self.key, uri, DROP_TIMEOUT_S) as agent:
                    agent.drop(dataset, reason, is_replaced=is_replaced)
            except BowstringError as error:
                if not shows_end(error):
                    _LOGGER.warning("data set %s: its memory may remain until it expires: %s", dataset, error)

        map_in_new_threads(drop_on, uris, _MAX_THREADS)
        for uri in uris:
            _ownership.release(uri, dataset)

    def _call_each(
        self,
        uris: Iterable[str],
        call: Callable[[str, AgentClient], _ReplyType],
    ) -> dict[str, _ReplyType]:
        """Call several agents at once; return the replies of those that can be reached and have the data set."""

        def call_one(uri: str) -> tuple[str, _ReplyType] | None:
            try:
                with open_agent(self.key, uri) as agent:
                    return uri, call(uri, agent)
            except _LOST_AGENT:
                return None

        return dict(filter(None, map_in_new_threads(call_one, uris, _MAX_THREADS)))


def shows_end(error: BowstringError) -> bool:
    """Whether an error shows that a data set or its agent has ended, so that none of its memory remains."""
    return isinstance(error, _LOST_AGENT) and not isinstance(error, DeadlineError)


def open_agent(key: AgentKey, uri: str, timeout_s: float = _REQUEST_TIMEOUT_S) -> AgentClient:
    """Connect to an agent by its control URI, or to the agent of this host. Raises
    `ConnectionLostError`, `DeadlineError`.
    """
    if uri == LOCAL_AGENT:
        return AgentClient.open(key, start=False, timeout_s=timeout_s)
    return AgentClient.dial(key, uri, timeout_s)


def _list_missing(replies: Mapping[str, list[int]], attempts: AttemptsByAgent) -> dict[str, list[int]]:
    missing = {uri: replies.get(uri, sorted(partitions)) for uri, partitions in attempts.items()}
    return {uri: partitions for uri, partitions in missing.items() if partitions}


@dataclass(slots=True)
class _OwnedAgent:
    """An agent with data sets of this process, and the connection that owns it."""

    key: AgentKey
    client: AgentClient
    datasets: set[str] = field(default_factory=set)
    interval_s: float = 0.0
    """The pause after the last failure to connect again."""
    dial_at: float = 0.0

    def has_ended(self) -> bool:
        """Whether the connection has ended: an agent sends nothing that was not requested."""
        descriptor = self.client.descriptor
        return descriptor < 0 or wait_for_interests([Interest(descriptor, RECEIVE)], 0)

    def use_client(self, client: AgentClient) -> None:
        """Use another connection."""
        self.client.close()
        self.client, self.interval_s, self.dial_at = client, 0.0, 0.0


class _Ownership:
    """The agents of other hosts that this process owns. A thread connects again to those whose connection has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, _OwnedAgent] = {}
        self._has_agents = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, key: AgentKey, uri: str, dataset: str) -> None:
        """Own an agent for a data set. Raises `ConnectionLostError`, `DeadlineError`."""
        client = _dial_as_owner(key, uri, _REQUEST_TIMEOUT_S)  # without the lock, because it may take long
        with self._lock:
            if uri in self._agents:
                self._agents[uri].use_client(client)
            else:
                self._agents[uri] = _OwnedAgent(key, client)
            self._agents[uri].datasets.add(dataset)
            self._has_agents.set()
            if self._thread is None:
                self._thread = start_thread(self._keep_connections, "bowstring-owner")

    def release(self, uri: str, dataset: str) -> None:
        """Do not own an agent for a data set any more. Idempotent."""
        with self._lock:
            agent = self._agents.get(uri)
            if agent is None:
                return
            agent.datasets.discard(dataset)
            if not agent.datasets:
                del self._agents[uri]
                agent.client.close()
            if not self._agents:
                self._has_agents.clear()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of all connections."""
        return [agent.client.descriptor for agent in list(self._agents.values())]

    def _keep_connections(self) -> None:
        while self._has_agents.wait():
            time.sleep(_MIN_INTERVAL_S)
            with self._lock:
                ended = [(uri, agent) for uri, agent in self._agents.items() if agent.has_ended()]
            for uri, agent in ended:
                if time.monotonic() >= agent.dial_at:
                    self._dial_again(uri, agent)

    def _dial_again(self, uri: str, agent: _OwnedAgent) -> None:
        try:
            client = _dial_as_owner(agent.key, uri, _RECONNECT_TIMEOUT_S)
        except BowstringError:
            agent.interval_s = min(max(2 * agent.interval_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)
            agent.dial_at = time.monotonic() + agent.interval_s
            return
        with self._lock:
            if agent.datasets:
                agent.use_client(client)
            else:  # released meanwhile
                client.close()


def _dial_as_owner(key: AgentKey, uri: str, timeout_s: float) -> AgentClient:
    client = AgentClient.dial(key, uri, timeout_s)
    with call_on_error(client.close):
        client.own(key.owner)
        return client


_ownership = _Ownership()


def _disown_after_fork() -> None:
    """Replace the connections in a forked child, which owns nothing: they would outlive the parent there."""
    global _ownership  # noqa: PLW0603 - the locks and the thread belong to the parent
    redirect_to_devnull(_ownership.descriptors)
    _ownership = _Ownership()


os.register_at_fork(after_in_child=_disown_after_fork)
