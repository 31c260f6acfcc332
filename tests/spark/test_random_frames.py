"""Random columns of all types there and back, and random queries of the same rows as Arrow and as Parquet."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as sql

import bowstring as bs
from bowstring.datatypes import types as arrow
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.errors import BowstringError
from bowstring.spark.source.casting import decode_type
from bowstring.spark.source.schema_compatibility import merge_schemas
from bowstring.spark.types import check_supported, to_spark_schema
from bowstring_testing import strategies
from tests.spark.test_round_trip import data_files, read_arrow, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUM_COLUMNS, NUM_ROWS = 40, 6
IS_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
NUM_FRAMES, NUM_QUERIES = (10, 200) if IS_THOROUGH else (1, 8)
QUERIES_PER_JOB = 8


def is_read_exactly(data_type: arrow.DataType) -> bool:
    """Whether Spark has all values of a type, and PySpark collects them; the types of the children included."""
    match data_type:
        case arrow.Interval():
            return False
        case arrow.Duration():
            return data_type.unit == "us"
        case arrow.Time() | arrow.Timestamp():
            return data_type.unit != "ns"
        case arrow.Dictionary():
            return is_read_exactly(data_type.value_type)
    return all(is_read_exactly(child.type) for child in data_type.fields)


def has_counterpart(data_type: arrow.DataType) -> bool:
    schema = to_spark_schema(Schema((Field("c", data_type),)))
    try:
        check_supported(schema, "here")
        merge_schemas([(Path("here"), schema)])
    except BowstringError:
        return False
    return is_read_exactly(data_type)


def comparable(value: Any, data_type: Any) -> Any:
    """A value of Spark, Bowstring or pyarrow, in a form in which equal ones are equal."""
    if value is None:
        return None
    match data_type:
        case sql.StructType():
            fields = value if isinstance(value, tuple) else [value[name] for name in data_type.names]
            return [comparable(field, f.dataType) for field, f in zip(fields, data_type.fields, strict=True)]
        case sql.ArrayType():
            return [comparable(element, data_type.elementType) for element in value]
        case sql.MapType():
            pairs = value.items() if isinstance(value, dict) else value
            return sorted(
                repr((comparable(k, data_type.keyType), comparable(v, data_type.valueType))) for k, v in pairs
            )
        case sql.BinaryType():
            return bytes(value)
        case sql.DecimalType():
            return Decimal(value).normalize()
        case sql.TimestampType():  # which PySpark gives in the local time zone
            return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
        case sql.DateType():
            return value.date() if isinstance(value, dt.datetime) else value
        case sql.FloatType() | sql.DoubleType():
            return repr(float(value))
    return value


def comparable_columns(columns: Iterable[Iterable[Any]], schema: sql.StructType) -> list[list[Any]]:
    return [
        [comparable(value, field.dataType) for value in column] for column, field in zip(columns, schema, strict=True)
    ]


@given(st.data())
@settings(
    max_examples=NUM_FRAMES,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
def test_columns_of_random_types_are_read_and_written_with_their_values(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    types = data.draw(st.lists(strategies.types().filter(has_counterpart), min_size=NUM_COLUMNS, max_size=NUM_COLUMNS))
    columns = [data.draw(strategies.arrays(each, length=NUM_ROWS)) for each in types]
    folder = tmp_path_factory.mktemp("random")
    table = bs.table({f"column {index}": column for index, column in enumerate(columns)})
    with bs.new_file(folder / "random.arrow", table.schema) as file:
        file.write_table(table)
    frame = read_arrow(spark, folder)
    expected = comparable_columns(
        (column.cast(decode_type(column.type)).to_pylist() for column in columns), frame.schema
    )
    assert comparable_columns(zip(*frame.collect(), strict=True), frame.schema) == expected
    write(frame, folder / "written")
    again = read_arrow(spark, folder / "written")
    assert again.schema == frame.schema
    assert comparable_columns(zip(*again.collect(), strict=True), frame.schema) == expected
    (path,) = data_files(folder / "written")
    written = pa.ipc.open_file(path).read_all()
    assert comparable_columns((column.to_pylist() for column in written.columns), frame.schema) == expected


FACTS = """
    id,
    if(id % 11 = 0, null, cast(id % 9 as int)) as k,
    if(id % 5 = 0, null, concat(substr('abcde', cast(id % 5 as int), 1), id % 3)) as g,
    date_add(date '2023-12-20', cast(id % 40 as int)) as d,
    if(id % 13 = 0, null, timestamp '2024-03-30 22:00:00' + make_dt_interval(0, cast(id as int))) as ts,
    cast(if(id % 7 = 0, null, id * 1.25 - 90) as decimal(12, 2)) as amount,
    if(id % 17 = 0, double('NaN'), if(id % 6 = 0, null, id / 4)) as f,
    if(id % 8 = 0, null, transform(sequence(0, id % 4), x -> if(x = 2, null, cast(x + id % 3 as int)))) as xs,
    if(id % 10 = 0, null, map('a', id % 4, concat('b', id % 2), null)) as m,
    if(id % 12 = 0, null, named_struct('a', cast(id % 5 as int), 'b', if(id % 2 = 0, null, concat('s', id % 4)))) as s
"""
DIMENSIONS = """
    cast(id as int) as k,
    if(id = 3, null, concat('name', id % 3)) as name,
    id * 10 as weight
"""


class QueryGenerator:
    """Queries of `{facts}` and `{dimensions}` whose rows, in any order, do not depend on the order of the input."""

    KEYS = ("k", "g", "month(d)", "s.b", "size(xs)", "id % 7", "date_trunc('DAY', ts)", "m['a']", "isnan(f)")
    AGGREGATES = (
        *(
            "count(*)",
            "count(g)",
            "count(distinct g)",
            "sum(id)",
            "sum(amount)",
            "avg(k)",
            "min(ts)",
            "max(g)",
            "min(f)",
        ),
        *("max(f)", "sort_array(collect_set(k))", "max(struct(id, s))", "bit_xor(id)", "sum(size(xs))", "every(k > 2)"),
    )

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _some(self, choices: Iterable[str], count: int) -> list[str]:
        return self._random.sample(list(choices), count)

    def query(self) -> str:
        shapes = (self._filter, self._group, self._join, self._window, self._explode, self._combine, self._subquery)
        return self._random.choice(shapes)()

    def _predicate(self, depth: int = 2) -> str:
        number = self._random.randrange
        if depth and number(2):
            both = f" {self._random.choice(('and', 'or'))} ".join(self._predicate(depth - 1) for _ in range(2))
            return f"{self._random.choice(('', 'not '))}({both})"
        return self._random.choice(
            (
                *(f"id < {number(200)}", f"id between {number(100)} and {100 + number(100)}", f"k = {number(9)}"),
                *(f"k <=> {self._random.choice(('null', '3'))}", f"k in ({number(9)}, {number(9)}, null)"),
                *(f"g like '{self._random.choice('abc')}%'", "g is null", "g is not null", f"g >= 'b{number(3)}'"),
                *(f"d > date '2024-01-{number(10, 28)}'", f"ts < timestamp '2024-04-0{number(1, 8)} 02:30:00'"),
                *(f"amount > {number(-90, 150)}.5", "isnan(f)", f"f > {number(50)}", f"size(xs) > {number(4)}"),
                *(f"array_contains(xs, {number(4)})", f"s.a = {number(5)}", "s.b is null", f"m['a'] = {number(4)}"),
            )
        )

    def _filter(self) -> str:
        columns = ", ".join(self._some(("k", "g", "d", "ts", "amount", "f", "xs", "s", "s.b", "m['a']"), 3))
        order = self._random.choice(("", f" order by id desc limit {self._random.randrange(1, 40)}"))
        return f"select id, {columns} from {{facts}} where {self._predicate()}{order}"

    def _group(self) -> str:
        keys = ", ".join(self._some(self.KEYS, 2))
        grouping = self._random.choice((keys, f"rollup({keys})", f"cube({keys})"))
        having = self._random.choice(("", f" having count(*) > {self._random.randrange(1, 9)}"))
        aggregates = ", ".join(self._some(self.AGGREGATES, 3))
        return f"select {keys}, {aggregates} from {{facts}} where {self._predicate()} group by {grouping}{having}"

    def _join(self) -> str:
        kind = self._random.choice(("join", "left join", "right join", "full join", "left semi join", "left anti join"))
        right = "" if "semi" in kind or "anti" in kind else ", r.name, r.weight"
        condition = self._random.choice(("l.k = r.k", "l.k <=> r.k", "l.k = r.k and l.id < r.weight * 3"))
        left = f"(select * from {{facts}} where {self._predicate()}) l"
        return f"select l.id, l.g, l.s{right} from {left} {kind} {{dimensions}} r on {condition}"

    def _window(self) -> str:
        window = f"partition by {self._some(self.KEYS, 1)[0]} order by id"
        frame = self._random.choice(
            ("", " rows between 3 preceding and 1 following", " range between 20 preceding and current row")
        )
        function = self._random.choice(("row_number()", "rank()", "lag(g, 2)", "lead(amount)", "ntile(3)"))
        aggregate = self._random.choice(("count(g)", "sum(id)", "sum(amount)", "max(ts)", "min(k)"))
        return (
            f"select id, {function} over ({window}), {aggregate} over ({window}{frame}) from {{facts}} "
            f"where {self._predicate()}"
        )

    def _explode(self) -> str:
        view = self._random.choice(("explode(xs) t as x", "posexplode(xs) t as p, x", "explode(m) t as y, x"))
        outer = self._random.choice(("", "outer "))
        rows = f"{{facts}} lateral view {outer}{view} where {self._predicate()}"
        return f"select x, count(*), min(id) from {rows} group by x"

    def _combine(self) -> str:
        operator = self._random.choice(("union", "union all", "intersect", "except", "except all"))
        columns = ", ".join(self._some(("k", "g", "d", "s", "xs", "id % 4"), 2))
        return f" {operator} ".join(f"select {columns} from {{facts}} where {self._predicate()}" for _ in range(2))

    def _subquery(self) -> str:
        condition = self._random.choice(
            (
                "k in (select k from {dimensions} where weight > 30)",
                "exists (select 1 from {dimensions} d where d.k = facts.k and d.name is not null)",
                "id > (select avg(id) from {facts})",
                "k not in (select k from {dimensions} where name = 'name1')",
            )
        )
        return f"select id, g, ts from {{facts}} as facts where {condition} and {self._predicate(1)}"


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Queries are interpreted: compiling long ones takes longer than running them on a few rows."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.thorough
def test_random_queries_of_arrow_files_have_the_rows_of_parquet_files(
    spark: SparkSession, tmp_path: Path, interpreted: None
) -> None:
    for name, length, columns in (("facts", 200, FACTS), ("dimensions", 8, DIMENSIONS)):
        frame = spark.range(0, length, 1, 3).selectExpr(*columns.strip().split(",\n"))
        for format_ in ("arrow", "parquet"):
            path = str(tmp_path / f"{name}.{format_}")
            frame.write.format(format_).mode("append").save(path)
            spark.read.format(format_).load(path).createOrReplaceTempView(f"{name}_{format_}")
    generator = QueryGenerator(seed=9)
    queries = [generator.query() for _ in range(NUM_QUERIES)]
    num_empty = 0
    for start in range(0, NUM_QUERIES, QUERIES_PER_JOB):
        batch = queries[start : start + QUERIES_PER_JOB]
        rows = {
            format_: spark.sql(
                " union all ".join(
                    f"select {index} as query, to_json(struct(*)) as row from ("
                    + query.format(facts=f"facts_{format_}", dimensions=f"dimensions_{format_}")
                    + ")"
                    for index, query in enumerate(batch)
                )
            ).collect()
            for format_ in ("arrow", "parquet")
        }
        for index, query in enumerate(batch):
            arrow_rows, parquet_rows = (
                sorted(row.row for row in rows[format_] if row.query == index) for format_ in ("arrow", "parquet")
            )
            assert arrow_rows == parquet_rows, query
            num_empty += not parquet_rows
    assert num_empty < NUM_QUERIES / 4
