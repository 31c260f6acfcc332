"""Print the table of measurements and save all times as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from benchmarks.measure import Measurement, Timings

_STATUS = {True: "[green]within bound[/green]", False: "[bold red]missed[/bold red]", None: "[dim]no bound[/dim]"}
COLUMNS: dict[str, Literal["left", "right"]] = {
    "group": "left",
    "line": "left",
    "Bowstring": "right",
    "best peer": "right",
    "setting": "left",
    "rounds": "right",
    "ratio": "right",
    "bound": "right",
    "status": "left",
}


def print_report(measurements: Sequence[Measurement], machine: dict[str, str], console: Console) -> None:
    """Print the machine, the table, and the bounds that were missed."""
    console.print("  ".join(f"[dim]{name}[/dim] {value}" for name, value in machine.items()), soft_wrap=True)
    table = Table(
        title="time of Bowstring / time of the best peer, medians of interleaved rounds", title_justify="left"
    )
    for heading, justify in COLUMNS.items():
        table.add_column(heading, justify=justify, overflow="fold")
    group = ""
    for measurement in measurements:
        if group and measurement.group != group:
            table.add_section()
        status = _STATUS[measurement.is_within_bound]
        table.add_row(measurement.group if measurement.group != group else "", *format_cells(measurement), status)
        group = measurement.group
    console.print(table)
    bounded = [measurement for measurement in measurements if measurement.bound is not None]
    missed = [measurement for measurement in bounded if not measurement.is_within_bound]
    if missed:
        lines = "\n".join(f"{m.group}: {m.line}: bound {_bound(m)}, measured {_value(m)}" for m in missed)
        console.print(Panel(lines, title=f"{len(missed)} of {len(bounded)} bounds missed", style="bold red"))
    elif bounded:
        console.print(f"[bold green]All {len(bounded)} measurements are within their bounds.[/bold green]")


def format_cells(measurement: Measurement) -> tuple[str, ...]:
    """Return the cells of a row from "line" to "bound"."""
    peer, bowstring = measurement.best_peer, measurement.bowstring
    return (
        measurement.line,
        "" if bowstring is None else _duration(bowstring.median_s),
        "" if peer is None else _duration(peer.median_s),
        "" if peer is None else peer.name,
        "" if bowstring is None else str(len(bowstring.seconds)),
        _value(measurement),
        _bound(measurement),
    )


def _value(measurement: Measurement) -> str:
    if measurement.unit != "ratio":
        return f"{measurement.value:.1f} {measurement.unit}"
    return f"{measurement.value:.2f}" if measurement.value >= 0.1 else f"{measurement.value:.2g}"


def _bound(measurement: Measurement) -> str:
    if measurement.bound is None:
        return ""
    return f"{measurement.bound:g}" if measurement.unit == "ratio" else f"{measurement.bound:g} {measurement.unit}"


def _duration(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def save_json(measurements: Sequence[Measurement], machine: dict[str, str], folder: Path) -> Path:
    """Write the JSON to a file named after the current time and to latest.json; return the path of the former."""
    folder.mkdir(exist_ok=True)
    now = datetime.now().astimezone()
    document = {
        "time": now.isoformat(timespec="seconds"),
        "machine": machine,
        "lines": [_record(measurement) for measurement in measurements],
    }
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    for target in (path, folder / "latest.json"):
        target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def _record(measurement: Measurement) -> dict[str, Any]:
    return {
        "group": measurement.group,
        "line": measurement.line,
        "unit": measurement.unit,
        "value": measurement.value,
        "bound": measurement.bound,
        "is_within_bound": measurement.is_within_bound,
        "bowstring": None if measurement.bowstring is None else _timings_record(measurement.bowstring),
        "peers": [_timings_record(timings) for timings in measurement.peers],
    }


def _timings_record(timings: Timings) -> dict[str, Any]:
    return {"name": timings.name, "median_s": timings.median_s, "seconds": timings.seconds}
