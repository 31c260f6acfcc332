"""Read and write five million rows of mixed types by Spark, as Arrow and as Parquet, in one session.

A read begins with `load`, since a query usually does. The rows are sorted by `id`, so the statistics of all batches but
one exclude ``id < 1000``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bowstring
from benchmarks.measure import Candidate, Measurement, Settings, compare
from benchmarks.spark_dataframe import SUM_COLUMN, create_dataframe, expected_sum
from bowstring.spark.source.planning import ReadPlanner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS, _QUICK_ROWS = 5_000_000, 200_000
_SELECTED_ROWS = 1000
_WRITE_BOUND, _SINK_BOUND = 0.6, 0.9
_SOURCE_BOUND, _COLUMN_BOUND, _READ_COLUMN_BOUND, _FILTER_BOUND = 1.3, 1.5, 1.2, 2.0
_COUNT_ROWS_BOUND, _COUNT_BOUND = 1.0, 2.0


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure all lines in one Spark session."""
    rows = _QUICK_ROWS if settings.is_quick else _ROWS
    long_calls = settings.for_long_calls(1 if settings.is_quick else 2)
    spark = bowstring.spark.session("local[*]")
    try:
        formats = _Formats(spark, folder, rows)
        yield from formats.measure_writes(long_calls)
        yield from formats.measure_reads(long_calls)
    finally:
        spark.stop()


@dataclass(frozen=True, slots=True)
class _Formats:
    """The same rows in folders of both formats."""

    spark: SparkSession
    folder: Path
    rows: int

    def measure_writes(self, settings: Settings) -> Iterator[Measurement]:
        """Measure `write` and the sink, and leave both folders."""
        df, line = create_dataframe(self.spark, self.rows), f"{self.rows:,} rows written"
        parquet = self._candidate("Parquet", "parquet", df.write.parquet)
        write = self._candidate("bowstring", "arrow", lambda path: bowstring.spark.write(df, path))
        sink = self._candidate("bowstring", "arrow", df.write.format("arrow").mode("append").save)
        yield compare(f"{line} by `write`", _WRITE_BOUND, write, [parquet], settings)
        yield compare(f"{line} by the sink", _SINK_BOUND, sink, [parquet], settings)
        df.write.parquet(str(self.folder / "parquet"))
        bowstring.spark.write(df, self.folder / "arrow")

    def _candidate(self, name: str, folder_name: str, write: Callable[[str], Any]) -> Candidate:
        path = self.folder / folder_name
        return Candidate.of_call(name, lambda: write(str(path)), teardown=lambda: shutil.rmtree(path))

    def measure_reads(self, settings: Settings) -> Iterator[Measurement]:
        """Measure the source, after `measure_writes`."""

        def compare_reads(
            line: str, bound: float, bowstring_call: Callable[[], object], parquet_call: Callable[[], object]
        ) -> Measurement:
            candidates = [
                Candidate.of_call(*each) for each in (("bowstring", bowstring_call), ("Parquet", parquet_call))
            ]
            return compare(f"{self.rows:,} rows, {line}", bound, candidates[0], candidates[1:], settings)

        arrow, parquet = self._load_arrow, self._load_parquet
        filters = str([("id", "<", _SELECTED_ROWS)])
        yield compare_reads("all columns read", _SOURCE_BOUND, lambda: _read(arrow()), lambda: _read(parquet()))
        yield compare_reads(
            "the sum of a column",
            _COLUMN_BOUND,
            lambda: self._check_sum(arrow(columns=SUM_COLUMN)),
            lambda: self._check_sum(parquet()),
        )
        yield compare_reads(
            "the sum of a column by `read`",
            _READ_COLUMN_BOUND,
            lambda: self._check_sum(bowstring.spark.read(self.spark, self.folder / "arrow", columns=[SUM_COLUMN])),
            lambda: self._check_sum(parquet()),
        )
        yield compare_reads(
            f"id < {_SELECTED_ROWS}",
            _FILTER_BOUND,
            lambda: _check_count(arrow(filters=filters).collect(), _SELECTED_ROWS),
            lambda: _check_count(parquet().where(f"id < {_SELECTED_ROWS}").collect(), _SELECTED_ROWS),
        )
        yield Measurement(
            f"{self.rows:,} rows, id < {_SELECTED_ROWS}, each file", self._count_batches(filters), 1, "batches"
        )
        yield compare_reads(
            "`count_rows`",
            _COUNT_ROWS_BOUND,
            lambda: bowstring.spark.count_rows(self.folder / "arrow"),
            lambda: parquet().count(),
        )
        yield compare_reads(
            "`count()` of one column",
            _COUNT_BOUND,
            lambda: arrow(columns="id").count(),
            lambda: parquet().count(),
        )

    def _count_batches(self, filters: str) -> float:
        """Return the number of batches that a reader with filters reads of each matching file."""
        planner = ReadPlanner({"path": str(self.folder / "arrow"), "filters": filters})
        ranges = [each for task in planner.reader(planner.schema()).plan() for each in task.ranges]
        return float(sum(each.stop - each.start for each in ranges)) / len({each.path for each in ranges})

    def _load_arrow(self, **options: str) -> DataFrame:
        return self.spark.read.format("arrow").options(**options).load(str(self.folder / "arrow"))

    def _load_parquet(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "parquet"))

    def _check_sum(self, frame: DataFrame) -> None:
        (row,) = frame.selectExpr(f"sum({SUM_COLUMN})").collect()
        assert row[0] == expected_sum(self.rows), f"expected the sum {expected_sum(self.rows)}, found {row[0]}"


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _check_count(values: list[Any], count: int) -> None:
    assert len(values) == count, f"expected {count} rows, found {len(values)}"
