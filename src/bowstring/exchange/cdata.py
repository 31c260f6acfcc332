"""Handing Arrow data to another library of this process, and taking theirs («The Arrow PyCapsule Interface»).

Nothing is copied. What goes out is a capsule (or two) over a C structure; the memory stays until the consumer, or the
capsule, releases it. What comes in is any object with `__arrow_c_schema__`, `__arrow_c_array__` or `__arrow_c_stream__`
(pyarrow, polars, duckdb, pandas, nanoarrow …), or their capsules themselves; its memory is released with the last array
or NumPy view that looks at it.

A structure from elsewhere is checked as far as it can be: its format, counts and null pointers, and offsets where they
say how long a buffer is. That a pointer leads to memory, and to as much of it as it should, only its producer knows.
The values are not looked at: `validate(full=True)` does that.

A requested schema asks for another representation of the same data; the arrays go out as they are whatever is asked
for, as the protocol allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bowstring.datatypes.field import Field, Schema
from bowstring.datatypes.types import DataType
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.exchange import abi
from bowstring.exchange.arrays import array_block, batch_block, take_array
from bowstring.exchange.schemas import as_field, as_schema, read_field, schema_block
from bowstring.exchange.streams import ArrayStream, stream_block
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.chunked import ChunkedArray
from bowstring.tabular.table import Table

# Out


def export_type(type: DataType) -> object:
    """A capsule "arrow_schema" of a data type; raises `UnsupportedTypeError` for what C structures cannot say."""
    return export_field(Field("", type))


def export_field(field: Field) -> object:
    """A capsule "arrow_schema" of a field, with its name, nullability and custom metadata."""
    return abi.capsule(abi.SCHEMA_CAPSULE, schema_block(field))


def export_schema(schema: Schema) -> object:
    """A capsule "arrow_schema" of a schema: a struct of its fields, with the schema's custom metadata."""
    return export_field(as_field(schema))


def export_array(array: Array) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_array" of an array; nothing is copied."""
    return export_type(array.type), abi.capsule(abi.ARRAY_CAPSULE, array_block(array))


def export_batch(batch: RecordBatch) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_array" of a record batch, which is a struct to them; nothing is copied."""
    return export_schema(batch.schema), abi.capsule(abi.ARRAY_CAPSULE, _block_of(batch, batch.schema))


def export_stream(schema: Schema, batches: Iterable[RecordBatch]) -> object:
    """A capsule "arrow_array_stream" of record batches, each asked for when the consumer wants it; nothing is copied.

    An exception of `batches` reaches the consumer as the stream's last error, and so does a batch of another schema.
    """
    blocks = (_block_of(batch, schema) for batch in batches)
    return abi.capsule(abi.STREAM_CAPSULE, stream_block(as_field(schema), blocks))


def export_chunked(chunked: ChunkedArray) -> object:
    """A capsule "arrow_array_stream" of the chunks of a column; nothing is copied."""
    return abi.capsule(abi.STREAM_CAPSULE, stream_block(Field("", chunked.type), map(array_block, chunked.chunks)))


def _block_of(batch: RecordBatch, schema: Schema) -> abi.Block:
    """The structure of a batch that goes out as one of `schema`: a consumer believes what that says."""
    if batch.num_columns != len(schema):
        raise InvalidDataError(f"a record batch has {batch.num_columns} columns, the schema has {len(schema)}")
    columns = batch.columns
    for field, column in zip(schema.fields, columns, strict=True):
        if column.length != batch.num_rows or (column.type is not field.type and column.type != field.type):
            found, expected = f"{column.type}[{column.length}]", f"{field.type}[{batch.num_rows}]"
            raise InvalidDataError(f"column {field.name!r} of a record batch is {found}, not {expected}")
    return batch_block(batch.num_rows, columns)


# In


def import_field(source: object) -> Field:
    """The field behind an object with `__arrow_c_schema__` or a capsule "arrow_schema".

    Raises `DataTypeError` for any other object, `InvalidDataError` or one of its kinds for what is not well formed.
    """
    held = source.__arrow_c_schema__() if hasattr(source, "__arrow_c_schema__") else source
    return read_field(abi.pointer(held, abi.SCHEMA_CAPSULE))


def import_type(source: object) -> DataType:
    """The data type behind an object with `__arrow_c_schema__` or a capsule; errors as `import_field`."""
    return import_field(source).type


def import_schema(source: object) -> Schema:
    """The schema behind an object with `__arrow_c_schema__` or a capsule; errors as `import_field`."""
    return as_schema(import_field(source))


def import_array(source: object) -> Array:
    """The array behind an object with `__arrow_c_array__`, or a pair of its capsules; nothing is copied.

    A source that only has `__arrow_c_stream__` (a chunked array, a polars series) gives its chunks joined, which copies
    if there are several. Raises `DataTypeError` for any other object, `InvalidDataError` or one of its kinds for what
    is not well formed.
    """
    if hasattr(source, "__arrow_c_array__") or isinstance(source, tuple):
        return _take(source)[1]
    chunked = import_chunked(source)
    chunks = chunked.chunks
    if len(chunks) == 1:
        return chunks[0]
    layout = layout_of(chunked.type)
    return layout.concat(chunks) if chunks else layout.build([])


def import_batch(source: object) -> RecordBatch:
    """The record batch behind an object with `__arrow_c_array__`, or a pair of its capsules; nothing is copied.

    Raises `InvalidDataError` where the source is no struct, or has null rows; else as `import_array`.
    """
    field, array = _take(source)
    return _as_batch(as_schema(field), array)


def import_stream(source: object) -> tuple[Schema, Iterator[RecordBatch]]:
    """The schema and the record batches behind an object with `__arrow_c_stream__`, or its capsule; nothing is copied.

    The batches come as they are asked for. A failing producer raises `InvalidDataError` (`ResourceError` where it is
    short of memory) with its own words.
    """
    stream = _stream(source)
    try:
        schema = as_schema(stream.field)
    except InvalidDataError:
        stream.close()
        raise
    return schema, (_as_batch(schema, array) for array in stream)


def import_table(source: object) -> Table:
    """The table behind an object with `__arrow_c_stream__` or `__arrow_c_array__`, or a capsule; nothing is copied."""
    if hasattr(source, "__arrow_c_array__") and not hasattr(source, "__arrow_c_stream__"):
        batch = import_batch(source)
        return Table(batch.schema, [batch])
    schema, batches = import_stream(source)
    return Table(schema, list(batches))


def import_chunked(source: object) -> ChunkedArray:
    """The arrays of one type behind an object with `__arrow_c_stream__`, or its capsule; nothing is copied."""
    with _stream(source) as stream:
        return ChunkedArray(list(stream), stream.field.type)


def _take(source: Any) -> tuple[Field, Array]:
    pair = source.__arrow_c_array__() if hasattr(source, "__arrow_c_array__") else source
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise DataTypeError(f"expected an object with __arrow_c_array__ or two capsules, not {type(source).__name__}")
    schema_capsule, array_capsule = pair
    address = abi.pointer(array_capsule, abi.ARRAY_CAPSULE)
    field = read_field(abi.pointer(schema_capsule, abi.SCHEMA_CAPSULE))
    return field, take_array(address, layout_of(field.type))


def _stream(source: Any) -> ArrayStream:
    held = source.__arrow_c_stream__() if hasattr(source, "__arrow_c_stream__") else source
    return ArrayStream(abi.pointer(held, abi.STREAM_CAPSULE))


def _as_batch(schema: Schema, array: Array) -> RecordBatch:
    if array.null_count:
        raise InvalidDataError(
            f"{array.null_count} rows of a record batch are null: rows have no validity of their own"
        )
    columns = array.children
    if any(column.length != array.length for column in columns):
        columns = tuple(column.slice(array.offset, array.length) for column in columns)
    return RecordBatch(schema, array.length, columns)
