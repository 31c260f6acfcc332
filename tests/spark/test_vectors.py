"""ML vectors and matrices as lists: published, written, streamed, and compared with those that Spark has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as sql

import bowstring as bs
from bowstring.datasets.manifest import read_manifest
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.kernels.list_lengths import NO_LISTS, merge_list_length_bounds
from bowstring.spark import publish, publish_stream, read, vectors, write
from bowstring.spark.options import WriteOptions
from bowstring.spark.vectors import VectorConversion, VectorForm
from tests.kernels.ml_values import VECTOR_TYPE
from tests.spark.needs_spark import needs_spark
from tests.spark.point_type import PointType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
linalg = pytest.importorskip("pyspark.ml.linalg")
mllib = pytest.importorskip("pyspark.mllib.linalg")

FORMS: tuple[VectorForm, ...] = get_args(VectorForm)
ROWS = 250


def create_schema() -> sql.StructType:
    """Return columns of vectors and matrices, also within other types."""
    vector, old_vector, matrix = linalg.VectorUDT(), mllib.VectorUDT(), linalg.MatrixUDT()
    struct = sql.StructType([sql.StructField("time", sql.TimestampType()), sql.StructField("v", vector)])
    return sql.StructType(
        [
            sql.StructField("id", sql.LongType(), False),
            sql.StructField("dense", vector, True, {"ml_attr": {"num_attrs": 3}}),
            sql.StructField("mixed", vector),
            sql.StructField("old", old_vector),
            sql.StructField("matrix", matrix),
            sql.StructField("array", sql.ArrayType(vector)),
            sql.StructField("struct", struct),
            sql.StructField("map", sql.MapType(sql.StringType(), vector)),
        ]
    )


def create_row(number: int) -> tuple[Any, ...]:
    from datetime import UTC, datetime

    dense = linalg.Vectors.dense([float(number), 0.0, 1e300])
    sparse = linalg.Vectors.sparse(4, [1, 3], [number + 0.5, 0.0])
    matrices = [
        linalg.DenseMatrix(2, 3, [1.0, 2.0, 0.0, 4.0, 5.0, float(number)]),
        linalg.DenseMatrix(2, 3, [1.0, 2.0, 0.0, 4.0, 5.0, float(number)], True),
        linalg.SparseMatrix(2, 3, [0, 1, 1, 2], [1, 0], [7.0, float(number)]),
    ]
    return (
        number,
        None if number % 50 == 7 else dense,
        sparse if number % 3 else linalg.Vectors.dense([0.0, 1.0, 0.0, float(number)]),
        mllib.Vectors.sparse(number % 5, [], []),
        None if number % 4 == 3 else matrices[number % 3],
        None if number % 7 == 0 else [sparse, None, dense][: number % 4],
        (datetime.fromtimestamp(number, UTC), sparse),
        {"a": dense, "b": None},
    )


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Rows with vectors of all kinds."""
    return spark.createDataFrame(map(create_row, range(ROWS)), create_schema()).repartition(3, "id")


def to_plain(value: Any) -> Any:
    """Return Spark's value with lists for vectors and matrices."""
    if hasattr(value, "toArray"):
        return value.toArray().tolist()
    if hasattr(value, "asDict"):
        return {name: to_plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return list(map(to_plain, value))
    return {key: to_plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def sort_rows(table: bs.Table) -> list[dict[str, Any]]:
    rows = table.to_pylist()
    return sorted(({**row, "map": dict(row["map"])} for row in rows), key=lambda row: row["id"])


def as_float32(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_float32(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(as_float32, value))
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("form", ["float64", "float32"])
def test_vectors_and_matrices_become_lists_of_their_values_wherever_they_are(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, form: VectorForm
) -> None:
    expected = [to_plain(row) for row in frame.orderBy("id").collect()]
    for row in expected:
        row["struct"]["time"] = int(row["struct"]["time"].timestamp())
    if form == "float32":
        expected = as_float32(expected)
    write(frame, tmp_path / "written", vectors=form)
    with publish(frame, vectors=form) as published:
        table = published.read_all()
        table.validate(full=True)
        assert table.schema == published.schema
    value = "float" if form == "float32" else "double"
    lists = f"list<element: {value} not null>"
    assert [str(field.type) for field in table.schema][1:6] == [
        lists, lists, lists, f"list<element: {lists} not null>", f"list<element: {lists}>",
    ]  # fmt: skip
    for rows in (table, bs.dataset(tmp_path / "written").read_all()):
        published_rows = sort_rows(rows)
        for row in published_rows:
            row["struct"]["time"] = int(row["struct"]["time"].timestamp())
        assert published_rows == expected
    schema = read(spark, tmp_path / "written").schema
    assert [schema[name].dataType.simpleString() for name in ("dense", "matrix", "array", "map")] == [
        f"array<{value}>", f"array<array<{value}>>", f"array<array<{value}>>", f"map<string,array<{value}>>",
    ]  # fmt: skip
    assert schema["dense"].metadata == {"ml_attr": {"num_attrs": 3}}


def test_lists_are_the_default_and_those_of_spark_itself(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    from pyspark.ml.functions import vector_to_array

    columns = frame.select("id", "dense", "mixed").where("dense is not null")  # or Spark raises an error
    expected = columns.select("id", *(vector_to_array(columns[name]).alias(name) for name in ("dense", "mixed")))
    write(columns, tmp_path)
    assert sorted(read(spark, tmp_path).collect()) == sorted(expected.collect())
    with publish(columns) as published:
        rows = sorted(tuple(row.values()) for row in published.read_all().to_pylist())
        assert rows == sorted(map(tuple, expected.collect()))


@pytest.mark.parametrize("form", ["sparse", "struct"])
def test_sparse_vectors_and_structs_are_read_as_vectors(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, form: VectorForm
) -> None:
    expected = frame.select("id", "dense", "mixed", "old", "array").orderBy("id").collect()
    write(frame, tmp_path, vectors=form)
    again = read(spark, tmp_path)
    rows = again.select("id", "dense", "mixed", "old", "array").orderBy("id").collect()
    if form == "struct":
        assert again.schema["struct"].dataType == create_schema()["struct"].dataType
        assert rows == expected
    assert list(map(to_plain, rows)) == list(map(to_plain, expected))
    with publish(frame, vectors=form) as published:
        table = published.read_all()
    for name in ("dense", "mixed", "old"):
        column = table[name].combine_chunks()
        assert column.type == VECTOR_TYPE
        kinds = {row["type"] for row in column.to_pylist() if row is not None}
        assert kinds == {0} if form == "sparse" or name == "old" else 1 in kinds
        if form == "sparse":
            assert all(row is None or 0.0 not in row["values"] for row in column.to_pylist())
    assert str(table.schema["matrix"].type).startswith("list<element: list" if form == "sparse" else "struct<type")


@needs_spark(4, 0)
def test_the_data_source_keeps_vectors_unless_it_is_told_otherwise(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    columns = frame.select("id", "dense", "mixed", "matrix")
    columns.write.format("arrow").mode("append").save(str(tmp_path / "kept"))
    kept = spark.read.format("arrow").load(str(tmp_path / "kept"))
    assert kept.schema["dense"].dataType == linalg.VectorUDT()
    assert kept.orderBy("id").collect() == columns.orderBy("id").collect()
    columns.write.format("arrow").mode("append").option("vectors", "Float32").save(str(tmp_path / "lists"))
    lists = spark.read.format("arrow").load(str(tmp_path / "lists"))
    assert lists.schema["matrix"].dataType.simpleString() == "array<array<float>>"
    assert lists.where("size(dense) = 3").count() == columns.where("dense is not null").count()
    with pytest.raises(InvalidArgumentError, match=r"there, but dense array<double> .*: the option vectors is"):
        write(columns, tmp_path / "kept", mode="append")
    write(columns, tmp_path / "kept", mode="append", vectors="struct")
    assert spark.read.format("arrow").load(str(tmp_path / "kept")).count() == 2 * ROWS


def test_other_user_defined_types_are_their_sql_type(spark: SparkSession) -> None:
    schema = sql.StructType([sql.StructField("p", PointType())])
    points = spark.createDataFrame([([1.0, 2.0],)], schema, verifySchema=False)
    with publish(points) as published:
        assert published.read_all().to_pydict() == {"p": [[1.0, 2.0]]}


def test_batches_of_a_query_have_lists(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    frame.select("id", "mixed").write.parquet(str(tmp_path / "source"))
    schema = frame.select("id", "mixed").schema
    widths: list[tuple[VectorForm, int]] = [("float64", 8), ("float32", 4)]
    for form, width in widths:
        stream = spark.readStream.schema(schema).parquet(str(tmp_path / "source")).writeStream
        writer = stream.option("checkpointLocation", str(tmp_path / form)).trigger(availableNow=True)
        query = publish_stream(writer, f"vectors-{form}", lifetime="detached", vectors=form)
        query.awaitTermination()
        with bs.open_published(f"vectors-{form}") as published:
            lists = published.read_all()["mixed"]
            assert lists.type.value_type.bit_width == 8 * width  # type: ignore[attr-defined]
            assert {len(each) for each in lists.to_pylist()} == {4}
        bs.unpublish(f"vectors-{form}")


# Lengths of lists


def merge_parts(dataset: Any) -> dict[str, Any]:
    """Return the bounds of the lists of all parts by the names of their columns."""
    bounds: dict[str, Any] = {}
    for part in dataset.parts:
        for index, each in part.list_lengths:
            name = dataset.schema.names[index]
            bounds[name] = merge_list_length_bounds(bounds.get(name, each), each)
    return bounds


def test_the_lengths_of_lists_are_recorded(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    other_columns = "sequence(0, id % 4) s", "array(array(cast(null as int))) n", "cast(null as array<int>) z"
    columns = frame.selectExpr("*", *other_columns)
    expected = {
        "dense": ((3, 3),), "mixed": ((4, 4),), "old": ((0, 4),), "matrix": ((2, 2), (3, 3)), "array": ((0, 3), (3, 4)),
        "s": ((1, 4),), "n": ((1, 1), (1, 1)), "z": (NO_LISTS,),
    }  # fmt: skip
    write(columns, tmp_path / "written")
    with publish(columns) as published:
        assert len(published.parts) == 3
        assert merge_parts(published) == expected
        assert bs.datasets.Dataset.from_json(published.to_json()).parts == published.parts
    assert merge_parts(bs.dataset(tmp_path / "written")) == expected
    write(columns, tmp_path / "without", statistics=False)
    assert merge_parts(bs.dataset(tmp_path / "without")) == {}
    with publish(frame, vectors="sparse") as published:
        assert merge_parts(published)["mixed"] == ((4, 4),)


def test_partitions_without_rows_have_no_lists(spark: SparkSession) -> None:
    frame = spark.range(0, 4, 1, 4).selectExpr("id", "array(id) a")
    for condition, count in (("id = 2", 1), ("id < 0", 0)):
        with publish(frame.where(condition)) as published:
            lengths = [dict(part.list_lengths)[1] for part in published.parts]
            assert lengths.count(((1, 1),)) == count
            assert lengths.count((NO_LISTS,)) == len(lengths) - count


# Without Spark


def test_zeros_of_sparse_vectors_are_limited_to_the_bytes_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_MAX_BATCH_BYTES", 8 * 100)
    rows = [(0, 40, [number], [1.0]) for number in range(9)]
    batch = pa.record_batch(bs.record_batch({"n": list(range(9)), "v": bs.array(rows, VECTOR_TYPE)}))
    schema = bs.schema({"n": bs.int64(), "v": bs.list_("float64")})
    batches = list(VectorConversion(list_columns=(1,)).convert(iter([batch, batch.slice(0, 0)]), schema))
    assert [each.num_rows for each in batches] == [2, 2, 2, 1, 2, 0]
    assert [number for each in batches for number in each.column(0).to_pylist()] == list(range(9))
    assert [row.index(1.0) for each in batches for row in each.column(1).to_pylist()] == list(range(9))


def test_a_malformed_vector_is_an_error_with_its_column() -> None:
    rows = [(0, 2, [5], [1.0])]
    batch = pa.record_batch(bs.record_batch({"v": bs.array(rows, VECTOR_TYPE)}))
    schema = bs.schema({"v": bs.list_("float64")})
    with pytest.raises(bs.errors.TypeMismatchError, match="column v: can't cast struct"):
        list(VectorConversion(list_columns=(0,)).convert(iter([batch]), schema))
    with pytest.raises(InvalidDataError, match="column v: vector 0: the index 5 is not below 2"):
        list(VectorConversion(sparse_columns=(0,)).convert(iter([batch]), schema))


def test_another_form_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    message = "vectors: expected one of float64, float32, sparse, struct, found 'dense'"
    other: Any = "dense"
    with pytest.raises(InvalidArgumentError, match=message):
        publish(spark.range(1), vectors=other)
    with pytest.raises(InvalidArgumentError, match=message):
        write(spark.range(1), tmp_path, vectors=other)
    with pytest.raises(InvalidArgumentError, match=message):
        publish_stream(spark.readStream.format("rate").load().writeStream, "name", vectors=other)
    with pytest.raises(InvalidArgumentError, match=message):
        WriteOptions.parse({"vectors": "dense"})
    assert WriteOptions.parse({}).vectors == "struct"


# pandas on Spark


@pytest.mark.filterwarnings("ignore")  # PySpark's, about its own future
def test_frames_of_pandas_on_spark_are_published_and_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYARROW_IGNORE_TIMEZONE", "1")  # PySpark would set it for all tests
    try:
        import pyspark.pandas  # noqa: F401
    except ImportError as problem:
        pytest.skip(f"this PySpark does not support the installed pandas: {problem}")
    pandas_frame = spark.range(5).selectExpr("id", "id * 2 AS double").pandas_api()
    with publish(pandas_frame) as published:
        assert sorted(published.read_all()["double"].to_pylist()) == [0, 2, 4, 6, 8]
    write(pandas_frame, tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert [field["name"] for field in manifest.schema["fields"]] == ["id", "double"]
    assert read(spark, tmp_path).count() == 5
