"""Reading published data sets back into Spark, in the same application and in others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import ClosedError
from bowstring.spark import RemoteOptions, publish
from bowstring.spark.source.dataset_reader import parse_datasets
from tests.spark.test_round_trip import EVERY_TYPE, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def load(spark: SparkSession, target: Any, **options: Any) -> DataFrame:
    targets = [
        each.to_json() if isinstance(each, Dataset) else each
        for each in (target if isinstance(target, list) else [target])
    ]
    return spark.read.format("arrow").options(**options).load(targets)


@pytest.mark.parametrize("split_bytes", [64 << 20, 20_000])
def test_all_types_come_back_in_as_many_partitions_as_their_bytes_need(spark: SparkSession, split_bytes: int) -> None:
    frame = every_type(spark)
    with publish(frame) as published:
        again = load(spark, published, splitBytes=split_bytes)
        # Arrow's times of day do not have Spark's precision.
        times = {"times": again["times"].cast("time(6)")} if "times" in again.columns else {}
        assert again.withColumns(times).dtypes == frame.dtypes
        num_pieces = sum(-(-part.nbytes // split_bytes) for part in published.parts)
        assert again.rdd.getNumPartitions() == (1 if split_bytes > published.nbytes else num_pieces)
        assert (num_pieces > 4) == (split_bytes < published.nbytes)
        assert rows(again) == rows(frame)


def every_type(spark: SparkSession) -> DataFrame:
    spark.range(0, 600, 1, 2).createOrReplaceTempView("numbers")
    return spark.sql(f"select id, {EVERY_TYPE} from numbers")


def test_uris_of_this_host_are_divided_by_their_rows_and_of_others_are_a_partition_each(spark: SparkSession) -> None:
    with publish(spark.range(0, 1000, 1, 4), remote=RemoteOptions(host="127.0.0.1")) as published:
        unix, tcp = ([part.locations[index] for part in published.parts] for index in range(2))
        described = parse_datasets(unix)
        assert [part.num_rows for part in described.parts] == [250] * 4
        assert all(
            0 < part.nbytes <= other.nbytes for part, other in zip(described.parts, published.parts, strict=True)
        )
        for uris, split_bytes, num_partitions in ((unix, 64 << 20, 1), (unix, 1000, 8), (tcp, 64 << 20, 4)):
            frame = load(spark, uris, splitBytes=split_bytes)
            assert frame.rdd.getNumPartitions() == num_partitions
            assert sorted(row.id for row in frame.collect()) == list(range(1000))


def test_a_part_is_read_at_its_nearest_location(spark: SparkSession) -> None:
    with publish(spark.range(0, 1000, 1, 1)) as published:
        (part,) = published.parts
        locations = ("unix:@nowhere?want_data=1&free_data=2&ticket=x", *part.locations)
        assert load(spark, " ".join(locations)).count() == 1000


@pytest.mark.thorough
def test_many_small_parts_are_few_partitions(spark: SparkSession) -> None:
    with publish(spark.range(0, 500, 1, 100)) as published:
        assert len(published.uris) == 100
        frame = load(spark, published)
        assert frame.rdd.getNumPartitions() == 1
        assert frame.selectExpr("count(*)", "sum(id)").collect() == [(500, sum(range(500)))]


@pytest.mark.parametrize("columns", [["id"], []])
def test_rows_of_an_empty_frame_and_of_one_without_columns_are_counted(spark: SparkSession, columns: list[str]) -> None:
    for num_rows in (0, 5):
        with publish(spark.range(num_rows).select(*columns)) as published:
            frame = load(spark, published)
            assert frame.columns == columns
            assert (frame.count(), len(frame.collect())) == (num_rows, num_rows)


def test_columns_can_be_selected_and_read_as_other_types(spark: SparkSession) -> None:
    with publish(spark.range(0, 10, 1, 2).selectExpr("id", "id as `a.b`", "timestamp '2024-01-01' as t")) as published:
        frame = spark.read.format("arrow").schema("`a.b` double").load(published.to_json())
        assert sorted(row[0] for row in frame.collect()) == [float(number) for number in range(10)]
        for schema, message in (("x long", "no column is called 'x'; there are 'id'"), ("t date", "can't be read as")):
            with pytest.raises(Exception, match=message):
                spark.read.format("arrow").schema(schema).load(published.to_json()).collect()


def test_a_closed_data_set_is_an_error_before_the_job(spark: SparkSession) -> None:
    with publish(spark.range(10)) as published:
        uris, description = list(published.uris), published.to_json()
    with pytest.raises(ClosedError, match="after it was closed"):
        load(spark, published)
    with pytest.raises(ClosedError):
        published.to_json()
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    for target in (uris, description):
        with pytest.raises(Exception, match=r"NotFoundError: data set .*: data set .* was closed by process"):
            load(spark, target).count()
    assert len(tracker.getJobIdsForGroup(None)) == before


def test_what_cannot_be_a_data_set_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with publish(spark.range(1)) as published, publish(spark.range(1).selectExpr("id as x")) as other:
        for target, options, message in (
            (published, {"mergeSchema": "true"}, "option mergeSchema: a data set has one schema"),
            ([published.uris[0], str(tmp_path)], {}, "is a path, but unix:@bowstring.* is a data set"),
            ([published, other], {}, "data: expected .*id.*, found .*x"),
            ("{", {}, "InvalidDataError: data set: expected JSON"),
        ):
            with pytest.raises(Exception, match=message):
                load(spark, target, **options).collect()


def test_malformed_batches_are_an_error_with_their_part(spark: SparkSession) -> None:
    text = pa.array([b"\xff", b"b"]).view(pa.string())
    table = bs.table({"text": text})
    with bs.serve({"texts": table}) as server:
        dataset = Dataset("bad", table.schema, [DatasetPart(2, 100, (server.uri("texts"),))])
        with pytest.raises(Exception, match=r"InvalidDataError: bad, part 0: .*text"):
            load(spark, dataset).collect()
