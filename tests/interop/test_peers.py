"""What goes to another Arrow library and what comes from it: the same types and values, at the same addresses."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.interop import c_data
from bowstring.layouts.array import Array
from tests.interop.samples import ARRAYS, LONG, nested, plain

PYTHON_VALUES_DIFFER = ("union", "month_day_nano", "time_ns", "timestamp_ns_tz")  # other classes for the same values


def peer_addresses(array: pa.Array) -> list[int]:
    return [b.address for b in array.buffers() if b is not None and b.size]


def addresses(array: Array) -> set[int]:
    own = {b.address for b in array.buffers if b is not None and b.size}
    parts = [*array.children, *([array.dictionary] if array.dictionary is not None else [])]
    return own.union(*map(addresses, parts))


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_from_pyarrow_and_goes_back(name: str) -> None:
    theirs = ARRAYS[name]
    ours = c_data.import_array(theirs)
    ours.validate(full=True)
    back = pa.array(ours)
    assert str(back.type) == str(theirs.type)
    assert back.type.equals(theirs.type, check_metadata=True)
    assert back.equals(theirs)
    if not ("view" in name and "at the end" in name):  # pyarrow finds fault with what it gave itself
        back.validate(full=True)
    if not any(part in name for part in PYTHON_VALUES_DIFFER):
        assert ours.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("name", plain() | nested())
def test_nothing_is_copied_either_way(name: str) -> None:
    theirs = ARRAYS[name]
    ours = c_data.import_array(theirs)
    assert addresses(ours) <= set(peer_addresses(theirs)) | addresses_of_dictionary(theirs)
    assert set(peer_addresses(pa.array(ours))) <= addresses(ours) | set(peer_addresses(theirs))
    plain_buffers = [b for b in ours.buffers if b is not None and b.size]
    if plain_buffers:
        assert plain_buffers[0].address in peer_addresses(theirs)


def addresses_of_dictionary(array: pa.Array) -> set[int]:
    found: set[int] = set()
    if pa.types.is_dictionary(array.type):
        found |= set(peer_addresses(array.dictionary))
    if pa.types.is_list(array.type):
        found |= addresses_of_dictionary(array.values)
    return found


def test_a_record_batch_of_all_types_comes_and_goes_with_its_metadata() -> None:
    columns = {name: array.slice(0, 3).take(pa.array([0, 1])) for name, array in plain().items() if "view" not in name}
    theirs = pa.record_batch(columns).replace_schema_metadata({"made": "here", b"\x00bytes": b"\xff\x00"})
    ours = c_data.import_batch(theirs)
    ours.validate(full=True)
    assert ours.schema.metadata == {b"made": b"here", b"\x00bytes": b"\xff\x00"}
    back = pa.record_batch(ours)
    assert back.equals(theirs)
    assert back.schema.equals(theirs.schema, check_metadata=True)


def test_a_sliced_record_batch_keeps_its_rows() -> None:
    theirs = pa.record_batch({"n": pa.array([1, None, 3, 4]), "s": pa.array(["a", "b", None, "d"])})
    ours = c_data.import_batch(theirs.slice(1, 2))
    assert ours.to_pydict() == {"n": [None, 3], "s": ["b", None]}
    assert pa.record_batch(ours).to_pydict() == ours.to_pydict()
    assert pa.record_batch(ours.slice(1)).to_pydict() == {"n": [3], "s": [None]}


def test_a_struct_array_with_an_offset_is_a_record_batch_of_its_slots() -> None:
    struct = pa.array([{"a": 1}, {"a": 2}, {"a": 3}]).slice(1)
    assert c_data.import_batch(struct).to_pydict() == {"a": [2, 3]}


def test_a_record_batch_without_columns_keeps_its_number_of_rows() -> None:
    theirs = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    ours = c_data.import_batch(theirs)
    assert ours.num_rows == 2
    assert pa.record_batch(ours).num_rows == 2


def test_fields_keep_names_nullability_and_metadata() -> None:
    theirs = pa.field(
        "größe", pa.list_(pa.field("item", pa.int8(), nullable=False, metadata={"deep": "1"})), False, {"a": ""}
    )
    ours = c_data.import_field(theirs)
    assert (ours.name, ours.nullable, ours.metadata) == ("größe", False, {b"a": b""})
    back = pa.field(Exported(c_data.export_field(ours)))
    assert back.equals(theirs, check_metadata=True)


class Exported:
    """Anything with a schema capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self.capsule


def test_a_schema_comes_and_goes() -> None:
    theirs = pa.schema([pa.field("a", pa.int32(), False), pa.field("a", pa.string())], {"k": "v"})
    ours = c_data.import_schema(theirs)
    assert ours.names == ["a", "a"]
    assert pa.schema(Exported(c_data.export_schema(ours))).equals(theirs, check_metadata=True)


def test_a_table_streams_batch_by_batch() -> None:
    theirs = pa.table({"x": pa.chunked_array([[1, 2], [], [None]]), "y": pa.chunked_array([["a", "b"], [], [LONG]])})
    schema, batches = c_data.import_stream(theirs)
    held = list(batches)
    assert schema.names == ["x", "y"]
    assert [b.num_rows for b in held if b.num_rows] == [2, 1]
    back = pa.table(Table(schema, held))
    assert back.equals(theirs)


def test_a_stream_is_pulled_one_batch_at_a_time() -> None:
    asked = []

    def batches() -> Any:
        for i in itertools.count():
            asked.append(i)
            yield c_data.import_batch(pa.record_batch({"i": [i]}))

    schema = c_data.import_batch(pa.record_batch({"i": [0]})).schema
    reader = pa.RecordBatchReader._import_from_c_capsule(c_data.export_stream(schema, batches()))
    assert reader.read_next_batch().to_pydict() == {"i": [0]}
    assert reader.read_next_batch().to_pydict() == {"i": [1]}
    assert asked == [0, 1]


def test_an_endless_stream_is_taken_only_as_far_as_asked() -> None:
    endless = (pa.record_batch({"i": [i]}) for i in itertools.count())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("i", pa.int64())]), endless)
    _, batches = c_data.import_stream(reader)
    assert [next(batches).to_pydict() for _ in range(3)] == [{"i": [0]}, {"i": [1]}, {"i": [2]}]


def test_chunked_arrays_come_and_go() -> None:
    theirs = pa.chunked_array([["a", None], [], [LONG]])
    ours = c_data.import_chunked(theirs)
    assert ours.to_pylist() == theirs.to_pylist()
    assert pa.chunked_array(ours).equals(theirs)
    assert c_data.import_array(theirs).to_pylist() == ["a", None, LONG]
    assert c_data.import_array(pa.chunked_array([], pa.int8())).to_pylist() == []


def test_polars_frames_come_and_go() -> None:
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
    ours = c_data.import_table(frame)
    ours.validate(full=True)
    assert ours.select(["n", "s", "l", "st", "c", "b"]).to_pydict() == frame.drop("d", "t").to_dict(as_series=False)
    assert pl.DataFrame(ours).equals(frame)
    assert c_data.import_array(frame["s"]).to_pylist() == ["a", None, LONG]


def test_polars_reads_our_arrays_where_they_lie() -> None:
    values = np.arange(1000, dtype=np.int64)
    ours = c_data.import_array(pa.array(values))
    series = pl.Series(ours)
    assert series.to_numpy(allow_copy=False).__array_interface__["data"][0] in addresses(ours)


def test_duckdb_queries_our_tables_and_we_read_its_results() -> None:
    ours = c_data.import_table(  # noqa: F841 - duckdb finds it by its name
        pa.table({"k": pa.chunked_array([["a", "b"], ["a", None]]), "v": pa.chunked_array([[1, 2], [3, None]])})
    )
    with duckdb.connect() as connection:
        relation = connection.sql(
            "select k, sum(v)::bigint as total, list(v order by v) as vs from ours group by k order by k"
        )
        found = c_data.import_table(relation)
    assert found.to_pydict() == {"k": ["a", "b", None], "total": [4, 2, None], "vs": [[1, 3], [2], [None]]}


def test_pandas_frames_come_and_go() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "x": [0.5, np.nan, 2.0], "s": ["a", None, LONG]})
    ours = c_data.import_table(frame)
    assert ours.column("n").to_pylist() == [1, 2, 3]
    assert ours.column("s").to_pylist() == ["a", None, LONG]
    from_arrow = pd.DataFrame.from_arrow  # type: ignore[attr-defined]
    assert from_arrow(ours.select(["n"]))["n"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["int64", "string", "list", "struct", "map", "dictionary", "float16"])
def test_nanoarrow_arrays_come_and_go(name: str) -> None:
    theirs = nanoarrow.c_array(ARRAYS[name])
    ours = c_data.import_array(theirs)
    ours.validate(full=True)
    assert ours.to_pylist() == ARRAYS[name].to_pylist()
    if (
        name != "map"
    ):  # nanoarrow gives no Python values for it; arrays of views that it hands out crash without us, too
        assert nanoarrow.Array(ours).to_pylist() == ARRAYS[name].to_pylist()
    assert pa.array(nanoarrow.c_array(ours)).equals(ARRAYS[name])


def test_a_batch_read_by_one_library_goes_through_us_to_another() -> None:
    frame = pl.DataFrame({"n": [1, None], "s": ["x", LONG]})
    batch = next(c_data.import_stream(frame)[1])
    assert isinstance(batch, RecordBatch)
    assert pa.record_batch(batch).to_pydict() == {"n": [1, None], "s": ["x", LONG]}


def test_misaligned_memory_is_read_where_it_lies() -> None:
    raw = pa.py_buffer(b"\0" + np.arange(5, dtype=np.int64).tobytes()).slice(1)
    theirs = pa.Array.from_buffers(pa.int64(), 5, [None, raw])
    ours = c_data.import_array(theirs)
    assert ours.to_pylist() == [0, 1, 2, 3, 4]
    assert addresses(ours) == {raw.address}
    assert pa.array(ours).to_pylist() == [0, 1, 2, 3, 4]


def test_values_of_numpy_go_out_without_a_copy() -> None:
    import bowstring as bs

    values = np.arange(100, dtype=np.float64)
    assert pa.array(bs.array(values)).buffers()[1].address == values.__array_interface__["data"][0]
