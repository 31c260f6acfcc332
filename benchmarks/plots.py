"""Draw the plots of the pages, and write their table and a row of the README, all of one run:
`python -m benchmarks.plots [RESULTS]`, with the extra `docs`.

RESULTS is the JSON of `python -m benchmarks`; by default docs/evidence/benchmark-results.json, which the pages show.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.measure import Measurement, Timings
from benchmarks.report import COLUMNS, format_cells

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_README_ROW = re.compile(r"\| publish [^|]* and sum a column in another process \|[^|]*\|")
_INK = "#6b7280"
_METHODS = {
    "bowstring": ("publish", "#2b6cb0"),
    "toArrow, stream through a socket": ("toArrow() and an IPC stream", "#d97706"),
    "Parquet, snappy": ("Parquet, read by pyarrow", "#059669"),
}
"""The label and the color of each candidate of the group publish_sizes that is plotted."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "bowstring",  # the same results give the same file
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Legible on light and dark pages.
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


def main(arguments: Sequence[str]) -> None:
    """Draw the plot of the README and that of all ratios, and write the table of the results and the README's row."""
    path = Path(arguments[0]) if arguments else _DOCS / "evidence" / "benchmark-results.json"
    results = json.loads(path.read_text("utf-8"))
    with mpl.rc_context(_STYLE):
        _draw_publish(results["lines"], describe_run(results), _DOCS / "images" / "publish.svg")
        _draw_ratios(results["lines"], describe_run(results), _DOCS / "images" / "ratios.svg")
    (_DOCS / "evidence" / "benchmark-results.md").write_text(format_page(results), "utf-8")
    readme = _DOCS.parent / "README.md"
    text, count = _README_ROW.subn(format_readme_row(results["lines"]), readme.read_text("utf-8"))
    assert count == 1, f"{readme}: expected a row about publishing, found {count}"
    readme.write_text(text, "utf-8")


def describe_run(results: dict[str, Any]) -> str:
    """Return one line about the machine and the time of a run."""
    machine = results["machine"]
    memory_gb = int(machine["memory"].split()[0]) / 1e6
    load = machine["load average"].partition(",")[0]
    return (
        f"{results['time'][:10]}, {machine['processor']}, {machine['cores']} cores, {memory_gb:.0f} GB, load {load}, "
        f"pyarrow {machine['pyarrow']}, PySpark {machine['pyspark']}"
    )


def publish_times(lines: Sequence[dict[str, Any]]) -> dict[str, dict[int, Sequence[float]]]:
    """Return the seconds of each plotted method by the number of rows."""
    times: dict[str, dict[int, Sequence[float]]] = {}
    for line in lines:
        if line["group"] == "publish_sizes":
            for candidate in (line["bowstring"], *line["peers"]):
                if candidate["name"] in _METHODS:
                    times.setdefault(candidate["name"], {})[_count_rows(line)] = candidate["seconds"]
    return times


def format_readme_row(lines: Sequence[dict[str, Any]]) -> str:
    """Return the README's row about the most rows of the plot: the ratios to the best peer of each kind."""
    *_, to_arrow, parquet = (line for line in lines if line["group"] == "publish_sizes")
    speeds = [f"{1 / line['value']:.1f} times as fast as" for line in (to_arrow, parquet)]
    return (
        f"| publish {_count_rows(to_arrow) / 1e6:g} million rows from Spark and sum a column in another process "
        f"| {speeds[0]} `toArrow()`, {speeds[1]} Parquet |"
    )


def _count_rows(line: dict[str, Any]) -> int:
    return int(line["line"].partition(" ")[0].replace(",", ""))


def _draw_publish(lines: Sequence[dict[str, Any]], caption: str, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.6, 3.6), layout="constrained")
    for name, times in publish_times(lines).items():
        label, color = _METHODS[name]
        rows = sorted(times)
        axes.plot(rows, [statistics.median(times[count]) for count in rows], "o-", color=color, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows of eight columns, about 80 bytes each", ylabel="seconds")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_title("from Spark until another process has summed a column: medians", fontsize=11)
    axes.legend(frameon=False)
    _save(figure, caption, path)


def _draw_ratios(lines: Sequence[dict[str, Any]], caption: str, path: Path) -> None:
    """Draw a row of dots for each group, a dot for each ratio, hollow if it misses its bound."""
    ratios = [line for line in lines if line["unit"] == "ratio"]
    groups = list(dict.fromkeys(line["group"] for line in ratios))
    figure, axes = plt.subplots(figsize=(7.6, 0.8 + 0.28 * len(groups)), layout="constrained")
    axes.axvline(1, color=_INK, linewidth=0.8)
    for line in ratios:
        color = _METHODS["bowstring"][1]
        fill = "none" if line["is_within_bound"] is False else color
        axes.plot(line["value"], groups.index(line["group"]), "o", markersize=6, alpha=0.8, color=color, mfc=fill)
    axes.set(xscale="log", yticks=range(len(groups)), yticklabels=groups, xlabel="time of Bowstring / time of the peer")
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title("left of 1 Bowstring is faster; hollow dots miss their bound", fontsize=11)
    _save(figure, caption, path)


def format_page(results: dict[str, Any]) -> str:
    """Return the page with a row for each line of the results."""
    measurements = [_to_measurement(line) for line in results["lines"]]
    headings = list(COLUMNS)[:-1]
    rows = [headings, ["---"] * len(headings), *([each.group, *format_cells(each)] for each in measurements)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        f"# Results of the benchmarks\n\n{describe_run(results)}. [Evidence](index.md#speed) describes the method.\n"
        f"`python -m benchmarks.plots` writes this page from [all times](benchmark-results.json).\n\n{table}\n"
    )


def _to_measurement(line: dict[str, Any]) -> Measurement:
    timings = [each and Timings(each["name"], tuple(each["seconds"])) for each in (line["bowstring"], *line["peers"])]
    numbers = {name: line[name] for name in ("line", "value", "bound", "unit", "group")}
    return Measurement(**numbers, bowstring=timings[0], peers=tuple(timings[1:]))


def _save(figure: Any, caption: str, path: Path) -> None:
    figure.supxlabel(caption, fontsize=8)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
