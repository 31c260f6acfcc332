"""The host agents of this user on this host, and the one that has what plain Python publishes.

Agents listen at abstract unix addresses, which the kernel lists in /proc/net/unix for everyone in the network
namespace. Any process can listen at such an address. Those of other users are ignored, since the kernel reports the
user of a peer, and those that do not answer delay others by no more than a time limit.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor

from bowstring.errors import BowstringError, InvalidArgumentError, NotFoundError, ResourceError
from bowstring.sharing.agent_client import AgentClient, agent_address_prefix
from bowstring.sharing.publications import PublishedSummary
from bowstring.transports.unix_socket import peer_credentials, try_connect

_LOGGER = logging.getLogger(__name__)
_SOCKETS = "/proc/net/unix"
_MAX_AGENTS = 1024
_MAX_THREADS = 32
_DETACHED_TOKEN = "detached-2-"
"""The number is the version of the requests: versions of Bowstring with other requests use other agents."""
_MAX_DETACHED_AGENTS = 64


def list_agent_addresses() -> list[str]:
    """Return the addresses of this user's agents in this network namespace; some may be those of other users."""
    prefix = agent_address_prefix()
    addresses = set[str]()
    try:
        with open(_SOCKETS, encoding="utf-8", errors="replace") as sockets:
            for line in sockets:
                address = line.rstrip("\n").rpartition(" ")[2]
                if address.startswith(prefix) and len(addresses) < _MAX_AGENTS:
                    addresses.add(address)
    except OSError as error:
        raise ResourceError(f"{_SOCKETS}: {error.strerror}: the host agents can't be found", error) from error
    return sorted(addresses)


def list_published(timeout_s: float, name: str | None = None) -> list[tuple[str, PublishedSummary]]:
    """Return the published data sets of all agents, or those with a name or ID, newest first, each with the address of
    its agent.

    Agents that do not answer within `timeout_s` are left out. Raises `InvalidArgumentError`, `ResourceError`.
    """
    if not timeout_s > 0:
        raise InvalidArgumentError(f"timeout_s: expected a positive number of seconds, found {timeout_s!r}")
    addresses = list_agent_addresses()

    def list_one(address: str) -> list[tuple[str, PublishedSummary]]:
        try:
            with AgentClient.connect(address, timeout_s=timeout_s) as agent:
                return [(address, summary) for summary in agent.list_published(name)]
        except BowstringError as error:
            _LOGGER.debug("%s: left out: %s", address, error)
            return []

    if not addresses:
        return []
    with ThreadPoolExecutor(min(len(addresses), _MAX_THREADS), "bowstring-agents") as pool:
        entries = [entry for each in pool.map(list_one, addresses) for entry in each]
    return sorted(entries, key=lambda entry: entry[1].created_at, reverse=True)


def find_published(name: str, timeout_s: float) -> tuple[str, PublishedSummary]:
    """Return the data set with this ID, or else the newest one with this name, and the address of its agent.

    Raises `NotFoundError`, and as `list_published`.
    """
    entries = list_published(timeout_s, name)
    matches = [entry for entry in entries if entry[1].id == name] or [
        entry for entry in entries if entry[1].name == name
    ]
    if matches:
        return matches[0]
    newest = list_published(timeout_s)[:10]
    known = ", ".join(dict.fromkeys(summary.name for _, summary in newest)) or "none"
    raise NotFoundError(f"there is no published data set {name!r} on this host; the newest are: {known}")


def open_detached_agent(timeout_s: float = 30.0) -> tuple[str, AgentClient]:
    """Connect to the agent of this host that no process owns, which is started if it does not run; with its address.

    It has an address that other users can occupy as well: then it has the next one. Raises as `AgentClient.open`.
    """
    for number in range(_MAX_DETACHED_AGENTS):
        address = f"{agent_address_prefix()}{_DETACHED_TOKEN}{number}"
        if not _is_of_another_user(address):
            return address, AgentClient.connect(address, start=True, timeout_s=timeout_s)
    raise ResourceError(f"other users occupy the addresses of the host agent, {address} and before")


def _is_of_another_user(address: str) -> bool:
    """Whether a process of another user listens at an abstract address."""
    try:
        with try_connect(address)[0] as connection:
            return peer_credentials(connection)[1] not in (os.getuid(), 0)
    except BowstringError:
        return False  # no process listens
