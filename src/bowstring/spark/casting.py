"""Cast batches of files to the types of Spark's schema.

pyarrow, which PySpark requires, casts offsets, integers and units of time, and selects fields of structs. Before that,
Bowstring decodes what pyarrow can't cast, or casts wrongly, such as list views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bowstring.arrays.array import import_array
from bowstring.datatypes import types as arrow
from bowstring.datatypes.extension import ExtensionType
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.spark.types import map_child_types

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def cast_batch(batch: Any, spark_schema: StructType, location: str, *, truncate_times: bool) -> Any:
    """Return `batch` with the columns of `spark_schema`, as the pyarrow types that Spark takes for them. Columns of
    equal types are not copied.

    Columns that `batch` lacks are null. `truncate_times` allows units of time to lose digits.

    Raises:
        InvalidDataError: a value does not fit Spark's type; the message begins with `location` and the column.
        UnsupportedTypeError: the column's type can't be cast to Spark's.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    target_schema = to_arrow_schema(spark_schema, timezone="UTC")
    columns = []
    for field, spark_field in zip(target_schema, spark_schema.fields, strict=True):
        checked_type = _with_checked_times(field.type, spark_field.dataType)
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
        try:
            columns.append(_cast_column(column, checked_type, field.type, truncate_times))
        except pa.ArrowNotImplementedError as problem:
            raise UnsupportedTypeError(
                f"{location}, column {field.name}: {column.type} cannot be read as {field.type}: {problem}"
            ) from problem
        except pa.ArrowException as problem:
            raise InvalidDataError(
                f"{location}, column {field.name}: a value of {column.type} does not fit {checked_type}: {problem}"
            ) from problem
        null_count = _count_forbidden_nulls(columns[-1], field)
        if null_count:
            raise InvalidDataError(
                f"{location}, column {field.name}: found {null_count} nulls in a column that is not nullable"
            )
    if not columns:
        return batch.select([])  # which has the number of rows
    return pa.record_batch(columns, schema=target_schema)


def _cast_column(column: Any, checked_type: Any, data_type: Any, truncate_times: bool) -> Any:
    import pyarrow.compute as pc

    column = _decode_column(column)
    for step in (checked_type, data_type):
        if column.type != step:
            column = pc.cast(column, options=pc.CastOptions(target_type=step, allow_time_truncate=truncate_times))
    return column


def _decode_column(column: Any) -> Any:
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


def _with_checked_times(data_type: Any, spark_type: Any) -> Any:
    """Return the pyarrow type of `spark_type` with times of day in the unit of their precision, which a cast checks.

    Spark takes all times of day in nanoseconds.
    """
    import pyarrow as pa

    if pa.types.is_time(data_type):
        digits = spark_type.precision
        return pa.time32("s" if digits == 0 else "ms") if digits <= 3 else pa.time64("us" if digits <= 6 else "ns")
    if pa.types.is_map(data_type):
        key = _with_checked_times(data_type.key_type, spark_type.keyType)
        item = data_type.item_field.with_type(_with_checked_times(data_type.item_type, spark_type.valueType))
        return pa.map_(key, item)
    if pa.types.is_struct(data_type):
        pairs = zip(data_type, spark_type.fields, strict=True)
        return pa.struct([field.with_type(_with_checked_times(field.type, own.dataType)) for field, own in pairs])
    if pa.types.is_list(data_type):
        element = data_type.value_field
        return pa.list_(element.with_type(_with_checked_times(element.type, spark_type.elementType)))
    return data_type


def _count_forbidden_nulls(column: Any, field: Any) -> int:
    """Return the number of nulls of `column` for which `field` or one of its children is not nullable."""
    import pyarrow as pa

    if not field.nullable and column.null_count:
        return int(column.null_count)
    if not _has_non_nullable_child(field.type):
        return 0
    column = column.drop_null()
    if pa.types.is_struct(field.type):
        return sum(_count_forbidden_nulls(child, field.type.field(i)) for i, child in enumerate(column.flatten()))
    if pa.types.is_map(field.type):
        start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
        return _count_forbidden_nulls(column.items.slice(start, end - start), field.type.item_field)
    return _count_forbidden_nulls(column.flatten(), field.type.value_field)


def _has_non_nullable_child(data_type: Any) -> bool:
    """Whether a child of `data_type` is not nullable, except for the keys of maps, which never are."""
    import pyarrow as pa

    if pa.types.is_map(data_type):
        fields = [data_type.item_field]
    else:
        fields = [data_type.field(i) for i in range(data_type.num_fields)]
    return any(not field.nullable or _has_non_nullable_child(field.type) for field in fields)
