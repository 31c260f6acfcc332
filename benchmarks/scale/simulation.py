"""Host agents as queues: each answers one request after the other, in the order of arrival.

A consumer's requests follow one another, each `Constants` after the reply before. Bytes pass the network interfaces of
both hosts, and cost the CPU time that was measured. Nothing is random: placements rotate over the hosts, so every run
gives the same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.scale.constants import Constants

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts with one executor and one agent each, their consumers, and a data set whose parts are spread evenly."""

    num_hosts: int
    num_consumers: int
    num_parts: int
    part_bytes: float
    network_bytes_per_s: float = 25e9 / 8
    start_interval_s: float = 0.0
    """The time from the first consumer's start to the last one's."""

    @property
    def consumers_per_host(self) -> int:
        """The number of consumers on each host."""
        return -(-self.num_consumers // self.num_hosts)

    @property
    def parts_per_host(self) -> int:
        """The number of parts that each agent has."""
        return -(-self.num_parts // self.num_hosts)


@dataclass(frozen=True, slots=True)
class Reading:
    """How long the consumers take, and what they need of each agent at most."""

    first_batch_s: float
    """Until the last consumer has its first batch."""
    last_batch_s: float
    clients_per_agent: int
    agent_busy_s: float
    """The CPU time of the busiest agent."""


def commit(cluster: Cluster, constants: Constants) -> float:
    """The seconds from the end of the last task until the driver has committed all parts, one agent after the other."""
    agent_s = constants.dial_agent_s + cluster.parts_per_host * constants.commit_agent_s
    return cluster.num_hosts * (constants.dial_driver_s + agent_s)


def read_local_parts(cluster: Cluster, constants: Constants, parts_per_consumer: int) -> Reading:
    """Each consumer reads some parts in the memory of its host."""
    more_parts = parts_per_consumer - 1
    first, last, busy_s = visit_agents(
        _starts(cluster, cluster.consumers_per_host),
        [constants.connection_agent_s + more_parts * constants.part_agent_s],
        [constants.connection_client_s + more_parts * constants.part_client_s],
    )
    return Reading(first, last, cluster.consumers_per_host, busy_s)


def read_remote_parts(cluster: Cluster, constants: Constants, parts_per_consumer: int) -> Reading:
    """Each consumer reads parts of one other host. The consumers of a host read from different hosts, and each agent
    has as many clients as its host has consumers.
    """
    num_bytes = parts_per_consumer * cluster.part_bytes
    send_s = max(num_bytes * constants.byte_agent_s, num_bytes / cluster.network_bytes_per_s)
    # The interface of the consumer's host receives for all of its consumers, which costs one of them its own share.
    first, last, busy_s = visit_agents(
        _starts(cluster, cluster.consumers_per_host),
        [constants.connection_agent_s + (parts_per_consumer - 1) * constants.part_agent_s + send_s],
        [constants.connection_client_s + num_bytes * constants.byte_client_s],
    )
    return Reading(first, last, cluster.consumers_per_host, busy_s)


def read_everything(cluster: Cluster, constants: Constants) -> Reading:
    """Each consumer reads all parts in order, and so visits all agents in the same order."""
    num_bytes = cluster.parts_per_host * cluster.part_bytes
    send_s = max(num_bytes * constants.byte_agent_s, num_bytes / cluster.network_bytes_per_s)
    parts_s = (cluster.parts_per_host - 1) * constants.part_agent_s
    # The consumers of a host share its network interface.
    receive_s = max(
        num_bytes * constants.byte_client_s, num_bytes * cluster.consumers_per_host / cluster.network_bytes_per_s
    )
    first, last, busy_s = visit_agents(
        _starts(cluster, cluster.num_consumers),
        [constants.connection_agent_s + parts_s + send_s] * cluster.num_hosts,
        [constants.connection_client_s + receive_s] * cluster.num_hosts,
    )
    return Reading(first, last, cluster.num_consumers, busy_s)


def open_connections(num_clients: int, constants: Constants) -> Reading:
    """Clients connect to one agent from one process, one after the other, and read one part."""
    seconds = num_clients * (constants.connection_agent_s + constants.connection_client_s)
    return Reading(seconds, seconds, num_clients, num_clients * constants.connection_agent_s)


def _starts(cluster: Cluster, num_consumers: int) -> Times:
    return np.linspace(0.0, cluster.start_interval_s, num_consumers)


def visit_agents(
    arrivals: Times, service_s: Sequence[float], consumer_s: Sequence[float]
) -> tuple[float, float, float]:
    """Consumers visit agents in the same order, each a queue whose requests take equally long.

    Return when the last consumer has left the first agent, when it has left the last one, and how long the busiest
    agent works. A queue keeps the order of arrival, so request `i` leaves when the last idle time ended, at the arrival
    of some `j <= i`, plus `i - j + 1` services.
    """
    indices = np.arange(len(arrivals))
    first = None
    for agent_s, own_s in zip(service_s, consumer_s, strict=True):
        departures = np.maximum.accumulate(arrivals - indices * agent_s) + (indices + 1) * agent_s
        arrivals = departures + own_s
        first = float(arrivals[-1]) if first is None else first
    assert first is not None
    return first, float(arrivals[-1]), len(arrivals) * max(service_s)
