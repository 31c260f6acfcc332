"""Functions accept types by name, and types, schemas, arrays and tables of other libraries (PyCapsule interface)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError

ARRAY = bs.array([1, 2, 3], bs.int32())
COLUMN = bs.ChunkedArray([ARRAY], bs.int32())
TABLE = bs.table({"a": ARRAY})
BATCH = TABLE.to_batches()[0]
SCHEMA = TABLE.schema
PYARROW_TABLE = pa.table(TABLE)


class SchemaOnly:
    """An object with only `__arrow_c_schema__`."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __arrow_c_schema__(self) -> Any:
        return self.source.__arrow_c_schema__()


CALLS_BY_TYPE: dict[str, Callable[[Any], bs.DataType]] = {
    "array": lambda t: bs.array([1], t).type,
    "array of NumPy's": lambda t: bs.array(np.array([1], np.int32), t).type,
    "from_pandas": lambda t: bs.Array.from_pandas(pd.Series([1]), t).type,
    "chunked from_pandas": lambda t: bs.ChunkedArray.from_pandas(pd.Series([1]), t).type,
    "from_buffers": lambda t: bs.Array.from_buffers(t, 1, [None, bytes(4)]).type,
    "chunked array": lambda t: bs.ChunkedArray([ARRAY], t).type,
    "cast": lambda t: bs.array([1]).cast(t).type,
    "chunked cast": lambda t: bs.ChunkedArray([bs.array([1])], bs.int64()).cast(t).type,
    "dictionary_encode": lambda t: bs.array(["a"]).dictionary_encode(t).type.index_type,  # type: ignore[attr-defined]
    "run_end_encode": lambda t: COLUMN.run_end_encode(t).type.run_end_type,  # type: ignore[attr-defined]
    "field": lambda t: bs.field("a", t).type,
    "as_type": bs.datatypes.as_type,
    "schema": lambda t: bs.schema({"a": t}).types[0],
    "schema of pairs": lambda t: bs.schema([("a", t)]).types[0],
    "struct": lambda t: bs.struct([("a", t)]).fields[0].type,
    "list": lambda t: bs.list_(t).fields[0].type,
    "fixed-size list": lambda t: bs.list_(t, 3).fields[0].type,
    "large_list": lambda t: bs.large_list(t).fields[0].type,
    "list_view": lambda t: bs.list_view(t).fields[0].type,
    "large_list_view": lambda t: bs.large_list_view(t).fields[0].type,
    "map key": lambda t: bs.map_(t, bs.string()).key_field.type,
    "map item": lambda t: bs.map_(bs.string(), t).item_field.type,
    "union": lambda t: bs.dense_union([("a", t)]).fields[0].type,
    "dictionary": lambda t: bs.dictionary("int8", t).value_type,
    "indices": lambda t: bs.dictionary(t, "string").index_type,
    "runs": lambda t: bs.run_end_encoded(t, "string").run_end_type,
    "runs of": lambda t: bs.run_end_encoded("int16", t).value_type,
    "opaque": lambda t: bs.datatypes.opaque(t, "a", "b").storage_type,
    "fixed_shape_tensor": lambda t: bs.datatypes.fixed_shape_tensor(t, [2]).value_type,
    "variable_shape_tensor": lambda t: bs.datatypes.variable_shape_tensor(t, 2).value_type,
    "tensor": lambda t: bs.tensors.Tensor.from_buffer(t, bytes(8), [2]).type,
}


@pytest.mark.parametrize(
    "type_",
    [pa.int32(), "int32", "i4", SchemaOnly(pa.int32()), bs.int32()],
    ids=["pyarrow's", "name", "short name", "exporter", "ours"],
)
@pytest.mark.parametrize("name", CALLS_BY_TYPE)
def test_names_and_types_of_other_libraries_are_accepted_as_types(name: str, type_: Any) -> None:
    assert CALLS_BY_TYPE[name](type_) == bs.int32()


@pytest.mark.parametrize("name", CALLS_BY_TYPE)
def test_an_invalid_type_is_named_with_the_expected_one(name: str) -> None:
    for nonsense in (3, object(), "int46", [1]):
        with pytest.raises(InvalidArgumentError, match=r"expected a type such as bs.int32\(\) or 'int32'|did you mean"):
            CALLS_BY_TYPE[name](nonsense)


@pytest.mark.parametrize("field", [pa.field("a", pa.int32()), SchemaOnly(pa.field("a", pa.int32()))])
def test_a_field_of_another_library_is_imported_for_comparison(field: Any) -> None:
    assert bs.field("a", "int32").equals(bs.datatypes.import_field(field))


@pytest.mark.parametrize("type_", [pa.int32(), "int32"])
def test_a_field_takes_types_of_other_libraries_only_through_as_type(type_: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a data type, found .*bowstring.datatypes.as_type"):
        bs.field("a", "int8").with_type(type_)
    assert bs.field("a", "int8").with_type(bs.datatypes.as_type(type_)) == bs.field("a", "int32")


def schema_of_file_writer(sink: io.BytesIO, schema: Any) -> bs.Schema:
    with bs.new_file(sink, schema) as writer:
        return writer.schema


def schema_of_stream_writer(sink: io.BytesIO, schema: Any) -> bs.Schema:
    with bs.new_stream(sink, schema) as writer:
        return writer.schema


CALLS_BY_SCHEMA: dict[str, Callable[[Any], bs.Schema]] = {
    "schema": bs.schema,
    "struct": lambda s: bs.schema(bs.struct(s).fields),
    "table": lambda s: bs.table([[1]], s).schema,
    "table of rows": lambda s: bs.table([{"a": 1}], s).schema,
    "record_batch": lambda s: bs.record_batch({"a": [1]}, s).schema,
    "table from_arrays": lambda s: bs.Table.from_arrays([ARRAY], schema=s).schema,
    "batch from_arrays": lambda s: bs.RecordBatch.from_arrays([ARRAY], schema=s).schema,
    "from_batches": lambda s: bs.Table.from_batches([], s).schema,
    "table from_pandas": lambda s: bs.Table.from_pandas(pd.DataFrame({"a": [1]}), s).schema.select(["a"]),
    "batch from_pandas": lambda s: bs.RecordBatch.from_pandas(pd.DataFrame({"a": [1]}), s).schema,
    "table cast": lambda s: bs.table({"a": [1]}).cast(s).schema,
    "batch cast": lambda s: bs.record_batch({"a": [1]}).cast(s).schema,
    "new_file": lambda s: schema_of_file_writer(io.BytesIO(), s),
    "new_stream": lambda s: schema_of_stream_writer(io.BytesIO(), s),
    "equals": lambda s: SCHEMA if SCHEMA.equals(s) else bs.schema([]),
}


@pytest.mark.parametrize(
    "schema",
    [pa.schema({"a": pa.int32()}), SchemaOnly(SCHEMA), {"a": "int32"}, [pa.field("a", pa.int32())], SCHEMA],
    ids=["pyarrow's", "exporter", "mapping", "fields", "ours"],
)
@pytest.mark.parametrize("name", CALLS_BY_SCHEMA)
def test_schemas_of_other_libraries_are_accepted(name: str, schema: Any) -> None:
    assert CALLS_BY_SCHEMA[name](schema) == SCHEMA


@pytest.mark.parametrize("name", CALLS_BY_SCHEMA)
def test_an_invalid_schema_is_rejected(name: str) -> None:
    for nonsense in (3, "int32", object()):
        with pytest.raises(InvalidArgumentError):
            CALLS_BY_SCHEMA[name](nonsense)


def write_and_read(write: Callable[[Any], None]) -> bs.Table:
    sink = io.BytesIO()
    with bs.new_stream(sink, SCHEMA) as writer:
        write(writer)
    return bs.open_stream(sink.getvalue()).read_all()


def coalesce_and_read(write: Callable[[Any], None]) -> bs.Table:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, SCHEMA)) as writer:
        write(writer)
    return bs.open_stream(sink.getvalue()).read_all()


CALLS_BY_TABLE: dict[str, Callable[[Any], bs.Table]] = {
    "equals": lambda t: TABLE if TABLE.equals(t) else bs.table({}),
    "concat_tables": lambda t: bs.concat_tables([t]),
    "write": lambda t: write_and_read(lambda writer: writer.write(t)),
    "write_table": lambda t: write_and_read(lambda writer: writer.write_table(t)),
    "write, gathering": lambda t: coalesce_and_read(lambda writer: writer.write(t)),
    "share": lambda t: bs.attach(bs.share(t)),
}


@pytest.mark.parametrize(
    "table",
    [PYARROW_TABLE, PYARROW_TABLE.to_batches()[0], pl.DataFrame(TABLE), TABLE, BATCH],
    ids=["pyarrow's", "pyarrow's batch", "polars'", "ours", "our batch"],
)
@pytest.mark.parametrize("name", CALLS_BY_TABLE)
def test_tables_of_other_libraries_are_accepted(name: str, table: Any) -> None:
    assert CALLS_BY_TABLE[name](table) == TABLE


@pytest.mark.parametrize("name", CALLS_BY_TABLE)
def test_an_invalid_table_is_rejected(name: str) -> None:
    for nonsense in (3, b"int32", [1]):
        with pytest.raises(InvalidArgumentError, match="expected a table"):
            CALLS_BY_TABLE[name](nonsense)


def test_batches_arrays_and_columns_of_other_libraries_are_accepted() -> None:
    foreign = PYARROW_TABLE.to_batches()[0]
    assert BATCH.equals(foreign)
    assert bs.Table.from_batches([foreign]) == TABLE
    assert write_and_read(lambda writer: writer.write_batch(foreign)) == TABLE
    assert bs.attach(bs.share(iter([foreign, foreign]))).num_rows == 6
    assert ARRAY.equals(pa.array([1, 2, 3], pa.int32()))
    assert COLUMN.equals(PYARROW_TABLE["a"])
    assert not COLUMN.equals(pa.chunked_array([[1]], pa.int32()))
    assert bs.concat_arrays([ARRAY, pa.array([4], pa.int32())]).to_pylist() == [1, 2, 3, 4]
    assert bs.ChunkedArray([pa.array([1], pa.int32())], "int32").to_pylist() == [1]
    for columns in ([PYARROW_TABLE["a"]], [pa.array([1, 2, 3], pa.int32())]):
        assert bs.Table.from_arrays(columns, ["a"]) == TABLE
    assert bs.RecordBatch.from_arrays([pa.array([1, 2, 3], pa.int32())], ["a"]) == BATCH
    added = TABLE.append_column(pa.field("b", pa.int8()), [1, 2, 3])
    assert added.schema.field("b").type == bs.int8()
    with pytest.raises(TypeMismatchError, match="expected a record batch"):
        BATCH.equals(3)


def test_fields_of_other_libraries_keep_their_attributes() -> None:
    foreign = pa.field("x", pa.int32(), nullable=False, metadata={"k": "v"})
    for field in (bs.schema([foreign])[0], bs.list_(foreign).fields[0], bs.struct(pa.struct([foreign])).fields[0]):
        assert (field.name, field.nullable, field.metadata) == ("x", False, {b"k": b"v"})
        assert field.equals(bs.datatypes.import_field(foreign), check_metadata=True)
    assert bs.map_(pa.string(), pa.int8()) == bs.map_(bs.string(), bs.int8())
    assert bs.schema(pa.schema([foreign], {"s": "m"})).metadata == {b"s": b"m"}
