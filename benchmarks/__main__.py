"""`python -m benchmarks`: run the groups, show the table, write the JSON."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console

from benchmarks import machine, report
from benchmarks.timing import Effort, Outcome

GROUPS = {
    "reading": "reading",
    "remote": "remote",
    "writing": "writing",
    "compression": "compression",
    "validation": "validation",
    "equality": "equality",
    "conversion": "conversion",
    "access": "access",
    "verbs": "verbs",
    "files": "files",
    "import": "importing",
    "transfer": "transfer",
    "publish": "publish",
}
RESULTS = Path(__file__).resolve().parent / "results"
_NEEDED_BYTES = 6 << 30


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(list(GROUPS)), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Small data and few rounds: does everything run?")
@click.option("--repeat", type=click.IntRange(min=1), default=7, show_default=True, help="Rounds of every line.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where files are made.")
def main(names: Sequence[str], quick: bool, repeat: int, folder: Path | None) -> None:
    """Measure Bowstring against its peers, side by side in one run.

    NAMEs are reading, remote, writing, compression, validation, equality, conversion, access, verbs, files, import,
    transfer, publish; all of them by default. Ends with 0 even where a bound is missed, but says so.
    """
    console = Console(width=None if os.isatty(1) else 160)
    facts = machine.facts()
    effort = Effort(2 if quick else repeat, 0.0 if quick else 1.5, quick=quick)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="bowstring-bench-", dir=folder or _folder()) as place:
        facts["files in"] = str(Path(place).parent)
        for name in names or GROUPS:
            outcomes += _group(name, Path(place), effort, console)
    facts["load average after"] = machine.load()
    report.show(outcomes, facts, console)
    path = report.save(outcomes, facts, RESULTS)
    console.print(f"[dim]every time of every round: {path}[/dim]", soft_wrap=True)
    if quick:
        console.print("[dim]--quick: small data, so the ratios say little[/dim]")


def _group(name: str, folder: Path, effort: Effort, console: Console) -> list[Outcome]:
    """The outcomes of one group; one that breaks is shown, and counts as missed."""
    outcomes: list[Outcome] = []
    try:
        module = import_module(f"benchmarks.{GROUPS[name]}")
        gc.collect()
        gc.freeze()
        with console.status(f"{name} ...") as status:
            for outcome in module.run(folder, effort):
                outcomes.append(outcome)
                status.update(f"{name}: {outcome.line}: {outcome.value:.2g}")
    except Exception:  # noqa: BLE001 - the other groups are worth running
        console.print(f"[bold red]{name} broke:[/bold red]")
        console.print(traceback.format_exc(), markup=False, highlight=False)
        outcomes.append(Outcome(name, "broke, see above", float("inf"), 0.0))
    return outcomes


def _folder() -> str:
    """Memory where there is enough of it, so that no disk blurs the times; else the folder for temporary files."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= _NEEDED_BYTES:
        return memory
    return tempfile.gettempdir()


if __name__ == "__main__":
    main()
