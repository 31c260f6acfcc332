"""Export and import of Arrow data to and from other libraries in the same process («The Arrow PyCapsule Interface»).

Nothing is copied. An export is one or two capsules over a C structure; the memory stays alive until the consumer or the
capsule releases it. Imports accept any object with `__arrow_c_schema__`, `__arrow_c_array__`, `__arrow_c_stream__` or
the device variants (pyarrow, polars, duckdb, pandas, nanoarrow …), or the capsules themselves; the memory is released
with the last array or NumPy view over it.

Imported structures are checked as far as possible: formats, counts, null pointers, and the offsets that determine the
length of a buffer. That a pointer is valid and its buffer long enough can't be checked. Values are checked only by
`validate(full=True)`.

The C device interface adds the device type to the same structures. Arrays and record batches in memory of a device are
exported there; streams are always on the CPU.

A requested schema asks for another representation of the same data (`bowstring.interop.requested_schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.c_schema import read_field
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, field_from_schema, schema_from_field
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.interop import c_device, requested_schema
from bowstring.interop.c_array import (
    AbstractRecordBatch,
    ColumnarBatch,
    build_array_block,
    build_batch_block,
    import_array_struct,
)
from bowstring.interop.c_stream import ImportedArrayStream, build_stream_block
from bowstring.interop.device_arrays import device_of
from bowstring.kernels.chunked_array_data import ChunkedArrayData
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi
from bowstring.memory.device import Device


class SupportsArrowArray(Protocol):
    """A record batch or an array of another library."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return a schema capsule and an array capsule."""


class SupportsArrowStream(Protocol):
    """A table, a reader or a chunked array of another library."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream capsule."""


DeviceOptions: TypeAlias = Mapping[str, object] | None
"""The keyword arguments of a method of the C device interface; None for the C data interface."""

# Export


def export_array(
    array: ArrayData, requested: object = None, device_options: DeviceOptions = None
) -> tuple[object, object]:
    """Return the "arrow_schema" and "arrow_array" capsules of an array, or with `device_options` an
    "arrow_device_array" capsule. Copies only to convert to a requested type.

    Raises `TypeMismatchError` if a struct with other fields is requested, and `NotImplementedError` for any device
    option that is not None: the protocol defines none yet.
    """
    _check_device_options(device_options)
    array = requested_schema.convert_array(array, requested)
    if device_options is None:
        return array.type.__arrow_c_schema__(), c_abi.new_capsule(c_abi.ARRAY_CAPSULE, build_array_block(array))
    device = device_of([array])
    return array.type.__arrow_c_schema__(), _new_device_capsule(build_array_block(array, device), device)


def export_batch(
    schema: Schema, batch: AbstractRecordBatch, requested: object = None, device_options: DeviceOptions = None
) -> tuple[object, object]:
    """Return the capsules of a record batch as a struct array, as `export_array`."""
    _check_device_options(device_options)
    schema, batches = requested_schema.convert_batches(schema, [batch], requested)
    exported_batch = next(iter(batches))
    if device_options is None:
        block = _build_checked_batch_block(exported_batch, schema)
        return schema.__arrow_c_schema__(), c_abi.new_capsule(c_abi.ARRAY_CAPSULE, block)
    device = device_of(exported_batch.columns)
    return schema.__arrow_c_schema__(), _new_device_capsule(
        _build_checked_batch_block(exported_batch, schema, device), device
    )


def export_stream(
    schema: Schema,
    batches: Iterable[AbstractRecordBatch],
    requested: object = None,
    device_options: DeviceOptions = None,
) -> object:
    """Return an "arrow_array_stream" capsule of record batches, pulled one at a time, or with `device_options` an
    "arrow_device_array_stream" capsule. Nothing is copied.

    An exception raised by `batches`, or a batch with another schema, becomes the stream's last error. If a schema is
    requested, all batches are read at once, to find out whether they can be converted. Raises as `export_array`.
    """
    _check_device_options(device_options)
    schema, batches = requested_schema.convert_batches(schema, batches, requested)
    blocks = (_build_checked_batch_block(batch, schema) for batch in batches)
    return _new_stream_capsule(field_from_schema(schema), blocks, device_options)


def export_chunked_array(
    chunked: ChunkedArrayData, requested: object = None, device_options: DeviceOptions = None
) -> object:
    """Return the capsule of a stream of the chunks of a chunked array, as `export_stream`."""
    _check_device_options(device_options)
    chunks, type_ = requested_schema.convert_chunks(chunked.chunks, chunked.type, requested)
    return _new_stream_capsule(Field("", type_), map(build_array_block, chunks), device_options)


class StreamExporter:
    """The capsule of a stream for libraries that import only objects with `__arrow_c_stream__`, once."""

    __slots__ = ("_capsule",)

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._capsule


def _new_device_capsule(block: c_abi.ExportedStructBlock, device: Device | None) -> object:
    return c_abi.new_capsule(c_abi.DEVICE_ARRAY_CAPSULE, c_device.to_device_array(block, device))


def _new_stream_capsule(
    field: Field, blocks: Iterable[c_abi.ExportedStructBlock], device_options: DeviceOptions
) -> object:
    if device_options is None:
        return c_abi.new_capsule(c_abi.STREAM_CAPSULE, build_stream_block(field, blocks))
    return c_abi.new_capsule(c_abi.DEVICE_STREAM_CAPSULE, build_stream_block(field, blocks, is_device_stream=True))


def _check_device_options(options: DeviceOptions) -> None:
    """«Device Support»: options of later versions are accepted if they are None."""
    unsupported = sorted(name for name, value in (options or {}).items() if value is not None)
    if unsupported:
        raise NotImplementedError(f"options of the device interface that are not supported: {unsupported}")


def _build_checked_batch_block(
    batch: AbstractRecordBatch, schema: Schema, device: Device | None = None
) -> c_abi.ExportedStructBlock:
    """Return the block of a batch after checking it against the schema of its stream, which consumers rely on."""
    columns = batch.columns
    if len(columns) != len(schema):
        raise InvalidDataError(f"a record batch has {len(columns)} columns, the schema has {len(schema)}")
    for field, column in zip(schema.fields, columns, strict=True):
        if column.length != batch.num_rows or (column.type is not field.type and column.type != field.type):
            expected, actual = f"{field.type}[{batch.num_rows}]", f"{column.type}[{column.length}]"
            raise InvalidDataError(f"column {field.name!r} of a record batch: expected {expected}, found {actual}")
    return build_batch_block(batch.num_rows, columns, device)


# Import


def import_array(source: object) -> ArrayData:
    """Import an array from an object with `__arrow_c_array__` or `__arrow_c_device_array__`, or a pair of their
    capsules, without copying.

    The chunks of a source that exports only a stream (a chunked array, a polars series) are concatenated, which copies
    if there are several. Raises `TypeMismatchError` for any other object, `InvalidDataError` or a subclass for a
    malformed structure, `UnsupportedError` for data on a device whose memory the CPU can't read.
    """
    if has_c_array(source) or isinstance(source, tuple):
        return _import_field_and_array(source)[1]
    return import_chunked_array(source).combine_chunks()


def import_batch(source: object) -> tuple[Schema, ColumnarBatch]:
    """Import a schema and a record batch from a struct array, without copying.

    Accepts the sources of `import_array` except streams. Raises `InvalidDataError` if the array is not a struct or has
    null rows; otherwise as `import_array`.
    """
    field, array = _import_field_and_array(source)
    return schema_from_field(field), _batch_from_struct(array)


def import_stream(source: object) -> tuple[Schema, Iterator[ColumnarBatch]]:
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
    return schema, map(_batch_from_struct, stream)


def import_chunked_array(source: object) -> ChunkedArrayData:
    """Import a chunked array from an object that exports a stream, or from its capsule, without copying."""
    with _open_stream(source) as stream:
        return ChunkedArrayData(list(stream), stream.field.type)


def has_c_array(source: object) -> bool:
    """Whether an object has `__arrow_c_array__` or `__arrow_c_device_array__`."""
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_device_array__")


def has_c_stream(source: object) -> bool:
    """Whether an object has `__arrow_c_stream__` or `__arrow_c_device_stream__`."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_device_stream__")


def _import_field_and_array(source: Any) -> tuple[Field, ArrayData]:
    pair = source
    if hasattr(source, "__arrow_c_array__"):
        pair = source.__arrow_c_array__()
    elif hasattr(source, "__arrow_c_device_array__"):
        pair = source.__arrow_c_device_array__()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeMismatchError(
            f"expected an object with __arrow_c_array__ or two capsules, found {type(source).__name__}"
        )
    schema_capsule, array_capsule = pair
    # The array is moved last: after an error in its schema, its capsule still releases it.
    is_device_array = c_abi.is_capsule(array_capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    address = c_abi.capsule_pointer(
        array_capsule, c_abi.DEVICE_ARRAY_CAPSULE if is_device_array else c_abi.ARRAY_CAPSULE
    )
    field = read_field(c_abi.capsule_pointer(schema_capsule, c_abi.SCHEMA_CAPSULE))
    return field, import_array_struct(address, layout_of(field.type), is_device_array)


def _open_stream(source: Any) -> ImportedArrayStream:
    capsule = source
    if hasattr(source, "__arrow_c_stream__"):
        capsule = source.__arrow_c_stream__()
    elif hasattr(source, "__arrow_c_device_stream__"):
        capsule = source.__arrow_c_device_stream__()
    if c_abi.is_capsule(capsule, c_abi.DEVICE_STREAM_CAPSULE):
        return ImportedArrayStream(c_abi.capsule_pointer(capsule, c_abi.DEVICE_STREAM_CAPSULE), is_device_stream=True)
    return ImportedArrayStream(c_abi.capsule_pointer(capsule, c_abi.STREAM_CAPSULE))


def _batch_from_struct(array: ArrayData) -> ColumnarBatch:
    if array.null_count:
        raise InvalidDataError(
            f"{array.null_count} of {array.length} rows of a record batch are null: record batches have no validity"
        )
    columns = array.children  # longer than a struct array that is a slice
    if any(column.length != array.length for column in columns):
        columns = tuple(column.slice(array.offset, array.length) for column in columns)
    return ColumnarBatch(array.length, columns)
