"""Python objects, NumPy arrays and other libraries' Arrow data -> arrays, record batches and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch, resolve_schema
from bowstring.arrays.table import Table
from bowstring.arrays.type_inference import infer_array, type_of_numpy
from bowstring.datatypes import types
from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.field import MetadataLike, Schema, SchemaLike, as_schema, field
from bowstring.datatypes.types import DataType
from bowstring.errors import DataTypeError, UsageError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout, Values, pack_validity, short_repr
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.struct_ import StructLayout

_ARRAY_METHODS = ("__arrow_c_array__", "__arrow_c_device_array__")
_STREAM_METHODS = ("__arrow_c_stream__", "__arrow_c_device_stream__")
"""The methods of the Arrow PyCapsule interface."""


def as_table(source: object) -> Table:
    """A table, a record batch as one, or another library's (by the PyCapsule interface).

    Raises `DataTypeError` for anything else: `table` makes tables of Python's objects.
    """
    if isinstance(source, Table | RecordBatch) or _is_arrow(source) or _is_pandas(source):
        return table(source)
    raise DataTypeError(f"expected a table, or an object with __arrow_c_stream__, found {type(source).__name__}")


def as_batch(source: object) -> RecordBatch:
    """A record batch, or another library's (by the PyCapsule interface). Raises `DataTypeError` for anything else."""
    if isinstance(source, RecordBatch) or _has_any(source, _ARRAY_METHODS):
        return record_batch(source)
    raise DataTypeError(f"expected a record batch, or an object with __arrow_c_array__, found {type(source).__name__}")


def _is_arrow(source: object) -> bool:
    return _has_any(source, _STREAM_METHODS) or _has_any(source, _ARRAY_METHODS)


def _has_any(source: object, methods: tuple[str, ...]) -> bool:
    return any(hasattr(source, method) for method in methods)


def _is_pandas(source: object) -> bool:
    """Whether an object is one of pandas'. Its frames and series export Arrow data only where pyarrow is installed."""
    return type(source).__module__.partition(".")[0] == "pandas" and _has_any(source, ("dtype", "dtypes"))


def array(values: Any, type: TypeLike | None = None, mask: Values | Sequence[bool] | None = None) -> Array:
    """An array of `values`, of data type `type` or of one that is inferred from them.

    The type is one of ours or of another library, or the name of one, such as "int64".

    `values` is a sequence of Python objects (None for null), a NumPy array, or anything that exports the Arrow C data
    interface, or gives itself to NumPy or by DLPack; all but the first are taken over without copying where memory and
    type allow. `mask` says which values are null (True), for NumPy arrays. Raises `DataTypeError` naming the first
    value that does not fit, `LimitError` for many dictionaries that hardly share a key: nearly all would be null.
    """
    data_type = None if type is None else as_type(type, "array")
    if mask is None and values.__class__ in (list, tuple):
        return _from_python(values, data_type)
    if mask is None and values.__class__ is np.ndarray:
        return _from_numpy(values, layout_of(data_type or type_of_numpy(values)), None)
    if isinstance(values, ChunkedArray):
        values = values.combine_chunks()
    elif _is_pandas(values):
        values = Array.from_pandas(values, data_type)
    elif not isinstance(values, Array) and (_has_any(values, _ARRAY_METHODS) or _has_any(values, _STREAM_METHODS)):
        from bowstring.interop import c_data

        values = c_data.import_array(values)
    if isinstance(values, Array):
        if data_type is not None and values.type != data_type:
            raise DataTypeError(f"the array is {values.type}, not {data_type}")
        return values
    own_valid = None
    if isinstance(values, np.ma.MaskedArray):
        own_valid = _valid(np.ma.getmaskarray(values)) if mask is None else None
        values = values.data
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__") and not np.isscalar(values):
        values = np.asarray(values)
    elif not isinstance(values, (np.ndarray, Array)) and hasattr(values, "__dlpack__"):
        from bowstring.interop import dlpack

        values = dlpack.numpy_from_dlpack(values)
    if isinstance(values, np.ndarray):
        valid = own_valid if mask is None else ~np.asarray(mask, np.bool_)
        if mask is not None and valid is not None and valid.shape != values.shape[:1]:
            raise UsageError(f"a mask of shape {valid.shape} does not fit values of shape {values.shape}")
        return _from_numpy(values, layout_of(data_type or type_of_numpy(values)), valid)
    if mask is not None:
        raise UsageError("a mask goes with a NumPy array; among Python objects None is null")
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataTypeError(f"an array is made from a sequence, not from {short_repr(values)}")
    return _from_python(values if isinstance(values, (list, tuple)) else list(values), data_type)


def _from_python(values: Sequence[Any], type: DataType | None) -> Array:
    try:
        return infer_array(values) if type is None else layout_of(type).build(values)
    except RecursionError:
        raise DataTypeError("the values are nested too deep") from None


def _valid(mask: Values) -> Values:
    """What a mask leaves, of the mask's own shape and fields."""
    if mask.dtype.names is None:
        return ~mask
    valid = np.empty(mask.shape, mask.dtype)
    for name in mask.dtype.names:
        valid[name] = _valid(mask[name])
    return valid


def _from_numpy(values: Values, layout: Layout, valid: Values | None) -> Array:
    """`valid` has a truth value for each row, or for each element of each row, or fields of such."""
    if values.ndim == 0:
        raise DataTypeError("an array is made from a NumPy array of at least one dimension")
    if values.dtype.byteorder == ">" or (values.dtype.kind in "iufmM" and not values.dtype.isnative):
        values = values.astype(values.dtype.newbyteorder("="))
    if isinstance(layout, ExtensionLayout):
        stored = layout.from_numpy(values)
        if stored is not None:
            return _from_numpy(stored, layout.storage, valid).with_layout(layout)
    if isinstance(layout, FixedSizeListLayout) and values.ndim > 1 and values.shape[1] == layout.size:
        flat = (values.shape[0] * values.shape[1], *values.shape[2:])
        own, inner = (valid, None) if valid is None or valid.ndim == 1 else (None, valid.reshape(flat))
        elements = _from_numpy(values.reshape(flat), layout.children[0], inner)
        return Array(layout, len(values), (pack_validity(own),), (elements,))
    if values.ndim == 1 and values.dtype.kind != "O":
        if isinstance(layout, PrimitiveLayout):
            return layout.from_numpy(values, valid)
        if isinstance(layout, BooleanLayout) and values.dtype.kind == "b":
            return layout.of(values, valid)
        if isinstance(layout, StructLayout) and values.dtype.names == tuple(layout.names):
            own, inner = (valid, None) if valid is None or valid.dtype.names is None else (None, valid)
            columns = [
                _from_numpy(values[name], child, None if inner is None else inner[name])
                for name, child in zip(layout.names, layout.children, strict=True)
            ]
            return Array(layout, len(values), (pack_validity(own),), tuple(columns))
    if valid is not None and (valid.ndim > 1 or valid.dtype.names is not None):
        if values.dtype.kind in "mMV":
            raise DataTypeError(f"NumPy's {values.dtype} with a mask by element does not become {layout.type}")
        return layout.build(np.where(valid, values.astype(object), np.array(None)).tolist())
    items = list(values) if values.ndim > 1 or values.dtype.kind in "mM" else values.tolist()
    if values.dtype.kind == "T":
        items = [item if isinstance(item, str) or values.ndim > 1 else None for item in items]
    if valid is not None:
        items = [item if keep else None for item, keep in zip(items, valid.tolist(), strict=True)]
    return layout.build(items)


# Batches and tables


def _columns(data: Any, schema: SchemaLike | None, names: Sequence[str] | None) -> tuple[list[Any], Schema]:
    if schema is not None:
        schema = as_schema(schema)
    if isinstance(data, str | bytes) or not hasattr(data, "__len__"):
        raise DataTypeError(f"expected columns by name, or a sequence of columns, not {type(data).__name__}")
    if isinstance(data, Mapping):
        if schema is not None:
            fields = schema.fields
            missing = [f.name for f in fields if f.name not in data]
            if missing:
                raise UsageError(f"the schema has columns that the data lacks: {missing}")
            data = [data[f.name] for f in fields]
        else:
            names, data = list(data), list(data.values())
    if schema is not None and len(schema) != len(data):
        raise UsageError(f"a schema of {len(schema)} fields does not fit {len(data)} columns")
    types_ = [None] * len(data) if schema is None else schema.types
    columns = [v if isinstance(v, ChunkedArray) else array(v, t) for v, t in zip(data, types_, strict=True)]
    return columns, resolve_schema(columns, names, schema)


def record_batch(
    data: Any, schema: SchemaLike | None = None, names: Sequence[str] | None = None, metadata: MetadataLike = None
) -> RecordBatch:
    """A record batch from columns by name, a sequence of columns with `names` or a `schema`, or another library's
    batch.

    Columns are as `array` takes them. Raises `UsageError` if lengths or types do not agree.
    """
    if isinstance(data, RecordBatch):
        return data
    if data.__class__ not in (dict, list, tuple):
        if _is_pandas(data):
            return RecordBatch.from_pandas(data, schema)
        if _has_any(data, _ARRAY_METHODS):
            from bowstring.interop import c_data

            return c_data.import_batch(data)
    columns, batch_schema = _columns(data, schema, names)
    if metadata is not None:
        batch_schema = batch_schema.with_metadata(metadata)
    arrays = tuple([c.combine_chunks() if isinstance(c, ChunkedArray) else c for c in columns])
    return RecordBatch(batch_schema, arrays[0].length if arrays else 0, arrays)


def table(
    data: Any, schema: SchemaLike | None = None, names: Sequence[str] | None = None, metadata: MetadataLike = None
) -> Table:
    """A table from columns by name, a sequence of columns with `names` or a `schema`, rows as dictionaries, or another
    library's table.

    Columns are as `array` takes them, or chunked. Raises `UsageError` if lengths or types do not agree.
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, RecordBatch):
        return Table(data.schema, [data])
    if _is_pandas(data):
        return Table.from_pandas(data, schema)
    if _has_any(data, _STREAM_METHODS):
        from bowstring.interop import c_data

        stream_schema, batches = c_data.import_stream(data)
        return Table(stream_schema, list(batches))
    if _has_any(data, _ARRAY_METHODS):
        batch = record_batch(data)
        return Table(batch.schema, [batch])
    if isinstance(data, (list, tuple)) and data and names is None and _are_rows(data):
        return _from_rows(data, None if schema is None else as_schema(schema), metadata)
    columns, table_schema = _columns(data, schema, names)
    return Table.from_arrays(columns, schema=table_schema if metadata is None else table_schema.with_metadata(metadata))


def _are_rows(data: Sequence[Any]) -> bool:
    return {dict}.issuperset(map(type, data)) or all(isinstance(row, Mapping) for row in data)


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None, metadata: MetadataLike) -> Table:
    structs = array(rows, None if schema is None else types.Struct(schema.fields))
    row_schema = schema or Schema(tuple(field(f.name, f.type) for f in structs.type.fields))
    if metadata is not None:
        row_schema = row_schema.with_metadata(metadata)
    return Table(row_schema, [RecordBatch(row_schema, len(rows), structs.children)])
