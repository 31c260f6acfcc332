"""`python -m fuzz`: run the fuzzer, or replay a finding."""

from __future__ import annotations

import base64
import os
import random
import sys
import traceback
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fuzz.findings import Findings, load_input
from fuzz.inputs import KINDS, FuzzInput
from fuzz.supervisor import Progress, Settings, supervise
from fuzz.worker import import_planted_bugs, limit_resources

HOME = Path(__file__).resolve().parent / "results"
_MAX_PRINTED_BYTES = 3_000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--time", "time_s", type=float, help="Seconds to run; by default until interrupted.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True)
@click.option("--seed", type=int, help="Seed of the random numbers; random by default.")
@click.option("--hang", "hang_s", type=float, default=20.0, show_default=True, help="Time limit per input.")
@click.option("--findings", type=click.IntRange(min=1), help="Stop after this many findings.")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=HOME,
    help="Folder of the corpus and the findings.",
)
@click.option("--without-shared", is_flag=True, help="Use only the built-in seeds.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Start with inputs of this kind (repeatable).")
@click.option(
    "--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run the input of a finding."
)
def main(  # noqa: PLR0913 -- a command's options
    time_s: float | None,
    jobs: int,
    seed: int | None,
    hang_s: float,
    findings: int | None,
    home: Path,
    without_shared: bool,
    only: tuple[str, ...],
    replay: Path | None,
) -> None:
    """Run inputs that a hostile writer could send. The exit code is 1 if there are findings."""
    if replay is not None:
        sys.exit(_replay(load_input(replay)))
    from fuzz.seeds import build_seeds

    console = Console(width=None if os.isatty(1) else 120)
    start_seed = random.SystemRandom().randrange(1 << 30) if seed is None else seed
    console.print(f"seed {start_seed}, {jobs} workers, corpus and findings in {home}", soft_wrap=True)
    initial = [seed_input for seed_input in build_seeds(not without_shared) if not only or seed_input.kind in only]
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def advance(progress: Progress) -> None:
            if console.is_terminal:
                live.update(_progress_table(progress), refresh=True)

        progress = supervise(
            home, initial, Settings(jobs, start_seed, time_s or float("inf"), hang_s, findings), advance
        )
    console.print(_progress_table(progress))
    entries = Findings(home / "findings").all()
    if entries:
        from fuzz.shrinking import shrink

        for finding in entries:
            size_bytes = shrink(finding, hang_s)
            # CI shows these lines and keeps no files, so they contain the input.
            encoded = base64.b64encode(finding.fuzz_input.data[:_MAX_PRINTED_BYTES]).decode()
            click.echo(f"FAILED {finding.name}: {finding.fuzz_input.kind}, {size_bytes} bytes in Base64: {encoded}")
            click.echo(finding.report)
    sys.exit(1 if entries else 0)


def _progress_table(progress: Progress) -> Table:
    table = Table("seconds", "inputs", "inputs/s", "valid", "edges", "corpus", "restarts", "findings")
    share = progress.valid_count / max(progress.input_count, 1)
    rate = progress.input_count / max(progress.elapsed_s, 1e-9)
    cells = (
        progress.elapsed_s,
        progress.input_count,
        rate,
        share,
        progress.coverage,
        progress.corpus,
        progress.deaths,
        progress.findings,
    )
    formats = ("{:,.0f}", "{:,}", "{:,.0f}", "{:.0%}", "{:,}", "{:,}", "{:,}", "{:,}")
    table.add_row(*(format_.format(cell) for format_, cell in zip(formats, cells, strict=True)))
    return table


def _replay(fuzz_input: FuzzInput) -> int:
    from fuzz.oracles import check

    import_planted_bugs()
    limit_resources()
    try:
        is_valid = check(fuzz_input)
    except Exception as error:  # noqa: BLE001 -- a finding
        click.echo("".join(traceback.format_exception(error)))
        return 1
    click.echo("valid" if is_valid else "rejected, as expected")
    return 0


if __name__ == "__main__":
    main()
