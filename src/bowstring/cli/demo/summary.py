"""Summaries of tables, computed by Spark and by the consumer: rows, nulls, and sums of numeric columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bowstring.datatypes.types import Decimal as DecimalType, FloatingPoint, Int

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from bowstring.arrays.array import Array
    from bowstring.arrays.record_batch import RecordBatch

SPARK_INTEGERS = ("tinyint", "smallint", "int", "bigint")
SPARK_FLOATS = ("float", "double")
TOLERANCE = 1e-9
"""Relative tolerance for sums of the same floats, which are added in different orders."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """The null count of a column, and its sum as text (None if it is not numeric or has no values)."""

    name: str
    nulls: int
    total: str | None

    def is_close_to(self, other: ColumnSummary) -> bool:
        """Return whether names, null counts and sums are equal, sums of floats within `TOLERANCE`."""
        if (self.name, self.nulls) != (other.name, other.nulls):
            return False
        if self.total is None or other.total is None or self.total == other.total:
            return self.total == other.total
        left, right = Decimal(self.total), Decimal(other.total)
        if left.is_finite() and right.is_finite() and self._has_float_sum and other._has_float_sum:
            return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=1e-12)
        return left == right

    @property
    def _has_float_sum(self) -> bool:
        return self.total is not None and ("e" in self.total or "." in self.total or "n" in self.total)


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The number of rows of a table, and a summary of each column."""

    rows: int
    columns: tuple[ColumnSummary, ...]

    def find_differences(self, other: TableSummary) -> list[str]:
        """Return a sentence for each difference from another summary."""
        sentences = [] if self.rows == other.rows else [f"{self.rows:,} rows, not {other.rows:,}"]
        if len(self.columns) != len(other.columns):
            return [*sentences, f"{len(self.columns)} columns, not {len(other.columns)}"]
        return sentences + [
            f"column {column.name!r}: {column.nulls} nulls and sum {column.total}, not {peer.nulls} and {peer.total}"
            for column, peer in zip(self.columns, other.columns, strict=True)
            if not column.is_close_to(peer)
        ]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TableSummary:
        """Create a summary from the values of `dataclasses.asdict`."""
        return cls(values["rows"], tuple(ColumnSummary(**column) for column in values["columns"]))


def summarize_frame(frame: DataFrame) -> TableSummary:
    """Summarize a data frame in one Spark job."""
    names = frame.columns
    type_names = [kind for _, kind in frame.dtypes]
    plain = frame.toDF(*(f"c{index}" for index in range(len(names))))
    expressions = ["count(*)"]
    for index, kind in enumerate(type_names):
        expressions.append(f"count(*) - count(c{index})")
        if kind in SPARK_INTEGERS:
            expressions.append(f"cast(sum(cast(c{index} as decimal(38, 0))) as string)")
        elif kind.startswith("decimal") or kind in SPARK_FLOATS:
            expressions.append(f"cast(sum(c{index}) as string)")
        else:
            expressions.append("cast(null as string)")
    row = list(plain.selectExpr(*expressions).first() or ())
    columns = [
        ColumnSummary(
            name,
            row[1 + 2 * index],
            _normalize_float_text(row[2 + 2 * index]) if kind in SPARK_FLOATS else row[2 + 2 * index],
        )
        for index, (name, kind) in enumerate(zip(names, type_names, strict=True))
    ]
    return TableSummary(row[0], tuple(columns))


def _normalize_float_text(total: str | None) -> str | None:
    return None if total is None else repr(float(total))


def summarize_batches(names: list[str], batches: Iterable[RecordBatch]) -> TableSummary:
    """Summarize record batches."""
    rows, nulls = 0, [0] * len(names)
    totals: list[int | float | Decimal | None] = [None] * len(names)
    for batch in batches:
        rows += batch.num_rows
        for index in range(len(names)):
            column = batch.column(index)
            nulls[index] += column.null_count
            total = sum_column(column)
            if total is not None:
                before = totals[index]
                totals[index] = total if before is None else before + total  # type: ignore[operator]
    columns = [
        ColumnSummary(name, count, None if total is None else repr(total) if isinstance(total, float) else str(total))
        for name, count, total in zip(names, nulls, totals, strict=True)
    ]
    return TableSummary(rows, tuple(columns))


def sum_column(column: Array) -> int | float | Decimal | None:
    """Return the sum of a numeric column, exact for integers and decimals; None for other types or only nulls."""
    if column.null_count == column.length or not isinstance(column.type, (Int, FloatingPoint, DecimalType)):
        return None
    if isinstance(column.type, DecimalType):
        return sum((value for value in column.to_pylist() if value is not None), Decimal(0))
    values, mask = column.buffer_values(1), column.validity_mask()
    if mask is not None:
        values = values[mask]
    return float(values.sum(dtype="f8")) if isinstance(column.type, FloatingPoint) else _sum_exactly(values)


def _sum_exactly(values: npt.NDArray[np.integer[Any]]) -> int:
    """Return the sum of integers. The halves of 64-bit integers are added separately, so that no sum overflows."""
    if values.dtype.itemsize < 8:
        return int(values.sum(dtype="i8"))
    wide = values.astype("u8" if values.dtype.kind == "u" else "i8")
    return (int((wide >> 32).sum()) << 32) + int((wide & 0xFFFFFFFF).sum())
