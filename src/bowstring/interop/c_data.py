"""Export and import of Arrow data to and from other libraries in the same process («The Arrow PyCapsule Interface»).

Nothing is copied. An export is one or two capsules over a C structure; the memory stays alive until the consumer or the
capsule releases it. Imports accept any object with `__arrow_c_schema__`, `__arrow_c_array__`, `__arrow_c_stream__` or
the device variants (pyarrow, polars, duckdb, pandas, nanoarrow …), or the capsules themselves; the memory is released
with the last array or NumPy view over it.

Imported structures are checked as far as possible: formats, counts, null pointers, and the offsets that determine the
length of a buffer. That a pointer is valid and its buffer long enough can't be checked. Values are checked only by
`validate(full=True)`.

The C device interface adds the device type to the same structures. Exports are always on the CPU.

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
from bowstring.interop.c_array import build_array_block, build_batch_block, move_array
from bowstring.interop.c_schema import build_field_block, field_from_schema, read_field, schema_from_field
from bowstring.interop.c_stream import ArrayStream, build_stream_block
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of

Options: TypeAlias = Mapping[str, object]
NO_OPTIONS: Options = MappingProxyType({})

# Export


def export_type(type: DataType) -> object:
    """Return an "arrow_schema" capsule of a data type.

    Raises `UnsupportedTypeError` if the C data interface has no such type.
    """
    return export_field(Field("", type))


def export_field(field: Field) -> object:
    """Return an "arrow_schema" capsule of a field, with its name, nullability and custom metadata."""
    return c_abi.new_capsule(c_abi.SCHEMA_CAPSULE, build_field_block(field))


def export_schema(schema: Schema) -> object:
    """Return an "arrow_schema" capsule of a schema: a struct of its fields, with the schema's custom metadata."""
    return export_field(field_from_schema(schema))


def export_array(array: Array, requested: object = None) -> tuple[object, object]:
    """Return the "arrow_schema" and "arrow_array" capsules of an array. Copies only to convert to a requested type.

    Raises `DataTypeError` if a struct with other fields is requested.
    """
    array = requested_schema.convert_array(array, requested)
    return export_type(array.type), c_abi.new_capsule(c_abi.ARRAY_CAPSULE, build_array_block(array))


def export_device_array(array: Array, requested: object = None, options: Options = NO_OPTIONS) -> tuple[object, object]:
    """Return the "arrow_schema" and "arrow_device_array" capsules of an array, as `export_array`.

    Raises `NotImplementedError` for any option that is not None: the protocol defines none yet.
    """
    _check_options(options)
    array = requested_schema.convert_array(array, requested)
    return export_type(array.type), _new_device_capsule(build_array_block(array))


def export_batch(batch: RecordBatch, requested: object = None) -> tuple[object, object]:
    """Return the "arrow_schema" and "arrow_array" capsules of a record batch as a struct array, as `export_array`."""
    schema, batch = _convert_batch(batch, requested)
    return export_schema(schema), c_abi.new_capsule(c_abi.ARRAY_CAPSULE, _build_batch_block(batch, schema))


def export_device_batch(
    batch: RecordBatch, requested: object = None, options: Options = NO_OPTIONS
) -> tuple[object, object]:
    """Return the "arrow_schema" and "arrow_device_array" capsules of a record batch, as `export_device_array`."""
    _check_options(options)
    schema, batch = _convert_batch(batch, requested)
    return export_schema(schema), _new_device_capsule(_build_batch_block(batch, schema))


def export_stream(schema: Schema, batches: Iterable[RecordBatch], requested: object = None) -> object:
    """Return an "arrow_array_stream" capsule of record batches, pulled one at a time. Nothing is copied.

    An exception raised by `batches`, or a batch with another schema, becomes the stream's last error. If a schema is
    requested, all batches are read at once, to find out whether they can be converted.
    """
    schema, batches = requested_schema.convert_batches(schema, batches, requested)
    blocks = (_build_batch_block(batch, schema) for batch in batches)
    return c_abi.new_capsule(c_abi.STREAM_CAPSULE, build_stream_block(field_from_schema(schema), blocks))


def export_device_stream(
    schema: Schema, batches: Iterable[RecordBatch], requested: object = None, options: Options = NO_OPTIONS
) -> object:
    """Return an "arrow_device_array_stream" capsule of batches, as `export_stream` and `export_device_array`."""
    _check_options(options)
    schema, batches = requested_schema.convert_batches(schema, batches, requested)
    blocks = (_build_batch_block(batch, schema) for batch in batches)
    return c_abi.new_capsule(
        c_abi.DEVICE_STREAM_CAPSULE, build_stream_block(field_from_schema(schema), blocks, on_device=True)
    )


def export_chunked(chunked: ChunkedArray, requested: object = None) -> object:
    """Return an "arrow_array_stream" capsule of the chunks of a chunked array, as `export_array`."""
    chunks, type_ = requested_schema.convert_chunks(chunked.chunks, chunked.type, requested)
    return c_abi.new_capsule(c_abi.STREAM_CAPSULE, build_stream_block(Field("", type_), map(build_array_block, chunks)))


def export_device_chunked(chunked: ChunkedArray, requested: object = None, options: Options = NO_OPTIONS) -> object:
    """Return an "arrow_device_array_stream" capsule of the chunks of a chunked array, as `export_device_array`."""
    _check_options(options)
    chunks, type_ = requested_schema.convert_chunks(chunked.chunks, chunked.type, requested)
    block = build_stream_block(Field("", type_), map(build_array_block, chunks), on_device=True)
    return c_abi.new_capsule(c_abi.DEVICE_STREAM_CAPSULE, block)


def _check_options(options: Options) -> None:
    """«Device Support»: options of later versions are accepted if they are None."""
    unsupported = sorted(name for name, value in options.items() if value is not None)
    if unsupported:
        raise NotImplementedError(f"options of the device interface that are not supported: {unsupported}")


def _new_device_capsule(block: c_abi.Block) -> object:
    return c_abi.new_capsule(c_abi.DEVICE_ARRAY_CAPSULE, c_device.to_device_array(block))


def _convert_batch(batch: RecordBatch, requested: object) -> tuple[Schema, RecordBatch]:
    schema, batches = requested_schema.convert_batches(batch.schema, [batch], requested)
    return schema, next(iter(batches))


def _build_batch_block(batch: RecordBatch, schema: Schema) -> c_abi.Block:
    """Return the block of a batch after checking it against the schema of its stream, which consumers rely on."""
    if batch.num_columns != len(schema):
        raise InvalidDataError(f"a record batch has {batch.num_columns} columns, the schema has {len(schema)}")
    columns = batch.columns
    for field, column in zip(schema.fields, columns, strict=True):
        if column.length != batch.num_rows or (column.type is not field.type and column.type != field.type):
            expected, actual = f"{field.type}[{batch.num_rows}]", f"{column.type}[{column.length}]"
            raise InvalidDataError(f"column {field.name!r} of a record batch: expected {expected}, found {actual}")
    return build_batch_block(batch.num_rows, columns)


# Import


def import_field(source: object) -> Field:
    """Import a field from an object with `__arrow_c_schema__` or an "arrow_schema" capsule.

    Raises `DataTypeError` for any other object, `InvalidDataError` or a subclass for a malformed structure.
    """
    capsule = source.__arrow_c_schema__() if hasattr(source, "__arrow_c_schema__") else source
    return read_field(c_abi.capsule_pointer(capsule, c_abi.SCHEMA_CAPSULE))


def import_type(source: object) -> DataType:
    """Import a data type from an object with `__arrow_c_schema__` or a capsule. Raises as `import_field`."""
    return import_field(source).type


def import_schema(source: object) -> Schema:
    """Import a schema from an object with `__arrow_c_schema__` or a capsule. Raises as `import_field`."""
    return schema_from_field(import_field(source))


def import_array(source: object) -> Array:
    """Import an array from an object with `__arrow_c_array__` or `__arrow_c_device_array__`, or a pair of their
    capsules, without copying.

    The chunks of a source that exports only a stream (a chunked array, a polars series) are concatenated, which copies
    if there are several. Raises `DataTypeError` for any other object, `InvalidDataError` or a subclass for a malformed
    structure, `UnsupportedError` for data on a device whose memory the CPU can't read.
    """
    if has_c_array(source) or isinstance(source, tuple):
        return _import_array(source)[1]
    return import_chunked(source).combine_chunks()


def import_batch(source: object) -> RecordBatch:
    """Import a record batch from a struct array, without copying. Accepts the sources of `import_array` except streams.

    Raises `InvalidDataError` if the array is not a struct or has null rows; otherwise as `import_array`.
    """
    field, array = _import_array(source)
    return _as_batch(schema_from_field(field), array)


def import_stream(source: object) -> tuple[Schema, Iterator[RecordBatch]]:
    """Import the schema and record batches of an object with `__arrow_c_stream__` or `__arrow_c_device_stream__`, or of
    their capsule, without copying.

    Batches are pulled one at a time. If the producer fails, its message is raised as `InvalidDataError`, or as
    `ResourceError` if it ran out of memory. Raises `UnsupportedError` for a device whose memory the CPU can't read.
    """
    stream = _open_stream(source)
    try:
        schema = schema_from_field(stream.field)
    except InvalidDataError:
        stream.close()
        raise
    return schema, (_as_batch(schema, array) for array in stream)


def import_table(source: object) -> Table:
    """Import a table from an object that exports a stream or a struct array, or from a capsule, without copying."""
    if has_c_array(source) and not has_c_stream(source):
        batch = import_batch(source)
        return Table(batch.schema, [batch])
    schema, batches = import_stream(source)
    return Table(schema, list(batches))


def import_chunked(source: object) -> ChunkedArray:
    """Import a chunked array from an object that exports a stream, or from its capsule, without copying."""
    with _open_stream(source) as stream:
        return ChunkedArray(list(stream), stream.field.type)


def has_c_array(source: object) -> bool:
    """Whether an object has `__arrow_c_array__` or `__arrow_c_device_array__`."""
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_device_array__")


def has_c_stream(source: object) -> bool:
    """Whether an object has `__arrow_c_stream__` or `__arrow_c_device_stream__`."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_device_stream__")


def _import_array(source: Any) -> tuple[Field, Array]:
    pair = source
    if hasattr(source, "__arrow_c_array__"):
        pair = source.__arrow_c_array__()
    elif hasattr(source, "__arrow_c_device_array__"):
        pair = source.__arrow_c_device_array__()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise DataTypeError(f"expected an object with __arrow_c_array__ or two capsules, found {type(source).__name__}")
    schema_capsule, array_capsule = pair
    is_device_array = c_abi.is_capsule(array_capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    address = c_abi.capsule_pointer(
        array_capsule, c_abi.DEVICE_ARRAY_CAPSULE if is_device_array else c_abi.ARRAY_CAPSULE
    )
    field = read_field(c_abi.capsule_pointer(schema_capsule, c_abi.SCHEMA_CAPSULE))
    return field, move_array(address, layout_of(field.type), is_device_array)


def _open_stream(source: Any) -> ArrayStream:
    capsule = source
    if hasattr(source, "__arrow_c_stream__"):
        capsule = source.__arrow_c_stream__()
    elif hasattr(source, "__arrow_c_device_stream__"):
        capsule = source.__arrow_c_device_stream__()
    if c_abi.is_capsule(capsule, c_abi.DEVICE_STREAM_CAPSULE):
        return ArrayStream(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE), on_device=True)
    return ArrayStream(c_abi.capsule_pointer(capsule, c_abi.STREAM_CAPSULE))


def _as_batch(schema: Schema, array: Array) -> RecordBatch:
    if array.null_count:
        raise InvalidDataError(
            f"{array.null_count} of {array.length} rows of a record batch are null: record batches have no validity"
        )
    columns = array.children
    if any(column.length != array.length for column in columns):
        columns = tuple(column.slice(array.offset, array.length) for column in columns)
    return RecordBatch(schema, array.length, columns)
