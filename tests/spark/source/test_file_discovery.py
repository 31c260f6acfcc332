"""Options that select files and read partition folders, compared with Spark's own Parquet source."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.parquet as pq  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402

from bowstring.datasets.manifest import Manifest, ManifestEntry, data_file_name, try_create_manifest  # noqa: E402
from bowstring.spark import read  # noqa: E402
from bowstring.spark.options import encode_options  # noqa: E402
from bowstring.spark.source.planning import ReadPlanner  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES: Mapping[str, Mapping[str, Any]] = {
    "hive/a=1/b=x/f": {"x": [1]},
    "hive/a=2/b=a%2Fb%20ü/f": {"x": [2]},
    "hive/a=__HIVE_DEFAULT_PARTITION__/b=x/f": {"x": [3]},
    "hive/a=2/b=x/_hidden": {"x": [9]},
    "hive/_x/f": {"x": [9]},
    "names/b=1/f": {"x": [1]},
    "names/a=1/f": {"x": [2]},
    "depth/a=1/f": {"x": [1]},
    "depth/a=1/b=1/f": {"x": [2]},
    "double/a=1/a=2/f": {"x": [1]},
    "empty/a=/f": {"x": [1]},
    "overlap/a=5/f": {"a": [1], "x": [2]},
    "nested/f": {"x": [0]},
    "nested/one/f": {"x": [1]},
    "nested/one/two/f": {"x": [2]},
    "nested/one/two/g": {"x": [3]},
    "only subfolders/one/f": {"x": [1]},
    "first/1": {"x": [1], "z": ["z"]},
    "first/2": {"y": [1.5], "x": [2]},
    "types/i=1/l=3000000000/d=1.5/n=30000000000000000000/e=1e5/day=2024-01-02/t=2024-01-02 03%3A04%3A05/s=true"
    "/f=1f/p=+5/u=1_0/w= 5/z=007/day2=2024-1-2/y=2024/bad=2024-02-30/dot=5./pct=a%25/nul=__HIVE_DEFAULT_PARTITION__"
    "/summer=2024-07-02 03%3A04%3A05/f": {"x": [1]},
    "merged/a=1/b=1/c=1/d=3000000000/e=1/f=2024-01-02/g=30000000000000000000/h=1/i=007/j=3000000000/f": {"x": [1]},
    "merged/a=x/b=1.5/c=3000000000/d=1.5/e=__HIVE_DEFAULT_PARTITION__/f=2024-01-02 03%3A04%3A05/g=1"
    "/h=2024-01-02/i=a/j=30000000000000000000/f": {"x": [2]},
}
"""The columns of the files, by path without suffix."""

CALLS: Mapping[str, tuple[dict[str, str], tuple[str, ...], str | None]] = {
    "partition folders": ({}, ("hive",), None),
    "strings": ({"partitionColumnTypeInference": "false"}, ("hive",), None),
    "types of values": ({}, ("types",), None),
    "types of different values": ({}, ("merged",), None),
    "one partition": ({}, ("hive/a=1",), None),
    "one file": ({}, ("hive/a=1/b=x/f.SUFFIX",), None),
    "base path": ({"basePath": "hive"}, ("hive/a=1",), None),
    "base path of a glob": ({"basePath": "hive"}, ("hive/*/*/*.SUFFIX",), None),
    "braces": ({"basePath": "hive"}, ("hive/a={1,3}",), None),
    "braces with folders": ({}, ("nested/{f,one/two/{f,g}}.SUFFIX",), None),
    "a set of characters": ({}, ("nested/[^a-e]ne/?.SUFFIX",), None),
    "several paths": ({}, ("nested", "nested/one"), None),
    "a folder without its subfolders": ({}, ("nested",), None),
    "subfolders": ({"recursiveFileLookup": "true"}, ("nested",), None),
    "subfolders without partitions": ({"recursiveFileLookup": "true"}, ("hive",), None),
    "a name filter": ({"recursiveFileLookup": "true", "pathGlobFilter": "{g,h}.*"}, ("nested",), None),
    "a column of files and folders": ({}, ("overlap",), None),
    "the first schema": ({}, ("first",), None),
    "the merged schema": ({"mergeSchema": "true"}, ("first",), None),
    "a given schema": ({}, ("first",), "y double, q string"),
    "a given schema with a partition column": ({}, ("hive",), "x long, a string, b string"),
    "no files with a given schema": ({"pathGlobFilter": "*.none"}, ("first",), "x long"),
    "modified after": ({"modifiedAfter": "2024-07-01T10:00:00", "timeZone": "UTC"}, ("first",), "x long"),
    "modified before": ({"modifiedBefore": "2024-07-01 10:00:00.001", "timeZone": "UTC"}, ("first",), "x long"),
    "modified at": ({"modifiedAfter": "2024-07-01T12:00:00.0+02:00", "timeZone": "Z"}, ("first",), "x long"),
    "modified since a day": ({"modifiedAfter": "2024-7-1", "modifiedBefore": "2025"}, ("first",), "x long"),
}

ERRORS: Mapping[str, tuple[dict[str, str], tuple[str, ...], str | None, str]] = {
    "other names": ({}, ("names",), None, "conflicting partition columns: expected 'a', as for .*, found 'b'"),
    "other depths": ({}, ("depth",), None, "conflicting partition columns: expected 'a', as for .*, found 'a', 'b'"),
    "one name twice": ({}, ("double",), None, "two partition folders have the same column"),
    "no value": ({}, ("empty",), None, "partition folder 'a=': expected column=value"),
    "several folders": ({}, ("hive/a=*",), None, "would be lost: set the option basePath"),
    "another type": ({}, ("hive",), "x long, b int", "column b: the value 'x' of a partition is not int"),
    "another base path": ({"basePath": "names"}, ("hive",), None, "is not in the folder of the option basePath"),
    "a file as base path": ({"basePath": "first/1.SUFFIX"}, ("first",), None, "option basePath: .* is not a folder"),
    "only subfolders": ({}, ("only subfolders",), None, "found no Arrow files and no manifest"),
    "no such glob": ({}, ("nested/none*",), None, "there is no such file or folder"),
    "a name filter without matches": ({"pathGlobFilter": "*.none"}, ("first",), None, "found no Arrow files"),
    "an open brace": ({"pathGlobFilter": "{a"}, ("first",), None, "a brace of the glob is not closed"),
    "an open bracket": ({"pathGlobFilter": "[a"}, ("first",), None, "a bracket of the glob is not closed"),
    "not a time": ({"modifiedAfter": "soon"}, ("first",), None, "option modifiedAfter: expected a time"),
    "not a flag": ({"recursiveFileLookup": "maybe"}, ("first",), None, "expected true or false, found 'maybe'"),
}


def write_file(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tables as Arrow and Parquet files."""
    folder = tmp_path_factory.mktemp("tables")
    for name, columns in TABLES.items():
        table = pa.table(columns)
        for format_ in ("arrow", "parquet"):
            path = folder / format_ / f"{name}.{format_}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if format_ == "parquet":
                pq.write_table(table, path)
            else:
                write_file(path, table)
            # 10:00 of 1 July in UTC, 12:00 in Berlin, and a millisecond after.
            os.utime(path, ns=(0, 1_719_828_000_000_000_000 + 1_000_000 * ("first/2" in name)))
    return folder


def load(
    spark: SparkSession, tables: Path, format_: str, options: dict[str, str], paths: tuple[str, ...], schema: str | None
) -> DataFrame:
    def resolve(path: str) -> str:
        return str(tables / format_ / path.replace("SUFFIX", format_))

    reader = spark.read.format(format_)
    for name, value in options.items():
        if format_ == "arrow" or name != "partitionColumnTypeInference":
            reader = reader.option(name, resolve(value) if name == "basePath" else value)
    reader = reader if schema is None else reader.schema(schema)
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    if format_ == "parquet" and "partitionColumnTypeInference" in options:
        spark.conf.set(setting, "false")
    try:
        return reader.load([resolve(path) for path in paths])
    finally:
        spark.conf.unset(setting)


def rows(frame: DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    values = (tuple(row[name] for name in columns) for row in frame.collect())
    return sorted(values, key=str)


def _to_snake(name: str) -> str:
    return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)


@pytest.mark.parametrize("call", CALLS)
def test_files_and_partitions_are_read_as_parquet_reads_them(spark: SparkSession, tables: Path, call: str) -> None:
    arrow, parquet = (load(spark, tables, format_, *CALLS[call]) for format_ in ("arrow", "parquet"))
    # For Spark's own sources, a given schema lacks partition columns; for a Python source it is that of the frame.
    columns = arrow.columns if CALLS[call][2] else parquet.columns
    assert [arrow.schema[name] for name in columns] == [parquet.schema[name] for name in columns]
    assert arrow.columns == columns
    options, paths, schema = CALLS[call]
    arguments = {**{_to_snake(name): value for name, value in options.items()}, "schema": schema}
    if "basePath" in options:
        arguments["base_path"] = str(tables / "arrow" / options["basePath"])
    frame = read(spark, [f"{tables}/arrow/{path.replace('SUFFIX', 'arrow')}" for path in paths], **arguments)  # type: ignore[arg-type]
    assert frame.schema == arrow.schema
    assert rows(arrow, columns) == rows(frame, columns) == rows(parquet, columns)


@pytest.mark.parametrize("call", ERRORS)
def test_what_parquet_rejects_is_an_error(spark: SparkSession, tables: Path, call: str) -> None:
    *arguments, message = ERRORS[call]
    with pytest.raises(PySparkException, match=message):
        load(spark, tables, "arrow", *arguments).collect()  # type: ignore[arg-type]
    with pytest.raises(Exception):  # noqa: B017 -- Spark's errors are of many types
        load(spark, tables, "parquet", *arguments).collect()  # type: ignore[arg-type]


def test_times_are_those_of_the_sessions_zone(spark: SparkSession, tables: Path) -> None:
    # Spark's own sources add the zone's offset to the file's time, too, so they agree only in UTC.
    for option, time, expected in (
        ("modifiedAfter", "2024-07-01T12:00:00", [2]),
        ("modifiedBefore", "2024-07-01T12:00:00.001", [1]),
        ("modifiedAfter", "2024-07-01T10:00:00Z", [2]),
    ):
        frame = load(spark, tables, "arrow", {option: time}, ("first",), "x long")
        assert [row.x for row in frame.collect()] == expected


def test_two_stars_stand_for_any_number_of_folders(spark: SparkSession, tables: Path) -> None:
    for glob, expected in (("**/f.SUFFIX", [0, 1, 2]), ("**/two/*", [2, 3]), ("**", [0, 1, 2, 3]), ("o**", [1])):
        frame = load(spark, tables, "arrow", {}, (f"nested/{glob}",), None)
        assert sorted(row.x for row in frame.collect()) == expected, glob


def test_files_and_streams_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"x": [1]})
    for day, new in ((1, pa.ipc.new_file), (2, pa.ipc.new_stream)):
        (tmp_path / f"day={day}").mkdir()
        with new(str(tmp_path / f"day={day}" / "f.arrow"), table.schema) as writer:
            writer.write_table(table)
    frame = spark.read.format("arrow").load(str(tmp_path))
    assert sorted(map(tuple, frame.collect())) == [(1, 1), (1, 2)]


def test_files_beside_partition_folders_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    # Parquet's are not read.
    for name in ("f.arrow", "k=1/f.arrow"):
        write_file(tmp_path / name, pa.table({"x": [1]}))
    with pytest.raises(PySparkException, match=r"expected none, as for .*f.arrow, found 'k'"):
        spark.read.format("arrow").load(str(tmp_path))


def test_a_link_to_a_containing_folder_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "f.arrow", pa.table({"x": [1]}))
    (tmp_path / "link").symlink_to(tmp_path)
    assert spark.read.format("arrow").load(f"{tmp_path}/**").count() == 1
    with pytest.raises(PySparkException, match="link: is a link to a folder that contains it"):
        spark.read.format("arrow").option("recursiveFileLookup", "true").load(str(tmp_path))


def test_partitions_that_no_row_of_matches_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "k=1" / "f.arrow", pa.table({"x": [1]}))
    (tmp_path / "k=2").mkdir()
    (tmp_path / "k=2" / "f.arrows").write_bytes((tmp_path / "k=1" / "f.arrow").read_bytes()[:-20])
    reader = spark.read.format("arrow").schema("x long, k int")
    assert [tuple(row) for row in reader.option("filters", '[("k", "=", 1)]').load(f"{tmp_path}").collect()] == [(1, 1)]


def test_a_glob_matches_no_file_that_is_not_committed(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    spark.range(3).coalesce(1).write.format("arrow").mode("append").save(path)
    (file,) = Path(path).glob("part-*.arrow")
    (file.parent / data_file_name("b" * 32, 0, 2)).write_bytes(file.read_bytes())
    for glob in ("*", "*.arrow", "**", "{part,x}-*"):
        assert spark.read.format("arrow").load(f"{path}/{glob}").count() == 3, glob


def plan(path: Path, **options: str) -> tuple[str, list[Any]]:
    """The schema and the tasks, without Spark."""
    planner = ReadPlanner(encode_options({"path": str(path), **options}))
    schema = planner.schema()
    return schema.simpleString(), planner.reader(schema).plan()


def test_partition_columns_have_the_types_of_the_manifest(tmp_path: Path) -> None:
    names = ["day=1/k=2/f.arrow", "day=2/k=x/f.arrow"]
    for name in names:
        write_file(tmp_path / name, pa.table({"x": [1]}))
    entries = tuple(ManifestEntry(name, (tmp_path / name).stat().st_size, 1, 1) for name in names)
    types = {"x": "long", "day": "string", "k": "string"}
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]
    data_schema, partition_schema = ({"type": "struct", "fields": part} for part in (fields[:1], fields[1:]))
    assert try_create_manifest(tmp_path, Manifest(1, data_schema, entries, partition_schema=partition_schema))
    assert plan(tmp_path)[0] == "struct<x:bigint,day:string,k:string>"
    assert plan(tmp_path / "day=1")[0] == "struct<x:bigint,k:string>"
    assert plan(tmp_path / "day=1", base_path=str(tmp_path))[0] == "struct<x:bigint,day:string,k:string>"
    _, (task,) = plan(tmp_path)
    assert [each.partition_values for each in task.ranges] == [
        (("day", "1"), ("k", "2")),
        (("day", "2"), ("k", "x")),
    ]


def test_thousands_of_small_files_are_several_tasks(tmp_path: Path) -> None:
    write_file(tmp_path / "0.arrow", pa.table({"x": [1]}))
    content = (tmp_path / "0.arrow").read_bytes()
    for index in range(1, 300):
        (tmp_path / f"{index}.arrow").write_bytes(content)
    _, tasks = plan(tmp_path)
    assert [len(task.ranges) > 200 for task in tasks] == [True, False]
    assert len(plan(tmp_path, path_glob_filter="[1-9].arrow")[1]) == 1
