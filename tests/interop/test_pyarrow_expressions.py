"""Common expressions of pyarrow, each with its effect here.

Each line is evaluated with `pa`, `pc`, `ipc`, `feather` and `types` of pyarrow, then of Bowstring, and both values are compared by
type and value. A line of two expressions, ``bowstring | pyarrow``, has another one for pyarrow, which lacks the name,
or has a method where Bowstring has an attribute.
`ELSEWHERE` lists the names that Bowstring leaves to other libraries: its `AttributeError` names the way.
"""

# ruff: noqa: E501 -- one expression on each line

from __future__ import annotations

import datetime as dt
import decimal
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bowstring as bs
from bowstring.pyarrow_names import ALTERNATIVES

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.compute")
pytest.importorskip("pyarrow.feather")

CONSTRUCTORS = """
pa.array([1, 2, None])
pa.array([1, 2], pa.int8())
pa.array([1, 2], type="int16")
pa.array(["a", None])
pa.array([1.5, float("nan")])
pa.array([[1, 2], None, []])
pa.array([{"x": 1, "y": "a"}, None])
pa.array([b"a", b"bc"])
pa.array([True, None])
pa.array([dt.date(2024, 2, 29)])
pa.array([dt.datetime(2024, 2, 29, 12)])
pa.array([decimal.Decimal("1.50")])
pa.array(np.arange(3, dtype="int32"))
pa.array([1, 2, 3], mask=np.array([False, True, False]))
pa.array(pd.Series([1.0, None]))
pa.array(range(3))
pa.array(["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()))
pa.array([], pa.float32())
pa.Array.from_pandas(pd.Series(["x", None]))
pa.nulls(2)
pa.nulls(2, pa.int8())
pa.repeat("a", 3)
pa.scalar(5)
pa.scalar(5, pa.int8())
pa.scalar(None, "string").is_valid
pa.scalar("a").as_py()
pa.chunked_array([[1, 2], [3]])
pa.chunked_array([], type=pa.int8())
pa.concat_arrays([pa.array([1]), pa.array([2])])
pa.infer_type([1, None])
pa.table({"a": [1, 2], "b": ["x", None]})
pa.table([[1, 2], ["x", "y"]], names=["a", "b"])
pa.table({"a": [1]}, schema=pa.schema([("a", pa.int8())]))
pa.table(pd.DataFrame({"a": [1, 2]})).to_pydict()
pa.Table.from_pydict({"a": [1]})
pa.Table.from_pylist([{"a": 1}, {"a": None}])
pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}), preserve_index=False).to_pydict()
pa.Table.from_arrays([pa.array([1])], names=["a"])
pa.Table.from_batches([rb, rb])
pa.Table.from_struct_array(pa.array([{"a": 1}, {"a": 2}]))
pa.record_batch({"a": [1, 2]})
pa.RecordBatch.from_pydict({"a": [1]})
pa.RecordBatch.from_pylist([{"a": 1}])
pa.RecordBatch.from_arrays([pa.array([1])], ["a"])
pa.concat_tables([t, t])
pa.concat_batches([rb, rb])
pa.table(t)
"""

TYPES = """
pa.int64()
pa.utf8()
pa.large_utf8()
pa.string()
pa.bool_()
pa.float16()
pa.decimal128(10, 2)
pa.timestamp("us", tz="UTC")
pa.timestamp("us", tz="UTC").tz
pa.timestamp("ms").unit
pa.list_(pa.int8())
pa.list_(pa.int8(), 3)
pa.list_(pa.int8()).value_type
pa.list_(pa.int8()).value_field
pa.list_(pa.int8(), 3).list_size
pa.struct([("x", pa.int8()), ("y", pa.string())])
pa.struct({"x": pa.int8()})
struct.field("x")
struct.field(1)
struct[0]
struct.names
struct.fields
struct.num_fields
struct.get_field_index("y")
[field.name for field in struct]
pa.map_(pa.string(), pa.int8())
pa.map_(pa.string(), pa.int8()).key_type
pa.map_(pa.string(), pa.int8()).item_type
pa.dictionary(pa.int8(), pa.string())
pa.dictionary(pa.int8(), pa.string()).index_type
pa.dictionary(pa.int8(), pa.string()).ordered
pa.run_end_encoded(pa.int16(), pa.string())
pa.dense_union([pa.field("a", pa.int8())])
pa.binary(4)
pa.uuid().extension_name
pa.json_().extension_name
pa.from_numpy_dtype("float32")
pa.from_numpy_dtype(np.dtype("datetime64[ms]"))
pa.int64() == "int64"
pa.int32().bit_width
pa.int32().byte_width
pa.decimal128(10, 2).precision
pa.decimal128(10, 2).scale
pa.decimal128(10, 2).byte_width
pa.binary(4).byte_width
pa.int32().to_pandas_dtype()
pa.timestamp("ns").to_pandas_dtype()
pa.int32().equals(pa.int32())
str(pa.float64())
str(struct)
pa.int8().num_fields
types.is_integer(pa.int8())
types.is_string(pa.string())
types.is_timestamp(pa.timestamp("s"))
types.is_nested(pa.list_(pa.int8()))
types.is_list(pa.list_(pa.int8()))
types.is_dictionary(pa.dictionary(pa.int8(), pa.string()))
types.is_decimal(pa.decimal128(10, 2))
"""

SCHEMAS = """
pa.schema([("a", pa.int64()), ("b", pa.string())])
pa.schema({"a": pa.int64()})
pa.schema([pa.field("a", pa.int64(), nullable=False)])
pa.schema([("a", "int64")], metadata={"k": "v"}).metadata
pa.field("a", pa.int64())
pa.field("a", "int64", nullable=False).nullable
pa.field("a", pa.int64(), metadata={"k": "v"}).metadata
pa.field("a", pa.int64()).with_name("b")
pa.field("a", pa.int64()).with_type(pa.int8())
pa.field("a", pa.int64()).with_nullable(False)
pa.field("a", pa.int64()).with_metadata({"k": "v"}).metadata
pa.field("a", pa.int64()).equals(pa.field("a", pa.int64()))
schema.names
schema.types
schema.field("a")
schema.field(0).name
schema[0]
len(schema)
[field.name for field in schema]
schema.get_field_index("b")
schema.get_all_field_indices("b")
schema.append(pa.field("c", pa.bool_()))
schema.insert(0, pa.field("c", pa.bool_()))
schema.set(1, pa.field("c", pa.bool_()))
schema.remove(0)
schema.with_metadata({"k": "v"}).metadata
schema.remove_metadata()
schema.equals(pa.schema([("a", "int64"), ("b", "string")]))
schema.to_string()
pa.unify_schemas([schema, pa.schema([("c", "bool")])])
schema == t.schema
"""

FILES = """
ipc.open_file(file).schema
ipc.open_file(file).num_record_batches
ipc.open_file(file).get_batch(0)
ipc.open_file(file).read_all()
ipc.open_file(io.BytesIO(file_bytes)).read_all()
ipc.open_file(file_bytes).read_all()
ipc.open_stream(stream_bytes).read_all()
ipc.open_stream(stream_bytes).read_next_batch()
[batch.num_rows for batch in ipc.open_stream(stream_bytes)]
ipc.open_stream(stream_bytes).schema
write_with(ipc.new_file, lambda writer: writer.write(t))
write_with(ipc.new_file, lambda writer: writer.write_table(t))
write_with(ipc.new_file, lambda writer: writer.write_batch(rb))
write_with(ipc.new_stream, lambda writer: writer.write_table(t))
write_with(ipc.new_stream, lambda writer: writer.write_batch(rb))
written_counts(ipc.new_file)
written_counts(ipc.new_stream)
read_counts(ipc.open_stream(stream_bytes))
read_counts(ipc.open_file(file))
pa.RecordBatchReader.from_batches(t.schema, t.to_batches()).read_all()
pa.RecordBatchReader.from_stream(t).read_all()
pa.RecordBatchReader.from_stream(t).schema
pa.RecordBatchReader.from_stream(t).read_next_batch()
t.to_reader().read_all()
[batch.num_rows for batch in t.to_reader(max_chunksize=2)]
t.to_batches()[0]
[batch.num_rows for batch in t.to_batches(max_chunksize=2)]
feather.read_table(file)
feather.read_table(file, columns=["b"])
feather.read_feather(file)
write_feather(t)
write_feather(t, compression="zstd")
write_feather(t.to_pandas()).to_pydict()
"""

NESTED = """
lists.flatten()
lists.values
lists.offsets
lists.value_lengths()
structs.field("x")
structs.field(0)
structs.flatten()
coded.indices
coded.dictionary
coded.dictionary_decode()
pa.array(["a", "b", "a"]).dictionary_encode()
pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]))
pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], names=["x", "y"])
pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b"]))
pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), pa.array([1, 2]))
pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2)
pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])])
maps.keys
maps.items
len(a.buffers())
a.buffers()[1].size
[buffer and bytes(buffer) for buffer in t["b"].chunks[0].buffers()]
len(lists.buffers())
"""

ARRAYS = """
len(a)
a[0]
a[-1]
a[1:]
a.type
a.null_count
a.to_pylist()
a.tolist()
a.to_numpy(zero_copy_only=False)
np.asarray(pa.array([1, 2]))
a.to_pandas()
a.slice(1, 2)
a.take(pa.array([2, 0]))
a.filter(pa.array([True, False, True, False]))
a.cast(pa.float64())
a.cast("string")
a.is_null()
a.is_valid()
a.fill_null(0)
a.drop_null()
a.unique()
a.sort()
a.equals(a)
a.nbytes > 0
a.offset
a.get_total_buffer_size() >= a.nbytes
a.validate(full=True)
list(a)
c.num_chunks
c.chunk(0)
c.chunks
c.combine_chunks()
c.length()
c.iterchunks()
"""

TABLES = """
t.num_rows
t.num_columns
t.shape
len(t)
t.column_names
t.schema
t["a"]
t[0]
t.column("a")
t.columns
t.field("a")
t.select(["b"])
t.slice(1, 2)
t.slice(1)
t.head(2) | t.slice(0, 2)
t.tail(2) | t.slice(2)
t[["b", "a"]] | t.select(["b", "a"])
t[1:3] | t.slice(1, 2)
t[mask] | t.filter(mask)
t.take([2, 0])
t.filter(mask)
t.filter(pc.greater(t["a"], 1))
t.sort_by("a")
t.sort_by([("a", "descending")])
t.add_column(0, "c", pa.array([1, 2, 3, 4]))
t.append_column("c", pa.array([1, 2, 3, 4]))
t.set_column(0, "c", pa.array([1, 2, 3, 4]))
t.remove_column(0)
t.drop(["a"])
t.drop_columns(["a"])
t.drop_null()
t.rename_columns(["x", "y"])
t.rename_columns({"a": "x"})
t.cast(pa.schema([("a", pa.float64()), ("b", pa.large_string())]))
t.cast({"a": "float64"}) | t.cast(pa.schema([("a", pa.float64()), ("b", pa.string())]))
t.to_pydict()
t.to_pylist()
t.to_pandas()
t.to_struct_array()
t.itercolumns()
t.flatten()
t.combine_chunks()
t.unify_dictionaries()
t.replace_schema_metadata({"k": "v"}).schema.metadata
t.equals(t)
t == t
t.nbytes > 0
t.get_total_buffer_size() >= t.nbytes
t.validate(full=True)
"a" in t.column_names
rb.num_rows
rb.column("a")
rb.to_pydict()
rb.schema
rb.slice(1)
"""

COMPUTE = """
pc.equal(a, 1)
pc.and_(mask, mask)
pc.is_in(a, value_set=pa.array([1, 3]))
pc.sum(a)
pc.min_max(a)
pc.value_counts(s)
pc.add(a, 1)
pc.if_else(mask, a, 0)
pc.fill_null(a, 0)
pc.starts_with(s, "x")
pc.cast(a, "float64")
pc.filter(a, mask)
pc.take(a, pa.array([1, 0]))
pc.round(pa.array([1.25, None]), 1)
pc.round(pa.array([25, 35]), ndigits=-1, round_mode="half_to_odd")
pc.list_flatten(lists)
pc.strptime(s, "%Y", "s", error_is_null=True)
pc.quantile(a)
str(pc.scalar(1) + pc.field("a"))
pc.CountOptions(mode="all")
t.filter(pc.field("a") > 1)
rb.filter(pc.field("a") > 1)
t.group_by("b").aggregate([("a", "sum"), ([], "count_all")]).sort_by("b")
t.group_by(["b"], use_threads=False).aggregate([("a", "count", pc.CountOptions(mode="all"))])
t.join(t, "a", join_type="inner").sort_by("a")
t.slice(0, 1).join_asof(t.slice(1, 1), "a", "b", 1, right_on="a", right_by="b").num_rows
"""

EVERYDAY = """
pa.array([1, 2, None], from_pandas=True)
pa.array([1.0, float("nan")], from_pandas=True)
pa.array(np.array([1.0, np.nan]), from_pandas=True)
pa.array(np.array([1.0, np.nan]), from_pandas=False)
pa.array(np.array(["a", None, np.nan], dtype=object), from_pandas=True)
pa.array([1.7], pa.int64(), safe=False)
pa.array(np.array([1.7, 2.2]), pa.int64(), safe=False)
pa.array(np.array([300]), pa.int8(), safe=False)
pa.array((x for x in range(3)), size=3)
pa.array(iter([1, 2, 3]))
pa.array([1, 2], pa.int8(), size=2)
pa.array([4.0], pa.int64())
pa.array([4.0, None], pa.int32())
pa.array([dt.datetime(2024, 2, 29, 12)], pa.date32())
pa.array([dt.datetime(2024, 2, 29, 12)], pa.date64())
pa.array([dt.timedelta(1, 2)], pa.month_day_nano_interval())
pa.array([(1, 15, 30)], pa.month_day_nano_interval())
pa.array([[("x", 1), ("y", "a")]], pa.struct([("x", pa.int8()), ("y", pa.string())]))
pa.array([(1, "a")], pa.struct([("x", pa.int8()), ("y", pa.string())]))
pa.array(["a", "b"], pa.binary())
pa.array([b"a", b"b"], pa.string())
pa.array(["ab"], pa.binary(2))
pa.array([b"a"], pa.large_string())
pa.array(["a"], pa.large_binary())
pa.array([b"a", "b"])
pa.array(["a", "b"], pa.binary_view())
pa.array([b"a"], pa.string_view())
pa.array([np.True_, np.False_])
pa.array([1, 2], pa.float32())
pa.array([1, 2], pa.float16())
pa.array([1, 2], pa.decimal128(5, 2))
pa.array([decimal.Decimal("1.00")], pa.int64())
pa.array([1, 1.5])
pa.array([1, None, 2.5], pa.float64())
pa.array([np.int32(3), np.int32(4)])
pa.array([np.float32(3)])
pa.array([np.datetime64("2024-01-01T00:00:01")])
pa.array([np.timedelta64(5, "s")])
pa.array([pd.Timestamp("2024-01-01", tz="UTC")])
pa.array([pd.Timedelta(1, "s")])
pa.array([0, 1], pa.timestamp("us"))
pa.array([0, 1], pa.date32())
pa.array([0, 1], pa.time32("s"))
pa.array([0, 1], pa.duration("ms"))
pa.array([dt.time(1, 2, 3)], pa.time32("s"))
pa.array([dt.time(1, 2, 3)])
pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)], pa.timestamp("us"))
pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))
pa.array([dt.timedelta(seconds=1)], pa.duration("s"))
pa.array(["2024-01-01"], pa.string()).cast(pa.date32())
pa.array([{"a": 1}, None], pa.map_(pa.string(), pa.int64()))
pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
pa.array([{"key": "a", "value": 1}], pa.struct([("key", pa.string()), ("value", pa.int64())]))
pa.array([[{"key": "a", "value": 1}]], pa.map_(pa.string(), pa.int64()))
pa.array([[1, 2], [3]], pa.list_(pa.int8()))
pa.array([(1, 2), (3,)])
pa.array([{1}, {2}])
pa.array([np.array([1, 2]), None])
pa.array([[1.0, 2.0]], pa.list_(pa.int32()))
pa.array([[1, 2]], pa.list_(pa.float32(), 2))
pa.array([[1, 2]], pa.large_list(pa.int64()))
pa.array([[1, 2]], pa.list_view(pa.int64()))
pa.array([pa.scalar(1), pa.scalar(2)])
pa.array(np.array([pa.scalar(1), None], dtype=object))
pa.array([{"x": pa.scalar(1)}])
pa.array(t["a"])
pa.array(a, pa.float64())
pa.array(a, pa.int64())
pa.array(a, "string")
pa.array(pd.Series([1, 2]), pa.float64())
pa.array(pd.Series([1.0, None]), from_pandas=True)
pa.array(pd.Series([1.0, None]), from_pandas=False)
pa.array(pd.Categorical(["a", "b", "a"]))
pa.array(pd.Index([1, 2]))
pa.array(pd.array([1, None], dtype="Int64"))
pa.array(pd.Series(pd.to_datetime(["2024-01-01", None])))
pa.array(np.array(["a", "bc"]))
pa.array(np.array([b"a", b"bc"]))
pa.array(np.array([1, 2], dtype="uint8"), pa.int32())
pa.array(np.array([1, 2]), pa.float64())
pa.array(np.array([1.0, 2.0]), pa.int64())
pa.array(np.array([1, 0]), pa.bool_())
pa.array(np.array(["2024-01-01"], "M8[D]"))
pa.array(np.array(["2024-01-01"], "M8[D]"), pa.timestamp("us"))
pa.array(np.array(["2024-01-01"], "M8[s]"), pa.date32())
pa.array(np.array([1, 2], "m8[s]"))
pa.array(np.array(["a", None], dtype=object))
pa.array(np.array([[1, 2], [3, 4]]).tolist())
pa.array(list(np.array([[1, 2], [3, 4]])))
pa.array(np.array([True, False]))
pa.array([1, 2, 3], mask=[False, True, False])
pa.array([1, 2, 3], mask=pa.array([False, True, False]))
pa.array(["a", "b"], pa.dictionary(pa.int32(), pa.string()))
pa.array([1, 1, 2], pa.run_end_encoded(pa.int32(), pa.int64()))
pa.array([b"0123456789abcdef"], pa.uuid())
pa.array([None, None])
pa.array([])
pa.array([], "int8")
pa.array({"a": 1}.values())
pa.array(range(3), pa.int8())
pa.array(memoryview(b"ab"))
pa.array(bytearray(b"ab"))
pa.scalar(4.0, pa.int64())
pa.scalar(1, pa.float64())
pa.scalar("a", pa.binary())
pa.scalar(np.int8(3))
pa.scalar(dt.datetime(2024, 1, 1)).value
pa.scalar(dt.date(2024, 1, 1)).value
pa.scalar(dt.timedelta(1)).value
pa.scalar(dt.time(1)).value
pa.scalar("abc").as_buffer().size
bytes(pa.scalar(b"abc").as_buffer())
pa.scalar([1, 2]).values
pa.scalar([1, 2])[0]
len(pa.scalar([1, 2]))
list(pa.scalar([1, 2]))
pa.scalar({"x": 1})["x"]
pa.scalar({"x": 1, "y": "a"})[1]
list(pa.scalar({"x": 1, "y": "a"}))
"x" in pa.scalar({"x": 1})
len(pa.scalar({"x": 1, "y": 2}))
pa.scalar({"x": 1}).as_py()
pa.scalar("a", pa.dictionary(pa.int8(), pa.string())).value
pa.scalar(None).is_valid
pa.scalar(1) == pa.scalar(1)
pa.scalar(1).equals(pa.scalar(1))
hash(pa.scalar(1)) == hash(pa.scalar(1))
pa.scalar(1).cast("string")
pa.scalar(1).validate()
pa.scalar(1) + 1
pa.scalar(3) - pa.scalar(1)
-pa.scalar(3)
a + 1
a - a
a * 2
a / 2
-a
abs(a)
a ** 2
a + pa.scalar(1)
a.filter(mask, null_selection_behavior="emit_null")
a.filter(mask, null_selection_behavior="drop")
c.filter(mask, null_selection_behavior="emit_null")
t.filter(mask, null_selection_behavior="emit_null")
t.filter(mask, null_selection_behavior="drop")
rb.filter(mask.slice(0, 2), null_selection_behavior="drop")
a.take([1, None])
a.take(np.array([0, 1]))
a.fill_null(pa.scalar(0))
c.fill_null(pa.scalar(0))
c.fill_null(0)
a.to_numpy(False)
a.to_pandas(integer_object_nulls=True)
t["a"].to_pandas().name
t["a"].to_numpy()
a.dictionary_encode()
a.sort("descending")
a.sort(order="ascending", null_placement="at_start")
a.cast(target_type=pa.float32())
a.cast(pa.int8(), safe=False)
c.nbytes
c.null_count
c.type
c.slice(1, 2)
c.take([0, 2])
c.unify_dictionaries()
c.unique()
c.dictionary_encode()
c.drop_null()
c.is_null()
c.cast("string")
c.get_total_buffer_size() > 0
c.equals(c)
c[::2]
c[-1]
c.to_numpy()
c.to_pylist()
pa.chunked_array([[1, 2], [3]], type="int8")
pa.chunked_array([pa.array([], pa.int8())])
pa.concat_arrays([pa.array([1], pa.int8())])
len(pa.struct([("x", pa.int8()), ("y", pa.string())]))
pa.list_(pa.int8()).field(0)
pa.list_(pa.int8()).num_fields
pa.map_(pa.string(), pa.int8()).field(0)
pa.map_(pa.string(), pa.int8()).keys_sorted
pa.run_end_encoded(pa.int16(), pa.string()).value_type
pa.dense_union([pa.field("a", pa.int8())]).field(0)
pa.union([pa.field("a", pa.int8()), pa.field("b", pa.string())], "sparse")
pa.union([pa.field("a", pa.int8())], mode="dense", type_codes=[5])
pa.sparse_union([pa.field("a", pa.int8())], type_codes=[3])
pa.sparse_union([pa.field("a", pa.int8())]).type_codes
pa.sparse_union([pa.field("a", pa.int8())]).mode
pa.field(foreign_field)
pa.field(pa.field("a", pa.int8()), nullable=False)
pa.field("a", type=pa.int8(), metadata={b"k": b"v"}).remove_metadata()
struct == pa.struct({"x": "int8", "y": "string"})
pa.list_(pa.field("l", pa.int8())) == pa.list_(pa.int8())
pa.concat_arrays([pa.array([[1]], pa.list_(pa.field("l", pa.int64()))), pa.array([[2]])])
pa.concat_tables([pa.table({"a": pa.array([[1]], pa.list_(pa.field("l", pa.int64())))}), pa.table({"a": [[2]]})])
pa.array([[1]], pa.list_(pa.field("l", pa.int64()))) == pa.array([[1]])
pa.int8().bit_width
pa.int8() in (pa.int8(), pa.int16())
pa.timestamp("us", "Europe/Riga").tz
pa.time64("us").unit
pa.duration("ms").unit
pa.decimal32(5, 1).bit_width
pa.decimal64(5, 1).bit_width
pa.date32().to_pandas_dtype()
pa.string().to_pandas_dtype()
pa.types.is_floating(pa.float16())
pa.types.is_temporal(pa.date32())
pa.types.is_primitive(pa.int8())
pa.types.is_large_list(pa.large_list(pa.int8()))
pa.types.is_struct(struct)
pa.types.is_null(pa.null())
schema.pandas_metadata
pa.Table.from_pandas(pd.DataFrame({"a": [1]})).schema.pandas_metadata["columns"][0]["name"]
schema.insert(1, pa.field("c", pa.int8()))
schema.equals(schema, check_metadata=True)
schema.to_string(show_field_metadata=False)
hash(schema) == hash(schema)
"a" in schema.names
schema.field("a").type
pa.schema([pa.field("a", "int8")], metadata={b"k": b"v"})
pa.schema(schema)
pa.schema({"a": "int8", "b": pa.list_(pa.int8())})
pa.Table.from_arrays([[1, 2], ["a", "b"]], names=["a", "b"])
pa.Table.from_arrays([np.array([1, 2]), np.array(["a", "b"])], names=["a", "b"])
pa.Table.from_arrays([[1, 2]], schema=pa.schema([("a", "int8")]))
pa.Table.from_arrays([pa.array([1, 2])], schema=pa.schema([("a", "int8")]))
pa.Table.from_arrays([pa.array([1])], ["a"], metadata={"k": "v"}).schema.metadata
pa.RecordBatch.from_arrays([[1, 2]], ["a"])
pa.RecordBatch.from_arrays([np.array([1, 2])], ["a"])
pa.RecordBatch.from_arrays([[1, 2]], schema=pa.schema([("a", "int8")]))
pa.Table.from_pydict({"a": pa.array([1])}, schema=pa.schema([("a", "int8")]))
pa.Table.from_pydict({"a": [4.0]}, schema=pa.schema([("a", "int8")]))
pa.Table.from_pylist([{"a": 1, "b": 2}], schema=pa.schema([("a", "int8")]))
pa.Table.from_pylist([{"a": 1}], schema=pa.schema([("a", "int8"), ("b", "string")]))
pa.Table.from_pylist([{"a": 1}], metadata={"k": "v"}).schema.metadata
pa.table({"a": pa.array([1])}, schema=pa.schema([("a", "int8")]))
pa.table({"a": np.array([1, 2])})
pa.table({"a": pd.Series([1, 2])})
pa.table({"a": t["a"]})
pa.table([pa.array([1])], schema=pa.schema([("a", "float64")]))
pa.table({"a": [1]}, metadata={"k": "v"}).schema.metadata
pa.record_batch([pa.array([1])], names=["a"])
pa.record_batch([[1, 2]], names=["a"])
pa.record_batch({"a": pa.array([1])}, schema=pa.schema([("a", "float64")]))
pa.Table.from_struct_array(pa.array([{"a": 1}]))
pa.Table.from_batches([], schema=schema)
t.sort_by([("b", "ascending"), ("a", "descending")])
t.sort_by([("a", "ascending", "at_start")])
rb.sort_by("a")
rb.sort_by([("a", "descending")])
t.select([0])
t.select(["b", 0])
t.column(0)
t.column(-1)
t["b"].chunk(0)
t.drop(["b"])
t.drop_columns("b")
t.to_pandas(self_destruct=False)
t.to_batches(2)
t.to_reader(2).read_all()
t.equals(t, check_metadata=True)
t.group_by("b").aggregate([("a", "sum"), ("a", "max")]).sort_by("b")
t.join(t, keys="a", right_suffix="_r").num_rows
t.schema.names
t.slice(length=2)
t.filter(pc.field("a") > 2)
t.filter(pc.is_in(pc.field("a"), pa.array([1, 3])))
t.filter(pc.field("a") == pa.scalar(1))
t.filter(pc.field("b").isin(["x"]))
t.filter((pc.field("a") > 1) & (pc.field("b") == "x"))
t.filter(pc.field("a") > pc.mean(t["a"]))
t.filter(pc.field("a").is_valid())
t.filter(pc.field("a").cast(pa.float64()) > 1)
pc.cast(a, options=pc.CastOptions(pa.int8()))
pc.cast(a, pa.int8())
pc.is_in(a, options=pc.SetLookupOptions(pa.array([1])))
pc.index_in(a, value_set=pa.array([1, 3]))
pc.mean(t["a"])
pc.max(a).as_py()
pc.sort_indices(t, sort_keys=[("a", "descending")])
pc.unique(s)
pc.count(a, mode="only_null")
pc.utf8_upper(s)
pc.match_substring(s, "x")
pc.replace_substring(s, "x", "z")
pc.split_pattern(s, "x")
pc.strftime(pa.array([dt.datetime(2024, 1, 1)]), format="%Y")
pc.year(pa.array([dt.datetime(2024, 1, 1)]))
pc.struct_field(structs, "x")
pc.list_element(lists, 0)
pc.list_value_length(lists)
pc.coalesce(a, pa.scalar(0))
pc.case_when(pc.make_struct(pc.greater(a, 1)), "big", "small")
pc.choose(pa.array([0, 1]), pa.array([1, 2]), pa.array([3, 4]))
pc.binary_join_element_wise(s, s, "-")
pc.cumulative_sum(a)
pc.rank(a)
pc.invert(mask)
pc.any(mask)
pc.all(mask)
pc.dictionary_encode(s)
pc.array_sort_indices(a)
pc.drop_null(a)
pc.replace_with_mask(a, mask.fill_null(False), pa.scalar(9))
write_feather(t, version=2)
write_feather(t, chunksize=2)
write_feather(t, compression="uncompressed")
structs.type.names
structs.to_pylist()
maps.to_pylist()
maps[0]
coded.type.value_type
coded.to_pandas()
coded.cast("string")
pa.StructArray.from_arrays([[1, 2]], ["x"])
pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], fields=[pa.field("x", "int64"), pa.field("y", "int64")])
pa.ListArray.from_arrays([0, 2, 3], [1, 2, 3])
pa.ListArray.from_arrays(pa.array([0, None, 3]), pa.array([1, 2, 3]))
pa.LargeListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]))
pa.FixedSizeListArray.from_arrays(np.array([1, 2, 3, 4]), 2)
pa.DictionaryArray.from_arrays([0, 1, None], ["a", "b"])
pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b"]), ordered=True).type.ordered
pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], [1, 2])
pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
pa.ListViewArray.from_arrays(pa.array([0, None], pa.int32()), pa.array([1, 1], pa.int32()), pa.array([1, 2]))
pa.Array.from_buffers(pa.int32(), 2, [None, int32_buffer])
pa.Array.from_pandas([1, None])
pa.Array.from_pandas(np.array([1.0, np.nan]))
pa.Array.from_pandas(pd.Series([1, 2]), type=pa.int8())
pa.nulls(2, type=pa.struct([("x", pa.int8())]))
pa.repeat(pa.scalar(1), 2)
pa.repeat(1, 3)
pa.infer_type([1, 2.5])
pa.infer_type([{"x": 1}])
pa.infer_type(np.array([1.0, np.nan]), from_pandas=True)
pa.infer_type([1, None], mask=np.array([True, False]))
pa.from_numpy_dtype("int8")
pa.from_numpy_dtype(np.dtype("U3"))
pa.from_numpy_dtype(np.float16)
pa.concat_tables([t, pa.table({"a": [1]})], promote_options="default")
pa.concat_tables([t, pa.table({"c": [1]})], promote_options="permissive").num_columns
pa.concat_tables([t, t]).combine_chunks()["a"].num_chunks
pa.RecordBatchReader.from_batches(t.schema, iter(t.to_batches())).read_all()
pa.RecordBatchReader.from_stream(t, schema=pa.schema([("a", "int64"), ("b", "large_string")])).read_all()
rb.to_pylist()
rb.to_pandas()
rb.rename_columns(["x", "y"])
rb.select(["a"])
rb.add_column(0, "c", [1, 2])
rb.append_column("c", pa.array([1, 2]))
rb.set_column(0, "c", [1, 2])
rb.remove_column(0)
rb.drop_columns(["a"])
rb.cast(pa.schema([("a", "float64"), ("b", "string")]))
rb.take([0])
rb.equals(rb)
rb.replace_schema_metadata({"k": "v"}).schema.metadata
rb.to_struct_array()
rb.validate()
rb.nbytes > 0
rb.num_columns
rb.column_names
rb[0]
rb["a"]
rb.columns
rb.field(0)
rb.itercolumns()
pa.RecordBatch.from_struct_array(structs)
pa.RecordBatch.from_pandas(pd.DataFrame({"a": [1]}), preserve_index=False).to_pydict()
"""


EXPRESSIONS = [
    line
    for section in (CONSTRUCTORS, TYPES, SCHEMAS, FILES, NESTED, ARRAYS, TABLES, COMPUTE, EVERYDAY)
    for line in section.strip().splitlines()
]

ELSEWHERE = {
    'rb.group_by("a")': "bs.table(batch).group_by(",
    "t.to_tensor()": "numpy.asarray(table)",
    "schema.empty_table()": "bs.table([], schema)",
    "schema.serialize()": "bs.ipc.serialize_schema(schema)",
    'pa.Schema.from_pandas(pd.DataFrame({"a": [1]}))': "bs.Table.from_pandas(frame).schema",
    "a.sum()": "bs.compute.sum(column)",
    "a.value_counts()": "bs.compute.value_counts(column)",
    "c.value_counts()": "bs.compute.value_counts(column)",
    "pa.parquet.read_table(file)": "bs.read_table and bs.write_table read and write .parquet",
    "pa.csv.read_csv(file)": "bs.read_table and bs.write_table read and write .csv",
    "pa.json.read_json(file)": "read and write .json and .jsonl",
    'pa.flight.connect("grpc://localhost")': "bs.connect",
    "pa.fs.LocalFileSystem()": "paths and URLs are sources and sinks",
    "pa.memory_map(file)": "bs.open_file(path) maps the file",
    'pa.OSFile(file, "rb")': "bs.open_file(path)",
    "pa.BufferOutputStream()": "io.BytesIO()",
    'pa.py_buffer(b"a")': "bs.open_file(file_bytes)",
    "pa.read_csv(file)": "bs.read_table(path)",
    "pa.from_pandas(None)": "bs.table(data)",
    "pa.bool8()": "it is bs.datatypes.bool8",
    "pa.is_string(pa.string())": "it is bs.types.is_string",
    "pa.sum(a)": "it is bs.compute.sum",
    "ipc.table": "it is bs.table",
    "pc.summ(a)": "did you mean 'sum'?",
    "pa.tabel": "did you mean 'table'?",
    "pa.ArrowInvalid": "bs.errors.InvalidArgumentError is a ValueError",
    "pa.Int8Array": "all arrays are bs.Array",
    "pa.TimestampType": "bs.datatypes.Timestamp",
    "pa.TimestampScalar": "bs.Scalar",
    "pa.default_memory_pool()": "memory is NumPy's",
    "pa.show_versions()": "use pyarrow.show_versions",
    "t.to_polars()": "polars.DataFrame(table)",
    "t.to_string()": "str(table)",
    "pa.int8().id": "bs.types.is_string(type)",
    "schema.add_metadata({})": "schema.with_metadata(",
    'pa.field("a", "int8").flatten()': "table.flatten()",
    "t.to_reader().cast(schema)": "batch.cast(schema)",
    "pa.total_allocated_bytes()": "get_total_buffer_size()",
    "pa.cpu_count()": "os.cpu_count()",
}
"""Expressions that Bowstring leaves to other libraries, and a part of the message with the alternative."""

BATCHES = [
    pa.record_batch({"a": pa.array(a, pa.int64()), "b": b}) for a, b in (([3, 1], ["x", "y"]), ([None, 2], ["y", "x"]))
]
TABLE = pa.Table.from_batches(BATCHES)


def namespace(library: Any, folder: Path) -> dict[str, Any]:
    """The names that the expressions use, with the modules and values of one library."""

    def import_arrow(value: Any) -> Any:
        if library is pa:
            return value
        if isinstance(value, pa.Table):
            return bs.table(value)
        return bs.record_batch(value) if isinstance(value, pa.RecordBatch) else bs.array(value)

    def write_with(create: Callable[..., Any], write: Callable[[Any], Any]) -> Any:
        sink = io.BytesIO()
        with create(sink, TABLE.schema if library is pa else bs.schema(TABLE.schema)) as writer:
            write(writer)
        open_ = pa.ipc.open_file if sink.getvalue().startswith(b"ARROW1") else pa.ipc.open_stream
        return open_(sink.getvalue()).read_all()

    def written_counts(create: Callable[..., Any]) -> Any:
        with create(io.BytesIO(), names["t"].schema) as writer:
            writer.write_table(names["t"])
        return writer.stats.num_record_batches, writer.stats.num_messages

    def read_counts(reader: Any) -> Any:
        reader.read_all()
        return reader.stats.num_record_batches

    def write_feather(frame: Any, **options: Any) -> Any:
        path = folder / "written.feather"
        names["feather"].write_feather(frame, str(path), **options)
        return pa.feather.read_table(str(path))

    sinks = {}
    for format_, create in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
        sinks[format_] = io.BytesIO()
        with create(sinks[format_], TABLE.schema) as writer:
            writer.write_table(TABLE)
    file = folder / "file.arrow"
    file.write_bytes(sinks["file"].getvalue())
    names = {
        "pa": library,
        "pc": library.compute,
        "ipc": library.ipc,
        "feather": library.feather,
        "types": library.types,
        "np": np,
        "pd": pd,
        "dt": dt,
        "decimal": decimal,
        "io": io,
        "file": str(file),
        "file_bytes": sinks["file"].getvalue(),
        "stream_bytes": sinks["stream"].getvalue(),
        "write_with": write_with,
        "written_counts": written_counts,
        "read_counts": read_counts,
        "write_feather": write_feather,
        "t": import_arrow(TABLE),
        "rb": import_arrow(BATCHES[0]),
        "schema": library.schema([("a", "int64"), ("b", "string")]),
        "foreign_field": pa.field("f", pa.int8(), nullable=False, metadata={"k": "v"}),
        "int32_buffer": pa.py_buffer(np.array([1, 2], np.int32)),
        "struct": library.struct([("x", library.int8()), ("y", library.string())]),
        "a": import_arrow(TABLE["a"].combine_chunks()),
        "s": import_arrow(TABLE["b"].combine_chunks()),
        "c": library.chunked_array([[3, 1], [None, 2]]),
        "mask": import_arrow(pa.array([True, False, True, None])),
        "lists": import_arrow(pa.array([[1, 2], None, [3]])),
        "structs": import_arrow(pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}])),
        "coded": import_arrow(pa.array(["a", "b", "a"]).dictionary_encode()),
        "maps": import_arrow(pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64()))),
    }
    return names


def comparable(value: Any) -> Any:
    """The type and the values of what an expression returns, the same for both libraries."""
    if isinstance(value, bs.Scalar | pa.Scalar):
        return comparable(value.as_py())
    if isinstance(value, pd.DataFrame):
        return [comparable(value[name]) for name in value]
    if isinstance(value, np.ndarray | pd.Series):
        return str(value.dtype), str(value.tolist())
    if hasattr(value, "__arrow_c_stream__") and hasattr(value, "schema"):
        table = pa.table(value)
        return comparable(table.schema), repr(table.to_pylist())
    if hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__"):
        array = pa.chunked_array(value) if hasattr(value, "__arrow_c_stream__") else pa.array(value)
        return str(array.type), repr(array.to_pylist())
    if isinstance(value, bs.Schema | pa.Schema):
        return list(map(comparable, value)), value.metadata or None
    if isinstance(value, bs.Field | pa.Field):
        return value.name, comparable(value.type), value.nullable, value.metadata or None
    if hasattr(value, "__arrow_c_schema__"):
        return str(pa.field(value).type)
    if isinstance(value, list | tuple | Iterator):
        return list(map(comparable, value))
    return value


@pytest.fixture(scope="module")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {library.__name__: namespace(library, tmp_path_factory.mktemp(library.__name__)) for library in (pa, bs)}


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_an_expression_gives_the_same_as_with_pyarrow(line: str, namespaces: dict[str, dict[str, Any]]) -> None:
    expression, _, in_pyarrow = line.partition(" | ")
    value = eval(expression, namespaces["bowstring"])
    expected = eval(in_pyarrow or expression, namespaces["pyarrow"])
    assert comparable(value) == comparable(expected)
    assert comparable(value) is not NotImplemented


@pytest.mark.parametrize("expression", ELSEWHERE)
def test_a_name_of_pyarrow_that_is_missing_names_the_way(
    expression: str, namespaces: dict[str, dict[str, Any]]
) -> None:
    with pytest.raises(AttributeError) as error:
        eval(expression, namespaces["bowstring"])
    assert ELSEWHERE[expression] in str(error.value)


def test_every_public_name_of_pyarrow_exists_or_is_explained() -> None:
    names = [name for name in dir(pa) if not name.startswith("_") and not hasattr(bs, name)]
    assert len(names) > 200
    for name in names:
        with pytest.raises(AttributeError, match=f"'bowstring' has no attribute '{name}': "):
            getattr(bs, name)


def test_names_that_only_tools_look_for_are_not_explained() -> None:
    with pytest.raises(AttributeError, match=r"'bowstring' has no attribute '__wrapped__'$"):
        bs.__wrapped__  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'bowstring' has no attribute 'zzz'$"):
        bs.zzz  # type: ignore[attr-defined]  # noqa: B018


def test_the_missing_names_are_not_attributes_and_do_not_slow_down_the_others() -> None:
    table = bs.table({"city": ["Riga"]})
    for value in (table, table.to_batches()[0], table["city"], table["city"].chunk(0), table.schema):
        missing = ALTERNATIVES[next(each.__name__ for each in type(value).mro() if each.__name__ in ALTERNATIVES)]
        names = [name for name in missing if not hasattr(value, name)]
        assert names
        assert set(names).isdisjoint(dir(value))
        assert {"to_pylist", "to_string"} & set(dir(value))
        assert not hasattr(type(value), "__getattr__")  # Python 3.11 does not specialize the attributes of such classes


def test_at_least_nine_of_ten_expressions_work() -> None:
    assert len(EXPRESSIONS) / (len(EXPRESSIONS) + len(ELSEWHERE)) > 0.9
