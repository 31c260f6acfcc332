"""`python -m benchmarks`: run groups of benchmarks, print the table, save the JSON."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console

from benchmarks.machine import describe_machine, load_average
from benchmarks.measure import Measurement, Settings
from benchmarks.report import print_report, save_json

_MODULES = {
    "reading": "reading",
    "remote": "remote",
    "writing": "writing",
    "compression": "compression",
    "validation": "validation",
    "equality": "equality",
    "conversion": "conversion",
    "access": "access",
    "compute": "compute",
    "files": "files",
    "import": "imports",
    "transfer": "transfer",
    "serving": "serving",
    "publish": "publish",
    "publish_sizes": "publish_sizes",
    "arrow_source": "arrow_source",
    "cold_starts": "cold_starts",
    "consumers": "consumers",
    "training": "training",
    "streaming": "streaming",
}
_RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
_REQUIRED_BYTES = 6 << 30


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("groups", nargs=-1, type=click.Choice(list(_MODULES)), metavar="[GROUP]...")
@click.option("--quick", is_flag=True, help="Use small data and few rounds, to check that everything runs.")
@click.option("--repeat", type=click.IntRange(min=1), default=7, show_default=True, help="Rounds of each measurement.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Folder for temporary files.")
def main(groups: Sequence[str], quick: bool, repeat: int, folder: Path | None) -> None:
    """Measure Bowstring and its peers, interleaved in one run.

    GROUPs are reading, remote, writing, compression, validation, equality, conversion, access, compute, files, import,
    transfer, serving, publish, publish_sizes, arrow_source, cold_starts, consumers, training and streaming; all of them
    by default.
    The exit code is 0 even if a bound is missed.
    """
    console = Console(width=None if os.isatty(1) else 160)
    machine = describe_machine()
    settings = Settings(2 if quick else repeat, 0.0 if quick else 1.5, is_quick=quick)
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="bowstring-bench-", dir=folder or _default_folder()) as temporary:
        machine["files in"] = str(Path(temporary).parent)
        for group in groups or _MODULES:
            measurements += _run_group(group, Path(temporary), settings, console)
    machine["load average after"] = load_average()
    print_report(measurements, machine, console)
    path = save_json(measurements, machine, _RESULTS_FOLDER)
    console.print(f"[dim]all times: {path}[/dim]", soft_wrap=True)
    if quick:
        console.print("[dim]--quick uses small data: the ratios mean little[/dim]")


def _run_group(group: str, folder: Path, settings: Settings, console: Console) -> list[Measurement]:
    """The measurements of a group. An exception is printed and counts as a missed bound."""
    measurements: list[Measurement] = []
    try:
        module = import_module(f"benchmarks.{_MODULES[group]}")
        gc.collect()
        gc.freeze()
        with console.status(f"{group} ...") as status:
            for measurement in module.run(folder, settings):
                measurements.append(replace(measurement, group=group))
                status.update(f"{group}: {measurement.line}: {measurement.value:.2g}")
    except Exception:  # noqa: BLE001 - the other groups still run
        console.print(f"[bold red]{group} failed:[/bold red]")
        console.print(traceback.format_exc(), markup=False, highlight=False)
        measurements.append(Measurement("failed, see above", float("inf"), 0.0, group=group))
    return measurements


def _default_folder() -> str:
    """A folder in memory if there is enough, so that no disk affects the times; else the folder for temporary files."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= _REQUIRED_BYTES:
        return memory
    return tempfile.gettempdir()


if __name__ == "__main__":
    main()
