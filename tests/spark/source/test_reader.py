"""Plan partitions by the columns to read, without a Spark session."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets.manifest import Manifest, ManifestEntry, try_create_manifest
from bowstring.errors import InvalidDataError
from bowstring.spark.arrow_files import MIN_COST_SHARE, describe_file, prefix_errors
from bowstring.spark.row_filters import RowFilters

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from bowstring.spark.options import encode_options
from bowstring.spark.source.planning import ReadPlanner
from bowstring.spark.source.read_tasks import TaskReader

ROWS, BATCHES = 1000, 40


@contextlib.contextmanager
def record_opened_files() -> Iterator[list[str]]:
    """Return a list, to which the paths of the files that are opened are added."""
    recordings: list[list[str]] = [[]]

    def add(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and recordings:
            recordings[0].append(str(arguments[0]))

    sys.addaudithook(add)  # can't be removed
    yield recordings[0]
    recordings.clear()


def write_wide_file(path: Path) -> None:
    """Write rows of some 216 bytes, 8 of which are a number."""
    batch = bs.record_batch({"id": np.arange(ROWS), "text": ["x" * 200] * ROWS})
    with bs.new_file(path, batch.schema) as writer:
        for _ in range(BATCHES):
            writer.write(batch)


def create_reader(path: Path, **options: object) -> TaskReader:
    planner = ReadPlanner(encode_options({"path": str(path), **options}))
    return planner.reader(planner.schema())


def count_rows_by_task(path: Path, **options: str) -> list[int]:
    """Read a path as the tasks of Spark do, and return the number of rows of each partition."""
    reader = create_reader(path, **options)
    return [sum(batch.num_rows for batch in reader.read(task.ranges)) for task in reader.plan()]


def test_partitions_have_more_rows_if_few_columns_are_read(tmp_path: Path) -> None:
    write_wide_file(tmp_path / "a.arrow")
    all_columns = count_rows_by_task(tmp_path, split_bytes="500k")
    assert all_columns == [2 * ROWS] * (BATCHES // 2)
    assert count_rows_by_task(tmp_path, split_bytes="500k", columns="id, text") == all_columns
    assert count_rows_by_task(tmp_path, split_bytes="500k", columns="text")[0] < 3 * ROWS
    # Of 216 bytes, and 32 for the row itself, 8 and 32 are left: some six times the rows.
    assert count_rows_by_task(tmp_path, split_bytes="500k", columns="id") == [14 * ROWS, 14 * ROWS, 12 * ROWS]


def test_the_share_of_a_file_without_batches_or_with_malformed_ones_is_one(tmp_path: Path) -> None:
    write_wide_file(tmp_path / "a.arrow")
    content = (tmp_path / "a.arrow").read_bytes()
    first_batch = content.index(b"\xff\xff\xff\xff", 16)
    (tmp_path / "bad.arrow").write_bytes(content[:first_batch] + bytes(64) + content[first_batch + 64 :])
    schema = bs.schema({"id": "int64", "text": "string"})
    bs.new_file(tmp_path / "empty.arrow", schema).close()
    bs.new_stream(tmp_path / "a.arrows", schema).close()

    def estimate_share(name: str, *columns: str) -> float:
        struct = StructType([StructField(column, LongType()) for column in columns])
        return describe_file(tmp_path / name, RowFilters(struct), columns).cost_share

    assert 0.1 < estimate_share("a.arrow", "id") < 0.2
    assert estimate_share("a.arrow") > MIN_COST_SHARE
    assert estimate_share("a.arrow", "id", "unknown") == estimate_share("a.arrow", "id")
    for name in ("bad.arrow", "empty.arrow", "a.arrows"):
        assert estimate_share(name, "id") == 1


@pytest.mark.parametrize("is_listed", [False, True])
def test_planning_opens_each_file_at_most_once(tmp_path: Path, is_listed: bool) -> None:
    names = [f"{index}.arrow" for index in range(3)]
    for name in names:
        write_wide_file(tmp_path / name)
    if is_listed:
        json_schema = StructType().add("id", LongType()).add("text", StringType()).jsonValue()
        entries = [ManifestEntry(name, (tmp_path / name).stat().st_size, None, None) for name in names]
        assert try_create_manifest(tmp_path, Manifest(1, json_schema, tuple(entries)))
    reader = create_reader(tmp_path, columns=["id"], filters=[("id", ">", 5)])
    with record_opened_files() as opened:
        reader.plan()
    assert sorted(path for path in opened if path.endswith(".arrow")) == [str(tmp_path / name) for name in names]


def test_errors_have_the_path_of_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in (f"column '{path}x': no", f"{path}x: no", f"{path}"):
        with pytest.raises(InvalidDataError) as caught, prefix_errors(path):
            raise InvalidDataError(text)
        assert str(caught.value) == f"{path}: {text}"
    for text in (f"{path}: no", f"{path}, record batch 1: no"):
        with pytest.raises(InvalidDataError) as caught, prefix_errors(path):
            raise InvalidDataError(text)
        assert str(caught.value) == text
