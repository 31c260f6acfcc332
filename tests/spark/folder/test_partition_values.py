"""Values of partition folders; `test_file_discovery` compares them with Spark's."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as spark

from bowstring.errors import InvalidDataError
from bowstring.spark.folder.partition_folders import split_by_partition
from bowstring.spark.folder.partition_values import (
    NULL_VALUE,
    infer_partition_schema,
    parse_partition_folder,
    parse_partition_value,
)

BERLIN = ZoneInfo("Europe/Berlin")


def test_a_folder_has_a_column_and_a_value() -> None:
    assert parse_partition_folder("a%20b=c=d%2F") == ("a b", "c=d%2F")
    assert parse_partition_folder("plain") is None
    for name in ("=1", "a="):
        with pytest.raises(InvalidDataError, match=f"partition folder '{name}': expected column=value"):
            parse_partition_folder(name)


def test_the_folder_of_any_string_can_be_created_and_read(tmp_path: Path) -> None:
    texts = [f"a{chr(code)}" for code in range(128)]
    batch = pa.record_batch({"\0k": texts, "x": range(len(texts))})
    for folder, rows in split_by_partition(batch, {"\0k": 0}, None):
        (tmp_path / folder).mkdir()
        column, value = parse_partition_folder(folder) or ("", "")
        assert (column, [parse_partition_value(value, spark.StringType(), UTC)]) == (
            "\0k",
            [texts[rows["x"][0].as_py()]],
        )
    assert len(list(tmp_path.iterdir())) == len(texts)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2147483647"], "int"),
        (["1", "-2147483649"], "bigint"),
        (["9223372036854775808"], "decimal(19,0)"),
        (["1", "9223372036854775808"], "decimal(19,0)"),
        (["3000000000", "1e19"], "decimal(20,0)"),
        (["1e400"], "double"),
        (["1e10000000000000000000"], "double"),
        (["9" * 5000], "double"),
        (["1", "1.5"], "double"),
        (["1.5", "3000000000"], "string"),
        (["2024-01-02", NULL_VALUE], "date"),
        (["2024-01-02", "2024-01-02 00:00:00"], "timestamp"),
        (["2024-13-02"], "string"),
        (["1_0"], "string"),
        (["٣"], "string"),
    ],
)
def test_a_type_holds_all_values(texts: list[str], expected: str) -> None:
    schema = infer_partition_schema(([("c", text)] for text in texts), UTC, infers_types=True)
    assert schema.simpleString() == f"struct<c:{expected}>"
    assert infer_partition_schema([[("c", "1")]], UTC, infers_types=False).simpleString() == "struct<c:string>"


@pytest.mark.parametrize(
    ("text", "data_type", "expected"),
    [
        (NULL_VALUE, spark.IntegerType(), None),
        ("1", spark.NullType(), None),
        ("-128", spark.ByteType(), -128),
        ("128", spark.ByteType(), InvalidDataError),
        (" 1", spark.LongType(), InvalidDataError),
        (" -1.5e3f ", spark.DoubleType(), -1500.0),
        ("1.5", spark.DecimalType(2, 1), Decimal("1.5")),
        ("15", spark.DecimalType(2, 1), InvalidDataError),
        ("1.55", spark.DecimalType(5, 1), InvalidDataError),
        ("2024-07-01 12%3A00%3A00", spark.TimestampType(), datetime(2024, 7, 1, 10, tzinfo=UTC)),
        ("2024-07-01", spark.TimestampNTZType(), datetime(2024, 7, 1)),
        ("2024-07", spark.DateType(), date(2024, 7, 1)),
        ("yes", spark.BooleanType(), InvalidDataError),
        ("True", spark.BooleanType(), True),
        ("a%2Fb", spark.StringType(), "a/b"),
        ("a", spark.ArrayType(spark.StringType()), InvalidDataError),
    ],
)
def test_a_value_is_parsed_as_a_type(text: str, data_type: Any, expected: Any) -> None:
    if isinstance(expected, type):
        with pytest.raises(expected, match="of a partition"):
            parse_partition_value(text, data_type, BERLIN)
    else:
        assert parse_partition_value(text, data_type, BERLIN) == expected
