"""Other libraries import readers of files and streams, batch by batch."""

from __future__ import annotations

import io
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs

TABLE = bs.concat_tables([bs.table({"n": [number, None], "s": ["x", "y"]}) for number in range(3)])


def write_table(kind: str) -> bytes:
    sink = io.BytesIO()
    with (bs.new_file if kind == "file" else bs.new_stream)(sink, TABLE.schema) as writer:
        for batch in TABLE.to_batches():
            writer.write(batch)
    return sink.getvalue()


def open_table(kind: str) -> Any:
    return (bs.open_file if kind == "file" else bs.open_stream)(write_table(kind))


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_other_libraries_import_a_reader_as_a_table(kind: str) -> None:
    with open_table(kind) as reader:
        assert pa.table(reader).to_pydict() == TABLE.to_pydict()
    with open_table(kind) as reader:
        assert pl.DataFrame(reader).to_dict(as_series=False) == TABLE.to_pydict()
    with open_table(kind) as reader:
        assert bs.table(pd.DataFrame.from_arrow(reader)).num_rows == 6  # type: ignore[attr-defined]
    with open_table(kind) as reader, duckdb.connect() as connection:
        connection.register("ours", reader)
        assert connection.sql("select sum(n) from ours").fetchall() == [(3,)]
    with open_table(kind) as reader:
        assert bs.table(reader) == TABLE
        assert pa.schema(reader).names == ["n", "s"]


def test_batches_are_read_on_demand() -> None:
    with open_table("stream") as reader:
        pa_reader = pa.RecordBatchReader.from_stream(reader)
        assert pa_reader.read_next_batch().to_pydict() == {"n": [0, None], "s": ["x", "y"]}
        assert next(reader).to_pydict() == {"n": [1, None], "s": ["x", "y"]}
        assert pa_reader.read_all().to_pydict() == {"n": [2, None], "s": ["x", "y"]}


def test_the_consumer_of_a_damaged_stream_raises_with_the_bowstring_message() -> None:
    whole = write_table("stream")
    with bs.open_stream(whole[: len(whole) // 2]) as reader, pytest.raises(pa.ArrowInvalid, match="cut off"):
        pa.table(reader)


def test_the_consumer_of_a_closed_reader_raises() -> None:
    reader = open_table("file")
    capsule_source = pa.RecordBatchReader.from_stream(reader)
    reader.close()
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        capsule_source.read_all()
