"""The host agents of this user on this host, and the agent that holds the data sets of plain Python.

Agents listen at abstract unix addresses, which the kernel lists for everyone in the network namespace, with the user of
each socket. Any process can listen at such an address: those of other users are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

from bowstring.errors import BowstringError, DeadlineError, NotFoundError, check_seconds
from bowstring.memory.thread_pool import map_in_new_threads
from bowstring.sharing.agent.client import (
    AgentClient,
    MissingEntry,
    PublishedEntry,
    agent_address_prefix,
    list_agent_addresses,
)
from bowstring.sharing.agent.end_records import find_recorded_end
from bowstring.sharing.agent.publications import PublishedSummary
from bowstring.transports.base import Deadline, strip_traceback

_LOGGER = logging.getLogger(__name__)
# Agents that do not answer delay the look-up of others only if there are as many.
_MAX_THREADS = 32
_DETACHED_TOKEN = "detached-7"
"""The number is the version of the requests: versions of Bowstring with other requests use other agents."""
_MAX_NAMES = 10  # that an error lists
_MIN_TIMEOUT_S = 0.1
"""For the second look after a first that has taken most of the time."""
_Reply = TypeVar("_Reply")
_get_order = attrgetter("monotonic_s", "id")
"""The order of publication, which is the same for all who ask: of two that replace each other, one remains."""


def list_published(timeout_s: float, name: str | None = None) -> list[tuple[str, PublishedSummary]]:
    """Return the published data sets of all agents, or those with a name or ID, newest first, each with the address of
    its agent.

    Agents that do not answer within `timeout_s` are left out. Raises `InvalidArgumentError`, `ResourceError`, and
    `DeadlineError` if so many do not answer that others can't be asked.
    """
    replies, _ = _ask_agents(check_seconds("timeout_s", timeout_s), lambda agent: agent.list_published(name))
    entries = [(address, summary) for address, summaries in replies.items() for summary in summaries]
    return sorted(entries, key=lambda entry: _get_order(entry[1]), reverse=True)


def find_published(name: str, timeout_s: float) -> tuple[str, PublishedEntry]:
    """Return the data set with this ID, or else the newest one with this name, and the address of its agent.

    Raises `NotFoundError` with the reason if the agents have one, `DeadlineError` if an agent does not answer within
    `timeout_s` and the others have no such data set, and as `list_published`.
    """
    deadline = Deadline(check_seconds("timeout_s", timeout_s))
    previous_state: dict[str, str | None] | None = None
    waits_if_stopped = False
    while True:
        timeout_s = max(deadline.remaining_s(), _MIN_TIMEOUT_S)
        replies, errors = _ask_agents(
            timeout_s, lambda agent: agent.find_published(name), waits_if_stopped=waits_if_stopped
        )
        entries = [(address, reply) for address, reply in replies.items() if isinstance(reply, PublishedEntry)]
        if entries:
            return max(entries, key=lambda entry: (entry[1].summary.id == name, _get_order(entry[1].summary)))
        silent = [address for address, error in errors.items() if isinstance(error, DeadlineError)]
        if silent and not waits_if_stopped:  # a stopped agent delays only what the others do not have
            waits_if_stopped = True
            continue
        if silent:
            raise deadline.deadline_error(f"published data set {name!r}: host agent at {', '.join(silent)}")
        missing = [reply for reply in replies.values() if isinstance(reply, MissingEntry)]
        # Agents reply one after the other: one may publish the data set when it has replied, before another ends it
        # that has not. There was none after the first look if the second finds the same agents, and they have ended
        # none since.
        state = {address: reply.ended for address, reply in zip(replies, missing, strict=True)} | dict.fromkeys(errors)
        if state == previous_state or not deadline.remaining_s():
            raise NotFoundError(_describe_missing(name, missing))
        previous_state = state


def _describe_missing(name: str, replies: Iterable[MissingEntry]) -> str:
    summaries = sorted((each for reply in replies for each in reply.newest), key=_get_order, reverse=True)
    newest = ", ".join(dict.fromkeys(summary.name for summary in summaries[:_MAX_NAMES]))
    others = f"the newest are: {newest}" if newest else "nothing is published"
    unknown = "none with this name or ID was published lately, or it has ended with its application or host agent"
    reasons = [*(reply.ended for reply in replies), find_recorded_end(name)]
    return (
        f"there is no published data set {name!r} on this host: {': '.join(filter(None, reasons)) or unknown}; {others}"
    )


def _ask_agents(
    timeout_s: float, ask: Callable[[AgentClient], _Reply], *, waits_if_stopped: bool = False
) -> tuple[dict[str, _Reply], dict[str, BowstringError]]:
    """Return the replies of all agents, and the errors of those that do not reply within `timeout_s`, by address.

    Raises `DeadlineError` if some could not even be asked in this time, because many do not reply.
    """
    deadline = Deadline(timeout_s)
    replies: dict[str, _Reply] = {}
    errors: dict[str, BowstringError] = {}

    def ask_one(address: str) -> None:
        remaining_s = deadline.remaining_s()
        if not remaining_s:
            return
        try:
            with AgentClient.connect_to_listed(
                address, timeout_s=remaining_s, waits_if_stopped=waits_if_stopped
            ) as agent:
                replies[address] = ask(agent)
        except BowstringError as error:
            _LOGGER.debug("%s: left out: %s", address, error)
            errors[address] = strip_traceback(error)

    addresses, _ = list_agent_addresses(agent_address_prefix())
    map_in_new_threads(ask_one, sorted(addresses), _MAX_THREADS)
    num_unasked = len(addresses) - len(replies) - len(errors)
    if num_unasked:
        raise deadline.deadline_error(f"{num_unasked} of {len(addresses)} host agents could not be asked")
    return replies, errors


def open_detached_agent(timeout_s: float = 30.0) -> AgentClient:
    """Connect to the agent of this host that no process owns, which is started if it does not run.

    Raises `DeadlineError` if it does not answer, `ResourceError` if it can't be started.
    """
    return AgentClient.connect(f"{agent_address_prefix()}{_DETACHED_TOKEN}", start=True, timeout_s=timeout_s)
