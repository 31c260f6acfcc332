"""Print the times of a large cluster in docs/evidence/index.md: `python -m benchmarks.scale [measure | check]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import click

from benchmarks.scale.constants import Constants, measure_constants, open_reader, read_parts, repeat, running_agent
from benchmarks.scale.simulation import (
    Cluster,
    Reading,
    commit,
    open_connections,
    read_everything,
    read_local_parts,
    read_remote_parts,
)

_CLUSTER = Cluster(num_hosts=1000, num_consumers=10_000, num_parts=10_000, part_bytes=64e6)
_CLIENT_COUNTS, _PART_COUNTS = (200, 1000, 3000), (1000, 10_000)
_MAX_CLIENTS = 4096
"""The limit of an agent's clients."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("action", type=click.Choice(["measure", "check", "simulate"]), default="simulate")
def main(action: str) -> None:
    """Measure the constants, check the simulation against this machine, or print the times."""
    if action == "measure":
        measure_constants().save()
    lines = check(Constants.load()) if action == "check" else simulate(Constants.load())
    for line in lines:
        click.echo(line)


def simulate(constants: Constants) -> Iterator[str]:
    """The table and the two lines about the cluster."""
    cluster = _CLUSTER
    share = cluster.num_parts // cluster.num_consumers
    readings = {
        "its share, on its host": read_local_parts(cluster, constants, share),
        "its share, on another host": read_remote_parts(cluster, constants, share),
        "everything, in order": read_everything(cluster, constants),
    }
    yield from _format_table(
        ("each consumer reads", "first batch", "all batches", "clients of an agent", "memory for them"),
        [_describe_reading(name, reading, constants) for name, reading in readings.items()],
    )
    yield ""
    description_mb = cluster.num_parts * constants.description_bytes / 1e6
    parsed_in = _format_seconds(cluster.num_parts * constants.description_parse_s)
    yield f"The driver commits in {_format_seconds(commit(cluster, constants))}."
    yield f"Each consumer parses the description of the data set, {description_mb:.1f} MB, in {parsed_in}."


def _describe_reading(name: str, reading: Reading, constants: Constants) -> tuple[str, ...]:
    clients = f"{reading.clients_per_agent:,}"
    if reading.clients_per_agent > _MAX_CLIENTS:
        clients += f", above {_MAX_CLIENTS:,}"
    return (
        name,
        _format_seconds(reading.first_batch_s),
        _format_seconds(reading.last_batch_s),
        clients,
        f"{reading.clients_per_agent * constants.connection_agent_bytes / 1e6:.2g} MB",
    )


def check(constants: Constants) -> Iterator[str]:
    """Compare what the constants predict with runs on this machine."""
    rows: list[tuple[str, ...]] = []
    for num_clients in _CLIENT_COUNTS:
        with running_agent() as agent, ExitStack() as stack:
            cost = agent.measure(partial(repeat, partial(open_reader, agent.uri, stack), num_clients))
        predicted = open_connections(num_clients, constants)
        rows += [
            (f"{num_clients:,} connections, agent", *_compare_seconds(predicted.agent_busy_s, cost.agent_s)),
            (
                f"{num_clients:,} connections, both ends",
                *_compare_seconds(predicted.last_batch_s, cost.agent_s + cost.client_s),
            ),
            (
                f"{num_clients:,} connections, memory of the agent",
                f"{num_clients * constants.connection_agent_bytes / 1e6:.1f} MB",
                f"{cost.agent_bytes / 1e6:.1f} MB",
            ),
            (
                f"{num_clients:,} connections, descriptors of the agent",
                f"{num_clients * constants.connection_agent_descriptors:.0f}",
                f"{cost.agent_descriptors}",
            ),
        ]
    for num_parts in _PART_COUNTS:
        with running_agent() as agent:
            uris = [location.uris[0] for location in agent.put_parts("many", num_parts)]
            committed = agent.measure(partial(agent.commit, "many", num_parts))
            read = agent.measure(partial(read_parts, uris))
        predicted_s = num_parts * constants.commit_agent_s
        rows.append((f"commit of {num_parts:,} parts, agent", *_compare_seconds(predicted_s, committed.agent_s)))
        predicted_s = num_parts * (constants.part_agent_s + constants.part_client_s)
        rows.append(
            (f"reading {num_parts:,} parts, both ends", *_compare_seconds(predicted_s, read.agent_s + read.client_s))
        )
    yield from _format_table(("work", "predicted", "measured"), rows)


def _compare_seconds(*seconds: float) -> tuple[str, ...]:
    return tuple(map(_format_seconds, seconds))


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    main()
