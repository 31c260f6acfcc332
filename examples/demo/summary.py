"""Summaries of tables, computed by Spark and by the readers, and the private memory of processes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from examples.demo.texts import format_count

_TOLERANCE = 1e-9
"""Relative tolerance for sums of the same numbers, which are added in different orders."""


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The number of rows, and the name, the number of nulls and the sum of each column (None unless numeric).

    `magnitudes` are the sums of absolute values, by which sums may differ relatively; only Spark computes them.
    """

    rows: int
    names: list[str]
    nulls: list[int]
    sums: list[float | None]
    magnitudes: list[float | None] | None = None

    def find_differences(self, expected: TableSummary) -> list[str]:
        """Return a sentence for each difference from what Spark computes."""
        if (self.rows, self.names) != (expected.rows, expected.names):
            shape, expected_shape = (
                f"{format_count(summary.rows, 'row')} of {format_count(len(summary.names), 'column')}"
                for summary in (self, expected)
            )
            return [f"{shape}, not {expected_shape}"]
        columns = zip(
            self.names,
            self.nulls,
            expected.nulls,
            self.sums,
            expected.sums,
            expected.magnitudes or expected.sums,
            strict=True,
        )
        return [
            f"column {name!r}: {nulls} nulls and sum {total}, not {expected_nulls} and {expected_total}"
            for name, nulls, expected_nulls, total, expected_total, magnitude in columns
            if nulls != expected_nulls or not _is_close(total, expected_total, magnitude)
        ]


def _is_close(total: float | None, expected: float | None, magnitude: float | None) -> bool:
    if total is None or expected is None or magnitude is None:
        return not total and not expected  # the sum of no values: None in Spark, 0 here
    return str(total) == str(expected) or math.isclose(total, expected, abs_tol=_TOLERANCE * magnitude)


def private_bytes(pid: int | None = None) -> int:
    """Return the size of the private memory of a process, by default this one, without files; 0 if it has ended."""
    try:
        with open(f"/proc/{pid or 'self'}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0
