"""Malformed files and batches: an error, dropped, or a row with the message."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.parquet as pq  # noqa: E402
from pyspark.errors import AnalysisException, PySparkException, PythonException  # noqa: E402
from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: E402
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType  # noqa: E402

import bowstring as bs  # noqa: E402
from bowstring.datasets.manifest import Manifest, ManifestEntry, try_create_manifest  # noqa: E402
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError  # noqa: E402
from bowstring.ipc.message import CONTINUATION  # noqa: E402
from pyspark_bowstring import DefaultSource  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_UTF8 = pa.record_batch(
    [pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")])],
    names=["s"],
)
SCHEMA = StructType([StructField("s", StringType()), StructField("_corrupt_record", StringType())])


def write_batches(path: Path, *, stream: bool = False) -> Path:
    """Write the rows a, b; a malformed one; and c, a batch each."""
    path.parent.mkdir(exist_ok=True)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), NOT_UTF8.schema) as writer:
        for batch in (pa.record_batch({"s": ["a", "b"]}), NOT_UTF8, pa.record_batch({"s": ["c"]})):
            writer.write_batch(batch)
    return path


def source(path: Path, **options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict({"path": str(path), **options}))


def read(path: Path, schema: StructType | None = None, **options: str) -> list[tuple[Any, ...]]:
    """Plan and read without Spark."""
    data_source = source(path, **options)
    reader = data_source.reader(data_source.schema() if schema is None else schema)
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_batch_is_a_row_or_dropped(tmp_path: Path, stream: bool) -> None:
    path = write_batches(tmp_path / "k=1" / "f.arrow", stream=stream)
    message = f"{path}, record batch 1: column 's': values[0] is not valid UTF-8: b'\\xff'"
    rows = [("a", 1, None), ("b", 1, None), (None, 1, message), ("c", 1, None)]
    assert read(tmp_path, mode="permissive") == rows
    assert read(tmp_path, mode="PERMISSIVE", splitBytes="1") == rows
    assert read(tmp_path, SCHEMA, mode="PERMISSIVE")[2] == (None, message)
    assert read(tmp_path, StructType(SCHEMA.fields[:1]), mode="PERMISSIVE") == [("a",), ("b",), (None,), ("c",)]
    assert read(tmp_path, mode="DROPMALFORMED") == [("a", 1), ("b", 1), ("c", 1)]
    assert read(tmp_path, ignoreCorruptFiles="true") == [("a", 1), ("b", 1)]
    indices = read(tmp_path, mode="PERMISSIVE", metadataColumn="m", columns="s, m.batch_index, m.row_index")
    assert [(s, *m.values()) for s, m in indices] == [("a", 0, 0), ("b", 0, 1), (None, 1, None), ("c", 2, 3)]
    for mode in ("FAILFAST", "failfast"):
        with pytest.raises(InvalidDataError, match="record batch 1: column 's'"):
            read(tmp_path, mode=mode)


def test_a_value_that_does_not_fit_makes_its_batch_malformed(tmp_path: Path) -> None:
    with pa.ipc.new_file(str(tmp_path / "f.arrow"), pa.schema({"x": pa.int64()})) as writer:
        for x in (1, 2**40):
            writer.write_batch(pa.record_batch({"x": [x]}))
    schema = StructType([StructField("x", IntegerType()), SCHEMA.fields[1]])
    (_, message), *others = sorted(read(tmp_path, schema, mode="PERMISSIVE"), key=str)[::-1]
    assert others == [(1, None)]
    assert "record batch 1, column x: a value of int64 does not fit int32" in message


def test_a_malformed_file_is_one_row_and_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "0.arrow").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(InvalidDataError, match=r"0\.arrow: expected an Arrow file"):
        source(tmp_path, mode="PERMISSIVE").schema()
    good = write_batches(tmp_path / "1.arrow")
    cut_off = write_batches(tmp_path / "2.arrow", stream=True)
    cut_off.write_bytes(cut_off.read_bytes()[:-60])
    rows = read(tmp_path, mode="PERMISSIVE", mergeSchema="true")
    assert [s for s, _ in rows] == [None, "a", "b", None, "c", "a", "b", None, None]
    assert "0.arrow: expected an Arrow file or stream, found a Parquet file" in rows[0][1]
    assert f"{cut_off}: message 3" in rows[-1][1]
    assert read(tmp_path, mode="DROPMALFORMED") == [(s,) for s in "abcab"]
    good.write_bytes(good.read_bytes()[:-3])
    assert [s for s, _ in read(tmp_path, SCHEMA, mode="PERMISSIVE")] == [None, None, "a", "b", None, None]


def test_the_column_of_messages_has_another_name_or_can_not_have_messages(tmp_path: Path) -> None:
    write_batches(tmp_path / "f.arrow")
    named = source(tmp_path, mode="PERMISSIVE", columnNameOfCorruptRecord="why").schema()
    assert named.names == ["s", "why"]
    for field in (StructField("why", LongType()), StructField("why", StringType(), nullable=False)):
        with pytest.raises(InvalidArgumentError, match="column why of columnNameOfCorruptRecord: expected a nullable"):
            read(tmp_path, StructType([field]), mode="PERMISSIVE", columnNameOfCorruptRecord="why")
    with pytest.raises(InvalidArgumentError, match=r"option mode: expected one of FAILFAST, .* found 'STRICT'"):
        read(tmp_path, mode="strict")


@pytest.mark.parametrize("ignored", ["false", "true"])
def test_files_that_are_removed_before_they_are_planned_are_an_error_or_ignored(tmp_path: Path, ignored: str) -> None:
    first, _ = (write_batches(tmp_path / name) for name in ("1.arrow", "2.arrow"))
    schema = StructType(SCHEMA.fields[:1])
    reader = source(tmp_path, mode="DROPMALFORMED", ignoreMissingFiles=ignored).reader(schema)
    first.unlink()
    if ignored == "true":
        assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 3
    else:
        with pytest.raises(MissingFileError, match=r"1\.arrow: was removed after it was listed: .* ignoreMissingFiles"):
            reader.partitions()


def test_missing_files_are_an_error_or_ignored(tmp_path: Path) -> None:
    first, second = (write_batches(tmp_path / name) for name in ("1.arrow", "2.arrow"))
    for ignored in ("false", "true"):
        reader = source(tmp_path, mode="DROPMALFORMED", ignoreMissingFiles=ignored).reader(
            StructType(SCHEMA.fields[:1])
        )
        (partition,) = reader.partitions()
        content = first.read_bytes()
        first.unlink()
        if ignored == "true":
            assert sum(batch.num_rows for batch in reader.read(partition)) == 3
        else:
            with pytest.raises(MissingFileError, match="was removed after the query was planned"):
                list(reader.read(partition))
        first.write_bytes(content)
    entries = [ManifestEntry(path.name, path.stat().st_size, 4, 3) for path in (first, second)]
    schema = {"type": "struct", "fields": [StructField("s", StringType()).jsonValue()]}
    assert try_create_manifest(tmp_path, Manifest(1, schema, tuple(entries)))
    first.unlink()
    assert len(read(tmp_path, mode="DROPMALFORMED", ignoreMissingFiles="true")) == 3
    with pytest.raises(MissingFileError, match="though manifest 1 lists it: it was removed before it was read"):
        read(tmp_path, mode="DROPMALFORMED")


@pytest.mark.parametrize("options", [{}, {"splitBytes": "1"}, {"filters": '[("s", "!=", "x")]'}, {"columns": "s"}])
@pytest.mark.parametrize("damage", ["footer", "size", "statistics"])
def test_a_malformed_or_missing_file_of_a_manifest_is_tolerated_while_it_is_planned(
    tmp_path: Path, options: dict[str, str], damage: str
) -> None:
    for name in ("1.arrow", "2.arrow", "3.arrow"):
        with bs.new_file(tmp_path / name, {"s": "string", "n": "int64"}) as writer:
            writer.enable_statistics(["s"])
            for text in "ab":
                writer.write(bs.record_batch({"s": [text], "n": [1]}))
    types = {"s": StringType(), "n": LongType(), "_corrupt_record": StringType()}
    schema = StructType([StructField(name, column_type) for name, column_type in types.items()])
    sizes = {path.name: path.stat().st_size for path in sorted(tmp_path.iterdir())}
    entries = [ManifestEntry(name, size, 2, 2) for name, size in sizes.items()]
    assert try_create_manifest(tmp_path, Manifest(1, StructType(schema.fields[:2]).jsonValue(), tuple(entries)))
    content = (tmp_path / "1.arrow").read_bytes()
    if damage == "footer":
        content = content[:-30] + bytes(30)
    elif damage == "size":
        content += content
    else:
        content = content.replace(base64.b64encode(CONTINUATION)[:5], b"?????", 1)
    (tmp_path / "1.arrow").write_bytes(content)

    def read_texts(**others: str) -> list[Any]:
        rows = read(tmp_path, None if "columns" in options else schema, **options, **others)
        return [row[0] for row in rows]

    if damage != "statistics" or "filters" in options:  # which use them
        with pytest.raises(InvalidDataError, match=r"1\.arrow: "):
            read_texts(mode="FAILFAST")
        assert read_texts(mode="PERMISSIVE") == [None, *"abab"]["filters" in options :]
        assert read_texts(mode="DROPMALFORMED") == list("abab")
        assert read_texts(ignoreCorruptFiles="true") == list("abab")
    (tmp_path / "1.arrow").unlink()
    assert read_texts(ignoreMissingFiles="true") == list("abab")


def test_rows_have_their_file_and_position(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "k=a%2Fb, ü"
    write_batches(folder / "f.arrow")
    pq.write_table(pa.table({"s": ["a", "b"]}), folder / "f.parquet")
    reader = spark.read.format("arrow").option("metadataColumn", "_metadata").option("pathGlobFilter", "*.arrow")
    reader = reader.option("mode", "PERMISSIVE").option("splitBytes", "1")
    rows = reader.load(str(tmp_path)).select("s", "_corrupt_record", "_metadata.*").collect()
    assert sorted((row.batch_index, row.row_index, row.s) for row in rows if row.s) == [
        (0, 0, "a"),
        (0, 1, "b"),
        (2, 3, "c"),
    ]
    (malformed,) = (row for row in rows if row.s is None)
    assert (malformed.batch_index, malformed.row_index) == (1, None)
    assert "record batch 1: column 's'" in malformed._corrupt_record
    parquet = spark.read.option("pathGlobFilter", "*.parquet").parquet(str(tmp_path))
    expected = parquet.selectExpr("_metadata.*").first()
    assert expected is not None
    assert rows[0].file_path == expected.file_path.replace("f.parquet", "f.arrow")
    assert (rows[0].file_name, rows[0].file_size) == ("f.arrow", (folder / "f.arrow").stat().st_size)
    assert abs((rows[0].file_modification_time - expected.file_modification_time).total_seconds()) < 60
    with pytest.raises(AnalysisException, match="option metadataColumn: the files have a column 's'"):
        reader.option("metadataColumn", "s").load(str(tmp_path))


def test_corrupt_files_are_ignored_as_parquet_ignores_them(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"x": [1]})
    with pa.ipc.new_file(str(tmp_path / "1.arrow"), table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, tmp_path / "1.parquet")
    for format_ in ("arrow", "parquet"):
        (tmp_path / f"2.{format_}").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
        reader = spark.read.format(format_).option("pathGlobFilter", f"*.{format_}")
        assert reader.option("ignoreCorruptFiles", "true").load(str(tmp_path)).collect() == [(1,)]
        with pytest.raises((PySparkException, PythonException, Exception)):
            reader.option("ignoreCorruptFiles", "false").load(str(tmp_path)).collect()
