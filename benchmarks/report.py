"""The table on the terminal and the JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from benchmarks.timing import Outcome, Times

_VERDICT = {True: "[green]holds[/green]", False: "[bold red]MISSED[/bold red]", None: "[dim]shown only[/dim]"}


def show(outcomes: Sequence[Outcome], facts: dict[str, str], console: Console) -> None:
    """Print machine, lines and, loudly, the bounds that do not hold."""
    console.print("  ".join(f"[dim]{name}[/dim] {value}" for name, value in facts.items()), soft_wrap=True)
    table = Table(title="time(Bowstring) / time(best peer): medians of interleaved rounds", title_justify="left")
    for heading in ("", "line", "Bowstring", "best peer", "", "rounds", "ratio", "bound", ""):
        table.add_column(heading, justify="right" if heading in _NUMERIC else "left", overflow="fold")
    last = ""
    for outcome in outcomes:
        if last and outcome.group != last:
            table.add_section()
        table.add_row(*_row(outcome, outcome.group if outcome.group != last else ""))
        last = outcome.group
    console.print(table)
    missed = [outcome for outcome in outcomes if outcome.holds is False]
    bounded = [outcome for outcome in outcomes if outcome.holds is not None]
    if missed:
        lines = "\n".join(f"{o.group}: {o.line}: {_value(o)}, at most {_bound(o)} is wanted" for o in missed)
        console.print(Panel(lines, title=f"{len(missed)} of {len(bounded)} bounds MISSED", style="bold red"))
    elif bounded:
        console.print(f"[bold green]All {len(bounded)} bounds hold.[/bold green]")


_NUMERIC = {"Bowstring", "best peer", "rounds", "ratio", "bound"}


def _row(outcome: Outcome, group: str) -> tuple[str, ...]:
    peer, ours = outcome.best_peer, outcome.ours
    return (
        group,
        outcome.line,
        "" if ours is None else _seconds(ours.median_s),
        "" if peer is None else _seconds(peer.median_s),
        "" if peer is None else peer.name,
        "" if ours is None else str(len(ours.seconds)),
        _value(outcome),
        _bound(outcome),
        _VERDICT[outcome.holds],
    )


def _value(outcome: Outcome) -> str:
    if outcome.unit != "ratio":
        return f"{outcome.value:.1f} {outcome.unit}"
    return f"{outcome.value:.2f}" if outcome.value >= 0.1 else f"{outcome.value:.2g}"


def _bound(outcome: Outcome) -> str:
    if outcome.bound is None:
        return ""
    return f"{outcome.bound:g}" if outcome.unit == "ratio" else f"{outcome.bound:g} {outcome.unit}"


def _seconds(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def save(outcomes: Sequence[Outcome], facts: dict[str, str], folder: Path) -> Path:
    """Write the JSON, named by the time, and the same as latest.json."""
    folder.mkdir(exist_ok=True)
    now = datetime.now().astimezone()
    text = json.dumps(
        {"time": now.isoformat(timespec="seconds"), "machine": facts, "lines": [_record(o) for o in outcomes]}, indent=1
    )
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    for target in (path, folder / "latest.json"):
        target.write_text(text + "\n", encoding="utf-8")
    return path


def _record(outcome: Outcome) -> dict[str, Any]:
    return {
        "group": outcome.group,
        "line": outcome.line,
        "unit": outcome.unit,
        "value": outcome.value,
        "bound": outcome.bound,
        "holds": outcome.holds,
        "bowstring": None if outcome.ours is None else _times(outcome.ours),
        "peers": [_times(times) for times in outcome.peers],
    }


def _times(times: Times) -> dict[str, Any]:
    return {"name": times.name, "median_s": times.median_s, "seconds": times.seconds}
