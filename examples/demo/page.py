"""The demo's page: its report with plots, as one HTML page without scripts, which loads nothing."""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined

from examples.demo.comparison import WORKLOADS, describe_interval, total_of_all_reads, total_of_one_read
from examples.demo.methods import READERS, READS
from examples.demo.report import MEMORY, describe_measurements, describe_method
from examples.demo.texts import format_count, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Template

    from examples.demo.comparison import Comparison, DemoReport, Total

# What fits the width of the page.
_MAX_COLUMNS = 8
_CELL_CHARACTERS = 40
_TICKS = 5
_FOLDER = Path(__file__).parent


def build_page(report: DemoReport, source: str) -> str:
    """Return the text of the page; `source` names the rows."""
    style = _FOLDER.joinpath("page.css").read_text("utf-8")
    ratios = [
        (name, workload, ratio)
        for total, workload in WORKLOADS.items()
        for name, ratio in report.main.ratios(total).items()
    ]
    return _load_template().render(
        style=style,
        source=source,
        report=report,
        facts=_describe_machine(report),
        method=describe_method(report),
        interval=describe_interval(report.main.num_rounds),
        bar_charts=[
            (f"Written, and read by {workload}", *_create_time_chart(report.main, total))
            for total, workload in WORKLOADS.items()
        ],
        memory_charts=[(title, *_create_memory_chart(report, count)) for title, count in MEMORY],
        ratio_axis=_create_axis([1.2, *(max(ratio.interval or [ratio.median]) for *_, ratio in ratios)], "{:g}".format),
        ratios=ratios,
        reads_chart=_create_reads_chart(report.main),
        measurements=describe_measurements(report),
        sample=_create_sample(report),
    )


@cache
def _load_template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"time": format_time, "slug": lambda name: "".join(filter(str.isalpha, name.lower()))}
    return environment.from_string(_FOLDER.joinpath("page.html.jinja").read_text("utf-8"))


def _describe_machine(report: DemoReport) -> list[tuple[str, str]]:
    packages = [f"{name} {version(name.lower())}" for name in ("PySpark", "pyarrow")]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [
        ("rows", f"{report.main.rows:,}"),
        ("published", format_size(report.main.size_bytes)),
        ("columns", f"{len(report.names):,}"),
        ("rounds", str(report.main.num_rounds)),
        ("processors", str(len(os.sched_getaffinity(0)))),
        ("memory", format_size(memory_bytes)),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("versions", f"Python {platform.python_version()}, {', '.join(packages)}"),
    ]


def _create_axis(values: Iterable[float], format_tick: Any, unit: float = 1.0) -> tuple[float, list[tuple[float, str]]]:
    """Return the end of an axis from 0, and its ticks: round multiples of the unit, with their texts."""
    end = max(*values, 1e-6) / unit
    digit = 10.0 ** math.floor(math.log10(end / _TICKS))
    step = next(digit * factor for factor in (1, 2, 5, 10) if digit * factor * _TICKS >= end)
    count = math.ceil(end / step)
    ticks = [index * step * unit for index in range(count + 1)]
    return ticks[-1], [(tick, format_tick(tick)) for tick in ticks]


def _format_tick(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 or not seconds else f"{seconds * 1000:g} ms"


def _create_time_chart(comparison: Comparison, total: Total) -> tuple[Any, list[Any]]:
    """Return an axis, and for each method its name, its median, its text and the times of all rounds."""
    rows: list[Any] = []
    for name, rounds in comparison.rounds.items():
        median = comparison.median(name, total)
        rows.append((name, median, format_time(median), list(map(total, rounds))))
    return _create_axis((time for *_, times in rows for time in times), _format_tick), rows


def _create_memory_chart(report: DemoReport, count: Any) -> tuple[Any, list[Any]]:
    sizes = {name: max(count(memory), 0) for name, memory in report.memory.items()}
    rows: list[Any] = [(name, size, format_size(size), []) for name, size in sizes.items()]
    unit = 1024.0 ** min(int(math.log(max(*sizes.values(), 1), 1024)), 3)
    return _create_axis(sizes.values(), lambda size: format_size(round(size)), unit), rows


def _create_reads_chart(comparison: Comparison) -> Any:
    """Return the axes, and for each method its time by the number of reads."""
    reads = {1: total_of_one_read, READERS * READS: total_of_all_reads}
    series = {name: [(n, comparison.median(name, reads[n])) for n in reads] for name in comparison.rounds}
    times = [time for points in series.values() for _, time in points]
    return _create_axis(reads, "{:g}".format), _create_axis(times, _format_tick), series


def _create_sample(report: DemoReport) -> dict[str, Any]:
    names, hidden = report.names[:_MAX_COLUMNS], len(report.names) - _MAX_COLUMNS
    return {
        "names": [_shorten(name) for name in names],
        "rows": [[_shorten(cell) for cell in row[:_MAX_COLUMNS]] for row in report.sample],
        "note": format_count(hidden, "more column") if hidden > 0 else "",
    }


def _shorten(text: str) -> str:
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"
