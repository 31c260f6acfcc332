"""Python objects, NumPy arrays and other libraries' Arrow data -> arrays, record batches and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np

from bowstring.datatypes import types
from bowstring.datatypes.field import MetadataLike, Schema, field
from bowstring.datatypes.types import DataType
from bowstring.errors import DataTypeError, UnsupportedError, UsageError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout, Values, brief, split_nulls, validity_of
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.list_ import ListLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.scalars.temporal import DayTime, MonthDayNano, zone_of
from bowstring.layouts.struct_ import StructLayout
from bowstring.tabular.batch import RecordBatch, fitting_schema
from bowstring.tabular.chunked import ChunkedArray
from bowstring.tabular.table import Table

_GIVES_ARRAY = ("__arrow_c_array__", "__arrow_c_device_array__")
_GIVES_STREAM = ("__arrow_c_stream__", "__arrow_c_device_stream__")
"""The methods of the Arrow PyCapsule interface."""


def _has_any(source: object, methods: tuple[str, ...]) -> bool:
    return any(hasattr(source, method) for method in methods)


def _is_pandas(source: object) -> bool:
    """Whether an object is one of pandas'. Its frames and series export Arrow data only where pyarrow is installed."""
    return type(source).__module__.partition(".")[0] == "pandas" and _has_any(source, ("dtype", "dtypes"))


def array(values: Any, type: DataType | None = None, mask: Values | Sequence[bool] | None = None) -> Array:
    """An array of `values`, of data type `type` or of one that is inferred from them.

    `values` is a sequence of Python objects (None for null), a NumPy array, or anything that exports the Arrow C data
    interface, or gives itself to NumPy or by DLPack; all but the first are taken over without copying where memory and
    type allow. `mask` says which values are null (True), for NumPy arrays. Raises `DataTypeError` naming the first
    value that does not fit.
    """
    if isinstance(values, ChunkedArray):
        values = values.combine_chunks()
    elif _is_pandas(values):
        values = Array.from_pandas(values, type)
    elif not isinstance(values, Array) and (_has_any(values, _GIVES_ARRAY) or _has_any(values, _GIVES_STREAM)):
        from bowstring.exchange import cdata

        values = cdata.import_array(values)
    if isinstance(values, Array):
        if type is not None and values.type != type:
            raise DataTypeError(f"the array is {values.type}, not {type}")
        return values
    own_valid = None
    if isinstance(values, np.ma.MaskedArray):
        own_valid = _valid(np.ma.getmaskarray(values)) if mask is None else None
        values = values.data
    elif not isinstance(values, np.ndarray) and hasattr(values, "__array__") and not np.isscalar(values):
        values = np.asarray(values)
    elif not isinstance(values, (np.ndarray, Array)) and hasattr(values, "__dlpack__"):
        from bowstring.exchange import plain

        values = plain.taken(values)
    if isinstance(values, np.ndarray):
        valid = own_valid if mask is None else ~np.asarray(mask, np.bool_)
        if mask is not None and valid is not None and valid.shape != values.shape[:1]:
            raise UsageError(f"a mask of shape {valid.shape} does not fit values of shape {values.shape}")
        return _from_numpy(values, layout_of(type or numpy_type(values)), valid)
    if mask is not None:
        raise UsageError("a mask goes with a NumPy array; among Python objects None is null")
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataTypeError(f"an array is made from a sequence, not from {brief(values)}")
    items = values if isinstance(values, (list, tuple)) else list(values)
    try:
        return _inferred(items) if type is None else layout_of(type).build(items)
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
            return _from_numpy(stored, layout.storage, valid).seen_as(layout)
    if isinstance(layout, FixedSizeListLayout) and values.ndim > 1 and values.shape[1] == layout.size:
        flat = (values.shape[0] * values.shape[1], *values.shape[2:])
        own, inner = (valid, None) if valid is None or valid.ndim == 1 else (None, valid.reshape(flat))
        elements = _from_numpy(values.reshape(flat), layout.children[0], inner)
        return Array(layout, len(values), (validity_of(own),), (elements,))
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
            return Array(layout, len(values), (validity_of(own),), tuple(columns))
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


# Inference


def _inferred(values: Sequence[Any]) -> Array:
    """An array of Python values, of the data type that `infer_type` says: in the quickest way where they are all of
    the type of the first, or None.
    """
    first = next((value for value in values if value is not None), None)
    plain = _PLAIN.get(type(first))
    made = None
    if plain is not None:
        made = layout_of(plain).build_plain(values)
    elif type(first) is list or type(first) is dict:
        made = _inferred_lists(values) if type(first) is list else _inferred_structs(values)
    return layout_of(infer_type(values)).build(values) if made is None else made


_PLAIN: dict[type, DataType] = {
    int: types.int64(),
    float: types.float64(),
    str: types.string(),
    bytes: types.binary(),
}


def _inferred_lists(values: Sequence[Any]) -> Array | None:
    """An array of lists, None where other values are among them."""
    filled, mask = split_nulls(values, [])
    if not {list}.issuperset(map(type, filled)):
        return None
    child = _inferred(list(chain.from_iterable(filled)))
    layout = layout_of(types.list_(child.type))
    assert isinstance(layout, ListLayout)
    return layout.of(np.fromiter(map(len, filled), np.int64, len(filled)), child, validity_of(mask))


def _inferred_structs(values: Sequence[Any]) -> Array | None:
    """An array of structs, None where other values than dictionaries with strings as keys are among them."""
    filled, mask = split_nulls(values, {})
    if not {dict}.issuperset(map(type, filled)):
        return None
    names = dict.fromkeys(chain.from_iterable(filled))
    if not {str}.issuperset(map(type, names)):
        return None
    columns = [_inferred([value.get(name) for value in filled]) for name in names]
    made = types.struct([(name, column.type) for name, column in zip(names, columns, strict=True)])
    layout = layout_of(made)
    assert isinstance(layout, StructLayout)
    return layout.of(columns, len(filled), mask)


def numpy_type(values: Values) -> DataType:
    """The data type for a NumPy array: its elements', in fixed-size lists for each dimension beyond the first."""
    if values.ndim > 1:
        return types.list_(numpy_type(values[:, 0] if values.shape[1] else values.reshape(-1)), values.shape[1])
    if values.dtype.kind == "O":
        return infer_type(values.tolist())
    return _dtype_type(values.dtype)


def _dtype_type(dtype: np.dtype[Any]) -> DataType:
    if dtype.subdtype is not None:
        made = _dtype_type(dtype.base)
        for size in reversed(dtype.shape):
            made = types.list_(made, size)
        return made
    make = _NUMPY_KINDS.get(dtype.kind)
    if make is None or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataTypeError(f"NumPy's {dtype} has no data type: give one")
    return make(dtype)


def _time_unit(dtype: np.dtype[Any]) -> types.TimeUnit:
    unit, count = np.datetime_data(dtype)
    for known in types.TIME_UNITS:
        if unit == known and count == 1:
            return known
    raise DataTypeError(f"NumPy's {dtype} has no data type: convert it to s, ms, us or ns")


def _datetime_type(dtype: np.dtype[Any]) -> DataType:
    return types.date32() if np.datetime_data(dtype) == ("D", 1) else types.Timestamp(_time_unit(dtype))


def _void_type(dtype: np.dtype[Any]) -> DataType:
    if dtype.fields is None:
        return types.FixedSizeBinary(dtype.itemsize)
    return types.struct([(name, _dtype_type(dtype.fields[name][0])) for name in dtype.names or ()])


_NUMPY_KINDS: dict[str, Callable[[np.dtype[Any]], DataType]] = {
    "b": lambda _: types.bool_(),
    "i": lambda d: types.Int(d.itemsize * 8),
    "u": lambda d: types.Int(d.itemsize * 8, False),
    "f": lambda d: types.FloatingPoint(d.itemsize * 8),
    "U": lambda _: types.string(),
    "T": lambda _: types.string(),
    "S": lambda _: types.binary(),
    "M": _datetime_type,
    "m": lambda d: types.Duration(_time_unit(d)),
    "V": _void_type,
}


def infer_type(values: Sequence[Any]) -> DataType:
    """The data type for Python values: the narrowest of Python's own kinds that holds them all, `null` for nothing but
    None.

    Integers become int64 (uint64 where they need it), integers with floats float64, datetimes microseconds in the zone
    of the first, sequences lists, dictionaries structs. Raises `DataTypeError` for a mixture or an unknown kind.
    """
    present = [value for value in values if value is not None]
    kinds = set(map(type, present))
    families = {_family(kind) for kind in kinds}
    if not families:
        return types.null()
    if families == {int, float}:
        families = {float}
    if len(families) > 1:
        raise DataTypeError(f"values of {_names(families)} have no common data type: give one")
    return _FAMILIES[families.pop()](present)


def _names(kinds: Iterable[Any]) -> str:
    return " and ".join(sorted(kind.__name__ for kind in kinds))


def _family(kind: type) -> type:
    for known in kind.__mro__:
        if known in _FAMILIES:
            return known
    for other, known in _RELATIVES.items():
        if issubclass(kind, other):
            return known
    raise DataTypeError(f"Python's {kind.__name__} has no data type: give one")


def _integers(values: list[Any]) -> DataType:
    low, high = min(values), max(values)
    if low >= -(1 << 63) and high < 1 << 63:
        return types.int64()
    if low >= 0 and high < 1 << 64:
        return types.uint64()
    raise DataTypeError(f"integers from {low} to {high} do not fit 64 bits: give a decimal type")


def _decimals(values: list[Decimal]) -> DataType:
    digits = scale = 0
    for value in values:
        _, shown, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise DataTypeError(f"{value} is no finite decimal")
        scale = max(scale, -exponent)
        digits = max(digits, len(shown) + min(exponent, 0), 0) if exponent <= 0 else max(digits, len(shown) + exponent)
    precision = max(digits + scale, 1)
    return types.Decimal(precision, scale, 128 if precision <= 38 else 256)


def _datetimes(values: list[datetime]) -> DataType:
    zones = {value.tzinfo is not None for value in values}
    if len(zones) > 1:
        raise DataTypeError("datetimes with and without a zone have no common data type: give one")
    zone = values[0].tzinfo
    return types.timestamp("us", None if zone is None else zone_name(zone))


def zone_name(zone: tzinfo) -> str:
    """The name of a zone that leads back to it, else UTC: the moments are the same."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or zone.tzname(None) or "UTC"
    if name.startswith(("UTC+", "UTC-")):
        name = name[3:]
    try:
        zone_of(name)
    except UnsupportedError:
        return "UTC"
    return str(name)


def _lists(values: list[Any]) -> DataType:
    return types.list_(infer_type(list(chain.from_iterable(values))))


def _structs(values: list[Mapping[str, Any]]) -> DataType:
    names = list(dict.fromkeys(chain.from_iterable(values)))
    for name in names:
        if not isinstance(name, str):
            raise DataTypeError(f"a struct's field is named by a string, not by {name!r}")
    return types.struct([(name, infer_type([value.get(name) for value in values])) for name in names])


_FAMILIES: dict[type, Callable[[list[Any]], DataType]] = {
    bool: lambda _: types.bool_(),
    int: _integers,
    float: lambda _: types.float64(),
    str: lambda _: types.string(),
    bytes: lambda _: types.binary(),
    datetime: _datetimes,
    date: lambda _: types.date32(),
    time: lambda _: types.time64("us"),
    timedelta: lambda _: types.duration("us"),
    Decimal: _decimals,
    MonthDayNano: lambda _: types.month_day_nano_interval(),
    DayTime: lambda _: types.day_time_interval(),
    np.datetime64: lambda v: _datetime_type(v[0].dtype),
    np.timedelta64: lambda v: types.Duration(_time_unit(v[0].dtype)),
    list: _lists,
    dict: _structs,
}
_RELATIVES: dict[type, type] = {
    np.integer: int,
    np.floating: float,
    np.bool_: bool,
    bytearray: bytes,
    memoryview: bytes,
    tuple: list,
    np.ndarray: list,
    Array: list,
    Mapping: dict,
}
"""What has the data type of another kind."""


# Batches and tables


def _columns(data: Any, schema: Schema | None, names: Sequence[str] | None) -> tuple[list[Any], Schema]:
    if isinstance(data, Mapping):
        if schema is not None:
            missing = [name for name in schema.names if name not in data]
            if missing:
                raise UsageError(f"the schema has columns that the data lacks: {missing}")
            data = [data[name] for name in schema.names]
        else:
            names, data = list(data), list(data.values())
    if schema is not None and len(schema) != len(data):
        raise UsageError(f"a schema of {len(schema)} fields does not fit {len(data)} columns")
    wanted = [None] * len(data) if schema is None else schema.types
    made = [v if isinstance(v, ChunkedArray) else array(v, t) for v, t in zip(data, wanted, strict=True)]
    return made, fitting_schema(made, names, schema)


def record_batch(
    data: Any, schema: Schema | None = None, names: Sequence[str] | None = None, metadata: MetadataLike = None
) -> RecordBatch:
    """A record batch from columns by name, a sequence of columns with `names` or a `schema`, or another library's
    batch.

    Columns are as `array` takes them. Raises `UsageError` where lengths or types do not agree.
    """
    if isinstance(data, RecordBatch):
        return data
    if _is_pandas(data):
        return RecordBatch.from_pandas(data, schema)
    if _has_any(data, _GIVES_ARRAY):
        from bowstring.exchange import cdata

        return cdata.import_batch(data)
    columns, made = _columns(data, schema, names)
    if metadata is not None:
        made = made.with_metadata(metadata)
    return RecordBatch.from_arrays([array(column) for column in columns], schema=made)


def table(
    data: Any, schema: Schema | None = None, names: Sequence[str] | None = None, metadata: MetadataLike = None
) -> Table:
    """A table from columns by name, a sequence of columns with `names` or a `schema`, rows as dictionaries, or another
    library's table.

    Columns are as `array` takes them, or chunked. Raises `UsageError` where lengths or types do not agree.
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, RecordBatch):
        return Table(data.schema, [data])
    if _is_pandas(data):
        return Table.from_pandas(data, schema)
    if _has_any(data, _GIVES_STREAM):
        from bowstring.exchange import cdata

        found, batches = cdata.import_stream(data)
        return Table(found, list(batches))
    if _has_any(data, _GIVES_ARRAY):
        batch = record_batch(data)
        return Table(batch.schema, [batch])
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data) and names is None:
        return _from_rows(data, schema, metadata)
    columns, made = _columns(data, schema, names)
    return Table.from_arrays(columns, schema=made if metadata is None else made.with_metadata(metadata))


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None, metadata: MetadataLike) -> Table:
    whole = array(rows, None if schema is None else types.Struct(schema.fields))
    made = schema or Schema(tuple(field(f.name, f.type) for f in whole.type.fields))
    if metadata is not None:
        made = made.with_metadata(metadata)
    return Table(made, [RecordBatch(made, len(rows), whole.children)])
