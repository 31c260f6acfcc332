"""Batches from files, with the types that Spark takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.spark.source.casting import cast_batch
from tests.spark.needs_spark import needs_spark

pa = pytest.importorskip("pyarrow")
sql = pytest.importorskip("pyspark.sql.types")
from_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").from_arrow_schema

RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None]))
OUT_OF_ORDER = pa.ListViewArray.from_arrays(
    pa.array([1, 0, 0, 1], pa.int32()),
    pa.array([2, 1, 0, 2], pa.int32()),
    pa.array([7, 8, 9], pa.int8()),
    mask=pa.array([False, False, False, True]),
)


def cast(column: Any, data_type: Any, **options: Any) -> Any:
    target = from_arrow_schema(pa.schema({"c": data_type}))
    batch = pa.record_batch({"c": column})
    batch = cast_batch(batch, target, "here", truncate_times=options.get("truncate", False))
    batch.validate(full=True)
    return batch["c"]


def test_a_column_of_the_right_type_is_not_copied() -> None:
    column = pa.array([1, 2, 3])
    assert cast(column, pa.int64()).buffers()[1].address == column.buffers()[1].address


CASES = {
    "list views in any order": (OUT_OF_ORDER, pa.list_(pa.int64())),
    "sliced list views": (OUT_OF_ORDER.slice(1, 3), pa.list_(pa.int64())),
    "list views in structs": (
        pa.StructArray.from_arrays([OUT_OF_ORDER], ["v"], mask=pa.array([False, True, False, False])),
        pa.struct({"v": pa.list_(pa.int8())}),
    ),
    "list views in lists": (
        pa.ListArray.from_arrays(pa.array([0, 1, None, 4], pa.int32()), OUT_OF_ORDER),
        pa.list_(pa.list_(pa.int8())),
    ),
    "list views in fixed lists": (
        pa.FixedSizeListArray.from_arrays(OUT_OF_ORDER, 2, mask=pa.array([True, False])),
        pa.list_(pa.list_(pa.int8())),
    ),
    "runs in structs": (pa.StructArray.from_arrays([RUNS], ["r"]), pa.struct({"r": pa.string()})),
    "nested dictionaries": (
        pa.array([["x", None], None], pa.list_(pa.dictionary(pa.int8(), pa.large_string()))),
        pa.list_(pa.string()),
    ),
}


@pytest.mark.parametrize(("column", "data_type"), CASES.values(), ids=CASES.keys())
def test_casts_preserve_values(column: Any, data_type: Any) -> None:
    column_of_type = cast(column, data_type)
    assert column_of_type.type == data_type
    assert column_of_type.to_pylist() == column.to_pylist()


def test_extension_types_are_read_as_their_storage() -> None:
    column = pa.array([b"0123456789abcdef", None], pa.uuid())
    assert cast(column, pa.binary()).to_pylist() == [
        b"0123456789abcdef",
        None,
    ]


def test_digits_are_lost_only_with_truncate() -> None:
    column = pa.array([1_001], pa.timestamp("ns"))
    with pytest.raises(InvalidDataError, match=r"here, column c: a value of timestamp\[ns\] does not fit"):
        cast(column, pa.timestamp("us"))
    assert cast(column, pa.timestamp("us"), truncate=True).cast(pa.int64()).to_pylist() == [1]
    before_1970 = cast(pa.array([-1_001], pa.timestamp("ns")), pa.timestamp("us"), truncate=True)
    assert before_1970.cast(pa.int64()).to_pylist() == [-1]  # towards zero


TIMES = {
    "times": (pa.array([1_001, None], pa.time64("ns")), pa.time64("ns")),
    "times in lists": (pa.array([[1_001], None], pa.list_(pa.time64("ns"))), pa.list_(pa.time64("ns"))),
    "times in maps": (
        pa.array([[(1, 1_001)], None], pa.map_(pa.int8(), pa.time64("ns"))),
        pa.map_(pa.int8(), pa.time64("ns")),
    ),
    "times in structs": (
        pa.array([{"t": 1_001}], pa.struct({"t": pa.time64("ns")})),
        pa.struct({"t": pa.time64("ns")}),
    ),
    "dictionaries of times": (pa.array([1_001, None], pa.time64("ns")).dictionary_encode(), pa.time64("ns")),
    "runs of times": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1_001], pa.time64("ns"))),
        pa.time64("ns"),
    ),
}


@pytest.mark.parametrize(("column", "data_type"), TIMES.values(), ids=TIMES.keys())
def test_times_of_day_of_six_digits_lose_their_nanoseconds(column: Any, data_type: Any) -> None:
    with pytest.raises(
        InvalidDataError, match=r"here, column c: a value of .*time64\[ns\].* does not fit .*time64\[us\]"
    ):
        cast(column, data_type)
    truncated = cast(column, data_type, truncate=True)
    assert truncated.type == data_type
    assert "1001" not in str(truncated.view(pa.int64()) if pa.types.is_time(data_type) else truncated)
    assert truncated.to_pylist() == cast(truncated, data_type).to_pylist()


def test_times_of_day_in_whole_microseconds_are_preserved() -> None:
    column = pa.array([1_000, None, 86_399_999_999_000], pa.time64("ns"))
    assert cast(column, pa.time64("ns")).equals(column)


@pytest.mark.parametrize(
    ("precision", "lost_ns", "unit_ns"),
    [(0, 1_000_000, 1_000_000_000), (3, 1_000, 1_000_000), (6, 1, 1_000), (9, None, 1)],
)
def test_times_of_day_are_checked_in_the_unit_of_their_precision(
    precision: int, lost_ns: int | None, unit_ns: int
) -> None:
    target = sql.StructType([sql.StructField("c", sql.MapType(sql.StringType(), sql.TimeType(precision)))])

    def read(number: int, truncate: bool = False) -> Any:
        column = pa.array([[("k", number)]], pa.map_(pa.string(), pa.time64("ns")))
        batch = cast_batch(pa.record_batch({"c": column}), target, "here", truncate_times=truncate)
        return batch["c"].items.cast(pa.int64()).to_pylist()

    assert read(unit_ns) == [unit_ns]
    if lost_ns is not None:
        with pytest.raises(InvalidDataError, match="does not fit map<string, time"):
            read(lost_ns)
        assert read(unit_ns + lost_ns, truncate=True) == [unit_ns]


def test_a_missing_column_is_null() -> None:
    target = from_arrow_schema(pa.schema({"a": pa.int32(), "b": pa.list_(pa.string())}))
    batch = cast_batch(pa.record_batch({"a": pa.array([1, 2])}), target, "here", truncate_times=False)
    assert batch.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]


def test_types_without_a_cast_are_unsupported() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"here, column c: list<.*> cannot be read as int64"):
        cast(pa.array([[1]]), pa.int64())


def test_nulls_in_a_required_column_are_an_error() -> None:
    target = from_arrow_schema(pa.schema([pa.field("c", pa.int64(), nullable=False)]))
    with pytest.raises(InvalidDataError, match=r"here, column 'c': .*has 1 nulls, but its field is not nullable"):
        cast_batch(pa.record_batch({"c": pa.array([1, None])}), target, "here", truncate_times=False)


REQUIRED = {
    "list": (pa.array([[1], None, [2, None]]), pa.list_(pa.field("element", pa.int64(), nullable=False))),
    "map": (
        pa.array([[("k", 1)], None, [("k", None)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
    ),
}


@needs_spark(4, 1)  # older versions do not know that elements are required
@pytest.mark.parametrize(("column", "data_type"), REQUIRED.values(), ids=REQUIRED.keys())
def test_nulls_in_required_elements_are_an_error(column: Any, data_type: Any) -> None:
    assert cast(column.slice(0, 2), data_type).to_pylist() == column.slice(0, 2).to_pylist()
    with pytest.raises(InvalidDataError, match=r"here, column 'c': .*has 1 nulls, but its field is not nullable"):
        cast(column, data_type)


def test_decimals_of_more_digits_than_spark_has_are_read_as_narrower_ones_that_their_values_fit() -> None:
    column = pa.array([Decimal("1.50"), None], pa.decimal256(60, 2))
    assert cast(column, pa.decimal128(38, 2)).to_pylist() == [Decimal("1.50"), None]
    assert cast(column, pa.decimal128(38, 1)).to_pylist() == [Decimal("1.5"), None]
    for value in ("1" + "0" * 38, "1.55"):
        with pytest.raises(InvalidDataError, match=r"here, column c: a value of decimal256.* does not fit decimal128"):
            cast(pa.array([Decimal(value)], pa.decimal256(60, 2)), pa.decimal128(38, 1))


def test_a_user_defined_type_is_read_from_what_it_is_stored_as() -> None:
    linalg = pytest.importorskip("pyspark.ml.linalg")
    target = sql.StructType([sql.StructField("c", sql.ArrayType(linalg.VectorUDT()))])
    values = [[{"type": 1, "size": None, "indices": None, "values": [1.5, 2.0]}, None], None]
    batch = pa.record_batch({"c": pa.array(values)})
    (column,) = cast_batch(batch, target, "here", truncate_times=False).columns
    assert column.to_pylist() == values
    assert column.type.value_type.field("type").type == pa.int8()


def test_the_marks_of_variants_and_nulls_in_nested_ones_survive() -> None:
    values = pa.array([{"metadata": b"m", "value": b"v"}, None])
    rows = pa.StructArray.from_arrays([values, pa.array([1, 2])], ["v", "n"], mask=pa.array([False, True]))
    target = sql.StructType().add("c", sql.StructType().add("v", sql.VariantType()).add("n", sql.IntegerType()))
    (column,) = cast_batch(pa.record_batch({"c": rows}), target, "here", truncate_times=False).columns
    assert column.to_pylist() == [{"v": {"value": b"v", "metadata": b"m"}, "n": 1}, None]
    assert column.type.field("v").type.field("metadata").metadata == {b"variant": b"true"}
