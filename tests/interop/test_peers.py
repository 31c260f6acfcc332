"""Data exported to other Arrow libraries and imported from them has the same types, values and addresses."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import Array, import_array
from bowstring.arrays.chunked_array import import_chunked_array
from bowstring.arrays.record_batch import RecordBatch, import_batch, import_stream
from bowstring.arrays.table import Table, import_table
from bowstring.datatypes import c_schema
from bowstring.datatypes.schema import import_schema
from bowstring.interop import c_data
from tests.interop.c_producer import SchemaCapsule
from tests.interop.samples import ARRAYS, LONG, nested, plain

PYTHON_VALUES_DIFFER = ("union", "month_day_nano", "time_ns", "timestamp_ns_tz")  # other classes for the same values


def pyarrow_addresses(array: pa.Array) -> list[int]:
    return [b.address for b in array.buffers() if b is not None and b.size]


def addresses(array: Array) -> set[int]:
    own = {b.address for b in array.own_buffers if b is not None and b.size}
    parts = [*array.children, *([array.dictionary] if array.dictionary is not None else [])]
    return own.union(*map(addresses, parts))


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_survives_a_round_trip_through_pyarrow(name: str) -> None:
    foreign = ARRAYS[name]
    exported = import_array(foreign)
    exported.validate(full=True)
    back = pa.array(exported)
    assert str(back.type) == str(foreign.type)
    assert back.type.equals(foreign.type, check_metadata=True)
    assert back.equals(foreign)
    if not ("view" in name and "at the end" in name):  # pyarrow rejects its own array
        back.validate(full=True)
    if not any(part in name for part in PYTHON_VALUES_DIFFER):
        assert exported.to_pylist() == foreign.to_pylist()


@pytest.mark.parametrize("name", ARRAYS)
def test_buffers_are_those_of_pyarrow(name: str) -> None:
    foreign = ARRAYS[name]
    for own, other in zip(import_array(foreign).buffers(), foreign.buffers(), strict=True):
        if own is not None:  # imports leave out the bitmap of an array without nulls
            assert own.size == 0 or own.address == other.address


@pytest.mark.parametrize("name", plain() | nested())
def test_import_and_export_do_not_copy(name: str) -> None:
    foreign = ARRAYS[name]
    exported = import_array(foreign)
    assert addresses(exported) <= set(pyarrow_addresses(foreign)) | dictionary_addresses(foreign)
    assert set(pyarrow_addresses(pa.array(exported))) <= addresses(exported) | set(pyarrow_addresses(foreign))
    plain_buffers = [b for b in exported.own_buffers if b is not None and b.size]
    if plain_buffers:
        assert plain_buffers[0].address in pyarrow_addresses(foreign)


def dictionary_addresses(array: pa.Array) -> set[int]:
    buffer_addresses: set[int] = set()
    if pa.types.is_dictionary(array.type):
        buffer_addresses |= set(pyarrow_addresses(array.dictionary))
    if pa.types.is_list(array.type):
        buffer_addresses |= dictionary_addresses(array.values)
    return buffer_addresses


def test_a_record_batch_of_all_types_survives_a_round_trip_with_its_metadata() -> None:
    columns = {name: array.slice(0, 3).take(pa.array([0, 1])) for name, array in plain().items() if "view" not in name}
    foreign = pa.record_batch(columns).replace_schema_metadata({"made": "here", b"\x00bytes": b"\xff\x00"})
    exported = import_batch(foreign)
    exported.validate(full=True)
    assert exported.schema.metadata == {b"made": b"here", b"\x00bytes": b"\xff\x00"}
    back = pa.record_batch(exported)
    assert back.equals(foreign)
    assert back.schema.equals(foreign.schema, check_metadata=True)


def test_a_sliced_record_batch_keeps_its_rows() -> None:
    foreign = pa.record_batch({"n": pa.array([1, None, 3, 4]), "s": pa.array(["a", "b", None, "d"])})
    exported = import_batch(foreign.slice(1, 2))
    assert exported.to_pydict() == {"n": [None, 3], "s": ["b", None]}
    assert pa.record_batch(exported).to_pydict() == exported.to_pydict()
    assert pa.record_batch(exported.slice(1)).to_pydict() == {"n": [3], "s": [None]}


def test_a_struct_array_with_an_offset_is_a_record_batch_of_its_slots() -> None:
    struct = pa.array([{"a": 1}, {"a": 2}, {"a": 3}]).slice(1)
    assert import_batch(struct).to_pydict() == {"a": [2, 3]}


def test_a_record_batch_without_columns_keeps_its_number_of_rows() -> None:
    foreign = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    exported = import_batch(foreign)
    assert exported.num_rows == 2
    assert pa.record_batch(exported).num_rows == 2


def test_fields_keep_names_nullability_and_metadata() -> None:
    foreign = pa.field(
        "größe", pa.list_(pa.field("item", pa.int8(), nullable=False, metadata={"deep": "1"})), False, {"a": ""}
    )
    exported = c_schema.import_field(foreign)
    assert (exported.name, exported.nullable, exported.metadata) == ("größe", False, {b"a": b""})
    back = pa.field(SchemaCapsule(exported.__arrow_c_schema__()))
    assert back.equals(foreign, check_metadata=True)


def test_a_schema_survives_a_round_trip() -> None:
    foreign = pa.schema([pa.field("a", pa.int32(), False), pa.field("a", pa.string())], {"k": "v"})
    exported = import_schema(foreign)
    assert exported.names == ["a", "a"]
    assert pa.schema(SchemaCapsule(exported.__arrow_c_schema__())).equals(foreign, check_metadata=True)


def test_a_table_streams_batch_by_batch() -> None:
    foreign = pa.table({"x": pa.chunked_array([[1, 2], [], [None]]), "y": pa.chunked_array([["a", "b"], [], [LONG]])})
    schema, batches = import_stream(foreign)
    batch_list = list(batches)
    assert schema.names == ["x", "y"]
    assert [b.num_rows for b in batch_list if b.num_rows] == [2, 1]
    back = pa.table(Table(schema, batch_list))
    assert back.equals(foreign)


def test_a_stream_is_read_one_batch_at_a_time() -> None:
    indices = []

    def batches() -> Any:
        for i in itertools.count():
            indices.append(i)
            yield import_batch(pa.record_batch({"i": [i]}))

    schema = import_batch(pa.record_batch({"i": [0]})).schema
    reader = pa.RecordBatchReader._import_from_c_capsule(c_data.export_stream(schema, batches()))
    assert reader.read_next_batch().to_pydict() == {"i": [0]}
    assert reader.read_next_batch().to_pydict() == {"i": [1]}
    assert indices == [0, 1]


def test_an_endless_stream_is_read_only_on_demand() -> None:
    endless = (pa.record_batch({"i": [i]}) for i in itertools.count())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("i", pa.int64())]), endless)
    _, batches = import_stream(reader)
    assert [next(batches).to_pydict() for _ in range(3)] == [{"i": [0]}, {"i": [1]}, {"i": [2]}]


def test_chunked_arrays_survive_a_round_trip() -> None:
    foreign = pa.chunked_array([["a", None], [], [LONG]])
    exported = import_chunked_array(foreign)
    assert exported.to_pylist() == foreign.to_pylist()
    assert pa.chunked_array(exported).equals(foreign)
    assert import_array(foreign).to_pylist() == ["a", None, LONG]
    assert import_array(pa.chunked_array([], pa.int8())).to_pylist() == []


def test_polars_frames_survive_a_round_trip() -> None:
    frame = pl.DataFrame(
        {
            "n": [1, None, 3],
            "s": ["a", None, LONG],
            "l": [[1, 2], None, []],
            "st": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}],
            "c": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
            "d": pl.Series([1.5, None, float("inf")]),
            "b": [True, None, False],
            "t": pl.Series([0, 10**15, None]).cast(pl.Datetime("us", "UTC")),
        }
    )
    exported = import_table(frame)
    exported.validate(full=True)
    assert exported.select(["n", "s", "l", "st", "c", "b"]).to_pydict() == frame.drop("d", "t").to_dict(as_series=False)
    assert pl.DataFrame(exported).equals(frame)
    assert import_array(frame["s"]).to_pylist() == ["a", None, LONG]


def test_polars_reads_arrays_without_a_copy() -> None:
    values = np.arange(1000, dtype=np.int64)
    exported = import_array(pa.array(values))
    series = pl.Series(exported)
    assert series.to_numpy(allow_copy=False).__array_interface__["data"][0] in addresses(exported)


def test_duckdb_queries_tables_and_its_results_are_imported() -> None:
    exported = import_table(  # noqa: F841 - duckdb finds it by its name
        pa.table({"k": pa.chunked_array([["a", "b"], ["a", None]]), "v": pa.chunked_array([[1, 2], [3, None]])})
    )
    with duckdb.connect() as connection:
        relation = connection.sql(
            "select k, sum(v)::bigint as total, list(v order by v) as vs from exported group by k order by k"
        )
        query_table = import_table(relation)
    assert query_table.to_pydict() == {"k": ["a", "b", None], "total": [4, 2, None], "vs": [[1, 3], [2], [None]]}


def test_pandas_frames_survive_a_round_trip() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "x": [0.5, np.nan, 2.0], "s": ["a", None, LONG]})
    exported = import_table(frame)
    assert exported.column("n").to_pylist() == [1, 2, 3]
    assert exported.column("s").to_pylist() == ["a", None, LONG]
    from_arrow = pd.DataFrame.from_arrow  # type: ignore[attr-defined]
    assert from_arrow(exported.select(["n"]))["n"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["int64", "string", "list", "struct", "map", "dictionary", "float16"])
def test_nanoarrow_arrays_survive_a_round_trip(name: str) -> None:
    foreign = nanoarrow.c_array(ARRAYS[name])
    exported = import_array(foreign)
    exported.validate(full=True)
    assert exported.to_pylist() == ARRAYS[name].to_pylist()
    if name != "map":  # nanoarrow does not convert maps to Python values
        assert nanoarrow.Array(exported).to_pylist() == ARRAYS[name].to_pylist()
    assert pa.array(nanoarrow.c_array(exported)).equals(ARRAYS[name])


def test_a_batch_of_one_library_is_exported_to_another() -> None:
    frame = pl.DataFrame({"n": [1, None], "s": ["x", LONG]})
    batch = next(import_stream(frame)[1])
    assert isinstance(batch, RecordBatch)
    assert pa.record_batch(batch).to_pydict() == {"n": [1, None], "s": ["x", LONG]}


def test_misaligned_memory_is_imported_without_a_copy() -> None:
    raw = pa.py_buffer(b"\0" + np.arange(5, dtype=np.int64).tobytes()).slice(1)
    foreign = pa.Array.from_buffers(pa.int64(), 5, [None, raw])
    exported = import_array(foreign)
    assert exported.to_pylist() == [0, 1, 2, 3, 4]
    assert addresses(exported) == {raw.address}
    assert pa.array(exported).to_pylist() == [0, 1, 2, 3, 4]


def test_numpy_values_are_exported_without_a_copy() -> None:
    import bowstring as bs

    values = np.arange(100, dtype=np.float64)
    assert pa.array(bs.array(values)).buffers()[1].address == values.__array_interface__["data"][0]


def test_a_list_of_duckdb_concatenates_with_others_and_keeps_its_name_in_files(tmp_path: Path) -> None:
    relation: Any = duckdb.sql("SELECT [1, 2] AS a")
    theirs = bs.table(relation)
    ours = bs.table({"a": bs.array([[3]], bs.list_("int32"))})
    assert str(theirs["a"].type) == "list<l: int32>"  # DuckDB's name; pyarrow's is "item"
    both = bs.concat_tables([theirs, ours]).combine_chunks()
    assert both["a"].to_pylist() == [[1, 2], [3]]
    bs.write_table(both, tmp_path / "both.arrow")
    assert str(bs.read_table(tmp_path / "both.arrow")["a"].type) == "list<l: int32>"
