"""`python -m fuzz`: run the fuzzer, or look at a finding again."""

from __future__ import annotations

import os
import random
import sys
import traceback
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fuzz.findings import Findings, load
from fuzz.inputs import KINDS, Input
from fuzz.watching import Effort, Progress, watch
from fuzz.worker import import_planted, limit_resources

HOME = Path(__file__).resolve().parent / "results"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--time", "time_s", type=float, help="Seconds to run; until it is interrupted by default.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True)
@click.option("--seed", type=int, help="Where chance begins; by default it is chosen, and printed.")
@click.option("--hang", "hang_s", type=float, default=20.0, show_default=True, help="Seconds that an input may take.")
@click.option("--findings", type=click.IntRange(min=1), help="End with so many findings.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), default=HOME, help="Corpus and findings.")
@click.option("--without-shared", is_flag=True, help="Begin with our own seeds only, not with ../shared too.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Begin with inputs of this kind (repeatable).")
@click.option("--again", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Try one finding again.")
def main(  # noqa: PLR0913 -- a command's options
    time_s: float | None,
    jobs: int,
    seed: int | None,
    hang_s: float,
    findings: int | None,
    home: Path,
    without_shared: bool,
    only: tuple[str, ...],
    again: Path | None,
) -> None:
    """Try inputs that a hostile writer might send. Ends with 1 where something was found."""
    if again is not None:
        sys.exit(_try_again(load(again)))
    from fuzz.seeds import seeds

    console = Console(width=None if os.isatty(1) else 120)
    chosen = random.SystemRandom().randrange(1 << 30) if seed is None else seed
    console.print(f"seed {chosen}, {jobs} workers, corpus and findings in {home}", soft_wrap=True)
    begun = [given for given in seeds(not without_shared) if not only or given.kind in only]
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def advance(done: Progress) -> None:
            if console.is_terminal:
                live.update(_shown(done), refresh=True)

        done = watch(home, begun, Effort(jobs, chosen, time_s or float("inf"), hang_s, findings), advance)
    console.print(_shown(done))
    found = Findings(home / "findings").all()
    if found:
        from fuzz.shrinking import shrink

        for finding in found:
            console.print(f"[red]{finding.name}[/red]: {shrink(finding, hang_s)} bytes: {finding.path}", soft_wrap=True)
    sys.exit(1 if found else 0)


def _shown(done: Progress) -> Table:
    table = Table("seconds", "inputs", "inputs/s", "sound", "edges", "corpus", "restarts", "findings")
    share = done.sound / max(done.tried, 1)
    rate = done.tried / max(done.elapsed_s, 1e-9)
    cells = (done.elapsed_s, done.tried, rate, share, done.coverage, done.corpus, done.deaths, done.findings)
    forms = ("{:,.0f}", "{:,}", "{:,.0f}", "{:.0%}", "{:,}", "{:,}", "{:,}", "{:,}")
    table.add_row(*(form.format(cell) for form, cell in zip(forms, cells, strict=True)))
    return table


def _try_again(given: Input) -> int:
    from fuzz.oracles import check

    import_planted()
    limit_resources()
    try:
        sound = check(given)
    except Exception as error:  # noqa: BLE001 -- that is what we look for
        click.echo("".join(traceback.format_exception(error)))
        return 1
    click.echo("sound" if sound else "refused, as it should be")
    return 0


if __name__ == "__main__":
    main()
