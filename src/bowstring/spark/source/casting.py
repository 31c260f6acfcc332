"""Cast batches of files to the types of Spark's schema.

pyarrow, which PySpark requires, casts offsets, integers and units of time, and selects fields of structs. Before that,
Bowstring decodes what pyarrow can't cast, or casts wrongly, such as list views and unions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bowstring.arrays.record_batch import import_batch
from bowstring.datatypes import types as arrow
from bowstring.datatypes.canonical.bool8 import Bool8Type
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.kernels.cast_temporal import INTERVAL_FIELDS
from bowstring.spark.types import map_child_types, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bowstring.arrays.array import Array


def cast_batch(
    batch: Any,
    spark_schema: StructType,
    location: str,
    *,
    constants: Mapping[str, Any] | None = None,
    truncate_times: bool,
) -> Any:
    """Return `batch` with the columns of `spark_schema`, as the pyarrow types that Spark takes for them. Columns of
    equal types are not copied.

    Columns that `batch` lacks have the value of `constants`, or are null. `truncate_times` allows units of time to
    lose digits.

    Raises:
        InvalidDataError: a value does not fit Spark's type; the message begins with `location` and the column.
        UnsupportedTypeError: the column's type can't be cast to Spark's.
    """
    import pyarrow as pa

    fields = (field.with_type(decode_type(field.type)) for field in to_arrow_schema(spark_schema))  # of variants
    target_schema = pa.schema(Schema(tuple(fields)))
    # pyarrow does not cast nulls to fields that are not nullable, even if they are under the null of a parent.
    nullable_schema = pa.schema(as_nullable(import_schema(target_schema)))
    arrays: Sequence[Array] = ()
    columns = []
    for field, nullable, spark_field in zip(target_schema, nullable_schema, spark_schema.fields, strict=True):
        checked_type = _with_checked_times(nullable.type, spark_field.dataType)
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            value, length = None if constants is None else constants.get(field.name), batch.num_rows
            columns.append(
                pa.nulls(length, nullable.type) if value is None else pa.repeat(pa.scalar(value, nullable.type), length)
            )
        elif batch.schema.field(index).type == checked_type == nullable.type:
            columns.append(batch.column(index))
        else:
            arrays = arrays or import_batch(batch).columns  # pyarrow has no arrays of some types
            with _explain_failed_cast(f"{location}, column {field.name}", batch.schema.field(index).type, checked_type):
                columns.append(_cast_column(arrays[index], checked_type, nullable.type, truncate_times))
        null_count = 0 if field == nullable else _count_forbidden_nulls(columns[-1], field)
        if null_count:
            raise InvalidDataError(
                f"{location}, column {field.name}: found {null_count} nulls in a column that is not nullable"
            )
    if not columns:
        return batch.select([])  # which has the number of rows
    nullable_batch = pa.record_batch(columns, schema=nullable_schema)
    if target_schema == nullable_schema:
        return nullable_batch
    _, array = nullable_batch.__arrow_c_array__()
    return pa.record_batch(import_batch((target_schema.__arrow_c_schema__(), array)))


@contextmanager
def _explain_failed_cast(location: str, source: Any, target: Any) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowNotImplementedError as problem:
        raise UnsupportedTypeError(f"{location}: {source} cannot be read as {target}: {problem}") from problem
    except pa.ArrowException as problem:
        raise InvalidDataError(f"{location}: a value of {source} does not fit {target}: {problem}") from problem


def _cast_column(array: Array, checked_type: Any, data_type: Any, truncate_times: bool) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.array(array.cast(decode_type(array.type)))
    for step in (checked_type, data_type):  # first to the precision of a time, which is checked, then to nanoseconds
        if column.type != step:
            column = pc.cast(column, options=pc.CastOptions(target_type=step, allow_time_truncate=truncate_times))
    return column


def decode_type(data_type: arrow.DataType) -> arrow.DataType:
    """Return a type that pyarrow casts for any other: without extensions, dictionaries, runs, list views, unions and
    calendar intervals at every depth.
    """
    match data_type:
        case Bool8Type():
            return arrow.Bool()
        case ExtensionType():
            return decode_type(data_type.storage_type)
        case arrow.Dictionary() | arrow.RunEndEncoded():
            return decode_type(data_type.value_type)
        case arrow.ListView():
            data_type = arrow.List(data_type.value_field)
        case arrow.LargeListView():
            data_type = arrow.LargeList(data_type.value_field)
        case arrow.Interval():
            return arrow.Int(32) if data_type.unit == "year_month" else INTERVAL_FIELDS
        case arrow.Union():
            data_type = arrow.Struct(tuple(child.with_nullable(True) for child in data_type.children))
    return map_child_types(data_type, decode_type)


def _with_checked_times(data_type: Any, spark_type: Any) -> Any:
    """Return the pyarrow type of `spark_type` with times of day in the unit of their precision, which a cast checks.

    Spark takes all times of day in nanoseconds.
    """
    import pyarrow as pa

    if hasattr(spark_type, "sqlType"):
        spark_type = spark_type.sqlType()
    if pa.types.is_time(data_type):
        digits = spark_type.precision
        return pa.time32("s" if digits == 0 else "ms") if digits <= 3 else pa.time64("us" if digits <= 6 else "ns")
    if pa.types.is_map(data_type):
        key = _with_checked_times(data_type.key_type, spark_type.keyType)
        item = data_type.item_field.with_type(_with_checked_times(data_type.item_type, spark_type.valueType))
        return pa.map_(key, item)
    if pa.types.is_struct(data_type) and hasattr(spark_type, "fields"):
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
    if not pa.types.is_nested(field.type):
        return 0
    column = column.drop_null()  # children of a null do not count
    if pa.types.is_struct(field.type):
        return sum(_count_forbidden_nulls(child, field.type.field(i)) for i, child in enumerate(column.flatten()))
    if pa.types.is_map(field.type):  # whose keys are never nullable
        # `items` has all of the array, even if this is a slice.
        start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
        return _count_forbidden_nulls(column.items.slice(start, end - start), field.type.item_field)
    return _count_forbidden_nulls(column.flatten(), field.type.value_field)
