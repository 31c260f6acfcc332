"""Publishing a data frame from a real Spark, and reading it in this process and in others."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    NotFoundError,
    ResourceError,
    UnsupportedTypeError,
)
from bowstring.sharing.agent.client import AgentClient
from bowstring.spark import PublishedFrame, publish, types
from tests.polling import wait_until
from tests.sharing.python_process import run_python
from tests.spark.folder.test_faults import fail_first_attempts
from tests.spark.test_round_trip import EVERY_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")


def agent_of(published: PublishedFrame) -> AgentClient:
    assert published._job is not None
    return AgentClient.open(published._job.agent_key, start=False)


def agent_datasets(published: PublishedFrame) -> dict[str, Any]:
    with agent_of(published) as agent:
        datasets: dict[str, Any] = agent.status()["datasets"]
        return datasets


def test_another_process_sums_a_column(spark: SparkSession) -> None:
    with publish(spark.range(0, 10_000, 1, 3)) as published:
        code = "import bowstring as bs; send(sum(bs.connect(published).read_all().column('id').to_pylist()))"
        assert run_python(code, published=published) == sum(range(10_000))
        code = "import bowstring as bs; send(bs.connect(uri).read_all().num_rows)"
        assert sum(run_python(code, uri=uri) for uri in published.uris) == 10_000


def test_partitions_have_host_rows_and_bytes(spark: SparkSession) -> None:
    with publish(spark.range(0, 10_000, 1, 3), name="numbers") as published:
        assert published.num_rows == 10_000
        assert len(published.parts) == 3
        assert sum(part.num_rows for part in published.parts) == 10_000
        assert {part.host for part in published.parts} == {os.uname().nodename}
        assert 80_000 < published.nbytes < 120_000
        assert published.id.startswith("numbers-")
        assert published.schema == bs.schema([bs.field("id", bs.int64(), nullable=False)])


def test_all_types_have_the_values_that_spark_computed(spark: SparkSession) -> None:
    frame = spark.range(0, 300, 1, 2).selectExpr("id", *_columns())
    with publish(frame) as published, bs.connect(published) as data:
        table = data.read_all()
    table.validate(full=True)
    assert table.schema == published.schema
    flat = frame.drop("structs").toArrow()  # which Spark can't convert itself: its own cast fails on nulls in there
    bowstring_table = pa.table(table).drop_columns("structs").cast(flat.schema)
    for name in flat.column_names:
        assert repr(bowstring_table[name].to_pylist()) == repr(flat[name].to_pylist()), name  # in which NaN is NaN
    rows = [row.asDict(recursive=True)["structs"] for row in frame.select("structs").collect()]
    assert table.column("structs").to_pylist() == rows


def _columns() -> list[str]:
    parts, depth, start = [], 0, 0
    for index, character in enumerate(EVERY_TYPE):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(EVERY_TYPE[start:index].strip())
            start = index + 1
    return [*parts, EVERY_TYPE[start:].strip()]


def test_reading_again_gives_the_same(spark: SparkSession) -> None:
    with publish(spark.range(100)) as published, bs.connect(published) as data:
        assert data.read_all() == data.read_all()


@pytest.mark.parametrize("partitions", [0, 1, 5])
def test_empty_frames_and_partitions_keep_their_schema(spark: SparkSession, partitions: int) -> None:
    frame = spark.range(0, 3, 1, 5).where("id = 1") if partitions == 5 else spark.range(0, 0, 1, max(partitions, 1))
    if partitions == 0:
        frame = spark.createDataFrame([], "id long")
    with publish(frame) as published:
        for target in (published, published.uris):
            table = bs.connect(target).read_all()
            assert table.to_pydict() == {"id": [1] if partitions == 5 else []}
            assert table.schema == published.schema
        assert agent_datasets(published)[published.id]["partitions"] == len(published.uris) == 1
        assert published.num_rows == table.num_rows


ZONES = ["GMT+8", "Z", "+08:00", "+8", "+01:30:15", "UTC+8", "UT", "EST", "GMT0", "Asia/Tokyo"]


def test_timestamps_can_be_read_with_any_time_zone_of_the_session(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ZONES:
            spark.conf.set("spark.sql.session.timeZone", zone)
            frame = spark.sql("select t, array(t) as ts from values (timestamp '2024-07-01 12:00:00') as rows(t)")
            spark_table = frame.toArrow()
            with publish(frame) as published:
                table = bs.connect(published).read_all()
            assert table.schema == published.schema
            assert pa.table(table).schema.types == spark_table.schema.types, zone
            assert table.to_pydict() == pa.table(table).to_pydict() == spark_table.to_pydict(), zone
            assert table.to_pandas()["t"][0] == spark_table.to_pandas()["t"][0], zone
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_strings_have_64_bit_offsets_if_the_session_prefers_them(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        columns = "string(id) as s", "array(binary('x')) as b", "map('k', struct(if(id = 0, null, 'v') as x)) as m"
        with publish(spark.range(2).selectExpr(*columns)) as published:
            table = bs.connect(published).read_all()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert table.schema == published.schema
    assert table.schema["s"].type == bs.large_string()
    maps = [[("k", {"x": None})], [("k", {"x": "v"})]]
    assert table.to_pydict() == {"s": ["0", "1"], "b": [[b"x"], [b"x"]], "m": maps}


def test_names_with_dots_and_duplicate_names_are_preserved(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id as `a.b`", "-id as `a.b`", "named_struct('x.y', id) as ` `")
    with publish(frame) as published:
        table = bs.connect(published).read_all()
    assert table.schema == published.schema
    assert table.schema.names == ["a.b", "a.b", " "]
    assert table.column(1).to_pylist() == [0, -1, -2]
    assert table.column(2).to_pylist() == [{"x.y": 0}, {"x.y": 1}, {"x.y": 2}]


def test_rows_of_a_frame_without_columns_are_counted(spark: SparkSession) -> None:
    with publish(spark.range(5).select()) as published:
        assert published.num_rows == bs.connect(published).read_all().num_rows == 5


def test_failed_attempts_leave_no_duplicate_rows_and_no_memory(spark: SparkSession) -> None:
    frame = spark.range(0, 2000, 1, 3).mapInArrow(fail_first_attempts(2), "id long")
    with publish(frame) as published:
        assert sorted(bs.connect(published).read_all().column("id").to_pylist()) == list(range(2000))
        assert agent_datasets(published)[published.id]["partitions"] == 3
        metrics = published.metrics.to_pydict()
    assert (metrics["partition_id"], metrics["attempt_number"]) == ([0, 1, 2], [0, 2, 0])
    assert (metrics["num_rows"], metrics["host"]) == ([666, 667, 667], [os.uname().nodename] * 3)
    assert all(0 < seconds < 600 for seconds in metrics["seconds"])
    (executor_pid,) = set(metrics["executor_pid"])
    assert "java" in Path(f"/proc/{executor_pid}/cmdline").read_text()


def test_a_failed_job_leaves_no_data_in_the_agent(spark: SparkSession) -> None:
    with publish(spark.range(1)) as other:
        with pytest.raises(Exception, match="injected into attempt"):
            publish(spark.range(0, 2000, 1, 3).mapInArrow(fail_first_attempts(9), "id long"))
        assert list(agent_datasets(other)) == [other.id]


def test_close_frees_the_memory_and_readers_keep_their_mappings(spark: SparkSession) -> None:
    with publish(spark.range(1)) as other:
        published = publish(spark.range(100))
        copy = pickle.loads(pickle.dumps(published))
        table = bs.connect(copy).read_all()
        copy.close()
        assert published.id in agent_datasets(other)
        published.close()
        published.close()
        assert published.id not in agent_datasets(other)
        assert table.num_rows == 100
        with pytest.raises(ClosedError):
            bs.connect(published)
        copy = pickle.loads(pickle.dumps(other))
    with pytest.raises(NotFoundError, match=f"was closed by process {os.getpid()}, which published it, at"):
        bs.connect(copy).read_all()


def test_a_frame_replaces_the_data_sets_of_its_name(spark: SparkSession) -> None:
    name = f"replaced-{os.getpid()}"
    with bs.publish(bs.table({"id": [0]}), name=name) as table, publish(spark.range(3), name=name) as kept:
        for number in range(1, 3):
            frame = publish(spark.range(number), name=name, replace=True)
            with bs.open_published(name) as view:
                assert (view.id, view.read_all().num_rows) == (frame.id, number)
            assert [summary.id for summary in bs.published() if summary.name == name] == [frame.id]
        assert kept.read_all().num_rows == 3  # for a while
        for replaced in (kept, table):
            with pytest.raises(NotFoundError, match=f"'{replaced.id}' was replaced by '{name}-"):
                bs.open_published(replaced.id)
        assert bs.unpublish(name) == frame.id
        with pytest.raises(NotFoundError, match=f"'{frame.id}' was unpublished by process {os.getpid()}"):
            frame.read_all()


def test_a_killed_agent_is_an_error_and_the_next_publish_starts_another(spark: SparkSession) -> None:
    published = publish(spark.range(100))
    table = bs.connect(published).read_all()
    with agent_of(published) as agent:
        os.kill(agent.status()["pid"], 9)
        with pytest.raises(ConnectionLostError):
            agent.status()
    with pytest.raises(ConnectionLostError):
        bs.connect(published)
    published.close()
    assert table.num_rows == 100
    with publish(spark.range(100)) as again:
        assert bs.connect(again).read_all().num_rows == 100


def test_a_type_without_counterpart_is_named_before_any_job_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(types._TYPES_WITHOUT_PARAMETERS, "YearMonthIntervalType")  # as a type of a later Spark
    frame = spark.range(1).selectExpr("id", "named_struct('when', interval '1' year) as spans")
    with pytest.raises(UnsupportedTypeError, match=r"spans\.when"):
        publish(frame)


def test_threads_publish_concurrently(spark: SparkSession) -> None:
    both = threading.Barrier(2)

    def one(frame: DataFrame) -> int:
        both.wait(30)
        with publish(frame) as published:
            return bs.connect(published).read_all().num_rows

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, [spark.range(10), spark.range(20).selectExpr("string(id)")])) == [10, 20]


def test_the_lifetime_begins_at_the_commit_and_errors_of_readers_name_its_end(spark: SparkSession) -> None:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        time.sleep(4 * context.partitionId())
        yield from batches

    frame = spark.range(0, 20, 1, 2).mapInArrow(wait, "id long")
    published = publish(frame, ttl_s=1)  # the second partition ends long after the first has been passed to the agent
    assert published.num_rows == 20

    def has_expired() -> bool:
        return published.id not in agent_datasets(published)

    assert wait_until(has_expired)
    with pytest.raises(NotFoundError, match=rf"data set '{published.id}' expired after its lifetime of 1 s at .* UTC"):
        bs.connect(published)


def test_an_object_that_is_not_a_spark_data_frame_is_an_error_with_the_function_to_use() -> None:
    pandas_frame: Any = pytest.importorskip("pandas").DataFrame({"a": [1]})
    wrong: Any = [1, 2]
    for frame, name in ((wrong, "builtins.list"), (pandas_frame, r"pandas\..*DataFrame")):
        with pytest.raises(
            InvalidArgumentError, match=f"expected a Spark data frame, found {name}: use bowstring.publish"
        ):
            publish(frame)


def test_a_limit_on_file_sizes_is_an_error_with_the_partition(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_partition(*arguments: Any) -> Iterator[Any]:
        import resource

        from bowstring.spark.publication.partition_writer import write_partition

        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        try:
            yield from write_partition(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr("bowstring.spark.publication.partition_job.write_partition", publish_partition)
    with pytest.raises(ResourceError, match=r"^data set small-\w+, partition [01], after \d+ bytes in memory"):
        publish(spark.range(0, 20_000, 1, 2), name="small")
    # If Spark's error has another form, it is raised itself.
    monkeypatch.setattr("bowstring.spark.runtime.worker_errors._RESOURCE_ERROR", re.compile("another form: (.+)"))
    with pytest.raises(Exception, match=r"ResourceError: data set small-\w+, partition") as error:
        publish(spark.range(0, 20_000, 1, 2), name="small")
    assert not isinstance(error.value, ResourceError)
    assert [summary for summary in bs.published() if summary.name == "small"] == []


@pytest.mark.parametrize("options", [{"ttl_s": 0}, {"ttl_s": -1}, {"name": "a/b"}, {"name": ""}])
def test_invalid_options_are_an_error(spark: SparkSession, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        publish(spark.range(1), **options)


@pytest.mark.thorough
def test_the_drivers_memory_does_not_grow_with_the_data(spark: SparkSession) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    frame = spark.range(0, 100_000, 1, 4).selectExpr("id", "id * 2 as twice", "repeat('x', 1000) as text")
    with publish(spark.range(1)):
        before = resident_bytes()
        with publish(frame) as published:
            assert published.nbytes > 100_000_000
            assert resident_bytes() - before < 20_000_000
