"""Plan partitions by the columns to read, without a Spark session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.spark.arrow_files import MIN_COST_SHARE, estimate_cost_share

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict

from bowstring.spark.source import ArrowDataSource

ROWS, BATCHES = 1000, 40


def write_wide_file(path: Path) -> None:
    """Write rows of some 216 bytes, 8 of which are a number."""
    batch = bs.record_batch({"id": np.arange(ROWS), "text": ["x" * 200] * ROWS})
    with bs.new_file(path, batch.schema) as writer:
        for _ in range(BATCHES):
            writer.write(batch)


def count_rows_by_partition(path: Path, **options: str) -> list[int]:
    """Read a path as the tasks of Spark do, and return the number of rows of each partition."""
    source = ArrowDataSource(CaseInsensitiveDict({"path": str(path), **options}))
    reader = source.reader(source.schema())
    return [sum(batch.num_rows for batch in reader.read(partition)) for partition in reader.partitions()]


def test_partitions_have_more_rows_if_few_columns_are_read(tmp_path: Path) -> None:
    write_wide_file(tmp_path / "a.arrow")
    all_columns = count_rows_by_partition(tmp_path, splitBytes="500k")
    assert all_columns == [2 * ROWS] * (BATCHES // 2)
    assert count_rows_by_partition(tmp_path, splitBytes="500k", columns="id, text") == all_columns
    assert count_rows_by_partition(tmp_path, splitBytes="500k", columns="text")[0] < 3 * ROWS
    # Of 216 bytes, and 32 for the row itself, 8 and 32 are left: some six times the rows.
    assert count_rows_by_partition(tmp_path, splitBytes="500k", columns="id") == [14 * ROWS, 14 * ROWS, 12 * ROWS]


def test_the_share_of_a_file_without_batches_or_with_malformed_ones_is_one(tmp_path: Path) -> None:
    write_wide_file(tmp_path / "a.arrow")
    assert 0.1 < estimate_cost_share(tmp_path / "a.arrow", ["id"]) < 0.2
    assert estimate_cost_share(tmp_path / "a.arrow", []) > MIN_COST_SHARE
    assert estimate_cost_share(tmp_path / "a.arrow", ["id", "text"]) > 0.9
    assert estimate_cost_share(tmp_path / "a.arrow", ["unknown"]) == 1
    content = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "cut.arrow").write_bytes(content[:-100])
    assert estimate_cost_share(tmp_path / "cut.arrow", ["id"]) == 1
    schema = bs.schema({"id": "int64", "text": "string"})
    bs.new_file(tmp_path / "empty.arrow", schema).close()
    assert estimate_cost_share(tmp_path / "empty.arrow", ["id"]) == 1
    bs.new_stream(tmp_path / "a.arrows", schema).close()
    assert estimate_cost_share(tmp_path / "a.arrows", ["id"]) == 1
