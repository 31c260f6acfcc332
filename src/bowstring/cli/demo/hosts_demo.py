"""`bowstring demo --hosts`: a cluster on several hosts of this machine, and a consumer beside each worker."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bowstring.cli.demo.report import format_time
from bowstring.cli.demo.simulated_cluster import start_cluster
from bowstring.cli.demo.simulated_hosts import SimulatedHosts
from bowstring.display.printable_text import format_size
from bowstring.errors import UnmetRequirementError

if TYPE_CHECKING:
    from rich.console import Console

_PARTITIONS_PER_HOST = 3
_CONSUMER = "bowstring.cli.demo.hosts_consumer"


def show_hosts(console: Console, num_hosts: int, rows: int) -> bool:
    """Publish rows on several hosts, and print what a consumer on each reads in place and over TCP.

    Return whether all have read all rows. Raises `UnmetRequirementError` without root, namespaces or Java.
    """
    names = [f"host{number}" for number in range(1, num_hosts + 1)]
    with tempfile.TemporaryDirectory(prefix="bowstring-hosts-") as folder, SimulatedHosts("driver", *names) as hosts:
        program = ["-m", "bowstring.cli.demo.hosts_driver", str(rows), str(_PARTITIONS_PER_HOST * num_hosts)]
        driver = start_cluster(hosts, Path(folder), program)
        with console.status(f"Starting Spark on {num_hosts} hosts, and publishing {rows:,} rows"):
            description = _read_reply(driver, Path(folder, "driver.log"))
        replies = {name: run_consumer(hosts, name, description) for name in names}
        assert driver.stdin is not None
        driver.stdin.close()
        with console.status("Closing the data set"):
            _read_reply(driver, Path(folder, "driver.log"))
        expected = rows * (rows - 1) // 2
        console.print(_create_table(replies, expected))
        return all(reply["sum"] == expected for reply in replies.values())


def run_consumer(hosts: SimulatedHosts, name: str, description: str) -> dict[str, Any]:
    """Return what a consumer on a host reads, as `hosts_consumer.measure_reads`."""
    pipe = subprocess.PIPE
    process = hosts.start(name, [sys.executable, "-m", _CONSUMER], stdin=pipe, stdout=pipe, stderr=pipe)
    output, errors = process.communicate(description)
    if process.returncode:
        raise UnmetRequirementError(f"the consumer on {name} has ended with an error: {errors}")
    reply: dict[str, Any] = json.loads(output)
    return reply


def _read_reply(driver: subprocess.Popen[str], log: Path) -> str:
    """Return the next line of the driver. Raises `UnmetRequirementError` if it has ended."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith('"'):
            return str(json.loads(line))
    raise UnmetRequirementError(f"Spark has ended: {log.read_text()[-2000:]}")


def _create_table(replies: dict[str, dict[str, Any]], expected: int) -> Table:
    table = Table(title="What a consumer beside each worker reads", title_justify="left")
    for heading in ("consumer on", "in place, from shared memory", "over TCP, from other hosts", "rows"):
        table.add_column(heading)
    for name, reply in replies.items():
        cells = [_describe_reads(reply["schemes"].get(scheme)) for scheme in ("unix", "tcp")]
        table.add_row(name, *cells, "as Spark's" if reply["sum"] == expected else "differ from Spark's")
    return table


def _describe_reads(amounts: list[float] | None) -> str:
    if amounts is None:
        return "nothing"
    rows, nbytes, elapsed_s = amounts
    return f"{int(rows):,} rows, {format_size(int(nbytes))}, {format_time(elapsed_s)}"
