"""Cast batches of files to the types of Spark's schema.

pyarrow, which PySpark requires, casts offsets, integers and units of time, and selects fields of structs. Before that,
Bowstring decodes what pyarrow can't cast, or casts wrongly, such as list views.
"""

from __future__ import annotations

from typing import Any

from bowstring.arrays.array import import_array
from bowstring.datatypes import types as arrow
from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.spark.types import map_child_types


def cast_batch(batch: Any, target: Any, place: str, *, truncate: bool) -> Any:
    """Return `batch` with the columns and types of the pyarrow schema `target`. Columns of equal types are not copied.

    Columns that `batch` lacks are null. `truncate` allows units of time to lose digits.

    Raises:
        InvalidDataError: a value does not fit Spark's type; the message begins with `place` and the column.
        UnsupportedTypeError: the column's type can't be cast to Spark's.
    """
    import pyarrow as pa

    columns = []
    for field in target:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
        try:
            columns.append(_cast(column, field.type, truncate))
        except pa.ArrowNotImplementedError as problem:
            raise UnsupportedTypeError(
                f"{place}, column {field.name}: {column.type} cannot be read as {field.type}: {problem}"
            ) from problem
        except pa.ArrowException as problem:
            raise InvalidDataError(
                f"{place}, column {field.name}: a value of {column.type} does not fit "
                f"{_in_microseconds(field.type)}: {problem}"
            ) from problem
        nulls = _forbidden_nulls(columns[-1], field)
        if nulls:
            raise InvalidDataError(
                f"{place}, column {field.name}: found {nulls} nulls in a column that is not nullable"
            )
    return pa.record_batch(columns, schema=target)


def _cast(column: Any, data_type: Any, truncate: bool) -> Any:
    import pyarrow.compute as pc

    column = _decode(column)
    for step in (_in_microseconds(data_type), data_type) if _has_nanoseconds(column.type) else (data_type,):
        if column.type != step:
            column = pc.cast(column, options=pc.CastOptions(target_type=step, allow_time_truncate=truncate))
    return column


def _decode(column: Any) -> Any:
    """Decode extension types, dictionaries, runs and list views at every depth."""
    import pyarrow as pa

    array = import_array(column)
    decoded_type = _decoded_type(array.type)
    return column if decoded_type == array.type else pa.array(array.cast(decoded_type))


def _decoded_type(data_type: arrow.DataType) -> arrow.DataType:
    match data_type:
        case ExtensionType():
            return _decoded_type(data_type.storage_type)
        case arrow.Dictionary() | arrow.RunEndEncoded():
            return _decoded_type(data_type.value_type)
        case arrow.ListView():
            data_type = arrow.List(data_type.value_field)
        case arrow.LargeListView():
            data_type = arrow.LargeList(data_type.value_field)
    return map_child_types(data_type, _decoded_type)


def _has_nanoseconds(data_type: Any) -> bool:
    """Whether `data_type` is or contains a time of day in nanoseconds."""
    import pyarrow as pa

    return data_type == pa.time64("ns") or any(
        _has_nanoseconds(data_type.field(i).type) for i in range(data_type.num_fields)
    )


def _in_microseconds(data_type: Any) -> Any:
    """Return one of Spark's types with times of day in microseconds; Spark stores whole microseconds as nanoseconds."""
    import pyarrow as pa

    if data_type == pa.time64("ns"):
        return pa.time64("us")
    if not _has_nanoseconds(data_type):
        return data_type
    fields = [data_type.field(i) for i in range(data_type.num_fields)]
    if pa.types.is_map(data_type):
        return pa.map_(_in_microseconds(data_type.key_type), _in_microseconds(data_type.item_type))
    converted = [field.with_type(_in_microseconds(field.type)) for field in fields]
    return pa.struct(converted) if pa.types.is_struct(data_type) else pa.list_(converted[0])


def _forbidden_nulls(column: Any, field: Any) -> int:
    """Return the number of nulls of `column` for which `field` or one of its children is not nullable."""
    import pyarrow as pa

    if not field.nullable and column.null_count:
        return int(column.null_count)
    if not _has_required_field(field.type):
        return 0
    column = column.drop_null()
    if pa.types.is_struct(field.type):
        return sum(_forbidden_nulls(child, field.type.field(i)) for i, child in enumerate(column.flatten()))
    if pa.types.is_map(field.type):
        start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
        return _forbidden_nulls(column.items.slice(start, end - start), field.type.item_field)
    return _forbidden_nulls(column.flatten(), field.type.value_field)


def _has_required_field(data_type: Any) -> bool:
    """Whether a child of `data_type` is not nullable, except for the keys of maps, which never are."""
    import pyarrow as pa

    if pa.types.is_map(data_type):
        fields = [data_type.item_field]
    else:
        fields = [data_type.field(i) for i in range(data_type.num_fields)]
    return any(not field.nullable or _has_required_field(field.type) for field in fields)
