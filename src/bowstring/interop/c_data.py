"""Handing Arrow data to another library of this process, and taking theirs («The Arrow PyCapsule Interface»).

Nothing is copied. What goes out is a capsule (or two) over a C structure; the memory stays until the consumer, or the
capsule, releases it. What comes in is any object with `__arrow_c_schema__`, `__arrow_c_array__`, `__arrow_c_stream__`
or their counterparts for devices (pyarrow, polars, duckdb, pandas, nanoarrow …), or their capsules themselves; its
memory is released with the last array or NumPy view that looks at it.

A structure from elsewhere is checked as far as it can be: its format, counts and null pointers, and offsets where they
say how long a buffer is. That a pointer leads to memory, and to as much of it as it should, only its producer knows.
The values are not looked at: `validate(full=True)` does that.

The C device interface carries the same structures with a word about where their buffers are: ours are on the CPU.

A requested schema asks for another representation of the same data (`bowstring.interop.requested_schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.field import Field, Schema
from bowstring.datatypes.types import DataType
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.interop import c_abi, c_device, requested_schema
from bowstring.interop.c_array import array_block, batch_block, take_array
from bowstring.interop.c_schema import as_field, as_schema, read_field, schema_block
from bowstring.interop.c_stream import ArrayStream, stream_block
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of

Options: TypeAlias = Mapping[str, object]
NO_OPTIONS: Options = MappingProxyType({})

# Out


def export_type(type: DataType) -> object:
    """A capsule "arrow_schema" of a data type; raises `UnsupportedTypeError` for what C structures cannot say."""
    return export_field(Field("", type))


def export_field(field: Field) -> object:
    """A capsule "arrow_schema" of a field, with its name, nullability and custom metadata."""
    return c_abi.capsule(c_abi.SCHEMA_CAPSULE, schema_block(field))


def export_schema(schema: Schema) -> object:
    """A capsule "arrow_schema" of a schema: a struct of its fields, with the schema's custom metadata."""
    return export_field(as_field(schema))


def export_array(array: Array, requested: object = None) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_array" of an array; nothing is copied unless another layout is requested.

    Raises `DataTypeError` where a struct of other fields is requested.
    """
    array = requested_schema.fitted_array(array, requested)
    return export_type(array.type), c_abi.capsule(c_abi.ARRAY_CAPSULE, array_block(array))


def export_device_array(array: Array, requested: object = None, options: Options = NO_OPTIONS) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_device_array" of an array, as `export_array`.

    Raises `NotImplementedError` for an option that is not None: the protocol has none yet.
    """
    _refuse(options)
    array = requested_schema.fitted_array(array, requested)
    return export_type(array.type), _device_capsule(array_block(array))


def export_batch(batch: RecordBatch, requested: object = None) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_array" of a record batch, which is a struct to them; as `export_array`."""
    schema, batch = _fitted(batch, requested)
    return export_schema(schema), c_abi.capsule(c_abi.ARRAY_CAPSULE, _block_of(batch, schema))


def export_device_batch(
    batch: RecordBatch, requested: object = None, options: Options = NO_OPTIONS
) -> tuple[object, object]:
    """The capsules "arrow_schema" and "arrow_device_array" of a record batch, as `export_device_array`."""
    _refuse(options)
    schema, batch = _fitted(batch, requested)
    return export_schema(schema), _device_capsule(_block_of(batch, schema))


def export_stream(schema: Schema, batches: Iterable[RecordBatch], requested: object = None) -> object:
    """A capsule "arrow_array_stream" of record batches, each asked for when the consumer wants it; nothing is copied.

    An exception of `batches` reaches the consumer as the stream's last error, and so does a batch of another schema.
    Where a schema is requested, all batches are asked for at once, to see whether it can be granted.
    """
    schema, batches = requested_schema.fitted_batches(schema, batches, requested)
    blocks = (_block_of(batch, schema) for batch in batches)
    return c_abi.capsule(c_abi.STREAM_CAPSULE, stream_block(as_field(schema), blocks))


def export_device_stream(
    schema: Schema, batches: Iterable[RecordBatch], requested: object = None, options: Options = NO_OPTIONS
) -> object:
    """A capsule "arrow_device_array_stream" of record batches, as `export_stream` and `export_device_array`."""
    _refuse(options)
    schema, batches = requested_schema.fitted_batches(schema, batches, requested)
    blocks = (_block_of(batch, schema) for batch in batches)
    return c_abi.capsule(c_abi.DEVICE_STREAM_CAPSULE, stream_block(as_field(schema), blocks, on_device=True))


def export_chunked(chunked: ChunkedArray, requested: object = None) -> object:
    """A capsule "arrow_array_stream" of the chunks of a column; as `export_array`."""
    chunks, type_ = requested_schema.fitted_chunks(chunked.chunks, chunked.type, requested)
    return c_abi.capsule(c_abi.STREAM_CAPSULE, stream_block(Field("", type_), map(array_block, chunks)))


def export_device_chunked(chunked: ChunkedArray, requested: object = None, options: Options = NO_OPTIONS) -> object:
    """A capsule "arrow_device_array_stream" of the chunks of a column, as `export_device_array`."""
    _refuse(options)
    chunks, type_ = requested_schema.fitted_chunks(chunked.chunks, chunked.type, requested)
    block = stream_block(Field("", type_), map(array_block, chunks), on_device=True)
    return c_abi.capsule(c_abi.DEVICE_STREAM_CAPSULE, block)


def _refuse(options: Options) -> None:
    """«Device Support»: keywords of later versions are accepted as long as they say nothing."""
    unknown = sorted(name for name, value in options.items() if value is not None)
    if unknown:
        raise NotImplementedError(f"these options of the device interface are not known: {unknown}")


def _device_capsule(block: c_abi.Block) -> object:
    return c_abi.capsule(c_abi.DEVICE_ARRAY_CAPSULE, c_device.on_cpu(block))


def _fitted(batch: RecordBatch, requested: object) -> tuple[Schema, RecordBatch]:
    schema, batches = requested_schema.fitted_batches(batch.schema, [batch], requested)
    return schema, next(iter(batches))


def _block_of(batch: RecordBatch, schema: Schema) -> c_abi.Block:
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
    return read_field(c_abi.pointer(held, c_abi.SCHEMA_CAPSULE))


def import_type(source: object) -> DataType:
    """The data type behind an object with `__arrow_c_schema__` or a capsule; errors as `import_field`."""
    return import_field(source).type


def import_schema(source: object) -> Schema:
    """The schema behind an object with `__arrow_c_schema__` or a capsule; errors as `import_field`."""
    return as_schema(import_field(source))


def import_array(source: object) -> Array:
    """The array behind an object with `__arrow_c_array__` or `__arrow_c_device_array__`, or a pair of their capsules;
    nothing is copied.

    A source that only gives a stream (a chunked array, a polars series) gives its chunks joined, which copies if there
    are several. Raises `DataTypeError` for any other object, `InvalidDataError` or one of its kinds for what is not
    well formed, `UnsupportedError` where the data is on a device whose memory the processor does not read.
    """
    if has_c_array(source) or isinstance(source, tuple):
        return _take(source)[1]
    return import_chunked(source).combine_chunks()


def import_batch(source: object) -> RecordBatch:
    """The record batch behind an object as `import_array` takes them, or a pair of capsules; nothing is copied.

    Raises `InvalidDataError` where the source is no struct, or has null rows; else as `import_array`.
    """
    field, array = _take(source)
    return _as_batch(as_schema(field), array)


def import_stream(source: object) -> tuple[Schema, Iterator[RecordBatch]]:
    """The schema and the record batches behind an object with `__arrow_c_stream__` or `__arrow_c_device_stream__`, or
    their capsule; nothing is copied.

    The batches come as they are asked for. A failing producer raises `InvalidDataError` (`ResourceError` where it is
    short of memory) with its own words, a device whose memory the processor does not read `UnsupportedError`.
    """
    stream = _stream(source)
    try:
        schema = as_schema(stream.field)
    except InvalidDataError:
        stream.close()
        raise
    return schema, (_as_batch(schema, array) for array in stream)


def import_table(source: object) -> Table:
    """The table behind an object that gives a stream or an array of structs, or a capsule; nothing is copied."""
    if has_c_array(source) and not has_c_stream(source):
        batch = import_batch(source)
        return Table(batch.schema, [batch])
    schema, batches = import_stream(source)
    return Table(schema, list(batches))


def import_chunked(source: object) -> ChunkedArray:
    """The arrays of one type behind an object that gives a stream, or its capsule; nothing is copied."""
    with _stream(source) as stream:
        return ChunkedArray(list(stream), stream.field.type)


def has_c_array(source: object) -> bool:
    """Whether an object hands out arrays, of the CPU or of a device it names."""
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_device_array__")


def has_c_stream(source: object) -> bool:
    """Whether an object hands out streams of arrays, of the CPU or of a device it names."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_device_stream__")


def _take(source: Any) -> tuple[Field, Array]:
    pair = source
    if hasattr(source, "__arrow_c_array__"):
        pair = source.__arrow_c_array__()
    elif hasattr(source, "__arrow_c_device_array__"):
        pair = source.__arrow_c_device_array__()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise DataTypeError(f"expected an object with __arrow_c_array__ or two capsules, not {type(source).__name__}")
    schema_capsule, array_capsule = pair
    on_device = c_abi.is_capsule(array_capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    address = c_abi.pointer(array_capsule, c_abi.DEVICE_ARRAY_CAPSULE if on_device else c_abi.ARRAY_CAPSULE)
    field = read_field(c_abi.pointer(schema_capsule, c_abi.SCHEMA_CAPSULE))
    return field, take_array(address, layout_of(field.type), on_device)


def _stream(source: Any) -> ArrayStream:
    held = source
    if hasattr(source, "__arrow_c_stream__"):
        held = source.__arrow_c_stream__()
    elif hasattr(source, "__arrow_c_device_stream__"):
        held = source.__arrow_c_device_stream__()
    if c_abi.is_capsule(held, c_abi.DEVICE_STREAM_CAPSULE):
        return ArrayStream(c_abi.pointer(held, c_abi.DEVICE_STREAM_CAPSULE), on_device=True)
    return ArrayStream(c_abi.pointer(held, c_abi.STREAM_CAPSULE))


def _as_batch(schema: Schema, array: Array) -> RecordBatch:
    if array.null_count:
        raise InvalidDataError(
            f"{array.null_count} rows of a record batch are null: rows have no validity of their own"
        )
    columns = array.children
    if any(column.length != array.length for column in columns):
        columns = tuple(column.slice(array.offset, array.length) for column in columns)
    return RecordBatch(schema, array.length, columns)
