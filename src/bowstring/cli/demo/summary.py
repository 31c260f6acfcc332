"""What a table amounts to, by Spark and by the process that picked it up: rows, nulls, sums of numeric columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bowstring.datatypes.types import Decimal as DecimalType, FloatingPoint, Int

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from bowstring.arrays.record_batch import RecordBatch
    from bowstring.layouts.array import Array

SPARK_INTEGERS = ("tinyint", "smallint", "int", "bigint")
SPARK_FLOATS = ("float", "double")
TOLERANCE = 1e-9
"""How far two sums of the same floats may be apart, relatively: they are added in different orders."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column: its nulls, and its sum as text (None where it is not numeric, or has no value)."""

    name: str
    nulls: int
    total: str | None

    def agrees_with(self, other: ColumnFacts) -> bool:
        """Whether names, nulls and sums are the same, sums of floats but for the order of adding."""
        if (self.name, self.nulls) != (other.name, other.nulls):
            return False
        if self.total is None or other.total is None or self.total == other.total:
            return self.total == other.total
        mine, theirs = Decimal(self.total), Decimal(other.total)
        if mine.is_finite() and theirs.is_finite() and self._is_float and other._is_float:
            return math.isclose(mine, theirs, rel_tol=TOLERANCE, abs_tol=1e-12)
        return mine == theirs

    @property
    def _is_float(self) -> bool:
        return self.total is not None and ("e" in self.total or "." in self.total or "n" in self.total)


@dataclass(frozen=True, slots=True)
class Facts:
    """A table: its rows and its columns."""

    rows: int
    columns: tuple[ColumnFacts, ...]

    def differences(self, other: Facts) -> list[str]:
        """What the two do not agree in, a sentence each."""
        found = [] if self.rows == other.rows else [f"{self.rows:,} rows, not {other.rows:,}"]
        if len(self.columns) != len(other.columns):
            return [*found, f"{len(self.columns)} columns, not {len(other.columns)}"]
        return found + [
            f"column {mine.name!r}: {mine.nulls} nulls and sum {mine.total}, not {theirs.nulls} and {theirs.total}"
            for mine, theirs in zip(self.columns, other.columns, strict=True)
            if not mine.agrees_with(theirs)
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Facts:
        """From plain values."""
        return cls(values["rows"], tuple(ColumnFacts(**column) for column in values["columns"]))


def spark_facts(frame: DataFrame) -> Facts:
    """What Spark itself says of a data frame; one job."""
    names = frame.columns
    kinds = [kind for _, kind in frame.dtypes]
    plain = frame.toDF(*(f"c{index}" for index in range(len(names))))
    wanted = ["count(*)"]
    for index, kind in enumerate(kinds):
        wanted.append(f"count(*) - count(c{index})")
        if kind in SPARK_INTEGERS:
            wanted.append(f"cast(sum(cast(c{index} as decimal(38, 0))) as string)")
        elif kind.startswith("decimal") or kind in SPARK_FLOATS:
            wanted.append(f"cast(sum(c{index}) as string)")
        else:
            wanted.append("cast(null as string)")
    row = list(plain.selectExpr(*wanted).first() or ())
    columns = [
        ColumnFacts(
            name, row[1 + 2 * index], _float_text(row[2 + 2 * index]) if kind in SPARK_FLOATS else row[2 + 2 * index]
        )
        for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    return Facts(row[0], tuple(columns))


def _float_text(total: str | None) -> str | None:
    return None if total is None else repr(float(total))


def batch_facts(names: list[str], batches: Iterable[RecordBatch]) -> Facts:
    """What batches of Bowstring amount to."""
    rows, nulls = 0, [0] * len(names)
    totals: list[int | float | Decimal | None] = [None] * len(names)
    for batch in batches:
        rows += batch.num_rows
        for index in range(len(names)):
            column = batch.column(index)
            nulls[index] += column.null_count
            total = column_total(column)
            if total is not None:
                before = totals[index]
                totals[index] = total if before is None else before + total  # type: ignore[operator]
    columns = [
        ColumnFacts(name, count, None if total is None else repr(total) if isinstance(total, float) else str(total))
        for name, count, total in zip(names, nulls, totals, strict=True)
    ]
    return Facts(rows, tuple(columns))


def column_total(column: Array) -> int | float | Decimal | None:
    """The sum of a numeric column: exact for integers and decimals; None for other types, and where all is null."""
    if column.null_count == column.length or not isinstance(column.type, (Int, FloatingPoint, DecimalType)):
        return None
    if isinstance(column.type, DecimalType):
        return sum((value for value in column.to_pylist() if value is not None), Decimal(0))
    values, mask = column.values(1), column.mask()
    if mask is not None:
        values = values[mask]
    return float(values.sum(dtype="f8")) if isinstance(column.type, FloatingPoint) else _exact_sum(values)


def _exact_sum(values: npt.NDArray[np.integer[Any]]) -> int:
    """The sum of 64-bit integers, by halves that cannot overflow."""
    wide = values.astype("u8" if values.dtype.kind == "u" else "i8")
    return (int((wide >> 32).sum()) << 32) + int((wide & 0xFFFFFFFF).sum())
